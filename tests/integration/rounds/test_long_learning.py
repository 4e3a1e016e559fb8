"""Agents learn a long model, of a million weights at full counts: each follows the signed release
and the array beside it, and answers in the next window with its gradient there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.analyzer.results.checkable import checkable
from shoal.analyzer.results.totals import FOLDER
from shoal.arrays import NDArray
from shoal.clients.core import ReportState
from shoal.clients.rounds.agent import TAKEN
from shoal.clients.rounds.learning import answer, follow, signed_release
from shoal.domain import Norm, Vector
from shoal.limits import LIMITS
from shoal.questions.learning import LearningPlan, begin_learning
from shoal.questions.models import Logistic
from shoal.questions.plan_words import check_learning
from shoal.task import MechanismSpec, Task
from tests.integration.rounds.test_agent import NAME, agent_of, config
from tests.sizes import size
from tests.worlds.rounds.services import World, running
from tests.worlds.services.shuffler import GRACE, LENGTH

DEVICES = 3
DIMENSION = size(300_000, 1_000_000)
PLAN = LearningPlan(Logistic(DIMENSION - 1), rounds=2, step=8.0, clip=0.5)
GRID, VARIANCE = 4_096, 64
PLACES = (0, DIMENSION // 2, DIMENSION - 2)  # of the features that rows have, in three segments


class LongWorld(World):
    """Its task is asked by PLAN."""

    def task(self, **changes: Any) -> Task:
        made = super().task(
            dimension=DIMENSION, segment_words=LIMITS.segment_words, target_epsilon=1e12, **changes
        )
        windows = replace(made.windows, count=PLAN.rounds)
        domain = Vector(DIMENSION, Norm.L2, PLAN.bound, GRID)
        noise = made.mechanism
        mechanism = MechanismSpec.of(noise.name, variance=VARIANCE, shares=noise.get("shares"))
        question = f"How must a model change? {PLAN.words}"
        return replace(made, domain=domain, windows=windows, mechanism=mechanism, question=question)


def row_of(number: int) -> NDArray[np.float64]:
    """float64[features]: nearly all 0, the rest large, and another for each device."""
    row = np.zeros(DIMENSION - 1)
    row[list(PLACES)] = 1.0 + number, -2.0, 0.5
    return row


async def test_a_long_model_is_learnt(tmp_path: Path) -> None:
    """Two windows through real services, agents and exported files. The sum of the second window is
    that of the gradients at the model that the first one's array gives.

    8 standard deviations of noise and rounding in each of at most 2 x 10^6 coordinates: a false
    alarm in fewer than one of 10^8 runs. Planted: the array not followed -> the sum is off by
    hundreds of them: fails.
    """
    world = LongWorld(tmp_path / "services", devices=DEVICES, survivors_min=DEVICES, dropout_ppm=0)
    async with running(world) as one:
        configs = [config(one, tmp_path / f"{i}", one.world.device()) for i in range(DEVICES)]
        # so little noise would be refused by an owner who did not say so
        most = replace(configs[0].policy, max_epsilon0=1e9)
        configs = [replace(made, policy=most) for made in configs]
        agents = [agent_of(one, made) for made in configs]
        for agent in agents:
            await agent.__aenter__()
        found = agents[0].tasks.find(NAME)
        task, task_id = found.task, found.task_id
        check_learning(task, PLAN)
        state, deviations = begin_learning(PLAN), list[float]()
        for window in range(PLAN.rounds):
            given = [answer(PLAN, state, row_of(i), True) for i in range(DEVICES)]
            outcomes = await asyncio.gather(
                *(agent.report(NAME, value) for agent, value in zip(agents, given, strict=True))
            )
            assert {(told.state, told.message) for told in outcomes} == {(ReportState.ACKED, TAKEN)}
            one.clock.advance(LENGTH + GRACE + 1)
            await one.until(lambda window=window: one.store.released(task_id, window))  # type: ignore[misc]
            (data,) = (
                text for _, text in checkable(world.analyzer_config(), {(task_id.hex, window)})
            )
            before = state
            state = follow(
                PLAN, task, task_id, state, signed_release(data), one.store.folder / FOLDER
            )
            summed = (before.weights - state.weights) / (PLAN.step * PLAN.clip) * DEVICES
            off = np.abs(summed - np.sum(given, axis=0)) * GRID
            sd = np.sqrt(VARIANCE / task.mechanism.get("shares") * DEVICES + DEVICES / 4)
            deviations.append(float(off.max()) / sd)
        assert max(deviations) <= 8.0
        # what the devices would answer next is far smaller than what they began with
        first, last = (
            np.linalg.norm(np.sum([answer(PLAN, at, row_of(i), True) for i in range(DEVICES)], 0))
            for at in (begin_learning(PLAN), state)
        )
        assert last < 0.1 * first
        for agent in agents:
            await agent.__aexit__(None, None, None)
