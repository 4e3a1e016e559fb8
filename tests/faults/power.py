"""A power cut, modelled: what a folder would hold if everything that was not synced had never
reached the disk.

``kill -9`` cannot show this, because the page cache outlives the process. So every sync is
observed: SQLite's through a VFS of our own around its default one (only xSync differs; the
structures are those of sqlite3.h, "OS Interface"), Python's through os.fsync and os.fdatasync. What
the folder holds before each sync, and at the end, is recorded; from that record come the images
that a power cut could leave at these moments:

* dropped: of each file what its last sync saw, under the names that the folder's last sync saw;
* any: each file by itself is as synced, as written, torn (as written up to some byte) or reordered
  (each sector as synced or as written); names are as synced, as they are, or each change of a name
  by itself has happened or has not.

Folders below the folder count too: a name is durable once its own folder was synced. ``drop`` names
a place in the code whose syncs never happen (as the model sees it): a model that does not notice
has no teeth there.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_XOPEN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
)
_XSYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_METHODS_SIZE = 8 + 18 * 8  # bytes of struct sqlite3_io_methods, version 3
_XSYNC_AT = 8 + 4 * 8  # after iVersion (padded), xClose, xRead, xWrite, xTruncate
_NAME = b"shoal-power"
_ALIVE: list[Any] = []


class _Vfs(ctypes.Structure):
    """struct sqlite3_vfs up to xOpen, and the 12 + 3 + 3 pointers after it."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("zName", ctypes.c_char_p),
        ("pAppData", ctypes.c_void_p),
        ("xOpen", ctypes.c_void_p),
        ("rest", ctypes.c_void_p * 17),
    )


Image = dict[str, bytes]
SECTOR = 512  # bytes that a disk writes whole


@dataclass(frozen=True, slots=True)
class Moment:
    """The folder as the process sees it, ``site`` (a place in the code; "" at the end) being about
    to sync ``path``.

    ``names`` and ``folders`` are paths from the folder, ``written`` is by inode; ``synced``:
    whether there is still such a path, and ``parent``: whether the sync is also one of the folder
    that the file is in.
    """

    names: dict[str, int]
    written: dict[int, bytes]
    folders: frozenset[str]
    label: Any
    site: str = ""
    path: str = ""
    synced: bool = False
    parent: bool = False


@dataclass
class Disk:
    """The folder as a disk would have it. ``label`` is asked at each moment (what was promised so
    far).
    """

    folder: Path
    label: Callable[[], Any]
    moments: list[Moment] = field(default_factory=list)
    recording: bool = True
    # inode -> descriptor: it is not given to another file meanwhile
    _held: dict[int, int] = field(default_factory=dict)
    # by inode: as read last, so that equal contents are kept once
    _seen: dict[int, bytes] = field(default_factory=dict)
    _logs: set[int] = field(default_factory=set)  # SQLite's, whose first sync was seen

    @property
    def syncs(self) -> int:
        return len(self.moments) - 1

    def sites(self) -> list[str]:
        """Places in the code that sync."""
        return list(dict.fromkeys(moment.site for moment in self.moments if moment.site))

    def keep(self, site: str = "", path: Path | None = None, *, by_sqlite: bool = False) -> None:
        """Record this moment. Shared memory files do not matter: they are made anew at every
        start.
        """
        if not self.recording:
            return
        names: dict[str, int] = {}
        folders = self._walk("", names)
        where, synced, parent = "", path is not None and path.exists(), False
        if path is not None and synced:
            where = str(path.relative_to(self.folder))
            if by_sqlite and path.name.endswith(("-wal", "-journal")):
                # SQLite's unix VFS syncs the folder with the first sync of a log that it created,
                # and no later one.
                parent = names[where] not in self._logs
                self._logs.add(names[where])
        written = {inode: self._seen[inode] for inode in names.values()}
        self.moments.append(
            Moment(names, written, folders, self.label(), site, where, synced, parent)
        )

    def _walk(self, under: str, names: dict[str, int]) -> frozenset[str]:
        """The folders from here on; ``names`` and what is known of contents are filled in."""
        found = {under or "."}
        with os.scandir(self.folder / under) as entries:
            for entry in entries:
                name = f"{under}/{entry.name}" if under else entry.name
                if entry.is_dir(follow_symlinks=False):
                    found |= self._walk(name, names)
                elif not name.endswith("-shm"):
                    names[name] = self._read(entry.path)
        return frozenset(found)

    def _read(self, path: str) -> int:
        with open(path, "rb", buffering=0) as file:
            inode, data = os.fstat(file.fileno()).st_ino, file.read()
            if inode not in self._held:
                self._held[inode] = os.dup(file.fileno())
        if self._seen.get(inode) != data:
            self._seen[inode] = data
        return inode

    def close(self) -> None:
        self.recording = False
        for descriptor in self._held.values():
            os.close(descriptor)

    def images(self, rng: random.Random, drop: str = "") -> Iterator[tuple[Image, Any]]:
        """What a power cut could leave at each moment (two images of each), with its label; the
        syncs of ``drop`` never happen.
        """
        content: dict[int, bytes] = {}
        names: dict[str, int] = {}
        durable = {"."}  # folders whose own name is
        for moment in self.moments:
            reached = {name: inode for name, inode in names.items() if _parent(name) in durable}
            yield {name: content.get(inode, b"") for name, inode in reached.items()}, moment.label
            image: Image = {}
            for name, inode in _some_names(names, moment.names, rng).items():
                synced = content.get(inode, b"")
                image[name] = _some_bytes(synced, moment.written.get(inode, synced), rng)
            yield image, moment.label
            if not moment.synced or moment.site == drop:
                continue
            if moment.path in moment.folders:
                self._sync_names(moment, moment.path, names, durable)
            else:
                content[moment.names[moment.path]] = moment.written[moment.names[moment.path]]
                if moment.parent:
                    self._sync_names(moment, _parent(moment.path), names, durable)

    @staticmethod
    def _sync_names(moment: Moment, under: str, names: dict[str, int], durable: set[str]) -> None:
        """The names in this folder are durable from here on; those of others are as they were."""
        durable |= {folder for folder in moment.folders if _parent(folder) == under}
        for name in [name for name in names if _parent(name) == under]:
            del names[name]
        names |= {name: inode for name, inode in moment.names.items() if _parent(name) == under}


def _parent(name: str) -> str:
    return os.path.dirname(name) or "."


def _some_names(synced: dict[str, int], now: dict[str, int], rng: random.Random) -> dict[str, int]:
    way = rng.randrange(4)
    if way < 2:
        return synced
    if way == 2:
        return now
    found: dict[str, int] = {}
    for name in sorted(synced.keys() | now.keys()):
        inode = rng.choice((synced, now)).get(name)
        if inode is not None:
            found[name] = inode
    return found


def _some_bytes(synced: bytes, written: bytes, rng: random.Random) -> bytes:
    way = rng.randrange(4)
    if synced is written or way == 0:
        return synced
    if way == 1:
        return written
    if way == 2:
        cut = rng.randrange(len(written) + 1)
        return written[:cut] + synced[cut:]
    size = len(rng.choice((synced, written)))
    sectors = [
        rng.choice((synced, written))[at : at + SECTOR].ljust(SECTOR, b"\0")
        for at in range(0, size, SECTOR)
    ]
    return b"".join(sectors)[:size]


def _site(frame: FrameType | None) -> str:
    """Who syncs: module and function, and for a helper of several its caller."""
    names = []
    while frame is not None:
        code = frame.f_code
        name = f"{Path(code.co_filename).stem}.{code.co_name}"
        names.append(name)
        if code.co_name not in _HELPERS:
            break
        frame = frame.f_back
    return " < ".join(names)


_HELPERS = ("fsync_folder", "_sync_folder", "_sync", "write")


def _plain(name: str) -> str:
    """A file's name without its ids."""
    return re.sub(r"[0-9a-f]{32,}-\d+", "*", name)


def _library() -> ctypes.CDLL:
    """The SQLite that Python's module uses: linked into it dynamically, or into the interpreter."""
    for name in (getattr(_sqlite3, "__file__", None), None):
        library = ctypes.CDLL(name)
        if hasattr(library, "sqlite3_vfs_register"):
            return library
    raise RuntimeError(
        "this Python hides its SQLite library: run this test with one that links it dynamically, "
        "as Linux distributions do"
    )


@contextmanager
def watched(disk: Disk, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Observe every sync below ``disk.folder`` while the block runs."""
    library = _library()
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    library.sqlite3_vfs_find.argtypes = (ctypes.c_char_p,)
    library.sqlite3_vfs_register.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.sqlite3_vfs_unregister.argtypes = (ctypes.c_void_p,)
    default = library.sqlite3_vfs_find(None)
    ours = _Vfs.from_buffer_copy(ctypes.string_at(default, ctypes.sizeof(_Vfs)))
    original_open = _XOPEN(ours.xOpen)
    # original method table -> our copy, and the callback that must outlive it
    tables: dict[int, tuple[Any, Any]] = {}
    paths: dict[int, Path] = {}  # sqlite3_file -> path

    def copied(table: int) -> int:
        if table not in tables:
            raw = ctypes.create_string_buffer(ctypes.string_at(table, _METHODS_SIZE), _METHODS_SIZE)
            original = _XSYNC(int.from_bytes(raw.raw[_XSYNC_AT : _XSYNC_AT + 8], "little"))

            def sync(file: int, flags: int) -> int:
                disk.keep(f"SQLite: {_plain(paths[file].name)}", paths[file], by_sqlite=True)
                return int(original(file, flags))

            callback = _XSYNC(sync)
            ctypes.memmove(
                ctypes.addressof(raw) + _XSYNC_AT,
                ctypes.byref(ctypes.cast(callback, ctypes.c_void_p)),
                8,
            )
            tables[table] = (raw, callback)
        return ctypes.addressof(tables[table][0])

    def opening(_: int, name: int, file: int, flags: int, out: int) -> int:
        code = int(original_open(default, name, file, flags, out))
        text = ctypes.string_at(name).decode() if name else ""
        if code == 0 and disk.folder in Path(text).parents:
            methods = ctypes.c_void_p.from_address(file)
            paths[file] = Path(text)
            methods.value = copied(int(methods.value or 0))
        return code

    callback = _XOPEN(opening)
    ours.xOpen = ctypes.cast(callback, ctypes.c_void_p).value
    ours.zName = _NAME
    _ALIVE.append((ours, callback, tables))  # a connection may be closed later than this block
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:  # and fdatasync: a size is data too
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if disk.folder != path and disk.folder not in path.parents:
            real_fsync(descriptor)
            return
        disk.keep(_site(sys._getframe(1)) + (", the folder" if path.is_dir() else ""), path)
        real_fsync(descriptor)

    patch.setattr(os, "fsync", fsync)
    patch.setattr(os, "fdatasync", fsync)
    assert library.sqlite3_vfs_register(ctypes.addressof(ours), 1) == 0
    try:
        yield
        disk.keep()
    finally:
        library.sqlite3_vfs_unregister(ctypes.addressof(ours))
        library.sqlite3_vfs_register(default, 1)
        patch.undo()
        disk.close()


def restore(folder: Path, image: Image) -> None:
    """Make the folder what the image is."""
    for name, data in image.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
