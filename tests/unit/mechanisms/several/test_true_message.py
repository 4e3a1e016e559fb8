"""A true message that is randomized: its law, the words it takes, errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shoal.domain import Categories, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.categories.krr import KaryResponse, least_uniform
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import uniform_of
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.signed_count import SignedCount
from shoal.mechanisms.several.true_message import estimated, reach
from shoal.privacy import KaryLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured

LABELS = Categories(tuple("abc"), (0, 1, 2))  # and "no answer": four cells
Q = Fraction(1 << 31, 1 << 32)
EPSILON0 = 3.0
DEVICES = 60


def cancelling(shares: int) -> BundledHistogram:
    law = NoiseLaw(Truth.CELL, LABELS.size, shares, 200, Q, 6, Fraction(5), 3)
    return BundledHistogram(LABELS.labels, law, response(LABELS))


def dummies(shares: int) -> BundledHistogram:
    law = NoiseLaw(Truth.CELL, LABELS.size, shares, 200, dummies=Fraction(4))
    return BundledHistogram(LABELS.labels, law, response(LABELS))


def signed_count(shares: int) -> SignedCount:
    law = NoiseLaw(Truth.SIGN, 1, shares, 200, Q, 6, Fraction(5), 3)
    return SignedCount(("no", "yes"), law, response(YesNo()))


def response(domain: Categories | YesNo) -> KaryResponse:
    return KaryResponse(domain.labels, least_uniform(domain.size, EPSILON0))


Made = BundledHistogram | SignedCount
MAKERS: list[Callable[[int], Made]] = [cancelling, dummies, signed_count]


def domain_of(made: Made) -> Categories | YesNo:
    return YesNo() if made.name == "signed_count" else LABELS


@for_each("make", MAKERS)
def test_a_bundle_without_noise_is_a_draw_of_krr(make: Callable[[int], Made]) -> None:
    """Of the very words that ``krr`` takes. Planted: the value itself sent -> fails."""
    made, krr = make(100_000_000), response(domain_of(make(9)))
    shift = {"cancelling": 2, "dummies": 1, "signed_count": -1}[made.name]
    changed = 0
    for seed in range(400):
        value = seed % krr.k
        (cell,) = (int.from_bytes(m, "big") for m in krr.randomize_one(value, SeededEntropy(seed)))
        (sent,) = (int.from_bytes(m, "big") for m in made.randomize_one(value, SeededEntropy(seed)))
        assert sent == (1 - cell if shift < 0 else shift * cell)
        changed += cell != value
    assert changed > 5


class Counted:
    """Entropy that says how many bytes were asked for, request by request."""

    def __init__(self, seed: int) -> None:
        self.inner, self.asked = SeededEntropy(seed), list[int]()

    def bytes(self, count: int) -> bytes:
        self.asked.append(count)
        return self.inner.bytes(count)

    def words(self, count: int) -> NDArray[np.uint64]:
        self.asked.append(8 * count)
        return self.inner.words(count)


@for_each("make", MAKERS)
def test_words_do_not_depend_on_the_value(make: Callable[[int], Made]) -> None:
    """Planted: no cell drawn where the coin says the truth -> fails."""
    made = make(20)
    for seed in range(60):
        asked, sizes = set(), set()
        for value in range(domain_of(made).size):
            entropy = Counted(seed)
            sizes.add(len(made.randomize_one(value, entropy)))
            asked.add(tuple(entropy.asked))
        assert len(asked) == len(sizes) == 1


@for_each("make", MAKERS)
def test_totals_are_unbiased_and_err_as_they_say(make: Callable[[int], Made]) -> None:
    """Over many batches, most devices in one cell and none in another: mean, variance and coverage
    of every label. Seeds are fixed; another one gives a false alarm in 1e-5 of cases.

    Planted: n q not subtracted, no division by p - q, the draws' variance left out of the error, an
    interval of the noise alone -> each fails. The law of the estimated number of holders for those
    of all numbers -> 92 % where most hold, fails at full counts.
    """
    made, rounds = make(DEVICES), size(400, 6_000)
    cells = domain_of(made).size
    values = np.minimum(np.arange(DEVICES) // 40, cells - 1)
    truth = np.bincount(values, minlength=cells)
    entropy = Poured(SeededEntropy(f"randomized totals {made.name}"))
    found, covered = list[NDArray[np.float64]](), np.zeros(cells)
    for _ in range(rounds):
        bundles = made.randomize(values, entropy)
        estimate = made.estimate(made.tally(bundles.rows), DEVICES)
        found.append(estimate.values - truth)
        covered += (estimate.ci_low <= truth) & (truth <= estimate.ci_high)
        assert (estimate.stderr <= made.expected_stderr(DEVICES) * (1 + 1e-12)).all()
    errors = np.array(found)
    said = np.array([made.stderr_of(DEVICES, holders) for holders in truth.tolist()])
    limit = stats.norm.isf(1e-6)
    assert (np.abs(errors.mean(axis=0)) < limit * said / math.sqrt(rounds)).all()
    assert (np.abs(errors.var(axis=0) / said**2 - 1) < limit * math.sqrt(5 / rounds)).all()
    assert (covered >= stats.binom.ppf(1e-6, rounds, 0.95)).all()


@for_each("make", MAKERS)
@for_each("holders", [0, 17, 60])
def test_intervals_are_those_of_the_exact_law(make: Callable[[int], Made], holders: int) -> None:
    """By a plain sum over coins and noise. Planted: holders that leave counted as more that come ->
    fails; half messages as whole ones -> the count fails.
    """
    made, reports = make(30), 60
    law, truth = made.noise, made.truth_law
    assert truth is not None
    parts = 2 if made.name == "signed_count" else 1
    below, above = reach(law, truth, reports, holders, parts)
    noise, first, mean = noise_of_batch.noise_pmf(law, reports)
    kept, other = truth.same / truth.total, truth.other / truth.total
    centre = holders * kept + (reports - holders) * other
    step, inside, less = 1 / parts, 0.0, 0.0
    for stay, a in enumerate(stats.binom.pmf(range(holders + 1), holders, kept)):
        for come, b in enumerate(
            stats.binom.pmf(range(reports - holders + 1), 60 - holders, other)
        ):
            off = stay + come - centre + (first + np.arange(len(noise)) - mean) / parts
            inside += a * b * noise[(-below - 1e-9 <= off) & (off <= above + 1e-9)].sum()
            less += a * b * noise[(step - below < off) & (off < above - step)].sum()
    assert less < 0.95 <= inside + 1e-12


@for_each("make", MAKERS)
@for_each("epsilon0", [0.5, 3.0, 9.0])
def test_intervals_cover_whatever_is_held(make: Callable[[int], Made], epsilon0: float) -> None:
    """Every sum that there may be, with its exact probability, for each number of holders: covered
    with 95 % or more, and not much more.

    Planted: the law of the estimated number for those of all -> 89 %, fails; one step to an end ->
    below 95 %, fails.
    """
    plain, reports = make(30), 60
    domain = domain_of(plain)
    krr = KaryResponse(domain.labels, least_uniform(domain.size, epsilon0))
    truth, parts = krr.privacy(), 2 if plain.name == "signed_count" else 1
    noise, first, mean = noise_of_batch.noise_pmf(plain.noise, reports)
    kept, other = truth.same / truth.total, truth.other / truth.total
    sums = (first + np.arange(len(noise) + parts * reports) - mean) / parts
    labels = tuple(map(str, range(len(sums))))
    found = estimated(labels, sums, plain.noise, krr, reports, parts)
    for holders in (0, 1, 7, 20, 40, 59, 60):
        moved = np.convolve(
            stats.binom.pmf(range(holders + 1), holders, kept),
            stats.binom.pmf(range(reports - holders + 1), reports - holders, other),
        )
        spread = np.zeros(parts * reports + 1)
        spread[::parts] = moved
        masses = np.convolve(spread, noise)
        covers = (found.ci_low <= holders + 1e-9) & (holders - 1e-9 <= found.ci_high)
        assert 0.95 - 1e-9 <= masses[covers].sum() <= 0.99


@for_each("make", MAKERS)
def test_the_integer_comes_back(make: Callable[[int], Made]) -> None:
    """And a task without it is as it was. Planted: ``uniform`` left out of the spec -> fails."""
    made, plain = make(77), replace(make(77), response=None)
    krr = response(domain_of(made))
    assert uniform_of(made.spec) == krr.uniform
    assert uniform_of(plain.spec) is None
    assert create(made.spec, domain_of(made)) == made
    assert create(plain.spec, domain_of(made)) == plain
    assert made.truth_law == krr.privacy()
    assert EPSILON0 - 1e-9 < made.epsilon0 == epsilon0_upper(krr.privacy()) <= EPSILON0
    assert math.isinf(plain.epsilon0)
    assert plain.truth_law is None
    assert plain.expected_stderr(50) == plain.stderr_of(50, 3) < made.expected_stderr(50)
    assert isinstance(made, Noisy)


def test_what_does_not_fit_is_refused() -> None:
    """By name. Planted: the parameter's range not checked -> a spec of 0 is refused by another."""
    made = cancelling(5)
    numbers = dict(made.spec.parameters)
    wrong = MechanismSpec.of("cancelling", **{**numbers, "uniform": 0})
    with pytest.raises(ShoalError, match='"uniform"') as caught:
        create(wrong, LABELS)
    assert caught.value.kind is Kind.INVALID
    for bad in (
        partial(replace, made, response=response(YesNo())),
        partial(replace, signed_count(5), response=response(LABELS)),
    ):
        with pytest.raises(ShoalError) as caught:
            bad()
        assert caught.value.kind is Kind.INVALID


def test_errors_of_many_devices() -> None:
    """A million devices, a thousand cells: intervals are made in no time, and are near 1.96 errors.

    Planted: holders not rounded -> a thousand convolutions, which the count of them shows.
    """
    labels = tuple(f"c{number}" for number in range(1000))
    law = NoiseLaw(Truth.CELL, 1000, 1_000_000, 200, Q, 30, Fraction(50), 4)
    made = BundledHistogram(labels, law, KaryResponse(labels, least_uniform(1000, 10.0)))
    truth = made.truth_law
    assert truth == KaryLaw(1000, truth.same, truth.other) if truth else False
    entropy = np.random.default_rng(3)
    counts = entropy.integers(0, 2000, 1000)
    counts[0] += 1_000_000 - int(counts.sum())
    plus = np.stack([counts + 5, np.full(1000, 5)], axis=1).ravel()
    reach.cache_clear()
    tallied = made.tally(np.zeros((0, 2), dtype=np.uint8))
    estimate = made.estimate(replace(tallied, counts=plus, rows=int(plus.sum())), 1_000_000)
    assert reach.cache_info().misses <= 180
    wide = (estimate.ci_high - estimate.ci_low) / (2 * 1.96 * estimate.stderr)
    assert (wide > 0.95).all()
    assert (wide < 1.25).all()
