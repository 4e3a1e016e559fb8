"""Mechanisms of several messages: shapes, totals, errors and intervals, and what they refuse."""

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

from shoal.domain import Categories, Domain, Numeric, Places, Words, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Tally
from shoal.mechanisms.maps.block_squares import BlockGrid
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.names import NAMES, OF_SIGNS
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import PARAMETERS, spec_of
from shoal.mechanisms.several.protocol import Bundles, Noisy, Several, sizes_tell
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create, create_any
from shoal.mechanisms.several.signed_count import SignedCount
from shoal.mechanisms.several.tree import CellTree
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured

LABELS = Categories(tuple("abc"), (0, 1, 2))  # and "no answer": four cells
ROW = Places(0, 0, 10, 30, 1, 3)
Q, FLOODS = Fraction(1 << 31, 1 << 32), Fraction(5)


def cancelling(shares: int, slots: int = 200) -> Noisy:
    law = NoiseLaw(Truth.CELL, LABELS.size, shares, slots, Q, 6, FLOODS, 3)
    return BundledHistogram(LABELS.labels, law)


def dummies(shares: int, slots: int = 200) -> Noisy:
    law = NoiseLaw(Truth.CELL, LABELS.size, shares, slots, dummies=Fraction(40))
    return BundledHistogram(LABELS.labels, law)


def signed_count(shares: int, slots: int = 200) -> Noisy:
    law = NoiseLaw(Truth.SIGN, 1, shares, slots, Q, 6, FLOODS, 3)
    return SignedCount(("no", "yes"), law)


def among_empties(shares: int, slots: int = 200) -> Noisy:
    law = replace(cancelling(shares, slots).noise, empties=Fraction(30), widest=5)
    return BundledHistogram(LABELS.labels, law)


def full(shares: int, slots: int = 60) -> Noisy:
    return BundledHistogram(LABELS.labels, replace(cancelling(shares, slots).noise, full=True))


def count_among_empties(shares: int, slots: int = 200) -> Noisy:
    law = replace(signed_count(shares, slots).noise, empties=Fraction(30), widest=5)
    return SignedCount(("no", "yes"), law)


def full_count(shares: int, slots: int = 60) -> Noisy:
    return SignedCount(("no", "yes"), replace(signed_count(shares, slots).noise, full=True))


def ranges(shares: int, slots: int = 200) -> Noisy:
    law = NoiseLaw(Truth.CELL, 6, shares, slots, dummies=Fraction(40), truths=2)
    return Ranges(LABELS, CellTree(4, 2, 2), law)


def blocks(shares: int, slots: int = 200) -> Noisy:
    """A row of three cells and "elsewhere": blocks of two, of one, and of "elsewhere"."""
    law = NoiseLaw(Truth.CELL, 7, shares, slots, dummies=Fraction(40), truths=2)
    return MapBlocks(ROW, BlockGrid(1, 3, 2), law)


HIDDEN: list[Callable[..., Noisy]] = [among_empties, full, count_among_empties, full_count]
MAKERS: list[Callable[..., Noisy]] = [
    blocks,
    cancelling,
    dummies,
    ranges,
    signed_count,
    *HIDDEN,
]


def domain_of(made: Several) -> Domain:
    if isinstance(made, MapBlocks):
        return made.places
    return YesNo() if made.name == "signed_count" else LABELS


@for_each("make", MAKERS)
def test_bundles_are_those_of_one_device_after_the_other(make: Callable[..., Noisy]) -> None:
    made, entropy = make(9), SeededEntropy(1)
    values = np.arange(300) % domain_of(made).size
    bundles = made.randomize(values, SeededEntropy(1))
    assert bundles.rows.shape == (int(bundles.sizes.sum()), made.report_size)
    assert made.fewest <= bundles.sizes.min() <= bundles.sizes.max() <= made.messages
    assert made.valid(bundles.rows).all()
    assert made.tally(bundles.rows).rows == len(bundles.rows)
    one = [made.randomize_one(int(value), Poured(entropy)) for value in values[:1]]
    assert all(len(message) == made.report_size for report in one for message in report)
    assert isinstance(made, Several)
    assert create_any(made.spec, domain_of(made)).spec == made.spec


@for_each("make", MAKERS)
def test_whose_sizes_tell_is_known_by_name(make: Callable[..., Noisy]) -> None:
    """Planted: a name left out of ``OF_SIGNS``, or one too many -> fails."""
    made = make(9)
    assert sizes_tell(made) == (made.name in OF_SIGNS and make not in HIDDEN)


@for_each("make", MAKERS)
@for_each("more", [1, 2])
def test_totals_are_unbiased_and_err_as_they_say(make: Callable[..., Noisy], more: int) -> None:
    """Over many batches, with as many devices as shares, and twice as many: mean, variance and
    coverage of every label. Seeds are fixed; another one gives a false alarm in 1e-5 of cases.

    Planted: the error of ``shares`` devices whatever came, noise of + alone, n taken from the
    messages in the signed count, floods or empties in the error -> each fails.
    """
    devices = 12 * more
    made, rounds = make(12), size(400, 6_000)
    cells = domain_of(made).size
    values = np.arange(devices) % cells
    truth = np.bincount(values, minlength=cells)
    entropy = Poured(SeededEntropy(f"totals {made.name}"))
    found, covered = list[NDArray[np.float64]](), np.zeros(cells)
    for _ in range(rounds):
        bundles = made.randomize(values, entropy)
        estimate = made.estimate(made.tally(bundles.rows), devices)
        found.append(estimate.values - truth)
        covered += (estimate.ci_low <= truth) & (truth <= estimate.ci_high)
        assert estimate.stderr.max() == pytest.approx(made.expected_stderr(devices))
    errors, said = np.array(found), estimate.stderr
    limit = stats.norm.isf(1e-6)
    assert (np.abs(errors.mean(axis=0)) < limit * said / math.sqrt(rounds)).all()
    # the variance of a variance: with a kurtosis of 6 at most, as of a Laplace law
    assert (np.abs(errors.var(axis=0) / said**2 - 1) < limit * math.sqrt(5 / rounds)).all()
    assert (covered >= stats.binom.ppf(1e-6, rounds, 0.95)).all()


@for_each("reports", [1, 10, 37])
def test_intervals_are_those_of_the_exact_law(reports: int) -> None:
    """Of cancelling noise by a convolution of all sizes, of dummies by scipy. Planted: 1.96
    standard deviations -> narrower than 95 %, fails.
    """
    law = cancelling(10).noise
    below, above = noise_of_batch.reach(law, reports)
    wide = 400
    whole = np.zeros(2 * wide + 1)
    whole[wide] = 1.0
    for step in range(1, law.longest + 1):
        rate = reports / 10 * 0.5**step / step
        for sign in (1, -1):
            drawn = np.zeros_like(whole)
            for times in range(40):
                part = stats.poisson.pmf(times, rate)
                drawn += part * np.roll(whole, sign * step * times)
            whole = drawn
    places = np.arange(-wide, wide + 1)
    inside = whole[(-below <= places) & (places <= above)].sum()
    narrower = whole[(-below < places) & (places < above)].sum()
    assert narrower < 0.95 <= inside + 1e-12
    assert (below, above) == (above, below)
    rate = float(Fraction(40) * reports / 10)
    low, high = noise_of_batch.reach(dummies(10).noise, reports)
    assert stats.poisson.cdf(rate - low - 1, rate) <= 0.025
    assert stats.poisson.sf(rate + high, rate) <= 0.025
    assert stats.poisson.cdf(rate + high, rate) - stats.poisson.cdf(rate - low - 1, rate) >= 0.95


@for_each("make", MAKERS)
def test_the_integers_come_back(make: Callable[..., Noisy]) -> None:
    made = make(77, 50)
    again = create(made.spec, domain_of(made))
    assert isinstance(again, Noisy)
    assert again.noise == made.noise
    hiding = {"full"} if made.noise.full else {"empties", "widest"} if made.noise.empties else set()
    assert {name for name, _ in made.spec.parameters} == hiding | {
        parameter.name for parameter in PARAMETERS[made.name]
    }


@for_each("make", HIDDEN)
def test_empty_messages_change_no_estimate(make: Callable[..., Noisy]) -> None:
    """Planted: the empty message counted as a + of the last cell -> fails; as a report -> fails."""
    made = make(9)
    number, count = made.noise.cells * 2, domain_of(made).size
    rows = np.full((50, made.report_size), number, dtype=np.uint8)
    assert made.valid(rows).all()
    assert not made.valid(rows + 1).any()
    drawn = made.randomize(np.arange(30) % count, SeededEntropy(3)).rows
    some = np.concatenate([rows, drawn])
    with_more, without = (made.estimate(made.tally(each), 30) for each in (some, drawn))
    for name in ("values", "stderr", "ci_low", "ci_high"):
        np.testing.assert_array_equal(getattr(with_more, name), getattr(without, name))


@for_each("make", [full, full_count])
def test_full_submissions_have_one_size(make: Callable[..., Noisy]) -> None:
    """Also where the noise has no room. Planted: ``fewest`` 1 -> a task of other shapes, fails."""
    made = make(2, 7)
    assert made.fewest == made.messages == made.mean_messages == 7
    values = np.arange(200) % domain_of(made).size
    assert set(made.randomize(values, SeededEntropy(5)).sizes.tolist()) == {7}


HIDING = [
    {"empties": 5},  # of no size
    {"widest": 5},
    {"empties": 5, "widest": 5, "full": 1},
    {"widest": 5, "full": 1},
    {"empties": 0, "widest": 5},
    {"empties": 5, "widest": 257},
    {"full": 0},
    {"full": 2},
]


@for_each("name", ["cancelling", "signed_count", "dummies"])
@for_each("hiding", HIDING)
def test_integers_that_hide_nothing_are_refused(name: str, hiding: dict[str, int]) -> None:
    """Planted: ``full`` beside ``empties`` accepted -> fails."""
    made = {"cancelling": cancelling, "signed_count": signed_count, "dummies": dummies}[name](9)
    spec = MechanismSpec.of(name, **{**dict(made.spec.parameters), **hiding})
    refused(Kind.INVALID, lambda: create(spec, domain_of(made)))


def refused(kind: Kind, call: Callable[[], object]) -> str:
    with pytest.raises(ShoalError) as caught:
        call()
    assert caught.value.kind is kind
    return caught.value.message


def test_what_does_not_fit_is_refused() -> None:
    """Each by name, before anything is drawn."""
    spec = cancelling(5).spec
    numbers = dict(spec.parameters)

    def changed(**others: int) -> MechanismSpec:
        return MechanismSpec.of("cancelling", **{**numbers, **others})

    bad = {"shares": 0, "slots": 201, "q": 1 << 32, "longest": 257}
    for name, value in bad.items():
        wrong = changed(**{name: value})
        assert f'"{name}"' in refused(Kind.INVALID, partial(create, wrong, LABELS))
    assert "k = 4" in refused(Kind.INVALID, lambda: create(changed(k=5), LABELS))
    refused(Kind.INVALID, lambda: create(changed(more=1), LABELS))
    refused(Kind.INVALID, lambda: create(signed_count(5).spec, LABELS))
    assert ", ".join(NAMES) in refused(
        Kind.INVALID, lambda: create(MechanismSpec.of("krr", k=4, uniform=5), LABELS)
    )
    for domain in (Words(("a",)), Numeric(0.0, 1.0, 9)):
        refused(Kind.INVALID, partial(create, spec, domain))
    assert create_any(MechanismSpec.of("krr", k=4, uniform=5), LABELS).name == "krr"
    with pytest.raises(ShoalError, match="around one true message"):
        BundledHistogram(LABELS.labels, NoiseLaw(Truth.CELL, 4, 5, 6, dummies=Q, truths=2))
    with pytest.raises(ShoalError):
        spec_of("dummies", NoiseLaw(Truth.CELL, 4, 5, 6, dummies=Fraction(1, 3)))


@for_each("make", MAKERS)
def test_values_and_rows_that_are_none_are_refused(make: Callable[..., Noisy]) -> None:
    made = make(9)
    cells = domain_of(made).size
    for bad in (-1, cells, True):
        refused(Kind.INVALID, partial(made.randomize_one, bad, SeededEntropy(1)))
    for bad in (-1, cells):
        refused(Kind.INVALID, partial(made.randomize, np.array([0, bad]), SeededEntropy(1)))
    rows = np.full((3, made.report_size), 255, dtype=np.uint8)
    assert not made.valid(rows).any()
    refused(Kind.INVALID, lambda: made.tally(rows))
    refused(Kind.INVALID, lambda: made.estimate(Tally(np.zeros(11, dtype=np.int64), 3), 3))
    with pytest.raises(ShoalError):
        Bundles(rows, np.array([1, 1]))
    with pytest.raises(ShoalError):
        Bundles(rows, np.array([3, 0]))
