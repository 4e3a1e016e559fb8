"""The account of noise that the shuffler adds, against every outcome in exact fractions."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import product

import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.losses import hockey
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.of_domain import design_several, serves
from shoal.accounting.several_messages.shuffler_noise import (
    ShufflerNoiseProtocol,
    design_shuffler_noise,
    shuffler_noise_losses,
)
from shoal.domain import Categories, Words, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.cell_noise import CellNoise
from tests.cases import for_each

HALF, THIRD = 1 << 31, round((1 << 32) / 3)
Law = dict[tuple[int, ...], Fraction]


def view(law: CellNoise, counts: tuple[int, ...]) -> Law:
    """The law of what the analyzer counts in all cells, of devices that sent ``counts``."""
    out: Law = defaultdict(Fraction)
    for noise in product(range(2 * law.reach + 1), repeat=len(counts)):
        mass = math.prod((law.probability(n) for n in noise), start=Fraction(1))
        out[tuple(c + n for c, n in zip(counts, noise, strict=True))] += mass
    return out


def delta_of(p: Law, q: Law, e: Fraction) -> Fraction:
    return sum((max(Fraction(0), mass - e * q.get(at, 0)) for at, mass in p.items()), Fraction(0))


@for_each("ratio, reach", [(HALF, 1), (HALF, 3), (THIRD, 2), ((1 << 32) - 5, 2)])
def test_the_curve_is_that_of_whole_batches(ratio: int, reach: int) -> None:
    """Three cells, every answer of two other devices, every pair of answers, so both directions:
    all of what the analyzer counts, in fractions, at six epsilons; the true value lies between the
    lower and the upper curve, which are 1e-11 apart.

    Planted: one edge alone counted as certain; h to reach instead of reach - 1; q in place of q^2;
    a noise of reach + 1 in the accountant -> each fails.
    """
    law = CellNoise(ratio, reach)
    protocol = ShufflerNoiseProtocol(law)
    upper = protocol.curve(3, Direction.UPPER, 1e-6)
    lower = protocol.curve(3, Direction.LOWER, 1e-6)
    for others in product(range(3), repeat=2):
        laws = [
            view(law, tuple([*others, mine].count(cell) for cell in range(3))) for mine in range(3)
        ]
        for one, other in ((0, 1), (1, 0), (2, 0), (1, 2)):
            for e in map(Fraction, ("1", "5/4", "2", "7/2", "4", "20")):
                exact = delta_of(laws[one], laws[other], e)
                epsilon = math.log(e)
                assert lower(epsilon) <= exact <= upper(epsilon) <= exact + Fraction(1, 10**11)
        if others == (0, 1):
            continue
        if reach > 2:
            break  # one of the others' datasets says as much as nine


@for_each(
    "epsilon, delta, reach, variance",
    [(1.0, 1e-6, 27, 7.83), (1.0, 1e-8, 36, 7.83), (0.5, 1e-6, 50, 31.8), (2.0, 1e-6, 14, 1.84)],
)
def test_designs_have_the_least_reach(
    epsilon: float, delta: float, reach: int, variance: float
) -> None:
    """The values of an independent computation; and a reach one less is refuted by the lower
    curve. Planted: delta halved for one window -> 28, fails.
    """
    law = design_shuffler_noise(epsilon, delta, windows=1)
    assert law.reach == reach
    assert float(law.variance) == pytest.approx(variance, rel=2e-3)
    bound = certify_messages(ShufflerNoiseProtocol(law), 100, delta, honest_fraction=Fraction(1, 2))
    assert bound is not None
    assert bound.epsilon_lower <= bound.epsilon_upper <= epsilon
    assert bound.epsilon_upper <= bound.epsilon_lower * (1 + 1e-8)
    assert bound.epsilon0 == math.inf
    assert "the shuffler is trusted for the noise" in " ".join(bound.assumptions)
    shorter = ShufflerNoiseProtocol(CellNoise(law.ratio, reach - 1))
    assert shorter.curve(1, Direction.LOWER, delta)(epsilon) > delta


def test_any_number_of_devices_has_the_same_bound() -> None:
    protocol = ShufflerNoiseProtocol(design_shuffler_noise(1.0, 1e-6, windows=1))
    bounds = {
        bound.epsilon_upper
        for n in (1, 1_000, 10**9)
        if (bound := certify_messages(protocol, n, 1e-6)) is not None
    }
    assert len(bounds) == 1


@for_each("windows", [1, 2, 3])
def test_windows_compose_as_all_their_losses_do(windows: int) -> None:
    """Against all sums of losses of the exact law, in fractions: never below, and within 1 %.

    Planted: the certain mass of one window alone -> fails; losses of ln(1/q) -> fails.
    """
    law, delta = CellNoise(HALF, 12), 1e-3
    t = law.probability(0)
    h = sum((law.probability(12 + z) for z in range(12)), Fraction(0))
    low = 1 - t - h
    one = {2: h * h, 0: 2 * h * low, -2: low * low}
    total: dict[int, Fraction] = {0: Fraction(1)}
    for _ in range(windows):
        new: dict[int, Fraction] = defaultdict(Fraction)
        for (a, x), (b, y) in product(total.items(), one.items()):
            new[a + b] += x * y
        total = new
    certain = 1 - (1 - t) ** (2 * windows)

    def exact(epsilon: float) -> float:
        found = float(certain)
        for power, mass in total.items():
            found += float(mass) * max(0.0, 1.0 - math.exp(epsilon - power * math.log(2.0)))
        return found

    losses = shuffler_noise_losses(law, delta)
    if windows == 1:
        for epsilon in (0.0, 0.3, 1.0, 1.3):
            assert exact(epsilon) <= hockey(losses, epsilon) <= exact(epsilon) * 1.01 + 1e-8
    found = compose([(losses, windows)], delta).epsilon_upper
    assert exact(found) <= delta * (1 + 1e-9)
    assert exact(found * 0.99) > delta


def test_noise_for_many_windows_leaves_them_an_epsilon() -> None:
    """Planted: a design for one window, thirty times -> no epsilon, fails."""
    for windows in (2, 30):
        law = design_shuffler_noise(1.0, 1e-6, windows=windows)
        losses = shuffler_noise_losses(law, 1e-6)
        assert windows * losses.infinity <= 0.6e-6
        assert compose([(losses, windows)], 1e-6).epsilon_upper <= windows


@for_each(
    "windows, reach, together",
    [(1, 27, 1.0), (2, 29, 2.0), (4, 31, 4.0), (8, 32, 8.0), (16, 34, 14.9), (30, 35, 23.5)],
)
def test_windows_that_are_each_designed_for_one_add_up(
    windows: int, reach: int, together: float
) -> None:
    """The rows of docs/ACCOUNTING.md. Planted: no mass at the loss 0; half of the loss -> fails."""
    law = design_shuffler_noise(1.0, 1e-6, windows=windows)
    assert law.reach == reach
    found = compose([(shuffler_noise_losses(law, 1e-6), windows)], 1e-6).epsilon_upper
    assert float(f"{found:.3g}") == together


@for_each(
    "epsilon, delta, reach, error",
    [(1.0, 1e-6, 27, 2.80), (1.0, 1e-8, 36, 2.80), (0.5, 1e-6, 50, 5.64), (2.0, 1e-6, 14, 1.36)],
)
def test_what_a_count_errs_by(epsilon: float, delta: float, reach: int, error: float) -> None:
    """Rows of docs/MECHANISMS.md, summed over the law. Planted: q = e^(-epsilon / 4) -> fails."""
    law = design_shuffler_noise(epsilon, delta, windows=1)
    assert law.reach == reach
    variance = sum(law.probability(reach + z) * z * z for z in range(-reach, reach + 1))
    assert float(f"{math.sqrt(variance):.3g}") == error


def test_what_can_not_be_had_is_refused_in_a_line() -> None:
    labels = Categories(tuple("abc"))
    assert serves("shuffler_noise", labels)
    assert serves("shuffler_noise", YesNo())
    assert not serves("shuffler_noise", Words(("a", "b")))
    many = Categories(tuple(f"c{n}" for n in range(LIMITS.noise_rows // 54)))
    for domain, epsilon, delta, windows in (
        (labels, 0.001, 1e-6, 1),
        (labels, 0.0, 1e-6, 1),
        (labels, 1.0, 1e-6, 0),
        (many, 1.0, 1e-6, 1),
        (Words(("a", "b")), 1.0, 1e-6, 1),
    ):
        with pytest.raises(ShoalError) as refused:
            design_several("shuffler_noise", domain, 10, epsilon, delta, windows=windows)
        assert refused.value.kind is Kind.CONFIG
        assert "\n" not in refused.value.message
