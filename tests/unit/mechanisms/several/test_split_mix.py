"""A number split into shares: exact laws, totals and their errors, reading the sum, refusals."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Tally
from shoal.mechanisms.noise.polya import UNIT
from shoal.mechanisms.several import noise_of_sum
from shoal.mechanisms.several.protocol import Noisy, Several, Summed
from shoal.mechanisms.several.registry import create, create_any, fewest_messages
from shoal.mechanisms.several.split_mix import SplitMix
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured

DOMAIN = Numeric(-5.0, 15.0, 11)  # a step is 2, a half step 1; and "no answer", the middle, 5


def split(
    b: float = 4.0, shares: int = 12, slots: int = 4, width: int = 3, domain: Numeric = DOMAIN
) -> SplitMix:
    made = create(
        MechanismSpec.of(
            "split_mix", scale=round(UNIT * b), shares=shares, slots=slots, bytes=width
        ),
        domain,
    )
    assert isinstance(made, SplitMix)
    return made


class Counted:
    """How many bytes are asked for."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy, self.asked = entropy, list[int]()

    def bytes(self, count: int) -> bytes:
        self.asked.append(count)
        return self._entropy.bytes(count)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        raise AssertionError("a device loads no numpy")


def total(report: tuple[bytes, ...]) -> int:
    return sum(int.from_bytes(share, "big") for share in report)


def test_it_is_one_of_several_messages_that_needs_all_of_them() -> None:
    made = split()
    assert isinstance(made, Several)
    assert isinstance(made, Summed)
    assert not isinstance(made, Noisy)
    assert (made.messages, made.fewest, made.report_size) == (4, 4, 3)
    assert fewest_messages(made) == 0
    assert create_any(made.spec, DOMAIN) == made
    assert math.isinf(made.epsilon0)


def test_shares_add_up_to_the_number_with_the_stated_noise() -> None:
    """The sum less the number of a cell has the law of one Polya share less another, from its
    definition: chi-square, with a false alarm in 1e-6 of seeds. Planted: the noise of all devices
    drawn by each -> fails; the middle taken as 0 -> fails.
    """
    made, entropy = split(b=2.0, shares=3), Poured(SeededEntropy("split noise"))
    p, r = math.exp(-0.5), 1 / 3
    one = [(1.0 - p) ** r]
    for k in range(200):
        one.append(one[-1] * p * (k + r) / (k + 1))
    law = np.convolve(one, one[::-1])
    middle = len(one) - 1
    draws, reach = size(20_000, 300_000), 5
    found = Counter[int]()
    for at in range(draws):
        cell = at % DOMAIN.size
        number = 2 * cell if cell < DOMAIN.levels else 10
        rest = (total(made.randomize_one(cell, entropy)) - number) % (1 << 24)
        found[max(-reach, min(reach, rest - (rest >> 23 << 24)))] += 1
    inner = law[middle - reach + 1 : middle + reach]
    tail = (1.0 - inner.sum()) / 2.0
    expected = draws * np.array([tail, *inner, tail])
    observed = [found[x] for x in range(-reach, reach + 1)]
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_all_shares_but_one_are_uniform_and_independent() -> None:
    """Every pair of shares of the same cell, by their lowest 3 bits, and each share's highest byte:
    chi-square, a false alarm in 1e-5 of seeds at most. Planted: shares of one byte less -> fails;
    the first share drawn twice -> fails.
    """
    made, entropy = split(), Poured(SeededEntropy("split shares"))
    reports = [made.randomize_one(3, entropy) for _ in range(size(8_000, 200_000))]
    low = np.array([[share[2] & 7 for share in report] for report in reports])
    high = np.array([[share[0] for share in report] for report in reports])
    for one in range(made.messages):
        assert stats.chisquare(np.bincount(high[:, one], minlength=256)).pvalue > 1e-6
        for other in range(one):
            pairs = np.bincount(8 * low[:, one] + low[:, other], minlength=64)
            assert stats.chisquare(pairs).pvalue > 1e-6


def test_what_is_drawn_does_not_depend_on_the_value() -> None:
    asked = set[tuple[int, ...]]()
    for cell in range(DOMAIN.size):
        counted = Counted(SYSTEM)
        split().randomize_one(cell, counted)
        asked.add(tuple(counted.asked))
    assert asked == {(8, 8, 9)}


@for_each("more", [1, 3])
def test_means_are_unbiased_and_err_as_they_say(more: int) -> None:
    """Over many batches, with as many devices as shares and three times as many: mean, variance,
    coverage. Values lie on levels, so rounding adds nothing, and its room is taken off. A false
    alarm in 1e-5 of seeds at most. Planted: the error of ``shares`` devices whatever came -> fails.
    """
    devices, made, rounds = 12 * more, split(b=40.0), size(500, 8_000)
    values = np.arange(devices) % DOMAIN.size
    truth = np.where(values < DOMAIN.levels, -5.0 + 2.0 * values, 5.0).mean()
    entropy = Poured(SeededEntropy("split means"))
    errors, covered = list[float](), 0
    for _ in range(rounds):
        bundles = made.randomize(values, entropy)
        assert bundles.sizes.tolist() == [made.messages] * devices
        estimate = made.estimate(made.tally(bundles.rows), devices)
        errors.append(float(estimate.values[0] - truth))
        covered += int(estimate.ci_low[0] <= truth <= estimate.ci_high[0])
        assert estimate.stderr[0] == pytest.approx(made.expected_stderr(devices))
    said = float(estimate.coins[0])
    assert said < float(estimate.stderr[0])
    assert abs(np.mean(errors)) < stats.norm.isf(1e-6) * said / math.sqrt(rounds)
    # kurtosis of a difference of Polyas is at most 6, so the variance's is 3 + 3 / more
    spread = math.sqrt((2.0 + 3.0 / more) / rounds)
    assert abs(np.var(errors) / said**2 - 1.0) < stats.norm.isf(1e-6) * spread
    assert stats.binom.ppf(1e-6, rounds, 0.95) <= covered <= stats.binom.ppf(1 - 1e-6, rounds, 0.96)


@for_each("reports", [100, 250])
def test_intervals_are_those_of_the_exact_law(reports: int) -> None:
    """The law on whole half steps by convolution, with a normal one for rounding. Planted: 1.96
    standard deviations -> less than 95 % of the Laplace law, fails.
    """
    b, shares = 30.0, 100
    p, r = math.exp(-1.0 / b), reports / shares
    one = [(1.0 - p) ** r]
    for k in range(4_000):
        one.append(one[-1] * p * (k + r) / (k + 1))
    law = np.convolve(one, one[::-1])
    places = np.arange(len(law)) - (len(one) - 1)
    reach = noise_of_sum.reach(shares, round(UNIT * b), reports)
    spread = math.sqrt(reports)
    inside = stats.norm.cdf((reach - places) / spread) - stats.norm.cdf((-reach - places) / spread)
    assert 0.95 <= float(law @ inside) <= 0.953


def test_tallies_add_and_the_sum_is_read_across_the_modulus() -> None:
    """Whatever the order of rows, parts, and however often the sum went around; noise may take it
    below 0 and above its end. Planted: read as the number from 0 to q - 1 -> fails.
    """
    made = split(width=2)
    rng = SeededEntropy("split sums")
    rows = np.frombuffer(rng.bytes(2 * 4 * 50), dtype=np.uint8).reshape(-1, 2)
    whole = made.tally(rows)
    assert whole == made.tally(rows[:77]) + made.tally(rows[77:])
    assert whole == made.tally(rows[::-1].copy())
    assert whole.rows == 200
    for wanted in (-700, -1, 0, 5, 999, 1000, 1700):
        last = (wanted - sum(int.from_bytes(row.tobytes(), "big") for row in rows[:-1])) % 65_536
        fitting = np.vstack([rows[:-1], np.frombuffer(last.to_bytes(2, "big"), np.uint8)])
        mean = made.estimate(made.tally(fitting), 50).values[0]
        assert mean == pytest.approx(-5.0 + wanted / 50)


def test_how_many_reports_a_modulus_holds() -> None:
    assert split(b=0.5, width=2).most_reports == (1 << 15) // 20
    # 2^14 is 20 standard deviations of the noise of so many devices
    wide = split(b=1000.0, width=2)
    assert wide.most_reports == pytest.approx((2**14 / 20) ** 2 / (2 * 1000.0**2 / 12), abs=1)
    assert split(width=4, domain=Numeric(0.0, 1.0, 1001)).most_reports == (1 << 31) // 2000


@for_each(
    "numbers, named",
    [
        ({"slots": 2}, "slots"),
        ({"slots": 201}, "slots"),
        ({"bytes": 1}, "bytes"),
        ({"bytes": 9}, "bytes"),
        ({"shares": 0}, "shares"),
        ({"scale": 0}, "scale"),
        ({"more": 1}, "more"),
    ],
)
def test_integers_out_of_range_are_refused_by_name(numbers: dict[str, int], named: str) -> None:
    usual = {"scale": UNIT, "shares": 5, "slots": 4, "bytes": 4}
    with pytest.raises(ShoalError, match=f'"{named}"') as caught:
        create(MechanismSpec.of("split_mix", **{**usual, **numbers}), DOMAIN)
    assert caught.value.kind is Kind.INVALID


def test_what_is_no_number_or_no_whole_batch_is_refused() -> None:
    made = split()
    for domain in (YesNo(), Categories(("a", "b"))):
        with pytest.raises(ShoalError, match="numeric domain"):
            create(made.spec, domain)
    for value in (-1, 12, True, 1.0):
        with pytest.raises(ShoalError) as caught:
            made.randomize_one(value, SYSTEM)  # type: ignore[arg-type]  # the point of the test
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        made.randomize(np.array([12]), SYSTEM)
    for shape in ((4, 2), (4,)):
        with pytest.raises(ShoalError):
            made.tally(np.zeros(shape, dtype=np.uint8))
    three = made.tally(np.zeros((3, 3), dtype=np.uint8))
    with pytest.raises(ShoalError, match="whole reports"):
        made.estimate(three, 1)
    with pytest.raises(ShoalError):
        made.estimate(Tally(np.zeros(9, dtype=np.int64), 4), 1)
    assert Fraction(made.mean_messages) == 4
