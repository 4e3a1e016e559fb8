"""Where the masked vectors of one round wait until they are delivered: a file without a name, gone
with the round or the process.

Vectors come in chunks by offset, from many devices at once. A chunk that came before is recognised
by its bytes, so a retry is harmless and another vector in its place is refused. Nothing here knows
who sends: a row belongs to a session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.shuffler.stores.sqlite import disk


@dataclass(slots=True)
class _Row:
    """``place``: number of the row in the file, by first arrival; the file has no name and is never
    delivered in that order.
    """

    place: int
    received: int = 0
    digest: Any = field(default_factory=hashlib.sha256)  # hashlib's own type has no name


class VectorSpool:
    """Uploads of one round: at most ``rows`` of exactly ``row_bytes`` bytes. Methods block, and may
    be called by any thread.
    """

    def __init__(self, folder: Path, row_bytes: int, rows: int) -> None:
        """``folder``: on a disk that has rows * row_bytes free. Raises OVERLOADED or INTERNAL if no
        file can be made there.
        """
        if row_bytes < 1 or rows < 1:
            raise ShoalError(Kind.INVALID, "a spool has one row or more, of one byte or more")
        self._folder, self._row_bytes, self._most = folder, row_bytes, rows
        self._lock = threading.Lock()
        self._rows: dict[bytes, _Row] = {}
        self._file = -1
        with self._typed():
            self._file = _unnamed(folder)

    def received(self, session: bytes) -> int:
        """Bytes held of this session's vector."""
        row = self._rows.get(session)
        return 0 if row is None else row.received

    def complete(self, session: bytes) -> Digest | None:
        """The SHA-256 of the vector, once all of it is here."""
        with self._lock:
            row = self._rows.get(session)
            return (
                None
                if row is None or row.received < self._row_bytes
                else Digest(row.digest.digest())
            )

    def write(self, session: bytes, offset: int, total: int, chunk: bytes) -> int:
        """Keep a chunk; returns how many bytes are held from the beginning on. A chunk from before
        changes nothing.

        Raises INVALID (wrong total, empty, a gap, beyond the end), OVERSIZE, CONFLICT (other bytes
        than came before), OVERLOADED (disk or spool full), WINDOW_CLOSED (the round is over),
        INTERNAL (the disk failed).
        """
        if total != self._row_bytes:
            raise ShoalError(
                Kind.INVALID, f"a sealed vector of this task is {self._row_bytes} bytes long"
            )
        if len(chunk) > LIMITS.upload_bytes:
            raise ShoalError(
                Kind.OVERSIZE, f"a chunk of a vector is at most {LIMITS.upload_bytes} bytes long"
            )
        if not chunk or offset + len(chunk) > total:
            raise ShoalError(
                Kind.INVALID, "a chunk of a vector has one byte or more and ends with the vector"
            )
        with self._lock, self._typed():
            self._check_open()
            row = self._rows.get(session) or _Row(len(self._rows))
            if offset > row.received:
                raise ShoalError(
                    Kind.INVALID,
                    f"a chunk begins at {offset}, but {row.received} bytes are held: go on from "
                    "there",
                )
            if row.place >= self._most:
                raise ShoalError(Kind.OVERLOADED, "this round has all its vectors")
            start = row.place * self._row_bytes
            known = min(row.received - offset, len(chunk))
            if known and os.pread(self._file, known, start + offset) != chunk[:known]:
                raise ShoalError(
                    Kind.CONFLICT,
                    "these bytes of the vector came before, and were others: a vector is sealed "
                    "once",
                )
            fresh = memoryview(chunk)[known:]
            failpoints.hit("vectors.write")
            _write_all(self._file, fresh, start + row.received)
            row.digest.update(fresh)
            row.received += len(fresh)
            self._rows[session] = row
            return row.received

    def stream(self, sessions: Sequence[bytes], most: int) -> Iterator[bytes]:
        """The complete vectors of these sessions, one after the other, in pieces of at most
        ``most`` bytes that may span rows.

        Raises INTERNAL for a session whose vector is not complete; WINDOW_CLOSED once the spool is
        closed.
        """
        pending = bytearray()
        for session in sessions:
            at = 0
            while at < self._row_bytes:
                piece = self._read(session, at, min(most, self._row_bytes - at))
                at += len(piece)
                pending += piece
                while len(pending) >= most:
                    yield bytes(pending[:most])
                    del pending[:most]
        if pending:
            yield bytes(pending)

    def _read(self, session: bytes, offset: int, count: int) -> bytes:
        with self._lock, self._typed():
            self._check_open()
            row = self._rows.get(session)
            if row is None or row.received < self._row_bytes:
                raise ShoalError(Kind.INTERNAL, "a vector is to be delivered that is not complete")
            failpoints.hit("vectors.read")
            data = os.pread(self._file, count, row.place * self._row_bytes + offset)
            if len(data) != count:
                raise ShoalError(Kind.INTERNAL, "the disk failed: a vector was cut short")
            return data

    def close(self) -> None:
        """The file is gone. May be repeated."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1
            self._rows.clear()

    def _check_open(self) -> None:
        if self._file < 0:
            raise ShoalError(Kind.WINDOW_CLOSED, "the round is over: its vectors are deleted")

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = disk.reason_of(error, self._folder)
            raise ShoalError(
                disk.kind_of(error, self._folder),
                f"a vector could not be kept: {reason}: try again later",
            ) from None


def _unnamed(folder: Path) -> int:
    """A file in ``folder`` that no directory lists, readable by nobody else."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):  # a file system without such files
        number, name = tempfile.mkstemp(prefix="round-", suffix=".vectors", dir=folder)
        os.unlink(name)
        return number


def _write_all(file: int, data: memoryview, at: int) -> None:
    while data:
        count = os.pwrite(file, data, at)
        data, at = data[count:], at + count
