"""The checker's proof by swapping: its law of V and its integral against 30 digits and fractions,
the whole against what is counted out and against real datasets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.accounting import certify
from shoal.checker import crowds
from shoal.checker.crowds import CrowdWeights, crowd_of
from shoal.checker.enumeration import exact_divergence
from shoal.checker.epsilon import decide
from shoal.checker.expectation import saddle
from shoal.checker.exponential import exp_above, exp_below
from shoal.checker.findings import Outcome
from shoal.checker.laws import OutputLaw
from shoal.checker.swapped import LEAST_N, Swapping, SwapProver, _Answer, ways
from tests.cases import for_each
from tests.sizes import size
from tests.unit.checker.test_bounds import (
    WORDS,
    hadamard,
    kary,
    piecewise,
    projective,
    projective_table,
    subset,
    unary,
)

Rows = tuple[tuple[Fraction, ...], ...]


def table(*rows: Sequence[int]) -> Rows:
    return tuple(tuple(Fraction(each, sum(row)) for each in row) for row in rows)


TABLES = [
    table((6, 2, 1), (1, 6, 2), (2, 1, 6)),
    table((8, 1, 1), (1, 1, 8), (4, 2, 4)),
    table((9, 1), (1, 9)),
]
HALF = Fraction(1, 2)
ODDS = [Fraction(9, 8), Fraction(3, 2), Fraction(3)]
TILTS = (0.02, 0.1, 0.3, 0.6, 1.0)


def swapping(rows: Rows) -> Swapping:
    found = Swapping.of(rows, [min(column) for column in zip(*rows, strict=True)], len(rows))
    assert found is not None
    return found


def pair(first: Sequence[Fraction], second: Sequence[Fraction], e: Fraction) -> np.ndarray:
    return np.array([float(a - e * b) for a, b in zip(first, second, strict=True)])


def seen(rows: Rows, others: Sequence[int], x: int, x2: int, crowd: int, e: Fraction) -> Fraction:
    """E[(W_1 L_1 + ... + W_N L_N)_+] / N by all outcomes; the places have the ``others``."""
    least = [min(column) for column in zip(*rows, strict=True)]
    gamma, outputs, total = sum(least, Fraction(0)), range(len(least)), Fraction(0)
    for m in range(crowd + 1):
        share = math.comb(crowd, m) * gamma**m * (1 - gamma) ** (crowd - m)
        for drawn in itertools.product(outputs, repeat=m + 1):
            chance = math.prod((least[b] / gamma for b in drawn), start=share)
            weights = [sum(gamma * rows[z][b] / least[b] for b in drawn) / (m + 1) for z in others]
            for ys in itertools.product(outputs, repeat=len(others)):
                mass = math.prod(
                    (rows[z][y] for z, y in zip(others, ys, strict=True)), start=chance
                )
                value = sum(
                    (rows[x][y] - e * rows[x2][y]) / rows[z][y] * weight
                    for z, y, weight in zip(others, ys, weights, strict=True)
                )
                total += mass * max(value, Fraction(0))
    return total / len(others)


@for_each("rows", TABLES)
@for_each("e", ODDS)
def test_the_finer_view_is_above_every_dataset_and_the_bound_above_the_view(
    rows: Rows, e: Fraction
) -> None:
    """Four reports: one of the crowd, two places, the device itself.

    Planted: W left out of the sum (``seen``) -> below the truth. In the checker: chances of V
    halved, a sum that is divided by N once more -> proven where it is not so.
    """
    true, prover, inputs = Fraction(0), swapping(rows), range(len(rows))
    crowd = prover.crowd(4, 1, 1e-6)
    assert crowd.places == 2
    for x, x2 in itertools.permutations(inputs, 2):
        views = [
            seen(rows, others, x, x2, 1, e)
            for others in itertools.combinations_with_replacement(inputs, 2)
        ]
        true = max(true, *views)
        for tilt in TILTS if max(views) > 0 else ():
            numbers = pair(rows[x], rows[x2], e)
            assert not prover.proves(numbers, crowd, tilt, float(max(views)) * (1 - 1e-9))
    assert true >= exact_divergence(rows, 4, e)


@for_each("rows", TABLES)
@for_each("n, crowd", [(5, 2), (6, 1), (6, 3)])
def test_nothing_below_the_truth_is_proven(rows: Rows, n: int, crowd: int) -> None:
    """Every dataset and outcome, whatever the crowd and t: some pair is left. Planted: a sum that
    is divided by N once more -> fails.
    """
    prover = swapping(rows)
    for e in ODDS[: size(1, 3)]:
        delta = float(exact_divergence(rows, n, e)) * (1 - 1e-9)
        found = prover.crowd(n, crowd, delta)
        for t in TILTS:
            assert not all(
                prover.proves(pair(first, second, e), found, t, delta)
                for first, second in itertools.permutations(rows, 2)
            )


LAWS = [
    (Fraction(1, 3), Fraction(2, 5), Fraction(8, 5)),
    (Fraction(9, 10), Fraction(9, 10), Fraction(11, 10)),
    (Fraction(1, 20), Fraction(1, 20), Fraction(3)),
]


@for_each("shape", LAWS)
@for_each("crowd", [1, 7, 40, 300])
def test_weights_are_as_spread_as_they_should_be(
    shape: tuple[Fraction, Fraction, Fraction], crowd: int
) -> None:
    """Means of functions of V: of |v - place| and e^v they are above those of the exact law (in
    fractions) and near them.

    Planted: m + 2 terms for m + 1, neighbours of the grid exchanged, a grid that begins above low,
    chances 3 % too small, V without its variance -> each fails.
    """
    gamma, low, high = shape
    found = crowd_of(2 * crowd + 3, crowd, shape, 1 << 62, 1e-6)
    up, exact = float((1 - low) / (high - low)), dict[float, float]()
    for m in range(crowd + 1):
        share = math.comb(crowd, m) * gamma**m * (1 - gamma) ** (crowd - m)
        for ones in range(m + 2):
            chance = float(share) * math.comb(m + 1, ones) * up**ones * (1 - up) ** (m + 1 - ones)
            value = float(low + (high - low) * Fraction(ones, m + 1))
            exact[value] = exact.get(value, 0.0) + chance
    spread = math.sqrt(sum(p * (v - 1) ** 2 for v, p in exact.items()))
    assert 1 - 1e-12 <= float(found.chances.sum()) + found.lost <= 1 + 1e-6
    assert found.points[0] <= low
    for place in (1 - spread, 1.0, 1 + 2 * spread):
        true = sum(p * abs(v - place) for v, p in exact.items())
        mean = float(np.abs(found.points - place) @ found.chances) + found.lost
        assert true * (1 - 1e-10) <= mean <= true * 1.02
    true = sum(p * math.exp(v / spread) for v, p in exact.items())
    mean = float(np.exp(found.points / spread) @ found.chances)
    assert true * (1 - 1e-5) <= mean <= true * 1.02


def test_a_block_of_crowds_counts_as_its_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance of V, E[1 / (m + 1)] being (1 - (1 - gamma)^(s + 1)) / ((s + 1) gamma), on a
    grid that adds nothing to it. Planted: the last of a block -> fails.
    """
    monkeypatch.setattr(crowds, "_STEPS", 300)
    size, (gamma, low, high) = 40_001, LAWS[0]
    found = crowd_of(100_000, size, (gamma, low, high), 1 << 62, 1e-6)
    terms = 1 / ((size + 1) * float(gamma))  # but for the chance of none, which is nothing
    exact = float((1 - low) * (high - 1)) * terms
    variance = float((found.points - 1) ** 2 @ found.chances)
    assert exact * (1 + 1e-5) <= variance <= exact * 1.001


def test_extremes_are_those_of_all_outputs_and_answers() -> None:
    """The third answer has the highest here. Planted: those of the first two; 9 / 10 of gamma ->
    fails.
    """
    rows = table((4, 4, 2), (3, 5, 2), (3, 3, 4))
    way, small = ways(OutputLaw((), Fraction(2), rows=rows))
    assert (way.gamma, way.low, way.high) == (Fraction(4, 5), Fraction(4, 5), Fraction(8, 5))
    assert (small.gamma, small.low, small.high) == tuple(Fraction(i, 20) for i in (13, 13, 26))


def test_every_answer_counts_at_one_t() -> None:
    """At the saddle point of the answer whose L varies most another one is far above. Planted: the
    first answer alone -> fails.
    """
    law, _ = hadamard(100, WORDS // 56)
    (way,) = ways(law)
    e = exp_below(3.0)
    numbers = pair([o.first for o in law.outputs], [o.second for o in law.outputs], e)
    values = numbers / way.rows
    worst = int((values * values * way.rows).sum(axis=1).argmax())
    crowd, t = way.crowd(500, 63, 1e-6), saddle(values[worst], way.rows[worst], 436)
    assert _Answer(values[worst], way.rows[worst], t, crowd).mean(0.02, 0) / 436 < 1e-6
    assert not way.proves(numbers, crowd, t, 1e-6)


@for_each("rows, places, v, t", [(TABLES[0], 2, 0.7, 0.3), (TABLES[1], 40, 1.0, 0.05)])
@for_each("kappa", [0.2, 0.1])
def test_the_integral_is_what_thirty_digits_say(
    rows: Rows, places: int, v: float, t: float, kappa: float
) -> None:
    """F(v) with its normal factor, by mpmath. Planted: the first frequency counted whole or not at
    all, e^(kappa^2 / 2) left out, a period that is a third as long, N + 2 for N in psi or in phi,
    phi of t alone -> each fails.
    """
    values, chances = pair(rows[0], rows[1], ODDS[0]) / np.array(rows[-1], dtype=float), rows[-1]
    with mpmath.workdps(20):
        masses = [mpmath.mpf(p.numerator) / p.denominator for p in chances]
        shifted = [mpmath.mpf(t * v * value) for value in values.tolist()]
        phi = sum(p * mpmath.exp(a) for p, a in zip(masses, shifted, strict=True))

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            turned = [
                p * mpmath.exp(a * (1 + 1j * x)) for p, a in zip(masses, shifted, strict=True)
            ]
            normal = mpmath.exp(kappa**2 * (1 - x * x) / 2)
            return abs(sum(turned) / phi) ** places * normal / (1 + x * x)

        whole = mpmath.quad(integrand, mpmath.linspace(0, 8 / kappa, 17))
        true = float(phi**places / (mpmath.pi * t) * whole)
    crowd = CrowdWeights(places, np.array([v]), np.ones(1), 0.0)
    found = _Answer(values, np.array(chances, dtype=float), t, crowd).mean(kappa, 0.0)
    assert true * (1 - 1e-12) <= found <= true * (1 + 1e-5)


CASES = {
    "hadamard": (hadamard(100, WORDS // 5), 10_000, 1e-8),
    "hadamard of few": (hadamard(3, WORDS // 8), 500, 1e-6),
    "piecewise": (piecewise(5, 8, 3, WORDS // 100), 400, 1e-6),
    "kary": (kary(100, WORDS // 2), 5_000, 1e-7),
    "unary": (unary(3, WORDS // 2, WORDS // 3), 2_000, 1e-7),
    "subset": (subset(20, 5, 2 * WORDS // 5), 300, 1e-6),
}


@for_each("name", CASES)
def test_less_than_a_real_dataset_shows_is_proven_of_no_law(name: str) -> None:
    """Of the pair that shows it, whatever crowd and t. Planted: chances of V halved, neighbours of
    the grid exchanged, a sum that is divided by N once more -> fails for some law.
    """
    (law, privacy), n, delta = CASES[name]
    e = exp_above(certify(privacy, n, delta).epsilon_lower * 0.999)
    prover, *_ = ways(law)
    for outputs in law.pairs():
        numbers = pair([one.first for one in outputs], [one.second for one in outputs], e)
        guess, crowd, t = prover.chosen(n, delta, numbers)
        if prover.proves(numbers, crowd, t, delta):
            continue
        assert guess > 0.9 * delta
        for near in prover.sizes(n)[3:7:3]:
            other = prover.crowd(n, near, delta)
            assert not any(prover.proves(numbers, other, t * by, delta) for by in (0.95, 1.05))
        return
    raise AssertionError("every pair was proven")


def test_all_third_answers_are_looked_at() -> None:
    """Planted: laws of x and x' alone; of a table the first two rows; a smaller w also where not
    all answers are at hand -> each fails.
    """
    law, _ = kary(8, WORDS // 3)
    assert law.table is not None
    rows = law.table
    whole, (grouped,) = swapping(rows), ways(law)
    assert (whole.gamma, whole.low, whole.high) == (grouped.gamma, grouped.low, grouped.high)
    assert len(grouped.rows) == 3
    assert [len(way.rows) for way in ways(OutputLaw((), law.ratio, rows=rows))] == [8, 8]
    e, delta = Fraction(21, 20), 1e-5
    numbers = pair(rows[0], rows[1], e)
    together = pair([o.first for o in law.outputs], [o.second for o in law.outputs], e)
    crowd = grouped.crowd(1_001, 40, delta)
    for t in (0.002, 0.005, 0.01, 0.02):
        for allowed in (1e-7, 1e-6, 1e-5, 1e-4):
            one = whole.proves(numbers, crowd, t, allowed)
            assert one is grouped.proves(together, crowd, t, allowed)


@for_each("k, field, n, crowd", [(3, 2, 6, 1), (4, 3, 6, 1), (5, 2, 4, 1)])
def test_of_projective_nothing_below_the_truth_is_proven(
    k: int, field: int, n: int, crowd: int
) -> None:
    """Its answers are not alike, so that four of them stand for all: against every dataset and
    outcome of the space itself. Planted: a sum that is divided by N once more -> fails.
    """
    include = 3 * WORDS // 4
    law, _ = projective(k, field, include)
    table = projective_table(k, field, Fraction(include, WORDS))
    (way,) = ways(law)
    for e in ODDS[: size(2, 3)]:
        delta = float(exact_divergence(table, n, e)) * (1 - 1e-9)
        numbers = pair([one.first for one in law.outputs], [one.second for one in law.outputs], e)
        found = way.crowd(n, crowd, delta)
        assert not any(way.proves(numbers, found, t, delta) for t in TILTS)


@for_each(
    "k, field, include, n, delta",
    [
        (40, 5, 7 * WORDS // 8, 20_000, 1e-8),
        (16, 3, WORDS // 2, 2_000, 1e-6),
        (8, 2, 15 * WORDS // 16, 1_000, 1e-6),
    ],
)
def test_of_projective_nothing_that_a_dataset_exceeds_is_proven(
    k: int, field: int, include: int, n: int, delta: float
) -> None:
    """In large batches, where all others answer on the line through both. Planted: a sum that is
    divided by N once more -> fails; answers on the line left out of ``ways`` -> fails.
    """
    law, privacy = projective(k, field, include)
    exceeded = certify(privacy, n, delta).epsilon_lower
    prover = SwapProver(law, n, Fraction(delta))
    assert not prover.proves(law.outputs, exp_below(exceeded * (1 - 1e-6)))


def test_few_reports_are_left_to_the_blanket() -> None:
    """Planted: the least number left out -> fails."""
    law, _ = hadamard(8, WORDS // 5)
    e = exp_below(1.0)
    assert not SwapProver(law, LEAST_N - 1, Fraction(1, 1000)).proves(law.outputs, e)
    assert SwapProver(law, LEAST_N, Fraction(1, 1000)).proves(law.outputs, e)


@for_each("name", CASES)
def test_what_is_certified_by_swapping_holds_by_swapping(name: str) -> None:
    """And says so. Of a table some pairs need it, not the last ones.

    Planted: the words of the last pair; of three answers the largest w alone; e rounded up by 1 %
    -> each fails.
    """
    (law, privacy), n, delta = CASES[name]
    certificate = certify(privacy, n, delta)
    assert certificate.method == ("blanket" if name == "kary" else "swap")
    decision = decide(law, n, certificate.epsilon_upper, delta)
    assert decision.outcome is Outcome.HOLDS
    assert ("by swapping" in decision.how) is (name != "kary")
