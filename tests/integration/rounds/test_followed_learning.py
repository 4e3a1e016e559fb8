"""Agents that learn by themselves: `shoal agent run` with a row and a folder of signed releases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.clients.agent import Agent
from shoal.clients.memory.device_memory import Memory
from shoal.clients.service.runner import Runner
from shoal.clients.settings.config import AgentConfig
from shoal.clients.sources.spec import SourceSpec
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import Release, SignedRelease
from shoal.questions.learning import begin_learning
from tests.integration.rounds.test_agent import NAME, agent_of, config
from tests.integration.rounds.test_learning import (
    PLAN,
    ROWS,
    YES,
    LearningWorld,
    check_sum_of,
    in_base64,
)
from tests.worlds.rounds.services import Running, brief, running
from tests.worlds.services.shuffler import GRACE, LENGTH


class Told(Runner):
    """A service that also keeps what it would log."""

    def tell(self, where: str, what: str, error: ShoalError | None = None) -> None:
        lines: list[str] = self.__dict__.setdefault("lines", [])
        lines.append(f"{where}: {what} {error.message if error is not None else ''}")
        super().tell(where, what, error)

    def said(self, text: str) -> bool:
        return any(text in line for line in self.__dict__.get("lines", []))


@asynccontextmanager
async def serving(one: Running, configs: list[AgentConfig]) -> AsyncIterator[list[Told]]:
    """The services of these devices, stopped at the end as SIGTERM would."""
    stop = asyncio.Event()

    def made(given: AgentConfig, _: bool) -> Agent:
        return agent_of(one, given)

    runners = [
        Told(Path("agent.toml"), stop, asyncio.Event(), clock=one.clock, sleep=brief, agents=made)
        for _ in configs
    ]
    services = [
        asyncio.create_task(runner.run(given))
        for runner, given in zip(runners, configs, strict=True)
    ]
    try:
        yield runners
    finally:
        stop.set()
        await asyncio.gather(*services)


def charged(one: Running, configs: list[AgentConfig]) -> list[list[int]]:
    """The windows that each device paid for."""
    found = []
    for made in configs:
        memory = Memory(made, one.clock, SYSTEM)
        found.append([charge.window for charge in memory.commitments.charges()])
        memory.close()
    return found


async def passing(one: Running, happened: Callable[[], bool]) -> None:
    """Devices measure a moment after the window begins: time goes on by seconds until it is so."""

    def looked() -> bool:
        one.clock.advance(0.01)
        return happened()

    await one.until(looked)


def devices(one: Running, folder: Path, releases: Path) -> list[AgentConfig]:
    """Eight, with a row each."""
    found = []
    for at, (row, yes) in enumerate(zip(ROWS, YES, strict=True)):
        made = config(one, folder / f"{at}", one.world.device(), measure_mean_s=0.001)
        file = folder / f"{at}" / "row.json"
        file.write_text(json.dumps({"row": row.tolist(), "yes": bool(yes)}))
        source = SourceSpec("json", file=file, releases=releases)
        found.append(replace(made, sources={NAME: source}))
    return found


async def test_agents_that_run_learn_by_themselves(tmp_path: Path) -> None:
    """Two windows, with all services stopped in between. In the second nobody answers while the
    release of the first is not in the folder, nor when one is there that another key signed; then
    all answer at its model. Two devices more never answer: one owner denies the purpose, one has no
    budget. A value of another window than the open one is refused before that. Planted: that check
    left out -> it waits for a round for ever; an unverified release followed, or none waited for ->
    all answer too early, and nobody says what is waited for; the first model's gradient in the
    second window -> the sum is off by 9 standard deviations, fails.
    """
    releases = tmp_path / "releases"
    releases.mkdir()
    world = LearningWorld(tmp_path / "services", devices=8, survivors_min=6)
    async with running(world) as one:
        task_id = one.world.published.task_id
        configs = devices(one, tmp_path, releases)
        others = []
        for at in range(2):
            made = config(one, tmp_path / f"other-{at}", one.world.device(), measure_mean_s=0.001)
            denied = {"purposes": {"testing": "denied"}} if at else {"lifetime_epsilon": 1e-6}
            others.append(
                replace(
                    made,
                    policy=replace(made.policy, **denied),
                    sources=configs[at].sources,
                )
            )
        async with agent_of(one, configs[0]) as agent:
            with pytest.raises(ShoalError) as refused:
                await agent.report(NAME, None, window=1)
        assert refused.value.kind is Kind.WINDOW_CLOSED
        async with serving(one, [*configs, *others]) as runners:
            await passing(one, lambda: len(one.sums()) == 1 and runners[8].said("budget"))
        check_sum_of(one, 0, begin_learning(PLAN).weights)
        assert charged(one, configs + others) == [[0]] * 8 + [[]] * 2

        one.clock.advance(LENGTH + GRACE + 1)
        await one.until(lambda: one.store.released(task_id, 0))
        (stored,) = one.store.releases()
        signed = SignedRelease(release=stored.release, signature=stored.signature)
        forged = SignedRelease(
            release=stored.release,
            signature=SigningKey.generate().sign(SigningContext.RELEASE, stored.release),
        )
        async with serving(one, configs) as runners:
            await passing(one, lambda: all(made.said("is not in") for made in runners))
            write(releases / "forged.json", forged)
            await passing(one, lambda: all(made.said("not signed") for made in runners))
            assert not one.sums(1)
            write(releases / "window-0.json", signed)
            await passing(one, lambda: len(one.sums(1)) == 1)
        check_sum_of(one, 1, weights_after(stored.release))
        assert charged(one, configs) == [[0, 1]] * 8


def write(file: Path, release: SignedRelease) -> None:
    """Whole, as whoever fills the folder should."""
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps({"signed": in_base64(release)}))
    whole.rename(file)


def weights_after(release: bytes) -> np.ndarray[Any, Any]:
    """Of the logistic regression, by its definition: it begins at 0 and moves against the mean."""
    read = Release.FromString(release)
    totals = np.array([row.value for row in read.estimates])
    return -PLAN.step * PLAN.clip * totals / read.n
