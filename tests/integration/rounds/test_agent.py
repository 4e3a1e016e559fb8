"""Agents that answer a vector task: their owners' policy, their certificate on disk, one vector per
window whatever happens.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.rounds_ledger import SqliteLedger
from shoal.clients.owner.policy import Policy
from shoal.clients.rounds.agent import TAKEN, RoundsAgent
from shoal.clients.rounds.participation import RoundState
from shoal.clients.settings.config import AgentConfig, EnrolmentFiles
from shoal.clients.transports.rounds_transport import GrpcRoundTransport, RoundTransport
from shoal.clocks.clock import DeviceClock, FakeClock
from shoal.crypto import keyfiles
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from tests.worlds.rounds.services import Device, Running, Wire, World, brief, running
from tests.worlds.services.shuffler import CA

NAME = "weights"


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path / "services", devices=8, survivors_min=6)) as both:
        yield both


def config(one: Running, folder: Path, device: Device, **changes: object) -> AgentConfig:
    """A device's folder: tasks, certificate and key, agent.toml's values."""
    folder.mkdir()
    shutil.copytree(one.world.shuffler.tasks_dir, folder / "tasks")
    (folder / "device.cert").write_bytes(device.identity.certificate)
    keyfiles.save_signing_key(folder / "device.key", device.identity.key)
    policy = Policy(
        frozenset({one.world.shuffler.authority.public}),
        60.0,
        2,
        {"testing": "allowed"},
        sums_if_apart=True,
    )
    made = AgentConfig(
        folder / "tasks",
        folder / "outbox.db",
        policy,
        enrolment=EnrolmentFiles(folder / "device.cert", folder / "device.key"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def agent_of(
    one: Running,
    made: AgentConfig,
    wire: RoundTransport | None = None,
    clock: DeviceClock | None = None,
) -> Agent:
    """Like an owner's, but on the test's clock, and to the port that was free; or over ``wire``."""

    def rounds(config: AgentConfig, _: object, entropy: object) -> RoundsAgent:
        def transport(*_: object) -> RoundTransport:
            return wire or GrpcRoundTransport(
                f"localhost:{one.shuffler.port}", CA.cert_pem, private_pool=True
            )

        return RoundsAgent(config, clock or one.clock, entropy, transport, brief)  # type: ignore[arg-type]

    return Agent(made, background=False, clock=clock or one.clock, rounds=rounds)


async def test_a_fleet_of_agents_makes_a_sum(one: Running, tmp_path: Path) -> None:
    """Eight owners' vectors: the sum is theirs but for the noise, and each agent remembers that it
    answered. Half of them send layers by ``shoal.send_update``.

    10 standard deviations of noise and rounding in each of 7 coordinates: a false alarm in fewer
    than one of 10^20 runs.
    """
    values = np.linspace(-1.0, 1.0, 8 * one.world.terms.dimension).reshape(8, -1)
    configs = [config(one, tmp_path / f"{i}", one.world.device()) for i in range(8)]
    agents = [agent_of(one, made) for made in configs]
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.__aenter__())
    outcomes = await asyncio.gather(
        *(agent.report(NAME, value) for agent, value in zip(agents[:4], values, strict=False)),
        # as a program that learns has it: layers by name
        *(
            shoal.send_update(agent, NAME, {"weights": value[:6].reshape(2, 3), "bias": value[6:]})
            for agent, value in zip(agents[4:], values[4:], strict=True)
        ),
    )
    assert {(outcome.state, outcome.fresh, outcome.message) for outcome in outcomes} == {
        (ReportState.ACKED, True, TAKEN)
    }
    (stored,) = one.sums()
    variance = 4096 / (6 * 0.9 // 1) * 8 + 8 / 4
    assert np.all(np.abs(stored.vector - values.sum(axis=0) * 16) <= 10 * np.sqrt(variance))
    again = await agents[0].report(NAME, [0.0] * one.world.terms.dimension)
    assert (again.state, again.fresh) == (ReportState.ACKED, False)
    assert len(one.sums()) == 1
    for agent in agents:
        await agent.__aexit__(None, None, None)
    async with agent_of(one, configs[0]) as restarted:
        (charge,) = restarted.memory.commitments.charges()
        entered = [stored.entry.event for stored in await restarted.ledger()]
        assert (charge.window, charge.nano > 0) == (0, True)
        assert entered == [LedgerEvent.SEEN, LedgerEvent.ACCEPTED, LedgerEvent.REPORTED]
        (shown,) = await restarted.outcomes()
        assert (shown.task, shown.window, shown.state) == (NAME, 0, ReportState.ACKED)
        assert not (await restarted.report(NAME, None)).fresh


async def test_a_round_that_is_aborted_is_followed_by_the_next(
    one: Running, tmp_path: Path
) -> None:
    """Too few came; nothing was sent: the same call takes part in the next round."""
    agents = [agent_of(one, config(one, tmp_path / f"{i}", one.world.device())) for i in range(8)]
    for agent in agents:
        await agent.__aenter__()
    first = [asyncio.create_task(agent.report(NAME, None)) for agent in agents[:3]]
    await one.until(lambda: one.counts().get("joined") == 3)
    await one.advance(31)
    await one.until(lambda: one.rounds.ended["too few devices joined"] == 1)
    rest = [asyncio.create_task(agent.report(NAME, None)) for agent in agents[3:]]
    outcomes = await asyncio.gather(*first, *rest)
    assert {outcome.state for outcome in outcomes} == {ReportState.ACKED}
    for agent in agents:
        await agent.__aexit__(None, None, None)


class Jumping(FakeClock):
    """A device's own, which shows the common time and what it jumped."""

    def __init__(self, common: FakeClock) -> None:
        super().__init__()
        self.common, self.jumped = common, 0.0

    def now(self) -> float:
        return self.common.now() + self.jumped

    def steady(self) -> float:
        return self.common.steady()


async def test_a_clock_that_jumps_does_not_end_a_round_under_way(
    one: Running, tmp_path: Path
) -> None:
    """Planted: a round's end by the wall clock -> the device gives up, and the others wait for it
    in vain.
    """
    clock = Jumping(one.clock)
    agents = [
        agent_of(
            one, config(one, tmp_path / f"{i}", one.world.device()), clock=None if i else clock
        )
        for i in range(8)
    ]
    for agent in agents:
        await agent.__aenter__()
    first = asyncio.create_task(agents[0].report(NAME, None))
    await one.until(lambda: one.counts().get("joined") == 1)
    clock.jumped = 864_000.0
    outcomes = await asyncio.gather(
        first, *(asyncio.create_task(agent.report(NAME, None)) for agent in agents[1:])
    )
    assert {outcome.state for outcome in outcomes} == {ReportState.ACKED}
    for agent in agents:
        await agent.__aexit__(None, None, None)


Change = Callable[[AgentConfig], AgentConfig]
DENIED: Change = lambda made: replace(  # noqa: E731
    made, policy=replace(made.policy, purposes={"testing": "denied"})
)
STRICTER: Change = lambda made: replace(made, policy=replace(made.policy, max_epsilon0=0.001))  # noqa: E731
NOBODY: Change = lambda made: replace(made, enrolment=None)  # noqa: E731
POOR: Change = lambda made: replace(made, policy=replace(made.policy, lifetime_epsilon=1e-6))  # noqa: E731
WARY: Change = lambda made: replace(made, policy=replace(made.policy, max_delta=1e-12))  # noqa: E731
SAME: Change = lambda made: made  # noqa: E731


@pytest.mark.parametrize(
    ("change", "value", "send", "kind"),
    [
        (DENIED, None, True, Kind.REFUSED),
        (STRICTER, None, True, Kind.REFUSED),
        (POOR, None, True, Kind.REFUSED),
        (WARY, None, True, Kind.REFUSED),
        (NOBODY, None, True, Kind.CONFIG),
        (SAME, None, False, Kind.CONFIG),
        (SAME, 3, True, Kind.INVALID),
        (SAME, "three", True, Kind.INVALID),
        (SAME, "[1, 2]", True, Kind.INVALID),
        (SAME, [float("nan")] * 7, True, Kind.INVALID),
        (SAME, ["x"] * 7, True, Kind.INVALID),
    ],
)
async def test_what_the_owner_or_the_device_refuses_sends_nothing(
    one: Running, tmp_path: Path, change: Change, value: object, send: bool, kind: Kind
) -> None:
    made = change(config(one, tmp_path / "device", one.world.device()))
    async with agent_of(one, made) as agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report(NAME, value, send=send)  # type: ignore[arg-type]
        assert refused.value.kind is kind
        assert await agent.outcomes() == []
        assert agent.memory.commitments.charges() == []
    assert one.phase() == ""
    assert not one.rounds.ended


async def test_a_device_that_died_in_a_round_does_not_answer_the_window_again(
    one: Running, tmp_path: Path
) -> None:
    """Its ledger says that a vector was made; its keys are gone. Planted: MASKED taken for nothing
    -> a second vector of the window.
    """
    made = config(one, tmp_path / "device", one.world.device())
    ledger = SqliteLedger(made.ledger)
    ledger.masked(one.world.published.task_id, 0, Digest(bytes(32)), Digest(bytes(32)))
    ledger.close()
    async with agent_of(one, made) as agent:
        outcome = await agent.report(NAME, None)
        assert (outcome.state, outcome.fresh) == (ReportState.UNKNOWN, False)
        assert "lost it in a restart" in outcome.message
        assert [shown.state for shown in await agent.outcomes()] == [ReportState.UNKNOWN]
    assert one.phase() == ""


async def test_an_agent_that_stops_in_a_round_writes_down_that_it_is_lost(
    one: Running, tmp_path: Path
) -> None:
    """Cancelled while its vector is on its way. Planted: no settling when cancelled -> the entry
    stays MASKED.
    """
    made = config(one, tmp_path / "device", one.world.device())
    wire = Wire(one.transport(), one.world, "upload")
    async with agent_of(one, made, wire) as agent:
        task = asyncio.create_task(agent.report(NAME, None))
        others = one.begin(one.world.devices(7))
        await wire.silent.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        (shown,) = await agent.outcomes()
        assert (shown.state, shown.kind) == (ReportState.UNKNOWN, None)
        assert "lost sight" in shown.message
    await one.until(lambda: one.counts().get("uploaded") == 7)
    await one.advance(121)
    outcomes = await asyncio.gather(*others)
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
