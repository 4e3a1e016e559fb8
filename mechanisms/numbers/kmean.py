"""The mean of a number, by k-ary randomized response over its levels and the "no answer" cell.

Each device rounds its number to one of the domain's levels (unbiased, see ``Numeric``) and answers
by k-RR over k = levels + 1 cells. After shuffling this is far better than rounding to one bit,
whose rounding noise alone is n / 4 (Balle, Bell, Gascon, Nissim 2019, section 4: k-level rounding,
k about n^(1/3), is optimal for one message).

The randomizer, its integers and its privacy are those of ``krr``: only the estimate differs. The
reports tell how the numbers are distributed, too: the counts of the levels, projected
(``distribution``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import NO_ANSWER, Domain, Numeric
from shoal.mechanisms.base import Estimate, Family, Tally, invalid, only
from shoal.mechanisms.categories.krr import PARAMETERS, KaryResponse, check_k, least_uniform
from shoal.mechanisms.numbers import rounding
from shoal.mechanisms.numbers.distribution import Distribution, of_devices
from shoal.mechanisms.parts.composed import SharedResponse
from shoal.task import MechanismSpec

NAME = "kmean"

# The ratio of sum and number of answers is used when that number is this many standard errors above
# 0. At 5 the ratio's first-order interval is at most 9 % narrower than the exact one of Fieller
# (1954); below it grows without bound.
CLEARLY = 5.0


@dataclass(frozen=True, slots=True)
class KaryMean(SharedResponse):
    """The mean of a number of ``domain``, from k-ary randomized response of its levels."""

    domain: Numeric
    response: KaryResponse

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k and ``uniform``."""
        return MechanismSpec.of(NAME, k=self.response.k, uniform=self.response.uniform)

    def estimate(self, tally: Tally) -> Estimate:
        """("mean", "no answer"): the mean over answering devices in the domain's unit, and how many
        devices gave none.

        The mean is a ratio of two unbiased estimates, the sum and the number of answers; its error
        is first order, and that of the worst numbers with these levels (``rounding``). When the
        number of answers is not clearly above 0 nothing is known of the mean but its domain: then
        the value is the middle, the standard error half the width, and the interval all of [low,
        high]. The interval of "no answer" is that of ``krr``.
        """
        raw = self.response.estimate(tally)
        devices, answered, answered_error = raw.values, tally.rows - raw.values[-1], raw.stderr[-1]
        if answered <= CLEARLY * answered_error:
            half = (self.domain.high - self.domain.low) / 2
            mean, error = self.domain.low + half, half
            interval, rounded = (self.domain.low, self.domain.high), 0.0
        else:
            # in steps above low: no cancellation, no overflow
            levels = np.arange(self.domain.levels, dtype=np.float64)
            place = float(levels @ devices[:-1]) / answered
            mean = self.domain.low + place * self.domain.step
            coins = self._spread(np.append(levels - place, 0.0), devices, tally.rows)
            rounded = (
                math.sqrt(rounding.bound(devices[:-1], raw.stderr[:-1], tally.rows))
                / answered
                * self.domain.step
            )
            error = math.hypot(coins / answered * self.domain.step, rounded)
            interval = None
        values, stderr = np.array([mean, devices[-1]]), np.array([error, answered_error])
        estimate = Estimate.wald(("mean", NO_ANSWER), values, stderr)
        low, high = (
            np.array([estimate.ci_low[0], raw.ci_low[-1]]),
            np.array([estimate.ci_high[0], raw.ci_high[-1]]),
        )
        if interval is not None:
            low[0], high[0] = interval
        return Estimate(estimate.labels, values, stderr, low, high, rounding=(rounded, 0.0))

    def distribution(self, tally: Tally) -> Distribution:
        """Of the unbiased counts of all cells, moved to the nearest that can be
        (``simplex.norm_sub``). Raises INVALID for no reports.
        """
        devices, _ = self.response.devices(tally)
        return of_devices(self.domain, devices, tally.rows)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the mean over the cells that devices hold (rounding to a level comes before and adds
        its own), and of "no answer".

        The mean's is first order, and half the domain's width where fewer devices answer than
        ``estimate`` would read a mean from.
        """
        error_of_none, rows = self.response.expected_stderr_of(counts, -1), int(counts.sum())
        devices, answered = counts.astype(np.float64), int(counts[:-1].sum())
        if answered <= CLEARLY * error_of_none:
            return np.array([(self.domain.high - self.domain.low) / 2, error_of_none])
        levels = np.arange(self.domain.levels, dtype=np.float64)
        place = float(levels @ devices[:-1]) / answered
        error = (
            self._spread(np.append(levels - place, 0.0), devices, rows)
            / answered
            * self.domain.step
        )
        return np.array([error, error_of_none])

    def _spread(
        self, weights: NDArray[np.float64], devices: NDArray[np.float64], rows: int
    ) -> float:
        """The standard deviation of sum(weights * devices), values fixed.

        A device with cell x contributes w(Y) / (1 - u), u = T / 2^64, where Y = x with probability
        1 - u and is uniform over the cells otherwise. With m1, m2 the plain averages of w and w^2
        over the cells its variance is

            ((1 - u) w_x^2 + u m2 - ((1 - u) w_x + u m1)^2) / (1 - u)^2

        summed over devices with the estimated devices per cell in place of the true ones. That
        includes every covariance between cells.
        """
        blanket, gap = self.response.blanket, self.response.gap
        squared = (
            weights**2
        )  # means as ``np.mean`` makes them, without its calls: a plan asks often
        m1, m2 = (float(np.add.reduce(each)) / each.size for each in (weights, squared))
        squares = min(max(float(squared @ devices), 0.0), rows * float(squared.max()))
        cross = float(weights @ devices)  # 0 up to rounding, by the choice of the mean
        variance = (
            gap * blanket * squares
            + rows * blanket * (m2 - blanket * m1**2)
            - 2 * gap * blanket * m1 * cross
        )
        return math.sqrt(max(variance, 0.0)) / gap


def _numeric(domain: Domain) -> Numeric:
    if not isinstance(domain, Numeric):
        raise invalid(
            f"{NAME} wants a numeric domain: use krr for categories and binary_rr for yes/no"
        )
    return domain


def _create(spec: MechanismSpec, domain: Domain) -> KaryMean:
    numeric = _numeric(domain)
    check_k(spec, numeric)
    return KaryMean(numeric, KaryResponse(numeric.labels, spec.get("uniform")))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    size = _numeric(domain).size
    return MechanismSpec.of(NAME, k=size, uniform=least_uniform(size, epsilon0))


FAMILY = Family(
    NAME,
    "k-level randomized response: the mean of a number",
    PARAMETERS,
    _create,
    only(_design, _numeric),
)
