"""The Square Wave mechanism: the paper's width, honesty where few answer, and distributions against
known laws.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.numbers.distribution import Distributed
from shoal.mechanisms.numbers.square_wave import ITERATIONS, SquareWave, best_half, ems, ems_of_each
from shoal.task import MechanismSpec
from tests.sizes import size

WORDS = 1 << 64
FINE = Numeric(0, 63, 64)


def made(domain: Numeric, epsilon0: float, setting: str = "") -> SquareWave:
    mechanism = create(design("square_wave", domain, epsilon0, setting), domain)
    assert isinstance(mechanism, SquareWave)
    return mechanism


def distance(shares: np.ndarray, true: np.ndarray) -> float:
    """Of the distribution functions, on average over the domain, in widths of it."""
    return float(np.abs(np.cumsum(shares - true)).sum() / (true.size - 1))


def test_the_width_is_the_papers() -> None:
    """In 50 digits, where floats cancel. Planted: without the - e0 of the denominator -> this
    fails.
    """
    with mpmath.workdps(50):
        for e0 in (1e-9, 1e-3, 0.1, 1.0, 3.0, 8.0, 40.0):
            x, e = mpmath.mpf(e0), mpmath.exp(e0)
            assert best_half(1000, e0) == int(
                (x * e - e + 1) / (2 * e * (e - 1 - x)) * 1000 + mpmath.mpf(10) ** -6
            )
    assert best_half(1000, 1.0) == 256
    assert best_half(7, 700.0) == 0


def test_a_known_law_comes_back() -> None:
    """18,000 of 20,000 devices in the shape x^4 (1 - x) over 64 levels, at epsilon0 2: distance
    below 0.016, quantiles within 3 of 63 steps.

    Over 200 seeds the distance was 0.0056 +- 0.0017, 0.0113 at most, and the quantiles within 2
    steps: 0.016 is 6 standard deviations above, a false alarm with probability below 2e-3 whatever
    the tail if it falls as fast as an exponential one (e^-6), 1e-9 if it is normal. The seed is
    fixed. Planted: a table that is three places off, smoothing from one side only, the levels
    without the output "no answer" -> this fails.
    """
    x = (np.arange(64) + 0.5) / 64
    counts = np.floor(18_000 * x**4 * (1 - x) / (x**4 * (1 - x)).sum()).astype(np.int64)
    values = np.repeat(np.arange(65), [*counts, 20_000 - counts.sum()])
    mechanism = made(FINE, 2.0)
    assert isinstance(mechanism, Distributed)
    tally = mechanism.tally(mechanism.randomize(values, SeededEntropy("shape"))[:, 0])
    spread, true = mechanism.distribution(tally), counts / counts.sum()
    assert spread.method == "EMS"
    assert distance(spread.shares, true) < 0.016
    assert spread.answered == pytest.approx(0.9, abs=0.05)
    for q in (0.1, 0.5, 0.9):
        assert spread.quantile(q) == pytest.approx(
            float(np.searchsorted(np.cumsum(true), q)), abs=3.0
        )
    again = mechanism.distribution(tally)
    assert again.shares.tobytes() == spread.shares.tobytes()


def test_the_unsmoothed_likelihood_is_where_smoothing_starts_from() -> None:
    """Counts that are exactly expected of a flat law: equal shares are both the likeliest and the
    smoothest, and come back at once.
    """
    mechanism = made(Numeric(0, 1, 5), 1.0)
    table = mechanism.response.table.probabilities()
    assert ems(table, table.mean(axis=0) * 6e6) == pytest.approx(np.full(6, 1 / 6), abs=1e-9)


def test_ems_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the likelihood would go on changing: after so many iterations, here ten. Planted: no
    bound -> this doesn't end.
    """
    monkeypatch.setattr("shoal.mechanisms.numbers.square_wave.TOLERANCE", 0.0)
    monkeypatch.setattr("shoal.mechanisms.numbers.square_wave.ITERATIONS", 10)
    table = made(Numeric(0, 1, 5), 1.0).response.table.probabilities()
    shares = ems(table, np.array([1e9, *[1.0] * (table.shape[1] - 1)]))
    assert shares.sum() == pytest.approx(1.0)
    assert ITERATIONS == 10_000


@pytest.mark.parametrize("epsilon0", [0.7, 3.0, 6.5])
def test_decoded_together_is_decoded_alone(
    epsilon0: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, whoever else is there: tallies that end after a few iterations, after hundreds,
    and not before the limit.

    Planted: the shares of who ends written to the first places of the answer -> this fails; one
    product of two matrices in the place of the stacked ones -> this fails.
    """
    limit = size(1_000, ITERATIONS)
    monkeypatch.setattr("shoal.mechanisms.numbers.square_wave.ITERATIONS", limit)
    mechanism, entropy = made(Numeric(0.0, 1.0, 12), epsilon0), SeededEntropy("together")
    table = mechanism.response.table.probabilities()
    sizes = [(cell, 10.0**power) for cell in range(9) for power in (1, 4, 9)]
    counts = np.array(
        [
            np.rint(table[cell] * rows) + np.asarray(entropy.words(table.shape[1])) % 7
            for cell, rows in sizes
        ],
        dtype=np.float64,
    )
    for shares, each in zip(ems_of_each(table, counts), counts, strict=True):
        np.testing.assert_array_equal(shares, ems(table, each))
    tallies = [Tally(each, int(each.sum())) for each in counts.astype(np.int64)]
    for found, tally in zip(mechanism.distributions(tallies), tallies, strict=True):
        np.testing.assert_array_equal(found.shares, mechanism.distribution(tally).shares)


def test_nobody_answered() -> None:
    """The mean is not known: the middle, and all of the domain. The distribution is finite and says
    that next to nobody answered.
    """
    mechanism = made(Numeric(10, 30, 5), 4.0)
    values = np.full(2_000, 5)
    tally = mechanism.tally(mechanism.randomize(values, SeededEntropy("silent"))[:, 0])
    estimate = mechanism.estimate(tally)
    assert (estimate.values[0], estimate.stderr[0], estimate.ci_low[0], estimate.ci_high[0]) == (
        20,
        10,
        10,
        30,
    )
    assert mechanism.expected_stderr(np.array([0, 0, 0, 0, 0, 2_000]))[0] == 10
    spread = mechanism.distribution(tally)
    assert spread.answered is not None
    assert spread.answered < 0.1


def test_no_reports_have_no_distribution() -> None:
    mechanism = made(Numeric(0, 1, 5), 1.0)
    empty = Tally(np.zeros(mechanism.response.table.outputs, dtype=np.int64), 0)
    with pytest.raises(ShoalError, match="no reports") as caught:
        mechanism.distribution(empty)
    assert caught.value.kind is Kind.INVALID


def test_the_mean_is_unbiased_and_as_good_as_centred_places() -> None:
    """The plain unbiased estimate scores a place by itself, over what windows leave of it. The
    scores of least variance err no more.
    """
    mechanism, held = made(Numeric(0, 1, 11), 1.0), np.array([100] * 11 + [0])
    table, half = mechanism.response.table.probabilities(), mechanism.half
    places = np.append(np.arange(-half, 11 + half) - 5.0, 0.0)
    moved = table @ places
    plain = places / (moved[10] / 5.0)
    assert table @ plain == pytest.approx(np.append(np.arange(11) - 5.0, 0.0))
    variance = sum(float(row @ (plain - row @ plain) ** 2) for row in table[:-1]) * 100
    # About the middle of the domain, where the ratio's first order is the numerator's error.
    assert mechanism.expected_stderr(held)[0] <= math.sqrt(variance) / 1100 / 10 * 1.001


def test_a_peak_comes_out_as_a_hill() -> None:
    """All devices at level 32 of 64, reports exactly as expected: the smoothing takes more than a
    third of the peak to its neighbours, evenly.

    Planted: no smoothing -> a peak of 0.9 or more, and this fails.
    """
    table = made(FINE, 4.0).response.table.probabilities()
    shares = ems(table, table[32] * 1e6)
    assert shares[32] == shares.max() < 0.65
    assert shares[31] == pytest.approx(shares[33], rel=0.05)


def test_the_error_of_the_mean_is_that_of_its_numerator() -> None:
    """What an output counts for in the sum of (level - mean), cell by cell: no answer is 0.
    Planted: its score left out -> this fails.
    """
    mechanism = made(Numeric(0, 1, 5), 1.0)
    weights = mechanism._weights(mechanism._scores()[0], 0.7)
    assert mechanism.response.table.probabilities() @ weights == pytest.approx(
        [-2.7, -1.7, -0.7, 0.3, 1.3, 0.0], abs=1e-9
    )


@pytest.mark.parametrize("domain", [YesNo(), Categories(("a", "b", "c"))])
def test_other_domains_are_refused(domain: YesNo | Categories) -> None:
    with pytest.raises(ShoalError, match="numeric domain") as caught:
        design("square_wave", domain, 1.0)
    assert caught.value.kind is Kind.INVALID


def test_integers_that_do_not_fit_are_refused() -> None:
    domain = Numeric(0, 1, 5)
    for spec, said in (
        (
            MechanismSpec.of("square_wave", k=6, half=1, low=(WORDS - 1) // 10 + 1),
            f'"low" is 1 to {(WORDS - 1) // 10}',
        ),
        (MechanismSpec.of("square_wave", k=7, half=1, low=1), "set k = 6"),
        (MechanismSpec.of("square_wave", k=6, half=16_000, low=1), "use fewer levels"),
    ):
        with pytest.raises(ShoalError, match=said) as caught:
            create(spec, domain)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="use fewer levels"):
        design("square_wave", Numeric(0, 1, 200), 1.0)


def test_a_flat_stretch_stays_flat() -> None:
    """EMS over many seeds of a flat law: no level is far off on average. False alarm: 6 standard
    errors, seeds fixed.
    """
    mechanism, runs = made(Numeric(0, 1, 16), 2.0), size(8, 40)
    values = np.repeat(np.arange(17), [*[300] * 16, 200])
    found = np.array(
        [
            mechanism.distribution(
                mechanism.tally(mechanism.randomize(values, SeededEntropy(f"flat {run}"))[:, 0])
            ).shares
            for run in range(runs)
        ]
    )
    assert np.abs(found.mean(axis=0) - 1 / 16).max() < 6 * found.std() / math.sqrt(runs)
