"""Steps of a discovery: what is refused of one alone (more in tests/vectors), and which can stand
beside which.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from shoal.crypto.discovery_steps import (
    DiscoveryStep,
    check_step,
    most_bytes,
    sign_step,
    task_of_step,
    trust_step,
)
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.questions.discovery import DiscoveryLevel
from shoal.questions.spelling import spell
from tests.cases import for_each
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.words import RELEASE, SMALL, step_of, words_world

WORLD = words_world()
ASKED = Discovery(first=1, longest=6, most=4)


def level(number: int, *followed: str) -> DiscoveryLevel:
    return ASKED.level(number, [spell(one, 32)[:number] for one in followed])


def step(window: int, asked: DiscoveryLevel | None) -> DiscoveryStep:
    return DiscoveryStep(WORLD.task_id, window, asked, RELEASE)


GOOD = {
    "level after level": [step(1, level(1, "c", "t")), step(2, level(2, "ca", "th"))],
    "a lost window": [
        step(1, level(1, "c", "t")),
        step(3, level(1, "c", "t")),
        step(4, level(2, "th")),
    ],
    "away for some windows": [step(3, level(3, "cat")), step(4, level(4, "cata", "cats"))],
    "the beginning again": [step(2, level(0)), step(3, level(1, "c"))],
    "over": [step(1, level(1, "c")), step(2, None)],
    "over at once": [step(1, None)],
}
BAD = {
    "level 2 in window 1": [step(1, level(2, "ca"))],
    "a level left out": [step(1, level(1, "c")), step(2, level(3, "cat"))],
    "back again": [step(1, level(1, "c")), step(2, level(0))],
    "other beginnings of one level": [step(1, level(1, "c")), step(2, level(1, "c", "t"))],
    "not of what was followed": [step(1, level(1, "c")), step(2, level(2, "th"))],
    "two of one window": [step(1, level(1, "c")), step(1, level(1, "t"))],
    "after its end": [step(1, None), step(2, level(1, "c"))],
    "two ends of one window": [step(1, None), step(1, level(1, "c"))],
}


def take_all(steps: Sequence[DiscoveryStep]) -> None:
    """One after the other, each twice."""
    for at, one in enumerate(steps):
        check_step(one, steps[:at], ASKED)
        check_step(one, steps[: at + 1], ASKED)


@for_each("steps", GOOD.values(), ids=list(GOOD))
def test_what_follows_is_taken_in_any_order(steps: list[DiscoveryStep]) -> None:
    """Planted: neighbours of the list in place of those of the windows -> fails."""
    for order in permutations(steps):
        take_all(order)


@for_each("steps", BAD.values(), ids=list(BAD))
def test_what_does_not_follow_is_a_conflict_in_any_order(steps: list[DiscoveryStep]) -> None:
    """Planted: each clause of the rule left out -> the case of its name fails."""
    for order in permutations(steps):
        with pytest.raises(ShoalError) as refused:
            take_all(order)
        assert refused.value.kind is Kind.CONFLICT
        assert "\n" not in refused.value.message


def test_a_step_is_read_as_it_was_signed_and_what_lies_around_it_is_left_behind() -> None:
    signed = step_of(WORLD, 1, SMALL.level(1, [b"\x02"]))
    read = trust_step(signed.data + b"\xa0\x06\x01", WORLD.task, WORLD.task_id)
    assert read == signed
    assert task_of_step(signed.data) == WORLD.task_id
    assert sign_step(read.step, SMALL, WORLD.analyzer) == signed
    assert len(signed.data) <= most_bytes(SMALL)


def test_a_long_one_is_not_read_and_other_tasks_have_none() -> None:
    """Planted: no limit of the bytes -> the first fails."""
    long = step_of(WORLD, 1, None).data + b"\x1a\x82\x20" + bytes(4_098)
    other = World(make_task())
    for data, world, kind in (
        (long, WORLD, Kind.OVERSIZE),
        (step_of(WORLD, 1, None).data, other, Kind.MISMATCH),
    ):
        with pytest.raises(ShoalError) as refused:
            trust_step(data, world.task, world.task_id)
        assert refused.value.kind is kind


def test_the_largest_step_has_room() -> None:
    """Of the most beginnings and the longest ones. Planted: no bytes but the symbols -> fails."""
    largest = Discovery(first=2, longest=32, most=2_047)
    world = words_world(Discovery(first=1, longest=3, most=4))
    followed = sorted(
        bytes((a, b, c)) + bytes(28) for a in range(13) for b in range(13) for c in range(13)
    )[: largest.most]
    asked = largest.level(30, [one[:31] for one in followed])
    made = sign_step(DiscoveryStep(world.task_id, 4, asked, RELEASE), largest, world.analyzer)
    assert len(made.data) <= most_bytes(largest) < 80_000
