"""A power cut, modelled: what a folder would hold if everything that was not synced had never reached the disk.

``kill -9`` cannot show this, because the page cache outlives the process. So every sync is observed: SQLite's through a
VFS of our own around its default one (only xSync differs; the structures are those of sqlite3.h, "OS Interface"), Python's
through os.fsync. Before each sync, and at the end, the images that a power cut could leave at that moment are kept:

* dropped: of each file what its last sync saw, under the names that the folder's last sync saw;
* torn: each file by itself is as synced, as written, or as written up to some byte; names as synced or as they are.

Folders below the folder count too: a name is durable once its own folder was synced. ``drop`` names a place in the code whose
syncs never happen (as the model sees it): a model that does not notice has no teeth there.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import random
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_XOPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
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


@dataclass
class Disk:
    """The folder as a disk would have it. ``moment`` is called for a label of each kept image (what was promised so far).

    ``sites``: how often which place in the code synced. A file below the folder is named by its path from there.
    """

    folder: Path
    moment: Callable[[], Any]
    rng: random.Random
    images: list[tuple[Image, Any]] = field(default_factory=list)
    syncs: int = 0
    drop: str = ""
    sites: Counter[str] = field(default_factory=Counter)
    _content: dict[int, bytes] = field(default_factory=dict)  # by inode: at its last sync
    _held: dict[int, int] = field(default_factory=dict)  # inode -> descriptor: it is not given to another file meanwhile
    _names: dict[str, int] = field(default_factory=dict)  # at the folder's last sync
    _folders: set[str] = field(default_factory=lambda: {"."})  # folders whose own name is durable

    def _now(self) -> dict[str, int]:
        """Names that matter: shared memory files are made anew at every start."""
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.name.endswith("-shm"):
                found[str(path.relative_to(self.folder))] = path.stat().st_ino
        return found

    def keep(self) -> None:
        """Keep what a power cut could leave now."""
        dropped = {name: self._content.get(inode, b"") for name, inode in self._names.items() if str(Path(name).parent) in self._folders}
        self.images.append((dropped, self.moment()))
        names = self._names if self.rng.random() < 0.5 else self._now()
        torn: Image = {}
        for name, inode in names.items():
            synced = self._content.get(inode, b"")
            path = self.folder / name
            written = path.read_bytes() if path.exists() and path.stat().st_ino == inode else synced
            cut = self.rng.choice((0, len(written), self.rng.randrange(len(written) + 1)))
            torn[name] = written[:cut] + synced[cut:]
        self.images.append((torn, self.moment()))

    def dropped(self, site: str) -> bool:
        self.sites[site] += 1
        return site == self.drop

    def sync_file(self, path: Path, *, by_sqlite: bool = False) -> None:
        with path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            first = inode not in self._content
            self._content[inode] = file.read()
            if inode not in self._held:
                self._held[inode] = os.dup(file.fileno())
        if first and by_sqlite and path.name.endswith(("-wal", "-journal")):
            self.sync_folder(
                path.parent
            )  # SQLite's unix VFS syncs the folder with the first sync of a log that it created, and no later one
        self.syncs += 1

    def sync_folder(self, folder: Path) -> None:
        """The names in this folder are durable from here on; those of others are as they were."""
        under = str(folder.relative_to(self.folder))
        self._folders |= {str(path.relative_to(self.folder)) for path in folder.iterdir() if path.is_dir()}
        others = {name: inode for name, inode in self._names.items() if str(Path(name).parent) != under}
        self._names = others | {name: inode for name, inode in self._now().items() if str(Path(name).parent) == under}

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)


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
    raise RuntimeError("this Python hides its SQLite library: run this test with one that links it dynamically, as Linux distributions do")


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
    tables: dict[int, tuple[Any, Any]] = {}  # original method table -> our copy, and the callback that must outlive it
    paths: dict[int, Path] = {}  # sqlite3_file -> path

    def copied(table: int) -> int:
        if table not in tables:
            raw = ctypes.create_string_buffer(ctypes.string_at(table, _METHODS_SIZE), _METHODS_SIZE)
            original = _XSYNC(int.from_bytes(raw.raw[_XSYNC_AT : _XSYNC_AT + 8], "little"))

            def sync(file: int, flags: int) -> int:
                disk.keep()
                code = int(original(file, flags))
                if paths[file].exists() and not disk.dropped(f"SQLite: {_plain(paths[file].name)}"):
                    disk.sync_file(paths[file], by_sqlite=True)
                return code

            callback = _XSYNC(sync)
            ctypes.memmove(ctypes.addressof(raw) + _XSYNC_AT, ctypes.byref(ctypes.cast(callback, ctypes.c_void_p)), 8)
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

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if disk.folder != path and disk.folder not in path.parents:
            real_fsync(descriptor)
            return
        disk.keep()
        real_fsync(descriptor)
        if disk.dropped(_site(sys._getframe(1))):
            return
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            disk.sync_folder(path)
        elif path.exists():
            disk.sync_file(path)

    patch.setattr(os, "fsync", fsync)
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
