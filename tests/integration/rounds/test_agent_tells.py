"""What an owner is told while a sum is under way: a device that waits for minutes must not look
hung, nor flood a terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.clients.core import ReportState
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.errors import Kind, ShoalError
from tests.integration.rounds.test_agent import NAME, agent_of, config
from tests.worlds.rounds.services import Running, World, running

_UNTIL = "until 20"  # the year's first digits


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path / "services", devices=8, survivors_min=6)) as both:
        yield both


class Down:
    """A shuffler that can't be reached for ``times`` attempts."""

    def __init__(self, inner: RoundTransport, times: int) -> None:
        self.inner, self.times = inner, times

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        if self.times:
            self.times -= 1
            raise ShoalError(Kind.UNAVAILABLE, "the shuffler can't be reached")
        return await self.inner.exchange(frame, deadline_s)

    async def close(self) -> None:
        await self.inner.close()


async def test_every_stage_is_told_once(one: Running, tmp_path: Path) -> None:
    """A round that failed, then one that did not, with trouble on the way. Planted: lines passed on
    each time -> repeated, this fails; no word of failed attempts, or of a round without a sum ->
    this fails.
    """
    wires: list[RoundTransport] = [Down(one.transport(), 3), *(one.transport() for _ in range(7))]
    agents = [
        agent_of(one, config(one, tmp_path / f"{i}", one.world.device()), wire)
        for i, wire in enumerate(wires)
    ]
    for agent in agents:
        await agent.__aenter__()
    told: list[str] = []
    first = [asyncio.create_task(agents[0].report(NAME, None, tell=told.append))]
    first += [asyncio.create_task(agent.report(NAME, None)) for agent in agents[1:3]]
    await one.until(lambda: one.counts().get("joined") == 3)
    await one.advance(31)
    await one.until(lambda: one.rounds.ended["too few devices joined"] == 1)
    rest = [asyncio.create_task(agent.report(NAME, None)) for agent in agents[3:]]
    outcomes = await asyncio.gather(*first, *rest)
    for agent in agents:
        await agent.__aexit__(None, None, None)
    assert {outcome.state for outcome in outcomes} == {ReportState.ACKED}
    stages = (
        "waiting for a round",
        "no answer",
        "has a seat",
        "too few devices joined",
        "has begun",
        "masked vector",
        "the sum",
    )
    assert [next(stage for stage in stages if stage in line) for line in told] == list(stages)
    assert all("\n" not in line and len(line) < 200 for line in told)
    assert [_UNTIL in line for line in told[:4]] == [True, False, False, True]
    assert "can't be reached" in told[1]


async def test_a_window_that_never_had_enough_devices_says_so(one: Running, tmp_path: Path) -> None:
    """Planted: the last answer's words alone, "opens no more rounds" -> nothing says why no round
    came about, and this fails.
    """
    async with agent_of(one, config(one, tmp_path / "device", one.world.device())) as agent:
        report = asyncio.create_task(agent.report(NAME, None))
        await one.until(lambda: one.counts().get("joined") == 1)
        await one.advance(31)
        await one.until(lambda: one.rounds.ended["too few devices joined"] == 1)
        windows = one.world.published.task.windows
        await one.until(lambda: one.counts().get("joined") == 1)
        await one.advance(windows.deadline_of(0) - one.clock.now() - 200)
        outcome = await report
        assert outcome.state is ReportState.REFUSED
        assert "no more rounds" in outcome.message
        assert outcome.message.count("too few devices joined") == 1
        assert await agent.outcomes() == []
