"""Counts that look like counts, made from raw estimates: for a reader of single cells, never for
further arithmetic.

Raw estimates are unbiased, so some are below 0 and they need not add up to the number of reports. A
release keeps them as they are, and whatever is computed from a release (the total of some cells,
the total of several windows, a mean, a difference) is computed from raw estimates: there the errors
of the parts cancel, while each of the functions here moves cells in one direction (empty ones up,
or small ones to 0), and a sum adds that up. So **post-processed counts do not go into sums**, and
they carry no standard errors: those of the raw estimates are not theirs. They cost no privacy,
since they look at nothing but the estimates.

Which one (T. Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency
estimation with consistency", NDSS 2020, sections IV and V compare ten):

- ``norm_sub``, when every cell is shown: non-negative, adds up to n, and as near to the raw
  estimates as that allows.
- ``base_cut``, when the few heavy cells are wanted: noise becomes 0, what remains is raw.
- ``largest_remainder``, when people: whole numbers, of what either of them gave.

Not here, on purpose: setting negative estimates to 0 and scaling the rest down to n. The noise of
all empty cells is then paid by the heavy ones in proportion to their size: with optimized unary
encoding at epsilon0 1, 128 cells and 2,000 devices, a share of 0.31 comes out as 0.11 on average,
against 0.27 after ``norm_sub`` and 0.31 raw.

``readable`` puts them together for what stands beside the raw estimates where they are shown
(``processed``).
"""

from __future__ import annotations

import math

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.simplex import norm_sub

__all__ = ("base_cut", "largest_remainder", "norm_sub", "readable")

_EXACT = float(1 << 53)  # integers below are floats


def base_cut(
    values: NDArray[np.float64], stderr: NDArray[np.float64], multiple: float
) -> NDArray[np.float64]:
    """float64[k]: ``values`` where they are at least ``multiple`` standard errors, else 0.

    For heavy hitters: which cells are there at all, without a page of noise around them. What is
    kept is raw, so its error is the raw one; but it was kept because it is large, so cells near the
    threshold are too high on average, and sums of kept cells are biased. Of k empty cells about k
    (1 - Phi(``multiple``)) are kept, Phi the normal law: for no more than a of them on average,
    ``multiple`` is the 1 - a / k point of that law (Wang et al. 2020, section IV, Base-Cut).

    ``values``, ``stderr``: float64[k], k >= 1, of one estimate; ``stderr`` >= 0. ``multiple``: a
    finite number >= 0. Raises INVALID for anything else.
    """
    _check(values)
    if (
        stderr.shape != values.shape
        or stderr.dtype != np.float64
        or not (np.isfinite(stderr).all() and (stderr >= 0.0).all())
    ):
        raise _invalid("standard errors are one finite number, 0 or more, per value")
    if not (math.isfinite(multiple) and multiple >= 0.0):
        raise _invalid("a threshold is a finite number of standard errors, 0 or more")
    return np.where(values < multiple * stderr, 0.0, values)


def largest_remainder(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64[k] >= 0: every value rounded to an integer next to it, so that their sum is the sum of
    ``values``, rounded.

    All are rounded down, and the devices that are then missing go one each to the cells with the
    largest remainders, among equal remainders to the cell that comes first in the domain: the same
    counts for the same values everywhere, and no coin. (Rounding each cell by itself would miss the
    sum by up to k / 2.) The sum itself is rounded to the nearest integer, a half to the even one.

    ``values``: float64[k] >= 0, k >= 1, such as ``norm_sub`` gives, whose sum is below 2^53. Raises
    INVALID for anything else: raw estimates are projected first.
    """
    _check(values)
    if (values < 0.0).any():
        raise _invalid(
            "only values of 0 or more are rounded to counts: project raw estimates with norm_sub "
            "first"
        )
    total = math.fsum(values.tolist())
    if total >= _EXACT:
        raise _invalid("values to round to counts sum to less than 2^53")
    whole = np.floor(values)
    missing = round(total) - int(whole.sum())
    counts = whole.astype(np.int64)
    counts[np.argsort(whole - values, kind="stable")[:missing]] += 1
    return counts


def readable(values: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """int64[k] >= 0 that sums to ``total``: ``largest_remainder`` of ``norm_sub``. For the
    estimates of all cells of ``total`` devices.

    Raises INVALID for what either refuses, and where floats are too coarse for the sum (totals of
    2^50 devices).
    """
    counts = largest_remainder(norm_sub(values, float(total)))
    if int(counts.sum()) != total:
        raise _invalid("so many devices can't be told apart in floats")
    return counts


def _check(values: NDArray[np.float64]) -> None:
    """Raises INVALID unless float64[k] with k >= 1, all finite."""
    if (
        values.ndim != 1
        or not values.size
        or values.dtype != np.float64
        or not np.isfinite(values).all()
    ):
        raise _invalid("values to process are float64[cells], finite, at least one")


def _invalid(message: str) -> ShoalError:
    return ShoalError(Kind.INVALID, message)
