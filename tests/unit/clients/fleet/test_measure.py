"""Percentiles, rates, and the trial that --plan rests on."""

from __future__ import annotations

import time
from array import array

import pytest

from shoal.clients.fleet.measure import Meter, cost_of, percentiles
from shoal.clients.fleet.share import SimulatedTask
from shoal.limits import LIMITS
from tests.worlds.devices.clients import make_world
from tests.worlds.devices.several import several


def test_percentiles_are_nearest_rank() -> None:
    """Planted: interpolate, or floor the rank -> fails."""
    assert percentiles(array("f")) == {}
    assert percentiles(array("f", [7.0])) == {
        "p50": 7.0,
        "p90": 7.0,
        "p99": 7.0,
        "p999": 7.0,
        "max": 7.0,
    }
    hundred = array("f", reversed(range(1, 101)))
    assert percentiles(hundred) == {
        "p50": 50.0,
        "p90": 90.0,
        "p99": 99.0,
        "p999": 100.0,
        "max": 100.0,
    }
    assert percentiles(array("f", range(1, 102)))["p99"] == 100.0


def test_a_rate_is_of_the_last_seconds() -> None:
    """Planted: since the start -> 55 instead of 100."""
    meter = Meter(span_s=2.0)
    assert meter.rate(0.0, 0) == 0.0
    assert meter.rate(0.0, 0) == 0.0
    for second in range(1, 6):
        assert meter.rate(float(second), 10 * second) == pytest.approx(10.0)
    for second in range(6, 11):
        rate = meter.rate(float(second), 50 + 100 * (second - 5))
    assert rate == pytest.approx(100.0)


@pytest.mark.parametrize("prepare", [False, True])
def test_a_trial_makes_reports_and_sends_nothing(prepare: bool) -> None:
    world = make_world("127.0.0.1:1", start=int(time.time()) - 10)
    task = SimulatedTask(world.signed_task, world.signed_schedule, (1, 2))
    cost = cost_of(task, world.authorities, (), prepare, count=8)
    assert cost.frame_bytes in LIMITS.frame_sizes
    # encapsulation, tag, nonce, report
    assert cost.sealed_bytes == 32 + 16 + 16 + world.task.report_size
    assert 0 < cost.make_s < 1
    assert 0 < cost.open_s < 1


def test_a_trial_of_several_messages_opens_as_many_as_reports_have() -> None:
    """2.9 on average, and up to 69. Planted: the most that a report may have -> a load is told to
    cost the services twenty times what it does, fails.
    """
    world = several(start=int(time.time()) - 10, hidden=False)
    task = SimulatedTask(world.signed_task, world.signed_schedule, (True, False))
    cost = cost_of(task, world.authorities, (), count=8)
    assert cost.sealed_bytes == 3 * (32 + 16 + 16 + world.task.report_size)
    assert cost.frame_bytes in LIMITS.frame_sizes
