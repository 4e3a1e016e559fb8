"""Rows whose nonces begin alike: found in memory, or, of a batch too large for that, over parts of
it on disk.

A part has all rows whose beginnings hash to it, so what begins alike is in one part, and parts can
be looked at one after the other. The hash is drawn for each batch: no device can choose nonces that
all fall into one part, but for equal ones. On disk is nothing that anybody can read: the file has
no name, so a crash leaves none, and its blocks are sealed under a key of this process's memory.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.storage.disks import why_not

_RECORD = 16  # bytes: the row's number, and how its nonce begins
_BLOCK = 1 << 18  # bytes of a part that are written at once, and held for each part until then
_MOST_PARTS = 256
_TAG = 16  # bytes, of AES-256-GCM


class Tied(NamedTuple):
    """Row numbers, ascending, and how the nonce of each begins."""

    rows: NDArray[np.int64]
    begin: NDArray[np.uint64]


class Beginnings(Protocol):
    """How the nonces of a batch's good rows begin. Used by one thread after the other; ``close``
    may come from another one.
    """

    @property
    def blocks(self) -> bool:
        """Whether ``add`` may wait for a disk."""
        ...

    def add(self, rows: NDArray[np.int64], begin: NDArray[np.uint64]) -> None:
        """Good rows, beyond those before. Raises OVERLOADED if the disk can't take them."""
        ...

    def tied(self) -> Iterator[Tied]:
        """Rows whose nonces begin like that of another row. Those that begin alike come together;
        every row once. Raises OVERLOADED, UNAVAILABLE if what the disk held was changed.
        """
        ...

    def close(self) -> None:
        """Forget them. May be repeated."""
        ...


def beginnings(rows: int, most: int, folder: Path | None) -> Beginnings:
    """Of a batch of ``rows``, with room for ``most`` in memory. ``folder``: for what is beyond;
    None: this system's for temporary files. Raises OVERLOADED.
    """
    return InMemory(rows) if rows <= most else OnDisk(rows, most, folder)


class InMemory:
    """9 bytes a row; 18 while they are compared."""

    blocks = False

    def __init__(self, rows: int) -> None:
        self._good = np.zeros(rows, dtype=np.bool_)
        self._begin = np.empty(rows, dtype=np.uint64)  # of the good rows, in their order
        self._filled = 0

    def add(self, rows: NDArray[np.int64], begin: NDArray[np.uint64]) -> None:
        """See ``Beginnings.add``."""
        self._good[rows] = True
        self._begin[self._filled : self._filled + begin.size] = begin
        self._filled += begin.size

    def tied(self) -> Iterator[Tied]:
        """See ``Beginnings.tied``: all at once."""
        begin = self._begin[: self._filled]
        found = _shared(begin)
        if found is not None:
            yield Tied(np.flatnonzero(self._good)[found], begin[found])

    def close(self) -> None:
        """See ``Beginnings.close``."""
        self._filled = 0


class OnDisk:
    """16 bytes a row on disk; in memory 256 KiB for each part, and 34 bytes for each row of one
    part: ``most`` / 2 of them, or a little more.
    """

    blocks = True

    def __init__(self, rows: int, most: int, folder: Path | None) -> None:
        bits = min((2 * rows // most).bit_length(), _MOST_PARTS.bit_length() - 1)
        self._shift, parts = np.uint64(64 - bits), 1 << bits
        # multiply and shift: two beginnings meet with a chance of 2 / parts (Dietzfelbinger 1997)
        self._factor = np.uint64(secrets.randbits(64) | 1)
        self._cipher = AESGCM(secrets.token_bytes(32))
        self._held = [bytearray() for _ in range(parts)]
        self._blocks: list[list[tuple[int, int, int]]] = [[] for _ in range(parts)]
        self._written = self._end = 0  # blocks, bytes
        self._lock = threading.Lock()  # the file's number is another file's once it is closed
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - see close
        except OSError as error:
            raise self._trouble(error) from None

    def add(self, rows: NDArray[np.int64], begin: NDArray[np.uint64]) -> None:
        """See ``Beginnings.add``."""
        with self._lock:
            self._add(rows, begin)

    def _add(self, rows: NDArray[np.int64], begin: NDArray[np.uint64]) -> None:
        parts = (begin * self._factor) >> self._shift
        order = np.argsort(parts, kind="stable")
        records = np.stack((rows.astype(np.uint64), begin), axis=1)[order]
        ends = np.cumsum(np.bincount(parts.astype(np.int64), minlength=len(self._held)))
        first = 0
        for part, last in enumerate(ends.tolist()):
            if last > first:
                self._held[part] += records[first:last].tobytes()
                if len(self._held[part]) >= _BLOCK:
                    self._write(part)
            first = last

    def tied(self) -> Iterator[Tied]:
        """See ``Beginnings.tied``. Part by part, in no order that a row's number has."""
        for part, held in enumerate(self._held):
            with self._lock:
                found = self._read(part) + held
                held.clear()
            records = np.frombuffer(found, dtype=np.uint64).reshape(-1, 2)
            begin = np.ascontiguousarray(records[:, 1])
            shared = _shared(begin)
            if shared is not None:
                yield Tied(records[shared, 0].astype(np.int64), begin[shared])

    def close(self) -> None:
        """See ``Beginnings.close``."""
        with self._lock:
            self._file.close()
            for held in self._held:
                held.clear()

    def _write(self, part: int) -> None:
        number, held = self._written, self._held[part]
        sealed = memoryview(self._cipher.encrypt(_nonce(number), bytes(held), None))
        size = len(sealed)
        try:
            at = self._end
            while sealed:
                count = os.pwrite(self._file.fileno(), sealed, at)
                sealed, at = sealed[count:], at + count
        except OSError as error:
            raise self._trouble(error) from None
        self._blocks[part].append((number, self._end, size))
        self._written, self._end = number + 1, self._end + size
        held.clear()

    def _read(self, part: int) -> bytearray:
        found = bytearray()
        for number, at, size in self._blocks[part]:
            try:
                sealed = os.pread(self._file.fileno(), size, at)
                found += self._cipher.decrypt(_nonce(number), sealed, None)
            except OSError as error:
                raise self._trouble(error) from None
            except (InvalidTag, ValueError):
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    f"what a large batch had written in {self._folder} was changed: look into that "
                    "disk",
                ) from None
        return found

    def _trouble(self, error: OSError) -> ShoalError:
        return ShoalError(
            Kind.OVERLOADED,
            f"a large batch wants {_RECORD} bytes a report on the disk of {self._folder}"
            f"{why_not(error, self._folder)}: make room",
        )


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _shared(begin: NDArray[np.uint64]) -> NDArray[np.bool_] | None:
    """Which of them are there more than once; None: all are different."""
    ordered = np.sort(begin)
    # sorted; what is seen k times is here k - 1 times
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not shared.size:
        return None
    found = np.zeros(begin.size, dtype=np.bool_)
    for first in range(0, begin.size, _BLOCK):  # not all at once: places take 8 bytes a row
        some = begin[first : first + _BLOCK]
        place = np.minimum(np.searchsorted(shared, some), shared.size - 1)
        found[first : first + _BLOCK] = shared[place] == some
    return found
