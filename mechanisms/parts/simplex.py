"""The nearest point of a simplex: raw shares or counts made non-negative, with the right sum.

For a reader of all cells, and never for further arithmetic: a projection moves empty cells up, and
sums add that up (``analyzer.results.postprocess`` says more, and what else there is).
"""

from __future__ import annotations

import math
from bisect import bisect_left

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import invalid

_EXACT = float(1 << 53)  # integers below are floats


def norm_sub(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """float64[k] >= 0 that sums to ``total`` (to rounding: k 2^-52 of it): the point of that
    simplex nearest to ``values``.

    One number is subtracted from all cells and what falls below 0 is 0: max(v - t, 0), with the one
    t for which the sum is right. That is the Euclidean projection onto {x >= 0, sum x = total}, and
    the constrained least-squares fit where all cells err alike (T. Wang and others, "Locally
    differentially private frequency estimation with consistency", NDSS 2020, section IV, Norm-Sub).
    The order of cells is kept; equal cells stay equal. By sorting, O(k log k): Duchi,
    Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball for learning in high
    dimensions", ICML 2008, section 3.

    ``values``: float64[k], k >= 1, raw estimates in devices, any sign. ``total``: devices in all, 0
    <= total < 2^53. Raises INVALID for anything else.
    """
    if (
        values.ndim != 1
        or not values.size
        or values.dtype != np.float64
        or not np.isfinite(values).all()
    ):
        raise invalid("values to process are float64[cells], finite, at least one")
    if not 0.0 <= total < _EXACT:
        raise invalid("the total of a projection is a number of devices from 0 to below 2^53")
    # Adding a number to all cells moves t alone, so the largest is taken for 0. Then t >= -total,
    # and cells at or below -total end at 0 wherever they are: however large the values, the sums
    # are of numbers in [-total, 0].
    with np.errstate(over="ignore"):
        below = np.maximum(values - values.max(), -total)
    falling: list[float] = np.sort(below)[::-1].tolist()

    def beyond(count: int) -> bool:
        """Whether cell ``count`` in falling order ends at 0. Once true it is true of all later
        ones; never of the first.
        """
        return (math.fsum(falling[:count]) - total) / count >= falling[count - 1]

    kept = bisect_left(range(2, len(falling) + 1), True, key=beyond) + 1
    threshold = (math.fsum(falling[:kept]) - total) / kept
    projected: NDArray[np.float64] = np.maximum(below - threshold, 0.0)
    return projected
