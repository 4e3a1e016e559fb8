"""Composition: never below the truth (exact rationals, 50 digits), close to it, and within
everything it must not exceed.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.accountant import certify, upper_curve
from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.bounds.clones import clones
from shoal.accounting.composition import tilted_sum
from shoal.accounting.composition.compose import (
    advanced,
    basic,
    compare_composition,
    compose,
    compose_memoized,
    epsilon_of,
    optimal,
    release_law,
    renyi,
)
from shoal.accounting.composition.losses import LossLaw, hockey, loss_law, pure_law
from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.curve import Curve, Direction
from shoal.errors import Kind, ShoalError
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary, pure


@pytest.fixture(scope="module")
def blanket() -> LossLaw:
    curve = Curve(kary_blanket(kary(2, 2.0), 100_000), Direction.UPPER, 1e-8, 2.0)
    return loss_law(curve.delta, 2.0, 1e-14)


@pytest.fixture(scope="module")
def cloned() -> LossLaw:
    curve = Curve(clones(pure(2.0).ratio, 100_000), Direction.UPPER, 1e-8, 2.0)
    return loss_law(curve.delta, 2.0, 1e-14)


def exact_delta(n: int, epsilon0: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """n rounds of binary randomized response on one answer, to 50 digits."""
    keep = 1 / (1 + mpmath.exp(-epsilon0))
    return mpmath.fsum(
        mpmath.binomial(n, k)
        * keep**k
        * (1 - keep) ** (n - k)
        * (1 - mpmath.exp(epsilon - (2 * k - n) * epsilon0))
        for k in range(n // 2, n + 1)
        if (2 * k - n) * epsilon0 > epsilon
    )


def exact_epsilon(n: int, epsilon0: mpmath.mpf, delta: float) -> mpmath.mpf:
    low, high = mpmath.mpf(0), n * epsilon0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(n, epsilon0, middle) > delta else (low, middle)
    return high


@for_each("delta", [1e-8, 1e-14, 1e-90, 1e-2, 1e-12, 1e-30][: size(3, 6)])
def test_randomized_response_to_fifty_digits(delta: float) -> None:
    """epsilon0 on the lattice, so that nothing but rounding remains: above the truth, by at most
    2e-8. At 1e-14 an untilted transform is lost (dp_accounting: 3e-4 below the truth for 100 rounds
    when it may truncate a thousandth of delta).

    Planted: theta = 0 (no tilting) -> this fails. Planted: the bisection's other end -> this fails.
    """
    with mpmath.workdps(50):
        for rounds, epsilon0 in (
            (1, 0.5),
            (30, 0.125),
            (100, pure_law(0.3).losses[-1]),
            (365, 0.125),
            (2000, 2.0**-8),
        ):
            found = mpmath.mpf(compose([(pure_law(epsilon0), rounds)], delta).epsilon_upper)
            assert exact_delta(rounds, mpmath.mpf(epsilon0), found) <= delta
            assert (
                exact_delta(rounds, mpmath.mpf(epsilon0), found * (1 - mpmath.mpf("2e-8"))) > delta
            )


@pytest.mark.parametrize("longest", [1 << 17, 1 << 9])
def test_different_rounds_to_fifty_digits(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three randomizers with lattices of their own against the exact triple sum; also when all must
    be coarsened to fit.

    Planted: a coarser law's indices used as they are on a finer lattice -> this fails.
    """
    monkeypatch.setattr(tilted_sum, "_LONGEST", longest)
    rounds = [(pure_law(0.125), 12), (pure_law(1.0, steps=1), 5), (pure_law(77 / 256, steps=64), 6)]
    with mpmath.workdps(50):
        # Sums of these losses are exact in floats.
        sums = {0.0: mpmath.mpf(1)}
        for law, n in rounds:
            epsilon0 = float(law.losses[-1])
            keep = 1 / (1 + mpmath.exp(-epsilon0))
            longer: dict[float, mpmath.mpf] = defaultdict(mpmath.mpf)
            for k in range(n + 1):
                weight = mpmath.binomial(n, k) * keep**k * (1 - keep) ** (n - k)
                for loss, mass in sums.items():
                    longer[loss + (2 * k - n) * epsilon0] += mass * weight
            sums = dict(longer)
        for delta in (1e-3, 1e-8, 1e-14):
            found = mpmath.mpf(compose(rounds, delta).epsilon_upper)

            def exact(epsilon: mpmath.mpf, losses: dict[float, mpmath.mpf] = sums) -> mpmath.mpf:
                return mpmath.fsum(
                    p * (1 - mpmath.exp(epsilon - loss))
                    for loss, p in losses.items()
                    if loss > epsilon
                )

            assert exact(found) <= delta
            assert exact(found * (1 - mpmath.mpf("1e-7" if longest > 1 << 9 else "0.02"))) > delta


@pytest.mark.parametrize("delta", [1e-3, 1e-14])
def test_the_law_of_a_curve_to_fifty_digits(delta: float) -> None:
    """The same through ``loss_law``: above the truth, by at most 1 %.

    Planted: an optimistic hull (values of the next point) -> this fails.
    """
    with mpmath.workdps(50):
        for epsilon0 in (0.3, 1.7):

            def curve(epsilon: float, top: float = epsilon0) -> float:
                return math.tanh(top / 2) - math.expm1(epsilon) / (1 + math.exp(top)) + 1e-15

            law = loss_law(curve, epsilon0, 1e-30)
            for rounds in (3, 50):
                truth = exact_epsilon(rounds, mpmath.mpf(epsilon0), delta)
                assert (
                    truth
                    <= compose([(law, rounds)], delta).epsilon_upper
                    <= truth * mpmath.mpf("1.01") + 0.01 * epsilon0
                )


def test_low_precision_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transform's inputs rounded to 24 bits and the stated constant scaled with it: still never
    below the truth.

    Planted: the error term left out -> this fails.
    """
    forward = np.fft.rfft
    rng = np.random.default_rng(7)

    def rough(values: Floats) -> NDArray[np.complex128]:
        result = forward(values)
        return np.asarray(result * (1 + (rng.random(result.shape) - 0.5) * 2.0**-20))

    with mpmath.workdps(50):
        monkeypatch.setattr(np.fft, "rfft", rough)
        monkeypatch.setattr(tilted_sum, "_TRANSFORM", 16 * 2.0**-24)
        for delta in (1e-4, 1e-8, 1e-12):
            for _ in range(size(10, 100)):
                found = compose([(pure_law(0.125), 100)], delta).epsilon_upper
                assert exact_delta(100, mpmath.mpf(0.125), mpmath.mpf(found)) <= delta


@functools.cache
def oracle() -> Any:
    """Loaded by who asks: it takes two seconds, and each test process collects all tests."""
    from dp_accounting.pld import pld_pmf  # type: ignore[import-untyped]

    return pld_pmf


def dense(law: LossLaw) -> Any:
    first = int(law.indices[0])
    masses = np.zeros(int(law.indices[-1]) - first + 1)
    masses[law.indices - first] = law.masses
    return oracle().DensePLDPmf(law.step, first, masses, law.infinity, True)


@pytest.mark.parametrize("rounds", [2, 30, 365])
def test_against_dp_accounting(blanket: LossLaw, rounds: int) -> None:
    """The same law composed there agrees to 1e-4; its own connect-the-dots on a uniform grid of the
    same curve, to 1 %.
    """
    ours = compose([(blanket, rounds)], 1e-8).epsilon_upper
    assert ours == pytest.approx(
        dense(blanket).self_compose(rounds, 1e-15).get_epsilon_for_delta(1e-8), rel=1e-4
    )
    curve = Curve(kary_blanket(kary(2, 2.0), 100_000), Direction.UPPER, 1e-8, 2.0)
    grid, reach = 2e-4, 400
    points = np.arange(-reach, reach + 1)
    values = [
        curve.delta(k * grid)
        if k >= 0
        else -math.expm1(k * grid) + math.exp(k * grid) * curve.delta(-k * grid)
        for k in points.tolist()
    ]
    theirs = (
        oracle()
        .create_pmf_pessimistic_connect_dots(grid, points, np.array(values))
        .self_compose(rounds, 1e-15)
    )
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-8), rel=0.01)


def test_reference_values(blanket: LossLaw, cloned: LossLaw) -> None:
    """30 rounds, epsilon0 = 2, n = 1e5, total delta 1e-8: values measured on a grid of 2e-5 by
    other means. Planted: each round composed at delta instead of the total (30 delta spent) -> the
    values are smaller and this fails.
    """
    assert compose([(blanket, 30)], 1e-8).epsilon_upper == pytest.approx(0.2590, rel=0.002)
    assert compose([(cloned, 30)], 1e-8).epsilon_upper == pytest.approx(0.3482, rel=0.002)
    found = compare_composition([(cloned, 30)], 1e-8)
    assert found["renyi"] == pytest.approx(0.3709, rel=0.005)
    assert found["basic"] == pytest.approx(2.021, rel=0.002)
    assert found["advanced"] == pytest.approx(2.408, rel=0.01)
    assert found["pld"] < found["renyi"] < found["optimal"] < found["basic"]
    assert found["optimal"] < found["advanced"]


def test_finer_lattices_change_little(blanket: LossLaw) -> None:
    """Four times as many points: within a thousandth."""
    curve = Curve(kary_blanket(kary(2, 2.0), 100_000), Direction.UPPER, 1e-8, 2.0)
    fine = loss_law(curve.delta, 2.0, 1e-14, step=blanket.step / 4)
    for rounds in (1, 30):
        assert compose([(blanket, rounds)], 1e-8).epsilon_upper == pytest.approx(
            compose([(fine, rounds)], 1e-8).epsilon_upper, rel=1e-3
        )


def test_order_grouping_and_monotonicity(blanket: LossLaw, cloned: LossLaw) -> None:
    """Order and grouping do not matter; more rounds and a smaller delta cost more; laws of very
    different lattices go together.

    Planted: the indices of a coarser law used as they are on the finer lattice -> this fails.
    """
    both = compose([(blanket, 10), (cloned, 5)], 1e-8).epsilon_upper
    assert both == pytest.approx(
        compose([(cloned, 2), (blanket, 10), (cloned, 3)], 1e-8).epsilon_upper, rel=1e-8
    )
    assert (
        compose([(blanket, 15)], 1e-8).epsilon_upper
        < both
        < compose([(cloned, 15)], 1e-8).epsilon_upper
    )
    values = [compose([(blanket, n)], 1e-8).epsilon_upper for n in (1, 2, 3, 10, 100, 1000)]
    assert values == sorted(values)
    values = [compose([(blanket, 10)], delta).epsilon_upper for delta in (1e-2, 1e-6, 1e-8, 1e-12)]
    assert values == sorted(values)
    alone = compose([(pure_law(3.0), 1)], 1e-8).epsilon_upper
    mixed = compose([(pure_law(3.0), 1), (blanket, 3)], 1e-8).epsilon_upper
    assert alone < mixed <= alone + compose([(blanket, 3)], 1e-8).epsilon_upper


def test_never_above_what_simpler_ways_give(blanket: LossLaw) -> None:
    """One round: the law's own epsilon. Pure rounds: the sum of epsilon0's. Planted: no cap -> this
    fails.
    """
    assert compose([(blanket, 1)], 1e-8).epsilon_upper == pytest.approx(
        epsilon_of(blanket, 1e-8), rel=1e-6
    )
    for epsilon0 in (1e-4, 1.0, 30.0, 300.0):
        law = pure_law(epsilon0)
        for rounds in (1, 7, 1000):
            found = compose([(law, rounds)], 1e-12).epsilon_upper
            assert found <= rounds * epsilon0 * (1 + 1e-12)
            assert found <= renyi([(law, rounds)], 1e-12)


def test_open_failure_is_not_forgotten() -> None:
    """Rounds that fail openly with probability 1e-9 each: nothing below that is proven, and there
    is no epsilon0.

    Planted: infinity dropped -> this fails.
    """
    law = pure_law(0.01, 1e-9)
    assert compose([(law, 100)], 1e-8).epsilon_upper == math.inf
    exact = compose([(pure_law(0.01), 100)], 1e-6 - 1e-7).epsilon_upper
    assert compose([(law, 100)], 1e-6).epsilon_upper == pytest.approx(exact, rel=1e-6)
    assert renyi([(law, 100)], 1e-8) == math.inf
    for way in (basic, advanced, optimal):
        assert way([(law, 1)], 1e-10) == math.inf


@pytest.mark.parametrize("way", [renyi, basic, advanced, optimal])
def test_comparison_values_are_upper_bounds(
    way: Callable[[Sequence[tuple[LossLaw, int]], float], float],
) -> None:
    """Each against the exact composition of randomized response. Planted: Renyi's constant smaller
    by 1 -> this fails. Planted: epsilon rounded down to the lattice in ``pure_law`` -> this fails.
    """
    with mpmath.workdps(50):
        for rounds, epsilon0 in ((1, 0.5), (10, 0.125), (size(30, 200), 0.125)):
            for delta in (1e-2, 1e-10):
                found = way([(pure_law(epsilon0), rounds)], delta)
                assert exact_delta(rounds, mpmath.mpf(epsilon0), mpmath.mpf(found)) <= delta


def test_optimal_composition_is_that_of_kairouz_oh_viswanath() -> None:
    """Their Theorem 3.3 for k equal rounds, written out: (k - 2i) epsilon at 1 - (1 - delta)^k (1 -
    delta_i).
    """
    k, epsilon, delta, i = 12, 0.25, 1e-7, 3
    total = (
        mpmath.fsum(
            mpmath.binomial(k, j)
            * (mpmath.exp((k - j) * epsilon) - mpmath.exp((k - 2 * i + j) * epsilon))
            for j in range(i)
        )
        / (1 + mpmath.exp(epsilon)) ** k
    )
    together = float(1 - (1 - mpmath.mpf(delta)) ** k * (1 - total))
    found = compose([(pure_law(epsilon, delta), k)], together).epsilon_upper
    assert (k - 2 * i) * epsilon * (1 - 1e-9) <= found <= (k - 2 * i) * epsilon * (1 + 1e-4)


def blanket_curve(
    privacy: LocalPrivacy, n_honest: int, delta: float
) -> Callable[[float], float] | None:
    if not isinstance(privacy, KaryLaw):
        return None
    return Curve(
        kary_blanket(privacy, n_honest), Direction.UPPER, delta, epsilon0_upper(privacy)
    ).delta


def test_laws_of_several_tasks() -> None:
    """Every release adds its loss; a law serves all releases of its power of ten of delta; without
    amplification epsilon0 adds up.

    Planted: a law's count ignored -> this fails. Planted: no power of ten -> this fails.
    """
    laws = [
        release_law(blanket_curve, kary(2, 2.0), 10_000, 2e-7),
        release_law(blanket_curve, kary(16, 4.0), 5_000, 2e-7),
    ]
    found = compose([(law, 5) for law in laws], 2e-7)
    assert found.count == 10
    one_each = compose([(law, 1) for law in laws], 2e-7).epsilon_upper
    assert 1.5 * one_each < found.epsilon_upper < 4.5
    assert release_law(blanket_curve, kary(2, 2.0), 10_000, 9e-8) is release_law(
        blanket_curve, kary(2, 2.0), 10_000, 1e-8
    )
    alone = compose([(release_law(blanket_curve, pure(1.0), 100, 2e-9), 2)], 2e-9)
    assert alone.epsilon_upper == pytest.approx(2.0, rel=1e-9)
    small = compose([(release_law(blanket_curve, kary(2, 2.0), 1, 1e-9), 1)], 1e-9)
    assert small.epsilon_upper == pytest.approx(2.0, rel=1e-3)


def test_a_curve_with_a_floor_is_cut_off_there() -> None:
    """The exact envelope of binary responses adds up to 1e-6 of delta everywhere: that goes to
    infinity, not to a loss of epsilon0. 30 rounds at n = 1e5, epsilon0 = 2: .1943 on a sparse grid
    of datasets. Planted: ``_TAIL`` below the floor -> this fails.
    """
    law = release_law(upper_curve, kary(2, 2.0), 100_000, 1e-8)
    assert law.infinity <= 4.1e-14
    assert law.losses[-1] < 0.1
    found = compose([(law, 30)], 1e-8).epsilon_upper
    assert found == pytest.approx(0.1941, rel=0.005)
    assert renyi([(law, 30)], 1e-8) < 1.1 * found
    assert epsilon_of(law, 1e-8) <= certify(kary(2, 2.0), 100_000, 1e-8).epsilon_upper * 1.01


def test_memoized_answers() -> None:
    """The smaller of the permanent report's epsilon0 and the fresh layers together; without fresh
    layers only the first.
    """
    fresh = pure_law(0.5)
    few, many = (
        compose_memoized(2.0, [(fresh, 2)], 1e-8),
        compose_memoized(2.0, [(fresh, 30)], 1e-8),
    )
    assert few.epsilon_upper == pytest.approx(1.0)
    assert many.epsilon_upper == 2.0
    assert compose_memoized(2.0, [], 1e-8).epsilon_upper == 2.0
    with pytest.raises(ShoalError, match="memoized") as error:
        compose([(fresh, 2)], 1e-8, memoized=True)
    assert error.value.kind is Kind.CONFIG


@for_each(
    "rounds",
    [
        [],
        [(pure_law(1.0), 0)],
        [(pure_law(1.0), -1)],
        [(pure_law(1.0), 1_000_001)],
        [(pure_law(1.0), True)],
    ],
)
def test_refuses_counts(rounds: list[tuple[LossLaw, int]]) -> None:
    with pytest.raises(ShoalError) as error:
        compose(rounds, 1e-8)
    assert error.value.kind is Kind.CONFIG


@for_each("delta", [0.0, 1.0, -1.0, math.nan, 1e-200])
def test_refuses_deltas(delta: float) -> None:
    for call in (compose, renyi, basic, advanced, optimal):
        with pytest.raises(ShoalError) as error:
            call([(pure_law(1.0), 2)], delta)
        assert error.value.kind is Kind.CONFIG


def test_crossing_uses_the_law(blanket: LossLaw) -> None:
    """``epsilon_of`` is proven by the law's own curve."""
    for delta in (1e-3, 1e-8, 1e-12):
        assert hockey(blanket, epsilon_of(blanket, delta)) <= delta


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.3])
def test_epsilons_of_any_size_compose(delta: float) -> None:
    """From 1e-300 to beyond the floats' exponents, in one composition: finite, at least the largest
    alone, no warning.

    Planted: the step's ratio as an integer -> OverflowError; a mass of 0 kept in ``pure_law`` -> a
    logarithm of 0; a curve asked for at epsilon0 = 921 -> INVALID.
    """
    tiny, large, law = (
        pure_law(1e-300),
        pure_law(900.0),
        release_law(upper_curve, PureLaw(Fraction(10) ** 400), 1000, delta),
    )
    assert (
        3.0 + math.log1p(-delta * (1 + math.exp(-3.0)))
        <= compose([(tiny, 5), (pure_law(3.0), 1)], delta).epsilon_upper
        <= 3.001
    )
    for parts in (
        [(large, 2), (pure_law(1e-5), 5)],
        [(law, 2), (tiny, 3)],
        [(pure_law(900.0, delta / 10), 2), (law, 1)],
    ):
        found = compose(parts, delta).epsilon_upper
        assert (
            sum(
                one.epsilon0 if one.epsilon0 < math.inf else 900.0
                for one, n in parts
                for _ in range(n)
            )
            * 1.001
            >= found
            >= 1800.0 - 2.0
        )
