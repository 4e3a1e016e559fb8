"""Agents learn a model: in every window each follows the signed release before, and answers with
its gradient through its own policy, ledger and round.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cli.agent.learn import tried
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.rounds.agent import TAKEN
from shoal.clients.rounds.learning import answer, follow
from shoal.clients.rounds.trial import OwnerRow
from shoal.domain import Norm, Vector
from shoal.protos.release_pb2 import SignedRelease
from shoal.questions.learning import LearningPlan, LearningState, begin_learning, vectors
from shoal.questions.models import Logistic, gradients_of
from shoal.questions.plan_words import check_learning
from shoal.task import MechanismSpec, Task
from tests.integration.rounds.test_agent import NAME, agent_of, config
from tests.worlds.rounds.services import Running, World, running
from tests.worlds.services.shuffler import GRACE, LENGTH

PLAN = LearningPlan(Logistic(2), rounds=2, step=8.0, clip=0.5)
ROWS = np.linspace(-1.0, 1.0, 16).reshape(8, 2)
YES = np.ones(8, dtype=bool)  # all gradients point one way, and are small once that is learnt
GRID, VARIANCE = 16, 64


class LearningWorld(World):
    """Its task is asked by PLAN."""

    def task(self, **changes: Any) -> Task:
        made = super().task(dimension=PLAN.dimension, **changes)
        windows = replace(made.windows, count=PLAN.rounds)
        domain = Vector(PLAN.dimension, Norm.L2, PLAN.bound, GRID, PLAN.names(("x", "y")))
        noise = made.mechanism
        mechanism = MechanismSpec.of(noise.name, variance=VARIANCE, shares=noise.get("shares"))
        question = f"How must a model change? {PLAN.words}"
        return replace(made, domain=domain, windows=windows, mechanism=mechanism, question=question)


async def answered(agents: list[Agent], states: list[LearningState]) -> None:
    """Every agent's gradient is taken for the window's sum."""
    outcomes = await asyncio.gather(
        *(
            agent.report(NAME, answer(PLAN, state, row, bool(yes)))
            for agent, state, row, yes in zip(agents, states, ROWS, YES, strict=True)
        )
    )
    assert {(one.state, one.fresh, one.message) for one in outcomes} == {
        (ReportState.ACKED, True, TAKEN)
    }


def check_sum_of(one: Running, window: int, weights: Any, devices: int = 8, least: int = 6) -> None:
    """Of the first ``devices`` rows; ``least``: survivors. 6 standard deviations of noise and
    rounding in each of 3 coordinates: a false alarm in fewer than one of 10^7 runs.
    """
    (stored,) = one.sums(window)
    own = gradients_of(PLAN.model, weights, ROWS[:devices], YES[:devices])
    expected = vectors(PLAN, PLAN.clip, own).sum(axis=0) * GRID
    variance = VARIANCE / (least * 0.9 // 1) * devices + devices / 4
    assert np.all(np.abs(stored.vector - expected) <= 6 * np.sqrt(variance))


def in_base64(signed: SignedRelease) -> dict[str, str]:
    """As a release file has it."""
    parts = {"release": signed.release, "release_signature": signed.signature}
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


async def test_a_fleet_of_agents_learns(tmp_path: Path) -> None:
    """Two windows. After the first all have the same model, which is what its release says; in the
    second they answer at it, with gradients a tenth as long, by ``shoal agent learn --send`` and
    the file of the release. Planted: the first model's gradient in
    the second window -> the sum is off by 9 standard deviations, fails; gradients with the wrong
    sign -> fails.
    """
    world = LearningWorld(tmp_path / "services", devices=8, survivors_min=6)
    async with running(world) as one:
        configs = [config(one, tmp_path / f"{i}", one.world.device()) for i in range(8)]
        agents = [agent_of(one, made) for made in configs]
        for agent in agents:
            await agent.__aenter__()
        assignment = agents[0].tasks.find(NAME)
        check_learning(assignment.task, PLAN)
        states = [begin_learning(PLAN) for _ in agents]
        await answered(agents, states)
        check_sum_of(one, 0, states[0].weights)
        one.clock.advance(LENGTH + GRACE + 1)
        await one.until(lambda: one.store.released(assignment.task_id, 0))
        (stored,) = one.store.releases()
        signed = SignedRelease(release=stored.release, signature=stored.signature)
        states = [
            follow(PLAN, assignment.task, assignment.task_id, state, signed.SerializeToString())
            for state in states
        ]
        assert all((state.weights == states[0].weights).all() for state in states)
        assert states[0].weights[-1] > 1.5
        file = tmp_path / "window-0.json"
        file.write_text(json.dumps({"signed": in_base64(signed)}))
        shown = await asyncio.gather(
            *(
                tried(agent, NAME, OwnerRow(row, bool(yes)), [file], send=True)
                for agent, row, yes in zip(agents, ROWS, YES, strict=True)
            )
        )
        assert {one.state for _, _, one in shown if one is not None} == {ReportState.ACKED}
        assert {found.window for _, found, _ in shown} == {1}
        check_sum_of(one, 1, states[0].weights)
        for agent in agents:
            charges = agent.memory.commitments.charges()
            assert [charge.window for charge in charges] == [0, 1]
            await agent.__aexit__(None, None, None)
