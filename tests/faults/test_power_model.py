"""The model of a power cut itself: which images it makes of a file that is written over, and of
names that change. See ``power``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.power import SECTOR, Disk, Image, watched

OLD, NEW = b"0" * 4 * SECTOR, b"1" * 4 * SECTOR
SEEDS = range(40)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def images(folder: Path, life: Callable[[Path], None]) -> list[Image]:
    disk = Disk(folder, lambda: None)
    with pytest.MonkeyPatch.context() as patch, watched(disk, patch):
        life(folder)
    # which image is no secret
    return [image for seed in SEEDS for image, _ in disk.images(random.Random(seed))]  # noqa: S311


def written_over(folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(OLD)
    sync(path)
    sync(folder)
    path.write_bytes(NEW)
    sync(path)


def test_what_is_written_over_is_dropped_torn_or_reordered(tmp_path: Path) -> None:
    """Planted: torn writes alone, from the beginning on -> no sector is new behind one that is old,
    fails.
    """
    found = {
        image["file"]
        for image in images(tmp_path, written_over)
        if len(image.get("file", b"")) == len(OLD)
    }
    sectors = {
        tuple(data[at : at + SECTOR] for at in range(0, len(data), SECTOR)) for data in found
    }
    old, new = OLD[:SECTOR], NEW[:SECTOR]
    assert {OLD, NEW} <= found
    assert any(one not in (old, new) for data in sectors for one in data), "torn within a sector"
    assert any(data[0] == old and new in data for data in sectors), (
        "a later write reached the disk, an earlier one did not"
    )


def renamed(folder: Path) -> None:
    (folder / "one").write_bytes(b"kept")
    sync(folder / "one")
    sync(folder)
    (folder / "one").rename(folder / "other")
    (folder / "more").touch()


def test_names_that_no_folder_was_synced_for_change_each_by_itself(tmp_path: Path) -> None:
    """Planted: all names as they were or as they are -> fails."""
    found = {frozenset(image) for image in images(tmp_path, renamed)}
    assert {
        frozenset({"one"}),
        frozenset({"other", "more"}),
        frozenset({"other"}),
        frozenset({"one", "other"}),
    } <= found


def test_syncs_that_are_left_out_change_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, lambda: None)
    with pytest.MonkeyPatch.context() as patch, watched(disk, patch):
        written_over(tmp_path)
    file, names = disk.sites()
    assert (file, names) == ("test_power_model.sync", "test_power_model.sync, the folder")
    # as above
    assert list(disk.images(random.Random(1), drop=names))[-2] == ({}, None)  # noqa: S311
    without = list(disk.images(random.Random(1), drop=file))  # noqa: S311
    assert without[-2] == ({"file": b""}, None)
    assert len(without) == 2 * (disk.syncs + 1) == 8
