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
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commitments]:
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


def everything(book: Commitments) -> object:
    """All that a book knows, to see that nothing changed."""
    memo = [
        (book.permanent(task, cell), book.latest(task), book.choice(task))
        for task in (TASK, OTHER)
        for cell in range(3)
    ]
    known = (book.seen(TASK), book.consents(), book.accepted(TASK), book.tasks_of(SEEN.purpose))
    return book.spent(), book.charges(), book.tally(TASK), memo, known, book.entries()


# --- budget ---------------------------------------------------------------------------------------


def test_a_window_is_charged_once(book: Commitments) -> None:
    """Whatever the second charge says. Planted: add at every call -> 12 are spent."""
    assert (book.spent(), book.charged(TASK, 0), book.tally(TASK)) == (0, None, TaskCharges(0, 0))
    book.charge(TASK, 0, 5, 10)
    book.charge(TASK, 0, 7, 10)
    book.charge(TASK, 0, 7, 1)  # not even refused
    assert (book.spent(), book.charged(TASK, 0), book.tally(TASK)) == (5, 5, TaskCharges(1, 5))
    book.charge(OTHER, 0, 2, None, permanent=True)
    book.charge(TASK, 1, 0, 10, permanent=True)
    assert book.charges() == [
        WindowCharge(TASK, 0, 5, False),
        WindowCharge(OTHER, 0, 2, True),
        WindowCharge(TASK, 1, 0, True),
    ]
    assert (book.spent(), book.tally(TASK), book.tally(OTHER)) == (
        7,
        TaskCharges(2, 5),
        TaskCharges(1, 2),
    )


def test_the_budget_is_never_exceeded(book: Commitments) -> None:
    """To the last nano-epsilon. Planted: >= for > -> what just fits is refused; > limit + 1 -> one
    too many is taken.
    """
    book.charge(TASK, 0, 6, 10)
    before = everything(book)
    assert "budget" in refused(Kind.REFUSED, book.charge, TASK, 1, 5, 10)
    assert everything(book) == before
    book.charge(TASK, 1, 4, 10)
    assert book.spent() == 10
    refused(Kind.REFUSED, book.charge, TASK, 2, 1, 10)
    book.charge(TASK, 2, 0, 3)  # costs nothing: paid for, however small the limit has become
    refused(Kind.REFUSED, book.charge, OTHER, 0, 1, 3)
    refused(Kind.REFUSED, book.charge, OTHER, 0, MOST_NANO, None)  # no limit is none of 64 bits
    book.charge(OTHER, 0, MOST_NANO - 10, None)
    assert book.spent() == MOST_NANO
    refused(Kind.INVALID, book.charge, OTHER, 1, -1, None)


def test_what_was_lost_is_spent(book: Commitments) -> None:
    """All of it together, and nothing of it is given back. Planted: the last loss alone counts ->
    fails.
    """
    assert book.lost() is None
    book.charge(TASK, 0, 5, None)
    book.lose(20.0, 3)
    book.lose(10.0, 4)
    assert (book.spent(), book.lost(), book.tally(TASK)) == (12, Loss(20.0, 7), TaskCharges(1, 5))
    refused(Kind.REFUSED, book.charge, TASK, 1, 5, 16)
    for before_s, nano in ((math.nan, 1), (math.inf, 1), (1.0, -1)):
        refused(Kind.INVALID, book.lose, before_s, nano)

    def undone() -> None:
        with book.transaction():
            book.lose(30.0, 1)
            raise ShoalError(Kind.INVALID, "no")

    refused(Kind.INVALID, undone)
    assert (book.spent(), book.lost()) == (12, Loss(20.0, 7))


def test_forgetting_gives_nothing_back(book: Commitments) -> None:
    """Planted: ``forget`` deletes the charges -> the budget refills."""
    book.charge(TASK, 0, 5, 10, permanent=True)
    book.remember(TASK, 1, b"report")
    assert book.forget(TASK) == 1
    assert (book.spent(), book.charged(TASK, 0)) == (5, 5)


# --- memo -----------------------------------------------------------------------------------------


def test_a_permanent_report_stays(book: Commitments) -> None:
    """Planted: INSERT OR REPLACE -> the second draw replaces the first; ``latest`` by insertion ->
    b"two" at the end.
    """
    assert (book.permanent(TASK, 1), book.latest(TASK)) == (None, None)
    book.remember(TASK, 1, b"one")
    book.remember(TASK, 2, b"two")
    book.remember(OTHER, 1, b"other")
    assert [book.permanent(TASK, cell) for cell in range(3)] == [None, b"one", b"two"]
    assert [book.permanent(OTHER, cell) for cell in range(3)] == [None, b"other", None]
    assert book.latest(TASK) == b"two"
    refused(Kind.CONFLICT, book.remember, TASK, 1, b"two")
    assert book.latest(TASK) == b"two"
    book.remember(TASK, 1, b"one")
    assert book.latest(TASK) == b"one"
    # cells and keys are told apart in all their bits
    for far in (1 << 31, 1 << 32, (1 << 32) + 1, (1 << 62) - 1):
        book.remember(TASK, far, str(far).encode())
        assert book.permanent(TASK, far) == str(far).encode()
    assert book.permanent(TASK, 0) is None
    assert book.permanent(TASK, 1) == b"one"


def test_what_is_forgotten_is_drawn_anew(book: Commitments) -> None:
    point = book.rounding(TASK)
    assert (len(point), book.rounding(TASK)) == (8, point)
    assert book.rounding(OTHER) != point
    book.remember(TASK, 1, b"one")
    book.remember(TASK, 2, b"two")
    book.remember(OTHER, 1, b"other")
    assert book.rounding(TASK) == point
    assert book.forget(TASK) == 2
    assert book.forget(TASK) == 0
    assert (book.permanent(TASK, 1), book.latest(TASK), book.permanent(OTHER, 1)) == (
        None,
        None,
        b"other",
    )
    assert book.rounding(TASK) != point
    book.remember(TASK, 1, b"another")
    assert book.permanent(TASK, 1) == b"another"


def test_a_choice_is_made_once_and_goes_with_what_is_forgotten(book: Commitments) -> None:
    """Planted: a choice that may be changed; ``forget`` that leaves it -> the device is known again
    by it after a withdrawal; fails.
    """
    assert book.choice(TASK) is None
    book.choose(TASK, b"cohort")
    book.choose(TASK, b"cohort")
    refused(Kind.CONFLICT, book.choose, TASK, b"another")
    assert (book.choice(TASK), book.choice(OTHER)) == (b"cohort", None)
    book.choose(OTHER, b"")
    refused(Kind.CONFLICT, book.choose, OTHER, b"later")
    assert book.choice(OTHER) == b""
    book.remember(TASK, 1, b"one")
    assert book.forget(TASK) == 1
    assert (book.choice(TASK), book.choice(OTHER)) == (None, b"")
    book.choose(TASK, b"new")
    assert book.choice(TASK) == b"new"
    assert book.forget(TASK) == 0  # a choice alone is no answer


# --- tasks and consent ----------------------------------------------------------------------------


def test_tasks_are_remembered(book: Commitments) -> None:
    assert (book.seen(TASK), book.tasks_of(SEEN.purpose)) == (None, [])
    book.see(SEEN)
    infinite = dataclasses.replace(
        SEEN, task_id=OTHER, epsilon0_nano=None, verdict="refused: too much"
    )
    book.see(infinite)
    assert (book.seen(TASK), book.seen(OTHER)) == (SEEN, infinite)
    assert book.tasks_of(SEEN.purpose) == [OTHER, TASK]
    assert book.tasks_of("to plan") == []
    changed = dataclasses.replace(SEEN, verdict="refused")
    book.see(changed)
    assert book.seen(TASK) == changed
    with pytest.raises(ShoalError):
        dataclasses.replace(SEEN, epsilon0_nano=-1)


def test_answers_of_the_owner_are_kept(book: Commitments) -> None:
    book.set_consent("one", "allowed")
    book.set_consent("two", "denied")
    book.set_consent("one", "denied")
    assert book.consents() == {"one": "denied", "two": "denied"}
    book.set_consent("one", None)
    book.set_consent("never asked", None)
    refused(Kind.INVALID, book.set_consent, "two", "perhaps")
    assert book.consents() == {"two": "denied"}
    assert book.accepted(TASK) is None
    for epsilon0 in (12.5, math.inf, None):
        book.accept(TASK, epsilon0)
        assert book.accepted(TASK) == epsilon0
    for bad in (math.nan, 0.0, -1.0):
        refused(Kind.INVALID, book.accept, TASK, bad)
    assert book.accepted(OTHER) is None


# --- ledger ---------------------------------------------------------------------------------------


def test_the_ledger_grows_at_its_end(book: Commitments) -> None:
    assert (book.entries(), book.verify()) == ([], EMPTY)
    assert [book.append(entry(number)) for number in range(5)] == [1, 2, 3, 4, 5]
    rows = book.entries()
    assert [row.entry.details["number"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert [row.number for row in book.entries(2)] == [3, 4, 5]
    assert [row.number for row in book.entries(1, 2)] == [2, 3]
    assert (book.entries(5), book.entries(0, 0), book.entries(-3, 1)) == ([], [], rows[:1])
    head = book.verify()
    assert (head.count, head.digest) == (5, rows[-1].digest)
    assert rows[0].entry == entry(0)


def test_strangers_can_not_fill_the_ledger(
    book: Commitments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no look at the digest -> entered twice; no limit -> a fourth entry."""
    few = dataclasses.replace(LIMITS, refusals=3)
    monkeypatch.setattr(book_module, "LIMITS", few)
    monkeypatch.setattr(book_sqlite, "LIMITS", few)
    digests = [Digest.of(bytes([number])) for number in range(5)]
    assert [
        book.problem(digest, entry())
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
    assert (len(book.entries()), book.unentered) == (3, 2)
    assert book.append(entry()) == 4  # what this device does itself is always entered


# --- transactions ---------------------------------------------------------------------------------


def change(book: Commitments, window: int = 7) -> None:
    """Everything that a book can do."""
    book.charge(TASK, window, 5, None)
    book.rounding(OTHER)
    book.remember(TASK, window % 3, b"new")
    book.choose(TASK, b"chosen")
    book.forget(OTHER)
    book.see(dataclasses.replace(SEEN, verdict=str(window)))
    book.set_consent("one", "denied")
    book.accept(TASK, 9.0)
    book.append(entry(window))
    book.problem(Digest.of(bytes([window])), entry(window))


def failing(book: Commitments, failure: BaseException, inner: bool = False) -> None:
    before = everything(book)
    with book.transaction():
        if inner:
            with book.transaction():
                change(book)
        else:
            change(book)
        assert everything(book) != before
        raise failure


@pytest.mark.parametrize(
    "failure", [ShoalError(Kind.REFUSED, "no"), RuntimeError(), KeyboardInterrupt()]
)
def test_a_transaction_is_all_or_nothing(book: Commitments, failure: BaseException) -> None:
    """Planted: no undo of one of them -> it stays."""
    book.see(SEEN)
    book.remember(TASK, 0, b"old")
    book.remember(OTHER, 0, b"other")
    book.append(entry())
    before = everything(book)
    with pytest.raises(type(failure)):
        failing(book, failure)
    assert everything(book) == before
    with book.transaction():
        change(book)
    assert (book.spent(), len(book.entries()), book.latest(OTHER)) == (5, 3, None)
    assert book.verify().count == 3


def test_an_inner_transaction_is_undone_alone(book: Commitments) -> None:
    """And what the outer one does goes on. Planted: the inner commits -> it stays although the
    outer fails.
    """
    with book.transaction():
        book.charge(TASK, 0, 1, None)
        with pytest.raises(RuntimeError):
            failing(book, RuntimeError())
        book.append(entry())
    assert (book.spent(), len(book.entries()), book.seen(TASK), book.verify().count) == (
        1,
        1,
        None,
        1,
    )
    before = everything(book)
    with pytest.raises(RuntimeError):
        failing(book, RuntimeError(), inner=True)
    assert everything(book) == before
    assert book.verify().count == 1


def test_a_refused_charge_inside_a_transaction_leaves_the_rest(book: Commitments) -> None:
    with book.transaction():
        book.charge(TASK, 0, 3, 5)
        refused(Kind.REFUSED, book.charge, TASK, 1, 3, 5)
        book.append(entry())
    assert (book.spent(), book.charged(TASK, 1), len(book.entries())) == (3, None, 1)
