"""Disks without room or that can't be written, as conditions."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.services.conditions import Condition
from shoal.services.watching import watch_disk


def codes(found: list[Condition]) -> list[tuple[str, str, bool]]:
    return [(one.code, one.subject, one.stops) for one in found]


def test_a_disk_without_room_stops_the_service(tmp_path: Path) -> None:
    """By the bytes that this user may still write. Planted: no look at them -> fails."""
    assert list(watch_disk(tmp_path, least=1)()) == []
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert codes(list(watch_disk(tmp_path, least=10 * free)())) == [("disk_full", "data_dir", True)]
    gone = watch_disk(tmp_path / "gone", least=1)
    assert codes(list(gone())) == [("disk_read_only", "data_dir", True)]


def test_a_disk_that_is_read_only_is_told_from_one_that_is_full(tmp_path: Path) -> None:
    """Planted: the flag not looked at -> full: fails. Planted: room for files not looked at ->
    nothing, fails.
    """
    real = os.statvfs(tmp_path)

    def as_if(**changes: int) -> list[tuple[str, str, bool]]:
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_flag",
            "f_namemax",
        )
        values = {name: getattr(real, name) for name in names} | changes
        return codes(list(watch_disk(tmp_path, 1, lambda _: os.statvfs_result(values.values()))()))

    assert as_if(f_flag=os.ST_RDONLY, f_bavail=0) == [("disk_read_only", "data_dir", True)]
    assert as_if(f_flag=0, f_bavail=0) == [("disk_full", "data_dir", True)]
    assert as_if(f_flag=0, f_bavail=9, f_files=9, f_favail=0) == [("disk_full", "data_dir", True)]
    # a file system that does not count files
    assert as_if(f_flag=0, f_bavail=9, f_files=0, f_favail=0) == []
