"""What an owner reads of a task on a map: what a distance buys, and what is not promised."""

from __future__ import annotations

import re
from dataclasses import replace

from shoal.accounting.metric import metric_of
from shoal.accounting.of_task import guarantee_of
from shoal.clients.owner.explain import explain
from shoal.clients.owner.explain_places import place_lines
from shoal.domain import Places
from tests.worlds.devices.explained import assignment_of, config_of, small_world, text_of

TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_540_000, 4, 3)


def test_a_distance_and_what_it_buys_are_told_with_their_figures() -> None:
    """Rounded up, never down. Planted: the figure per cell for that per kilometre; a radius left
    out; windows not counted -> fails.
    """
    one = assignment_of(small_world(domain=TOWN, mechanism="planar", epsilon0=2.5))
    text = text_of(explain(one, config_of(small_world())))
    found = metric_of(one.mechanism, guarantee_of(one.task))
    assert found is not None
    (per_km,) = re.findall(r"factor of at most exp\(([0-9.]+) x", text)
    assert found.epsilon_per_km <= float(per_km) <= found.epsilon_per_km * 1.001
    (together,) = re.findall(r"all together promise ([0-9.]+) per kilometre", text)
    assert 4 * found.epsilon_per_km <= float(together) <= 4.01 * found.epsilon_per_km
    told = [
        (float(metres), float(alone), float(shuffled))
        for metres, alone, shuffled in re.findall(
            r"What ([0-9.]+) m buy: .*?\(epsilon ([0-9.]+)\);.*?\(epsilon ([0-9.]+)\)", text
        )
    ]
    assert len(told) == len(found.moves) >= 2
    for (metres, alone, shuffled), move in zip(told, found.moves, strict=True):
        assert metres == move.radius_m
        assert alone >= move.epsilon0
        assert shuffled >= move.epsilon_upper


def test_a_kept_draw_is_told_as_one() -> None:
    one = assignment_of(small_world(domain=TOWN, mechanism="planar", epsilon0=2.5))
    kept = replace(one, trusted=replace(one.trusted, task=replace(one.task, memoized=True)))
    assert text_of(place_lines(one)) != text_of(place_lines(kept))
    assert "all together promise" not in text_of(place_lines(kept))


def test_other_tasks_have_no_distances() -> None:
    for mechanism in ("krr", "unary"):
        assert place_lines(assignment_of(small_world(domain=TOWN, mechanism=mechanism))) == []
