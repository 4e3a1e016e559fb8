"""Curves of binary randomized response, and the directions in which they are rounded."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.accounting.bounds.binary import (
    BinaryEnvelope,
    _less,
    _more,
    _Side,
    binary_interval,
    binary_proves,
)
from shoal.accounting.numerics.binomial import half_width
from shoal.accounting.numerics.search import crossing
from shoal.accounting.numerics.tilted import divergences, tilts
from shoal.errors import ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.bounds.binary_truth import PAIRS, Pair, float_delta, local, symmetric

# --- the curve ------------------------------------------------------------------------------------


@for_each("pair", [*PAIRS[:1], *PAIRS[2:4]])
@for_each("n", [1, 4, 60, 400])
def test_envelopes_hold_every_dataset(pair: Pair, n: int) -> None:
    """The curve at epsilons from 0 to epsilon0 against all m, both directions. Planted: one side
    only -> fails for asymmetric pairs.

    Planted: the last block left out -> fails.
    """
    top, bottom = pair
    envelope = BinaryEnvelope(top, bottom, n, 1e-6)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 9)]) * local(top, bottom)
    found = envelope.deltas(epsilons)
    step = 1 if n <= 60 else size(7, 1)
    for epsilon, bound in zip(epsilons, found, strict=True):
        truth = max(
            float_delta(n, m, float(top), float(bottom), float(epsilon))
            for m in [*range(0, n, step), n - 1]
        )
        assert bound >= truth * (1 - 1e-9) - 1e-14
    assert found[-1] == 0.0
    assert (np.diff(found) <= 0.0).all()


@for_each(
    "epsilon0, n, delta",
    [(0.5, 1000, 1e-6), (4.0, 10**5, 1e-9), (8.0, 10**5, 1e-6), (2.0, 10**7, 1e-12)],
)
def test_envelopes_are_tight_around_the_target(epsilon0: float, n: int, delta: float) -> None:
    """Within 0.5 % in epsilon. Planted: blocks never split -> fails."""
    top, bottom, ceiling = symmetric(epsilon0)
    envelope = BinaryEnvelope(top, bottom, n, delta)
    for wanted in (delta * 100, delta, delta / 100):
        truth = binary_interval(top, bottom, n, wanted, ceiling)
        found = crossing(
            lambda epsilon: float(envelope.deltas(np.array([epsilon]))[0]), wanted, ceiling
        )[1]
        assert truth.lower <= found <= 1.005 * truth.lower


def test_envelopes_are_convex() -> None:
    """A hockey-stick curve is convex in e^epsilon: fixed blocks keep it so, to rounding.

    Planted: every other value 0.1 % larger -> fails.
    """
    top, bottom, ceiling = symmetric(4.0)
    upper = binary_interval(top, bottom, 10**4, 1e-8, ceiling).upper
    epsilons = np.linspace(0.9, 1.0, 200) * upper
    found = BinaryEnvelope(top, bottom, 10**4, 1e-8).deltas(epsilons)
    slopes = np.diff(found) / np.diff(np.exp(epsilons))
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes[1:])).all()


def test_envelopes_refuse_bad_epsilons() -> None:
    envelope = BinaryEnvelope(Fraction(3, 4), Fraction(1, 4), 10, 1e-6)
    with pytest.raises(ShoalError):
        envelope.deltas(np.array([-1.0]))
    with pytest.raises(ShoalError):
        envelope.deltas(np.array([math.nan]))
    assert envelope.deltas(np.array([math.inf])).tolist() == [0.0]
    assert envelope.deltas(np.zeros(0)).tolist() == []


# --- directions of rounding -----------------------------------------------------------------------


def _exactly(value: mpmath.mpf) -> Fraction:
    """A binary number of any length, as it is."""
    sign, mantissa, exponent, _ = value._mpf_
    magnitude = int(mantissa) * (
        Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
    )
    return -magnitude if sign else magnitude


def test_the_exponential_is_rounded_to_the_safe_side() -> None:
    """Against 60 digits, at 400 epsilons: about half of all floats of e^epsilon - 1 lie on the
    wrong side.

    Planted: ``_less`` or ``_more`` without its factor, or with the other one's -> each fails.
    """
    with mpmath.workdps(60):
        for epsilon in np.geomspace(1e-12, 700.0, 400).tolist():
            truth = _exactly(mpmath.expm1(mpmath.mpf(epsilon)))
            assert Fraction(_less(epsilon)) <= truth <= Fraction(_more(epsilon))
            assert _more(epsilon) <= _less(epsilon) * (1 + 1e-14)


def test_curves_and_single_values_err_up_where_one_report_is_all() -> None:
    """n = 1 at epsilon = 0: the divergence is top - bottom, and about half of these fractions round
    down to a float.

    Planted: ``gap * (1 - _SAFE)``, or gap alone, in ``deltas`` or in ``divergences`` -> each fails.
    """
    for over in range(60, 84):
        top, bottom = Fraction(over, 127), Fraction(over, 509)
        assert (
            Fraction(float(BinaryEnvelope(top, bottom, 1, 1e-6).deltas(np.zeros(1))[0]))
            >= top - bottom
        )
        lower, upper = divergences(
            tilts(top, bottom, [top, bottom], [0.0]),
            np.zeros(1, np.int64),
            np.zeros((1, 2), np.int64),
        )
        assert Fraction(float(lower[0])) <= top - bottom <= Fraction(float(upper[0]))


def test_what_is_left_to_chance_is_added_in_full() -> None:
    """Where the divergence itself is 0 a block with L > 0 is bounded by its eta, not by less.

    Planted: ``eta * (1 - _SAFE)`` -> fails.
    """
    side = _Side(Fraction(3, 5), Fraction(2, 5))
    tilt = side.tilts([10.0])
    assert tilt.gap.tolist() == [0.0]
    starts, sizes = np.array([0]), np.array([10_000])
    for eta in np.geomspace(1e-300, 0.1, 50).tolist():
        assert side.kept(sizes, eta)[0] > 0
        assert side.blocks(tilt, np.zeros(1, np.int64), 10_000, starts, sizes, eta)[0] >= eta


def test_blanket_reports_are_counted_down() -> None:
    """Their number is the floor of a Bernstein bound, whose own deviation is taken off, at 300
    sizes.

    Planted: ceil or rint for floor, the deviation left out or added -> each fails.
    """
    side, sizes = _Side(Fraction(9, 10), Fraction(1, 10)), np.arange(1_001, 1_301)
    gamma, unknown = float(side.gamma), (sizes - 1).astype(float)
    bernstein = unknown * gamma - half_width(unknown, gamma, 1.0 - gamma, math.log(1e-6))
    kept = side.kept(sizes, 1e-6)
    assert (kept <= bernstein).all()
    assert (kept > bernstein - 1.0).all()


def test_only_a_refuted_epsilon_is_a_lower_end() -> None:
    """One report, n = 1, exact: at the lower end delta is still above the target, at the upper one
    it is not.

    Planted: the other end of the bracket that ``crossing`` returns -> fails.
    """
    for over in range(60, 84):
        top, bottom, delta = Fraction(over, 127), Fraction(over, 509), 1e-3
        found = binary_interval(top, bottom, 1, delta, local(top, bottom))
        with mpmath.workdps(60):
            low, high = (
                _exactly(mpmath.exp(mpmath.mpf(end))) for end in (found.lower, found.upper)
            )
        for e, above in ((low, True), (high, False)):
            exact = max(top - e * bottom, (1 - bottom) - e * (1 - top))
            assert (exact >= Fraction(delta)) if above else (exact <= Fraction(delta))


def test_every_end_asks_the_safe_side_of_the_exponential() -> None:
    """One report, n = 1, an epsilon 1e-8 below epsilon0: the divergence top - e^epsilon bottom
    moves by 1e-7 of itself where e^epsilon - 1 moves by 1e-15. Nothing below the truth is proven,
    nothing above it is refuted, curves lie above it.

    Planted: ``_more`` for ``_less`` in ``_attempt``, the same in ``deltas``, ``_less`` for
    ``_more`` in ``_refuted`` -> each fails.
    """
    for over in range(30, 50):
        top = Fraction(over, 53)
        bottom = 1 - top
        epsilon = math.log(over / (53 - over)) * (1 - 1e-8)
        with mpmath.workdps(60):
            truth = top - _exactly(mpmath.exp(mpmath.mpf(epsilon))) * bottom
        below, above = float(truth) * (1 - 1e-12), float(truth) * (1 + 1e-12)
        assert not binary_proves(top, bottom, 1, below, epsilon)
        assert binary_interval(top, bottom, 1, above, epsilon).lower < epsilon
        assert truth <= Fraction(
            float(BinaryEnvelope(top, bottom, 1, 1e-6).deltas(np.array([epsilon]))[0])
        )
