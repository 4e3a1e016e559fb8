"""Weighted means of vectors by secure aggregation: each device's vector counts as much as its
weight, which nobody sees.

A device with the vector x and the weight w in [0, 1] adds (w x, w MARK clip) to the sum. x is at
most ``clip`` long, so what it adds is at most clip sqrt(1 + MARK^2) long (L2): that is the clip of
the sum, and the noise covers the weight with the vector. The mean is the sum of w x over the sum of
w, both with noise.

*Errors.* With S the sum of one coordinate, W that of the weights, each off by noise of standard
error s (W's by s / (MARK clip)), S / W is off by about (dS - (S / W) dW) / W: the standard error is
(s / W) sqrt(1 + (S / W)^2 / (MARK clip)^2). That holds where W is far above its own error; below
four of them no mean is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shoal.arrays import NDArray, np
from shoal.study.arguments import wrong_value
from shoal.study.frames import Table

MARK = 0.5  # of a weight, beside a vector as long as the clip; more is exacter, and costs noise
LABEL = "weight"
_LEAST = 4.0  # standard errors of the sum of weights


def widened(clip: float) -> float:
    """The bound of a vector with its weight, where the vector itself is at most ``clip`` long."""
    return clip * math.sqrt(1.0 + MARK * MARK)


def weigh(vector: NDArray[np.float64], weight: float, clip: float) -> NDArray[np.float64]:
    """float64[d + 1]: what a device adds. ``vector``: float64[d], clipped. Raises a ValueError for
    a weight outside [0, 1].
    """
    if not 0.0 <= weight <= 1.0:
        raise wrong_value("weights", f"give a weight from 0 to 1 for each update, got {weight}")
    return np.append(weight * vector, weight * MARK * clip)


class WeightedMean(Table):
    """The weighted mean of the devices' vectors, a row per coordinate with its 95 % interval.
    ``mean``, ``stderr``: float64[d]; ``weight``: of all devices together, with noise.
    """

    def __init__(
        self,
        names: Sequence[str],
        total: NDArray[np.float64],
        error: float,
        reach: float,
        clip: float,
    ) -> None:
        """``total``: float64[d + 1], the sum; ``error``: the standard error of each of its
        coordinates. Raises a ValueError where the weights are lost in the noise.
        """
        mark = MARK * clip
        self.weight = float(total[-1]) / mark
        if self.weight < _LEAST * error / mark:
            raise wrong_value(
                "weights",
                "they are lost in the noise: ask more devices, raise epsilon, or give larger "
                "weights",
            )
        self.mean: NDArray[np.float64] = total[:-1] / self.weight
        self.stderr = error / self.weight * np.sqrt(1.0 + (self.mean / mark) ** 2)
        rows = [
            (name, value, error, value - reach * error, value + reach * error)
            for name, value, error in zip(
                names, self.mean.tolist(), self.stderr.tolist(), strict=True
            )
        ]
        super().__init__(("label", "value", "stderr", "ci_low", "ci_high"), rows)
