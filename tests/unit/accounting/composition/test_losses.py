"""Loss laws built from curves: never below the exact divergence, in either direction, at any
epsilon.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.composition.losses import LossLaw, hockey, loss_law, on_lattice, pure_law
from shoal.accounting.numerics.curve import Curve, Direction
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import whole
from tests.unit.accounting.laws import kary

Pair = tuple[list[Fraction], list[Fraction]]


def random_pairs(rng: random.Random) -> list[Pair]:
    """One to three pairs of distributions on two to six outcomes, with weights from 1 to a random
    largest one.
    """
    width, largest = rng.randint(2, 6), 10 ** rng.randint(1, 7)
    rows = [[rng.randint(1, largest) for _ in range(width)] for _ in range(2 * rng.randint(1, 3))]
    laws = [[Fraction(weight, sum(row)) for weight in row] for row in rows]
    if rng.random() < 0.3:
        # Nearly equal laws: losses around 1e-6.
        laws = [
            [
                (1 - Fraction(1, 10**6)) * a + Fraction(1, 10**6) * b
                for a, b in zip(laws[0], law, strict=True)
            ]
            for law in laws
        ]
    return list(zip(laws[::2], laws[1::2], strict=True))


def divergence(p: Sequence[Fraction], q: Sequence[Fraction], e: Fraction) -> Fraction:
    (first, one), (second, two) = whole(p), whole(q)
    up, down = two * e.denominator, one * e.numerator
    losses = (up * a - down * b for a, b in zip(first, second, strict=True))
    return Fraction(sum(loss for loss in losses if loss > 0), one * up)


def worst(pairs: Sequence[Pair], e: Fraction) -> Fraction:
    return max(max(divergence(p, q, e), divergence(q, p, e)) for p, q in pairs)


def curve_of(pairs: Sequence[Pair]) -> Callable[[float], float]:
    """An upper curve that exceeds the exact one by rounding only."""
    return lambda epsilon: math.nextafter(
        float(worst(pairs, Fraction(math.exp(epsilon) * (1 - 4e-16)))), 1.0
    )


def epsilon0_of(pairs: Sequence[Pair]) -> float:
    ratio = max(max(a / b, b / a) for p, q in pairs for a, b in zip(p, q, strict=True))
    return math.log(float(ratio)) * (1 + 4e-16) + 4e-16


def assert_above(law: LossLaw, pairs: Sequence[Pair], epsilons: Sequence[float]) -> None:
    for epsilon in epsilons:
        exact = worst(pairs, Fraction(math.exp(epsilon) * (1 + 4e-16)))
        assert Fraction(hockey(law, epsilon)) >= exact, epsilon


@pytest.mark.parametrize("tail", [1e-2, 1e-5, 1e-12])
def test_random_pairs_are_dominated(tail: float) -> None:
    """At epsilons of both signs, on and off the lattice, beyond epsilon0 too; also after
    coarsening.

    Planted: infinity mass dropped -> this fails. Planted: values of the next point used, so that
    the interpolation is optimistic -> this fails. Planted: chords in the loss instead of in
    exp(-loss) when coarsening -> this fails. Planted: indices kept on a finer lattice -> this
    fails.
    """
    rng = random.Random(20260101)  # noqa: S311
    for _ in range(size(25, 400)):
        pairs = random_pairs(rng)
        epsilon0 = epsilon0_of(pairs)
        law = loss_law(curve_of(pairs), epsilon0, tail)
        epsilons = [0.0, *(rng.uniform(-1.3, 1.3) * epsilon0 for _ in range(20))]
        epsilons += [law.step * rng.randint(0, 40) * rng.choice([-1, 1]) for _ in range(10)]
        assert_above(law, pairs, epsilons)
        assert hockey(law, -800.0) >= 1.0
        for factor in (0.25, 2, 8, 64):
            assert_above(on_lattice(law, law.step * factor), pairs, epsilons)


def test_one_direction_alone_is_not_enough() -> None:
    """A pair whose two directions differ: the law of a curve covers both, and closely.

    Planted: mirrored masses left at 0 instead of at -l_j (the law of one direction; the check then
    lifts it, so it is loose) -> this fails.
    """

    pairs = [([Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 100), Fraction(99, 100)])]
    law = loss_law(curve_of(pairs), epsilon0_of(pairs), 1e-12)
    assert_above(law, pairs, np.linspace(-5.0, 5.0, 101).tolist())
    assert hockey(law, 0.0) == pytest.approx(0.49, rel=1e-3)
    assert hockey(law, -1.0) == pytest.approx(
        float(worst(pairs, Fraction(math.exp(-1.0)))), rel=1e-3
    )


def test_close_to_the_curve_it_was_built_from() -> None:
    """Within 2 % of the blanket's curve down to 1e-10, in delta. Planted: ``_RATIO`` or
    ``FINENESS`` ten times coarser -> this fails.
    """
    curve = Curve(kary_blanket(kary(2, 2.0), 100_000), Direction.UPPER, 1e-8, 2.0)
    calls: list[float] = []

    def counted(epsilon: float) -> float:
        calls.append(epsilon)
        return curve.delta(epsilon)

    law = loss_law(counted, 2.0, 1e-14)
    assert len(calls) <= 350
    assert all(0.0 <= epsilon < 2.0 for epsilon in calls)
    assert law.infinity < 1e-13
    for epsilon in np.linspace(0.0, 0.05, 41).tolist():
        assert curve.delta(epsilon) <= hockey(law, epsilon) <= curve.delta(epsilon) * 1.02


def test_a_loose_value_at_zero_is_cut_by_the_mirror_chord() -> None:
    """A curve that is useless below epsilon0 gives randomized response at worst. Planted: no chord
    -> a mass above 1, this fails.
    """
    law = loss_law(lambda _: 1.0, 1.0, 1e-9)
    assert float(np.sum(law.masses)) + law.infinity == pytest.approx(1.0, abs=1e-9)
    assert hockey(law, 0.0) == pytest.approx(math.tanh(0.5), rel=0.05)
    assert law.losses[-1] == pytest.approx(1.0, rel=0.05)


@for_each(
    "epsilon, delta",
    [(1.0, 0.0), (0.3, 1e-3), (50.0, 0.0), (1e-5, 1e-9), (0.0, 1e-3), (900.0, 0.25)],
)
def test_pure_law(epsilon: float, delta: float) -> None:
    """Dominates randomized response that fails with probability delta, and hardly more. Planted:
    epsilon rounded down -> this fails.
    """
    law = pure_law(epsilon, delta)
    for at in np.linspace(0.0, epsilon, 7).tolist():
        exact = delta + (1.0 - delta) * -math.expm1(at - epsilon) / (1.0 + math.exp(-epsilon))
        assert exact * (1.0 - 1e-14) <= hockey(law, at) <= (exact + 3e-4 * epsilon) * (1.0 + 1e-9)
    assert hockey(law, epsilon * 1.001 + 1e-300) <= delta * (1.0 + 1e-9)


def test_curves_that_vanish_or_fall_below_the_tail() -> None:
    """Everything at infinity when delta(0) is below the tail; one point at 0 without any loss at
    all.
    """
    law = loss_law(lambda _: 1e-12, 2.0, 1e-9)
    assert hockey(law, 0.0) >= 1e-12
    assert hockey(law, 0.0) <= 1.1e-12
    none = loss_law(lambda _: 0.0, 0.0, 1e-9)
    assert (none.infinity, none.losses.tolist()) == (0.0, [0.0])


@pytest.mark.parametrize("value", [math.nan, -1e-9])
def test_refuses_what_is_no_curve(value: float) -> None:
    with pytest.raises(ShoalError) as error:
        loss_law(lambda _: value, 1.0, 1e-9)
    assert error.value.kind is Kind.INVALID


@for_each("epsilon0, tail", [(-1.0, 1e-9), (math.nan, 1e-9), (800.0, 1e-9), (1.0, 0.0)])
def test_refuses_numbers_out_of_range(epsilon0: float, tail: float) -> None:
    with pytest.raises(ShoalError) as error:
        loss_law(lambda _: 0.5, epsilon0, tail)
    assert error.value.kind is Kind.INVALID


@for_each(
    "step, indices, masses, infinity",
    [
        (0.3, [0], [1.0], 0.0),
        (0.5, [1, 0], [0.5, 0.5], 0.0),
        (0.5, [0], [0.5], 0.0),
        (0.5, [0, 1], [1.5, -0.5], 0.0),
        (0.5, [0], [1.0], -0.1),
    ],
)
def test_a_law_validates(
    step: float, indices: list[int], masses: list[float], infinity: float
) -> None:
    """Total mass below 1, a step that is no power of two, order, signs."""
    with pytest.raises(ShoalError) as error:
        LossLaw(step, np.array(indices, dtype=np.int64), np.array(masses), infinity, 1.0)
    assert error.value.kind is Kind.INVALID
