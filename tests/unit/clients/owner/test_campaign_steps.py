"""A device takes part in a step of the campaign that its owner agreed to, and in no other task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import FakeClock
from shoal.crypto.campaign import OneTask
from shoal.crypto.trust import TrustedTask, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.release_pb2 import Release
from shoal.task import Task
from tests.worlds.devices.clients import START, DirectTransport, FarEnd, World, make_world

PURPOSE = "to plan clinics"
PROMISE = TaskId(b"\x07" * 32)
_CORE = "shoal.clients.core.OneTask"


@dataclass(frozen=True, slots=True)
class Begun:
    """A campaign whose first step was verified, and that is promised by other bytes than it."""

    first: TrustedTask
    promise: TaskId = PROMISE

    def next(self, releases: Sequence[Release]) -> TrustedTask | None:
        return None if releases else self.first


def device(folder: Path, world: World, most: float) -> tuple[Agent, FarEnd]:
    world.write(folder / "tasks")
    far = FarEnd([world.hop])

    def transport(_task: Task, _insecure: bool) -> DirectTransport:
        return DirectTransport(far)

    policy = Policy(world.authorities, most, 2, {PURPOSE: "allowed"})
    config = AgentConfig(folder / "tasks", folder / "outbox.db", policy)
    clock = FakeClock(START + 100.0)
    return Agent(config, background=False, clock=clock, transports=transport), far


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate takes a third of a second, and is shown elsewhere."""
    monkeypatch.setattr("shoal.clients.owner.explain_cost.guaranteed_epsilon", lambda _: 0.25)
    monkeypatch.setattr("shoal.clients.owner.guarantees.Guarantees.epsilon", lambda *_: 0.25)


async def test_a_task_that_is_no_step_of_the_campaign_is_refused_and_nothing_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By policy and authority it would pass. Planted: no ``check_step`` in the policy -> answered,
    and this fails.
    """
    world, another = make_world(), make_world(name="nights")
    agreed = OneTask(trust_task(another.signed_task, another.authorities))
    monkeypatch.setattr(_CORE, lambda _: agreed)
    agent, far = device(tmp_path, world, 4.0)
    async with agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report("visits", 3)
        assert refused.value.kind is Kind.REFUSED
        assert "campaign" in refused.value.message
        assert not await agent.outcomes()
        (told,) = [
            one.entry.details["reason"]
            for one in await agent.ledger()
            if one.entry.event is LedgerEvent.REFUSED
        ]
        assert "campaign" in str(told)
        assert "send nothing" in (await agent.explain("visits"))[-1]
    assert not far.frames


async def test_what_the_owner_accepted_is_kept_under_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it holds for every step. Planted: the task's id at any of the places that keep it or
    look it up -> fails.
    """
    monkeypatch.setattr(_CORE, Begun)
    agent, far = device(tmp_path, make_world(), 0.5)
    async with agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report("visits", 3)
        assert refused.value.kind is Kind.REFUSED
        await agent.accept("visits")
        accepted = await asyncio.to_thread(agent.memory.commitments.accepted, PROMISE)
        assert accepted == agent.tasks.find("visits").epsilon0
        assert "would answer" in (await agent.explain("visits"))[-1]
        assert (await agent.report("visits", 3)).state is ReportState.ACKED
    assert len(far.frames) == 1
