"""What a device would answer in the next round of a model that is learnt, worked out for its owner
alone: the same steps as for an answer, and nothing sent, charged or kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shoal.arrays import NDArray, np
from shoal.clients.rounds.agent import noisy
from shoal.clients.rounds.learning import answer, follow
from shoal.clients.rounds.release_files import another_release, read_release
from shoal.domain import Vector
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import dequantize
from shoal.questions.learning import LearningPlan, LearningState, begin_learning, gradients
from shoal.questions.plan_words import plan_of
from shoal.task import Task

_MOST_NAMED = 12  # numbers of a row
_MOST_TEXT = 64 << 20  # characters of a row: 2^20 numbers and more


@dataclass(frozen=True, slots=True, eq=False)
class OwnerRow:
    """What a device knows of its owner: ``numbers`` float64[features], and the ``yes`` or no that
    the model is to tell. It is private.
    """

    numbers: NDArray[np.float64]
    yes: bool

    def __repr__(self) -> str:
        return f"OwnerRow({self.numbers.size} numbers)"

    @classmethod
    def read(cls, text: str) -> OwnerRow:
        """From JSON as {"row": [63, 0.5], "yes": true}. Raises INVALID, which quotes nothing."""
        try:
            if len(text) > _MOST_TEXT:
                raise ValueError
            value = json.loads(text)
            numbers, yes = value["row"], value["yes"]
            if set(value) != {"row", "yes"} or not isinstance(yes, bool):
                raise ValueError
            if not isinstance(numbers, list) or any(
                isinstance(one, bool) or not isinstance(one, int | float) for one in numbers
            ):
                raise ValueError
            return cls(np.array(numbers, dtype=np.float64), yes)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise ShoalError(
                Kind.INVALID,
                'a row is JSON as {"row": [63, 0.5], "yes": true}: its numbers, and the answer',
            ) from None


@dataclass(frozen=True, slots=True, eq=False)
class TriedAnswer:
    """``window``: the round that would be answered. ``length``: of the gradient, before the clip.
    ``vector``: float64[dimension], what is answered, before rounding and noise. ``example``:
    float64[dimension], the same after both: one draw, thrown away; None where none was wanted.
    ``own_noise``, ``all_noise``: standard deviations of one number, of this device's share and of
    all that are certain.
    """

    plan: LearningPlan
    window: int
    clip: float
    length: float
    vector: NDArray[np.float64]
    example: NDArray[np.float64] | None
    own_noise: float
    all_noise: float

    def __repr__(self) -> str:
        return f"TriedAnswer(window {self.window}, {self.vector.size} numbers)"

    @property
    def shortened(self) -> bool:
        """Whether the gradient is longer than the clip."""
        return self.length > self.clip


def model_so_far(task: Task, task_id: TaskId, paths: Iterable[Path]) -> LearningState:
    """The model after the releases in files of ``shoal results export --format release``, or in
    folders of them; those of other tasks are passed over in a folder. In any order: windows are
    followed one after the other, each verified.

    Raises CONFIG for what can't be read, INVALID for what is no release, MISMATCH where a window is
    missing between two, and as ``plan_of`` and ``follow`` do.
    """
    plan = plan_of(task)
    found: dict[int, tuple[bytes, Path]] = {}
    for path in paths:
        for file, alone in _files(path):
            one = read_release(file)
            if not (alone or one.task_id == task_id.raw):
                continue
            window = one.window
            if window in found and found[window][0] != one.signed:
                raise ShoalError(Kind.MISMATCH, another_release(file, window, found[window][1]))
            found[window] = one.signed, file
    state = begin_learning(plan)
    for window in sorted(found):
        signed, file = found[window]
        state = follow(plan, task, task_id, state, signed, file.parent)
    return state


def row_names(task: Task, plan: LearningPlan) -> tuple[str, ...]:
    """Of the numbers of a row, in order; empty where the task names none."""
    names = task.domain.names if isinstance(task.domain, Vector) else ()
    return tuple(name.removeprefix("hidden 1: ") for name in names[: plan.model.features])


def try_answer(
    task: Task, state: LearningState, row: OwnerRow, entropy: Entropy | None
) -> TriedAnswer:
    """What a device with this row would answer at this model; without ``entropy`` there is no
    example, and no second vector in memory. Raises INVALID for a row that does not fit, CONFIG on
    a device that lacks what the gradient takes, and after the last round; as ``plan_of`` does for a
    task that learns nothing.
    """
    plan, domain = plan_of(task), task.domain
    if state.done >= plan.rounds:
        raise ShoalError(
            Kind.CONFIG, f"task {task.name}: all {plan.rounds} rounds are over: nothing is asked"
        )
    if row.numbers.shape != (plan.model.features,):
        names = ", ".join(row_names(task, plan)[:_MOST_NAMED])
        raise ShoalError(
            Kind.INVALID,
            f"task {task.name} wants a row of {plan.model.features:,} numbers"
            f"{f' ({names})' if names else ''}, and this one has {row.numbers.size:,}",
        )
    assert isinstance(domain, Vector)  # noqa: S101 - plan_of checked it
    assert task.pairwise is not None  # noqa: S101 - and this
    honest = task.pairwise.honest_survivors(task.honest_fraction_ppm)
    # measured and gone, before there is another vector
    length = float(
        np.linalg.norm(gradients(plan, state, row.numbers[None, :], np.array([row.yes]))[0])
    )
    vector = answer(plan, state, row.numbers, row.yes)
    noise, step = create_noise(task.mechanism), domain.clip / domain.grid
    return TriedAnswer(
        plan,
        state.done,
        state.clip,
        length,
        vector,
        None if entropy is None else dequantize(noisy(task, vector, entropy), domain),
        step * float(noise.variance) ** 0.5,
        step * float(noise.variance * honest) ** 0.5,
    )


def _files(path: Path) -> list[tuple[Path, bool]]:
    """(file, whether it was named by itself)."""
    if path.is_dir():
        return [(file, False) for file in sorted(path.glob("*.json"))]
    return [(path, True)]
