"""PrivUnit by ranks: the law by enumeration, the draw, the estimate, what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Tally
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.mechanisms.quantize import quantize
from shoal.mechanisms.vectors.gaussian_table import UNIT, candidates, reported
from shoal.mechanisms.vectors.privunit import (
    MOST_GRID,
    MOST_WORK,
    PrivUnit,
    law,
    lengthened,
    nearest_first,
)
from shoal.mechanisms.vectors.registry import create, design, settings
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Tape

GRID = 1 << 20
PLANE = Vector(2, Norm.L2, 1.0, GRID)
SPACE = Vector(3, Norm.L2, 1.0, GRID)
TINY = PrivUnit(PLANE, 8, 2, 3 << 62)
Report = tuple[int, int]


def vectors(domain: Vector) -> list[NDArray[np.int64]]:
    """Directions, opposite ones among them, and lengths down to none."""
    ends = (-GRID, 0, GRID)
    found = [v for v in product(ends, repeat=domain.dimension) if sum(map(abs, v)) <= GRID]
    slanted = [
        tuple(s * x // 2 for x in v) for v in product(ends, repeat=domain.dimension) for s in (1,)
    ]
    return [np.array(v, dtype=np.int64) for v in dict.fromkeys([*found, *slanted])]


def seed_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def drawn(mechanism: PrivUnit, vector: NDArray[np.int64], seeds: int) -> dict[Report, Fraction]:
    """The law of a report under uniform seeds below ``seeds``: every coin and every index, through
    the production code.
    """
    k, t, threshold = mechanism.candidates, mechanism.inside, mechanism.uniform
    found: dict[Report, Fraction] = {}
    coins = ((0, Fraction(threshold, WORDS)), (WORDS - 1, Fraction(WORDS - threshold, WORDS)))
    for number, (coin, chance), near, anywhere in product(range(seeds), coins, range(t), range(k)):
        tape = Tape(
            seed_of(number),
            coin.to_bytes(8, "little"),
            (near * (65_536 // t)).to_bytes(2, "little"),
            (anywhere * (65_536 // k)).to_bytes(2, "little"),
        )
        (report,) = mechanism.randomize_vector(vector, tape)
        assert tape.done()
        assert report[:16] == seed_of(number)
        key = number, int.from_bytes(report[16:], "big")
        found[key] = found.get(key, Fraction(0)) + chance / (seeds * t * k)
    return found


def test_a_report_has_the_law_that_is_stated() -> None:
    """Of every seed exactly t reports are near, whatever the vector is, and they are those whose
    inner products are the largest; two probabilities in all.

    Planted: the draw among the nearest but the very nearest; the coin's ends exchanged -> fails.
    """
    seeds, stated = 6, TINY.privacy()
    k, t = TINY.candidates, TINY.inside
    near = Fraction(stated.one[0], stated.total) / (t * seeds)
    other = Fraction(stated.one[1], stated.total) / (t * seeds)
    for vector in vectors(PLANE):
        found = drawn(TINY, vector, seeds)
        assert sum(found.values()) == 1
        assert set(found.values()) == {near, other}
        for number in range(seeds):
            likely = {j for j in range(k) if found[number, j] == near}
            made = candidates(seed_of(number), 0, k, 3).astype(np.int64)
            products = (made @ lengthened(vector, GRID)).tolist()
            assert likely == set(sorted(range(k), key=lambda j: -products[j])[:t])
    assert near / other == stated.max_ratio


@for_each("domain, bits", [(PLANE, size(9, 12)), (SPACE, size(8, 12))])
def test_epsilon0_over_all_seeds_of_few_bits(domain: Vector, bits: int) -> None:
    """By enumeration of every seed, in fractions: the largest ratio of two vectors' probabilities
    is e^epsilon0 of the integers, for a stream of however few seeds.

    Planted: near those above a threshold of the inner product, with the share of near candidates
    taken for t / K -> another ratio, fails.
    """
    mechanism = PrivUnit(domain, 16, 4, 1 << 61)
    k, t, threshold = 16, 4, Fraction(1 << 61, WORDS)
    near, other = (1 - threshold) / t + threshold / k, threshold / k
    worst = Fraction(1)
    owns = [lengthened(vector, GRID) for vector in vectors(domain)]
    for number in range(1 << bits):
        masks = []
        for own in owns:
            order = nearest_first(seed_of(number), k, own)
            assert sorted(order.tolist()) == list(range(k))
            masks.append({int(j) for j in order[:t]})
        low = [other if any(j not in mask for mask in masks) else near for j in range(k)]
        high = [near if any(j in mask for mask in masks) else other for j in range(k)]
        worst = max(worst, *(h / low_ for h, low_ in zip(high, low, strict=True)))
    assert worst == mechanism.privacy().max_ratio
    assert math.exp(epsilon0_upper(mechanism.privacy())) >= float(worst)


def test_opposite_vectors_have_opposite_orders() -> None:
    """Ties and all, so that no candidate is near to both. Planted: ties always by rising index ->
    fails.
    """
    ties = 0
    for own in ([GRID, 0], [0, 1], [3, -5], [-1, 0]):
        vector = np.array(own, dtype=np.int64)
        order = nearest_first(seed_of(7), 4_096, vector)
        assert (nearest_first(seed_of(7), 4_096, -vector) == order[::-1]).all()
        products = (candidates(seed_of(7), 0, 4_096, 2).astype(np.int64) @ vector)[order]
        assert (np.diff(products) <= 0).all()
        ties += int((np.diff(products) == 0).sum())
    assert ties > 50


def test_inner_products_are_exact() -> None:
    """Against integers of Python, at the largest grid; where the large coordinate is the same for
    many, the smallest step of another decides. Planted: inner products in 32 bits -> fails.
    """
    wide = np.frombuffer(SeededEntropy("exact").bytes(8 * 5_000), dtype=np.int64)
    for own, count in (
        (wide % (2 * MOST_GRID) - MOST_GRID, 64),
        (np.array([MOST_GRID, 1], dtype=np.int64), 4_096),
    ):
        order = nearest_first(seed_of(1), count, own)
        made = candidates(seed_of(1), 0, count, own.size).tolist()
        exact = [sum(a * b for a, b in zip(row, own.tolist(), strict=True)) for row in made]
        assert order.tolist() == sorted(range(count), key=lambda j: -exact[j])


def test_the_same_words_whatever_the_vector() -> None:
    """Planted: the index drawn only where the coin says so -> fails."""
    for vector, coin in product(vectors(PLANE), (bytes(8), b"\xff" * 8)):
        tape = Tape(bytes(16), coin, bytes(2), bytes(2))
        TINY.randomize_vector(vector, tape)
        assert tape.asked == [16, 8, 2, 2]


def test_lengthened_vectors_are_as_long_as_the_grid() -> None:
    for vector in vectors(SPACE):
        own = lengthened(vector, GRID).tolist()
        squares = sum(x * x for x in own)
        assert own[-1] >= 0
        assert squares <= GRID**2 < squares + 2 * own[-1] + 1 or own[-1] == 0
    assert lengthened(np.zeros(3, dtype=np.int64), GRID).tolist() == [0, 0, 0, GRID]


# --- what is estimated ----------------------------------------------------------------------------


def tallied(mechanism: PrivUnit, values: list[float] | None, n: int, seed: str) -> Tally:
    entropy = SeededEntropy(seed)
    rows = [quantize(values, mechanism.domain, entropy).vector for _ in range(n)]
    reports = mechanism.randomize(np.array(rows), entropy)
    assert reports.shape == (n, 1, 18)
    return mechanism.tally(reports[:, 0])


@for_each(
    "epsilon0, values",
    [(0.5, [0.6, -0.8]), (2.0, [0.3, 0.1]), (2.0, [1.0, 0.0]), (6.0, [0.5, 0.5]), (4.0, None)],
)
def test_the_mean_is_unbiased_and_errs_as_predicted(
    epsilon0: float, values: list[float] | None
) -> None:
    """5 standard errors, 10 figures: a false alarm in 170,000 runs; errors within 6 %,
    of which chance is 1.1 % at the standard error.

    Planted: the mean of the largest without 1 - T / 2^64; no coordinate added; the
    clip left out -> each fails.
    """
    domain, n = Vector(2, Norm.L2, 10.0, GRID), size(4_000, 100_000)
    mechanism = create(design("privunit", domain, epsilon0, "K=64"), domain)
    assert isinstance(mechanism, PrivUnit)
    truth = np.zeros(2) if values is None else np.array(values) * 10.0
    tally = tallied(
        mechanism, None if values is None else truth.tolist(), n, f"m {epsilon0} {values}"
    )
    found = mechanism.estimate(tally)
    assert (np.abs(found.values - truth) < 5.0 * found.stderr).all()
    square = (truth / 10.0) ** 2
    assert found.stderr == pytest.approx(mechanism.expected_stderr(n, square), rel=0.04)
    mean_squares = tally.counts[3:5] / (n * UNIT**2) / mechanism.lean**2
    measured = np.sqrt((mean_squares - square) / n) * 10.0
    # an upper estimate: where a coordinate is large and varies less, that is left out
    assert (measured < found.stderr * 1.05).all()
    assert (measured > found.stderr * (0.94 if square.max() < 0.3 else 0.80)).all()


def test_a_large_coordinate_errs_more() -> None:
    """Where few are near and the coin is weak, a report varies more along its own vector: here its
    variance is 1.3 times that of other coordinates. Within 5 %, of which chance is 1 %.

    Planted: the square's part left out -> fails.
    """
    domain, n = Vector(2, Norm.L2, 1.0, GRID), 10_000
    mechanism = PrivUnit(domain, 64, 8, WORDS // 2)
    tally = tallied(mechanism, [1.0, 0.0], n, "large")
    measured = np.sqrt((tally.counts[3:5] / (n * UNIT**2) / mechanism.lean**2 - [1.0, 0.0]) / n)
    assert mechanism.expected_stderr(n, np.array([1.0, 0.0])) == pytest.approx(measured, rel=0.05)
    assert mechanism.estimate(tally).stderr == pytest.approx(measured, rel=0.05)
    assert measured[0] > 1.1 * measured[1]


def test_intervals_cover_as_often_as_they_say() -> None:
    """Of 40 coordinates, 100 devices, many batches: 95 % within 4 standard errors of that share
    (2.2 % at the reduced count), coordinates taken as independent. A false alarm in 16,000 runs.

    Planted: the root of 1.2 n for that of n -> fails.
    """
    domain, runs = Vector(40, Norm.L2, 1.0, GRID), size(40, 1_000)
    mechanism = create(design("privunit", domain, 3.0, "K=64"), domain)
    assert isinstance(mechanism, PrivUnit)
    truth = np.array([0.5, -0.5] + [0.1] * 38)
    inside = 0
    for run in range(runs):
        found = mechanism.estimate(tallied(mechanism, truth.tolist(), 100, f"covers {run}"))
        inside += int(((found.ci_low <= truth) & (truth <= found.ci_high)).sum())
    share, error = inside / (40 * runs), math.sqrt(0.95 * 0.05 / (40 * runs))
    assert abs(share - 0.95) < 4.0 * error, share


def test_a_missing_vector_tells_no_direction() -> None:
    """Only the coordinate that was added leans, by ``lean``. 5 standard errors each."""
    domain, n = Vector(4, Norm.L2, 1.0, GRID), 4_000
    mechanism = create(design("privunit", domain, 4.0, "K=64"), domain)
    assert isinstance(mechanism, PrivUnit)
    sums = tallied(mechanism, None, n, "missing").counts[:5] / UNIT
    assert (np.abs(sums[:4]) < 5.0 * math.sqrt(n)).all()
    assert sums[4] == pytest.approx(n * mechanism.lean, abs=5.0 * math.sqrt(2.0 * n))


def test_a_tally_is_the_sum_of_what_was_named() -> None:
    """Over more than one block, in parts, and there and back as bytes. Planted: squares in 16 bits;
    a block's rows left out -> fails.
    """
    domain = Vector(40_000, Norm.L2, 1.0, GRID)
    mechanism = PrivUnit(domain, 4, 1, 1 << 63)
    entropy = SeededEntropy("tally")
    reports = np.frombuffer(entropy.bytes(30 * 18), dtype=np.uint8).reshape(30, 18).copy()
    reports[:, 16] = 0
    reports[:, 17] %= 4
    named = reported(reports[:, :16], reports[:, 17].astype(np.int64), 40_001).astype(np.int64)
    tally = mechanism.tally(reports)
    assert (tally.counts[:40_001] == named.sum(axis=0)).all()
    assert (tally.counts[40_001:] == (named**2).sum(axis=0)).all()
    parts = mechanism.tally(reports[:7]) + mechanism.tally(reports[7:])
    assert parts == tally == Tally.from_bytes(tally.to_bytes())
    assert tally - mechanism.tally(reports[7:]) == mechanism.tally(reports[:7])
    nothing = mechanism.tally(reports[:0])
    assert nothing.rows == 0
    assert not nothing.counts.any()
    assert np.isfinite(mechanism.estimate(nothing).stderr).all()


# --- choosing the integers ------------------------------------------------------------------------


def threshold_lean(epsilon0: float) -> float:
    """What PrivUnitG leans at its best threshold (Asi, Feldman, Talwar 2022): the limit of many
    candidates, by a search over the share q of near ones.
    """
    best, e = 0.0, math.expm1(epsilon0)
    for step in range(1, 2_400):
        z = step / 400.0
        q = 0.5 * math.erfc(z / math.sqrt(2.0))
        best = max(best, e / (e * q + 1.0) * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi))
    return best


@for_each("epsilon0", [0.1, 1.0, 2.0, 4.0, 6.0, 8.0])
def test_designs_keep_epsilon0_and_come_near_the_best(epsilon0: float) -> None:
    """The variance is at most 12 % above the best threshold's with Gaussians. Planted: t = K / 2
    alone -> fails from epsilon0 = 2 on; a smaller T than was found -> fails.
    """
    domain = Vector(50, Norm.L2, 1.0, GRID)
    mechanism = create(design("privunit", domain, epsilon0), domain)
    assert isinstance(mechanism, PrivUnit)
    assert epsilon0_upper(mechanism.privacy()) <= epsilon0
    k = mechanism.candidates // mechanism.inside
    assert epsilon0_upper(law(k, mechanism.uniform - 1)) > epsilon0
    ratio = threshold_lean(epsilon0) / mechanism.lean
    assert 1.0 <= ratio < math.sqrt(1.12), ratio


def test_settings_are_more_candidates() -> None:
    """More of them err less; of a long vector fewer are offered. Planted: all offered -> fails."""
    short, long = Vector(10, Norm.L2, 1.0, GRID), Vector(65_535, Norm.L2, 1.0, GRID)
    assert settings("privunit", short)[0].name == "standard"
    leans = []
    for name in ("K=64", "K=256", "standard", "K=4096"):
        made = create(design("privunit", short, 5.0, name), short)
        assert isinstance(made, PrivUnit)
        leans.append(made.lean)
    assert leans == sorted(leans)
    largest = create(design("privunit", long, 5.0), long)
    assert isinstance(largest, PrivUnit)
    assert largest.candidates * 65_536 <= MOST_WORK
    assert create(largest.spec, long) == largest
    assert [each.name for each in settings("privunit", long)] == ["standard", "K=64", "K=256"]


# --- what is refused ------------------------------------------------------------------------------


def spec(**changes: int) -> MechanismSpec:
    known = {"dimension": 2, "candidates": 8, "inside": 2, "uniform": 1 << 62}
    return MechanismSpec.of("privunit", **{**known, **changes})


@for_each(
    "changes",
    [
        {"candidates": 7},
        {"candidates": 1},
        {"candidates": 1 << 15},
        {"inside": 3},
        {"inside": 8},
        {"inside": 0},
        {"uniform": 0},
        {"dimension": 3},
        {"more": 1},
    ],
)
def test_integers_that_do_not_fit_are_refused(changes: dict[str, int]) -> None:
    assert isinstance(create(spec(), PLANE), PrivUnit)
    with pytest.raises(ShoalError) as caught:
        create(spec(**changes), PLANE)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "domain",
    [
        Categories(("a", "b")),
        Vector(2, Norm.L1, 1.0, GRID),
        Vector(2, Norm.COORDINATE, 1.0, GRID),
        Vector(2, Norm.L2, 1.0, 1_000),
        Vector(2, Norm.L2, 1.0, MOST_GRID + 1),
        Vector(65_536, Norm.L2, 1.0, GRID),
    ],
)
def test_domains_that_it_does_not_serve_are_refused(domain: Domain) -> None:
    for attempt in (lambda: design("privunit", domain, 1.0), lambda: create(spec(), domain)):
        with pytest.raises(ShoalError) as caught:
            attempt()
        assert caught.value.kind is Kind.INVALID


def test_too_much_work_for_a_device_is_refused() -> None:
    with pytest.raises(ShoalError, match="1,024") as caught:
        PrivUnit(Vector(65_535, Norm.L2, 1.0, GRID), 2_048, 2, 1 << 63)
    assert caught.value.kind is Kind.INVALID


@for_each("epsilon0", [0.0, -1.0, math.nan, math.inf, 1e-30])
def test_an_epsilon0_that_there_is_not_is_refused(epsilon0: float) -> None:
    with pytest.raises(ShoalError) as caught:
        design("privunit", PLANE, epsilon0)
    assert caught.value.kind is Kind.INVALID


def test_other_names_are_refused() -> None:
    for attempt in (
        lambda: design("krr", PLANE, 1.0),
        lambda: design("privunit", PLANE, 1.0, "K=3"),
        lambda: create(MechanismSpec.of("krr", k=2), PLANE),
    ):
        with pytest.raises(ShoalError) as caught:
            attempt()
        assert caught.value.kind is Kind.INVALID


@for_each(
    "vector",
    [
        np.zeros(3, dtype=np.int64),
        np.zeros((1, 2), dtype=np.int64),
        np.zeros(2),
        np.array([GRID + 1, 0]),
        np.array([0, -(1 << 63)], dtype=np.int64),
    ],
)
def test_vectors_that_are_none_are_refused_before_a_draw(vector: NDArray[np.int64]) -> None:
    """Planted: the absolute value of -2^63, which is below 0, compared -> fails."""
    tape = Tape()
    with pytest.raises(ShoalError) as caught:
        TINY.randomize_vector(vector, tape)
    assert caught.value.kind is Kind.INVALID
    assert tape.asked == []


def test_hostile_reports_are_told_from_others() -> None:
    """An index that no seed has. Planted: the index's upper byte not read -> fails."""
    reports = np.zeros((4, 18), dtype=np.uint8)
    reports[1, 17], reports[2, 17], reports[3, 16] = 7, 8, 1
    assert TINY.valid(reports).tolist() == [True, True, False, False]
    for bad in (reports, reports[:, :17]):
        with pytest.raises(ShoalError) as caught:
            TINY.tally(bad)
        assert caught.value.kind is Kind.INVALID


def test_tallies_of_others_are_refused() -> None:
    for other in (
        Tally(np.zeros(6, dtype=np.int64), 0),
        PrivUnit(SPACE, 8, 2, 1 << 62).tally(np.zeros((1, 18), dtype=np.uint8)),
    ):
        with pytest.raises(ShoalError) as caught:
            TINY.estimate(other)
        assert caught.value.kind is Kind.INVALID
