"""Quantiles of a number with 95 % intervals: for the true quantiles of the devices' *values*, not
of the levels that they were rounded to.

The q-quantile is the least number that a share q of the answering devices is at or below. What
reports tell are the levels, and numbers are rounded to these at random. With F(x) the share of
devices at or below x, a number between two levels moves evenly from one to the other, so that the
share H(j) that is expected on the levels up to j is the mean of F between level j and level j + 1,
and

    F(level j) <= H(j) <= F(level j + 1).

Let t be the quantile, s of a step above level j. F is at least H(j - 1) from level j on, at most q
before t, at least q from t on, and at most H(j + 1) up to level j + 1. So

    s H(j - 1) + (1 - s) q  <=  H(j)  <=  s q + (1 - s) H(j + 1),        H(j - 1) <= q <= H(j + 1).

**The interval** is all t at which none of these is violated by more than 1.96 standard errors. Each
is a linear form of the numbers of devices up to a level, whose variance is estimated from the
reports (coins: unbiased; rounding: as much as the worst numbers with these levels have,
``rounding``). At the true t each is wrong with 2.5 %; the two of one side are both near their
limits only where nobody is near t. A heap, many devices with one and the same number, makes the
interval short: if it is on a level, a fraction of a step around it. Looked at on a grid of 32
places per step, and one place wider on either side.

**Over bins** (categories with lower bounds) numbers are not rounded: the interval is from the lower
end of one bin to the upper end of one; the last bin has none. **Where reports don't tell the
levels** (as ``square_wave`` does not at small epsilon0) intervals are wide: they are made of the
reports' unbiased counts, never of a smoothed shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric
from shoal.mechanisms.base import Mechanism, Tally, Z
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.numbers.distribution import Distributed, Distribution
from shoal.mechanisms.numbers.rounding import level_scores
from shoal.mechanisms.parts.simplex import norm_sub
from shoal.mechanisms.parts.tables import TableResponse

Products: TypeAlias = "Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]"

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
_PLACES = 32  # per step
_CLEARLY = 5.0  # standard errors that the number of answers is above 0, or nothing is known of them
_ROOM = 2.0  # devices, squared: what whole counts near 0 need
_PARTS = tuple(i / 4 for i in range(5))


@dataclass(frozen=True, slots=True)
class Quantile:
    """``share`` of the answering devices is at or below a number in [``low``, ``high``], with 95 %;
    ``value``: an estimate in there.

    ``high`` is infinite in a last bin, which has no upper end.
    """

    share: float
    value: float
    low: float
    high: float


def quantiles(
    mechanism: Mechanism, domain: Domain, tally: Tally, shares: tuple[float, ...] = SHARES
) -> tuple[Quantile, ...]:
    """Of a number, from the reports of a mechanism that tells its levels or ordered bins; none of
    any other, or of no reports.

    ``shares``: above 0 and below 1.
    """
    if not tally.rows or not (
        isinstance(domain, Numeric) or (isinstance(domain, Categories) and domain.lower_bounds)
    ):
        return ()
    answers = UnbiasedTotals.of(mechanism, tally)
    shape = shape_of(mechanism, domain, tally)
    if answers is None or shape is None:
        return ()
    return quantiles_of_totals(answers, shape, domain, shares)


def quantiles_of_totals(
    answers: UnbiasedTotals,
    shape: Distribution,
    domain: Numeric | Categories,
    shares: tuple[float, ...] = SHARES,
) -> tuple[Quantile, ...]:
    """The same from what reports tell, however they tell it; ``shape``: what values are read from,
    biased, between the ends.
    """
    estimates = []
    for share in shares:
        if not answers.clearly_answered:
            low, high = (
                (domain.low, domain.high)
                if isinstance(domain, Numeric)
                else (float(domain.lower_bounds[0]), math.inf)
            )
        elif isinstance(domain, Numeric):
            low, high = (domain.low + place * domain.step for place in _places(answers, share))
        else:
            low, high = _bins(answers, share, domain.lower_bounds)
        value = shape.quantile(share)
        estimates.append(Quantile(share, value, min(low, value), max(high, value)))
    return tuple(estimates)


def shape_of(mechanism: Mechanism, domain: Domain, tally: Tally) -> Distribution | None:
    """What the values of quantiles are read from: the mechanism's own distribution, or the counts
    of ordered bins, projected. A last bin is taken as wide as the one before it.
    """
    if isinstance(mechanism, Distributed):
        return mechanism.distribution(tally)
    if not isinstance(domain, Categories) or not domain.lower_bounds:
        return None
    counts = np.asarray(mechanism.estimate(tally).values[:-1], dtype=np.float64)
    shares = norm_sub(counts / max(1, tally.rows), 1.0)
    return Distribution(bin_edges(domain.lower_bounds), shares, "norm-sub")


def bin_edges(lower_bounds: tuple[int, ...]) -> NDArray[np.float64]:
    """float64[bins + 1]: of ordered bins, two or more; the last is taken as wide as the one before
    it.
    """
    bounds = [float(bound) for bound in lower_bounds]
    return np.array([*bounds, 2.0 * bounds[-1] - bounds[-2]])


@dataclass(frozen=True, slots=True, eq=False)
class UnbiasedTotals:
    """What reports tell of how many devices are at or below each level. ``totals``: float64[levels
    + 1], unbiased numbers of devices with one of the first 0, 1, 2 ... levels.
    ``products(i, j)``: of what reports add to two of these, summed over the reports.
    """

    totals: NDArray[np.float64]
    products: Products

    @classmethod
    def of(cls, mechanism: Mechanism, tally: Tally) -> UnbiasedTotals | None:
        """From the reports of k-ary response, in closed form, or of a table whose outputs tell the
        levels; None of any other mechanism.
        """
        response = (
            mechanism
            if isinstance(mechanism, KaryResponse)
            else getattr(mechanism, "response", None)
        )
        counts = tally.counts.astype(np.float64)
        if isinstance(response, KaryResponse):
            ups, blanket, gap = (
                np.append(0.0, np.cumsum(counts[:-1])),
                response.blanket / response.k,
                response.gap,
            )

            def products(i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
                cross = blanket * (j * ups[i] + i * ups[j])
                return np.asarray(
                    (ups[np.minimum(i, j)] - cross + tally.rows * blanket**2 * (i * j)) / gap**2
                )

            return cls((ups - tally.rows * blanket * np.arange(ups.size)) / gap, products)
        scores = level_scores(response.table) if isinstance(response, TableResponse) else None
        if scores is None:
            return None
        running = np.concatenate([np.zeros((len(scores), 1)), np.cumsum(scores, axis=1)], axis=1)
        crossed = running.T @ (counts[:, None] * running)
        return cls(counts @ running, lambda i, j: crossed[i, j])

    @property
    def answered(self) -> float:
        """The unbiased number of devices with any level; may be negative by chance."""
        return float(self.totals[-1])

    @property
    def clearly_answered(self) -> bool:
        """Whether clearly more devices answered than noise alone would show: else every number of
        the domain is possible.
        """
        last = np.array([self.totals.size - 1])
        spread = float(self.products(last, last)[0]) - self.answered
        return self.answered > _CLEARLY * math.sqrt(max(spread, 0.0) + _ROOM)


def _places(answers: UnbiasedTotals, share: float) -> tuple[float, float]:
    """(lowest, highest) place of the quantile, in steps above the lowest level.

    A place between two levels is only possible where one of them is, so that the grid is looked at
    around those.
    """
    most = answers.totals.size - 2
    ends = np.flatnonzero(
        _possible(
            answers, np.append(np.arange(most), most - 1), np.append(np.zeros(most), 1.0), share
        )
    )
    if not ends.size:  # reports that no numbers make: nothing is known
        return 0.0, float(most)
    first, last = max(int(ends[0]) - 1, 0), min(int(ends[-1]) + 1, most)
    at = np.append(np.repeat(np.arange(first, last), _PLACES), last - 1)
    up = np.append(np.tile(np.arange(_PLACES) / _PLACES, last - first), 1.0)
    kept = np.flatnonzero(_possible(answers, at, up, share))
    low, high = max(int(kept[0]) - 1, 0), min(int(kept[-1]) + 1, at.size - 1)
    return float(at[low] + up[low]), float(at[high] + up[high])


def _possible(
    answers: UnbiasedTotals, at: NDArray[np.int64], up: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:
    """bool[len(at)]: whether the quantile may be ``up``[i] of a step above level ``at``[i]."""
    none, one = np.zeros_like(up), np.ones_like(up)
    forms = (  # of the numbers of devices up to level j - 1, j, j + 1, and of all that answered
        (up, -one, none, (1.0 - up) * share),
        (none, none, -one, share * one),
        (none, one, up - 1.0, -up * share),
        (one, none, none, -share * one),
    )
    return np.asarray(np.logical_and.reduce([_not_above(answers, at, form) for form in forms]))


def _bins(answers: UnbiasedTotals, share: float, bounds: tuple[int, ...]) -> tuple[float, float]:
    at = np.arange(answers.totals.size - 1)
    none, one = np.zeros(at.size), np.ones(at.size)
    reached = np.flatnonzero(_not_above(answers, at, (none, -one, none, share * one), rounds=False))
    begun = np.flatnonzero(_not_above(answers, at, (one, none, none, -share * one), rounds=False))
    low, high = (
        int(reached[0]) if reached.size else 0,
        int(begun[-1]) if begun.size else at.size - 1,
    )
    return float(bounds[low]), float(bounds[high + 1]) if high + 1 < len(bounds) else math.inf


def _not_above(
    answers: UnbiasedTotals,
    at: NDArray[np.int64],
    form: tuple[NDArray[np.float64], ...],
    *,
    rounds: bool = True,
) -> NDArray[np.bool_]:
    """bool[len(at)]: whether the form of the totals up to level j - 1, j, j + 1 and of all is not
    above 0 by more than 1.96 standard errors, j = ``at``[i]. ``rounds``: whether numbers are
    rounded to the levels.
    """
    last = answers.totals.size - 1
    # totals[i] counts i levels: those up to level j are j + 1 of them
    index = (at, at + 1, np.minimum(at + 2, last), np.full(at.size, last))
    totals = [answers.totals[each] for each in index]
    value = sum(c * total for c, total in zip(form, totals, strict=True))
    moments = np.zeros(at.size)
    for m, (one, first) in enumerate(zip(form, index, strict=True)):
        for k in range(m, 4):
            if one.any() and form[k].any():
                moments += (
                    (2.0 if k > m else 1.0) * one * form[k] * answers.products(first, index[k])
                )
    # of a device on the levels up to j - 1, j, j + 1, and above
    weights = [sum(form[m:], np.zeros(at.size)) for m in range(4)]
    held = [totals[0], *(upper - lower for lower, upper in pairwise(totals))]
    moments -= sum(weight**2 * devices for weight, devices in zip(weights, held, strict=True))
    variance = np.maximum(moments, 0.0) + _ROOM
    return np.asarray(
        value <= Z * np.sqrt(variance + (_rounding(answers, at, form) if rounds else 0.0))
    )


def _rounding(
    answers: UnbiasedTotals, at: NDArray[np.int64], form: tuple[NDArray[np.float64], ...]
) -> NDArray[np.float64]:
    """What rounding adds to the variance of a form, at most. A device that may be rounded across a
    step of the weights, by d, adds d^2 f (1 - f): as in ``rounding`` at most the sum over levels of
    devices times r^2, for any r >= 0 with r + r' >= |d| on either side of each step. The largest
    step is parted in a few ways, and the others follow.
    """
    last = answers.totals.size - 1
    near = [np.clip(at + shift, 0, last - 1) for shift in (-1, 0, 1, 2)]
    spread = [
        answers.products(each + 1, each + 1)
        - 2.0 * answers.products(each, each + 1)
        + answers.products(each, each)
        for each in near
    ]
    devices = [answers.totals[each + 1] - answers.totals[each] for each in near]
    levels = [
        np.maximum(d, 0.0) + np.sqrt(np.maximum(s - d, 0.0))
        for d, s in zip(devices, spread, strict=True)
    ]
    # there are none beyond the ends
    levels[0], levels[3] = np.where(at > 0, levels[0], 0.0), np.where(at + 2 < last, levels[3], 0.0)
    below, here, above = (np.abs(each) for each in form[:3])
    least = np.full(at.size, math.inf)
    for part in _PARTS:
        mine, next_one = part * here, (1.0 - part) * here
        parts = (np.maximum(below - mine, 0.0), mine, next_one, np.maximum(above - next_one, 0.0))
        least = np.minimum(
            least,
            sum((r**2 * held for r, held in zip(parts, levels, strict=True)), np.zeros(at.size)),
        )
    return least
