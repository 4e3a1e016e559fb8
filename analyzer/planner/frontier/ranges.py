"""Quantiles by a hierarchy (``ranges``): which numbers of levels are tried, and what the quantiles
err by.

The numbers of the question's shape, rounded to levels, have known expected counts; the quantile
that is read from these (``Ranges.shape``) has a bias. Around it the count of all that is below
decides: at t, between the ends of two cells, it errs by what the hierarchy says of these two sums
and of the number that answered, and by the rounding of the numbers beside it. That error divided by
the density of the numbers at t is the quantile's, to first order. Where few numbers lie near, or
many equal ones, the density is no guide, and neither is this.
"""

from __future__ import annotations

from dataclasses import replace

from shoal.analyzer.planner.quantiles import cut_of, expected_counts, ranked_of
from shoal.analyzer.planner.question import QUANTILE_LEVELS, Quantiles
from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.mechanisms.several.least_squares import covariance
from shoal.mechanisms.several.ranges import Ranges

_LEVELS = (1_023, 255, 63, 31, 15)


def levels_of(question: Quantiles) -> tuple[int, ...]:
    """Numbers of levels to try: those that were asked for, or a few, far apart. Of a smooth shape
    few levels between which one interpolates err less; many show heaps and narrow ranges.
    """
    return _LEVELS if set(QUANTILE_LEVELS) <= set(question.levels) else question.levels


def quantiles_error(question: Quantiles, made: Ranges, n: int) -> float:
    """The error that a plan goes by, of ``n`` devices, in the number's unit."""
    return ranked_of(question, quantile_squares(question, made, n))


def quantile_squares(question: Quantiles, made: Ranges, n: int) -> NDArray[np.float64]:
    """float64[len(at)]: mean squares of the errors, each under the shape that is worst for it."""
    found = [_squares(replace(question, shape=shape), made, n) for shape in question.spreads]
    return np.asarray(np.max(found, axis=0))


def _squares(question: Quantiles, made: Ranges, n: int) -> NDArray[np.float64]:
    domain: Domain = made.domain
    held, rounding = expected_counts(question, cut_of(domain), n, made.tree.cells)
    shape = made.shape(held)
    values = np.array(shape.quantiles(question.at))
    edges, counts = shape.edges, held[:-1]
    at = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(counts) - 1)
    width = edges[at + 1] - edges[at]
    part = np.clip((values - edges[at]) / width, 0.0, 1.0)
    density = np.maximum(counts[at], 1.0) / width
    # the sum up to t less the share of all: F(at), F(at + 1) and F(all) with these weights
    weights = np.array([1.0 - part, part, -np.array(question.at)])
    ends = np.array([at, at + 1, np.full(len(at), made.tree.cells - 1)], dtype=np.int64)
    variance = np.zeros(len(at))
    for one in range(3):
        for other in range(3):
            both = covariance(made.tree, ends[one], ends[other])
            variance += weights[one] * weights[other] * both
    variance *= made.node_stderr(n) ** 2
    beside = np.append(0.0, rounding)  # of the sums before each cell
    variance += (1.0 - part) ** 2 * beside[at] + part**2 * beside[at + 1]
    return np.asarray(variance / density**2 + (values - question.values()) ** 2)
