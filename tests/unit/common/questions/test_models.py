"""Logistic regression: gradients against differences, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.models import Logistic, Model, gradients_of
from tests.cases import for_each

MODEL = Logistic(3)


def numbers(count: int, seed: str) -> NDArray[np.float64]:
    """float64[count] in [-2, 2]."""
    return SeededEntropy(seed).words(count).astype(np.float64) / 2.0**62 - 2.0


def loss(model: Model, weights: NDArray[np.float64], row: NDArray[np.float64], yes: bool) -> float:
    likely = float(model.predict(weights, row[None, :])[0])
    return -math.log(likely if yes else 1.0 - likely)


@for_each("yes", [True, False])
@for_each("seed", ["a", "b", "c"])
def test_gradients_are_those_of_the_loss(seed: str, yes: bool) -> None:
    """Against differences. Planted: the sign turned, the intercept's gradient 0 -> fails."""
    weights, row = numbers(4, f"weights {seed}"), numbers(3, f"row {seed}")
    found = gradients_of(MODEL, weights, row[None, :], np.array([yes]))[0]
    for at in range(4):
        moved = [weights.copy() for _ in range(2)]
        moved[0][at] += 1e-5
        moved[1][at] -= 1e-5
        up, down = (loss(MODEL, one, row, yes) for one in moved)
        assert found[at] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_predictions_do_not_overflow() -> None:
    """Planted: 1 / (1 + exp(-z)) -> a warning that is an error here, or NaN."""
    found = Logistic(1).predict(np.array([1e6, 0.0]), np.array([[1.0], [-1.0], [0.0]]))
    assert found.tolist() == [1.0, 0.0, 0.5]


@for_each("features", [0, (1 << 20) + 1])
def test_models_that_cannot_be(features: int) -> None:
    """Planted: no check -> fails."""
    with pytest.raises(ShoalError, match="1 to 1048576 features") as raised:
        Logistic(features)
    assert raised.value.kind is Kind.INVALID
