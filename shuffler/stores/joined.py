"""Reports on their way to a store's disk: single ones and joined ones of one commit, as one bytes
object for each window.

A report of several messages is stored as as many rows, back to back, under one storage key, that of
all of them together: so it is there as a whole or not at all, a repeat of it is known by its key,
and keys count reports. Sealing gives each row a key of its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise

from shoal.arrays import NDArray, np
from shoal.errors import Kind
from shoal.ids import StorageKey
from shoal.shuffler.core import Capacity, WindowId
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
    window: WindowId, items: Sequence[Admitted], capacity: Capacity, row_size: int
) -> tuple[AdmittedRows, list[bool]]:
    """All reports of one window, with their digests, and which of the items are in it: those that
    have as many messages as the task's reports may have and ``row_size`` bytes to a message, and
    say whose they are if the first one does, and answer the same question. Sizes are stated where a
    report may have several.
    """
    usual = None if capacity.several else _join_reports(window, items, row_size)
    if usual is not None:
        return usual, [True] * len(items)
    named, asked, fits = bool(_devices(items[0])), items[0].asked, list[bool]()
    sealed, devices, digests, sizes = list[bytes](), list[bytes](), list[bytes](), list[int]()
    count = 0
    for item in items:
        fit = bool(_devices(item)) is named and _fits(item, capacity.messages, row_size)
        fit = fit and item.asked == asked
        fits.append(fit)
        if not fit:
            continue
        if isinstance(item, AdmittedRows):
            sealed.append(item.sealed)
            parts = cut(item.sealed, item.sizes, row_size) if item.sizes else None
            digests.append(item.digests or digests_of(parts or rows_of(item.sealed, row_size)))
        else:
            sealed += item.sealed
            digests.append(hashlib.sha256(b"".join(item.sealed)).digest())
        count += reports_of(item)
        devices += _devices(item)
        if capacity.several:
            sizes += _sizes(item)
    joined = b"".join(sealed), count, tuple(devices), b"".join(digests), tuple(sizes)
    return AdmittedRows(window, *joined, asked), fits


def _join_reports(
    window: WindowId, items: Sequence[Admitted], row_size: int
) -> AdmittedRows | None:
    """The usual case of calls with one report of one message each: all of them as they should be.
    None: look closely.
    """
    reports = [item for item in items if type(item) is AdmittedReport]
    if len(reports) < len(items):
        return None
    _, parts, devices, asked = zip(*reports, strict=True)
    sealed = tuple(chain.from_iterable(parts))
    if set(map(len, parts)) != {1} or set(map(len, sealed)) != {row_size} or len({*asked}) > 1:
        return None
    if not all(devices):
        if any(devices):
            return None
        devices = ()
    joined = b"".join(sealed), len(items), devices, digests_of(sealed)
    return AdmittedRows(window, *joined, asked=asked[0])


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


def digests_of(reports: Sequence[bytes]) -> bytes:
    """SHA-256 of each, joined."""
    sha256 = hashlib.sha256
    return b"".join([sha256(report).digest() for report in reports])


# --- reports of several messages ------------------------------------------------------------------


def cut(sealed: bytes, sizes: Sequence[int], row_size: int) -> list[bytes]:
    """The bytes of each report. ``sizes``: messages of each."""
    ends = accumulate(sizes, initial=0)
    return [sealed[at * row_size : end * row_size] for at, end in pairwise(ends)]


def row_places(places: NDArray[np.intp], sizes: Sequence[int]) -> NDArray[np.intp]:
    """The places of all rows of the reports at these ``places``, report after report. ``sizes``:
    rows of every report, in the order in which they lie.
    """
    lengths = np.array(sizes, dtype=np.intp)
    begins, taken = (np.cumsum(lengths) - lengths)[places], lengths[places]
    before = np.cumsum(taken) - taken
    within = np.arange(int(taken.sum()), dtype=np.intp)
    found: NDArray[np.intp] = within + np.repeat(begins - before, taken)
    return found


def row_keys(keys: bytes, sizes: Sequence[int]) -> bytes:
    """Of each row the key of its report, joined. ``keys``: of the reports, joined."""
    table = np.frombuffer(keys, dtype=np.uint8).reshape(-1, StorageKey.SIZE)
    return np.repeat(table, np.array(sizes, dtype=np.intp), axis=0).tobytes()


def reports_in(keys: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The other way round: keys of reports, and how many rows each has. ``keys``: of rows, joined,
    those of a report next to each other.
    """
    found, sizes = list[bytes](), list[int]()
    for key, size in _runs(rows_of(keys, StorageKey.SIZE)):
        found.append(key)
        sizes.append(size)
    return b"".join(found), tuple(sizes)


def _runs(keys: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    begin = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or keys[at] != keys[begin]:
            yield keys[begin], at - begin
            begin = at


def _devices(item: Admitted) -> tuple[bytes, ...]:
    if isinstance(item, AdmittedRows):
        return item.devices
    return (item.device,) if item.device else ()


def _sizes(item: Admitted) -> tuple[int, ...]:
    """Messages of each of its reports."""
    if isinstance(item, AdmittedRows):
        return item.sizes or (1,) * item.count
    return (len(item.sealed),)


def _fits(item: Admitted, messages: int, row_size: int) -> bool:
    if not isinstance(item, AdmittedRows):
        return 1 <= len(item.sealed) <= messages and set(map(len, item.sealed)) == {row_size}
    sizes, rows = item.sizes, item.count
    if sizes:
        if len(sizes) != item.count or min(sizes) < 1 or max(sizes) > messages:
            return False
        rows = sum(sizes)
    return (
        item.count > 0
        and len(item.sealed) == rows * row_size
        and len(item.devices) in (0, item.count)
        and len(item.digests) in (0, item.count * DIGEST)
    )
