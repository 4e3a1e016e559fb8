"""Laws of losses of several messages per device, and windows of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.losses import hockey
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.loss_lattice import (
    Lattice,
    at_most,
    larger,
    mixed,
    reach_of,
)
from shoal.accounting.several_messages.noise import NoiseProtocol, distance, exact_delta
from shoal.accounting.several_messages.noise_design import (
    design_cancelling,
    design_dummies,
    rounded,
)
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.onlooker import onlooker, onlooker_delta
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from tests.cases import for_each
from tests.unit.accounting.several_messages.devices import pairs_of_views

DELTA = 1e-6
Q = rounded(math.exp(-0.45))
# Sizes and slots so large that they cost nothing.
FREE = {
    "histogram": NoiseLaw(Truth.CELL, 16, 10**5, 600, Q, 200, rounded(191.57), 4),
    "count": NoiseLaw(Truth.SIGN, 1, 10**5, 600, Q, 200, rounded(206.34), 4),
    "dummies": NoiseLaw(Truth.CELL, 16, 10**5, 60, dummies=rounded(42.65)),
}


@for_each("kind", list(FREE))
def test_the_curve_of_the_law_is_that_of_the_release(kind: str) -> None:
    """Never below it, and close above, on both sides of 0: h(1/e) = 1 - 1/e + h(e)/e.

    Planted: losses rounded down to the lattice -> fails; r_j for 1/r_j of x' -> fails; ``certain``
    left out of infinity -> fails.
    """
    law = FREE[kind]
    found = noise_losses(law, law.shares, DELTA)
    assert found is not None
    assert found.epsilon0 == math.inf
    assert distance(law, law.shares, DELTA) < 1e-13
    for epsilon in np.linspace(0.0, 1.0, 23).tolist():
        truth = exact_delta(law, epsilon, DELTA, Direction.LOWER)
        assert truth <= hockey(found, epsilon) <= truth * 1.003 + 1e-9 * DELTA
        other = -math.expm1(-epsilon) + truth * math.exp(-epsilon)
        assert other * (1 - 1e-11) <= hockey(found, -epsilon) <= other * 1.0003
    assert hockey(found, -60.0) >= 1.0 - 1e-12


@for_each(
    "kind, windows, epsilon",
    [
        ("histogram", 1, 1.00),
        ("histogram", 2, 1.9303),
        ("histogram", 4, 3.75),
        ("histogram", 8, 7.31),
        ("histogram", 16, 13.129),
        ("histogram", 30, 20.424),
        ("dummies", 1, 1.00),
        ("dummies", 2, 1.3948),
        ("dummies", 4, 1.99),
        ("dummies", 8, 2.88),
        ("dummies", 16, 4.2202),
        ("dummies", 30, 6.0236),
    ],
)
def test_windows_against_another_program(kind: str, windows: int, epsilon: float) -> None:
    """That one rounded losses up to a grid of 1e-3, so ours are at most as large and 0.3 % smaller
    at most. Planted: one cell's loss alone -> fails.
    """
    found = noise_losses(FREE[kind], 10**5, DELTA)
    assert found is not None
    total = compose([(found, windows)], DELTA).epsilon_upper
    assert 0.997 * epsilon < total < epsilon * 1.001


@for_each("windows, dummies", [(1, 62.11), (5, 262.8), (10, 522.7)])
def test_dummies_for_windows_that_are_known(windows: int, dummies: float) -> None:
    """Dummies per window with which all windows together are (1, 1e-8)."""
    law = NoiseLaw(Truth.CELL, 16, 10**5, 200, dummies=rounded(dummies))
    found = noise_losses(law, 10**5, 1e-8)
    assert found is not None
    assert compose([(found, windows)], 1e-8).epsilon_upper == pytest.approx(1.0, rel=2e-3)


def test_charges_are_in_the_law() -> None:
    """Above the upper curve up to the loss at which it is cut, and not below its value there beyond
    it; one window comes to what the certificate says.

    Planted: ``far`` = 0 in ``_cut`` -> fails; t in place of (1 + exp(L)) t -> fails; the mass
    beyond the cut dropped -> fails.
    """
    for law in (
        design_cancelling(Truth.CELL, 16, 10_000, 1.0, DELTA),
        design_cancelling(Truth.SIGN, 1, 10_000, 1.0, DELTA),
        design_dummies(16, 10_000, 1.0, DELTA),
        NoiseLaw(Truth.CELL, 2, 2, 8, Fraction(1, 4), 3, Fraction(1, 3), 1),
    ):
        found = noise_losses(law, law.shares + 5, DELTA)
        assert found is not None
        upper = NoiseProtocol(law).curve(law.shares, Direction.UPPER, DELTA)
        cut = float(found.losses[-1])
        values = [upper(epsilon) for epsilon in np.linspace(0.0, cut, 40).tolist()]
        for epsilon, value in zip(np.linspace(0.0, cut, 40).tolist(), values, strict=True):
            # The curve is moved up by its own margin, 1e-9 and a little.
            assert hockey(found, epsilon) >= value * (1 - 1.1e-9)
        assert hockey(found, cut + 5.0) >= min(values) * (1 - 1e-6)
        epsilon = compose([(found, 1)], 0.9 if law.shares == 2 else DELTA).epsilon_upper
        assert law.shares == 2 or epsilon == pytest.approx(1.0, rel=2e-3)


def test_charges_add_up_over_windows() -> None:
    """The same noise with a cut and a cap for one window costs more over sixty, and where they
    alone exceed delta nothing is promised.

    Planted: no charge at infinity -> both are equal, fails.
    """
    law = design_cancelling(Truth.CELL, 16, 1_000, 1.0, DELTA)
    assert law.full  # so that all is the analyzer's account
    free = replace(law, slots=400, longest=200)
    totals = []
    for one in (free, law):
        found = noise_losses(one, law.shares, DELTA)
        assert found is not None
        totals.append([compose([(found, windows)], DELTA).epsilon_upper for windows in (1, 8, 60)])
    assert all(more > less for less, more in zip(*totals, strict=True))
    assert math.isfinite(totals[0][2])
    assert totals[1][2] == math.inf
    wide = design_cancelling(Truth.CELL, 16, 1_000, 1.0, DELTA, windows=60)
    found = noise_losses(wide, wide.shares, DELTA)
    assert found is not None
    assert compose([(found, 60)], DELTA).epsilon_upper == pytest.approx(totals[0][2], rel=0.01)
    assert law.slots < wide.slots < 140


@for_each("kind, delta", [("count", 0.1), ("count", 0.2), ("dummies", 0.3), ("dummies", 0.4)])
def test_two_windows_of_all_that_devices_send(kind: str, delta: float) -> None:
    """Every pair of multisets of both windows, cap and cut and all: never above what is promised.

    Planted: one window for two -> fails; ``infinity`` = 0 in ``_cut`` -> fails.
    """
    law = {
        "count": NoiseLaw(Truth.SIGN, 1, 1, 34, Fraction(1, 2), 14, Fraction(3), 2),
        "dummies": NoiseLaw(Truth.CELL, 2, 1, 12, dummies=Fraction(2)),
    }[kind]
    found = noise_losses(law, 1, delta)
    assert found is not None
    epsilon = compose([(found, 2)], delta).epsilon_upper
    assert math.isfinite(epsilon)
    for p, q in pairs_of_views(law, 1):
        e = math.exp(epsilon)
        truth = math.fsum(
            max(0.0, x * y - e * q.get(a, 0.0) * q.get(b, 0.0))
            for a, x in p.items()
            for b, y in p.items()
        )
        assert 0.7 * delta < truth <= delta


def test_too_few_devices_have_no_law() -> None:
    """Planted: ``n_honest`` not looked at -> fails."""
    assert noise_losses(FREE["dummies"], 10**5 - 1, DELTA) is None


LN_2 = math.log(2.0)  # the lattice of the next tests: e is a power of 2 at its points
LATTICES = {
    "crossing": (Lattice(-2, np.array([0.1, 0.2, 0.3, 0.4]), 0.0), Lattice(0, np.ones(1), 0.01)),
    "one above the other": (
        Lattice(-3, np.array([0.5, 0.0, 0.25, 0.25]), 1e-6),
        Lattice(-3, np.array([0.25, 0.25, 0.25, 0.25]), 1e-3),
    ),
    "far apart": (Lattice(-40, np.array([0.9, 0.1]), 0.0), Lattice(35, np.array([1e-9]), 0.2)),
    "nothing finite": (Lattice(0, np.zeros(1), 1.0), Lattice(-1, np.array([0.5, 0.5, 0.1]), 0.0)),
    "at the end of the floats": (
        Lattice(-3, np.array([1.0, 1e-12, 1e-200, 1e-300, 1e-307]), 0.0),
        Lattice(-4, np.array([0.5, 0.5, 0.0, 1e-290, 0.0, 1e-300]), 0.0),
    ),
    "one and the same": (Lattice(1, np.ones(2), 0.0), Lattice(1, np.ones(2), 0.0)),
    "of more than one": (Lattice(0, np.array([1.0, 0.1, 0.01]), 1e-3), Lattice(0, np.ones(2), 0.0)),
}


def exact_curve(lattice: Lattice, e: Fraction) -> Fraction:
    """At any e >= 0, in fractions."""
    total = Fraction(lattice.infinity)
    for at, mass in enumerate(lattice.masses.tolist(), lattice.first):
        total += Fraction(mass) * max(Fraction(0), 1 - e / Fraction(2) ** at)
    return total


@for_each("name", [*LATTICES, "drawn"])
def test_the_larger_of_two_curves(name: str) -> None:
    """Nowhere below either, from e = 0 to beyond the last point, and at all points no more than the
    larger one; in fractions.

    Planted: the slope left of the first point taken as 0 -> fails; heights of ``one`` alone ->
    fails; infinity of ``one`` -> fails; nothing at infinity for what is below the floats -> fails;
    no ``rounding`` -> fails.
    """
    rng = np.random.default_rng(8)
    pairs = [LATTICES[name]] if name in LATTICES else [drawn_pair(rng) for _ in range(40)]
    for one, other in pairs:
        found = larger(one, other, LN_2)
        assert bool(np.all(found.masses >= 0.0))
        ends = range(found.first - 1, found.first + len(found.masses) + 2)
        points = [Fraction(0), *(Fraction(2) ** at for at in ends)]
        between = [point * Fraction(17, 12) for point in points[1:]]
        for e in (*points, *between):
            highest = max(exact_curve(one, e), exact_curve(other, e))
            value = exact_curve(found, e)
            assert value >= highest
            on_lattice = e == 0 or e in points[2:]
            assert not on_lattice or value <= highest * (1 + Fraction(1, 10**10)) + Fraction(3e-280)


def drawn_pair(rng: np.random.Generator) -> tuple[Lattice, Lattice]:
    """Masses of very different sizes, some of them none."""
    one, other = (
        Lattice(
            int(rng.integers(-6, 4)),
            np.exp(rng.uniform(-30.0, 0.0, points)) * (rng.random(points) < 0.7),
            float(rng.choice([0.0, 1e-9, 0.1])),
        )
        for points in rng.integers(1, 9, 2)
    )
    return one, other


def test_the_larger_of_two_long_ones() -> None:
    """Of 40,000 points: rounding adds up, and is made up for. Planted: no ``rounding`` -> fails."""
    step, rng = 2.0**-11, np.random.default_rng(9)
    points = np.arange(-20_000, 20_000) * step
    one = Lattice(-20_000, rng.random(len(points)) * np.exp(-(points**2)), 1e-12)
    other = Lattice(-20_000, rng.random(len(points)) * np.exp(-np.abs(points - 0.1)), 1e-15)
    found = larger(one, other, step)
    for at in range(-1, len(points), 997):
        values = [
            math.fsum((each.masses[at + 1 :] * -np.expm1(points[at] - points[at + 1 :])).tolist())
            if at >= 0
            else math.fsum(each.masses.tolist())
            for each in (one, other, found)
        ]
        first, second, both = (
            value + each.infinity for value, each in zip(values, (one, other, found), strict=True)
        )
        assert max(first, second) <= both <= max(first, second) * (1 + 1e-9)


def test_a_mixture_of_laws() -> None:
    """Its curve is the sum of all curves, each by its weight: never below, and hardly above.

    Planted: a part without its weight -> fails; infinity of the first alone -> fails.
    """
    parts = [
        (weight, lattice)
        for weight, pair in zip((1.0, 0.1, 1e-7), LATTICES.values(), strict=False)
        for lattice in pair
    ]
    found = mixed(parts)
    for e in (Fraction(0), *(Fraction(2) ** at * Fraction(9, 8) for at in range(-42, 38))):
        exact = Fraction(0)
        for weight, each in parts:
            exact += Fraction(weight) * exact_curve(each, e)
        assert exact <= exact_curve(found, e) <= exact * (1 + Fraction(1, 10**12))
    nothing = mixed([])
    assert float(nothing.masses.sum()) == nothing.infinity == 0.0


def test_a_lattice_of_few_events_is_coarser() -> None:
    """Layers of few events have large losses, where the analyzer's are small: the law has a bounded
    number of points all the same, and holds what the shuffler sees.

    Planted: the step of the analyzer alone -> more points, and far more work, fails; nothing
    for a layer without finite losses in ``reach_of`` -> an IndexError, fails.
    """
    law = NoiseLaw(Truth.CELL, 4, 9, 300, Fraction(19, 20), 90, Fraction(100), 40)
    for among in (
        replace(law, empties=Fraction(300), widest=60),
        replace(law, truth=Truth.SIGN, cells=1, floods=Fraction(1), empties=Fraction(14), widest=1),
    ):
        found, seen = noise_losses(among, 9, DELTA), onlooker(among, DELTA)
        assert found is not None
        assert seen.layers
        assert len(found.masses) < 40_000
        for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
            assert hockey(found, epsilon) >= onlooker_delta(seen, epsilon)


def test_the_reach_of_losses() -> None:
    """A power of two as a step, and no loss at all. Planted: rounded down -> fails."""
    losses, masses = np.array([-4.0, 0.5, 3.0, -2.0]), np.array([1e-9, 0.5, 0.1, 0.2])
    assert [reach_of(losses, masses, tail) for tail in (1e-10, 1e-8, 0.2, 0.9)] == [
        4.0,
        3.0,
        2.0,
        0.5,
    ]
    assert reach_of(np.array([50.0]), np.ones(1), 1e-9) == 16.0
    assert reach_of(np.array([]), np.array([]), 1e-9) == 0.0
    for reach in (0.0, 0.1, 1.0, 1.01, 16.0):
        step = at_most(8192, reach)
        assert math.frexp(step)[0] == 0.5
        assert reach <= 8192 * step <= max(2.0 * reach, 2e-9)
