"""Several windows of sums together: the bound against every output of two windows, the second asked
by the worst rule that looks at the first.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.sums.laplace_sum import laplace_epsilon
from shoal.accounting.sums.pairwise import calibrate, certify_sum
from shoal.accounting.sums.skellam import renyi_divergence, skellam_epsilon
from shoal.accounting.sums.sum_task import check_sum
from shoal.accounting.sums.windows import epsilon_of_task, epsilon_of_windows
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import SensitivityBounds, bounds
from shoal.secagg import Mode
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.accounting.noise_laws import Table, product, skellam_log_pmf
from tests.worlds.sums import designed
from tests.worlds.tasks import PAIRWISE

ONE = SensitivityBounds(l1=1, l2_squared=1, linf=1, certain_squared=1)
MANY = SensitivityBounds(l1=10_000, l2_squared=10**8, linf=10**4, certain_squared=10**8)


def moved(table: Table, by: int) -> Table:
    """P(x - by), 0 where that is outside."""
    rolled = np.roll(table, by)
    if by > 0:
        rolled[:by] = 0.0
    elif by < 0:
        rolled[by:] = 0.0
    return rolled


def adaptive_delta(table: Table, most: int, epsilon: float) -> float:
    """The largest delta of two windows: a first shift, and for every output of the first window the
    second shift that is worst there; shifts of -most .. most.
    """
    worst = 0.0
    shifts = range(-most, most + 1)
    for first in shifts:
        there, here = moved(table, first), table
        best = np.zeros(table.size)
        for second in shifts:
            other = moved(table, second)
            gap = np.multiply.outer(there, other) - math.exp(epsilon) * np.multiply.outer(
                here, table
            )
            best = np.maximum(best, np.maximum(gap, 0.0).sum(axis=1))
        worst = max(worst, float(best.sum()))
    return worst


@for_each("variance", [2, 6, 20, 60])
@for_each("delta", [1e-2, 1e-4])
def test_two_windows_against_the_worst_rule(variance: int, delta: float) -> None:
    """Shifts of up to 2 (two vectors of 1), chosen anew after each output. Planted: the divergence
    of one window for both -> the delta is above, fails; divided by two -> fails.
    """
    spec = MechanismSpec.of("skellam", variance=variance, shares=1)
    epsilon = epsilon_of_windows(spec, ONE, 1, honest=1, windows=2, delta=delta)
    table = np.exp(skellam_log_pmf(variance, math.ceil(10 * math.sqrt(variance)) + 10))
    truth = adaptive_delta(table, 2, epsilon)
    assert truth <= delta
    if variance >= 20:  # and not by looseness alone; of little noise the bound is loose
        assert adaptive_delta(table, 2, 0.7 * epsilon) > delta


def test_windows_are_one_vector_of_more_coordinates() -> None:
    """Two windows with a fixed shift are one sum of a vector twice as long: the same number, since
    divergences add over coordinates too. Planted: linear in the squares but not in the first norm
    -> fails where noise is little.
    """
    for variance in (Fraction(1, 2), Fraction(40), Fraction(10_000)):
        for rounds in (1, 2, 7):
            assert skellam_epsilon(variance, 6, 12, 1e-6, rounds) == pytest.approx(
                skellam_epsilon(variance, 6 * rounds, 12 * rounds, 1e-6), rel=1e-9
            )


def test_every_order_is_added_in_full() -> None:
    """The epsilon of k windows is never below what the best order proves for k divergences, and
    hardly above. Planted: the order that is best for one window kept for all -> looser, fails.
    """
    variance, delta = Fraction(500), 1e-6
    for rounds in (2, 10, 100):
        value = skellam_epsilon(variance, 20, 40, delta, rounds)
        proven = min(
            rounds * renyi_divergence(alpha, variance, 20, 40)
            + (-math.log(delta) + (alpha - 1) * math.log1p(-1 / alpha) - math.log(alpha))
            / (alpha - 1)
            for alpha in range(2, 400)
        )
        assert proven - 1e-9 <= value <= proven * 1.001 + 1e-9


def test_laplace_windows_add() -> None:
    """Pure epsilons add, with all shares and with fewer. Planted: the extra steps of fewer shares
    counted once -> fails.
    """
    for r in (Fraction(1), Fraction(2, 3)):
        one = laplace_epsilon(65_536, r, 4, 4)
        assert laplace_epsilon(65_536, r, 4, 4, 5) == pytest.approx(5 * one, rel=1e-9)
        assert laplace_epsilon(65_536, r, 4, 4, 5) >= 5 * one * (1 - 1e-12)
    spec = MechanismSpec.of("discrete_laplace", scale=65_536, shares=3)
    assert epsilon_of_windows(spec, ONE, 1, honest=3, windows=4, delta=1e-6) == 8.0


@for_each("windows", [1, 6, 40])
def test_noise_for_several_windows_is_the_least(windows: int) -> None:
    """The variance that calibration gives is enough, and one less is not. Planted: calibrated for
    one window whatever is asked -> fails at 6.
    """
    spec = calibrate(
        "skellam",
        MANY,
        31,
        epsilon=2.0,
        delta=1e-5,
        survivors=100,
        honest_fraction=1,
        windows=windows,
    )
    less = MechanismSpec.of("skellam", variance=spec.get("variance") - 1, shares=100)
    parts = {"honest": 100, "windows": windows, "delta": 1e-5}
    assert epsilon_of_windows(spec, MANY, 31, **parts) <= 2.0  # type: ignore[arg-type]
    assert epsilon_of_windows(less, MANY, 31, **parts) > 2.0  # type: ignore[arg-type]


def test_laplace_noise_for_several_windows() -> None:
    """Planted: the windows left out of the scale -> the sum is four times the target, fails."""
    spec = calibrate(
        "discrete_laplace",
        ONE,
        1,
        epsilon=2.0,
        delta=1e-5,
        survivors=10,
        honest_fraction=1,
        windows=4,
    )
    assert spec.get("scale") == 65_536 * 4


def test_a_task_is_composed_at_its_guaranteed_honest_devices() -> None:
    """One window: its certificate. More: never above the sum of certificates, and far below it for
    many. Planted: all survivors' noise counted, not the honest ones' -> below the certificate of
    one window, fails.
    """
    task = PAIRWISE
    one = check_sum(task)
    assert epsilon_of_task(task, 1, task.delta) == one.epsilon_upper
    many = epsilon_of_task(task, 30, task.delta)
    each = certify_sum(
        task.mechanism,
        bounds(task.domain),  # type: ignore[arg-type]
        task.domain.size,
        survivors=one.survivors,
        honest_fraction=one.honest_fraction,
        delta=task.delta / 30,
        mode=Mode.DEFAULT,
    ).epsilon_upper
    assert one.epsilon_upper < many <= 30 * each * (1 + 1e-12)


def test_designs_for_several_windows_have_more_noise() -> None:
    """Planted: ``windows`` dropped on its way to calibration -> equal, fails."""
    one, six = (
        designed(8, cohort_max=50, windows=windows).mechanism.get("variance") for windows in (1, 6)
    )
    assert 4.0 < six / one < 7.0


@for_each("windows", [0, -1, True, 1.5])
def test_windows_are_whole_numbers_from_1(windows: int) -> None:
    """Planted: no check -> an epsilon of 0 for no window, which looks like a promise."""
    spec = MechanismSpec.of("skellam", variance=10, shares=1)
    with pytest.raises(ShoalError, match="1 window or more") as raised:
        epsilon_of_windows(spec, ONE, 1, honest=1, windows=windows, delta=1e-6)
    assert raised.value.kind is Kind.INVALID


def test_other_noise_and_no_honest_device_are_refused() -> None:
    """Planted: no check of either -> a division by zero, or a number for a law without a proof."""
    other = MechanismSpec.of("gaussian", shares=1)
    with pytest.raises(ShoalError, match="choose skellam or discrete_laplace"):
        epsilon_of_windows(other, ONE, 1, honest=1, windows=1, delta=1e-6)
    spec = MechanismSpec.of("skellam", variance=10, shares=1)
    with pytest.raises(ShoalError, match="without an honest device"):
        epsilon_of_windows(spec, ONE, 1, honest=0, windows=1, delta=1e-6)


def test_two_coordinates_in_two_windows() -> None:
    """Four coordinates in all, enumerated: sound. Planted: coordinates not counted again per window
    -> fails.
    """
    spec = MechanismSpec.of("skellam", variance=3, shares=1)
    both = SensitivityBounds(l1=1, l2_squared=1, linf=1, certain_squared=1)
    epsilon = epsilon_of_windows(spec, both, 2, honest=1, windows=2, delta=1e-2)
    joint = product(np.exp(skellam_log_pmf(3, 14)), 4)
    shifted = np.roll(joint, (1, 1, 1, 1), (0, 1, 2, 3))
    for axis in range(4):
        front = [slice(None)] * 4
        front[axis] = slice(0, 1)
        shifted[tuple(front)] = 0.0
    assert float(np.maximum(shifted - math.exp(epsilon) * joint, 0.0).sum()) <= 1e-2
