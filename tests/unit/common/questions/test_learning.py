"""Learning in rounds: gradients against differences, lengths of vectors, where the clip goes, and
what a plan refuses.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import (
    BELOW,
    ClipRule,
    LearningPlan,
    LearningState,
    after_nothing,
    after_round,
    begin_learning,
    gradients,
    is_row,
    vectors,
)
from shoal.questions.models import INTERCEPT, Logistic
from shoal.questions.network import Network
from tests.cases import for_each

PLAN = LearningPlan(Logistic(2), rounds=3, step=2.0, clip=0.5)
MODELS = Logistic(4), Network(2, 3, 5), Network(2, 3, 6), Network(2, 4, 5), Network(3, 3, 5)
ADAPTIVE = LearningPlan(Logistic(2), rounds=50, step=2.0, clip=8.0, rule=ClipRule(mark=0.5))


def numbers(count: int, seed: str) -> NDArray[np.float64]:
    """float64[count] in [-2, 2]."""
    return SeededEntropy(seed).words(count).astype(np.float64) / 2.0**62 - 2.0


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
    """Whatever the sum says: as if all were within, or none. By hand: rate .5, quantile .7.
    Planted: the share within not kept in 0..1 -> a clip of e^400, fails.
    """
    for total, step in ((1e9, -0.5 * 0.3), (-1e9, 0.5 * 0.7)):
        state = after_round(ADAPTIVE, begin_learning(ADAPTIVE), np.array([0, 0, 0, total]), 10)
        assert state.clip / 8.0 == pytest.approx(math.exp(step), rel=1e-12)


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
        *(replace(PLAN, model=model) for model in MODELS),
        replace(PLAN, rounds=6),
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
        ({"rounds": 0}, "1 to 10000 rounds"),
        ({"step": 0.0}, "step is above 0"),
        ({"step": math.nan}, "step is above 0"),
        ({"clip": math.inf}, "clip is above 0"),
    ],
)
def test_plans_that_cannot_be(changes: dict[str, float], words: str) -> None:
    """Planted: no check of any one of them -> fails."""
    parts: dict[str, Any] = {"model": Logistic(2), "rounds": 3, "step": 1.0, "clip": 1.0, **changes}
    with pytest.raises(ShoalError, match=words) as raised:
        LearningPlan(**parts)
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
    assert after_round(PLAN, begun, np.zeros(3), 1).done == 1
    with pytest.raises(ShoalError, match="none after them"):
        after_round(PLAN, over, np.zeros(3), 1)
    with pytest.raises(ShoalError, match="none after them"):
        after_nothing(PLAN, over)


@for_each(
    "gradient",
    [
        np.array([[0.0, math.inf, 0.0]]),
        np.array([[0.0, math.nan, 0.0]]),
        np.array([[0.0, 1e200, 0.0]]),  # its square is infinite
        np.array([[1.0, 1.0]]),
        np.array([1.0, 1.0, 1.0]),
        np.array([[1.0, 1.0, 1.0]], dtype=np.float32),
    ],
)
def test_a_gradient_is_believed_in_nothing(gradient: NDArray[Any]) -> None:
    """A model whose arithmetic fails ends in one typed line, before there is a vector. Planted: no
    check of the length -> zeros or NaN, fails; none of the shape -> a vector of another length.
    """
    with pytest.raises(ShoalError, match="a gradient") as raised:
        vectors(PLAN, 1.0, gradient)
    assert raised.value.kind is Kind.INVALID
    assert "\n" not in raised.value.message


@for_each("row", [[math.nan, 0.0], [math.inf, 0.0], [2e9, 0.0], [1.0], [1.0, 2.0, 3.0]])
def test_rows_are_refused_whatever_the_model_is(row: list[float]) -> None:
    """So nobody steers which device is missing by the model. Planted: no check -> the answer hangs
    on the weights, fails.
    """
    for weights in (np.zeros(3), np.full(3, 1e32)):
        state = LearningState(weights, 0.5, 1)
        with pytest.raises(ShoalError, match="a row ") as raised:
            gradients(PLAN, state, np.array([row]), np.array([True]))
        assert raised.value.kind is Kind.INVALID


def test_a_row_of_another_length_is_no_matter_of_its_values() -> None:
    """Planted: no look at the length -> taken for a row, fails."""
    assert is_row(PLAN, np.zeros(2))
    assert not is_row(PLAN, np.array([0.0, math.nan]))
    for row in (np.zeros(3), np.zeros(1), np.zeros((1, 2))):
        with pytest.raises(ShoalError, match="a row has 2 numbers"):
            is_row(PLAN, row)


def test_no_totals_lead_to_a_model_without_gradients() -> None:
    """The furthest totals, step and clip that are accepted, in as many rounds as a plan has: every
    row still has a vector. Planted: totals of 1e300 accepted -> NaN at some rows and not at
    others, which says something of them; fails.
    """
    plan = LearningPlan(Logistic(2), 10_000, 1e6, 1e6, ClipRule(rate=5.0))
    far = np.array([1e10, -1e10, 1e10, 1e300])
    with pytest.raises(ShoalError, match="further out than any noise"):
        after_round(plan, begin_learning(plan), far, 10)
    far[-1] = -1e10  # none within: the clip grows
    state = begin_learning(plan)
    for _ in range(plan.rounds):
        state = after_round(plan, state, far, 10)
    assert 1e30 < np.abs(state.weights).max() < 1e32
    for row in ([1e9, 1e9], [-1e9, 1e9], [1e-300, 0.0]):
        for yes in (True, False):
            own = gradients(plan, state, np.array([row]), np.array([yes]))
            assert np.isfinite(vectors(plan, state.clip, own)).all()
