"""What every book promises: charges, memoized reports, consents, the ledger, and that they commit
together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.clients.memory import commitments_memory as book_module
from shoal.clients.memory import commitments_sqlite as book_sqlite
from shoal.clients.memory.commitments import (
    MOST_NANO,
    Commitments,
    Loss,
    SeenTask,
    TaskCharges,
    WindowCharge,
)
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import EMPTY, LedgerEntry, LedgerEvent
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

TASK, OTHER = TaskId(b"t" * 32), TaskId(b"o" * 32)
SEEN = SeenTask(TASK, "visits", "to plan clinics", b"a" * 32, 3_000_000_000, "accepted")


@pytest.fixture(params=["memory", "sqlite"])
def commitments(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commitments]:
    if request.param == "memory":
        yield MemoryCommitments()
        return
    store = AgentStore(tmp_path / "outbox.db")
    yield SqliteCommitments(store)
    store.close()


def entry(number: int = 0) -> LedgerEntry:
    return LedgerEntry(LedgerEvent.SEEN, 1_800_000_000.5, TASK, "visits", None, {"number": number})


def refused(kind: Kind, step: object, *arguments: object) -> str:
    with pytest.raises(ShoalError) as caught:
        step(*arguments)  # type: ignore[operator]
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message
    return caught.value.message


def everything(commitments: Commitments) -> object:
    """All that a book knows, to see that nothing changed."""
    memo = [
        (commitments.permanent(task, cell), commitments.latest(task), commitments.choice(task))
        for task in (TASK, OTHER)
        for cell in range(3)
    ]
    known = (
        commitments.seen(TASK),
        commitments.consents(),
        commitments.accepted(TASK),
        commitments.tasks_of(SEEN.purpose),
    )
    return (
        commitments.spent(),
        commitments.charges(),
        commitments.tally(TASK),
        memo,
        known,
        commitments.entries(),
    )


# --- budget ---------------------------------------------------------------------------------------


def test_a_window_is_charged_once(commitments: Commitments) -> None:
    """Whatever the second charge says. Planted: add at every call -> 12 are spent; told what was
    asked for -> 7.
    """
    assert (commitments.spent(), commitments.charged(TASK, 0), commitments.tally(TASK)) == (
        0,
        None,
        TaskCharges(0, 0),
    )
    assert commitments.charge(TASK, 0, 5, 10) == 5
    assert commitments.charge(TASK, 0, 7, 10) == 5
    assert commitments.charge(TASK, 0, 7, 1) == 5  # not even refused
    assert (commitments.spent(), commitments.charged(TASK, 0), commitments.tally(TASK)) == (
        5,
        5,
        TaskCharges(1, 5),
    )
    commitments.charge(OTHER, 0, 2, None, permanent=True)
    commitments.charge(TASK, 1, 0, 10, permanent=True)
    assert commitments.charges() == [
        WindowCharge(TASK, 0, 5, False),
        WindowCharge(OTHER, 0, 2, True),
        WindowCharge(TASK, 1, 0, True),
    ]
    assert (commitments.spent(), commitments.tally(TASK), commitments.tally(OTHER)) == (
        7,
        TaskCharges(2, 5),
        TaskCharges(1, 2),
    )


def test_the_budget_is_never_exceeded(commitments: Commitments) -> None:
    """To the last nano-epsilon. Planted: >= for > -> what just fits is refused; > limit + 1 -> one
    too many is taken.
    """
    commitments.charge(TASK, 0, 6, 10)
    before = everything(commitments)
    assert "budget" in refused(Kind.REFUSED, commitments.charge, TASK, 1, 5, 10)
    assert everything(commitments) == before
    commitments.charge(TASK, 1, 4, 10)
    assert commitments.spent() == 10
    refused(Kind.REFUSED, commitments.charge, TASK, 2, 1, 10)
    commitments.charge(TASK, 2, 0, 3)  # costs nothing: paid for, however small the limit has become
    refused(Kind.REFUSED, commitments.charge, OTHER, 0, 1, 3)
    refused(
        Kind.REFUSED, commitments.charge, OTHER, 0, MOST_NANO, None
    )  # no limit is none of 64 bits
    commitments.charge(OTHER, 0, MOST_NANO - 10, None)
    assert commitments.spent() == MOST_NANO
    refused(Kind.INVALID, commitments.charge, OTHER, 1, -1, None)


def test_what_was_lost_is_spent(commitments: Commitments) -> None:
    """All of it together, and nothing of it is given back. Planted: the last loss alone counts ->
    fails.
    """
    assert commitments.lost() is None
    commitments.charge(TASK, 0, 5, None)
    commitments.lose(20.0, 3)
    commitments.lose(10.0, 4)
    assert (commitments.spent(), commitments.lost(), commitments.tally(TASK)) == (
        12,
        Loss(20.0, 7),
        TaskCharges(1, 5),
    )
    refused(Kind.REFUSED, commitments.charge, TASK, 1, 5, 16)
    for before_s, nano in ((math.nan, 1), (math.inf, 1), (1.0, -1)):
        refused(Kind.INVALID, commitments.lose, before_s, nano)

    def undone() -> None:
        with commitments.transaction():
            commitments.lose(30.0, 1)
            raise ShoalError(Kind.INVALID, "no")

    refused(Kind.INVALID, undone)
    assert (commitments.spent(), commitments.lost()) == (12, Loss(20.0, 7))


def test_forgetting_gives_nothing_back(commitments: Commitments) -> None:
    """Planted: ``forget`` deletes the charges -> the budget refills."""
    commitments.charge(TASK, 0, 5, 10, permanent=True)
    commitments.remember(TASK, 1, b"report")
    assert commitments.forget(TASK) == 1
    assert (commitments.spent(), commitments.charged(TASK, 0)) == (5, 5)


# --- memo -----------------------------------------------------------------------------------------


def test_a_permanent_report_stays(commitments: Commitments) -> None:
    """Planted: INSERT OR REPLACE -> the second draw replaces the first; ``latest`` by insertion ->
    b"two" at the end.
    """
    assert (commitments.permanent(TASK, 1), commitments.latest(TASK)) == (None, None)
    commitments.remember(TASK, 1, b"one")
    commitments.remember(TASK, 2, b"two")
    commitments.remember(OTHER, 1, b"other")
    assert [commitments.permanent(TASK, cell) for cell in range(3)] == [None, b"one", b"two"]
    assert [commitments.permanent(OTHER, cell) for cell in range(3)] == [None, b"other", None]
    assert commitments.latest(TASK) == b"two"
    refused(Kind.CONFLICT, commitments.remember, TASK, 1, b"two")
    assert commitments.latest(TASK) == b"two"
    commitments.remember(TASK, 1, b"one")
    assert commitments.latest(TASK) == b"one"
    # cells and keys are told apart in all their bits
    for far in (1 << 31, 1 << 32, (1 << 32) + 1, (1 << 62) - 1):
        commitments.remember(TASK, far, str(far).encode())
        assert commitments.permanent(TASK, far) == str(far).encode()
    assert commitments.permanent(TASK, 0) is None
    assert commitments.permanent(TASK, 1) == b"one"


def test_what_is_forgotten_is_drawn_anew(commitments: Commitments) -> None:
    point = commitments.rounding(TASK)
    assert (len(point), commitments.rounding(TASK)) == (8, point)
    assert commitments.rounding(OTHER) != point
    commitments.remember(TASK, 1, b"one")
    commitments.remember(TASK, 2, b"two")
    commitments.remember(OTHER, 1, b"other")
    assert commitments.rounding(TASK) == point
    assert commitments.forget(TASK) == 2
    assert commitments.forget(TASK) == 0
    assert (
        commitments.permanent(TASK, 1),
        commitments.latest(TASK),
        commitments.permanent(OTHER, 1),
    ) == (
        None,
        None,
        b"other",
    )
    assert commitments.rounding(TASK) != point
    commitments.remember(TASK, 1, b"another")
    assert commitments.permanent(TASK, 1) == b"another"


def test_a_choice_is_made_once_and_goes_with_what_is_forgotten(commitments: Commitments) -> None:
    """Planted: a choice that may be changed; ``forget`` that leaves it -> the device is known again
    by it after a withdrawal; fails.
    """
    assert commitments.choice(TASK) is None
    commitments.choose(TASK, b"cohort")
    commitments.choose(TASK, b"cohort")
    refused(Kind.CONFLICT, commitments.choose, TASK, b"another")
    assert (commitments.choice(TASK), commitments.choice(OTHER)) == (b"cohort", None)
    commitments.choose(OTHER, b"")
    refused(Kind.CONFLICT, commitments.choose, OTHER, b"later")
    assert commitments.choice(OTHER) == b""
    commitments.remember(TASK, 1, b"one")
    assert commitments.forget(TASK) == 1
    assert (commitments.choice(TASK), commitments.choice(OTHER)) == (None, b"")
    commitments.choose(TASK, b"new")
    assert commitments.choice(TASK) == b"new"
    assert commitments.forget(TASK) == 0  # a choice alone is no answer


# --- tasks and consent ----------------------------------------------------------------------------


def test_tasks_are_remembered(commitments: Commitments) -> None:
    assert (commitments.seen(TASK), commitments.tasks_of(SEEN.purpose)) == (None, [])
    commitments.see(SEEN)
    infinite = dataclasses.replace(
        SEEN, task_id=OTHER, epsilon0_nano=None, verdict="refused: too much"
    )
    commitments.see(infinite)
    assert (commitments.seen(TASK), commitments.seen(OTHER)) == (SEEN, infinite)
    assert commitments.tasks_of(SEEN.purpose) == [OTHER, TASK]
    assert commitments.tasks_of("to plan") == []
    changed = dataclasses.replace(SEEN, verdict="refused")
    commitments.see(changed)
    assert commitments.seen(TASK) == changed
    with pytest.raises(ShoalError):
        dataclasses.replace(SEEN, epsilon0_nano=-1)


def test_answers_of_the_owner_are_kept(commitments: Commitments) -> None:
    commitments.set_consent("one", "allowed")
    commitments.set_consent("two", "denied")
    commitments.set_consent("one", "denied")
    assert commitments.consents() == {"one": "denied", "two": "denied"}
    commitments.set_consent("one", None)
    commitments.set_consent("never asked", None)
    refused(Kind.INVALID, commitments.set_consent, "two", "perhaps")
    assert commitments.consents() == {"two": "denied"}
    assert commitments.accepted(TASK) is None
    for epsilon0 in (12.5, math.inf, None):
        commitments.accept(TASK, epsilon0)
        assert commitments.accepted(TASK) == epsilon0
    for bad in (math.nan, 0.0, -1.0):
        refused(Kind.INVALID, commitments.accept, TASK, bad)
    assert commitments.accepted(OTHER) is None


# --- ledger ---------------------------------------------------------------------------------------


def test_the_ledger_grows_at_its_end(commitments: Commitments) -> None:
    assert (commitments.entries(), commitments.verify()) == ([], EMPTY)
    assert [commitments.append(entry(number)) for number in range(5)] == [1, 2, 3, 4, 5]
    rows = commitments.entries()
    assert [row.entry.details["number"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert [row.number for row in commitments.entries(2)] == [3, 4, 5]
    assert [row.number for row in commitments.entries(1, 2)] == [2, 3]
    assert (commitments.entries(5), commitments.entries(0, 0), commitments.entries(-3, 1)) == (
        [],
        [],
        rows[:1],
    )
    head = commitments.verify()
    assert (head.count, head.digest) == (5, rows[-1].digest)
    assert rows[0].entry == entry(0)


def test_strangers_can_not_fill_the_ledger(
    commitments: Commitments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no look at the digest -> entered twice; no limit -> a fourth entry."""
    few = dataclasses.replace(LIMITS, refusals=3)
    monkeypatch.setattr(book_module, "LIMITS", few)
    monkeypatch.setattr(book_sqlite, "LIMITS", few)
    digests = [Digest.of(bytes([number])) for number in range(5)]
    assert [
        commitments.problem(digest, entry())
        for digest in (*digests[:2], digests[0], *digests[2:], digests[2])
    ] == [
        1,
        2,
        None,
        3,
        None,
        None,
        None,
    ]
    assert (len(commitments.entries()), commitments.unentered) == (3, 2)
    assert commitments.append(entry()) == 4  # what this device does itself is always entered


# --- transactions ---------------------------------------------------------------------------------


def change(commitments: Commitments, window: int = 7) -> None:
    """Everything that a book can do."""
    commitments.charge(TASK, window, 5, None)
    commitments.rounding(OTHER)
    commitments.remember(TASK, window % 3, b"new")
    commitments.choose(TASK, b"chosen")
    commitments.forget(OTHER)
    commitments.see(dataclasses.replace(SEEN, verdict=str(window)))
    commitments.set_consent("one", "denied")
    commitments.accept(TASK, 9.0)
    commitments.append(entry(window))
    commitments.problem(Digest.of(bytes([window])), entry(window))


def failing(commitments: Commitments, failure: BaseException, inner: bool = False) -> None:
    before = everything(commitments)
    with commitments.transaction():
        if inner:
            with commitments.transaction():
                change(commitments)
        else:
            change(commitments)
        assert everything(commitments) != before
        raise failure


@pytest.mark.parametrize(
    "failure", [ShoalError(Kind.REFUSED, "no"), RuntimeError(), KeyboardInterrupt()]
)
def test_a_transaction_is_all_or_nothing(commitments: Commitments, failure: BaseException) -> None:
    """Planted: no undo of one of them -> it stays."""
    commitments.see(SEEN)
    commitments.remember(TASK, 0, b"old")
    commitments.remember(OTHER, 0, b"other")
    commitments.append(entry())
    before = everything(commitments)
    with pytest.raises(type(failure)):
        failing(commitments, failure)
    assert everything(commitments) == before
    with commitments.transaction():
        change(commitments)
    assert (commitments.spent(), len(commitments.entries()), commitments.latest(OTHER)) == (
        5,
        3,
        None,
    )
    assert commitments.verify().count == 3


def test_an_inner_transaction_is_undone_alone(commitments: Commitments) -> None:
    """And what the outer one does goes on. Planted: the inner commits -> it stays although the
    outer fails.
    """
    with commitments.transaction():
        commitments.charge(TASK, 0, 1, None)
        with pytest.raises(RuntimeError):
            failing(commitments, RuntimeError())
        commitments.append(entry())
    assert (
        commitments.spent(),
        len(commitments.entries()),
        commitments.seen(TASK),
        commitments.verify().count,
    ) == (
        1,
        1,
        None,
        1,
    )
    before = everything(commitments)
    with pytest.raises(RuntimeError):
        failing(commitments, RuntimeError(), inner=True)
    assert everything(commitments) == before
    assert commitments.verify().count == 1


def test_a_refused_charge_inside_a_transaction_leaves_the_rest(commitments: Commitments) -> None:
    with commitments.transaction():
        commitments.charge(TASK, 0, 3, 5)
        refused(Kind.REFUSED, commitments.charge, TASK, 1, 3, 5)
        commitments.append(entry())
    assert (commitments.spent(), commitments.charged(TASK, 1), len(commitments.entries())) == (
        3,
        None,
        1,
    )
