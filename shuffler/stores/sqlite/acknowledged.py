"""How many rows of every open window were acknowledged, outside of the inboxes that hold them: one
small file, written in place.

A commit of reports waits for this file too, so it is made for that: nothing of it grows, so that a
sync writes one block and no metadata, and two system calls are all that a commit costs here. (A
transaction of SQLite in ``state.db`` took a third of the CPU of a commit of 64 reports.)

The file is blocks of 4 KiB, each there twice. A write goes to the older copy, so whatever a power
cut leaves of it the other one says what was synced before. A copy has a generation (the larger one
counts); after its entries stand 16 bytes of SHA-256, and what is behind them means nothing. When a
window opens it is entered into both copies, before anything else knows of it: an open window that
is in neither was lost, and is not one that was never counted.

A copy that is not what was written is a write that a power cut tore, of which nothing was
acknowledged, or the latest copy changed by the disk: then the other one is a write older than what
was acknowledged. Both look the same, so either is logged. No row is lost by it: the start counts
what the inboxes hold, and misses too few only where these lost rows as well.

    copy     "SHOALACK", block number u32, entries u32, generation u64, entries, check (16 bytes)
    numbers big endian
    entry
    task id (32 bytes), window u64,
    rows acknowledged u64, of all times: also those that were lost later
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from shoal import failpoints
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.process import fsync_folder
from shoal.shuffler.core import WindowId
from shoal.storage.salvage import set_aside

log = get_log("shuffler")
FILE_NAME = "acknowledged"
BLOCK = 4_096  # bytes: what a disk writes together
_MAGIC = b"SHOALACK"
_HEAD = struct.Struct(">8sIIQ")
_ENTRY = struct.Struct(">32sQQ")
_CHECK = 16  # bytes
# What opening or reading says of a file that is damaged, or that is none; the rest concerns rights,
# space or the process.
_UNREADABLE = frozenset(
    {errno.EIO, errno.EISDIR, errno.ENXIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}
)
ENTRIES = (BLOCK - _HEAD.size - _CHECK) // _ENTRY.size  # of a block


@dataclass(slots=True)
class _Block:
    """``counts``: its entries. ``latest``: which of its two copies is the last that was synced.
    ``spoiled``: copies that were not what was written.
    """

    number: int
    counts: dict[WindowId, int] = field(default_factory=dict)
    generation: int = 0
    latest: int = 1
    spoiled: int = 0

    def image(self) -> bytes:
        """The next generation."""
        entries = b"".join(
            _ENTRY.pack(window.task_id.raw, window.window, rows)
            for window, rows in self.counts.items()
        )
        head = _HEAD.pack(_MAGIC, self.number, len(self.counts), self.generation + 1)
        return head + entries + hashlib.sha256(head + entries).digest()[:_CHECK]


class Acknowledged:
    """The open file. For several threads. Raises OSError.

    ``aside``: where one is now that could not be read: this one begins anew.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE_NAME
        self._lock = threading.Lock()
        self.aside: Path | None = None
        try:
            self._file, data = _opened(path)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            self.aside = set_aside(path)
            log.error("a file can't be read: it was set aside", name=path.name, error=error)
            self._file, data = _opened(path)
        try:
            self._blocks = [_read(data, number) for number in range(-(-len(data) // (2 * BLOCK)))]
            self._where = {window: block for block in self._blocks for window in block.counts}
            spoiled = sum(block.spoiled for block in self._blocks)
            if spoiled:
                log.warning(
                    "copies of counts are not what was written: the others count",
                    name=path.name,
                    count=spoiled,
                )
            fsync_folder(folder)
        except BaseException:
            self._file.close()
            raise

    def all(self) -> dict[WindowId, int]:
        """Every window that has an entry: the open ones, and maybe some that are open no more."""
        return {window: block.counts[window] for window, block in self._where.items()}

    def begin(self, window: WindowId, rows: int = 0) -> None:
        """Enter a window, durably in both copies. Again: from ``rows`` on."""
        with self._lock:
            block = self._where.get(window) or self._block_with_room()
            block.counts[window] = rows
            self._where[window] = block
            for _ in range(2):
                failpoints.hit("acknowledged.begin")
                self._write([block], BLOCK)

    def put(self, counts: Mapping[WindowId, int]) -> None:
        """Durable on return; of windows that are forgotten, nothing. After a failure the counts are
        on disk or not: put them again.
        """
        with self._lock:
            touched: dict[int, _Block] = {}
            for window, rows in counts.items():
                block = self._where.get(window)
                if block is not None:
                    block.counts[window] = rows
                    touched[block.number] = block
            failpoints.hit("acknowledged.write")
            self._write(list(touched.values()))
            failpoints.hit("acknowledged.done")

    def forget(self, window: WindowId) -> None:
        """It is open no more. Its entry goes with the next write: until then it is one that nobody
        asks for.
        """
        with self._lock:
            block = self._where.pop(window, None)
            if block is not None:
                del block.counts[window]

    def close(self) -> None:
        """Release the file. Nothing is lost without it."""
        self._file.close()

    def _block_with_room(self) -> _Block:
        for block in self._blocks:
            if len(block.counts) < ENTRIES:
                return block
        self._blocks.append(_Block(len(self._blocks)))
        return self._blocks[-1]

    def _write(self, blocks: list[_Block], size: int = 0) -> None:
        """The copies that are older, ``size`` bytes or more; they are the latest once they are on
        disk.
        """
        for block in blocks:
            data, at = (
                block.image().ljust(size, b"\0"),
                (2 * block.number + 1 - block.latest) * BLOCK,
            )
            if os.pwrite(self._file.fileno(), data, at) != len(data):
                raise OSError("a block was not written whole")
        failpoints.hit("acknowledged.sync")
        os.fdatasync(self._file.fileno())
        for block in blocks:
            block.generation, block.latest = block.generation + 1, 1 - block.latest


def _opened(path: Path) -> tuple[IO[bytes], bytes]:
    """The file, made if there is none, and all that is in it. Raises OSError."""
    file = os.fdopen(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0
    )
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.ENXIO, "not a file")
        return file, file.read()
    except BaseException:
        file.close()
        raise


def _read(data: bytes, number: int) -> _Block:
    """What the intact copy with the larger generation says; an empty block of generation 0 if there
    is none.
    """
    latest, broken = _Block(number), list[bytes]()
    for copy in (0, 1):
        at = (2 * number + copy) * BLOCK
        block = _copy(data[at : at + BLOCK], number)
        if block is None:
            broken.append(data[at : at + BLOCK])
        elif block.generation > latest.generation:
            block.latest, latest = copy, block
    # Empty is a copy that was never written, while the other one is of the first generation.
    latest.spoiled = sum(latest.generation > 1 or any(copy) for copy in broken)
    return latest


def _copy(data: bytes, number: int) -> _Block | None:
    """None: not what was written."""
    if len(data) != BLOCK:
        return None
    magic, stored, entries, generation = _HEAD.unpack_from(data)
    end = _HEAD.size + entries * _ENTRY.size
    if (
        (magic, stored) != (_MAGIC, number)
        or entries > ENTRIES
        or hashlib.sha256(data[:end]).digest()[:_CHECK] != data[end : end + _CHECK]
    ):
        return None
    counts: dict[WindowId, int] = {}
    for index in range(entries):
        task_id, window, rows = _ENTRY.unpack_from(data, _HEAD.size + index * _ENTRY.size)
        try:
            counts[WindowId(TaskId(task_id), window)] = rows
        except (ShoalError, ValueError):
            return None
    return _Block(number, counts, generation)
