"""Agents that learn by themselves: `shoal agent run` with a row and a folder of signed releases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
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
from shoal.clocks.clock import FakeClock
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import Release, SignedRelease
from shoal.questions.learning import begin_learning
from tests.cases import for_each
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

DAY = 86_400


class Told(Runner):
    """A service that also keeps what it would log."""

    def tell(self, where: str, what: str, error: ShoalError | None = None) -> None:
        lines: list[str] = self.__dict__.setdefault("lines", [])
        lines.append(f"{where}: {what} {error.message if error is not None else ''}")
        super().tell(where, what, error)

    def said(self, text: str) -> bool:
        return any(text in line for line in self.__dict__.get("lines", []))


@asynccontextmanager
async def serving(
    one: Running, configs: list[AgentConfig], clocks: Mapping[int, FakeClock] | None = None
) -> AsyncIterator[list[Told]]:
    """The services of these devices, stopped at the end as SIGTERM would. ``clocks``: of those
    whose clock is not everybody's.
    """
    stop = asyncio.Event()

    def service(clock: FakeClock) -> Told:
        def made(given: AgentConfig, _: bool) -> Agent:
            return agent_of(one, given, clock=clock)

        return Told(
            Path("agent.toml"), stop, asyncio.Event(), clock=clock, sleep=brief, agents=made
        )

    runners = [service((clocks or {}).get(at, one.clock)) for at in range(len(configs))]
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


@for_each(
    "ahead, said",
    [((LENGTH, 10 * DAY), "window 0 is not in"), ((-10 * DAY, -LENGTH), "check the clock")],
)
async def test_devices_whose_clocks_are_wrong_miss_a_window_and_harm_none(
    ahead: tuple[int, int], said: str, tmp_path: Path
) -> None:
    """Two of eight. In the first window they answer nothing and pay nothing, whatever they take the
    time for, and the first of them says why; once their clocks are right they answer the next at
    the model that all others have. Planted: no release waited for -> the one that is a window ahead
    does not say so, fails.
    """
    releases = tmp_path / "releases"
    releases.mkdir()
    world = LearningWorld(tmp_path / "services", devices=8, cohort_min=6, survivors_min=4)
    async with running(world) as one:
        configs = devices(one, tmp_path, releases)
        clocks = {6 + at: FakeClock(one.clock.now() + off) for at, off in enumerate(ahead)}
        async with serving(one, configs, clocks) as runners:

            def joined() -> bool:
                for clock in clocks.values():
                    clock.advance(0.5)
                return runners[6].said(said) and one.counts().get("joined") == 6

            await passing(one, joined)
            await one.advance(31)  # nobody else comes
            await one.until(lambda: len(one.sums()) == 1)
        check_sum_of(one, 0, begin_learning(PLAN).weights, devices=6, least=4)
        assert charged(one, configs) == [[0]] * 6 + [[]] * 2

        one.clock.advance(LENGTH + GRACE + 1)
        await one.until(lambda: one.store.released(one.world.published.task_id, 0))
        (stored,) = one.store.releases()
        signed = SignedRelease(release=stored.release, signature=stored.signature)
        write(releases / "window-0.json", signed)
        async with serving(one, configs):
            await passing(one, lambda: len(one.sums(1)) == 1)
        check_sum_of(one, 1, weights_after(stored.release), least=4)
        assert charged(one, configs) == [[0, 1]] * 6 + [[1]] * 2


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
