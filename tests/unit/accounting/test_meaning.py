"""The numbers and sentences that people read."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shoal.accounting import certify
from shoal.accounting.meaning import (
    best_guess,
    bound_text,
    error_region,
    least_missed_detection,
    membership_advantage,
    membership_success,
    membership_sum,
    percent_text,
    posterior,
    sentences,
)
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.accounting.laws import kary, pure

EPSILONS = [0.0, 1e-12, 1e-6, 0.01, 0.3, 1.0, 5.0, 40.0, 300.0]
DELTAS = [0.0, 1e-100, 1e-20, 1e-8, 0.1, 0.999]


def exponential(epsilon: float) -> Fraction:
    """e^epsilon from its series, to 1e-60 of itself: an oracle in rationals."""
    halvings = max(0, math.ceil(epsilon).bit_length())
    x, term, total = Fraction(epsilon) / 2**halvings, Fraction(1), Fraction(0)
    for i in range(1, 60):
        total += term
        term = (term * x / i).limit_denominator(1 << 400)
    for _ in range(halvings):
        total = Fraction(round(total * total * 2**400), 2**400)
    return total


def test_best_guess_with_an_even_prior() -> None:
    """(e^eps + delta) / (1 + e^eps), from above. Planted: 1 + delta in the numerator -> this
    fails.
    """
    for epsilon, delta in product([0.0, 1e-6, 0.3, 1.0, 5.0], [0.0, 1e-8, 0.1]):
        expected = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
        assert expected <= best_guess(epsilon, delta) <= min(1.0, expected * (1 + 1e-13))
    assert best_guess(math.log(3.0), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 0.0) == pytest.approx(0.5)
    assert best_guess(1000.0, 0.0) == 1.0


def test_best_guess_is_the_linear_programme() -> None:
    """Against a fine grid of all (P(S), Q(S)) that (epsilon, delta) allows. Planted: without the
    one-sided corners -> fails.
    """
    grid = np.linspace(0.0, 1.0, 401)
    p, q = np.meshgrid(grid, grid)
    for epsilon, delta, prior in product(
        [0.0, 0.5, 2.0], [0.0, 0.05, 0.3], [0.0, 0.1, 0.5, 0.77, 1.0]
    ):
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


def test_posterior_in_rationals() -> None:
    """For every prior, above the truth and within 1e-10 of it, also where floats run out.

    Planted: neither e^-reach moved down nor the result up -> this fails (either margin covers a
    rounded ``reach``: 9e-15 at most).
    """
    for epsilon, prior in product(
        [*EPSILONS, 601.1, 622.7, 650.0, 663.3], [0.0, 1e-300, 1e-9, 0.1, 0.5, 1 - 2**-53, 1.0]
    ):
        e, p = exponential(epsilon), Fraction(prior)
        truth = p * e / (p * e + 1 - p)
        shown = Fraction(posterior(epsilon, 0.0, prior).at_most)
        assert truth <= shown <= truth * (1 + Fraction(1, 10**10))
        # With an exception: odds by e^(epsilon + 0.01) at most.
        loose = posterior(epsilon, 1e-9, prior)
        wide = e * exponential(0.01)
        assert p * wide / (p * wide + 1 - p) <= Fraction(loose.at_most)
        assert (
            Fraction(1e-9) / (1 - 1 / exponential(0.01))
            <= Fraction(loose.except_with)
            <= Fraction(1.01e-7)
        )


def test_posterior_on_the_worst_mechanism() -> None:
    """The four-outcome mechanism that attains (epsilon, delta): only its telltale outcome, of
    probability delta, is convincing.

    Planted: delta where delta / (1 - e^-0.01) belongs -> the second case below fails.
    """
    e, delta = exponential(1.0), Fraction(1, 1000)
    one = (delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), Fraction(0))
    two = (Fraction(0), one[2], one[1], delta)
    # A mechanism whose ratio exceeds e^1.01 on an outcome of probability far above delta: a hair
    # beyond the limit.
    ratio = exponential(1.0101)
    mass = delta / (1 - e / ratio)
    others = ((mass, 1 - mass), (mass / ratio, 1 - mass / ratio))
    for laws in ((one, two), others):
        bound = posterior(1.0, float(delta), 0.3)
        exceptions = [
            p
            for p, q in zip(*laws, strict=True)
            if Fraction(3, 10) * p
            > Fraction(bound.at_most) * (Fraction(3, 10) * p + Fraction(7, 10) * q)
        ]
        assert exceptions
        assert sum(exceptions, Fraction(0)) <= Fraction(bound.except_with)


def test_membership_in_rationals() -> None:
    """Success, sum and advantage, each above the truth and within 1e-13 of it. Planted: e^eps - 1 -
    2 delta -> this fails.
    """
    tight = 1 + Fraction(1, 10**13)
    for epsilon, delta in product(EPSILONS, DELTAS):
        e, d = exponential(epsilon), Fraction(delta)
        success = (e + d) / (1 + e)
        assert success <= membership_success(epsilon, delta) <= success * tight
        assert 2 * success <= membership_sum(epsilon, delta) <= 2 * success * tight
        advantage = (e - 1 + 2 * d) / (e + 1)
        assert advantage <= membership_advantage(epsilon, delta) <= advantage * tight
    assert membership_success(0.0, 0.0) == pytest.approx(0.5)
    assert membership_advantage(0.0, 0.0) == 0.0
    assert membership_advantage(1000.0, 0.0) == 1.0


def test_error_region_in_rationals() -> None:
    """Below the truth, hardly. Planted: the flat line alone, or e^eps rounded down -> this
    fails.
    """
    rates = [0.0, 1e-300, 1e-18, 0.001, 0.05, 0.25, 0.5, 0.9, 1.0]
    for epsilon, delta, false_alarm in product(EPSILONS, DELTAS, rates):
        e, d, p = exponential(epsilon), Fraction(delta), Fraction(false_alarm)
        truth = max(Fraction(0), 1 - d - e * p, (1 - d - p) / e)
        shown = Fraction(least_missed_detection(false_alarm, epsilon, delta))
        assert 0 <= shown <= truth
        assert truth - shown <= Fraction(1, 10**12)
    for epsilon, delta in product(EPSILONS, DELTAS):
        e, d = exponential(epsilon), Fraction(delta)
        zero, both = Fraction(0), (1 - d) / (1 + e)
        exact = ((zero, 1 - d), (both, both), (1 - d, zero))
        for corner, true in zip(error_region(epsilon, delta), exact, strict=True):
            for shown_part, part in zip(corner, true, strict=True):
                assert 0 <= Fraction(shown_part) <= part
                assert part - Fraction(shown_part) <= Fraction(1, 10**13)
    assert least_missed_detection(0.1, 1000.0, 0.0) == 0.0
    assert least_missed_detection(0.0, math.inf, 0.0) == 1.0


def test_error_region_of_shuffled_responses() -> None:
    """Every likelihood-ratio test on a small binary batch lies inside the region of its
    certificate; the certified test is near it.

    Planted: the region of half the epsilon -> tests lie below it.
    """
    n, law = 12, kary(2, 1.5)
    certificate = certify(law, n, 0.01)
    f = Fraction(law.other, law.total)

    def counts(ones: int) -> list[Fraction]:
        probabilities = [Fraction(1)]
        for i in range(n):
            up = 1 - f if i < ones else f
            probabilities = [
                (probabilities[j - 1] if j else Fraction(0)) * up
                + (probabilities[j] if j < len(probabilities) else Fraction(0)) * (1 - up)
                for j in range(len(probabilities) + 1)
            ]
        return probabilities

    quiet, loud = counts(0), counts(1)
    for threshold in range(n + 2):
        false_alarm, missed = (
            sum(quiet[threshold:], Fraction(0)),
            sum(loud[:threshold], Fraction(0)),
        )
        assert (
            missed
            >= least_missed_detection(float(false_alarm), certificate.epsilon_upper, 0.01) - 1e-15
        )
    assert least_missed_detection(0.05, certificate.epsilon_upper, 0.01) < 0.95


def test_percentages_are_printed_on_their_side() -> None:
    """Planted: round() instead of ceil or floor -> this fails."""
    assert (percent_text(0.53341), percent_text(0.53341, up=False)) == ("53.4 %", "53.3 %")
    assert (percent_text(0.5), percent_text(1.0), percent_text(0.0)) == (
        "50.0 %",
        "100.0 %",
        "0.0 %",
    )
    assert (percent_text(0.99999), percent_text(1 - 1e-12)) == ("99.9990 %", "almost 100 %")
    assert (percent_text(0.00012, up=False), percent_text(1e-12, up=False)) == (
        "0.01 %",
        "hardly any",
    )


@for_each(
    "epsilon, delta, prior",
    [(-1.0, 0.0, 0.5), (math.nan, 0.0, 0.5), (1.0, 1.0, 0.5), (1.0, -0.1, 0.5), (1.0, 0.0, 1.5)],
)
def test_bad_numbers(epsilon: float, delta: float, prior: float) -> None:
    for function in (best_guess, posterior, lambda e, d, p: least_missed_detection(p, e, d)):
        with pytest.raises(ShoalError) as error:
            function(epsilon, delta, prior)
        assert error.value.kind is Kind.CONFIG
    if prior == 0.5:
        for other in (membership_success, membership_sum, membership_advantage, error_region):
            with pytest.raises(ShoalError):
                other(epsilon, delta)


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
    assert "10 % likely before can hold it at most 11.4 % likely afterwards" in text
    assert "misses at least 94.2 % of those with it" in text
    assert "epsilon0 = ln 3" in text
    assert "1e-08" in text
    assert "shuffler and analyzer worked together" in text
    assert all("\n" not in line for line in lines)
    assert not any("below epsilon" in line for line in sentences(certify(kary(2, 1e-6), 100, 0.1)))
    open_book = " ".join(sentences(certify(pure(30.0), 10, 1e-8)))
    assert "almost 100 %" in open_book
    assert "may find nearly all of those with it" in open_book
