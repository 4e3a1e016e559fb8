"""Dummies as the checker counts them, against sums in 60 digits and against what is signed."""

from __future__ import annotations

import itertools
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.checker.errors import UnreadableError
from shoal.checker.exponential import exp_below
from shoal.checker.findings import Outcome
from shoal.checker.several.dummies import DummiesLaw, dummies_law, poisson, repeated
from shoal.checker.several.threshold import is_threshold
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.levels import threshold
from tests.cases import for_each

getcontext().prec = 60
WORDS = 1 << 64
_FAR = 90  # no mass of these laws beyond, to 60 digits


def law_of(mean: str, honest: int = 10, slots: int = 190, uniform: int = 0) -> DummiesLaw:
    """Of dummies with such a mean in a cell."""
    dummies = int(Fraction(mean) * (1 << 32))
    numbers = {"k": 4, "shares": honest, "slots": slots, "dummies": dummies}
    return dummies_law(numbers | ({"uniform": uniform} if uniform else {}))


def weights(law: DummiesLaw, honest: int) -> list[Decimal]:
    mean = Decimal(law.weight * honest) / WORDS
    first = [(-mean).exp()]
    for number in range(1, _FAR):
        first.append(first[-1] * mean / number)
    return first


@for_each("mean", ["0.25", "1.5", "6"])
@for_each("epsilon", [0.0, 0.4, 2.0, 5.0])
def test_the_divergence_of_two_cells(mean: str, epsilon: float) -> None:
    """Every pair of counts, with one message more in one cell or in the other, in both directions.
    Planted: the first number above e b one too high; A and B exchanged -> fails.
    """
    law, e = law_of(mean), exp_below(epsilon)
    f, exact = [Decimal(0), *weights(law, 10)], Decimal(e.numerator) / Decimal(e.denominator)
    ways = [Decimal(0), Decimal(0)]
    for a, b in itertools.product(range(1, _FAR), repeat=2):
        first, second = f[a - 1] * f[b], f[a] * f[b - 1]
        ways[0] += max(Decimal(0), first - exact * second)
        ways[1] += max(Decimal(0), second - exact * first)
    found = law.divergence(10, e)
    assert abs(ways[0] - ways[1]) < Decimal("1e-40")
    assert found.low <= float(ways[0]) <= found.high
    assert found.high - found.low < 1e-10 + 1e-8 * float(ways[0])


@for_each("slots", [2, 7, 30])
def test_the_chance_of_devices_without_room(slots: int) -> None:
    """Planted: one message fewer has no room (``slots`` + 1) -> fails."""
    law = law_of("6", slots=slots)
    mean = Decimal(4 * law.weight) / WORDS
    term, inside = (-mean).exp(), Decimal(0)
    for number in range(1, slots + 1):
        inside, term = inside + term, term * mean / number
    true = float(10 * (1 - inside))
    assert min(1.0, true) <= law.without_room(10) <= true * (1 + 1e-6) + 1e-290


@for_each("n, epsilon, windows", [(200, 2.0, 1), (5_000, 0.5, 8), (650_000, 0.3, 11)])
def test_what_the_accountant_signs_holds_and_less_is_wrong(
    n: int, epsilon: float, windows: int
) -> None:
    """Of one window, and of all. Planted: no charge for devices without room -> more is called
    wrong than is; the charge counted twice -> what is signed is open.
    """
    delta = 1e-8
    noise = design_dummies(97, n, epsilon, delta, windows=windows)
    made = BundledHistogram(tuple(map(str, range(97))), noise)
    bound = certify_messages(protocol_of(made), n, delta)
    assert bound is not None
    law = dummies_law(dict(made.spec.parameters))
    assert law.decide(n, bound.epsilon_upper, delta).outcome is Outcome.HOLDS
    assert law.decide(n, bound.epsilon_upper * 0.99, delta).outcome is Outcome.WRONG
    total = epsilon_together(made, n, windows * delta, windows)
    all_of_them = repeated(law, n, bound.epsilon_upper, windows, windows * delta)
    assert all_of_them is not None
    assert all_of_them.delta(total) <= windows * delta < all_of_them.delta(total * 0.99)


def test_two_windows_are_above_every_pair_of_counts() -> None:
    """Planted: losses cut before the bound is small, without their mass -> fails."""
    law, e = law_of("6"), 2.0
    f = np.array([0.0, *map(float, weights(law, 10)[:30])])
    first, second = (
        np.outer(f[:-1], f[1:]).reshape(-1),
        np.outer(f[1:], f[:-1]).reshape(-1),
    )
    true = np.maximum(0.0, np.outer(first, first) - e * np.outer(second, second)).sum()
    total = repeated(law, 10, 2.0, 2, 1e-3)
    assert total is not None
    assert true <= total.delta(float(np.log(e))) <= true * 1.001


def test_a_true_cell_that_is_drawn_is_bounded_from_above_alone() -> None:
    law = law_of("1.5", uniform=WORDS // 2)
    assert law.ratio == 5  # 1/2 + 1/8 against 1/8
    assert law.decide(10, 1.61, 0.0).outcome is Outcome.HOLDS
    assert law.decide(10, 0.1, 1e-9).outcome is Outcome.OPEN
    assert law_of("1.5").ratio is None


@for_each("changes", [{"k": 1}, {"shares": 0}, {"slots": 1}, {"dummies": 0}, {"uniform": WORDS}])
def test_integers_that_dummies_can_not_have(changes: dict[str, int]) -> None:
    numbers = {"k": 4, "shares": 10, "slots": 9, "dummies": 1 << 32}
    dummies_law(numbers)
    with pytest.raises(UnreadableError):
        dummies_law(numbers | changes)
    with pytest.raises(UnreadableError):
        dummies_law({"k": 4})


def test_more_dummies_than_are_counted_are_open() -> None:
    assert law_of("1e9").decide(10, 1.0, 1e-6).outcome is Outcome.OPEN
    assert law_of("1.5").decide(0, 1.0, 1e-6).outcome is Outcome.OPEN
    with pytest.raises(UnreadableError):
        law_of("1.5").decide(10, -1.0, 1e-6)


def test_chances_sum_to_one() -> None:
    for mean in (1e-3, 0.9, 17.5, 40_000.0):
        law = poisson(mean)
        numbers = law.first + np.arange(len(law.chances))
        assert abs(float(law.chances.sum()) - 1.0) < 1e-12
        assert abs(float((numbers * law.chances).sum()) - mean) < 1e-9 * mean
        assert law.rest < 1e-60


@for_each("uniform", [0, WORDS // 3])
@for_each("cells, reports", [(31, 400), (65, 1_000), (992, 20_000)])
def test_thresholds_are_those_that_the_analyzer_takes(
    uniform: int, cells: int, reports: int
) -> None:
    """And no other. Planted: expected false beginnings of a whole one; the draws of others left
    out -> fails.
    """
    labels = tuple(map(str, range(cells + 1)))
    noise = design_dummies(cells + 1, reports // 2, 2.0, 1e-6)
    response = KaryResponse(labels, uniform) if uniform else None
    made = BundledHistogram(labels, noise, response)
    law = dummies_law(dict(made.spec.parameters))
    least = threshold(made, 7, reports)
    told = [one for one in range(least - 3, least + 4) if is_threshold(law, one, cells, 7, reports)]
    assert told == [least]
    assert not is_threshold(law, least, cells, 7, 0)
