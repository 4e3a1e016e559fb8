"""A model that is learnt, as it follows from the releases there are. Pure.

Nothing of it is kept anywhere: it is computed from the signed task and the signed releases, so that
a restart loses nothing, and anybody who has both computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from shoal import codec
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.analyzer.core import retention_over
from shoal.clients.rounds.learning import follow
from shoal.crypto.trust import ServedTask
from shoal.limits import LIMITS
from shoal.protos import release_pb2
from shoal.questions.learning import LearningPlan, LearningState, begin_learning
from shoal.questions.plan_words import plan_of
from shoal.task import Task


class Learning(StrEnum):
    """``OVER``: every round was. ``GOING_ON``: a release is waited for. ``STOPPED``: the next one
    will not come, so the model stays as it is.
    """

    OVER = "over"
    GOING_ON = "going on"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ModelRound:
    """``n``: devices of the sum, 0 where it was ``withheld``, which says why. ``clip``: that was
    asked. ``epsilon``: of this round; ``so_far``: of all rounds until then, of a device in each; at
    the task's delta, upper bounds. A lost round counts: its analyzer may have had shares.
    """

    window: int
    n: int
    withheld: str
    clip: float
    epsilon: float
    so_far: float


@dataclass(frozen=True, slots=True)
class LearntModel:
    """``why``: how it stands, one line for people."""

    plan: LearningPlan
    state: LearningState
    rounds: tuple[ModelRound, ...]
    stand: Learning
    why: str

    @property
    def used(self) -> int:
        """Rounds that moved the model."""
        return sum(not one.withheld for one in self.rounds)


@lru_cache(maxsize=LIMITS.windows)  # a store that is watched is looked at every other second
def epsilon_of_rounds(task: Task, rounds: int) -> float:
    """Of so many rounds together, of a device in each, at the task's delta. Direction: upper."""
    return epsilon_of_task(task, rounds, task.delta)


def learnt(
    served: ServedTask, signed: Mapping[int, bytes], now: float, arrays: Path | None = None
) -> LearntModel:
    """``signed``: SignedRelease by window; ``now``: Unix seconds; ``arrays``: where the totals of
    long vectors lie. Raises BAD_SIGNATURE, MISMATCH, INVALID for a release that is not of this
    task, as a device would refuse it.
    """
    task, plan = served.task, plan_of(served.task)
    state, rounds = begin_learning(plan), list[ModelRound]()
    while state.done < plan.rounds and state.done in signed:
        window, clip = state.done, state.clip
        state = follow(plan, task, served.task_id, state, signed[window], arrays)
        message = codec.parse(release_pb2.SignedRelease, signed[window], "signed release")
        release = codec.parse(release_pb2.Release, message.release, "release")
        rounds.append(
            ModelRound(
                window,
                0 if release.withheld else release.n,
                release.withheld,
                clip,
                epsilon_of_rounds(task, 1),
                epsilon_of_rounds(task, window + 1),
            )
        )
    stand, why = _stand(task, plan, state.done, signed, now)
    return LearntModel(plan, state, tuple(rounds), stand, why)


def _stand(
    task: Task, plan: LearningPlan, done: int, signed: Mapping[int, bytes], now: float
) -> tuple[Learning, str]:
    if done == plan.rounds:
        return Learning.OVER, f"all {plan.rounds} rounds are over"
    kept = f"the model follows from the {done} before it" if done else "there is no model yet"
    if any(window > done for window in signed):
        return (
            Learning.STOPPED,
            f"the release of window {done} is missing, and later ones are there: {kept}; restore "
            "it from a copy",
        )
    start = task.windows.start_of(done)
    if retention_over(task, done, now):
        return Learning.STOPPED, f"window {done} ended without a release: {kept}"
    if now < start:
        return Learning.GOING_ON, f"window {done} has not begun"
    if now < task.windows.deadline_of(done):
        return Learning.GOING_ON, f"window {done} runs"
    return Learning.GOING_ON, f"window {done} is over, and its release is waited for"
