"""From a value to a report: what is charged, what the ledger says, and what nobody keeps."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from shoal.clients.memory.commitments import NANO, TaskCharges, nano_down
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.reports.answering import Terms
from shoal.domain import Categories, Numeric, Value
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.answers import given, made, nothing, refusal, told
from tests.worlds.devices.clients import START
from tests.worlds.devices.outbox import claim

# --- fresh tasks ----------------------------------------------------------------------------------


def test_every_window_of_a_fresh_task_is_charged_and_entered(
    commitments: MemoryCommitments,
) -> None:
    """Planted: no charge; the charge of the first window alone; the entry before the charge ->
    figures differ.
    """
    world, assignment = made(stated=1.5)
    for window in range(2):
        prepared = given(
            assignment,
            window,
            3,
            commitments,
            Terms(4 * NANO, source="file", central=lambda: 0.25),
            now=START + window,
        )
        stored = commitments.entries()[-1].entry
        assert (stored.event, stored.at_s, stored.task_id, stored.task, stored.window) == (
            LedgerEvent.REPORTED,
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
    assert "budget" in refusal(lambda: given(assignment, 2, 3, commitments, Terms(4 * NANO)))
    assert (
        commitments.spent(),
        len(commitments.entries()),
        commitments.tally(assignment.task_id),
    ) == (
        3 * NANO,
        2,
        TaskCharges(2, 3 * NANO),
    )


def test_a_fresh_task_draws_anew(commitments: MemoryCommitments) -> None:
    """40 windows of one value, 7 cells, epsilon0 0.1: all the same with probability below 1e-30."""
    world, assignment = made(mechanism="krr", count=40, epsilon0=0.1)
    for window in range(40):
        given(assignment, window, 3, commitments)
    assert len({entry.entry.details["report"] for entry in commitments.entries()}) > 1
    assert commitments.latest(assignment.task_id) is None
    assert world.task.memoized is False


def test_a_window_is_never_drawn_twice(commitments: MemoryCommitments) -> None:
    """Its charge would be a no-op. Planted: no look at the charge -> a second draw for nothing."""
    for memoized in (False, True):
        _, assignment = made(memoized)
        given(assignment, 0, 3, commitments)
        before = (commitments.spent(), len(commitments.entries()))
        refusal(partial(given, assignment, 0, 5, commitments), Kind.CONFLICT)
        assert (commitments.spent(), len(commitments.entries())) == before


def test_what_can_not_be_sealed_costs_nothing(commitments: MemoryCommitments) -> None:
    """Planted: the charge outside of the transaction -> it stays."""
    for memoized in (False, True):
        _, assignment = made(memoized)
        refusal(partial(given, assignment, 99, 3, commitments), Kind.INVALID)
        assert nothing(commitments)
        assert commitments.latest(assignment.task_id) is None
    _, assignment = made()
    refusal(lambda: given(replace(assignment, mechanism=None), 0, 3, commitments), Kind.INVALID)
    assert nothing(commitments)


def test_central_guarantees_that_can_not_be_computed_are_null(
    commitments: MemoryCommitments,
) -> None:
    def fails() -> float:
        raise ShoalError(Kind.INVALID, "too few")

    _, assignment = made(count=5)
    for window, central in enumerate((None, fails, lambda: math.inf, lambda: math.nan)):
        given(assignment, window, 3, commitments, Terms(None, central=central))
        assert told(commitments)["epsilon_central"] is None


# --- above the cap --------------------------------------------------------------------------------


def test_an_epsilon_above_the_cap_wants_the_owners_yes(commitments: MemoryCommitments) -> None:
    """And is charged what the certificate guarantees. Planted: no look at the acceptance;
    ``accepted`` below epsilon0 enough.
    """
    _, assignment = made(stated=12.0)
    terms = Terms(None, central=lambda: 0.5, max_epsilon0=8.0)
    for accepted in (None, 11.9):
        commitments.accept(assignment.task_id, accepted)
        assert "--accept-epsilon0" in refusal(lambda: given(assignment, 0, 3, commitments, terms))
        assert nothing(commitments)
    commitments.accept(assignment.task_id, 12.0)
    given(assignment, 0, 3, commitments, terms)
    details = told(commitments)
    assert (details["basis"], details["epsilon_charged"], details["epsilon_local"]) == (
        "central",
        0.5,
        12.0,
    )
    # it holds but for that; planted: 0 for every basis
    assert details["delta_charged"] == assignment.task.delta > 0
    given(assignment, 1, 3, commitments, replace(terms, central=None))  # nothing better is known
    assert (told(commitments)["basis"], told(commitments)["epsilon_charged"]) == ("local", 12.0)
    # below the cap there is no discount
    given(assignment, 2, 3, commitments, replace(terms, max_epsilon0=12.0))
    assert (told(commitments)["basis"], told(commitments)["epsilon_charged"]) == ("local", 12.0)


def test_an_infinite_epsilon_is_charged_what_is_guaranteed_or_refused(
    commitments: MemoryCommitments,
) -> None:
    _, assignment = made(stated=math.inf)
    refusal(lambda: given(assignment, 0, 3, commitments, Terms(None, central=lambda: 0.5)))
    commitments.accept(assignment.task_id, math.inf)
    for central in (None, lambda: math.inf):
        assert "no finite epsilon" in refusal(
            partial(given, assignment, 0, 3, commitments, Terms(None, central=central))
        )
    assert nothing(commitments)
    given(assignment, 0, 3, commitments, Terms(None, central=lambda: 0.5))
    assert (
        told(commitments)["epsilon_local"],
        told(commitments)["epsilon_charged"],
        told(commitments)["basis"],
    ) == (
        "infinite",
        0.5,
        "central",
    )
    assert "budget" in refusal(
        lambda: given(assignment, 1, 3, commitments, Terms(nano_down(0.9), central=lambda: 0.5))
    )


def test_memoized_windows_get_no_central_discount(commitments: MemoryCommitments) -> None:
    """They are no independent draws: what holds over windows is epsilon0. Planted: central charged
    -> 0.5 per distinct value.
    """
    _, assignment = made(memoized=True, stated=12.0)
    commitments.accept(assignment.task_id, math.inf)
    given(assignment, 0, 3, commitments, Terms(None, central=lambda: 0.5, max_epsilon0=8.0))
    assert (told(commitments)["basis"], told(commitments)["epsilon_charged"]) == ("local", 12.0)
    _, endless = made(memoized=True, stated=math.inf)
    commitments.accept(endless.task_id, math.inf)
    refusal(lambda: given(endless, 1, 3, commitments, Terms(None, central=lambda: 0.5)))


# --- what nobody keeps ----------------------------------------------------------------------------

CANARY = "canary-7f3e9a52c1"
NUMBER = 8_675_309.123456789


def answered(store: AgentStore, memoized: bool, keep: bool) -> None:
    """Six windows of two tasks."""
    outbox, commitments, terms = (
        SqliteOutbox(store),
        SqliteCommitments(store),
        Terms(None, keep_values=keep),
    )
    domain = Categories((CANARY, *(f"other {number}" for number in range(40))))
    _, words = made(memoized, domain=domain, mechanism="krr", count=6)
    _, numbers = made(memoized, domain=Numeric(0, 1e7, 101), mechanism="krr", name="steps", count=6)
    for assignment, value in ((words, CANARY), (numbers, NUMBER)):
        for window in range(6):
            claim(
                outbox,
                assignment.task_id,
                window,
                partial(given, assignment, window, value, commitments, terms),
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
    commitments = SqliteCommitments(store)
    _, assignment = made(memoized=True)
    given(assignment, 0, 3, commitments)
    ((task_id, tagged, report, used, _),) = store.read("SELECT * FROM memo")
    assert (task_id, len(tagged), len(report), used) == (assignment.task_id.raw, 32, 1, 1)
    cell = assignment.task.domain.encode(3, SYSTEM)
    assert [trial for trial in range(7) if commitments.permanent(assignment.task_id, trial)] == [
        cell
    ]


def test_values_are_kept_if_the_owner_asks(commitments: MemoryCommitments) -> None:
    _, assignment = made(count=8)
    values: list[Value] = [3, 2.5, "text", None, True, math.inf, 1 << 70, "x" * 10_000]
    for window, value in enumerate(values):
        given(assignment, window, value, commitments, Terms(None, keep_values=True))
    kept = [json.loads(row.body)["details"]["value"] for row in commitments.entries()]
    assert kept[:5] == values[:5]
    assert kept[5:] == ["inf", "an integer of 71 bits", "x" * 2_000]


# --- with the outbox ------------------------------------------------------------------------------


def test_an_answer_survives_as_a_whole(store: AgentStore, tmp_path: Path) -> None:
    """Claimed once; after a restart the same report goes on."""
    world, assignment = made(memoized=True, stated=2.0)
    outbox, commitments = SqliteOutbox(store), SqliteCommitments(store)
    assert claim(outbox, assignment.task_id, 0, lambda: given(assignment, 0, 3, commitments))[1]
    assert not claim(outbox, assignment.task_id, 0, lambda: given(assignment, 0, 5, commitments))[1]
    first = outbox.load(assignment.task_id, 0)
    store.close()
    again = AgentStore(tmp_path / "outbox.db")
    outbox, commitments = SqliteOutbox(again), SqliteCommitments(again)
    assert claim(outbox, assignment.task_id, 1, lambda: given(assignment, 1, 3, commitments))[1]
    second = outbox.load(assignment.task_id, 1)
    assert first is not None
    assert second is not None
    assert world.reports(first.frame) == world.reports(second.frame)
    assert (commitments.spent(), commitments.verify().count) == (2 * NANO, 2)
    again.close()
