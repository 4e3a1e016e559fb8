"""Learning in rounds: gradients against differences, lengths of vectors, where the clip goes, and
what a plan refuses.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import (
    BELOW,
    INTERCEPT,
    ClipRule,
    LearningPlan,
    LearningState,
    after_nothing,
    after_round,
    begin_learning,
    gradients,
    predict,
    vectors,
)
from tests.cases import for_each

PLAN = LearningPlan(features=2, rounds=3, step=2.0, clip=0.5)
ADAPTIVE = LearningPlan(features=2, rounds=50, step=2.0, clip=8.0, rule=ClipRule(mark=0.5))


def numbers(count: int, seed: str) -> NDArray[np.float64]:
    """float64[count] in [-2, 2]."""
    return SeededEntropy(seed).words(count).astype(np.float64) / 2.0**62 - 2.0


def loss(weights: NDArray[np.float64], row: NDArray[np.float64], yes: bool) -> float:
    likely = float(predict(weights, row[None, :])[0])
    return -math.log(likely if yes else 1.0 - likely)


@for_each("yes", [True, False])
@for_each("seed", ["a", "b", "c"])
def test_gradients_are_those_of_the_loss(seed: str, yes: bool) -> None:
    """Against differences. Planted: the sign turned, the intercept's gradient 0 -> fails."""
    weights, row = numbers(4, f"weights {seed}"), numbers(3, f"row {seed}")
    found = gradients(weights, row[None, :], np.array([yes]))[0]
    for at in range(4):
        moved = [weights.copy() for _ in range(2)]
        moved[0][at] += 1e-5
        moved[1][at] -= 1e-5
        slope = (loss(moved[0], row, yes) - loss(moved[1], row, yes)) / 2e-5
        assert found[at] == pytest.approx(slope, abs=1e-8)


def test_predictions_do_not_overflow() -> None:
    """Planted: 1 / (1 + exp(-z)) -> a warning that is an error here, or NaN."""
    found = predict(np.array([1e6, 0.0]), np.array([[1.0], [-1.0], [0.0]]))
    assert found.tolist() == [1.0, 0.0, 0.5]


@for_each("plan", [PLAN, ADAPTIVE])
def test_no_vector_is_longer_than_the_bound(plan: LearningPlan) -> None:
    """What the task's clip, and so the noise, is made for. Planted: the mark added without counting
    it into the bound, or a gradient that is not shortened -> fails.
    """
    own = numbers(600, "gradients").reshape(200, 3) * np.array([[1e-6], [1.0], [1e9], [0.3]] * 50)
    for clip in (1e-3, 0.5, 40.0):
        lengths = np.linalg.norm(vectors(plan, clip, own), axis=1)
        assert lengths.max() <= plan.bound * (1 + 1e-12)
        assert lengths.max() > 0.9 * plan.bound or clip == 40.0


def test_a_short_gradient_keeps_its_length() -> None:
    """In clips. Planted: every gradient made 1 long -> fails."""
    found = vectors(PLAN, 0.5, np.array([[0.0, 0.3, 0.0], [3.0, 0.0, 4.0]]))
    assert found.tolist() == [[0.0, 0.6, 0.0], [0.6, 0.0, 0.8]]


def test_the_mark_says_within() -> None:
    """At the clip is within. Planted: the signs exchanged -> the clip would run away, fails."""
    found = vectors(ADAPTIVE, 5.0, np.array([[3.0, 4.0, 0.0], [3.0, 4.0, 0.1]]))
    assert found[:, -1].tolist() == [0.25, -0.25]


def test_a_round_moves_against_the_mean_gradient() -> None:
    """By hand: 2 * 0.5 * (3, -1, 0.5) / 10. Planted: the clip forgotten, + for -, the sum for the
    mean -> fails.
    """
    state = after_round(PLAN, begin_learning(PLAN), np.array([3.0, -1.0, 0.5]), 10)
    assert state.weights == pytest.approx([-0.3, 0.1, -0.05])
    assert (state.clip, state.done) == (0.5, 1)


def test_the_clip_follows_the_quantile() -> None:
    """Lengths spread evenly over 0..1, without noise: the clip ends at the quantile, from far
    above. Planted: the quantile's sign turned, the mark not divided out -> ends elsewhere, fails.
    """
    state, plan = begin_learning(ADAPTIVE), ADAPTIVE
    lengths = (np.arange(1_000) + 0.5) / 1_000
    own = np.stack([lengths, 0 * lengths, 0 * lengths], axis=1)
    for _ in range(plan.rounds):
        total = vectors(plan, state.clip, own).sum(axis=0)
        state = after_round(plan, state, total, len(own))
    assert state.clip == pytest.approx(0.7, abs=0.02)


def test_noise_moves_the_clip_by_a_bounded_step() -> None:
    """Whatever the sum says, by exp(+-rate). Planted: the share within not kept in 0..1 -> a clip
    of e^400, fails.
    """
    for total in (1e9, -1e9):
        state = after_round(ADAPTIVE, begin_learning(ADAPTIVE), np.array([0, 0, 0, total]), 10)
        assert math.exp(-0.5) <= state.clip / 8.0 <= math.exp(0.5)


def test_a_withheld_round_leaves_the_model() -> None:
    """Planted: the round not counted -> the next window's release is refused, fails."""
    state = LearningState(np.ones(3), 0.25, 1)
    after = after_nothing(PLAN, state)
    assert (after.weights.tolist(), after.clip, after.done) == ([1.0, 1.0, 1.0], 0.25, 2)


def test_the_words_are_the_whole_plan() -> None:
    """Two plans that differ anywhere have other words, to the last bit of a number. Planted: six
    digits of the step -> fails; the rule left out -> fails.
    """
    plans = [
        PLAN,
        *(replace(PLAN, **{name: getattr(PLAN, name) * 2}) for name in ("features", "rounds")),
        replace(PLAN, step=math.nextafter(2.0, 3.0)),
        replace(PLAN, clip=math.nextafter(0.5, 1.0)),
        replace(PLAN, rule=ClipRule()),
        *(replace(PLAN, rule=ClipRule(**{name: 0.25})) for name in ("quantile", "rate", "mark")),
    ]
    words = [plan.words for plan in plans]
    assert len(set(words)) == len(plans)
    assert not any(one != other and one.endswith(other) for one in words for other in words)
    assert PLAN.words == "Logistic regression over 2 numbers in 3 rounds, step 2.0, clip 0.5."


def test_names_of_the_coordinates() -> None:
    """Planted: the intercept first -> fails."""
    assert PLAN.names(("a", "b")) == ("a", "b", INTERCEPT)
    assert ADAPTIVE.names(("a", "b")) == ("a", "b", INTERCEPT, BELOW)
    assert ADAPTIVE.dimension == 4
    with pytest.raises(ShoalError, match="2 features have as many names, got 1"):
        PLAN.names(("a",))


@for_each(
    ("changes", "words"),
    [
        ({"features": 0}, "1 to 1048576 features"),
        ({"rounds": 0}, "1 to 10000 rounds"),
        ({"step": 0.0}, "step is above 0"),
        ({"step": math.nan}, "step is above 0"),
        ({"clip": math.inf}, "clip is above 0"),
    ],
)
def test_plans_that_cannot_be(changes: dict[str, float], words: str) -> None:
    """Planted: no check of any one of them -> fails."""
    parts: dict[str, float] = {"features": 2, "rounds": 3, "step": 1.0, "clip": 1.0, **changes}
    with pytest.raises(ShoalError, match=words) as raised:
        LearningPlan(**parts)  # type: ignore[arg-type]
    assert raised.value.kind is Kind.INVALID


@for_each(
    ("changes", "words"),
    [
        ({"quantile": 1.0}, "quantile is above 0 and below 1"),
        ({"quantile": 0.0}, "quantile is above 0"),
        ({"rate": 9.0}, "rate is above 0 and at most 5"),
        ({"mark": 0.0}, "mark is above 0"),
    ],
)
def test_rules_that_cannot_be(changes: dict[str, float], words: str) -> None:
    """Planted: no check of any one of them -> fails."""
    with pytest.raises(ShoalError, match=words):
        ClipRule(**changes)


def test_rounds_that_cannot_be() -> None:
    """Other totals, nobody, NaN, a gradient that is none, and a round after the last. Planted: no
    check of any one of them -> fails.
    """
    begun, over = begin_learning(PLAN), LearningState(np.zeros(3), 0.5, 3)
    for totals, n in ((np.zeros(4), 1), (np.zeros(3), 0), (np.array([0, math.nan, 0]), 1)):
        with pytest.raises(ShoalError, match="3 finite totals"):
            after_round(PLAN, begun, totals, n)
    with pytest.raises(ShoalError, match="none after them"):
        after_round(PLAN, over, np.zeros(3), 1)
    with pytest.raises(ShoalError, match="none after them"):
        after_nothing(PLAN, over)
    with pytest.raises(ShoalError, match="NaN or infinity"):
        vectors(PLAN, 1.0, np.array([[0.0, math.inf, 0.0]]))
