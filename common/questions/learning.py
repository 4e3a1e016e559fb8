"""A question whose answer is a model (``models``), learnt in rounds of sums that hide every
device's part.

In each round a device answers with one vector: the gradient of its loss at the model so far, scaled
so that its length is at most 1. The release of the round has the sum of the vectors with its noise,
and the model moves against the mean gradient. So the model of a round is a function of the releases
before it and of this plan, and of nothing else: everybody who has the releases computes it, a
device too, and nobody has to be believed about it.

*Clipping.* A gradient longer than the clip is shortened to it, and what is summed is gradient /
clip. The clip may follow the gradients (Andrew, Thakkar, McMahan, Ramaswamy, "Differentially
Private Learning with Adaptive Clipping", NeurIPS 2021): then each vector has one coordinate more,
which says whether the gradient was within the clip, as +-``mark`` / 2. The noised sum of these is
the share within, and the clip moves by exp(-rate (share - quantile)). That coordinate is part of
the vector whose length is bounded, so it is charged with it: the bound is sqrt(1 + mark^2 / 4)
instead of 1.

*What privacy rests on.* On the task's clip and noise, which a device keeps to whatever model it is
shown. A wrong plan or model costs accuracy, and no privacy. All the same the plan is signed: its
words stand at the end of the task's question.

*No model can be steered to where a gradient is no number.* There a device could not answer, and
who is missing from a round would say something of its row. So the weights are bounded by what
totals are accepted: at most ``_FURTHEST_MEAN`` clips a device, in each of 10,000 rounds. Then
weights stay below 10^32, and for rows up to ``_MOST_OF_ROW`` gradients below 10^42, whose squares a
float holds.

Pure: no clock, no socket, no randomness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shoal.arrays import NDArray, np
from shoal.questions.models import Model, bad_model

_MOST_ROUNDS = 10_000
_FURTHEST = 1e6  # the clip stays within this factor of where it began, whatever the noise says
_FURTHEST_MEAN = 1e9  # far beyond any noise with which a sum says something
_MOST_OF_ROW = 1e9
BELOW = "within the clip"  # the name of the coordinate that an adapted clip adds


@dataclass(frozen=True, slots=True)
class ClipRule:
    """How a clip follows the gradients. ``quantile``: of the gradients' lengths, that the clip
    moves to, in (0, 1). ``rate``: how fast, in (0, 5]. ``mark``: how much the coordinate that says
    "within" weighs beside a gradient of length 1, in (0, 2]; more is exacter, and costs noise in
    all. Raises INVALID.
    """

    quantile: float = 0.7
    rate: float = 0.5
    mark: float = 0.5

    def __post_init__(self) -> None:
        _check("quantile", self.quantile, 0.0, 1.0, inside=True)
        _check("rate", self.rate, 0.0, 5.0)
        _check("mark", self.mark, 0.0, 2.0)


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """How a model is learnt: public, and the same for all. Raises INVALID.

    ``model``: what is learnt. ``rounds``: 1 to 10,000. ``step``: by how much of the mean clipped
    gradient a round moves the weights, above 0. ``clip``: of a gradient's length, above 0, in the
    first round; in every round where ``rule`` is None.
    """

    model: Model
    rounds: int
    step: float
    clip: float
    rule: ClipRule | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise bad_model(f"a model is learnt in 1 to {_MOST_ROUNDS} rounds, got {self.rounds}")
        _check("step", self.step, 0.0, 1e6)
        _check("clip", self.clip, 0.0, 1e6)

    @property
    def dimension(self) -> int:
        """Coordinates of a vector: one for each weight, and one for a clip that adapts."""
        return self.model.size + (self.rule is not None)

    @property
    def bound(self) -> float:
        """The largest length of a vector: what a task's L2 clip must be."""
        return 1.0 if self.rule is None else math.sqrt(1.0 + self.rule.mark**2 / 4.0)

    @property
    def words(self) -> str:
        """All of the plan, exactly, for the end of a task's question: so it is signed with the
        task, and owners read it.
        """
        follows = ""
        if self.rule is not None:
            quantile, rate, mark = self.rule.quantile, self.rule.rate, self.rule.mark
            follows = f" following quantile {quantile!r} at rate {rate!r}, mark {mark!r}"
        return (
            f"{self.model.words} in {self.rounds} rounds, step {self.step!r}, clip "
            f"{self.clip!r}{follows}."
        )

    def names(self, features: tuple[str, ...]) -> tuple[str, ...]:
        """Of a vector's coordinates. Raises INVALID for another number of names."""
        wanted = self.model.features
        if len(features) != wanted:
            raise bad_model(f"{wanted} features have as many names, got {len(features)}")
        return (*self.model.names(features), *(() if self.rule is None else (BELOW,)))


@dataclass(frozen=True, slots=True, eq=False)
class LearningState:
    """After ``done`` rounds. ``weights``: float64[plan.model.size]. ``clip``: of
    the gradients in the next round.
    """

    weights: NDArray[np.float64]
    clip: float
    done: int


def begin_learning(plan: LearningPlan) -> LearningState:
    """Before the first round."""
    return LearningState(plan.model.begin(), plan.clip, 0)


def is_row(plan: LearningPlan, row: NDArray[np.float64]) -> bool:
    """Whether ``gradients`` takes the numbers of a row. Raises INVALID for another number of
    them, which is no matter of their values.
    """
    if row.shape != (plan.model.features,):
        raise bad_model(f"a row has {plan.model.features} numbers, and one yes or no")
    return _within(row)


def _within(rows: NDArray[np.float64]) -> bool:
    # NaN is the largest and the smallest of what it is among, and fails both comparisons
    return not rows.size or bool(rows.max() <= _MOST_OF_ROW and rows.min() >= -_MOST_OF_ROW)


def gradients(
    plan: LearningPlan,
    state: LearningState,
    rows: NDArray[np.float64],
    yes: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """float64[n, plan.model.size]: of each row's loss at the model so far. ``rows``: float64[n,
    plan.model.features], each number finite and at most 10^9 away from 0; ``yes``: bool[n]. Raises
    INVALID for other rows, whatever the model is.
    """
    found = np.zeros((len(rows), plan.model.size))
    _differentiate(plan, state, rows, yes, found)
    return found


def vectors(plan: LearningPlan, clip: float, of: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[n, plan.dimension]: what devices with these gradients answer; each at most
    ``plan.bound`` long. ``of``: float64[n, plan.model.size], believed in nothing. Raises INVALID
    for another shape, NaN, infinity, and numbers whose squares are infinite.
    """
    if of.ndim != 2 or of.shape[1] != plan.model.size or of.dtype != np.float64:
        raise bad_model(f"a gradient of this model has {plan.model.size} numbers of 64 bits")
    found = np.empty((len(of), plan.dimension))
    found[:, : plan.model.size] = of
    _shorten(plan, clip, found)
    return found


def answers(
    plan: LearningPlan,
    state: LearningState,
    rows: NDArray[np.float64],
    yes: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """``vectors`` of ``gradients`` of these rows, in one array: beside the model and the rows there
    is nothing as large in memory. Raises as both do.
    """
    found = np.zeros((len(rows), plan.dimension))
    _differentiate(plan, state, rows, yes, found[:, : plan.model.size])
    _shorten(plan, state.clip, found)
    return found


def _differentiate(
    plan: LearningPlan,
    state: LearningState,
    rows: NDArray[np.float64],
    yes: NDArray[np.bool_],
    into: NDArray[np.float64],
) -> None:
    if rows.ndim != 2 or rows.shape[1] != plan.model.features or yes.shape != rows.shape[:1]:
        raise bad_model(f"a row has {plan.model.features} numbers, and one yes or no")
    if not _within(rows):
        raise bad_model(f"a row holds NaN, or a number beyond {_MOST_OF_ROW:g}: scale it")
    plan.model.gradients(state.weights, rows, yes, into)


def _shorten(plan: LearningPlan, clip: float, gradients: NDArray[np.float64]) -> None:
    """In place: float64[n, plan.dimension], gradients first. Raises INVALID for what has no finite
    length.
    """
    of = gradients[:, : plan.model.size]
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", of, of))
    if not np.isfinite(lengths).all():
        raise bad_model(
            "a gradient holds NaN, infinity or numbers beyond 1e150: nothing was answered; look at "
            "the model's own arithmetic"
        )
    of /= np.maximum(lengths, clip)[:, None]
    if plan.rule is not None:
        gradients[:, -1] = np.where(lengths <= clip, 0.5, -0.5) * plan.rule.mark


def after_round(
    plan: LearningPlan, state: LearningState, totals: NDArray[np.float64], n: int
) -> LearningState:
    """The model after a round whose sum over ``n`` >= 1 devices is ``totals``: float64[
    plan.dimension], finite, and at most 10^9 n away from 0. Raises INVALID for anything else, and
    after the last round.
    """
    return after_parts(plan, state, [totals], n)


def after_parts(
    plan: LearningPlan, state: LearningState, parts: Iterable[NDArray[np.float64]], n: int
) -> LearningState:
    """``after_round``, of totals that come in parts, one after the other: beside the weights before
    and after there is one part in memory. The same model to the last bit, however they are cut.
    Raises as ``after_round``, and what ``parts`` raises.
    """
    if state.done >= plan.rounds:
        raise bad_model(f"the model is learnt in {plan.rounds} rounds: there is none after them")
    wrong = bad_model(f"a round gives {plan.dimension} finite totals over 1 device or more")
    if n < 1:
        raise wrong
    weights, at, last = state.weights.copy(), 0, 0.0
    for part in parts:
        if part.ndim != 1 or not np.isfinite(part).all():
            raise wrong
        moved = weights[at : at + len(part)]  # not of the coordinate that a clip adds
        mean = part / n
        if len(part) and float(np.abs(mean).max()) > _FURTHEST_MEAN:
            raise bad_model(
                f"totals of {n} devices are further out than any noise: no model follows them"
            )
        moved -= plan.step * state.clip * mean[: len(moved)]
        at, last = at + len(part), float(mean[-1]) if len(part) else last
    if at != plan.dimension:
        raise wrong
    return LearningState(weights, _next_clip(plan, state.clip, last), state.done + 1)


def after_nothing(plan: LearningPlan, state: LearningState) -> LearningState:
    """After a round whose release was withheld: the model stays, and the round is over. Raises
    INVALID after the last round.
    """
    if state.done >= plan.rounds:
        raise bad_model(f"the model is learnt in {plan.rounds} rounds: there is none after them")
    return replace(state, done=state.done + 1)


def _next_clip(plan: LearningPlan, clip: float, last: float) -> float:
    """``last``: the mean of the last coordinate."""
    if plan.rule is None:
        return clip
    within = min(1.0, max(0.0, last / plan.rule.mark + 0.5))
    moved = clip * math.exp(-plan.rule.rate * (within - plan.rule.quantile))
    return min(max(moved, plan.clip / _FURTHEST), plan.clip * _FURTHEST)


def _check(name: str, value: float, low: float, high: float, *, inside: bool = False) -> None:
    if not low < value <= high or (inside and value == high):
        raise bad_model(f"{name} is above {low:g} and {'below' if inside else 'at most'} {high:g}")
