"""A device between two versions of a question: it moves by itself, is not asked again, and what it
spent stays spent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import START, WEEK, DirectTransport, FarEnd, World, make_world

COUNT = 2


def versions() -> tuple[World, World]:
    """Two tasks of one name and purpose; the second begins where the first ends."""
    first = make_world(count=COUNT)
    second = make_world(
        count=COUNT, start=START + COUNT * WEEK, authority=first.authority, hop=first.hop
    )
    return first, second


async def test_a_device_moves_to_the_next_version_with_its_consent_and_its_budget(
    tmp_path: Path,
) -> None:
    """epsilon0 = 3 in each window, and 10 in a lifetime: two windows of the first version leave one
    of the second.

    Planted: the budget by task -> a fourth window is answered, fails. Planted: no look at the time
    where two tasks have one name -> the report is refused, fails.
    """
    first, second = versions()
    tasks = tmp_path / "tasks"
    first.write(tasks)
    (tasks / "visits-2.task").write_bytes(second.signed_task)
    (tasks / "visits-2.keys").write_bytes(second.signed_schedule)
    clock, far = FakeClock(START + 100), FarEnd([first.hop, second.hop])
    policy = Policy(first.authorities, 4.0, 2, {}, lifetime_epsilon=10.0)
    config = AgentConfig(tasks, tmp_path / "outbox.db", policy)
    transport = DirectTransport(far)
    async with Agent(config, background=False, clock=clock, transports=lambda *_: transport) as one:
        with pytest.raises(ShoalError) as asked:
            await one.report("visits", 3)
        assert asked.value.kind is Kind.REFUSED  # nobody was asked yet
        await one.consent(first.task.purpose, "allowed")
        answered = []
        for window in range(2 * COUNT - 1):
            clock.time = START + 100 + window * WEEK
            outcome = await one.report("visits", 3)
            assert (outcome.state, outcome.fresh) == (ReportState.ACKED, True)
            answered.append((outcome.task_id, outcome.window))
        assert answered == [(first.task_id, 0), (first.task_id, 1), (second.task_id, 0)]
        clock.time += WEEK
        with pytest.raises(ShoalError) as spent:
            await one.report("visits", 3)
        assert spent.value.kind is Kind.REFUSED
        assert "lifetime" in str(spent.value)
        clock.time += WEEK  # both are over: the name says no more which is meant
        with pytest.raises(ShoalError) as unclear:
            await one.report("visits", 3)
        assert unclear.value.kind is Kind.CONFLICT
