"""A program that is replaced while it runs: its migrations are away for a moment; data stay."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport

TASK, ROW = TaskId(bytes(32)), 40
WINDOW = WindowId(TASK, 0)
MIGRATIONS = disk._MIGRATIONS


@pytest.mark.parametrize("missing", [None, "inbox_002.sql", "inbox_003.sql"])
def test_an_intact_inbox_stays_while_migrations_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    """All of them (None), one in the middle, or the last. Planted: an empty list of migrations
    taken as it is, any ShoalError of them taken for damage, or a new inbox that can't be made
    taken for damage of the old one -> the acknowledged reports are deleted, fails.
    """
    data, folder = tmp_path / "data", tmp_path / "migrations"
    data.mkdir()
    sent = [AdmittedReport(WINDOW, (secrets.token_bytes(ROW),)) for _ in range(3)]
    store = SqliteStore(data)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100), ROW)
    assert store.append(sent) == [None] * 3
    store.confirm()
    store.close()
    store = SqliteStore(data)
    if missing is not None:
        shutil.copytree(MIGRATIONS, folder)
        (folder / missing).unlink()
    monkeypatch.setattr(disk, "_MIGRATIONS", folder)
    for _ in range(2):
        try:
            store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100), ROW)
            assert store.append(sent) == [Kind.INTERNAL] * 3
        except ShoalError as error:
            assert error.kind is Kind.INTERNAL  # noqa: PT017 - a gap may be told by either call
    monkeypatch.setattr(disk, "_MIGRATIONS", MIGRATIONS)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100), ROW)
    assert store.distinct(WINDOW) == 3
    record = store.record(WINDOW)
    assert record is not None
    assert record.damaged == 0
    assert store.append(sent) == [None] * 3
    assert store.distinct(WINDOW) == 3
    store.close()
