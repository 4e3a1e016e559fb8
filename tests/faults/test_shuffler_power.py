"""Power cuts at every sync of a window's life: what was acknowledged is there afterwards. See
``power`` for the model.
"""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.sqlite.disk import connect
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from shoal.storage import sqlite
from tests.faults.power import Disk, Image, restore, watched
from tests.sizes import size

TASK, ROW = TaskId(bytes(range(32))), 200
WINDOW = WindowId(TASK, 0)
pytestmark = pytest.mark.campaign
GROUPS, LIVES = size(7, 20, 60), size(2, 5, 15)


def adopted(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 10_000, 40_000), ROW)
    return store


def live(folder: Path, rng: random.Random, patch: pytest.MonkeyPatch) -> Disk:
    """A window's life under observation, with restarts on the way."""
    acked: set[bytes] = set()
    disk = Disk(folder, lambda: frozenset(acked))
    with watched(disk, patch):
        store = adopted(folder)
        for number in range(GROUPS):
            reports = [secrets.token_bytes(ROW) for _ in range(rng.randrange(1, 40))]
            reports += rng.sample(sorted(acked), min(len(acked), 3))
            assert store.append([AdmittedReport(WINDOW, (one,)) for one in reports]) == [
                None
            ] * len(reports)
            store.confirm()
            acked.update(reports)
            if number % 5 == 4:
                store.close()
                store = adopted(folder)
        store.close_intake(WINDOW)
        sealed = store.seal(WINDOW)
        store.advance(
            WINDOW, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest"
        )
        store.destroy_inbox(WINDOW)
        store.advance(WINDOW, WindowState.SEALED, WindowState.DELIVERING)
        store.close()
    return disk


def found(folder: Path, image: Image) -> list[bytes]:
    """The reports that a start after the power cut would deliver."""
    folder.mkdir()
    restore(folder, image)
    store = adopted(folder)
    record = store.record(WINDOW)
    try:
        if record is None:
            return []
        if record.state is WindowState.OPEN:
            store.close_intake(WINDOW)
        if record.state in (WindowState.OPEN, WindowState.CLOSING):
            sealed = store.seal(WINDOW)
            store.advance(
                WINDOW, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest"
            )
        record = store.record(WINDOW)
        assert record is not None
        data = store.read_rows(WINDOW, 0, record.rows)
    finally:
        store.close()
    return [data[at : at + ROW] for at in range(0, len(data), ROW)]


def losses(folder: Path, images: list[tuple[Image, frozenset[bytes]]]) -> list[str]:
    """Images after which an acknowledged report is missing or one is there twice."""
    bad: list[str] = []
    for number, (image, acked) in enumerate(images):
        try:
            rows = found(folder / str(number), image)
        except (ShoalError, sqlite.Error) as error:
            bad.append(f"image {number}: {error}")
            continue
        if len(rows) != len(set(rows)) or not acked <= set(rows):
            bad.append(
                f"image {number}: {len(acked - set(rows))} of {len(acked)} acknowledged reports "
                "lost"
            )
    return bad


def one_life(home: Path, number: int = 0) -> tuple[int, int, list[str]]:
    """(images, syncs, losses) of one life."""
    folder = home / f"life{number}"
    folder.mkdir()
    rng = random.Random(number)  # noqa: S311 - which image is no secret
    with pytest.MonkeyPatch.context() as patch:
        disk = live(folder, rng, patch)
    images = list(disk.images(rng))
    return len(images), disk.syncs, losses(folder, images)


@pytest.mark.parametrize("number", range(LIVES))
def test_nothing_acknowledged_is_lost_at_a_power_cut(memory_folder: Path, number: int) -> None:
    """Planted: no fsync of the batch file before its rename, none of the folder after, no state row
    before the inbox -> fails.
    """
    images, syncs, bad = one_life(memory_folder, number)
    assert bad == []
    assert syncs >= GROUPS + 8  # one sync per commit at least, so the observer sees them
    assert images >= 2 * syncs


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_the_model_catches_a_store_that_does_not_sync_its_commits(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The negative control. NORMAL syncs at checkpoints only: consistent, but acknowledged commits
    are lost.
    """
    real = sqlite.connect

    def careless(path: Path, *pragmas: Any, **more: Any) -> sqlite.Connection:
        connection = real(path, *pragmas, **more)
        connection.execute(f"PRAGMA synchronous = {level}")
        return connection

    monkeypatch.setattr(sqlite, "connect", careless)
    _, _, bad = one_life(memory_folder)
    assert bad  # OFF: not even a state file is left, the start is refused
    assert level == "OFF" or any("acknowledged reports lost" in line for line in bad)


def test_every_connection_syncs_at_commit(tmp_path: Path) -> None:
    connection = connect(tmp_path / "one.db")
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
