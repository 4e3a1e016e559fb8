"""Full and read-only disks are told apart, on real ones, from what Python and SQLite say of
them.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.storage import disks
from shoal.storage.disks import DiskTrouble, looked, trouble_of, why_not
from tests.cases import for_each
from tests.worlds.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def by_python(folder: Path) -> None:
    with (folder / "new").open("wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(65_536))


def by_sqlite(folder: Path) -> None:
    """A table that exists already, in a file that is open already."""
    database = sqlite3.connect(folder / "held.db", isolation_level=None)
    try:
        database.execute("INSERT INTO held VALUES (zeroblob(4194304))")
    finally:
        database.close()


def prepared(folder: Path) -> None:
    database = sqlite3.connect(folder / "held.db", isolation_level=None)
    database.execute("CREATE TABLE held (one BLOB)")
    database.close()


@pytest.mark.parametrize("write", [by_python, by_sqlite])
def test_what_a_disk_says(disk: SmallDisk, write: Callable[[Path], None]) -> None:
    """Planted: SQLITE_READONLY, or EROFS, taken for a full disk; SQLITE_FULL for a failing one."""
    prepared(disk.folder)
    for change, trouble in ((disk.fill, DiskTrouble.FULL), (disk.read_only, DiskTrouble.READ_ONLY)):
        change()
        with pytest.raises((OSError, sqlite3.Error)) as caught:
            write(disk.folder)
        if isinstance(caught.value, PermissionError):
            continue  # without a disk of its own a test can only take rights away
        assert isinstance(caught.value, OSError | sqlite3.Error)
        assert trouble_of(caught.value, disk.folder) is trouble
        assert trouble.value in why_not(caught.value, disk.folder)
        disk.restore()


def error_of(name: str) -> sqlite3.Error:
    made = sqlite3.OperationalError("as SQLite says it")
    made.sqlite_errorname = name
    return made


@pytest.mark.parametrize("name", ["SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN", "SQLITE_IOERR_SHMSIZE"])
def test_what_sqlite_does_not_say_is_asked_of_the_folder(disk: SmallDisk, name: str) -> None:
    """A quota, and a disk that became read-only under an open file. Planted: no look at the folder
    -> failing in every case.
    """
    assert trouble_of(error_of(name), disk.folder) is DiskTrouble.FAILING
    assert why_not(error_of(name), disk.folder) == ""
    assert [path for path in disk.folder.iterdir() if "try" in path.name] == []
    disk.fill()
    assert trouble_of(error_of(name), disk.folder) is DiskTrouble.FULL
    disk.restore()
    if disk.real:
        disk.read_only()
        assert trouble_of(error_of(name), disk.folder) is DiskTrouble.READ_ONLY


@for_each(
    "number, trouble",
    [
        (errno.ENOSPC, DiskTrouble.FULL),
        (errno.EDQUOT, DiskTrouble.FULL),
        (errno.EFBIG, DiskTrouble.FULL),
        (errno.EROFS, DiskTrouble.READ_ONLY),
        (errno.EIO, DiskTrouble.FAILING),
    ],
)
def test_what_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, trouble: DiskTrouble
) -> None:
    """Of a failed call, and of the try that SQLite's unclear words lead to. Planted: EDQUOT left
    out -> failing.
    """
    assert trouble_of(OSError(number, "no"), tmp_path) is trouble

    def fails(descriptor: int, data: bytes) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(disks, "looked", lambda _: None)
    monkeypatch.setattr(os, "write", fails)
    assert trouble_of(error_of("SQLITE_IOERR_WRITE"), tmp_path) is trouble
    assert list(tmp_path.iterdir()) == []


def test_small_and_large_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 1 MiB is little, of small disks a sixteenth; a disk without room for another file
    is full too.
    """

    def of(free: int, blocks: int, files: int = 100, left: int = 50) -> DiskTrouble | None:
        value = os.statvfs_result((4_096, 4_096, blocks, free, free, files, left, left, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: value)
        return looked(tmp_path)

    assert of(255, 10**6) is DiskTrouble.FULL
    assert of(256, 10**6) is None
    assert of(15, 256) is DiskTrouble.FULL
    assert of(16, 256) is None
    assert of(10**5, 10**6, left=0) is DiskTrouble.FULL
    assert of(10**5, 10**6, files=0, left=0) is None
