"""Inboxes that a version before wrote: without digests, in a window that goes on, that was closed
before the update, or whose file is damaged.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.sqlite import batch, disk, inbox
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from tests.worlds.inbox_file import stored

TASK, ROW, COUNT = TaskId(bytes(range(32))), 600, 200
WINDOW = WindowId(TASK, 0)


def opened(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100_000), ROW)
    return store


def filled(folder: Path, *, close: bool) -> list[bytes]:
    """A folder with one window, open or closed, and what was acknowledged of it."""
    store, sent = opened(folder), [secrets.token_bytes(ROW) for _ in range(COUNT)]
    assert store.append([AdmittedReport(WINDOW, (one,)) for one in sent]) == [None] * COUNT
    store.confirm()
    if close:
        store.close_intake(WINDOW)
    store.close()
    return sent


def made_older(folder: Path, version: int, says: int) -> Path:
    """The window's file as ``version`` made it, from that version's own migrations, with a row for
    each report. ``says``: the version that is written in it.
    """
    path = folder / f"inbox-{TASK.hex}-0.db"
    with closing(sqlite3.connect(path)) as new:
        (secret,) = new.execute("SELECT secret FROM secret").fetchone()
    rows = stored(path, ROW)
    inbox.destroy(path)
    with closing(sqlite3.connect(path)) as old:
        for number in range(1, version + 1):
            old.executescript((disk._MIGRATIONS / f"inbox_{number:03}.sql").read_text())
        if version < 3:
            old.execute("INSERT INTO secret VALUES (?)", (secret,))
            old.executemany("INSERT INTO inbox VALUES (?, ?)", rows)
        else:
            old.execute("INSERT INTO secret VALUES (?, ?)", (secret, sha256(secret).digest()))
            checked = [(*row, crc32(row[1], crc32(row[0]))) for row in rows]
            old.executemany("INSERT INTO inbox VALUES (?, ?, ?)", checked)
        old.execute(f"PRAGMA user_version = {says}")
        old.commit()
    return path


def sealed(store: SqliteStore, *, close: bool) -> tuple[list[bytes], int]:
    """The rows that are delivered, and how many are counted as lost."""
    if close:
        store.close_intake(WINDOW)
    found = store.seal(WINDOW)
    path = store._batch_path(WINDOW)
    data = batch.read(path, found.rows, ROW, 0, found.rows)
    return sorted(data[at : at + ROW] for at in range(0, len(data), ROW)), found.damaged


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_window_that_was_closed_before_the_update_is_sealed(tmp_path: Path, version: int) -> None:
    """Nothing opens its inbox for writing any more, so nothing brings it up to date. Planted:
    columns of the version after taken for granted by ``distinct_sorted`` -> taken for damage, and
    every row is lost.
    """
    sent = filled(tmp_path, close=True)
    made_older(tmp_path, version, version)
    store = opened(tmp_path)
    rows, lost = sealed(store, close=False)
    assert (len(rows), lost) == (COUNT, 0)
    assert rows == sorted(sent)
    assert not list(store.damage())
    store.close()


@pytest.mark.parametrize("says", [0, 2, 3, 4, 99])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_inbox_whose_version_is_damaged_keeps_its_rows(
    tmp_path: Path, version: int, says: int
) -> None:
    """One that can't be brought up to date is saved as it is. Planted: the digest of the secret
    taken for granted by ``salvage`` -> the file is destroyed, and every row is lost.
    """
    if says == version:
        says = 1
    sent = filled(tmp_path, close=False)
    made_older(tmp_path, version, says)
    store = opened(tmp_path)
    more = secrets.token_bytes(ROW)
    assert store.append([AdmittedReport(WINDOW, (one,)) for one in [more, sent[0]]]) == [None] * 2
    store.confirm()
    rows, lost = sealed(store, close=True)
    assert (len(rows), lost) == (COUNT + 1, 0)
    assert rows == sorted([*sent, more])
    store.close()


@pytest.mark.parametrize("closed", [False, True])
def test_damage_in_an_older_inbox_costs_the_rows_that_it_hit(tmp_path: Path, closed: bool) -> None:
    """They are counted, the others delivered. Planted: as above -> every row is lost."""
    sent = filled(tmp_path, close=closed)
    path = made_older(tmp_path, 1, 1 if closed else 99)
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
        file.seek(10 * size)
        file.write(b"\xff" * size)
    store = opened(tmp_path)
    rows, lost = sealed(store, close=not closed)
    assert set(rows) < set(sent)
    assert 0 < lost <= COUNT // 4
    assert len(rows) + lost == COUNT
    assert list(store.damage())
    store.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_window_goes_on_in_blocks_where_rows_were_written(tmp_path: Path, version: int) -> None:
    """What came before the update and after it is one batch; repeats of both are known, also after
    another start. Planted: ``keys`` of blocks alone -> repeats are written again; ``_steps`` of
    blocks alone -> 2 rows, fails.
    """
    sent = filled(tmp_path, close=False)
    path = made_older(tmp_path, version, version)
    more = [secrets.token_bytes(ROW) for _ in range(2)]
    for _ in range(2):
        store = opened(tmp_path)
        everything = [AdmittedReport(WINDOW, (one,)) for one in [*sent[:5], *more]]
        assert store.append(everything) == [None] * 7
        store.confirm()
        assert store.distinct(WINDOW) == COUNT + 2
        store.close()
    assert sorted(sealed for _, sealed in stored(path, ROW)) == sorted(more)
    store = opened(tmp_path)
    rows, lost = sealed(store, close=True)
    assert (rows, lost) == (sorted([*sent, *more]), 0)
    assert store.held(WINDOW) == COUNT + 2
    store.close()


def test_a_row_of_a_wrong_size_is_found_at_sealing(tmp_path: Path) -> None:
    """Planted: its length not looked at -> the batch is cut in the wrong places, fails."""
    filled(tmp_path, close=True)
    path = made_older(tmp_path, 3, 3)
    key, short = bytes(16), bytes(ROW - 1)
    with closing(sqlite3.connect(path)) as old:
        old.execute("INSERT INTO inbox VALUES (?, ?, ?)", (key, short, crc32(short, crc32(key))))
        old.commit()
    store = opened(tmp_path)
    with pytest.raises(ShoalError) as refused:
        store.seal(WINDOW)
    assert refused.value.kind is Kind.INTERNAL
    store.close()
