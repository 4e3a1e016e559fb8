"""The true message of a device that keeps something against shuffler and analyzer together: its
cell is drawn by k-ary randomized response first, in the integers of ``krr``, and the bundle is made
of what was drawn. The rest of the bundle does not depend on the value, so it is post-processing of
that draw: epsilon0 is the draw's.

A cell's true messages are then a sum of independent coins, of p for its h holders and of q for the
n - h others: h p + (n - h) q on average. With the noise D of the batch (``noise_of_batch``), less
its mean, the estimate (sum - n q) / (p - q) is unbiased, and its variance is

    (h p (1 - p) + (n - h) q (1 - q) + var D) / (p - q)^2,

largest where all devices hold the cell: p (1 - p) >= q (1 - q), as 1 - p = (k - 1) q.

Intervals hold every h with which the sum lies within its 95 %, by its exact law, a convolution: so
they cover whatever h is. (That of the estimated h alone covers 92 % where the draws are most of the
error.) Of more than two cells h is raised for it, by up to 4 % of the variance: then many cells
share one law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Estimate
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.noise_law import NoiseLaw
from shoal.privacy import KaryLaw, epsilon0_upper

if TYPE_CHECKING:
    from shoal.entropy import Entropy
    from shoal.mechanisms.categories.krr import KaryResponse

_RATIO = 1.04  # of the variances for which intervals are made
_ROUNDS = 5  # to the ends of one


def drawn_cell(response: KaryResponse | None, value: int, entropy: Entropy) -> int:
    """The cell of the true message of a ``value`` that is one of the cells: itself, or a draw."""
    if response is None:
        return value
    return int.from_bytes(response.randomize_one(value, entropy)[0], "big")


def law_of_truth(response: KaryResponse | None) -> KaryLaw | None:
    """The law of ``drawn_cell``; None where it is the value."""
    return None if response is None else response.privacy()


def epsilon0_of(response: KaryResponse | None) -> float:
    """Of a bundle; math.inf where the true message is the value. Direction: upper bound."""
    return math.inf if response is None else epsilon0_upper(response.privacy())


def deviation(
    law: NoiseLaw, response: KaryResponse | None, reports: int, holders: float, parts: int = 1
) -> float:
    """Standard error of a cell that ``holders`` of ``reports`` devices hold; the noise of a batch
    counts as 1 / ``parts`` of a message.
    """
    noise = noise_of_batch.deviation(law, reports) / parts
    if response is None:
        return noise
    kept, other, gap = _chances(response.privacy())
    sampling = holders * (1.0 - kept) * kept + (reports - holders) * other * (1.0 - other)
    return math.sqrt(noise * noise + sampling) / gap


def estimated(
    labels: tuple[str, ...],
    sums: NDArray[np.float64],
    law: NoiseLaw,
    response: KaryResponse | None,
    reports: int,
    parts: int = 1,
) -> Estimate:
    """Unbiased values with their errors, from each label's true messages and noise of mean 0:
    ``sums``, float64[labels]. ``parts`` as above.
    """
    if response is None:
        below, above = noise_of_batch.reach(law, reports)
        error = np.full(len(labels), deviation(law, None, reports, 0.0, parts))
        # the noise lies from mean - below to mean + above, so the truth the other way round
        return Estimate(labels, sums, error, sums - above / parts, sums + below / parts)
    _, other, gap = _chances(response.privacy())
    values = (sums - reports * other) / gap
    holders = np.clip(values, 0.0, float(reports))
    errors = [deviation(law, response, reports, held, parts) for held in holders.tolist()]
    ends = _Ends(law, response.privacy(), reports, parts, response)
    low, high = ends.around(values)
    return Estimate(labels, values, np.array(errors), low, high)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The intervals of a batch."""

    law: NoiseLaw
    truth: KaryLaw
    reports: int
    parts: int
    response: KaryResponse

    def around(
        self, values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(low, high) of all h whose law reaches what came. Each end is a fixed point: that of an h
        by the reach of its own law. Steps to it alternate about it, or come from one side; of the
        last two the wider counts.
        """
        low = lower = high = higher = values
        for _ in range(_ROUNDS):
            lower, higher = low, high
            low, high = values - self._reach(low)[1], values + self._reach(high)[0]
        return np.minimum(low, lower), np.maximum(high, higher)

    def _reach(
        self, holders: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(below, above) in devices, each of so many holders."""
        law, truth, reports, parts = self.law, self.truth, self.reports, self.parts
        holders = np.clip(holders, 0.0, float(reports))
        if truth.k > 2:
            least, most = (
                deviation(law, self.response, reports, h, parts) ** 2 for h in (0.0, reports)
            )
            each = (most - least) / reports
            grown = np.log1p(holders * each / least) / math.log(_RATIO)
            holders = np.expm1(np.ceil(grown) * math.log(_RATIO)) * (least / each)
        rounded = np.minimum(np.ceil(holders), float(reports)).astype(np.int64)
        places, index = np.unique(rounded, return_inverse=True)
        found = np.array([reach(law, truth, reports, held, parts) for held in places.tolist()])
        gap = _chances(truth)[2]
        return found[index, 0] / gap, found[index, 1] / gap


@lru_cache(maxsize=1024)
def reach(
    law: NoiseLaw, truth: KaryLaw, reports: int, holders: int, parts: int
) -> tuple[float, float]:
    """(below, above) of a cell's sum about its mean: within with probability 0.95 or more, outside
    on either side with half of the rest at most. Sums lie on a lattice whose place about their mean
    changes with ``holders``; these ends do not jump with it, for up to a step more.
    """
    whole, start, centre = sum_pmf(law, truth, reports, holders, parts)
    low, high = _smooth(whole)
    return (centre - (start + low)) / parts, (start + high - centre) / parts


def sum_pmf(
    law: NoiseLaw, truth: KaryLaw | None, reports: int, holders: int, parts: int = 1
) -> tuple[NDArray[np.float64], int, float]:
    """(pmf, first, mean) of ``parts`` times what a cell's true messages are above ``holders``, and
    the noise of a batch: from the number ``first`` on, far into both tails. ``truth``: None where
    true messages are as they are.
    """
    noise, first, mean = noise_of_batch.noise_pmf(law, reports)
    if truth is None:
        return noise, first, mean
    leave = (truth.total - truth.same) / truth.total
    arrive = truth.other / truth.total
    gone, least_gone = _binomial(holders, leave)
    come, least_come = _binomial(reports - holders, arrive)
    moved = np.convolve(come, gone[::-1])  # from least_come - most_gone on
    least = least_come - (least_gone + len(gone) - 1)
    spread = np.zeros((len(moved) - 1) * parts + 1)
    spread[::parts] = moved
    whole = np.convolve(spread, noise)
    centre = parts * ((reports - holders) * arrive - holders * leave) + mean
    return whole, parts * least + first, centre


def _smooth(pmf: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of ``noise_of_batch.between``, each moved out by the share of its mass that is not
    wanted outside.
    """
    low, high = noise_of_batch.between(pmf)
    lost = max(0.0, 1.0 - float(pmf.sum()))
    outside = noise_of_batch.OUTSIDE / 2.0
    below, above = float(pmf[:low].sum()) + lost, float(pmf[high + 1 :].sum()) + lost
    return (
        low - 1.0 + min(1.0, (outside - below) / float(pmf[low])),
        high + 1.0 - min(1.0, (outside - above) / float(pmf[high])),
    )


def _chances(truth: KaryLaw) -> tuple[float, float, float]:
    """(p, q, p - q)."""
    return (
        truth.same / truth.total,
        truth.other / truth.total,
        (truth.same - truth.other) / truth.total,
    )


def _binomial(count: int, chance: float) -> tuple[NDArray[np.float64], int]:
    """(pmf, first) of Bin(``count``, ``chance``), from ``first`` on, far into both tails."""
    mean = count * chance
    spread = math.sqrt(mean * (1.0 - chance)) * 12.0 + 40.0
    first, last = max(0, math.floor(mean - spread)), min(count, math.ceil(mean + spread))
    log_yes, log_no, whole = math.log(chance), math.log1p(-chance), math.lgamma(count + 1.0)
    logs = [
        whole
        - math.lgamma(value + 1.0)
        - math.lgamma(count - value + 1.0)
        + value * log_yes
        + (count - value) * log_no
        for value in range(first, last + 1)
    ]
    return np.exp(np.array(logs)), first
