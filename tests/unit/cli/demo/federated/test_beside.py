"""What the demo's model is held against: a curator's noise of the right size, and the same model
without any.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.analyzer.planner.accuracy.central import deviation
from shoal.cli.demo.federated import beside, outcome
from shoal.cli.demo.federated.asked import DELTA, EPSILON, plan_of
from shoal.cli.demo.federated.beside import accuracy, learnt_centrally, learnt_openly
from shoal.cli.demo.federated.outcome import measure
from shoal.cli.demo.federated.patients import Patients, load_patients
from shoal.cli.demo.options import Learnt
from shoal.entropy import SeededEntropy
from shoal.questions.models import Logistic
from tests.worlds.pytorch import needs_pytorch, one_thread

LOGISTIC = Logistic(30)


def test_without_privacy_the_model_is_good() -> None:
    """Planted: weights that move with the gradient -> 3 %, fails."""
    asked, held_out = load_patients()
    assert accuracy(LOGISTIC, learnt_openly(LOGISTIC, asked, rounds=1_000), held_out) > 0.95


def test_accuracy_is_a_share() -> None:
    """Planted: the share of errors -> fails."""
    patients = Patients(
        np.array([[1.0], [-1.0], [1.0], [1.0]]), np.array([True, False, True, False])
    )
    assert accuracy(Logistic(1), np.array([1.0, 0.0]), patients) == 0.75


def test_more_privacy_is_less_accuracy() -> None:
    """A fixed seed. Planted: noise that does not depend on what is spent -> equal, fails."""
    asked, held_out = load_patients()
    plan = plan_of(3, adaptive=False)
    much, little = (
        learnt_centrally(plan, asked, held_out, (epsilon, DELTA), 20, SeededEntropy("runs"))
        for epsilon in (0.05, 50.0)
    )
    assert much.mean + 0.05 < little.mean
    assert little.low <= little.mean <= little.high
    assert len(little.by_round) == 3
    assert little.by_round[-1] == pytest.approx(little.mean)


@needs_pytorch
def test_a_network_stands_beside_itself_and_logistic_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A logistic regression has no such line. Planted: the logistic figure of the network's plan ->
    equal, fails.
    """
    one_thread()
    asked, held_out = load_patients()
    monkeypatch.setattr(outcome, "_NETWORK_RUNS", 3)
    monkeypatch.setattr(outcome, "_NETWORK_ROUNDS", 40)
    monkeypatch.setattr(outcome, "_RUNS", 3)
    monkeypatch.setattr(outcome, "OPEN_ROUNDS", 40)
    plans = (plan_of(6, adaptive=False, learnt=one) for one in Learnt)
    plain, network = (measure(one, asked, held_out, SeededEntropy("m")) for one in plans)
    assert plain.logistic is None
    assert network.logistic is not None
    assert network.logistic.mean == plain.central.mean  # the same words were drawn for both
    assert network.central.runs == 3
    assert network.central.by_round != network.logistic.by_round
    assert min(network.openly, network.central.mean) > 0.85


def test_the_curators_noise_is_for_all_rounds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two data sets differ by twice a vector's bound in each round: the root of the rounds times
    that in all. Planted: one round's noise, or a shift of one vector -> fails.
    """
    asked, held_out = load_patients()
    plan, shifts = plan_of(4, adaptive=True), list[float]()

    def spy(shift: float, epsilon: float, delta: float) -> float:
        shifts.append(shift)
        return deviation(shift, epsilon, delta)

    monkeypatch.setattr(beside, "deviation", spy)
    learnt_centrally(plan, asked, held_out, (EPSILON, DELTA), 1, SeededEntropy("one"))
    assert shifts == [pytest.approx(2.0 * math.sqrt(1 + 0.25 / 4) * 2.0)]


def test_normals_have_mean_0_and_variance_1() -> None:
    """A fixed seed; others give a false alarm below 1e-6. Planted: half the words -> fails."""
    drawn = beside._normals(20_000, SeededEntropy("normals"))
    assert abs(drawn.mean()) < 5 / math.sqrt(20_000)
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / 20_000)
    assert np.isfinite(drawn).all()
