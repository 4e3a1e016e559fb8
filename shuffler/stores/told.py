"""What this machine's replica promised, in a file of its own: how many rows of a window each of its
writers was told to be stored, and in which blocks.

A database that is put back, or a standby that is promoted without the last commits, cannot tell
what it lost; this file can (``losses``). An entry is written before the acknowledgement, and
synced once a second: it outlives the process, and a power cut of this machine but for the last
second. It holds counts and random ids, no key and nothing of a report.

Each start writes a new file with what the one before still held, and then deletes that. An entry
is 256 bytes, so that none lies across two sectors; one of zeros is free.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId

_FOLDER = "acknowledged"
_SUFFIX = ".rows"
_SIZE = 256  # bytes of an entry
_HEAD = struct.Struct(">32sII16sqqqB")  # see ``WriterWord``; the last: how many numbers follow
_MOST = 16  # blocks of one writer that are under way; more than are ever sent at a time
_CHECK = 4  # bytes of the CRC-32 at an entry's end
_FREE = bytes(_SIZE)


@dataclass(frozen=True, slots=True)
class WriterWord:
    """What one writer was told. ``emptied``: of the window's row, when it began. ``acked``: rows of
    its blocks up to number ``newest``, but those in ``waiting``, whose end it does not know.
    ``lost``: at least so many of the rows are gone, as was found out.
    """

    window: WindowId
    emptied: int
    writer: bytes
    acked: int
    newest: int
    waiting: tuple[int, ...]
    lost: int = 0

    def to_bytes(self) -> bytes:
        """An entry."""
        head = _HEAD.pack(
            *(self.window.task_id.raw, self.window.window, self.emptied, self.writer),
            *(self.acked, self.newest, self.lost, len(self.waiting)),
        )
        body = (head + struct.pack(f">{len(self.waiting)}q", *self.waiting)).ljust(_SIZE - _CHECK)
        return body + struct.pack(">I", zlib.crc32(body))

    @classmethod
    def from_bytes(cls, entry: bytes) -> WriterWord | None:
        """None: it is damaged."""
        body, check = entry[:-_CHECK], entry[-_CHECK:]
        if len(entry) != _SIZE or struct.pack(">I", zlib.crc32(body)) != check:
            return None
        task, window, emptied, writer, acked, newest, lost, count = _HEAD.unpack_from(body)
        if count > _MOST:
            return None
        waiting = struct.unpack_from(f">{count}q", body, _HEAD.size)
        return cls(WindowId(TaskId(task), window), emptied, writer, acked, newest, waiting, lost)


class ToldRows:
    """The file of one process. Not for several threads, but ``sync``."""

    def __init__(self, data_dir: Path) -> None:
        """Takes over what is in the folder. Raises CONFIG."""
        self.damaged = 0  # entries that could not be read at the start
        self.failing = False  # whether the last write failed
        self._places: dict[tuple[WindowId, bytes], int] = {}
        self._words: dict[WindowId, dict[bytes, WriterWord]] = {}
        self._free: list[int] = []
        self._end, self._dirty = 0, False
        folder = data_dir / _FOLDER
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            before = sorted(folder.glob(f"*{_SUFFIX}"))
            path = folder / f"{secrets.token_hex(8)}{_SUFFIX}"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            for word in self._read(before):
                self._keep(word)
            os.fsync(self._file)
            _sync_folder(folder)
            for old in before:
                old.unlink()
            _sync_folder(folder)
        except OSError:
            raise ShoalError(
                Kind.CONFIG, f"{folder} can't be used: let this user write to data_dir"
            ) from None

    def _read(self, paths: Iterable[Path]) -> Iterator[WriterWord]:
        for path in paths:
            data = path.read_bytes()
            for at in range(0, len(data), _SIZE):
                entry = data[at : at + _SIZE]
                word = WriterWord.from_bytes(entry)
                if word is not None:
                    yield word
                elif entry.strip(b"\0"):
                    self.damaged += 1

    def windows(self) -> list[WindowId]:
        """Of which anything is remembered."""
        return list(self._words)

    def of(self, window: WindowId) -> list[WriterWord]:
        """What its writers were told, those of processes before among them."""
        return list(self._words.get(window, {}).values())

    def note(self, word: WriterWord) -> None:
        """Before the acknowledgement. What was found lost stays found. Never raises: a disk that
        takes nothing is told by ``failing``, and no reason to refuse what the database has.
        """
        if len(word.waiting) > _MOST:
            return  # what was noted before is less, and true
        known = self._words.get(word.window, {}).get(word.writer)
        if known is not None and known.lost > word.lost:
            word = replace(word, lost=known.lost)
        try:
            self._keep(word)
            self.failing = False
        except OSError:
            self.failing = True

    def lose(self, word: WriterWord, count: int) -> None:
        """At least so many of its rows are gone."""
        known = self._words.get(word.window, {}).get(word.writer)
        if known is not None:
            self.note(replace(known, lost=count))

    def drop(self, window: WindowId) -> None:
        """Nothing of it is to be missed any more."""
        for writer in self._words.pop(window, {}):
            at = self._places.pop((window, writer), None)
            if at is not None:
                with contextlib.suppress(OSError):  # read again at the next start, and dropped
                    os.pwrite(self._file, _FREE, at)
                self._free.append(at)

    def sync(self) -> None:
        """What was noted outlives a power cut, if the disk lets it. In any thread."""
        if self._dirty:
            self._dirty = False
            try:
                os.fdatasync(self._file)
            except OSError:
                self.failing = self._dirty = True

    def close(self) -> None:
        """What is there is durable, if the disk lets it be."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1

    def _keep(self, word: WriterWord) -> None:
        self._words.setdefault(word.window, {})[word.writer] = word
        key = word.window, word.writer
        at = self._places.get(key)
        if at is None:
            at = self._places[key] = self._free.pop() if self._free else self._end
            self._end = max(self._end, at + _SIZE)
        self._dirty = True
        os.pwrite(self._file, word.to_bytes(), at)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
