"""Ranges by a hierarchy: their errors, intervals and quantiles against many batches, and what the
mechanism refuses. ``test_bundles`` has what it shares with the other mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy import stats

from shoal.accounting.several_messages.of_domain import design_several
from shoal.arrays import NDArray, np
from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.mechanisms.base import Tally, Z
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw, Truth
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured

N, DELTA = 20_000, 1e-6
BINS = Categories(tuple(f"from {10 * at}" for at in range(1023)), tuple(range(0, 10230, 10)))
LEVELS = Numeric(0.0, 511.0, 1023)


def designed(domain: Numeric | Categories, n: int = N, epsilon: float = 1.0) -> Ranges:
    made = create(design_several("ranges", domain, n, epsilon, DELTA, windows=1), domain)
    assert isinstance(made, Ranges)
    return made


def tally_of(made: Ranges, values: NDArray[np.int64], entropy: Poured) -> Tally:
    """Of a batch: the true messages, and the noise of all devices drawn at once, from the sum of
    their laws (a Poisson number in each node).
    """
    counts = np.zeros(made.tree.nodes, dtype=np.int64)
    for cell, held in enumerate(np.bincount(values, minlength=made.tree.cells).tolist()):
        counts[list(made.tree.path(cell))] += held
    rate = Fraction(made.noise.rates()[0].weight * len(values), 1 << RATE_BITS)
    sampler = SmallSampler(Poisson(rate))
    counts += np.array([sampler.draw(entropy) for _ in counts])
    return Tally(counts, int(counts.sum()))


def crowd(n: int, cells: int) -> NDArray[np.int64]:
    """Cells of n devices: a hump, a heap of equal ones, and some without an answer."""
    bell = stats.beta(2.0, 5.0).ppf((np.arange(n) + 0.5) / n)
    values = np.floor(bell * (cells - 1)).astype(np.int64)
    values[:: n // 500] = 77
    values[:: n // 50] = cells - 1
    return np.asarray(values)


def test_ranges_err_as_is_said() -> None:
    """1,024 cells at (1, 1e-6), 200 batches: the mean square over many ranges against the exact
    one, within 5 standard deviations of it (some 5 %); intervals of ranges hold the truth in 94 to
    97 % of cases. False alarm 1e-6.

    Planted: standard errors of cells alone, added up -> fails; the noise of ``shares`` devices for
    twice as many -> fails; the sum of all not known -> fails.
    """
    made, entropy, runs = designed(BINS, N // 2), Poured(SeededEntropy("ranges")), size(30, 200)
    values = crowd(N, made.tree.cells)
    truth = np.append(0.0, np.cumsum(np.bincount(values, minlength=made.tree.cells)))
    first = np.arange(0, 1024, 13, dtype=np.int64)
    first, end = (each.ravel() for each in np.meshgrid(first, first + 11))
    kept = (first < end) & (end <= 1024)
    first, end = first[kept], end[kept]
    said = made.stderr_of_ranges(N, first, end)
    squares, inside = list[float](), list[float]()
    for _ in range(runs):
        estimate = made.estimate(tally_of(made, values, entropy), N)
        assert float(estimate.values.sum()) == pytest.approx(N, abs=1e-6)
        sums = np.append(0.0, np.cumsum(estimate.values))
        errors = (sums[end] - sums[first]) - (truth[end] - truth[first])
        squares.append(float(np.mean((errors / said) ** 2)))
        inside.append(float(np.mean(np.abs(errors) <= Z * said)))
    spread = float(np.std(squares)) / math.sqrt(runs)
    assert abs(np.mean(squares) - 1.0) < 5.0 * spread
    assert spread < 0.05
    assert 0.94 < np.mean(inside) < 0.97
    assert made.range_stderr(N) == pytest.approx(25.8 * math.sqrt(2.0), rel=0.01)
    assert designed(BINS).range_stderr(N) < 29.0


@for_each("domain", [BINS, LEVELS])
def test_quantiles_hold_the_truth(domain: Numeric | Categories) -> None:
    """Each of seven, in 94 % of the batches or more, less 5 standard deviations (false alarm 1e-6);
    and they are near. Numbers of ``LEVELS`` are rounded to levels at random, and intervals are of
    the numbers. Planted: ``totals`` left out of the covariances, so that devices are taken off
    twice -> fails; the noise of one node for that of a sum of cells -> fails.
    """
    made, entropy, runs = designed(domain), Poured(SeededEntropy("quantiles")), size(20, 200)
    answers = np.sort(crowd(N, 1024))
    answered = answers[answers < 1023]
    inside = np.zeros(7)
    for _ in range(runs):
        if isinstance(domain, Numeric):
            numbers = answered * 0.499  # between levels
            cells = [domain.encode(float(number), entropy) for number in numbers]
            held = np.array([*cells, *[1023] * (N - len(answered))], dtype=np.int64)
            step, start = 0.499, 0.0
        else:
            held, step, start = answers, 10.0, 0.0
        found = made.quantiles(tally_of(made, held, entropy), N)
        for at, each in enumerate(found):
            true = start + step * answered[math.ceil(each.share * len(answered)) - 1]
            inside[at] += each.low <= true <= each.high
            assert each.low <= each.value <= each.high
            assert each.high - each.low < 40.0 * step
    least = stats.binom.ppf(1e-6, runs, 0.94)
    assert (inside >= least).all(), inside


def test_of_few_answers_quantiles_say_nothing() -> None:
    """Of nobody's answer every number is possible. Planted: ``clearly_answered`` always true ->
    fails.
    """
    made = designed(LEVELS)
    held = np.full(N, 1023, dtype=np.int64)
    for each in made.quantiles(tally_of(made, held, Poured(SeededEntropy(3))), N):
        assert (each.low, each.high) == (0.0, 511.0)


def test_messages_are_the_path_and_noise() -> None:
    """The true messages of a device are in its report, whatever else is; a device whose noise has
    no room sends them alone. Planted: the path of the next cell -> fails.
    """
    made = designed(Numeric(0.0, 1.0, 63), 400)
    sizes = set()
    for seed in range(60):
        report = made.randomize_one(seed, SeededEntropy(seed))
        numbers = [int.from_bytes(message, "big") for message in report]
        assert set(made.tree.path(seed)) <= set(numbers)
        assert made.fewest <= len(numbers) <= made.messages
        sizes.add(len(numbers))
    assert len(sizes) > 5
    tight = replace(made, noise=replace(made.noise, slots=made.tree.levels))
    for seed in range(9):
        alone = tight.randomize_one(5, SeededEntropy(seed))
        assert {int.from_bytes(message, "big") for message in alone} == set(tight.tree.path(5))


def test_what_does_not_fit_is_refused() -> None:
    """Planted: each condition left out -> its line fails."""
    made = designed(Numeric(0.0, 1.0, 63), 400)
    with pytest.raises(ShoalError, match="wants numbers, or categories with lower_bounds"):
        Ranges(Categories(tuple(map(str, range(63)))), made.tree, made.noise)
    with pytest.raises(ShoalError, match="as many cells as its domain"):
        Ranges(Numeric(0.0, 1.0, 60), made.tree, made.noise)
    flat = NoiseLaw(Truth.CELL, made.tree.nodes, 400, 90, dummies=Fraction(9))
    with pytest.raises(ShoalError, match="dummies in all nodes"):
        Ranges(made.domain, made.tree, flat)
    numbers = dict(made.spec.parameters)
    with pytest.raises(ShoalError, match="a hierarchy has a base"):
        create(MechanismSpec.of("ranges", **{**numbers, "levels": 9}), made.domain)
    with pytest.raises(ShoalError, match="numbers, in levels or in bins"):
        create(MechanismSpec.of("ranges", **{**numbers, "k": 2}), YesNo())
    with pytest.raises(ShoalError, match="a slot for each true message"):
        create(MechanismSpec.of("ranges", **{**numbers, "levels": 3, "slots": 2}), made.domain)


def test_designs_that_cannot_be_are_refused() -> None:
    """Planted: each condition left out -> its line fails."""
    for domain in (YesNo(), Categories(("a", "b"))):
        with pytest.raises(ShoalError, match="ranges answers questions for numbers, in levels or"):
            design_several("ranges", domain, 1_000, 1.0, DELTA, windows=1)
    with pytest.raises(ShoalError, match="once in each level: leave epsilon0_if_colluding out"):
        design_several("ranges", LEVELS, 1_000, 1.0, DELTA, windows=1, epsilon0_if_colluding=4.0)
    with pytest.raises(ShoalError, match="ranges: a device would send up to"):
        design_several("ranges", LEVELS, 1_000, 1.0, DELTA, windows=1)
    with pytest.raises(ShoalError, match="fewer levels, another base, or fewer cells"):
        design_several("ranges", Numeric(0.0, 1.0, 65_000), 10**6, 1.0, DELTA, windows=1)
