"""Sums of rounds in the analyzer's store: once each, never after the release, none kept of what is
withheld.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from shoal import failpoints
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.rounds.sums import AnySum, Conclude, StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId

TASK = TaskId(b"\x01" * 32)
OUTCOME = WindowOutcome(b"release", bytes(64), b"ack", bytes(64), None, Spending(TASK, 0.25, 1e-6))


def one(
    number: int, survivors: int = 5, values: Sequence[int] = (1, -(2**62), 2**63 - 1)
) -> StoredSum:
    return StoredSum(Digest(bytes((number,)) * 32), survivors, np.array(values, dtype=np.int64))


def conclude(published: bool) -> Conclude:
    def made(
        _: Sequence[AnySum], __: Mapping[str, int], ___: list[Spending], ____: int
    ) -> tuple[WindowOutcome, bool]:
        return OUTCOME, published

    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AnalyzerStore]:
    made = AnalyzerStore(tmp_path / FILE_NAME)
    yield made
    failpoints.arm("")
    made.close()


@pytest.fixture
def sums(store: AnalyzerStore) -> SumStore:
    return SumStore(store)


def shown(sums: SumStore, window: int = 0) -> list[tuple[int, int, list[int]]]:
    return [
        (each.round_id.raw[0], each.survivors, each.vector.tolist())
        for each in sums.of(TASK, window)
    ]


def test_sums_come_back_as_they_were_in_an_order_that_says_nothing(sums: SumStore) -> None:
    """Planted: ORDER BY rowid, or 32-bit words -> another order, other numbers."""
    for number in (3, 1, 2):
        sums.add(TASK, 0, one(number, number + 4))
    assert shown(sums) == [(n, n + 4, [1, -(2**62), 2**63 - 1]) for n in (1, 2, 3)]
    assert shown(sums, 1) == []
    assert sums.holds(Digest(b"\x01" * 32))
    assert not sums.holds(Digest(b"\x09" * 32))
    assert sums.unreleased() == {(TASK, 0)}


def test_a_round_has_one_sum(sums: SumStore) -> None:
    sums.add(TASK, 0, one(1))
    sums.add(TASK, 0, one(1))
    for other in (one(1, 6), one(1, values=(1, 2, 3))):
        with pytest.raises(ShoalError) as error:
            sums.add(TASK, 0, other)
        assert error.value.kind is Kind.CONFLICT
    with pytest.raises(ShoalError):
        sums.add(TASK, 1, one(1))
    assert len(shown(sums)) == 1


def test_a_window_is_finished_once_with_all_that_belongs_to_it(
    sums: SumStore, store: AnalyzerStore
) -> None:
    sums.add(TASK, 0, one(1))
    sums.aborted(TASK, 0, "too few vectors came")
    sums.aborted(TASK, 0, "too few vectors came")
    seen: list[object] = []

    def made(
        found: Sequence[AnySum], reasons: Mapping[str, int], earlier: list[Spending], lost: int
    ) -> tuple[WindowOutcome, bool]:
        seen.extend((len(found), dict(reasons), len(earlier), lost))
        return OUTCOME, True

    assert sums.finish(TASK, 0, made)
    assert seen == [1, {"too few vectors came": 2}, 0, 0]
    assert not sums.finish(TASK, 0, made)
    assert len(seen) == 4
    assert [release.release for release in store.releases()] == [b"release"]
    assert [spending.epsilon_upper for spending in store.spendings()] == [0.25]
    assert (store.released(TASK, 0), store.released(TASK, 1), store.over()) == (
        True,
        False,
        {(TASK, 0)},
    )
    assert len(shown(sums)) == 1
    assert sums.unreleased() == set()


def test_nothing_is_added_after_the_release(sums: SumStore, store: AnalyzerStore) -> None:
    """Planted: the look at releases left out -> a sum that was published without appears beside it
    (and the trigger still refuses).
    """
    assert sums.finish(TASK, 0, conclude(True))
    with pytest.raises(ShoalError) as error:
        sums.add(TASK, 0, one(1))
    assert error.value.kind is Kind.WINDOW_CLOSED
    sums.aborted(TASK, 0, "the window is over")
    assert sums.reasons(TASK, 0) == {}
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as db:
        db.execute(
            "INSERT INTO sums VALUES (?, 0, ?, 5, ?, NULL, NULL)", (TASK.raw, bytes(32), bytes(8))
        )
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as db:
        db.execute("DELETE FROM releases")


def test_none_is_kept_of_a_window_that_is_withheld(sums: SumStore) -> None:
    """Planted: the deletion left out -> the sums stay."""
    sums.add(TASK, 0, one(1))
    sums.add(TASK, 1, one(2))
    assert sums.finish(TASK, 0, conclude(False))
    assert shown(sums) == []
    assert len(shown(sums, 1)) == 1


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("vector = zeroblob(24)", 7),  # what its head says
        ("digest = zeroblob(16)", 7),
        ("head = zeroblob(16)", 0),  # the sum itself is whole
        ("survivors = 1000", 4),  # not believed: the least that a sum has
        ("round_id = zeroblob(32)", 4),
    ],
)
def test_a_damaged_sum_is_left_out_and_its_devices_are_counted(
    sums: SumStore, store: AnalyzerStore, change: str, lost: int
) -> None:
    """Planted: devices of damaged sums not counted, or counted by what the damaged row says of
    itself: each is seen.
    """
    sums.add(TASK, 0, one(1, 7))
    sums.add(TASK, 0, one(2, 9))
    with store.transaction() as db:
        db.execute("DROP TRIGGER sums_never_change")
        db.execute(f"UPDATE sums SET {change} WHERE survivors = 7")  # noqa: S608 - constants
    seen: list[int] = []

    def made(
        found: Sequence[AnySum], _: Mapping[str, int], __: list[Spending], missing: int
    ) -> tuple[WindowOutcome, bool]:
        seen.extend((sum(each.survivors for each in found), missing))
        return OUTCOME, True

    assert sums.finish(TASK, 0, made, 4)
    assert seen == [9 if lost else 16, lost]


@pytest.mark.parametrize(
    "point", ["analyzer.store.release", "analyzer.sums.finish", "analyzer.store.commit"]
)
def test_a_failure_on_the_way_changes_nothing(
    sums: SumStore, store: AnalyzerStore, point: str
) -> None:
    sums.add(TASK, 0, one(1))
    failpoints.arm(f"{point}=enospc@1")
    with pytest.raises(ShoalError) as error:
        sums.finish(TASK, 0, conclude(False))
    assert error.value.kind is Kind.OVERLOADED
    assert store.releases() == []
    assert len(shown(sums)) == 1
    assert sums.finish(TASK, 0, conclude(False))


@pytest.mark.parametrize("point", ["analyzer.sums.add", "analyzer.store.commit"])
def test_a_sum_that_could_not_be_stored_is_not_there(sums: SumStore, point: str) -> None:
    failpoints.arm(f"{point}=enospc@1")
    with pytest.raises(ShoalError) as error:
        sums.add(TASK, 0, one(1))
    assert error.value.kind is Kind.OVERLOADED
    assert shown(sums) == []
    sums.add(TASK, 0, one(1))


def test_a_store_from_before_keeps_its_releases(tmp_path: Path) -> None:
    """Written by the first schema: batch, release, tally, acknowledgement. Planted: the copying
    left out -> the release is gone.
    """
    path = tmp_path / FILE_NAME
    first = files("shoal.analyzer").joinpath("migrations", "analyzer_001.sql").read_text()
    database = sqlite3.connect(path)
    database.executescript(
        f"PRAGMA foreign_keys = ON; BEGIN; {first}; PRAGMA user_version = 1; COMMIT;"
    )
    key, law_hash = (TASK.raw, 4), hashlib.sha256(b"\x05").digest()
    database.execute("INSERT INTO batches VALUES (?, ?, x'01', ?, 2)", (*key, bytes(32)))
    database.execute("INSERT INTO loss_laws VALUES (?, x'05')", (law_hash,))
    database.execute(
        "INSERT INTO releases VALUES (?, ?, x'0102', ?, 0.5, 1e-6, ?)",
        (*key, b"\x03" * 64, law_hash),
    )
    database.execute("INSERT INTO tallies VALUES (?, ?, x'04')", key)
    database.execute("INSERT INTO acks VALUES (?, ?, x'06', ?)", (*key, bytes(64)))
    database.commit()
    database.close()
    store = AnalyzerStore(path)
    (release,) = store.releases()
    assert (release.task_id, release.window, release.release, release.signature) == (
        TASK,
        4,
        b"\x01\x02",
        b"\x03" * 64,
    )
    assert store.tally(TASK, 4) == b"\x04"
    assert [(spent.epsilon_upper, spent.law) for spent in store.spendings()] == [(0.5, b"\x05")]
    with store.reading() as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        assert db.execute("SELECT ack FROM acks").fetchall() == [(b"\x06",)]
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as db:
        db.execute("UPDATE releases SET epsilon = 0")
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as db:
        db.execute("INSERT INTO tallies VALUES (?, 5, x'04', NULL)", (TASK.raw,))
    store.close()
