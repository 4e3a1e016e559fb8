"""Memoized tasks of mechanisms with a memory: what is kept, what is drawn in each window, what it
is charged, and what is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shoal.clients.core import Assignment
from shoal.clients.drawing import draw
from shoal.clients.memory.commitments import Commitments, nano_up
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.owner.policy import Policy, check
from shoal.clients.reports import answering
from shoal.clients.reports.answering import KEPT, Terms
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from tests.statistical.test_memoized import unsealed
from tests.worlds.devices.answers import FREE, given, made, refusal, told

SIX = Categories(("a", "b", "c", "d", "e"))
NAMES = ("l_unary", "dbitflip", "loloha", "rappor")


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are the reports: sealing hides nothing from the analyzer."""
    monkeypatch.setattr(answering, "seal", unsealed)


@pytest.fixture(params=["memory", "sqlite"])
def commitments(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commitments]:
    if request.param == "memory":
        yield MemoryCommitments(SeededEntropy("book"))
        return
    store = AgentStore(tmp_path / "outbox.db")
    yield SqliteCommitments(store, SeededEntropy("book"))
    store.close()


def task(
    name: str, memoized: bool = True, epsilon0: float = 1.0
) -> tuple[Assignment, Longitudinal]:
    assignment = made(
        memoized, domain=SIX, mechanism=name, epsilon0=epsilon0, count=60, length=86_400
    )[1]
    assert isinstance(assignment.mechanism, Longitudinal)
    return assignment, assignment.mechanism


@pytest.mark.parametrize("name", NAMES)
def test_every_window_is_a_fresh_report_of_what_was_kept_once(
    name: str, commitments: Commitments
) -> None:
    """Byte for byte: choice and permanent answer of the first window, and each window's noise, from
    one stream of randomness. The lifetime epsilon is charged with the first window, and nothing
    after it.

    Planted: the choice drawn in every window; the report drawn from the value's cell (``draw``)
    instead of what was kept -> the bytes differ; ``privacy()`` charged instead of ``permanent()``
    -> too little is spent.
    """
    assignment, mechanism = task(name)
    lifetime, one = epsilon0_upper(mechanism.permanent()), epsilon0_upper(mechanism.privacy())
    assert (assignment.epsilon0, assignment.epsilon_first) == (
        lifetime,
        one if one < lifetime else None,
    )
    ours, theirs = SeededEntropy("windows"), SeededEntropy("windows")
    frames = [
        given(assignment, window, "c", commitments, entropy=ours).frame for window in range(8)
    ]
    choice = mechanism.choose_one(theirs)
    remembered = mechanism.remember_one(choice, mechanism.key_of(choice, 2), theirs)
    assert frames == [b"".join(mechanism.report_one(choice, remembered, theirs)) for _ in range(8)]
    assert (commitments.choice(assignment.task_id), commitments.latest(assignment.task_id)) == (
        choice,
        remembered,
    )
    assert commitments.spent() == nano_up(lifetime)
    assert [charge.nano for charge in commitments.charges()] == [nano_up(lifetime), *[0] * 7]
    assert all(charge.permanent for charge in commitments.charges())
    assert told(commitments)["epsilon_local"] == lifetime
    assert told(commitments).get("epsilon_first") == assignment.epsilon_first


@pytest.mark.parametrize("name", NAMES)
def test_each_further_key_costs_the_lifetime_epsilon_again_and_no_more_than_all_keys(
    name: str, commitments: Commitments
) -> None:
    """Values that share a key under the device's choice share its answer. Planted: answers kept per
    cell -> dBitFlip is charged for cells that it does not tell apart, and this fails.
    """
    assignment, mechanism = task(name)
    entropy, keys = SeededEntropy(f"keys {name}"), set()
    for window in range(24):
        cell = window % 6
        given(assignment, window, SIX.labels[cell], commitments, entropy=entropy)
        choice = commitments.choice(assignment.task_id)
        assert choice is not None
        keys.add(mechanism.key_of(choice, cell))
        assert commitments.spent() == len(keys) * nano_up(assignment.epsilon0)
    assert commitments.tally(assignment.task_id).windows == 24
    assert len(keys) == min(mechanism.keys, 6) or name in {"loloha", "rappor"}
    assert len(keys) <= mechanism.keys


def test_without_budget_the_last_permanent_answer_is_used_for_a_fresh_report(
    commitments: Commitments,
) -> None:
    """Planted: the last *report* sent again -> all reports after the first are one; the new key's
    answer kept without a charge -> more is remembered than was paid.
    """
    assignment, _ = task("l_unary")
    terms, entropy = Terms(nano_up(assignment.epsilon0)), SeededEntropy("poor")
    given(assignment, 0, "a", commitments, terms, entropy)
    first = commitments.latest(assignment.task_id)
    frames = [
        given(assignment, window, "b", commitments, terms, entropy).frame for window in range(1, 20)
    ]
    assert told(commitments)["memoized"] == KEPT
    assert (commitments.latest(assignment.task_id), commitments.spent()) == (
        first,
        nano_up(assignment.epsilon0),
    )
    assert commitments.permanent(assignment.task_id, 1) is None
    assert len(set(frames)) > 1


def test_a_device_that_never_had_the_budget_keeps_nothing(commitments: Commitments) -> None:
    """Planted: the choice kept outside of the transaction -> it stays."""
    assignment, _ = task("dbitflip")
    refusal(lambda: given(assignment, 0, "a", commitments, Terms(nano_up(assignment.epsilon0) - 1)))
    assert (
        commitments.choice(assignment.task_id),
        commitments.latest(assignment.task_id),
        commitments.charges(),
    ) == (
        None,
        None,
        [],
    )


def test_after_a_withdrawal_everything_is_drawn_anew_and_paid_again(
    commitments: Commitments,
) -> None:
    assignment, _ = task("loloha")
    entropy = SeededEntropy("anew")
    given(assignment, 0, "a", commitments, entropy=entropy)
    before = commitments.choice(assignment.task_id)
    assert commitments.forget(assignment.task_id) == 1
    given(assignment, 1, "a", commitments, entropy=entropy)
    assert commitments.choice(assignment.task_id) not in (None, before)
    assert commitments.spent() == 2 * nano_up(assignment.epsilon0)


@pytest.mark.parametrize("name", NAMES)
def test_a_task_that_is_not_memoized_draws_all_of_it_in_each_window(
    name: str, commitments: Commitments
) -> None:
    assignment, mechanism = task(name, memoized=False)
    assert (assignment.epsilon0, assignment.epsilon_first) == (
        epsilon0_upper(mechanism.privacy()),
        None,
    )
    ours, theirs = SeededEntropy("fresh"), SeededEntropy("fresh")
    for window in range(3):
        assert given(assignment, window, "d", commitments, entropy=ours).frame == b"".join(
            draw(assignment, 3, theirs)
        )
    assert (commitments.choice(assignment.task_id), commitments.latest(assignment.task_id)) == (
        None,
        None,
    )
    assert commitments.spent() == 3 * nano_up(assignment.epsilon0)


@pytest.mark.parametrize("what", ["choice", "answer"])
def test_what_the_mechanism_could_not_have_made_is_not_sent(
    what: str, commitments: Commitments
) -> None:
    """A damaged store. Nothing is charged, and the error says how to begin anew."""
    assignment, mechanism = task("dbitflip")
    choice = mechanism.choose_one(SeededEntropy("kept"))
    if what == "choice":
        commitments.choose(assignment.task_id, choice + b"\0")
    else:
        commitments.choose(assignment.task_id, choice)
        commitments.remember(assignment.task_id, mechanism.key_of(choice, 0), b"too long for a bit")
    assert "allow it again" in refusal(
        lambda: given(assignment, 0, "a", commitments, FREE), Kind.MISMATCH
    )
    assert commitments.charges() == []


def test_the_policy_looks_at_the_lifetime_epsilon() -> None:
    """An owner who takes 1.5 at most answers l_unary at epsilon0 1 in fresh windows, and not
    memoized, where a value costs 2.

    Planted: the epsilon of one report in ``Assignment`` -> accepted, and this fails.
    """
    for memoized in (False, True):
        world, assignment = made(memoized, domain=SIX, mechanism="l_unary", epsilon0=1.0)
        policy = Policy(world.authorities, 1.5, 2, {assignment.task.purpose: "allowed"})
        if memoized:
            assert "epsilon" in refusal(
                partial(check, policy, assignment.campaign, assignment.trusted, assignment.epsilon0)
            )
        else:
            check(policy, assignment.campaign, assignment.trusted, assignment.epsilon0)
