"""A model as a plan of sums: what is asked in each round, what it costs, what its task says."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shoal.accounting.sums.windows import epsilon_of_windows
from shoal.analyzer.planner.task_file import Settings
from shoal.analyzer.planner.vectors.asked import VectorRequest
from shoal.analyzer.planner.vectors.choose import plan_vectors
from shoal.analyzer.planner.vectors.learning import (
    HIDDEN,
    ModelAsked,
    epsilon_by_round,
    follows,
    model_plan,
    names_of,
    of_rounds,
    takes,
    told_with,
)
from shoal.domain import Norm
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.quantize import bounds
from shoal.questions.learning import LearningPlan
from shoal.questions.network import Network
from tests.cases import for_each

FEATURES = VectorRequest(
    2, 0.5, 600, 1.0, 1e-6, names=("age", "dose"), honest=Fraction(9, 10), windows=5,
    drop_out=100_000, unit="mg",
)  # fmt: skip
ASKED = ModelAsked(8.0)


def test_a_round_is_a_sum_of_gradients_divided_by_their_clip() -> None:
    """Planted: the gradient's clip for the vector's -> half of the noise is lacking, fails."""
    learning = model_plan(FEATURES, ASKED)
    rounds = of_rounds(FEATURES, learning)
    assert (rounds.dimension, rounds.clip, rounds.unit) == (3, 1.0, "")
    assert rounds.names == ("age", "dose", "intercept")
    assert rounds.ways == ("default", "strict", "helper")
    adaptive = of_rounds(FEATURES, model_plan(FEATURES, ModelAsked(8.0, adaptive=True)))
    assert (adaptive.dimension, adaptive.clip > 1.03) == (4, True)


def test_epsilons_grow_from_one_round_to_the_target() -> None:
    """Each is that of its rounds by the choice's own noise. Planted: all devices for the honest
    survivors -> too small, fails.
    """
    plan = plan_vectors(of_rounds(FEATURES, model_plan(FEATURES, ASKED)))
    found, way = epsilon_by_round(plan), plan.chosen
    assert way.plan is not None
    assert way.spec is not None
    assert way.domain is not None
    honest = way.plan.honest_survivors(900_000)
    assert honest < 600 * 9 // 10
    wanted = tuple(
        epsilon_of_windows(way.spec, bounds(way.domain), 3, honest=honest, windows=at, delta=1e-6)
        for at in range(1, 6)
    )
    assert found == wanted == tuple(sorted(found))
    assert 0.98 < found[-1] <= 1.0
    assert found[0] == way.epsilon


@for_each(
    "changes, said",
    [
        ({"norm": Norm.L1}, "norm l2"),
        ({"enrolled": False}, "enrolled"),
        ({"ways": ("privunit",)}, "by sums"),
    ],
)
def test_what_no_round_can_carry_out(changes: dict[str, object], said: str) -> None:
    features = VectorRequest(2, 0.5, 600, 1.0, 1e-6, **changes)  # type: ignore[arg-type]
    with pytest.raises(ShoalError, match=said) as caught:
        of_rounds(features, model_plan(features, ASKED))
    assert caught.value.kind is Kind.CONFIG


@for_each("length, grace", [(21_600, 5_400), (86_400, 21_600), (4 * 86_400, 86_400)])
def test_a_release_comes_before_its_next_round_is_half_over(length: int, grace: int) -> None:
    """A day after a window at most. Planted: as long as the window -> fails."""
    learning = model_plan(FEATURES, ASKED)
    told = told_with(Settings({"question": "Why?"}, {"length_s": length}), learning)
    assert told.windows == {"length_s": length, "grace_s": grace}
    assert told.texts["question"] == f"Why? {learning.words}"
    own = told_with(Settings({"question": "Why?"}, {"length_s": length, "grace_s": 1}), learning)
    assert own.windows["grace_s"] == 1
    assert told_with(Settings({"question": "Why?"}), learning).windows == {}


@for_each("question", [None, "?" * (LIMITS.text_chars - 20)])
def test_a_question_is_wanted_and_room_for_the_words(question: str | None) -> None:
    texts = {} if question is None else {"question": question}
    with pytest.raises(ShoalError, match="question") as caught:
        told_with(Settings(texts), model_plan(FEATURES, ASKED))
    assert caught.value.kind is Kind.CONFIG


def test_names_that_no_task_has_room_for_are_left_out() -> None:
    """Planted: all names kept -> half a megabyte of them, which no task holds."""
    features = tuple(f"the {at}th number of a device" for at in range(40))
    for hidden, kept in ((3, True), (400, False)):
        learning = LearningPlan(Network(40, hidden, 1), 3, 8.0, 0.5)
        names = names_of(features, learning)
        assert names == (learning.names(features) if kept else ())


def test_what_devices_want_is_said_of_a_network_alone() -> None:
    plain, network = model_plan(FEATURES, ASKED), model_plan(FEATURES, ModelAsked(8.0, HIDDEN))
    assert takes(plain) is None
    assert "shoal[network]" in (takes(network) or "")
    assert follows(plain) is None
    adaptive = model_plan(FEATURES, ModelAsked(8.0, adaptive=True))
    assert "3.1 % larger" in (follows(adaptive) or "")
