"""The bound of ``bounds.swap``: its first step against every dataset in exact rationals, what is
computed of it against sums written out, and all of it against real datasets.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest

from shoal.accounting import certify
from shoal.accounting.bounds.swap import SwapCrowd, cap, crowd_weights, swap
from shoal.accounting.numerics.cells import dataset_sums
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.modulus import WeightedSums, _expected, modulus_share, most
from shoal.accounting.numerics.multinomial import sum_curve
from shoal.mechanisms.parts import laws
from shoal.privacy import FiniteLaw, SymmetricLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import Truth

TABLES = (
    FiniteLaw(((6, 2, 1), (1, 6, 2), (2, 1, 6))),
    FiniteLaw(((8, 1, 1), (1, 1, 8), (4, 2, 4))),
    FiniteLaw(((9, 1), (1, 9))),
)
ODDS = (Fraction(1), Fraction(5, 4), Fraction(2))


def rows_of(law: FiniteLaw) -> list[list[Fraction]]:
    return [[Fraction(weight, law.total) for weight in row] for row in law.rows]


def first_step(
    rows: list[list[Fraction]],
    others: tuple[int, ...],
    pair: tuple[int, int],
    crowd: int,
    e: Fraction,
) -> Fraction:
    """E[(W_1 L_1 + ... + W_N L_N)_+] / N by all outcomes: the first ``crowd`` of the others are the
    crowd, the others the places.
    """
    least, (x, x2), places = [min(c) for c in zip(*rows, strict=True)], pair, others[crowd:]
    gamma, outputs, total = sum(least), range(len(least)), Fraction(0)
    for m in range(crowd + 1):
        chance = math.comb(crowd, m) * gamma**m * (1 - gamma) ** (crowd - m)
        for drawn in product(outputs, repeat=m + 1):
            share = math.prod((least[b] / gamma for b in drawn), start=chance)
            weights = [sum(gamma * rows[z][b] / least[b] for b in drawn) / (m + 1) for z in places]
            for seen in product(outputs, repeat=len(places)):
                mass = math.prod(
                    (rows[z][y] for z, y in zip(places, seen, strict=True)), start=share
                )
                value = sum(
                    weight * (rows[x][y] - e * rows[x2][y]) / rows[z][y]
                    for weight, z, y in zip(weights, places, seen, strict=True)
                )
                total += mass * max(value, Fraction(0))
    return total / len(places)


@for_each("law", TABLES)
@for_each("crowd", [0, 1])
def test_the_first_step_is_above_the_truth(law: FiniteLaw, crowd: int) -> None:
    """For every dataset, pair and direction, three others, in rationals. Planted: W = 1 for all
    places (the report that goes into the crowd left out) -> below the truth where answers are
    mixed.
    """
    rows = rows_of(law)
    truth, inputs = Truth(rows, 4), range(len(rows))
    odds = ODDS[1 : size(2, 3)]
    for others in combinations_with_replacement(inputs, 3):
        for pair in permutations(inputs, 2):
            for e in odds:
                assert first_step(rows, others, pair, crowd, e) >= truth.delta_at(others, pair, e)


@for_each("ends", [(Fraction(1, 2), Fraction(3)), (Fraction(9, 10), Fraction(11, 10))])
@for_each("devices, gamma", [(1, Fraction(1, 3)), (40, Fraction(1, 2)), (300, Fraction(1, 20))])
def test_the_weights_are_spread_outward(
    ends: tuple[Fraction, Fraction], devices: int, gamma: Fraction
) -> None:
    """Against V's exact law: no convex function's expectation is smaller, and the mean is 1 to
    1e-6. Planted: the largest m of a block in place of the smallest; points moved to the nearest
    neighbour -> smaller at some place.
    """
    low, high = ends
    up = (1 - low) / (high - low)
    points, chances = crowd_weights(devices, gamma, float(low), float(high))
    assert float(points @ chances) == pytest.approx(1.0, abs=1e-6)
    for at in (low, Fraction(3, 4), Fraction(1), Fraction(5, 4), high - Fraction(1, 100)):
        exact = 0.0
        for m in range(devices + 1):
            chance = math.comb(devices, m) * gamma**m * (1 - gamma) ** (devices - m)
            if chance < Fraction(1, 10**18):
                continue
            for b in range(m + 2):
                share = math.comb(m + 1, b) * float(up) ** b * float(1 - up) ** (m + 1 - b)
                above = max(low + (high - low) * Fraction(b, m + 1) - at, Fraction(0))
                exact += float(chance) * share * float(above)
        assert float(np.maximum(points - float(at), 0.0) @ chances) >= exact * (1 - 1e-9)


def test_every_weight_lies_between_two_points() -> None:
    """Also where the ends have next to no mass. Planted: a grid without its first point, or its
    last -> fails.
    """
    points, chances = crowd_weights(20_000, Fraction(1, 2), 0.2, 1.5)
    assert (points[0], points[-1]) == (0.2, 1.5)
    assert (chances > 0.0).all()


def test_a_cap_counts_what_lies_beyond() -> None:
    """Planted: 1e-3 in place of the factor c -> below the sum."""
    points, chances = crowd_weights(60, Fraction(1, 3), 0.4, 6.0)
    for delta in (0.5, 1e-2, 1e-4, 1e-8):
        below, beyond = cap(points, chances, delta)
        far = points > points[below - 1]
        assert beyond <= delta or below == len(points)
        assert beyond >= float(points[far] @ chances[far])


LEANING = np.array([1.0, -2.5, -0.4]), np.array([0.3, 0.1, 0.6])
STEEP = np.array([1.0, 1.0 - math.e, -40.0]), np.array([0.4, 0.59, 0.01])


@for_each("values, masses", [LEANING, STEEP])
@for_each("places", [3, 40, 5_000])
@for_each("tilt", [0.003, 0.1, 1.0])
def test_the_integral_is_bounded_from_above(
    values: np.ndarray, masses: np.ndarray, places: int, tilt: float
) -> None:
    """Against a fine midpoint sum, to 1e-4 below; and with few bins not below that with many.
    Planted: the right end of near bins; no drift in far ones; no end beyond the last -> below.
    """
    share = float(modulus_share(values, masses, np.array([tilt]), places)[0])
    a = tilt * values
    shares = masses * np.exp(a - a.max())
    shares /= shares.sum()
    angles = (np.arange(400_000) + 0.5) * (math.pi / 2.0 / 400_000)
    x = np.tan(angles)
    psi = sum(q * np.exp(1j * x * step) for q, step in zip(shares, a, strict=True))
    exact = float((np.abs(psi) ** places).mean())
    assert share >= exact * (1.0 - 1e-4)
    if values is LEANING[0] and tilt < 1.0:
        assert share <= exact * 1.03 + 0.01
    for bins in ((16, 0), (400, 40), (400, 7)):
        assert modulus_share(values, masses, np.array([tilt]), places, bins)[0] >= share * (
            1 - 1e-9
        )


def test_an_expectation_is_of_the_integral_as_defined() -> None:
    """1/(2 pi) int |phi(u v)|^N / |u|^2 over omega, by a fine sum: within 4 % above, for N = 4, two
    weights. Planted: a power of N - 1; 1/t or 1/(4 t) for 1/(2 t) -> outside.
    """
    values, masses = LEANING
    omega = np.tan((np.arange(400_000) + 0.5) * (math.pi / 400_000) - math.pi / 2.0)
    for t, weights in ((0.2, (0.9, 1.1)), (1.0, (0.5, 2.0))):
        u, exact = t + 1j * omega, 0.0
        for v in weights:
            phi = np.exp(np.outer(u * v, values)) @ masses
            height = np.abs(phi) ** 4 / np.abs(u) ** 2 * (1.0 + omega**2)
            exact += 0.5 * float(height.mean()) * math.pi / (2.0 * math.pi) / 4.0
        question = WeightedSums(
            values[None], masses[None], t, 4, np.array(weights), np.array([0.5, 0.5]), 2
        )
        found = most(question, 1e-9)
        assert exact <= found <= exact * 1.04


def test_heights_are_replaced_by_a_convex_function_above() -> None:
    """H at every point, from an expectation of that point alone; 100 random heights, of which the
    first 12 are wanted. Planted: a slope that may fall; half a slope -> not convex, or below.
    """
    rng = np.random.default_rng(7)
    points = np.cumsum(rng.uniform(0.1, 1.0, 16))
    for _ in range(100):
        heights = rng.exponential(size=(1, 12)) ** 3
        h = np.array(
            [
                _expected(WeightedSums(heights, heights, 1.0, 1, points, unit, 12), heights)[0]
                for unit in np.eye(16)
            ]
        )
        assert (h[:12] >= heights[0]).all()
        slopes = np.diff(h) / np.diff(points)
        assert (np.diff(slopes) >= -1e-6 * np.abs(slopes).max()).all()
        assert slopes[-1] >= 0.0


@for_each("law", TABLES[:2])
def test_sums_of_mixed_answers_are_below(law: FiniteLaw) -> None:
    """E[(v_1 L_1 + ... + v_N L_N)_+] / N in rationals, four places of every mixture of answers
    and weights of two values with equal chances: at most the largest answer's. Planted: a
    quarter of the value -> below.
    """
    rows, e, (x, x2) = rows_of(law), Fraction(5, 4), (0, 1)
    weights = (Fraction(3, 4), Fraction(5, 4))
    values = np.array(
        [
            [float((a - e * b) / c) for a, b, c in zip(rows[x], rows[x2], row, strict=True)]
            for row in rows
        ]
    )
    masses = np.array([[float(c) for c in row] for row in rows])
    for t in (0.2, 0.5, 1.0):
        question = WeightedSums(
            values, masses, t, 4, np.array([float(w) for w in weights]), np.array([0.5, 0.5]), 2
        )
        bound = max(
            most(
                WeightedSums(
                    values[z : z + 1],
                    masses[z : z + 1],
                    t,
                    4,
                    question.weights,
                    question.chances,
                    2,
                ),
                1e-9,
            )
            for z in range(len(rows))
        )
        for answers in combinations_with_replacement(range(len(rows)), 4):
            for same in (True, False):
                exact = mixed(rows, (x, x2), answers, weights, e, same=same)
                assert float(exact) <= bound * (1 + 1e-12)


def mixed(
    rows: list[list[Fraction]],
    pair: tuple[int, int],
    answers: tuple[int, ...],
    weights: tuple[Fraction, Fraction],
    e: Fraction,
    *,
    same: bool,
) -> Fraction:
    """With one weight for all places, or the other one at every second place."""
    total = Fraction(0)
    for coin in (0, 1):
        for seen in product(range(len(rows[0])), repeat=len(answers)):
            mass, value = Fraction(1, 2), Fraction(0)
            for i, (z, y) in enumerate(zip(answers, seen, strict=True)):
                weight = weights[coin if same else (coin + i) % 2]
                mass *= rows[z][y]
                value += weight * (rows[pair[0]][y] - e * rows[pair[1]][y]) / rows[z][y]
            total += mass * max(value, Fraction(0))
    return total / len(answers)


RATIO = Fraction(2718, 1000)
CLOSE: dict[str, tuple[SymmetricLaw | FiniteLaw, float]] = {
    "hadamard": (laws.hadamard_bit(RATIO, 16), 1.005),
    "unary": (laws.sue(RATIO), 1.005),
    "subset": (laws.subset(16, 4, RATIO), 1.005),
    "table": (FiniteLaw(((8, 1, 1), (1, 1, 8), (4, 2, 4))), 1.02),
}


@for_each("name", list(CLOSE))
@for_each("n", [2_000, 100_000][: size(1, 2)])
def test_no_real_dataset_is_above(name: str, n: int) -> None:
    """At no epsilon is less proven than what real datasets attain there, and at 1e-6 it is close.
    Planted: n / 20 places too many; |psi| squared -> less is proven than attained.
    """
    law, factor = CLOSE[name]
    found = swap(law)
    assert found is not None
    sums = [sum_curve(each, Direction.LOWER, 1e-6, 1.0) for each in dataset_sums(law, n)]
    certificate = certify(law, n, 1e-6)
    for epsilon in np.linspace(0.2, 1.2, 5) * certificate.epsilon_lower:
        attained = max(curve.delta(float(epsilon)) for curve in sums)
        for crowd in found._crowds(n, attained):
            assert (
                found.delta(found.triples, crowd, attained * 0.999, float(epsilon))
                > attained * 0.999
            )
    assert certificate.method == "swap"
    if n == 100_000:
        assert certificate.epsilon_upper <= factor * certificate.epsilon_lower
    assert isinstance(next(iter(found._crowds(n, 1e-6))), SwapCrowd)


def test_laws_that_do_not_say_so_are_left_alone() -> None:
    """A law of two blocks bounds the blanket of others, and no more; of a hash's threes nothing is
    known; a large table takes too long. Planted: no look at ``alike`` -> found.
    """
    assert swap(SymmetricLaw((6, 1, 1, 2), (1, 6, 1, 2), (1, 1, 1, 2), (1, 1, 6, 2))) is None
    assert swap(laws.local_hash(2, RATIO, wise=2)) is None
    many = tuple(tuple(100 + (x == y) for y in range(80)) for x in range(80))
    assert swap(FiniteLaw(many)) is None
    assert swap(FiniteLaw(((1, 1), (1, 1)))) is None
