"""The shuffler's store on a disk that is full, or read-only: refused for now, told apart in its
log, and nothing lost.
"""

from __future__ import annotations

import secrets
from collections import Counter
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


def opened(disk: SmallDisk, most: int = 1, distinct: int = 0) -> SqliteStore:
    store = SqliteStore(disk.folder)
    store.adopt(WINDOW.task_id, Digest(bytes(32)), Capacity(most, distinct, 10_000), ROW)
    return store


def send(store: SqliteStore, count: int = 8, most: int = 1) -> Kind | None:
    reports = [
        AdmittedReport(WINDOW, tuple(secrets.token_bytes(ROW) for _ in range(1 + number % most)))
        for number in range(count)
    ]
    (kind,) = set(store.append(reports))
    return kind


@pytest.mark.parametrize(("most", "rows"), [(1, 16), (3, 30)])
def test_reports_on_a_full_disk(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture, most: int, rows: int
) -> None:
    """Devices come again later, and the log says why. Of reports of one to three messages nothing
    half is left. Planted: SQLITE_FULL taken for a failing disk -> INTERNAL.
    """
    store = opened(disk, most)
    assert send(store, most=most) is None
    disk.fill()
    assert send(store, 64, most) is Kind.OVERLOADED
    assert "the disk is full" in caplog.text
    disk.restore()
    assert send(store, most=most) is None
    store.close_intake(WINDOW)
    record = store.record(WINDOW)
    assert record is not None
    assert (record.state, record.reports) == (WindowState.CLOSING, 16)
    sealed = store.seal(WINDOW)
    assert (sealed.reports, sealed.rows, sealed.damaged) == (16, rows, 0)
    store.close()


def test_a_full_disk_makes_no_window_full(disk: SmallDisk) -> None:
    """Who lost a place to reports that could not be stored comes again: WINDOW_FULL is final.
    Planted: it is left as it was -> fails.
    """
    store = opened(disk, distinct=40)
    assert send(store) is None
    disk.fill()
    sent = [AdmittedReport(WINDOW, (secrets.token_bytes(ROW),)) for _ in range(64)]
    assert store.append(sent) == [Kind.OVERLOADED] * 64
    disk.restore()
    assert Counter(store.append(sent)) == {None: 32, Kind.WINDOW_FULL: 32}
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
