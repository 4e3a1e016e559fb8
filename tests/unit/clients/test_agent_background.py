"""The agent's background sender: what waits is delivered, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.agent import Agent, ReportOutcome
from shoal.clients.core import ReportState
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.errors import Kind, ShoalError
from tests.unit.clients.test_agent import Device
from tests.worlds.devices.clients import (
    WEEK,
    DirectTransport,
    make_world,
)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, make_world())


async def until(agent: Agent, wanted: Callable[[list[ReportOutcome]], bool]) -> list[ReportOutcome]:
    """Wait for the outcomes to be as wanted (the test's own time limit is the bound)."""
    while True:
        outcomes = await agent.outcomes()  # a thread's round trip: the loop goes on meanwhile
        if wanted(outcomes):
            return outcomes


def acked(outcomes: list[ReportOutcome]) -> bool:
    return bool(outcomes) and all(outcome.state is ReportState.ACKED for outcome in outcomes)


async def test_the_background_sender_delivers_what_waits(device: Device) -> None:
    device.transport.down = True
    async with device.agent() as agent:
        await agent.report("visits", 3)
    device.transport.down = False
    async with device.agent(background=True) as agent:
        await until(agent, acked)
        device.clock.advance(WEEK)
        await agent.report("visits", 3, send=False)
        await until(agent, lambda outcomes: len(outcomes) == 2 and acked(outcomes))
    assert len(device.far.frames) == 2


async def test_the_background_sender_goes_on_after_failures_with_the_same_bytes(
    device: Device, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """And says so once, and once that it is over. Planted: no second attempt -> this hangs until
    the time limit; a line per try -> 4.
    """

    def said() -> list[str]:
        return [line["event"] for line in logged() if line["event"].startswith("reports are")]

    kinds = [Kind.UNAVAILABLE, Kind.OVERLOADED, Kind.INTERNAL, Kind.UNKNOWN_TASK]
    device.far.script = lambda number, _: (
        ShoalError(kinds[number], "no") if number < len(kinds) else None
    )
    async with device.agent(background=True) as agent:
        await agent.report("visits", 3)
        (outcome,) = await until(agent, acked)
        assert outcome.attempts == len(kinds) + 1
        await until(agent, lambda _: "reports are delivered again" in said())
    assert len(set(device.far.frames)) == 1
    assert said() == ["reports are not delivered", "reports are delivered again"]


@pytest.mark.parametrize(
    "failure", [ShoalError(Kind.OVERLOADED, "disk full"), RuntimeError("a defect")]
)
async def test_a_failing_outbox_does_not_end_the_background_sender(
    device: Device, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Nor does what nobody thought of. Planted: ShoalError alone caught -> this hangs until the
    time limit.
    """
    real, failed = SqliteOutbox.records, asyncio.Event()
    failures: list[int] = []
    loop = asyncio.get_running_loop()

    def failing(box: SqliteOutbox, *, queued: bool = False) -> list[object]:
        if len(failures) < 3:
            failures.append(1)
            if len(failures) == 3:
                loop.call_soon_threadsafe(failed.set)
            raise failure
        return real(box, queued=queued)  # type: ignore[return-value] # a list of records

    monkeypatch.setattr(SqliteOutbox, "records", failing)
    async with device.agent(background=True) as agent:
        await failed.wait()
        await agent.report("visits", 3, send=False)
        await until(agent, acked)


async def test_leaving_while_an_attempt_is_under_way_keeps_the_report_doubtful(
    device: Device,
) -> None:
    """Planted: mark the attempt only when it ends -> the later refusal would read as REFUSED."""
    arrived, never = asyncio.Event(), asyncio.Event()

    class Hanging(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            arrived.set()
            await never.wait()
            return b""

    device.transport = Hanging(device.far)
    async with device.agent(background=True) as agent:
        await agent.report("visits", 3, send=False)
        await arrived.wait()
    device.transport = DirectTransport(device.far)
    device.far.script = lambda _n, _f: ShoalError(Kind.WINDOW_FULL, "full")
    async with device.agent() as agent:
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.UNKNOWN
