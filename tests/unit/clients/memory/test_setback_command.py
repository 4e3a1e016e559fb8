"""`shoal agent memory --confirm-set-back`: the owner's word on a memory that was set back."""

from __future__ import annotations

import json
import sqlite3
import sys

import pytest

from shoal.clients.memory.marks import OUTBOX, row_mark
from tests.worlds.devices.owner import Owner

# --- the command ----------------------------------------------------------------------------------


def test_the_owners_word(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explained first; asked for unless --yes; nobody at the terminal is a no. Planted: confirmed
    without being asked -> fails.
    """
    assert owner.json("memory") == {
        "set_back": False,
        "confirmed": False,
        "damaged": [],
        "entries": 0,
        "verified": True,
    }
    kept = owner.outbox.read_bytes()
    owner.remember()
    assert owner.json("memory")["entries"] == 3
    owner.outbox.write_bytes(kept)
    head = owner.outbox.with_name("outbox.db.head").read_bytes()
    assert owner.run("ledger")[0] == 1
    for arguments in ((), ("--confirm-set-back",)):  # nobody is there to be asked
        code, out, err = owner.run("memory", *arguments)
        assert code == 1
        assert "entries 1 to 3 are lost" in out
        assert "Epsilon 9.5" in out
        assert err.count("\n") == 1
    code, out, _ = owner.run("memory", "--confirm-set-back", "--json")
    assert (code, json.loads(out)["confirmed"]) == (1, False)
    assert owner.outbox.with_name("outbox.db.head").read_bytes() == head

    class Terminal:
        def __init__(self, line: str) -> None:
            self.line = line

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.line

    for line, confirmed in (("no\n", False), ("", False), ("yes\n", True)):
        monkeypatch.setattr(sys, "stdin", Terminal(line))
        assert owner.run("memory", "--confirm-set-back")[0] == int(not confirmed)
    assert owner.run("ledger")[0] == 0
    assert owner.json("budget")["spent"] == pytest.approx(9.500000001)
    assert owner.json("memory")["set_back"] is False


def test_the_owners_word_ahead(owner: Owner) -> None:
    """--yes, for a fleet's scripts; also where the file is gone."""
    owner.remember()
    owner.outbox.unlink()
    assert owner.run("budget")[0] == 1
    code, out, _ = owner.run("memory", "--confirm-set-back", "--yes", "--json")
    assert (code, json.loads(out)["confirmed"], json.loads(out)["entries_noted"]) == (0, True, 3)
    assert owner.json("ledger")["entries"][-1]["event"] == "set_back"


CHANGES: dict[str, tuple[str, str]] = {
    "a charge made smaller": (
        "UPDATE charge SET nano = 1 WHERE number = 1",
        "entry 1 says that window 0",
    ),
    "a charge gone": ("DELETE FROM charge WHERE number = 2", "entry 2 says that window 1"),
    "a charge added": (
        "INSERT INTO charge (task_id, window, nano, permanent) SELECT task_id, 77, 5, 0 FROM "
        "charge LIMIT 1; "
        "UPDATE tally SET windows = windows + 1, nano = nano + 5 WHERE task_id = (SELECT task_id "
        "FROM charge LIMIT 1)",
        "no entry",
    ),
    "a sum made smaller": ("UPDATE tally SET nano = nano - 1", "its entries come to"),
    "windows not counted": ("UPDATE tally SET windows = 1 WHERE windows = 2", "2 windows of task"),
    "a loss forgotten": ("INSERT INTO lost (before_s, nano) VALUES (1.0, 0)", "was lost"),
    "a consent added": (
        "INSERT INTO consent (purpose, answer) VALUES ('anything', 'allowed')",
        "a consent",
    ),
}


def marked_anew(database: sqlite3.Connection) -> None:
    """As somebody would who knows how rows are marked."""
    database.create_function("row_mark", -1, row_mark)
    for name, table in OUTBOX.items():
        database.execute(f"UPDATE {name} SET mark = row_mark('{name}', {', '.join(table.columns)})")  # noqa: S608 - constants
    database.commit()


@pytest.mark.parametrize("how", CHANGES)
def test_the_ledger_is_compared_with_the_tables(owner: Owner, how: str) -> None:
    """The chain holds, and a table beside it says otherwise: named, exit status 1. Planted: no
    comparison -> "verified".
    """
    owner.remember()
    database = sqlite3.connect(owner.outbox)
    for (trigger,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    statement, words = CHANGES[how]
    database.executescript(statement)
    marked_anew(database)
    database.close()
    code, out, err = owner.run("ledger")
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1
    assert owner.run("memory")[0] == 1
