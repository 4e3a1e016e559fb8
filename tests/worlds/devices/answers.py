"""Tasks as an agent holds them, and answers to them, without an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.clients.core import Assignment, SealedReport, assign
from shoal.clients.memory.commitments import Commitments
from shoal.clients.reports.answering import AnswerRequest, Terms, answer
from shoal.crypto.admission.open import OPEN
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Numeric, Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import START, World, make_world

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
    commitments: Commitments,
    terms: Terms = FREE,
    entropy: Entropy = SYSTEM,
    now: float = START,
) -> SealedReport:
    return answer(AnswerRequest(assignment, window, value, OPEN, terms, now), commitments, entropy)


def told(commitments: Commitments) -> dict[str, object]:
    """Details of the last entry."""
    return dict(commitments.entries()[-1].entry.details)


def refusal(step: Callable[[], object], kind: Kind = Kind.REFUSED) -> str:
    with pytest.raises(ShoalError) as caught:
        step()
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message
    return caught.value.message


def nothing(commitments: Commitments) -> bool:
    return (commitments.spent(), commitments.charges(), commitments.entries()) == (0, [], [])
