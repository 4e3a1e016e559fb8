"""Guarantees before collection, basic composition, and the inverse: how many reports."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product

import mpmath
import pytest

from shoal.accounting import certify, compose_basic, guaranteed
from shoal.accounting.composition.basic import bundled, compose_parallel, group, per_report
from shoal.accounting.solving.solve import smallest_n
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import Truth, divergence, histogram_law, rows_of_kary
from tests.unit.accounting.laws import kary, pure


def test_guarantee_is_that_of_the_smallest_batch() -> None:
    """Planted: honest_fraction ignored -> this fails."""
    found = guaranteed(kary(16, 4.0), 5000, Fraction(9, 10), 1e-8)
    assert found.epsilon_upper == certify(kary(16, 4.0), 4500, 1e-8).epsilon_upper
    assert (found.n, found.n_honest, found.honest_fraction) == (5000, 4500, Fraction(9, 10))


def test_basic_composition_adds_upward() -> None:
    """0.1 ten times is more than 1.0 exactly, though fsum rounds to 1.0. Planted: plain fsum ->
    this fails.
    """
    part = certify(kary(2, 1.0), 100, 1e-6)
    parts = [part] * 10
    total = compose_basic(parts)
    assert total.count == 10
    assert Fraction(total.epsilon_upper) >= 10 * Fraction(part.epsilon_upper)
    assert Fraction(total.delta) >= 10 * Fraction(part.delta)
    assert total.epsilon_upper == pytest.approx(10 * part.epsilon_upper, rel=1e-15)
    tenth = certify(kary(2, 1.0), 1, 0.1)
    assert Fraction(compose_basic([tenth] * 3).delta) >= 3 * Fraction(0.1)
    assert compose_basic([part]).epsilon_upper == part.epsilon_upper


@pytest.mark.parametrize(
    ("parts", "memoized", "words"),
    [(0, False, "nothing"), (2, True, "memoized"), (4, False, "add up")],
)
def test_composition_refuses(parts: int, memoized: bool, words: str) -> None:
    """Nothing, memoized answers, deltas of 1 or more. Planted: ``memoized`` ignored -> this
    fails.
    """
    with pytest.raises(ShoalError, match=words) as error:
        compose_basic([certify(kary(2, 1.0), 10, 0.3)] * parts, memoized=memoized)
    assert error.value.kind is Kind.CONFIG


@for_each(
    "law, target, delta",
    [
        (kary(2, 1.0), 0.3, 1e-6),
        (kary(16, 4.0), 1.0, 1e-8),
        (pure(2.0), 0.5, 1e-8),
        (FiniteLaw(((7, 3), (2, 8))), 0.2, 1e-6),
        (FiniteLaw(((5, 3, 2), (1, 3, 6))), 0.4, 1e-6),
    ],
)
@for_each("share", [Fraction(1), Fraction(2, 3)])
def test_smallest_n(law: LocalPrivacy, target: float, delta: float, share: Fraction) -> None:
    """n is enough and n - 1 is not. Planted: the other end of the bracket returned -> this
    fails.
    """
    n = smallest_n(law, target, delta, honest_fraction=share)
    assert certify(law, n, delta, honest_fraction=share).epsilon_upper <= target
    assert certify(law, n - 1, delta, honest_fraction=share).epsilon_upper > target


def test_smallest_n_at_a_large_scale() -> None:
    n = smallest_n(kary(16, 5.5), 0.05, 1e-6)
    assert 1_000_000 < n < 10_000_000
    assert certify(kary(16, 5.5), n, 1e-6).epsilon_upper <= 0.05
    assert certify(kary(16, 5.5), n * 9997 // 10_000, 1e-6).epsilon_upper > 0.05


@pytest.mark.parametrize("target", [0.05, 0.02][: size(1, 2)])
def test_smallest_n_is_what_certifies(target: float) -> None:
    """Branch and bound may prove a target that the certificate, which stops 1e-4 above its lower
    end, does not reach.

    Planted: no last look with the bound that certifies -> this fails.
    """
    n = smallest_n(kary(2, 2.0), target, 1e-8)
    assert certify(kary(2, 2.0), n, 1e-8).epsilon_upper <= target
    assert certify(kary(2, 2.0), n * 999 // 1000, 1e-8).epsilon_upper > target


def test_smallest_n_without_need() -> None:
    assert smallest_n(kary(2, 1.0), 1.01, 1e-6) == 1


@for_each(
    "target, share, words",
    [
        (0.0, 1.0, "above 0"),
        (-1.0, 1.0, "above 0"),
        (math.nan, 1.0, "above 0"),
        (0.1, 0.0, "honest fraction must be above 0"),
        (1e-7, 1.0, "do not reach"),
    ],
)
def test_smallest_n_refuses(target: float, share: float, words: str) -> None:
    with pytest.raises(ShoalError, match=words) as error:
        smallest_n(kary(2, 4.0), target, 1e-8, honest_fraction=share)
    assert error.value.kind is Kind.CONFIG


def test_parallel_composition_takes_the_largest() -> None:
    """Disjoint devices: epsilon and delta of the worst, each. Planted: delta of the release with
    the largest epsilon -> this fails.
    """
    first, second = certify(kary(2, 1.0), 100, 1e-6), certify(kary(2, 3.0), 100, 1e-8)
    found = compose_parallel([first, second])
    assert (found.epsilon_upper, found.delta, found.count) == (second.epsilon_upper, 1e-6, 2)
    with pytest.raises(ShoalError, match="nothing"):
        compose_parallel([])


@pytest.mark.parametrize("reports", [2, 3])
def test_several_reports_of_one_device_by_brute_force(reports: int) -> None:
    """All datasets of four reports, the device's r replaced by any others at once: ``group`` of the
    exact one-report curve, and ``bundled``, both hold. Planted: epsilon instead of r epsilon ->
    this fails.
    """
    n, rows = 4, rows_of_kary(2, 5, 1)
    truth = Truth(rows, n, symmetric=False)
    views = [
        (histogram_law((*mine, *others), rows), histogram_law((*theirs, *others), rows))
        for others in combinations_with_replacement((0, 1), n - reports)
        for mine, theirs in product(combinations_with_replacement((0, 1), reports), repeat=2)
    ]

    def exact(e: Fraction) -> Fraction:
        return max(divergence(p, q, e) for p, q in views)

    for epsilon in (0.05, 0.3, 0.8, 1.2):
        delta = float(truth.delta(Fraction(math.exp(epsilon) * (1 - 1e-15)))) * (1 + 1e-12)
        try:
            together = group(epsilon, delta, reports)
        except ShoalError:
            continue
        assert exact(Fraction(math.exp(together[0]) * (1 + 1e-15))) <= Fraction(together[1])
    for delta in (0.3, 0.05, 0.002):
        found = bundled(KaryLaw(2, 5, 1), n, reports, delta)
        assert exact(Fraction(math.exp(found) * (1 + 1e-15))) <= Fraction(delta)
        assert found <= reports * math.log(5) * (1 + 1e-9)


def test_group_and_its_inverse() -> None:
    """Round trip, rounded to the safe side; one report is unchanged; many reports have a smaller
    epsilon bundled than chained.

    Planted: per_report rounded up -> this fails. Planted: r delta instead of the geometric sum ->
    this fails. Planted: n_honest tuples instead of floor(n_honest / r) -> this fails.
    """
    for epsilon, delta, reports in (
        (1.0, 1e-6, 3),
        (0.3, 1e-8, 7),
        (0.0, 1e-6, 5),
        (5.0, 1e-3, 2),
        (1e-12, 1e-6, 1000),
    ):
        each = per_report(epsilon, delta, reports)
        back = group(*each, reports)
        assert epsilon * (1 - 1e-14) <= back[0] <= epsilon
        assert delta * (1 - 1e-13) <= back[1] <= delta
    assert group(0.7, 1e-6, 1) == (0.7, 1e-6) == per_report(0.7, 1e-6, 1)
    assert group(0.0, 1e-6, 4)[1] == pytest.approx(4e-6, rel=1e-12)
    exact = sum(math.exp(0.5 * i) for i in range(3)) * 1e-6
    assert exact <= group(0.5, 1e-6, 3)[1] <= exact * (1 + 1e-13)
    assert bundled(kary(2, 0.5), 1003, 4, 1e-8) == pytest.approx(
        certify(pure(2.0), 250, 1e-8).epsilon_upper, rel=1e-6
    )
    assert bundled(kary(2, 0.1), 100_000, 4, 1e-8) < 4 * 0.1


def test_group_in_high_precision() -> None:
    """r epsilon up to 200, where its rounding is what counts. Planted: a margin of 8 units whatever
    r epsilon is -> this fails.
    """
    with mpmath.workdps(60):
        for reports in range(2, 40):
            for epsilon in (7.3 / reports, 100.1 / reports, 199.7 / reports):
                found, delta = group(epsilon, 1e-90, reports)
                assert found >= mpmath.mpf(epsilon) * reports
                exact = mpmath.mpf(1e-90) * mpmath.fsum(
                    mpmath.exp(mpmath.mpf(epsilon) * i) for i in range(reports)
                )
                assert exact <= delta <= exact * (1 + 1e-12)
                each = per_report(epsilon * reports, 1e-3, reports)
                assert (
                    mpmath.mpf(each[1])
                    * mpmath.fsum(mpmath.exp(mpmath.mpf(each[0]) * i) for i in range(reports))
                    <= 1e-3
                )
                assert group(*each, reports)[1] <= 1e-3


@for_each(
    "epsilon, delta, reports",
    [
        (1.0, 0.3, 3),
        (-1.0, 1e-6, 2),
        (math.nan, 1e-6, 2),
        (1.0, 0.0, 2),
        (1.0, 1e-6, 0),
        (900.0, 1e-6, 2),
    ],
)
def test_group_refuses(epsilon: float, delta: float, reports: int) -> None:
    with pytest.raises(ShoalError) as error:
        group(epsilon, delta, reports)
    assert error.value.kind is Kind.CONFIG
