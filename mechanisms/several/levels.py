"""Discoveries: the histogram of each level, with which noise it is hidden, and what is followed.

A task states one mechanism, for the largest level that there can be (``Discovery.size`` cells), and
a level uses it with as many cells as it has. Its noise has the same law in each cell, so the
promise is the same; its devices draw fewer messages, and what the cap of a bundle charges is less
than was accounted for. A message is as wide as at the largest level: all have one size.

*The threshold* of a level is chosen by its size and by how many devices took part: the smallest
estimate that its cells which nobody holds reach so rarely that all levels together are expected to
follow ``FALSE_WORDS`` of them at most. It says nothing of the answers: cells and devices are public
before it is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from shoal.arrays import np
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.names import DUMMIES
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.true_message import sum_pmf
from shoal.questions.discovery import DiscoveryLevel

FALSE_WORDS = 0.5
"""Beginnings that nobody has, of all levels together, that are followed: expected, at most."""
_ULPS = 1e-9  # by which rounding may move an estimate to the other side of a threshold


@dataclass(frozen=True, slots=True)
class FoundBeginning:
    """A beginning of words or places, or a whole word (``is_whole``), and how many devices are
    estimated to have it: with its standard error and interval of 95 %, in devices.
    """

    symbols: bytes
    is_whole: bool
    value: float
    stderr: float
    ci_low: float
    ci_high: float


def histogram_of(made: BundledHistogram, level: DiscoveryLevel) -> BundledHistogram:
    """A task's mechanism at one level. Raises INVALID unless it is that of the discovery."""
    if made.noise.cells != level.discovery.size:
        raise invalid(
            f"the mechanism of a discovery has as many cells as its largest level: set k = "
            f"{level.discovery.size}"
        )
    response = made.response
    if response is not None:
        response = KaryResponse(level.labels, response.uniform)
    return BundledHistogram(
        level.labels, replace(made.noise, cells=level.size), response, made.report_size
    )


def level_of(made: Several | None, level: DiscoveryLevel) -> BundledHistogram:
    """As ``histogram_of``, for what a task names. Raises INVALID unless that is ``dummies``."""
    if not isinstance(made, BundledHistogram) or made.noise.signed:
        raise invalid(f"a discovery is answered by {DUMMIES}: its task names another mechanism")
    return _level_of(made, level)


@lru_cache(maxsize=8)  # devices of one simulation draw in small groups
def _level_of(made: BundledHistogram, level: DiscoveryLevel) -> BundledHistogram:
    return histogram_of(made, level)


def of_level(tally: Tally, level: DiscoveryLevel) -> Tally:
    """The tally of a batch that was made for the largest level, cut to a smaller one. Messages for
    cells that the level doesn't have, which no honest device sends, are left out.
    """
    return Tally(np.ascontiguousarray(tally.counts[: level.size]), tally.rows)


def threshold(made: BundledHistogram, levels: int, reports: int) -> int:
    """The least number of devices that an estimate must come to for a beginning to be followed.
    ``made``: ``histogram_of`` a level, of so many ``levels``; ``reports`` >= 1: devices that took
    part.
    """
    share = FALSE_WORDS / levels / (made.noise.cells - 1)
    return least_number(lambda least: chance_of(made, reports, 0, least) <= share)


def least_number(enough: Callable[[int], bool]) -> int:
    """The smallest number from 1 on that is ``enough``, where every larger one is too."""
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def chance_of(made: BundledHistogram, reports: int, holders: int, least: int) -> float:
    """How probable it is that the estimate of a cell which ``holders`` of ``reports`` devices have
    is ``least`` or more: to 1e-8.
    """
    truth = made.truth_law
    pmf, first, mean = sum_pmf(made.noise, truth, reports, holders)
    gap = 1.0 if truth is None else (truth.same - truth.other) / truth.total
    # an estimate is unbiased: holders + (sum - mean) / gap
    start = math.ceil(mean + (least - holders) * gap - _ULPS) - first
    if start <= 0:
        return 1.0
    return min(1.0, float(pmf[start:].sum()))


def kept(
    level: DiscoveryLevel, estimate: Estimate, least: float
) -> tuple[list[FoundBeginning], int]:
    """The beginnings whose estimate is ``least`` or more and that some value can have, in order. Of
    more unfinished ones than the discovery follows those with the largest estimates, and how many
    there was no room for; at the last level all of them: words that were cut, or places.
    """
    rows = zip(
        *(
            column.tolist()
            for column in (estimate.values, estimate.stderr, estimate.ci_low, estimate.ci_high)
        ),
        strict=True,
    )
    reached = [
        (level.beginning(cell), row)
        for cell, row in enumerate(rows)
        if row[0] >= least and level.is_spelled(cell)
    ]
    found = [FoundBeginning(one, level.discovery.is_whole(one), *row) for one, row in reached]
    unfinished = [] if level.is_last else [one for one in found if not one.is_whole]
    unfinished.sort(key=lambda one: (-one.value, one.symbols))
    dropped = {one.symbols for one in unfinished[level.discovery.most :]}
    return [one for one in found if one.symbols not in dropped], len(dropped)
