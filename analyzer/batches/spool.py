"""The rows of one batch on their way in: a flat file of fixed-width rows, in delivered order,
resumable by row.

The file is only ever as long as the rows that were accepted. It holds sealed messages, which the
window's key opens, and lives until the release is committed or the window's retention ends. Methods
block and are safe to call from several threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from shoal.analyzer.core import check_chunk
from shoal.codec import Manifest
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest
from shoal.services.process import fsync_folder
from shoal.storage.disks import why_not

SUFFIX = ".rows"
_READ = 1 << 20  # bytes


def spool_path(folder: Path, manifest_hash: Digest) -> Path:
    """Where the rows of the batch with this manifest wait."""
    return folder / f"{manifest_hash.hex}{SUFFIX}"


def intact(path: Path, manifest: Manifest) -> bool:
    """Whether the file holds the manifest's rows, byte for byte. Reads all of it: a disk, or a
    start, lies between it and its check.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != manifest.rows * manifest.row_size:
                return False
            while part := file.read(_READ):
                digest.update(part)
    except FileNotFoundError:
        return False
    return digest.digest() == manifest.rows_hash.raw


def delete_spool(folder: Path, manifest_hash: Digest) -> None:
    """Durably; gone is fine. Raises OSError."""
    spool_path(folder, manifest_hash).unlink(missing_ok=True)
    fsync_folder(folder)


class Spool:
    """Opening reads and hashes what is already there. A torn last row, from a crash, is cut off.
    Raises OVERLOADED.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path, self._manifest = path, manifest
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._ended = False
        self._received = self._synced = 0  # rows
        self._hash = hashlib.sha256()
        self._hash_synced = self._hash.copy()
        with self._disk():
            self._resume()

    def _resume(self) -> None:
        manifest = self._manifest
        try:
            held = min(self._path.stat().st_size // manifest.row_size, manifest.rows)
        except FileNotFoundError:
            return
        left = held * manifest.row_size
        with self._path.open("r+b") as file:
            file.truncate(left)
            while left:
                part = file.read(min(left, _READ))
                self._hash.update(part)
                left -= len(part)
            os.fsync(file.fileno())
        # a crash may have come between the first rows and their name
        fsync_folder(self._path.parent)
        self._received = self._synced = held
        self._hash_synced = self._hash.copy()

    @property
    def received(self) -> int:
        """Rows accepted so far; on disk for certain after ``sync``."""
        return self._received

    def append(self, first_row: int, rows: bytes) -> None:
        """Add whole rows. Raises INVALID or OVERSIZE (see ``core.check_chunk``), OVERLOADED,
        WINDOW_CLOSED; nothing was added then.
        """
        with self._lock:
            self._check_there()
            count = check_chunk(self._manifest, self._received, first_row, len(rows))
            with self._disk():
                hit("analyzer.spool.write")
                _write_all(self._open(), rows, self._received * self._manifest.row_size)
            self._hash.update(rows)
            self._received += count

    def sync(self) -> int:
        """Bring everything to the disk; returns the rows that are there. Raises OVERLOADED: then
        only synced rows remain; WINDOW_CLOSED.
        """
        with self._lock:
            self._check_there()
            if self._descriptor is not None:
                with self._disk():
                    hit("analyzer.spool.sync")
                    os.fsync(self._descriptor)
                    if self._synced == 0:
                        fsync_folder(self._path.parent)
                self._close()
                self._synced, self._hash_synced = self._received, self._hash.copy()
            return self._received

    def check(self) -> bool:
        """True if all rows are on disk and are the manifest's; False if some are missing.

        Raises MISMATCH if they are not the rows that the manifest speaks of: the file is dropped,
        so that the batch can be sent again from its first row. Raises WINDOW_CLOSED.
        """
        with self._lock:
            self._check_there()
            if self._synced < self._manifest.rows:
                return False
            if self._hash_synced.digest() == self._manifest.rows_hash.raw:
                return True
            self._close()
            self._path.unlink(missing_ok=True)
            self._received = self._synced = 0
            self._hash = hashlib.sha256()
            self._hash_synced = self._hash.copy()
        raise ShoalError(
            Kind.MISMATCH,
            "batch: the rows are not those of the manifest (rows_hash): nothing was kept, deliver "
            "from row 0",
        )

    def end(self) -> None:
        """The file is about to be deleted for good: whoever still delivers into it must not make it
        anew, with a hole.

        From here on every other method raises WINDOW_CLOSED.
        """
        with self._lock:
            self._ended = True
            self._close()

    def _check_there(self) -> None:
        if self._ended:
            raise ShoalError(
                Kind.WINDOW_CLOSED,
                "batch: its window is over and its rows are deleted: offer it again to see what "
                "became of it",
            )

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Disk trouble is OVERLOADED, and takes back what was not synced."""
        try:
            yield
        except OSError as error:
            self._take_back()
            why = why_not(error, self._path.parent)
            raise ShoalError(
                Kind.OVERLOADED, f"the analyzer can't write its spool{why}: try again later"
            ) from error

    def _take_back(self) -> None:
        self._received, self._hash = self._synced, self._hash_synced.copy()
        with contextlib.suppress(OSError):
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, self._synced * self._manifest.row_size)
        with contextlib.suppress(OSError):
            self._close()


class _Slot:
    """Where the one spool of a batch is, or is just being opened."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.spool: Spool | None = None


class Spools:
    """The spools of a folder: one object per batch, since several calls may be at it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._slots: dict[Digest, _Slot] = {}

    def path(self, manifest_hash: Digest) -> Path:
        """As ``spool_path``, in this folder."""
        return spool_path(self._folder, manifest_hash)

    def get(self, manifest_hash: Digest, manifest: Manifest) -> Spool:
        """Opened if need be. Raises OVERLOADED."""
        with self._lock:
            slot = self._slots.setdefault(manifest_hash, _Slot())
        with slot.lock:  # not the common one: reading what a large spool holds takes a while
            if slot.spool is None:
                slot.spool = Spool(self.path(manifest_hash), manifest)
            return slot.spool

    def forget(self, manifest_hash: Digest) -> None:
        """A spool that is complete: nobody writes to it any more."""
        with self._lock:
            self._slots.pop(manifest_hash, None)

    def delete(self, manifest_hash: Digest) -> None:
        """The rows, durably, also under a call that is still delivering them. Gone is fine. Raises
        OSError.
        """
        with self._lock:
            slot = self._slots.pop(manifest_hash, None)
        if slot is not None:
            with slot.lock:
                if slot.spool is not None:
                    slot.spool.end()
        delete_spool(self._folder, manifest_hash)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
