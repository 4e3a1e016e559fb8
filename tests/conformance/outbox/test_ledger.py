"""What every ledger of rounds must do, and what the one on disk must do beyond it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.clients.memory.rounds_ledger import MemoryLedger, RoundStanding, SqliteLedger
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId

TASK = TaskId(b"\x07" * 32)
ROUND, OTHER_ROUND = Digest(b"\x01" * 32), Digest(b"\x02" * 32)
SEALED, OTHER = Digest(b"\x03" * 32), Digest(b"\x04" * 32)
COMMIT, OTHER_COMMIT = Digest(b"\x05" * 32), Digest(b"\x06" * 32)
Ledger = SqliteLedger | MemoryLedger


@pytest.fixture(params=["sqlite", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made = SqliteLedger(tmp_path / "ledger") if request.param == "sqlite" else MemoryLedger()
    yield made
    failpoints.arm("")
    made.close()


def conflict(step: object, *arguments: object) -> None:
    with pytest.raises(ShoalError) as error:
        step(*arguments)  # type: ignore[operator]
    assert error.value.kind is Kind.CONFLICT


def test_a_window_is_answered_once(ledger: Ledger) -> None:
    """In whatever round, by whatever bytes. Planted: INSERT OR REPLACE -> the second answer
    stands.
    """
    assert ledger.find(TASK, 0) is None
    ledger.masked(TASK, 0, ROUND, SEALED)
    for again in ((ROUND, SEALED), (ROUND, OTHER), (OTHER_ROUND, SEALED)):
        conflict(ledger.masked, TASK, 0, *again)
    ledger.masked(TASK, 1, ROUND, SEALED)
    found = ledger.find(TASK, 0)
    assert found is not None
    assert (found.round_id, found.standing, found.released, found.kind) == (
        ROUND,
        RoundStanding.MASKED,
        False,
        None,
    )
    assert [answer.window for answer in ledger.answers()] == [0, 1]


def test_shares_are_given_for_one_commit_of_the_answered_round(ledger: Ledger) -> None:
    """Planted: the round not compared, or a second commit let through -> shares of two survivor
    sets.
    """
    conflict(ledger.released, TASK, 0, ROUND, COMMIT)
    ledger.masked(TASK, 0, ROUND, SEALED)
    conflict(ledger.released, TASK, 0, OTHER_ROUND, COMMIT)
    ledger.released(TASK, 0, ROUND, COMMIT)
    ledger.released(TASK, 0, ROUND, COMMIT)
    conflict(ledger.released, TASK, 0, ROUND, OTHER_COMMIT)
    found = ledger.find(TASK, 0)
    assert found is not None
    assert found.released


def test_only_an_open_answer_is_settled(ledger: Ledger) -> None:
    ledger.settle(TASK, 0, RoundStanding.LOST)
    assert ledger.answers() == []
    ledger.masked(TASK, 0, ROUND, SEALED)
    ledger.settle(TASK, 0, RoundStanding.ABORTED, Kind.ABORTED)
    ledger.settle(TASK, 0, RoundStanding.COUNTED)
    (found,) = ledger.answers()
    assert (found.standing, found.kind) == (RoundStanding.ABORTED, Kind.ABORTED)
    conflict(ledger.masked, TASK, 0, OTHER_ROUND, OTHER)


def test_what_was_written_survives_the_process(tmp_path: Path) -> None:
    """Another connection sees it at once, and synchronous is FULL. Planted: a commit that is
    deferred -> nothing is seen.
    """
    first, second = SqliteLedger(tmp_path / "ledger"), SqliteLedger(tmp_path / "ledger")
    first.masked(TASK, 0, ROUND, SEALED)
    assert [answer.round_id for answer in second.answers()] == [ROUND]
    conflict(second.masked, TASK, 0, OTHER_ROUND, OTHER)
    assert first._file.read("PRAGMA synchronous") == [(2,)]
    first.close()
    second.close()
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o600


def test_a_failing_disk_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger")
    failpoints.arm("ledger.commit=enospc@1")
    with pytest.raises(ShoalError) as error:
        ledger.masked(TASK, 0, ROUND, SEALED)
    failpoints.arm("")
    assert error.value.kind is Kind.OVERLOADED
    assert ledger.answers() == []
    ledger.masked(TASK, 0, ROUND, SEALED)
    ledger.close()


@pytest.mark.parametrize("what", ["not a database", "newer", "readable by others", "no folder"])
def test_files_that_can_not_be_used_are_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "ledger"
    if what == "not a database":
        path.write_bytes(b"something else" * 100)
        path.chmod(0o600)
    elif what == "newer":
        SqliteLedger(path).close()
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 99")
        database.close()
    elif what == "readable by others":
        path.touch()
        path.chmod(0o644)  # whatever the umask
    else:
        path = tmp_path / "nowhere" / "ledger"
    with pytest.raises(ShoalError) as error:
        SqliteLedger(path)
    assert error.value.kind is Kind.CONFIG
    assert "ledger" in error.value.message
