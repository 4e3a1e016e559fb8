"""Dummies: the histogram of all messages in exact fractions at small sizes, published and measured
values at large ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from operator import add

import numpy as np
import pytest
import scipy

from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.dummies import (
    BernoulliDummies,
    UniformDummies,
    fewest_uniform,
    solve_bernoulli,
    solve_uniform,
    uniform_curve,
)
from shoal.accounting.several_messages.messages import (
    LARGEST_EPSILON,
    MessagesBound,
    SeveralMessages,
    certify_messages,
    epsilon_interval,
)
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import Histogram, Law, divergence, whole

DELTA = 1e-6


def convolve(p: Law, q: Law) -> Law:
    out: dict[Histogram, int] = defaultdict(int)
    for a, x in p.weights.items():
        for b, y in q.weights.items():
            out[tuple(map(add, a, b))] += x * y
    return Law(dict(out), p.total * q.total)


def unit(buckets: int, at: int) -> Histogram:
    return tuple(int(i == at) for i in range(buckets))


def certain(outcome: Histogram) -> Law:
    return Law({outcome: 1}, 1)


def dummies_of_one(protocol: SeveralMessages) -> Law:
    """The law of one device's dummies, by its definition."""
    if isinstance(protocol, UniformDummies):
        law = certain((0,) * protocol.buckets)
        one = Law(
            {unit(protocol.buckets, at): 1 for at in range(protocol.buckets)}, protocol.buckets
        )
        for _ in range(protocol.per_device):
            law = convolve(law, one)
        return law
    assert isinstance(protocol, BernoulliDummies)
    none = (0,) * protocol.buckets
    law = certain(none)
    (sent, not_sent), total = whole((protocol.probability, 1 - protocol.probability))
    for at in range(protocol.buckets):
        law = convolve(law, Law({none: not_sent, unit(protocol.buckets, at): sent}, total))
    return law


def truths(protocol: UniformDummies | BernoulliDummies, n: int, e: Fraction) -> set[Fraction]:
    """The divergences of the view, over every dataset, pair of answers and direction: the whole
    pipeline, message by message.
    """
    d, one = protocol.buckets, dummies_of_one(protocol)
    found = set()
    for others in combinations_with_replacement(range(d), n - 1):
        base = one
        for value in others:
            base = convolve(base, convolve(one, certain(unit(d, value))))
        views = [convolve(base, certain(unit(d, x))) for x in range(d)]
        found |= {divergence(views[x], views[y], e) for x, y in permutations(range(d), 2)}
    return found


SMALL: list[tuple[UniformDummies | BernoulliDummies, int]] = [
    (UniformDummies(2, 1), 1),
    (UniformDummies(2, 2), 2),
    (UniformDummies(2, 1), 4),
    (UniformDummies(3, 1), 3),
    (UniformDummies(3, 2), 2),
    (UniformDummies(4, 1), 2),
    (UniformDummies(3, 0), 2),
    (BernoulliDummies(2, Fraction(1, 3)), 1),
    (BernoulliDummies(2, Fraction(1, 2)), 3),
    (BernoulliDummies(2, Fraction(4, 5)), 4),
    (BernoulliDummies(3, Fraction(1, 10)), 3),
    (BernoulliDummies(3, Fraction(2, 3)), 2),
]


@for_each("protocol, n", SMALL)
def test_both_directions_are_the_exact_divergence(
    protocol: UniformDummies | BernoulliDummies, n: int
) -> None:
    """Every dataset, every pair and both directions have one divergence, and the curves enclose it
    within 1e-6 of itself.

    Planted: the victim's own message counted as a dummy -> fails; q = 1/d (one of the two changed
    buckets) -> fails; Poisson counts instead of binomial ones -> fails; the victim's own dummies
    left out -> fails.
    """
    upper, lower = (
        protocol.curve(n, direction, DELTA) for direction in (Direction.UPPER, Direction.LOWER)
    )
    for e in (
        Fraction(1),
        Fraction(21, 20),
        Fraction(4, 3),
        Fraction(2),
        Fraction(3),
        Fraction(10),
        Fraction(10**9),
    ):
        found = truths(protocol, n, e)
        assert len(found) == 1
        truth = float(found.pop())
        epsilon = math.log(e)
        assert lower(epsilon) <= truth * (1 + 1e-14) <= upper(epsilon) * (1 + 2e-14)
        # The margins of ``Curve`` grow with e^epsilon.
        width = 1e-6 if e < 100 else 1e-5
        assert upper(epsilon) <= truth * (1 + width)
        assert lower(epsilon) >= truth * (1 - width)


def plain_uniform(buckets: int, dummies: int, epsilon: float) -> float:
    """E over c of the two-sided sum, by scipy and as the reduction states it."""
    e, total = math.exp(epsilon), 0.0
    for c in range(dummies + 1):
        k = np.arange(c + 2)
        first, second = scipy.stats.binom.pmf(k - 1, c, 0.5), scipy.stats.binom.pmf(k, c, 0.5)
        total += scipy.stats.binom.pmf(c, dummies, 2 / buckets) * float(
            np.maximum(first - e * second, 0).sum()
        )
    return total


def plain_bernoulli(n: int, probability: float, epsilon: float) -> float:
    """The two-dimensional sum over (a, b), entry by entry."""
    f = scipy.stats.binom.pmf(np.arange(-1, n + 2), n, probability)
    own, shifted = f[1:], f[:-1]
    return float(
        np.maximum(np.outer(shifted, own) - math.exp(epsilon) * np.outer(own, shifted), 0).sum()
    )


@pytest.mark.parametrize(("buckets", "dummies"), [(2, 150), (10, 700), (50, 900)])
def test_uniform_matches_a_plain_sum(buckets: int, dummies: int) -> None:
    for epsilon in (0.05, 0.3, 1.0, 2.5):
        truth = plain_uniform(buckets, dummies, epsilon)
        upper, lower = (
            uniform_curve(buckets, dummies, direction, truth)(epsilon)
            for direction in (Direction.UPPER, Direction.LOWER)
        )
        assert lower * (1 - 1e-8) <= truth <= upper * (1 + 1e-8)
        assert upper / lower <= 1 + 1e-6


@pytest.mark.parametrize(
    ("n", "probability"),
    [(40, Fraction(1, 2)), (900, Fraction(1, 20)), (size(700, 3000), Fraction(7, 10))],
)
def test_bernoulli_matches_a_plain_sum(n: int, probability: Fraction) -> None:
    """Planted: ceil(limit) instead of ceil(limit) - 1 as the last b -> upper falls outside 1e-6."""
    protocol = BernoulliDummies(5, probability)
    for epsilon in (0.0, 0.1, 0.7, 1.5):
        truth = plain_bernoulli(n, float(probability), epsilon)
        upper, lower = (
            protocol.curve(n, direction, truth)(epsilon)
            for direction in (Direction.UPPER, Direction.LOWER)
        )
        assert lower * (1 - 1e-8) <= truth <= upper * (1 + 1e-8)
        assert upper / lower <= 1 + 1e-6


@for_each("epsilon, expected", [(0.25, 7.40e5), (0.5, 2.04e5), (1.0, 6.21e4), (2.0, 2.55e4)])
def test_fewest_uniform_dummies_against_the_reference_and_the_rule(
    epsilon: float, expected: float
) -> None:
    """d = 1000, delta = 1e-8. The published rule 32 d ln(2/delta) / eps^2 asks for 6 to 13 times as
    many.

    Planted: the victim's message counted as a dummy -> ``fewest - 1`` suffices too and the
    exactness below fails.
    """
    found = fewest_uniform(1000, epsilon, 1e-8)
    assert found == pytest.approx(expected, rel=3e-3)
    assert uniform_curve(1000, found, Direction.UPPER, 1e-8)(epsilon) <= 1e-8
    assert uniform_curve(1000, found - 1, Direction.UPPER, 1e-8)(epsilon) > 1e-8
    assert uniform_curve(1000, int(found * 0.999), Direction.LOWER, 1e-8)(epsilon) > 1e-8
    rule = 32 * 1000 * math.log(2 / 1e-8) / epsilon**2
    assert 5.9 < rule / found < 13.5


def test_bernoulli_tends_to_the_poisson_reference() -> None:
    """lambda per bucket at n = 1e7: 42.65 at (1, 1e-6), 62.1 at (1, 1e-8), 18.1 at (2, 1e-6), 481
    at (.25, 1e-6).
    """
    for epsilon, delta, expected in (
        (1.0, 1e-6, 42.65),
        (1.0, 1e-8, 62.1),
        (2.0, 1e-6, 18.1),
        (0.25, 1e-6, 481.0),
        (0.1, 1e-6, 2641.0),
    ):
        found = solve_bernoulli(100, 10**7, epsilon, delta)
        assert float(found.probability) * 10**7 == pytest.approx(expected, rel=1.5e-3)


@for_each(
    "n, epsilon, delta",
    [(60, 1.0, 1e-3), (5000, 0.5, 1e-6), (10**6, 1.0, 1e-9), (10**5, 3.0, 1e-30)],
)
def test_solvers_reach_the_target_and_not_less(n: int, epsilon: float, delta: float) -> None:
    many = solve_uniform(20, n, epsilon, delta)
    bound = certify_messages(many, n, delta)
    assert bound is not None
    assert bound.epsilon_upper <= epsilon
    if many.per_device > 1:
        fewer = epsilon_interval(UniformDummies(20, many.per_device - 1), n, delta)
        assert fewer is None or fewer[1] > epsilon
    chosen = solve_bernoulli(20, n, epsilon, delta)
    bound = certify_messages(chosen, n, delta)
    assert bound is not None
    assert bound.epsilon_upper <= epsilon
    assert bound.epsilon_lower >= epsilon * (1 - 1e-5)
    assert (1 << 64) % chosen.probability.denominator == 0


def test_honest_fraction_is_not_ignored() -> None:
    """Half of the devices honest is the bound of half as many. Planted: ``n`` instead of
    ``n_honest`` in ``certify_messages`` -> fails.
    """
    for protocol in (UniformDummies(10, 3), BernoulliDummies(10, Fraction(1, 5))):
        half = certify_messages(protocol, 2000, DELTA, honest_fraction=Fraction(1, 2))
        full = certify_messages(protocol, 2000, DELTA)
        alone = certify_messages(protocol, 1000, DELTA)
        assert half is not None
        assert full is not None
        assert alone is not None
        assert half.n_honest == 1000
        assert half.epsilon_upper == alone.epsilon_upper > full.epsilon_upper * 1.3
        assert any("1000 of the 2000" in text for text in half.assumptions)
        assert certify_messages(protocol, 2000, DELTA, honest_fraction=Fraction(1, 4000)) is None


def test_bounds_tighten_with_devices_and_dummies() -> None:
    before = math.inf
    for n in (300, 1000, 10_000, 100_000, 10_000_000):
        found = epsilon_interval(UniformDummies(8, 1), n, DELTA)
        assert found is not None
        assert found[0] <= found[1] < before
        assert found[1] <= found[0] * (1 + 1e-4)
        before = found[1]


def test_nothing_is_proven_without_enough_dummies() -> None:
    """The true bucket is sent as it is: with none or few dummies no epsilon exists, and none is
    claimed.
    """
    assert certify_messages(UniformDummies(10, 0), 10**6, DELTA) is None
    assert certify_messages(UniformDummies(1000, 1), 100, DELTA) is None
    assert certify_messages(BernoulliDummies(10, Fraction(1, 1000)), 1000, DELTA) is None


def test_a_bound_says_that_the_value_itself_is_at_stake() -> None:
    bound = certify_messages(UniformDummies(4, 2), 1000, DELTA)
    assert bound is not None
    assert bound.epsilon0 == math.inf
    assert "explicit consent" in bound.assumptions[0]
    assert bound.messages_per_device == 3
    assert bound.method == "uniform-dummies"
    with pytest.raises(ShoalError):
        MessagesBound(1.0, 2.0, 1e-6, 10, Fraction(1), "x", Fraction(2), ())
    with pytest.raises(ShoalError):
        MessagesBound(math.inf, 0.0, 1e-6, 10, Fraction(1), "x", Fraction(2), ())
    assert isinstance(UniformDummies(4, 2), SeveralMessages)
    assert BernoulliDummies(4, Fraction(1, 2)).messages_per_device == 3


BAD: list[Callable[[], object]] = [
    lambda: UniformDummies(1, 1),
    lambda: UniformDummies(2, -1),
    lambda: BernoulliDummies(1, Fraction(1, 2)),
    lambda: BernoulliDummies(2, Fraction(0)),
    lambda: BernoulliDummies(2, Fraction(1)),
    lambda: certify_messages(UniformDummies(2, 1), 0, DELTA),
    lambda: certify_messages(UniformDummies(2, 1), 10, 0.0),
    lambda: certify_messages(UniformDummies(2, 1), 10, DELTA, honest_fraction=1.5),
    lambda: fewest_uniform(1000, 0.0, DELTA),
    lambda: fewest_uniform(1000, math.nan, DELTA),
    lambda: fewest_uniform(10**7, 1e-3, 1e-9),
    lambda: solve_bernoulli(10, 100, 0.1, DELTA),
    lambda: solve_bernoulli(10, 0, 1.0, DELTA),
]


@for_each("call", BAD)
def test_bad_numbers_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ShoalError) as caught:
        call()
    assert caught.value.kind is Kind.CONFIG
    assert "\n" not in str(caught.value)


def test_extremes_are_finite_and_quiet() -> None:
    for protocol in (
        UniformDummies(2, 10),
        UniformDummies(10**9, 10**4),
        BernoulliDummies(2, Fraction(1, 1 << 64)),
        BernoulliDummies(2, Fraction(1, 2)),
    ):
        for n in (1, 7, 10**8, 10**11):
            for delta in (1e-100, 1e-6, 0.9):
                found = epsilon_interval(protocol, n, delta)
                assert found is None or 0.0 <= found[0] <= found[1] <= LARGEST_EPSILON
    assert epsilon_interval(UniformDummies(2, 1), 1, 0.9) == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [20.0, 40.0])
def test_what_lies_outside_the_window_is_added(epsilon: float) -> None:
    """No dummy on x' shows the answer for certain: delta is never below P(B = 0) = 0.9^1000, far
    outside the window of B.

    Planted: ``_lost`` = 0 -> the upper curve is 0 at epsilon = 40, this fails.
    """
    protocol, surely = BernoulliDummies(2, Fraction(1, 10)), 0.9**1000
    assert protocol.curve(1000, Direction.UPPER, 1e-3)(epsilon) >= surely
    assert protocol.curve(1000, Direction.LOWER, 1e-3)(epsilon) <= 2 * surely
