"""The one opener of SQLite files: migrations once and whole, newer and damaged files told apart."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.storage import sqlite
from shoal.storage.checksums import FUNCTIONS, fits
from shoal.storage.salvage import SavedTable, rescue, set_aside, take_over

TABLE = SavedTable("id, text, digest", "id")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "kept_001.sql").write_text("CREATE TABLE kept (id INTEGER PRIMARY KEY, text TEXT);\n")
    (folder / "kept_002.sql").write_text(
        "ALTER TABLE kept ADD COLUMN digest BLOB;\n"
        "UPDATE kept SET digest = row_digest(id, text);\n"
        "CREATE TRIGGER stays BEFORE DELETE ON kept\n"
        "BEGIN\n"
        "SELECT RAISE (ABORT, 'a row stays');\n"
        "END;\n"
    )
    (folder / "other_001.sql").write_text("of another kind of file, never read here;\n")
    return folder


def opened(path: Path, scripts: Path) -> sqlite.Connection:
    return sqlite.open_whole(path, scripts, "kept", functions=FUNCTIONS)


def test_a_file_has_each_migration_once(tmp_path: Path, scripts: Path) -> None:
    """Planted: the numbers not written -> the second opening fails; statements split at every
    semicolon -> the trigger is half a statement.
    """
    path, second = tmp_path / "kept.db", scripts / "kept_002.sql"
    text = second.read_text()
    second.unlink()
    old = opened(path, scripts)
    old.execute("INSERT INTO kept VALUES (1, 'before')")
    old.close()
    second.write_text(text)
    for _ in range(2):
        connection = opened(path, scripts)
        (row,) = connection.execute("SELECT id, text, digest FROM kept").fetchall()
        assert fits(row)
        assert sqlite.version_of(connection) == 2
        with pytest.raises(sqlite.IntegrityError, match="a row stays"):
            connection.execute("DELETE FROM kept")
        connection.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failure_in_a_migration_leaves_the_file_as_it_was(tmp_path: Path, scripts: Path) -> None:
    """Planted: each statement a transaction of its own -> the table stands, and the next opening
    fails.
    """
    path = tmp_path / "kept.db"
    failpoints.arm("kept.migrate=enospc@2")
    try:
        with pytest.raises(OSError, match="failpoint"):
            opened(path, scripts)
    finally:
        failpoints.arm("")
    with sqlite3.connect(path) as left:
        assert left.execute("SELECT name FROM sqlite_master").fetchall() == []
    left.close()
    opened(path, scripts).close()


@pytest.mark.parametrize("far_is_damage", [False, True])
@pytest.mark.parametrize(("version", "far"), [(3, False), (129, False), (130, True)])
def test_a_newer_file_is_refused_and_an_impossible_one_is_damaged_where_that_is_wanted(
    tmp_path: Path, scripts: Path, version: int, far: bool, far_is_damage: bool
) -> None:
    """Planted: damage whatever the caller says, or never -> fails."""
    path = tmp_path / "kept.db"
    with sqlite3.connect(path) as made:
        made.execute(f"PRAGMA user_version = {version}")
    made.close()
    with pytest.raises((ShoalError, sqlite.Error)) as refused:
        sqlite.open_whole(path, scripts, "kept", far_is_damage=far_is_damage)
    if far and far_is_damage:
        assert sqlite.is_damaged(refused.value)
    else:
        assert isinstance(refused.value, ShoalError)
        assert refused.value.kind is Kind.CONFIG
        assert str(refused.value).startswith("kept.db: written by a newer version of shoal")


def test_of_two_that_open_an_old_file_one_migrates_it(tmp_path: Path, scripts: Path) -> None:
    """Both saw the old version; the second one looks again under the lock. Planted: the version not
    read again -> "table kept already exists".
    """
    path = tmp_path / "kept.db"
    other = sqlite.connect(path, functions=FUNCTIONS)
    mine = sqlite.connect(path, functions=FUNCTIONS)

    class LateLock:
        """``mine``, but another program migrates between its look and its lock."""

        in_transaction = False

        def execute(self, statement: str) -> sqlite.Connection:
            if statement == "BEGIN IMMEDIATE":
                sqlite.migrate(other, path.name, scripts, "kept")
            return mine.execute(statement)  # type: ignore[return-value]  # a cursor

    sqlite.migrate(LateLock(), path.name, scripts, "kept")  # type: ignore[arg-type]
    assert sqlite.version_of(mine) == 2
    other.close()
    mine.close()


def test_migrations_without_a_gap(tmp_path: Path, scripts: Path) -> None:
    (scripts / "kept_004.sql").write_text("SELECT 1;\n")
    with pytest.raises(ShoalError, match="not numbered") as refused:
        opened(tmp_path / "kept.db", scripts)
    assert refused.value.kind is Kind.INTERNAL


def test_no_migrations_at_all_say_nothing_of_a_file(tmp_path: Path, scripts: Path) -> None:
    """The program is being replaced. Planted: an empty list taken as it is -> "written by a newer
    version", fails.
    """
    path = tmp_path / "kept.db"
    opened(path, scripts).close()
    for folder in (tmp_path / "away", tmp_path):
        with pytest.raises(FileNotFoundError, match="no migrations of kept"):
            opened(path, folder)
    opened(path, scripts).close()


def test_a_reader_beside_and_after_the_writer(tmp_path: Path, scripts: Path) -> None:
    path = tmp_path / "kept.db"
    writer = opened(path, scripts)
    writer.execute("INSERT INTO kept VALUES (1, 'one', x'00')")
    for _ in range(2):
        reader = sqlite.connect_read_only(path)
        assert reader.execute("SELECT text FROM kept").fetchall() == [("one",)]
        with pytest.raises(sqlite.OperationalError, match="readonly"):
            reader.execute("INSERT INTO kept VALUES (2, 'two', x'00')")
        reader.close()
        writer.close()


def test_a_damaged_file_is_set_aside_and_its_rows_taken_over(tmp_path: Path, scripts: Path) -> None:
    """Rows that are what was written, from both ends of the file. Planted: ``fits`` not asked ->
    the forged row comes along.
    """
    path = tmp_path / "kept.db"
    connection = opened(path, scripts)
    connection.execute("BEGIN")
    for number in range(400):
        connection.execute(
            "INSERT INTO kept VALUES (?1, ?2, row_digest(?1, ?2))", (number, "text" * 50)
        )
    connection.execute("INSERT INTO kept VALUES (400, 'forged', x'00')")
    connection.execute("COMMIT")
    connection.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(sqlite.Error) as damaged:
        opened(path, scripts)
    assert sqlite.is_damaged(damaged.value)
    rescued = rescue(path, {"kept": TABLE})
    assert set_aside(path).name == "kept.db.damaged-1"
    fresh = opened(path, scripts)
    take_over(fresh, {"kept": TABLE}, rescued)
    ids = [row[0] for row in fresh.execute("SELECT id FROM kept")]
    assert 300 < len(ids) < 400
    assert {0, 399} <= set(ids)
    fresh.close()
