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


class FollowedModel:
    """A task's model, looked at again and again: a release that was verified and followed is not
    followed again while it is the same to the last byte. ``arrays``: where the totals of long
    vectors lie.
    """

    def __init__(self, served: ServedTask, arrays: Path | None = None) -> None:
        """Raises as ``plan_of``."""
        self._served, self._arrays, self._plan = served, arrays, plan_of(served.task)
        self._begin()

    def _begin(self) -> None:
        self._state, self._rounds = begin_learning(self._plan), list[ModelRound]()
        self._followed = list[bytes]()  # by window

    def look(self, signed: Mapping[int, bytes], now: float) -> LearntModel:
        """``signed``: SignedRelease by window; ``now``: Unix seconds. Raises BAD_SIGNATURE,
        MISMATCH, INVALID for a release that is not of this task, as a device would refuse it; what
        was followed before it stays.
        """
        if any(signed.get(window) != data for window, data in enumerate(self._followed)):
            self._begin()  # a store that was put back
        while self._state.done < self._plan.rounds and self._state.done in signed:
            self._follow(signed[self._state.done])
        done = self._state.done
        stand, why = _stand(self._served.task, self._plan, done, signed, now)
        return LearntModel(self._plan, self._state, tuple(self._rounds), stand, why)

    def _follow(self, signed: bytes) -> None:
        task, window, clip = self._served.task, self._state.done, self._state.clip
        state = follow(self._plan, task, self._served.task_id, self._state, signed, self._arrays)
        message = codec.parse(release_pb2.SignedRelease, signed, "signed release")
        release = codec.parse(release_pb2.Release, message.release, "release")
        self._rounds.append(
            ModelRound(
                window,
                0 if release.withheld else release.n,
                release.withheld,
                clip,
                epsilon_of_rounds(task, 1),
                epsilon_of_rounds(task, window + 1),
            )
        )
        self._state = state
        self._followed.append(signed)


def learnt(served: ServedTask, signed: Mapping[int, bytes], now: float) -> LearntModel:
    """As ``FollowedModel.look``, once."""
    return FollowedModel(served).look(signed, now)


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
