"""The shuffler's store on a disk that is full, or read-only: refused for now, told apart in its
log, and nothing lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from tests.worlds.small_disk import SmallDisk, small_disk

WINDOW = WindowId(TaskId(bytes(32)), 0)
ROW = 4_096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def opened(disk: SmallDisk) -> SqliteStore:
    store = SqliteStore(disk.folder)
    store.adopt(WINDOW.task_id, Digest(bytes(32)), Capacity(1, 0, 10_000), ROW)
    return store


def send(store: SqliteStore, count: int = 8) -> Kind | None:
    (kind,) = set(
        store.append([AdmittedReport(WINDOW, (secrets.token_bytes(ROW),)) for _ in range(count)])
    )
    return kind


def test_reports_on_a_full_disk(disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Devices come again later, and the log says why. Planted: SQLITE_FULL taken for a failing disk
    -> INTERNAL.
    """
    store = opened(disk)
    assert send(store) is None
    disk.fill()
    assert send(store, 64) is Kind.OVERLOADED
    assert "the disk is full" in caplog.text
    disk.restore()
    assert send(store) is None
    store.close_intake(WINDOW)
    record = store.record(WINDOW)
    assert record is not None
    assert (record.state, record.reports) == (WindowState.CLOSING, 16)
    assert store.seal(WINDOW).rows == 16
    store.close()


def test_a_start_on_a_read_only_disk_is_told_as_that(disk: SmallDisk) -> None:
    """Planted: "check space" for every failure -> fails."""
    store = opened(disk)
    assert send(store) is None
    store.close()
    disk.read_only()
    if disk.real:  # without a disk of its own a test that root runs can take no rights away
        with pytest.raises(ShoalError) as caught:
            SqliteStore(disk.folder)
        assert caught.value.kind is Kind.CONFIG
        assert "the disk is read-only" in caught.value.message
    disk.restore()
    store = opened(disk)
    assert store.distinct(WINDOW) == 8
    store.close()
