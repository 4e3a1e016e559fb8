"""Reports on their way to a store's disk: single ones and joined ones of one commit, as one bytes
object for each window.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain

from shoal.errors import Kind
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows

Admitted = AdmittedReport | AdmittedRows
DIGEST = 32  # bytes of SHA-256


@lru_cache(maxsize=64)
def _cutter(size: int, count: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * count)


def rows_of(joined: bytes, size: int) -> tuple[bytes, ...]:
    """Equal parts of ``size`` bytes each, cut in C. ``joined``: a multiple of it."""
    step = 256 * size
    whole = len(joined) // step
    rows = [_cutter(size, 256).unpack_from(joined, at * step) for at in range(whole)]
    rest = (len(joined) - whole * step) // size
    return tuple(chain(*rows, _cutter(size, rest).unpack_from(joined, whole * step)))


def reports_of(item: Admitted) -> int:
    """How many reports it is."""
    return item.count if isinstance(item, AdmittedRows) else 1


def join(
    window: WindowId, items: Sequence[Admitted], messages: int, row_size: int
) -> tuple[AdmittedRows, list[bool]]:
    """All reports of one window, with their digests, and which of the items are in it: those that
    have the task's ``messages`` to a report and ``row_size`` bytes to a message, and say whose they
    are if the first one does.
    """
    usual = _join_reports(window, items, messages, row_size)
    if usual is not None:
        return usual, [True] * len(items)
    named, fits = bool(_devices(items[0])), list[bool]()
    sealed, devices, digests, count = list[bytes](), list[bytes](), list[bytes](), 0
    for item in items:
        fit = bool(_devices(item)) is named and _fits(item, messages, row_size)
        fits.append(fit)
        if not fit:
            continue
        if isinstance(item, AdmittedRows):
            sealed.append(item.sealed)
            digests.append(item.digests or digests_of(rows_of(item.sealed, row_size)))
            count += item.count
        else:
            sealed += item.sealed
            digests.append(digests_of(item.sealed))
            count += 1
        devices += _devices(item)
    joined = AdmittedRows(window, b"".join(sealed), count, tuple(devices), b"".join(digests))
    return joined, fits


def _join_reports(
    window: WindowId, items: Sequence[Admitted], messages: int, row_size: int
) -> AdmittedRows | None:
    """The usual case of calls with one report each: all of them as they should be. None: look
    closely.
    """
    reports = [item for item in items if type(item) is AdmittedReport]
    if len(reports) < len(items):
        return None
    _, parts, devices = zip(*reports, strict=True)
    sealed = tuple(chain.from_iterable(parts))
    if set(map(len, parts)) != {messages} or set(map(len, sealed)) != {row_size}:
        return None
    if not all(devices):
        if any(devices):
            return None
        devices = ()
    return AdmittedRows(window, b"".join(sealed), len(items), devices, digests_of(sealed))


def by_window(
    items: Sequence[Admitted],
    append: Callable[[WindowId, Sequence[Admitted]], list[Kind | None]],
) -> list[Kind | None]:
    """``append`` for every window of a commit; its outcomes, one per report, put into the order of
    the items.
    """
    groups: dict[WindowId, list[int]] = {}
    last, group = None, list[int]()
    for index, item in enumerate(items):
        # hashing an id costs more than the whole rest of this loop
        if item.window is not last:
            last = item.window
            group = groups.setdefault(last, [])
        group.append(index)
    if len(groups) == 1 and last is not None:
        return append(last, items)
    outcomes: dict[int, list[Kind | None]] = {}
    for window, indices in groups.items():
        kinds = iter(append(window, [items[index] for index in indices]))
        for index in indices:
            outcomes[index] = [next(kinds) for _ in range(reports_of(items[index]))]
    return list(chain.from_iterable(outcomes[index] for index in range(len(items))))


def spread(
    items: Sequence[Admitted], fits: Sequence[bool], kinds: Sequence[Kind | None]
) -> list[Kind | None]:
    """Outcomes of all items, of those of the ones that fit: the others are INTERNAL."""
    if all(fits):
        return list(kinds)
    left, outcomes = iter(kinds), list[Kind | None]()
    for item, fit in zip(items, fits, strict=True):
        outcomes += [next(left) if fit else Kind.INTERNAL for _ in range(reports_of(item))]
    return outcomes


def digests_of(rows: Sequence[bytes]) -> bytes:
    """SHA-256 of each, joined."""
    sha256 = hashlib.sha256
    return b"".join([sha256(row).digest() for row in rows])


def _devices(item: Admitted) -> tuple[bytes, ...]:
    if isinstance(item, AdmittedRows):
        return item.devices
    return (item.device,) if item.device else ()


def _fits(item: Admitted, messages: int, row_size: int) -> bool:
    if isinstance(item, AdmittedRows):
        rows = item.count * messages
        return (
            item.count > 0
            and len(item.sealed) == rows * row_size
            and len(item.devices) in (0, item.count)
            and len(item.digests) in (0, rows * DIGEST)
        )
    return len(item.sealed) == messages and set(map(len, item.sealed)) == {row_size}
