"""Where the sealed rows of one complete batch are read from: a local spool file today."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

# Ranges of row numbers, each with step 1: one range for rows that lie together, one per row for
# scattered ones.
Chunk = Sequence[range]


class ChunkSource(Protocol):
    """The rows of one batch, all of one width. Members inherit
    tests/conformance/opening/suite.py.

    The rows do not change while a source is open.
    """

    @property
    def rows(self) -> int:
        """How many whole rows there are."""
        ...

    @property
    def row_size(self) -> int:
        """Bytes of each."""
        ...

    def read(self, rows: range) -> bytes:
        """Exactly these rows, one after the other; called from threads, several at once.

        Raises OSError if they can't be read, or are not all there.
        """
        ...


def read_chunk(source: ChunkSource, chunk: Chunk) -> bytes:
    """All rows of a chunk, in its order. Raises OSError."""
    if len(chunk) == 1:
        return source.read(chunk[0])
    return b"".join(source.read(rows) for rows in chunk)


class FileSource:
    """A flat file of rows; ``name``: the file's, without its folder. ``with FileSource(path,
    row_size) as source``. Raises OSError.
    """

    def __init__(self, path: Path, row_size: int) -> None:
        self.name, self._row_size = path.name, row_size
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._rows = os.fstat(self._descriptor).st_size // row_size

    @property
    def rows(self) -> int:
        """See ``ChunkSource.rows``; a torn last row is none."""
        return self._rows

    @property
    def row_size(self) -> int:
        """See ``ChunkSource.row_size``."""
        return self._row_size

    def read(self, rows: range) -> bytes:
        """See ``ChunkSource.read``."""
        size = len(rows) * self._row_size
        data = os.pread(self._descriptor, size, rows.start * self._row_size)
        if len(data) != size:
            raise OSError("a spool file shrank while it was read")
        return data

    def close(self) -> None:
        """The source can't be read any more."""
        os.close(self._descriptor)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
