"""The numbers and sentences that people read."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from shoal.accounting import certify
from shoal.accounting.meaning import best_guess, bound_text, posterior, sentences
from shoal.errors import Kind, ShoalError
from tests.unit.accounting.laws import kary, pure


def test_best_guess_with_an_even_prior() -> None:
    """(e^eps + delta) / (1 + e^eps), from above. Planted: 1 + delta in the numerator -> this fails."""
    for epsilon, delta in product([0.0, 1e-6, 0.3, 1.0, 5.0], [0.0, 1e-8, 0.1]):
        expected = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
        assert expected <= best_guess(epsilon, delta) <= min(1.0, expected * (1 + 1e-13))
    assert best_guess(math.log(3.0), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 0.0) == pytest.approx(0.5)
    assert best_guess(1000.0, 0.0) == 1.0


def test_best_guess_is_the_linear_programme() -> None:
    """Against a fine grid of all (P(S), Q(S)) that (epsilon, delta) allows. Planted: without the one-sided corners -> fails."""
    grid = np.linspace(0.0, 1.0, 401)
    p, q = np.meshgrid(grid, grid)
    for epsilon, delta, prior in product([0.0, 0.5, 2.0], [0.0, 0.05, 0.3], [0.0, 0.1, 0.5, 0.77, 1.0]):
        e = math.exp(epsilon)
        allowed = (p <= e * q + delta + 1e-12) & (q <= e * p + delta + 1e-12)
        allowed &= (1 - q <= e * (1 - p) + delta + 1e-12) & (1 - p <= e * (1 - q) + delta + 1e-12)
        best = float(np.max(np.where(allowed, prior * p + (1 - prior) * (1 - q), 0.0)))
        assert best - 1e-9 <= best_guess(epsilon, delta, prior) <= best + 6e-3


def test_randomized_response_attains_the_guess() -> None:
    """With epsilon0 = ln 3 the truth is told 3 times in 4: exactly the bound."""
    assert best_guess(math.log(3), 0.0) >= 0.75


def test_posterior() -> None:
    """Odds grow by e^epsilon at most. Planted: e^-epsilon forgotten -> this fails."""
    assert posterior(1.0, 0.0, 0.5).at_most == pytest.approx(math.e / (1 + math.e))
    assert posterior(1.0, 0.0, 0.5).except_with == 0.0
    assert posterior(0.0, 0.0, 0.3).at_most == pytest.approx(0.3)
    assert posterior(2.0, 0.0, 0.0).at_most == 0.0
    assert posterior(2.0, 0.0, 1.0).at_most == 1.0
    loose = posterior(1.0, 1e-6, 0.5)
    assert loose.at_most > posterior(1.0, 0.0, 0.5).at_most
    assert 1e-4 < loose.except_with < 1.01e-4


@pytest.mark.parametrize(
    ("epsilon", "delta", "prior"), [(-1.0, 0.0, 0.5), (math.nan, 0.0, 0.5), (1.0, 1.0, 0.5), (1.0, -0.1, 0.5), (1.0, 0.0, 1.5)]
)
def test_bad_numbers(epsilon: float, delta: float, prior: float) -> None:
    for function in (best_guess, posterior):
        with pytest.raises(ShoalError) as error:
            function(epsilon, delta, prior)
        assert error.value.kind is Kind.CONFIG


def test_bounds_are_printed_on_their_side() -> None:
    """Planted: plain formatting -> 0.2149280168 becomes 0.2149, below the bound."""
    assert bound_text(0.21492801685) == "0.215"
    assert bound_text(0.21492801685, digits=6) == "0.214929"
    assert bound_text(0.21492801685, up=False) == "0.2149"
    assert bound_text(4.000000000000007) == "4"
    assert bound_text(0.0) == "0"
    assert bound_text(99999.0) == "1e+05"
    for value in np.geomspace(1e-12, 50.0, 200):
        assert float(bound_text(value)) >= value * (1 - 1e-13)
        assert float(bound_text(value, up=False)) <= value * (1 + 1e-13)


def test_sentences_say_what_counts() -> None:
    lines = sentences(certify(kary(16, 4.0), 100_000, 1e-8))
    text = " ".join(lines)
    assert "at most 53.4 % of the time" in text
    assert "epsilon0 = ln 3" in text
    assert "1e-08" in text
    assert "shuffler and analyzer worked together" in text
    assert all("\n" not in line for line in lines)
    assert not any("below epsilon" in line for line in sentences(certify(kary(2, 1e-6), 100, 0.1)))
    assert "almost 100 %" in " ".join(sentences(certify(pure(30.0), 10, 1e-8)))
