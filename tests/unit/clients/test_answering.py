"""From a value to a report: what is charged, what is remembered, what the ledger says, and what
nobody keeps.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shoal.clients.answering import AnswerRequest, SamePoint, Terms, answer, charge_sum
from shoal.clients.core import Assignment, Prepared, assign, draw
from shoal.clients.memory.commitments import NANO, Book, MemoryBook, Tally, nano_down
from shoal.clients.memory.commitments_sqlite import SqliteBook
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import Event
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.owner.policy import Policy, check
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Categories, Numeric, Value, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.worlds.clients import START, VISITS, World, make_world
from tests.worlds.outbox import claim

FREE = Terms(None)
LEVELS = Numeric(0, 10, 11)


def made(
    memoized: bool = False, stated: float | None = None, **changes: object
) -> tuple[World, Assignment]:
    """A task as an agent holds it. ``stated``: its epsilon0, said otherwise than it is, as for
    tasks that are hard to make.
    """
    world = make_world(**changes)  # type: ignore[arg-type]
    world.task = replace(world.task, memoized=memoized)
    world.sign()
    trusted = trust_task(world.signed_task, world.authorities)
    assignment = assign(trusted, trust_schedule(world.signed_schedule, trusted))
    return world, assignment if stated is None else replace(assignment, epsilon0=stated)


def given(
    assignment: Assignment,
    window: int,
    value: Value,
    book: Book,
    terms: Terms = FREE,
    entropy: Entropy = SYSTEM,
    now: float = START,
) -> Prepared:
    return answer(AnswerRequest(assignment, window, value, None, terms, now), book, entropy)


def told(book: Book) -> dict[str, object]:
    """Details of the last entry."""
    return dict(book.entries()[-1].entry.details)


def refusal(step: Callable[[], object], kind: Kind = Kind.REFUSED) -> str:
    with pytest.raises(ShoalError) as caught:
        step()
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message
    return caught.value.message


def nothing(book: Book) -> bool:
    return (book.spent(), book.charges(), book.entries()) == (0, [], [])


@pytest.fixture
def book() -> MemoryBook:
    return MemoryBook()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AgentStore]:
    opened = AgentStore(tmp_path / "outbox.db")
    yield opened
    opened.close()


# --- fresh tasks ----------------------------------------------------------------------------------


def test_every_window_of_a_fresh_task_is_charged_and_entered(book: MemoryBook) -> None:
    """Planted: no charge; the charge of the first window alone; the entry before the charge ->
    figures differ.
    """
    world, assignment = made(stated=1.5)
    for window in range(2):
        prepared = given(
            assignment,
            window,
            3,
            book,
            Terms(4 * NANO, source="file", central=lambda: 0.25),
            now=START + window,
        )
        stored = book.entries()[-1].entry
        assert (stored.event, stored.at_s, stored.task_id, stored.task, stored.window) == (
            Event.REPORTED,
            START + window,
            assignment.task_id,
            "visits",
            window,
        )
        assert stored.details == {
            "source": "file",
            "epsilon_local": 1.5,
            "epsilon_central": 0.25,
            "epsilon_charged": 1.5,
            "delta_charged": 0.0,
            "basis": "local",
            "epsilon_spent_after": 1.5 * (window + 1),
            "first_report": window == 0,
            "lifetime": 1.5 * (window + 1),
            "report": world.reports(prepared.frame)[0].hex(),
            "frame_sha256": hashlib.sha256(prepared.frame).hexdigest(),
            "frame_bytes": 512,
        }
    assert "budget" in refusal(lambda: given(assignment, 2, 3, book, Terms(4 * NANO)))
    assert (book.spent(), len(book.entries()), book.tally(assignment.task_id)) == (
        3 * NANO,
        2,
        Tally(2, 3 * NANO),
    )


def test_a_fresh_task_draws_anew(book: MemoryBook) -> None:
    """40 windows of one value, 7 cells, epsilon0 0.1: all the same with probability below 1e-30."""
    world, assignment = made(mechanism="krr", count=40, epsilon0=0.1)
    for window in range(40):
        given(assignment, window, 3, book)
    assert len({entry.entry.details["report"] for entry in book.entries()}) > 1
    assert book.latest(assignment.task_id) is None
    assert world.task.memoized is False


def test_a_window_is_never_drawn_twice(book: MemoryBook) -> None:
    """Its charge would be a no-op. Planted: no look at the charge -> a second draw for nothing."""
    for memoized in (False, True):
        _, assignment = made(memoized)
        given(assignment, 0, 3, book)
        before = (book.spent(), len(book.entries()))
        refusal(partial(given, assignment, 0, 5, book), Kind.CONFLICT)
        assert (book.spent(), len(book.entries())) == before


def test_what_can_not_be_sealed_costs_nothing(book: MemoryBook) -> None:
    """Planted: the charge outside of the transaction -> it stays."""
    for memoized in (False, True):
        _, assignment = made(memoized)
        refusal(partial(given, assignment, 99, 3, book), Kind.INVALID)
        assert nothing(book)
        assert book.latest(assignment.task_id) is None
    _, assignment = made()
    refusal(lambda: given(replace(assignment, mechanism=None), 0, 3, book), Kind.INVALID)
    assert nothing(book)


def test_central_guarantees_that_can_not_be_computed_are_null(book: MemoryBook) -> None:
    def fails() -> float:
        raise ShoalError(Kind.INVALID, "too few")

    _, assignment = made(count=5)
    for window, central in enumerate((None, fails, lambda: math.inf, lambda: math.nan)):
        given(assignment, window, 3, book, Terms(None, central=central))
        assert told(book)["epsilon_central"] is None


# --- memoized tasks -------------------------------------------------------------------------------


def test_an_unchanged_value_costs_epsilon0_once(book: MemoryBook) -> None:
    """The same report in every window, in another frame each time. Planted: a fresh draw; the same
    nonce; a charge per window.
    """
    world, assignment = made(memoized=True, count=30, stated=2.0)
    frames = [given(assignment, window, 3, book).frame for window in range(30)]
    reports = {world.reports(frame)[0] for frame in frames}
    assert len(reports) == 1
    assert len(set(frames)) == 30
    # nonces differ
    assert len({plaintext for frame in frames for plaintext in world.opened(frame)}) == 30
    assert book.spent() == 2 * NANO
    details = [entry.entry.details for entry in book.entries()]
    assert [one["memoized"] for one in details] == ["new"] + ["again"] * 29
    assert [one["epsilon_charged"] for one in details] == [2.0] + [0.0] * 29
    assert {one["lifetime"] for one in details} == {2.0}
    assert [charge.permanent for charge in book.charges()] == [True] * 30


@pytest.mark.parametrize("kept", [b"", b"\0\1"])
def test_a_remembered_report_of_another_length_is_not_sent(book: MemoryBook, kept: bytes) -> None:
    """Nothing is charged or entered then. Planted: no check -> a report without messages, or with
    two.
    """
    _, assignment = made(memoized=True)
    cell = assignment.task.domain.encode(3)
    book.remember(assignment.task_id, cell, kept)
    assert "remembers" in refusal(lambda: given(assignment, 0, 3, book), Kind.MISMATCH)
    assert nothing(book)


def test_each_further_distinct_value_costs_epsilon0_again(book: MemoryBook) -> None:
    world, assignment = made(memoized=True, count=9, stated=2.0)
    values: list[Value] = [
        0,
        1,
        0,
        1,
        None,
        "unreadable",
        3,
        4,
        0,
    ]  # None and "unreadable" are one cell, 3 and 4 are one
    reports = [
        world.reports(given(assignment, window, value, book).frame)[0]
        for window, value in enumerate(values)
    ]
    details = [entry.entry.details for entry in book.entries()]
    assert [one["memoized"] for one in details] == [
        "new",
        "new",
        "again",
        "again",
        "new",
        "again",
        "new",
        "again",
        "again",
    ]
    assert (reports[0], reports[1], reports[4], reports[6]) == (
        reports[2],
        reports[3],
        reports[5],
        reports[7],
    )
    assert reports[8] == reports[0]
    assert book.spent() == 8 * NANO
    assert told(book)["lifetime"] == 8.0


def test_a_device_without_budget_takes_part_all_the_same(book: MemoryBook) -> None:
    """With the report that it sent last, so that nobody sees it stay away. Planted: raise ->
    windows without a report tell of a change.

    Planted too: the report that was *drawn* last -> window 3 would send b's report, and show a
    change where the budget hides one.
    """
    world, assignment = made(memoized=True, count=9, stated=2.0)
    terms = Terms(5 * NANO)
    values = [0, 1, 0, 2, 5, 1, 10]
    reports = [
        world.reports(given(assignment, window, value, book, terms).frame)[0]
        for window, value in enumerate(values)
    ]
    assert [entry.entry.details["memoized"] for entry in book.entries()] == [
        "new",
        "new",
        "again",
        "kept",
        "kept",
        "again",
        "kept",
    ]
    assert reports == [
        reports[0],
        reports[1],
        reports[0],
        reports[0],
        reports[0],
        reports[1],
        reports[1],
    ]
    assert (book.spent(), book.tally(assignment.task_id).windows) == (4 * NANO, 7)
    assert told(book)["epsilon_charged"] == 0.0


def test_a_device_that_never_had_the_budget_sends_nothing(book: MemoryBook) -> None:
    """Whatever its value: refused before its first report."""
    _, assignment = made(memoized=True, stated=2.0)
    for value in (0, 1, None):
        assert "budget" in refusal(partial(given, assignment, 0, value, book, Terms(NANO)))
    assert nothing(book)


def test_another_failure_than_the_budget_is_no_reason_to_send_an_old_report(
    book: MemoryBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: any error is taken for a lack of budget -> the last report goes out, unentered
    troubles and all.
    """
    _, assignment = made(memoized=True)
    given(assignment, 0, 0, book)

    def full(task_id: TaskId, window: int, nano: int, *_: object, **__: object) -> None:
        if nano:
            raise ShoalError(Kind.OVERLOADED, "disk full")

    monkeypatch.setattr(book, "charge", full)
    refusal(lambda: given(assignment, 1, 5, book), Kind.OVERLOADED)
    assert len(book.entries()) == 1


def test_a_value_between_two_cells_stays_in_one(book: MemoryBook) -> None:
    """60 windows of 3.5, which a fresh task rounds up and down. Planted: rounding by ``entropy`` ->
    two cells, 2 epsilon0.
    """
    world, assignment = made(memoized=True, domain=LEVELS, mechanism="krr", count=60, stated=2.0)
    reports = {world.reports(given(assignment, window, 3.5, book).frame)[0] for window in range(60)}
    assert len(reports) == 1
    assert book.spent() == 2 * NANO


def test_over_a_fleet_rounding_keeps_the_mean() -> None:
    """4,000 devices of value 3.3: 0.3 of them in cell 4. False alarm below 1e-9 (Hoeffding: 2
    exp(-2 * 4000 * 0.055^2)), seed fixed.

    Planted: a point of 0 for every device -> all in one cell.
    """
    _, assignment = made(memoized=True, domain=LEVELS, mechanism="krr")
    domain, entropy = assignment.task.domain, SeededEntropy("rounding")
    cells = []
    for _ in range(4_000):
        book = MemoryBook(entropy)
        point = SamePoint(book.rounding(assignment.task_id))
        cells.append(domain.encode(3.3, point))
        assert cells[-1] in (3, 4)
        assert (domain.encode(3.0, point), domain.encode(3.3, point)) == (3, cells[-1])
    assert abs(np.mean(np.array(cells) == 4) - 0.3) < 0.055


def test_every_device_rounds_at_a_point_of_its_own() -> None:
    """120 devices answer 3.3, by a mechanism that next to never changes the cell (epsilon0 30):
    about 36 of them send cell 4. Seed fixed; outside of 12 to 66 by chance: below 1e-7.

    Planted in ``SamePoint``: it draws nothing (empty bytes, or a constant) -> every device rounds
    the same way, and nobody sends the other cell; ``_remembered`` rounds by ``entropy`` -> two
    cells of one device.
    """
    world, assignment = made(memoized=True, domain=LEVELS, mechanism="krr", epsilon0=30.0)
    above = 0
    for device in range(120):
        book = MemoryBook(SeededEntropy(f"point of {device}"))
        entropy = SeededEntropy(f"draws of {device}")
        (report,) = {
            world.reports(given(assignment, w, 3.3, book, entropy=entropy).frame)[0]
            for w in range(2)
        }
        above += report == draw(assignment, 4)[0]
    assert 12 <= above <= 66


@pytest.mark.parametrize("domain", [YesNo(), VISITS, LEVELS, Categories(("a", "b"))])
@pytest.mark.parametrize(
    "value", [True, 3, 3.5, "a", None, math.nan, math.inf, 10**400, -1e300, "\ud800"]
)
def test_every_value_is_memoized(domain: YesNo | Categories | Numeric, value: Value) -> None:
    """Whatever a source gives: the same cell each time, and the value's canonical form in the
    ledger if the owner wants it.
    """
    book = MemoryBook()
    mechanism = "binary_rr" if isinstance(domain, YesNo) else "krr"
    world, assignment = made(memoized=True, domain=domain, mechanism=mechanism)
    reports = {
        world.reports(given(assignment, window, value, book, Terms(None, keep_values=True)).frame)[
            0
        ]
        for window in range(4)
    }
    assert len(reports) == 1
    assert len([charge for charge in book.charges() if charge.nano]) == 1
    assert book.verify().count == 4


# --- above the cap --------------------------------------------------------------------------------


def test_an_epsilon_above_the_cap_wants_the_owners_yes(book: MemoryBook) -> None:
    """And is charged what the certificate guarantees. Planted: no look at the acceptance;
    ``accepted`` below epsilon0 enough.
    """
    _, assignment = made(stated=12.0)
    terms = Terms(None, central=lambda: 0.5, max_epsilon0=8.0)
    for accepted in (None, 11.9):
        book.accept(assignment.task_id, accepted)
        assert "--accept-epsilon0" in refusal(lambda: given(assignment, 0, 3, book, terms))
        assert nothing(book)
    book.accept(assignment.task_id, 12.0)
    given(assignment, 0, 3, book, terms)
    details = told(book)
    assert (details["basis"], details["epsilon_charged"], details["epsilon_local"]) == (
        "central",
        0.5,
        12.0,
    )
    # it holds but for that; planted: 0 for every basis
    assert details["delta_charged"] == assignment.task.delta > 0
    given(assignment, 1, 3, book, replace(terms, central=None))  # nothing better is known
    assert (told(book)["basis"], told(book)["epsilon_charged"]) == ("local", 12.0)
    # below the cap there is no discount
    given(assignment, 2, 3, book, replace(terms, max_epsilon0=12.0))
    assert (told(book)["basis"], told(book)["epsilon_charged"]) == ("local", 12.0)


def test_an_infinite_epsilon_is_charged_what_is_guaranteed_or_refused(book: MemoryBook) -> None:
    _, assignment = made(stated=math.inf)
    refusal(lambda: given(assignment, 0, 3, book, Terms(None, central=lambda: 0.5)))
    book.accept(assignment.task_id, math.inf)
    for central in (None, lambda: math.inf):
        assert "no finite epsilon" in refusal(
            partial(given, assignment, 0, 3, book, Terms(None, central=central))
        )
    assert nothing(book)
    given(assignment, 0, 3, book, Terms(None, central=lambda: 0.5))
    assert (told(book)["epsilon_local"], told(book)["epsilon_charged"], told(book)["basis"]) == (
        "infinite",
        0.5,
        "central",
    )
    assert "budget" in refusal(
        lambda: given(assignment, 1, 3, book, Terms(nano_down(0.9), central=lambda: 0.5))
    )


def test_memoized_windows_get_no_central_discount(book: MemoryBook) -> None:
    """They are no independent draws: what holds over windows is epsilon0. Planted: central charged
    -> 0.5 per distinct value.
    """
    _, assignment = made(memoized=True, stated=12.0)
    book.accept(assignment.task_id, math.inf)
    given(assignment, 0, 3, book, Terms(None, central=lambda: 0.5, max_epsilon0=8.0))
    assert (told(book)["basis"], told(book)["epsilon_charged"]) == ("local", 12.0)
    _, endless = made(memoized=True, stated=math.inf)
    book.accept(endless.task_id, math.inf)
    refusal(lambda: given(endless, 1, 3, book, Terms(None, central=lambda: 0.5)))


# --- sums -----------------------------------------------------------------------------------------


def summed(together: float, apart: float) -> Assignment:
    return replace(made()[1], mechanism=None, epsilon0=together, apart=apart)


@pytest.mark.parametrize(
    ("together", "apart", "if_apart", "charged", "basis"),
    [
        (2.0, 0.5, False, 2.0, "together"),
        (2.0, 0.5, True, 0.5, "apart"),
        (math.inf, 0.5, True, 0.5, "apart"),
        (0.5, 0.5, True, 0.5, "together"),
    ],
)
def test_sums_are_charged_what_the_owner_relies_on(
    book: MemoryBook, together: float, apart: float, if_apart: bool, charged: float, basis: str
) -> None:
    """Once per window, before anything leaves. Planted: the smaller one always -> who trusts nobody
    is charged too little.
    """
    assignment = summed(together, apart)
    terms = Terms(10 * NANO, source="call", sums_if_apart=if_apart)
    assert charge_sum(assignment, 0, book, terms, START) == charged * NANO
    assert charge_sum(assignment, 0, book, Terms(0), START) == charged * NANO  # again: no-op
    assert (book.spent(), len(book.entries())) == (charged * NANO, 1)
    stored = book.entries()[0].entry
    assert (stored.event, stored.window, stored.details["basis"], stored.details["source"]) == (
        Event.REPORTED,
        0,
        basis,
        "call",
    )
    assert not {"report", "value", "frame_sha256"} & set(stored.details)
    charge_sum(assignment, 1, book, terms, START)
    assert told(book)["first_report"] is False


def test_sums_beyond_budget_or_guarantee_are_refused(book: MemoryBook) -> None:
    assert "budget" in refusal(lambda: charge_sum(summed(2.0, 0.5), 0, book, Terms(NANO), START))
    refusal(lambda: charge_sum(summed(math.inf, 0.5), 0, book, FREE, START))
    endless = summed(math.inf, math.inf)
    book.accept(endless.task_id, math.inf)
    refusal(
        lambda: charge_sum(
            endless, 0, book, Terms(None, central=lambda: 0.1, sums_if_apart=True), START
        )
    )
    assert nothing(book)


def test_sums_are_answered_under_whatever_the_policy_lets_the_owner_accept(
    book: MemoryBook,
) -> None:
    """Planted: the acceptance held against what holds together -> a sum that the policy allows is
    refused when it is charged.
    """
    assignment, policy = (
        summed(math.inf, 6.0),
        Policy(frozenset({bytes(32)}), 4.0, 2, {"p": "allowed"}, sums_if_apart=True),
    )
    trusted = replace(
        assignment.trusted, authority=bytes(32), task=replace(assignment.task, purpose="p")
    )
    for accepted in (None, 5.9, 6.0, math.inf):
        book.accept(assignment.task_id, accepted)
        terms = Terms(None, max_epsilon0=4.0, sums_if_apart=True)
        if accepted is None or accepted < 6.0:
            refusal(partial(check, policy, trusted, math.inf, 6.0, accepted=accepted))
            refusal(partial(charge_sum, assignment, 0, book, terms, START))
            assert nothing(book)
        else:
            check(policy, trusted, math.inf, 6.0, accepted=accepted)
            assert charge_sum(assignment, int(accepted == math.inf), book, terms, START) == 6 * NANO
            assert (told(book)["basis"], told(book)["delta_charged"]) == (
                "apart",
                assignment.task.delta,
            )


def test_one_budget_couples_tasks_as_the_documentation_says(book: MemoryBook) -> None:
    """What is NOT promised: whether a fresh task is still answered tells here that the memoized
    task's value changed.
    """
    _, memoized = made(memoized=True)
    _, fresh = made(name="fresh")
    terms = Terms(nano_down(4.5 * fresh.epsilon0))

    def answered(values: tuple[int, ...]) -> list[bool]:
        book, paid = MemoryBook(), []
        for window, value in enumerate(values):
            given(memoized, window, value, book, terms)  # takes part whatever the budget says
            with suppress(ShoalError):
                given(fresh, window, "1", book, terms)
            paid.append(book.charged(fresh.task_id, window) is not None)
        return paid

    # which value it is does not show
    assert answered((1, 1, 1)) == answered((5, 5, 5)) == [True, True, True]
    assert answered((1, 5, 1)) == [True, True, False]


# --- what nobody keeps ----------------------------------------------------------------------------

CANARY = "canary-7f3e9a52c1"
NUMBER = 8_675_309.123456789


def answered(store: AgentStore, memoized: bool, keep: bool) -> None:
    """Six windows of two tasks."""
    outbox, book, terms = SqliteOutbox(store), SqliteBook(store), Terms(None, keep_values=keep)
    domain = Categories((CANARY, *(f"other {number}" for number in range(40))))
    _, words = made(memoized, domain=domain, mechanism="krr", count=6)
    _, numbers = made(memoized, domain=Numeric(0, 1e7, 101), mechanism="krr", name="steps", count=6)
    for assignment, value in ((words, CANARY), (numbers, NUMBER)):
        for window in range(6):
            claim(
                outbox,
                assignment.task_id,
                window,
                partial(given, assignment, window, value, book, terms),
            )


@pytest.mark.parametrize("memoized", [False, True])
def test_the_true_value_is_in_no_file(tmp_path: Path, memoized: bool) -> None:
    """Neither the owner's text nor number, in any byte of the store, while it is open and after;
    unless the owner asks for it.

    Planted: the value in the entry's details; the cell in place of its tag -> found.
    """
    for keep in (False, True):
        folder = tmp_path / str(keep)
        folder.mkdir()
        store = AgentStore(folder / "outbox.db")
        answered(store, memoized, keep)
        open_bytes = b"".join(file.read_bytes() for file in folder.iterdir())
        store.close()
        closed_bytes = b"".join(file.read_bytes() for file in folder.iterdir())
        assert b"REPORTED".lower() in closed_bytes
        forms = [CANARY.encode(), CANARY.encode().hex().encode(), repr(NUMBER).encode(), b"8675309"]
        forms += [struct.pack("<d", NUMBER), struct.pack(">d", NUMBER), CANARY.encode("utf-16-le")]
        found = [form for form in forms for held in (open_bytes, closed_bytes) if form in held]
        assert bool(found) is keep


def test_the_store_does_not_name_cells(store: AgentStore) -> None:
    """A row of the memo is a task, a tag, the report and the order of use. Planted: the cell as a
    column -> this fails.

    A device that wanted to know could still try all cells, as this test does: the file must be as
    private as the value.
    """
    book = SqliteBook(store)
    _, assignment = made(memoized=True)
    given(assignment, 0, 3, book)
    ((task_id, tagged, report, used, _),) = store.read("SELECT * FROM memo")
    assert (task_id, len(tagged), len(report), used) == (assignment.task_id.raw, 32, 1, 1)
    cell = assignment.task.domain.encode(3, SYSTEM)
    assert [trial for trial in range(7) if book.permanent(assignment.task_id, trial)] == [cell]


def test_values_are_kept_if_the_owner_asks(book: MemoryBook) -> None:
    _, assignment = made(count=8)
    values: list[Value] = [3, 2.5, "text", None, True, math.inf, 1 << 70, "x" * 10_000]
    for window, value in enumerate(values):
        given(assignment, window, value, book, Terms(None, keep_values=True))
    kept = [json.loads(row.body)["details"]["value"] for row in book.entries()]
    assert kept[:5] == values[:5]
    assert kept[5:] == ["inf", "an integer of 71 bits", "x" * 2_000]


# --- with the outbox ------------------------------------------------------------------------------


def test_an_answer_survives_as_a_whole(store: AgentStore, tmp_path: Path) -> None:
    """Claimed once; after a restart the same report goes on."""
    world, assignment = made(memoized=True, stated=2.0)
    outbox, book = SqliteOutbox(store), SqliteBook(store)
    assert claim(outbox, assignment.task_id, 0, lambda: given(assignment, 0, 3, book))[1]
    assert not claim(outbox, assignment.task_id, 0, lambda: given(assignment, 0, 5, book))[1]
    first = outbox.load(assignment.task_id, 0)
    store.close()
    again = AgentStore(tmp_path / "outbox.db")
    outbox, book = SqliteOutbox(again), SqliteBook(again)
    assert claim(outbox, assignment.task_id, 1, lambda: given(assignment, 1, 3, book))[1]
    second = outbox.load(assignment.task_id, 1)
    assert first is not None
    assert second is not None
    assert world.reports(first.frame) == world.reports(second.frame)
    assert (book.spent(), book.verify().count) == (2 * NANO, 2)
    again.close()
