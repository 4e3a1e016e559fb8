"""Sealed messages put into the order of their storage keys, whatever their number, in memory that
stays flat.

Keys are spread evenly (they are keyed hashes), so no merge is needed: what comes is sorted in runs
of some MiB, all of them written one after the other to one temporary file, while the places where
their 1,024 key ranges begin stay in memory (8 KiB a run); then range by range is read from all runs
and sorted once more. All of it goes through numpy: per row a small part of what a database's sorter
takes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from shoal.arrays import NDArray, np
from shoal.ids import StorageKey

RUN_BYTES = 16 << 20  # keys and messages that are sorted together
_RANGES = 1_024
_SHIFT = 64 - 10  # of the first half of a key: leaves its range


class _Rows(NamedTuple):
    """The two halves of each key, and the messages, one row each."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    sealed: NDArray[np.uint8]

    @classmethod
    def of(cls, keys: bytes, sealed: bytes) -> _Rows:
        halves = np.frombuffer(keys, dtype=">u8").reshape(-1, 2)
        table = np.frombuffer(sealed, dtype=np.uint8).reshape(len(halves), -1)
        return cls(halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64), table)

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def order(self) -> NDArray[np.intp]:
        """That of the keys, without all but the first row of each."""
        order = np.argsort(self.high, kind="stable")
        high = self.high[order]
        if (high[1:] == high[:-1]).any():
            order = np.lexsort((self.low, self.high))
            high, low = self.high[order], self.low[order]
            new = np.ones(len(order), dtype=bool)
            new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
            order = order[new]
        return order

    def messages(self) -> memoryview:
        """The distinct ones in the order of their keys, as bytes."""
        return np.take(self.sealed, self.order(), axis=0).reshape(-1).data


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted run. ``at``: where it begins in the file. ``begins[r]``: the row with which key
    range r begins; one more for the end.
    """

    file: IO[bytes]
    at: int
    begins: NDArray[np.int64]
    width: int

    @classmethod
    def write(cls, rows: _Rows, file: IO[bytes]) -> _Run:
        """At the end of the file, which has no buffer."""
        at, order = file.tell(), rows.order()
        for part in rows:
            left = np.take(part, order, axis=0).reshape(-1).view(np.uint8).data
            while left:
                left = left[file.write(left) or 0 :]
        begins = np.searchsorted(
            rows.high[order] >> np.uint64(_SHIFT), np.arange(_RANGES + 1, dtype=np.uint64)
        )
        return cls(file, at, begins, rows.sealed.shape[1])

    def read(self, first: int, last: int) -> _Rows:
        """Key ranges [first, last)."""
        begin, end, total = int(self.begins[first]), int(self.begins[last]), int(self.begins[-1])
        return _Rows(
            np.frombuffer(self._bytes(8 * begin, 8 * (end - begin)), dtype=np.uint64),
            np.frombuffer(self._bytes(8 * (total + begin), 8 * (end - begin)), dtype=np.uint64),
            np.frombuffer(
                self._bytes(16 * total + self.width * begin, self.width * (end - begin)),
                dtype=np.uint8,
            ).reshape(-1, self.width),
        )

    def _bytes(self, at: int, size: int) -> bytes:
        data = os.pread(self.file.fileno(), size, self.at + at)
        if len(data) != size:
            raise OSError("a temporary file was cut short")
        return data


def distinct_sorted(
    steps: Iterable[tuple[bytes, bytes]], spill: Path, run_bytes: int
) -> Iterator[memoryview]:
    """The distinct messages in the order of their keys, many in each block that is yielded.

    ``steps``: some keys, one after the other, and their messages, which all have one length,
    likewise. Of messages with one key the first is taken. ``spill``: the folder for the temporary
    file: one, however many the runs are, which has no name, so a crash leaves none. Raises OSError.
    """
    runs, keys, sealed, held = list[_Run](), list[bytes](), list[bytes](), 0
    with tempfile.TemporaryFile(dir=spill, buffering=0) as file:
        for some_keys, some_sealed in steps:
            keys.append(some_keys)
            sealed.append(some_sealed)
            held += len(some_keys) + len(some_sealed)
            if held >= run_bytes:
                runs.append(_Run.write(_Rows.of(b"".join(keys), b"".join(sealed)), file))
                keys, sealed, held = [], [], 0
        if not keys and not runs:
            return
        if not runs:
            yield _Rows.of(b"".join(keys), b"".join(sealed)).messages()
            return
        if keys:
            runs.append(_Run.write(_Rows.of(b"".join(keys), b"".join(sealed)), file))
            del keys, sealed
        step = max(1, _RANGES // len(runs))
        for first in range(0, _RANGES, step):
            yield _Rows.joined(
                [run.read(first, min(_RANGES, first + step)) for run in runs]
            ).messages()


assert StorageKey.SIZE == 16  # noqa: S101 - two halves of 64 bits
