"""What every registered randomizer must keep when it is measured from outside: its errors, its
intervals, and its epsilon0.

``MechanismSuite`` inherits these tests. The cases are made from the registry: every setting of the
family on six categories, and what is chosen when nobody says which on every kind of domain that it
serves, at epsilon0 1 and 4; reduced, the first setting on the first such domain, at one of the two:
families take turns. So a new randomizer is measured by being registered.

**Errors.** ``HELD`` devices (one cell with most of them, one with a single device, one empty)
answer in many runs with fresh coins. In R runs the squared errors of a label, over
``expected_stderr``^2, add up to chi-square with R degrees of freedom: exactly for normal estimates,
and the kurtosis of these (below 0.1) widens its standard deviation sqrt(2/R) by 3 % at most. Full
size: R = 20,000, and 5 % are 5 of these standard deviations: a label of a right randomizer fails
with probability 6e-7 (1.2e-6 with the kurtosis). Reduced: R = 1,000, and the limits are those of
chi-square at 5e-7 on each side, 0.796 and 1.234.

**Standard errors.** The mean square of those that are reported is within 5 % of
``expected_stderr``^2, label by label. Up to 3.2 % is no chance (reduced, with half as many devices:
4.3 %): an estimate outside [0, n] is brought back before the variance is read off it, which shows
for an empty cell. Chance moves the mean of 1,000 runs by 0.3 % at most.

**Conservative members.** Let v(x) be the variance that a device with cell x adds. Devices draw
apart, so the expectation of *any* function of all reports is, as a function of one device's cell, a
combination of the columns of the table P(y | x). If the function is an unbiased estimate of the sum
of the devices' v, then so is v. Where v is no combination of the columns there is thus no such
estimate, however it is made, and a member reports an upper one: only such a member may set
``CONSERVATIVE``. Its standard errors may be above ``expected_stderr``, and its intervals cover more
than 96 %; below they may not be. ``test_a_conservative_member_can_do_no_better`` checks the premise
with numbers.

**Intervals.** The truth is in the interval in 94 % to 96 % of the runs, label by label. Full size:
as measured. The true coverages, where counts are binomial, were added up exactly: 94.8 % (unary, p
= 0.97, 5,400 devices) to 95.3 % (OUE at epsilon0 4, empty). Those would fail with probability 2e-7
each, and the seeds are fixed. Reduced: the exact limits of Clopper and Pearson for the coverage,
each wrong with probability 1e-6, must leave room for something from 94 % to 96 %: fewer than 901
and more than 986 of 1,000 are refused. Where chance reports a cell a few times, intervals cover
more (tests/unit/mechanisms/parts/test_intervals.py): about 97 % for dBitFlip with one bit at
epsilon0 4, so that another seed would refuse that member with probability 1e-3, not 1e-6.

**epsilon0.** ``accounting.audit`` attacks one report. Its statistic is a likelihood ratio that is
learned from the reports (other trials than those that are judged), so it is the best event for the
randomizer that is there, not for the one that is claimed. It refutes a true claim with probability
1e-6. That it finds most of what is claimed is checked as well: an audit that finds nothing proves
nothing. test_planted.py shows broken randomizers to the same audit.

Planted: p and q exchanged in ``cells.expected``; the mean's error without the part of the devices'
own levels; the errors of empty cells for all of them -> the errors fail. The errors of empty cells,
or p and q exchanged, in what ``cells.unbiased`` reports -> the standard errors fail. 1.7 or 2.3 for
1.96 -> the intervals fail. 0.92 epsilon0 claimed for it -> the audit refutes. All at the reduced
size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar

import mpmath
import numpy as np
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit, lower_limit, upper_limit
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Estimate, Mechanism
from shoal.mechanisms.base import Z
from shoal.mechanisms.parts.sampling import blocks
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, epsilon0_upper
from tests.sizes import CAMPAIGN, FULL, size

if TYPE_CHECKING:
    from tests.conformance.mechanisms.checks.case import Case

GROUPS = Categories(("a", "b", "c", "d", "e"))
TOWN = Places(48_100_000, 11_500_000, 48_109_000, 11_567_000, 1, 5)
DOMAINS: tuple[Domain, ...] = (GROUPS, YesNo(), Numeric(0, 4, 5), TOWN)
DEVICES = size(1_500, 3_000, 9_000)
HELD = {
    2: np.array([0, DEVICES]),
    6: np.array([0, 6, 2, 1, 0, 0]) * (DEVICES // 10)
    + np.array([0, 0, 0, DEVICES // 10 - 75, 74, 1]),
}
RUNS, AT_ONCE = size(1_000, 4_000, 20_000), 50
FALSE_ALARM = 1e-6
TRIALS, FEW = size(200_000, 1_000_000, 10_000_000), 200_000  # few are enough to convict
LESSONS = size(50_000, 200_000, 1_000_000)
ONE_BY_ONE = size(5_000, 10_000, 20_000)  # trials where reports are read one by one
# of the claim: where reports are read one by one, and elsewhere
LEAST_SEEN = 0.3, 0.97 if CAMPAIGN else 0.8
_AT_ONCE = 1 << 17  # reports of an audit, and so up to 6 MiB of words
_LISTED = 1 << 16  # outcomes that a likelihood ratio is learned for


def measured(name: str) -> Iterator[tuple[str, Domain, float, str]]:
    """(title, domain, epsilon0, setting) of every case of a family; reduced, of its first setting
    on the first domain that it serves, at one epsilon0.
    """
    both = (1.0, 4.0)
    turn = sorted(REGISTRY).index(name) % len(both)
    for domain in DOMAINS:
        try:
            settings = [setting.name for setting in REGISTRY[name].settings(domain)]
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            continue
        kind = type(domain).__name__.lower()
        for epsilon0 in both if FULL else both[turn : turn + 1]:
            yield f"{kind} {settings[0]} {epsilon0:g}", domain, epsilon0, settings[0]
        if not FULL:
            return
        if domain is GROUPS:
            for at, setting in enumerate(settings[1:]):
                epsilon0 = (4.0, 2.0)[at % 2]
                yield f"{kind} {setting} {epsilon0:g}", domain, epsilon0, setting


@dataclass(frozen=True)
class Errors:
    """Per label, over ``RUNS`` runs: squared errors and squared standard errors as reported, both
    in units of the expected variance, and how often the interval held the truth.
    """

    squares: NDArray[np.float64]
    reported: NDArray[np.float64]
    covered: NDArray[np.int64]


class StatisticsSuite:
    """The part of ``MechanismSuite`` that samples. ``measured`` is a ``Case`` of the registry's.

    ``CONSERVATIVE``: the reports cannot tell the coins' variance (see the module).
    """

    CONSERVATIVE: ClassVar[bool] = False

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64] | None:
        """int64[n], 0 to 2^16 - 1: what the reports uint8[n, bytes] say of the cells ``one`` and
        ``two``, all of it.

        By default the report itself, as a number. None where it has too many values: the audit then
        makes an estimate of every report by itself and compares the two cells. That is slow, so
        there are fewer trials; a member better says here what tells them apart.
        """
        if reports.shape[1] > 2:
            return None
        numbers = np.zeros(len(reports), dtype=np.int64)
        for column in reports.T:
            numbers = numbers * 256 + column
        return numbers

    def names_its_cause(self, case: Case) -> tuple[int, int]:
        """Two cells that reports tell apart by all of epsilon0, or nearly that."""
        return PAIRS[case.domain.size][0]

    def test_errors_are_those_that_were_predicted(self, measured: Case) -> None:
        """Planted: see the module."""
        ratios = simulated(self, measured).squares / RUNS
        low, high = (0.95, 1.05) if CAMPAIGN else variance_band(RUNS, FALSE_ALARM / 2)
        assert ratios.min() > low, ratios
        assert ratios.max() < high, ratios

    def test_standard_errors_that_are_reported_are_those_that_were_predicted(
        self, measured: Case
    ) -> None:
        """Planted: see the module."""
        ratios = simulated(self, measured).reported / RUNS
        assert ratios.min() > 0.95, ratios
        assert self.CONSERVATIVE or ratios.max() < 1.05, ratios

    def test_intervals_hold_the_truth_as_often_as_they_say(self, measured: Case) -> None:
        """Planted: see the module."""
        covered = simulated(self, measured).covered
        for hits in covered.tolist():
            if CAMPAIGN:
                assert hits / RUNS >= 0.94, covered
                assert self.CONSERVATIVE or hits / RUNS <= 0.96, covered
            else:
                assert upper_limit(hits, RUNS, FALSE_ALARM) >= 0.94, covered
                assert self.CONSERVATIVE or lower_limit(hits, RUNS, FALSE_ALARM) <= 0.96, covered

    def test_a_conservative_member_can_do_no_better(self, measured: Case) -> None:
        """Its estimates are means of one label and of scores of the outputs, so v is read off
        ``expected_stderr`` with one device a cell. What is left of v after the best combination of
        columns is more than 1 % of its range. (Other members pass.)

        Planted: set for k-ary randomized response, whose columns combine to anything -> this fails.
        """
        if not self.CONSERVATIVE:
            return
        mechanism, law = measured.mechanism, measured.mechanism.privacy()
        assert isinstance(law, FiniteLaw | KaryLaw)
        size = measured.domain.size
        variances = np.array(
            [mechanism.expected_stderr(held) ** 2 for held in np.eye(size, dtype=np.int64)]
        )
        table = (
            np.eye(size) * (law.same - law.other) / law.other + 1.0
            if isinstance(law, KaryLaw)
            else np.array(law.rows, dtype=float)
        )
        left = variances - table @ np.linalg.lstsq(table, variances, rcond=1e-9)[0]
        assert (np.abs(left).max(axis=0) > 0.01 * np.ptp(variances, axis=0)).all(), left

    def test_an_audit_finds_no_more_than_is_claimed_and_nearly_that(self, measured: Case) -> None:
        """Planted: see the module."""
        mechanism = measured.mechanism
        for cells in PAIRS[measured.domain.size]:
            result = audited(self, mechanism, mechanism.randomize, cells, measured.name)
            assert not result.refuted, result
            assert result.epsilon_measured_lower > LEAST_SEEN[result.trials >= TRIALS // 2] * told(
                mechanism.privacy(), *cells
            ), result

    def test_the_same_audit_convicts_a_device_that_picks_its_report(self, measured: Case) -> None:
        """It draws twice, and sends the report that says more of its cell: a retry until the report
        looks good.

        Planted: the first of the two sent -> not refuted, this fails.
        """
        mechanism, cells = measured.mechanism, self.names_its_cause(measured)
        likes = learned(
            self, mechanism, mechanism.randomize, cells, SeededEntropy(f"likes {measured.name}")
        )

        def picky(values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
            one, two = mechanism.randomize(values, entropy), mechanism.randomize(values, entropy)
            better = (likes(one) >= likes(two)) == (values == cells[0])
            return np.where(better[:, None, None], one, two)

        assert audited(self, mechanism, picky, cells, measured.name, FEW).refuted


# the second is of one block of Hadamard response for 1, 2 and 4 blocks
PAIRS = {2: ((0, 1),), 6: ((0, 1), (4, 0))}


def variance_band(runs: int, error: float) -> tuple[float, float]:
    """The quantiles ``error`` and 1 - ``error`` of chi-square with ``runs`` degrees of freedom,
    over ``runs``.
    """
    half = mpmath.mpf(runs) / 2

    def beyond(ratio: float, *, above: bool) -> float:
        ends = (half * ratio, mpmath.inf) if above else (0, half * ratio)
        return float(mpmath.gammainc(half, *ends, regularized=True))

    def bisect(inner: float, outer: float, *, above: bool) -> float:
        for _ in range(40):
            middle = (inner + outer) / 2
            inner, outer = (
                (middle, outer) if beyond(middle, above=above) > error else (inner, middle)
            )
        return outer

    return bisect(1.0, 0.01, above=False), bisect(1.0, 10.0, above=True)


@cache
def _simulated(truth: tuple[float, ...], case: Case) -> Errors:
    mechanism, held = case.mechanism, HELD[case.domain.size]
    entropy, values = (
        SeededEntropy(f"measured {case.spec.name} {case.name}"),
        np.tile(np.repeat(np.arange(held.size), held), AT_ONCE),
    )
    expected, true = mechanism.expected_stderr(held), np.array(truth)
    squares, reported, covered = (
        np.zeros(expected.size),
        np.zeros(expected.size),
        np.zeros(expected.size, dtype=np.int64),
    )
    for _ in range(RUNS // AT_ONCE):
        reports = mechanism.randomize(values, entropy).reshape(
            values.size * mechanism.messages, mechanism.report_size
        )
        for rows in np.split(reports, AT_ONCE):
            estimate = mechanism.estimate(mechanism.tally(rows))
            squares += ((estimate.values - true) / expected) ** 2
            low, high = of_coins(estimate)
            reported += (estimate.coins / expected) ** 2
            covered += (low <= true) & (true <= high)
    return Errors(squares, reported, covered)


def of_coins(estimate: Estimate) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the intervals as they are where no number is rounded: here cells are held fixed,
    and values in tests/statistical.
    """
    rounded = np.array(estimate.rounding or (0.0,) * len(estimate.labels)) > 0.0
    ends = ((estimate.ci_low, -Z), (estimate.ci_high, Z))
    low, high = (np.where(rounded, estimate.values + z * estimate.coins, end) for end, z in ends)
    return low, high


def simulated(suite: StatisticsSuite, case: Case) -> Errors:
    """The tests of a case read one simulation."""
    held = HELD[case.domain.size]
    return _simulated(
        tuple(suite.truth(case, np.repeat(np.arange(held.size), held)).tolist()), case
    )


def told(law: LocalPrivacy, one: int, two: int) -> float:
    """The largest epsilon that an audit of these two cells could find. Of a table it is that of
    their rows: neighbours may be closer than any two cells are allowed to be.
    """
    if not isinstance(law, FiniteLaw):
        return epsilon0_upper(law)
    return max(abs(math.log(a / b)) for a, b in zip(law.rows[one], law.rows[two], strict=True))


Draw = Callable[[NDArray[np.int64], Entropy], NDArray[np.uint8]]
"""``randomize`` of a mechanism, or of a broken device."""


def audited(
    suite: StatisticsSuite,
    mechanism: Mechanism,
    randomize: Draw,
    cells: tuple[int, int],
    seed: str,
    most: int = TRIALS,
) -> AuditResult:
    """The audit of one report of ``randomize``, the first cell against the second, with the
    epsilon0 that ``mechanism`` claims.
    """
    entropy = SeededEntropy(f"audit {mechanism.name} {seed} {cells}")
    likelihood = learned(suite, mechanism, randomize, cells, entropy)
    trials = min(most, ONE_BY_ONE) if isinstance(likelihood, partial) else most

    def views(which: int, count: int) -> dict[str, NDArray[np.float64]]:
        return {"likelihood ratio": likelihood(randomize(np.full(count, cells[which]), entropy))}

    return audit(
        views,
        epsilon0_upper(mechanism.privacy()),
        0.0,
        trials,
        false_alarm=FALSE_ALARM,
        at_once=_AT_ONCE,
    )


Likelihood = Callable[[NDArray[np.uint8]], NDArray[np.float64]]
"""float64[n]: larger where the report uint8[n, messages, report_size] speaks for the first cell
rather than the second.
"""


def learned(
    suite: StatisticsSuite,
    mechanism: Mechanism,
    randomize: Draw,
    cells: tuple[int, int],
    entropy: Entropy,
) -> Likelihood:
    """The logarithm of the likelihood ratio, learned from LESSONS reports of each cell."""
    if (
        suite.outcomes(
            mechanism,
            mechanism.randomize(np.zeros(1, dtype=np.int64), entropy).reshape(1, -1),
            *cells,
        )
        is None
    ):
        return partial(by_estimates, mechanism, cells)
    seen = [np.zeros(_LISTED), np.zeros(_LISTED)]
    for which in (0, 1):
        for part in blocks(LESSONS, _AT_ONCE):
            reports = randomize(np.full(part.stop - part.start, cells[which]), entropy)
            found = suite.outcomes(mechanism, reports.reshape(len(reports), -1), *cells)
            assert found is not None
            seen[which] += np.bincount(found, minlength=_LISTED)
    ratio = np.log(seen[0] + 0.5) - np.log(seen[1] + 0.5)

    def likelihood(reports: NDArray[np.uint8]) -> NDArray[np.float64]:
        found = suite.outcomes(mechanism, reports.reshape(len(reports), -1), *cells)
        assert found is not None
        return np.asarray(ratio[found])

    return likelihood


def by_estimates(
    mechanism: Mechanism, cells: tuple[int, int], reports: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """By how much the estimate of the first cell from one report alone is above that of the
    second.
    """
    found = np.empty(len(reports))
    for at, report in enumerate(reports):
        values = mechanism.estimate(mechanism.tally(report)).values
        found[at] = values[cells[0]] - values[cells[1]]
    return np.round(found, 6)
