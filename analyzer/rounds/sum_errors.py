"""How far a sum under noise lies from the true total: standard errors, and 95 % intervals.

Noise is in every vector of the sum, rounding in every coordinate of every vector; a device that is
in the sum has added a whole share of the noise, so all survivors count and not the guaranteed ones.
"""

from __future__ import annotations

import math

from shoal.domain import Vector
from shoal.mechanisms.noise import polya
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import rounding_variance
from shoal.task import MechanismSpec

_Z95 = 1.959963984540054  # the normal quantile of 97.5 %
_CHEBYSHEV = math.sqrt(20.0)  # standard deviations that any law exceeds with 5 % at most


def errors_of_sum(domain: Vector, noise: MechanismSpec, survivors: int) -> tuple[float, float]:
    """(of the noise, of the rounding at most) of each total over ``survivors`` devices, in the
    domain's unit.
    """
    step = domain.clip / domain.grid
    drawn = math.sqrt(survivors * float(create_noise(noise).variance)) * step
    rounding = math.sqrt(survivors * rounding_variance(domain)) * step
    return drawn, rounding


def reach_of_sum(spec: MechanismSpec, survivors: int) -> float:
    """Standard errors to either side that hold the truth with 95 %.

    The noise is no normal variable: discrete Laplace noise of one round leaves +-1.96 standard
    errors with 6.2 %. The quantile is z + (z^3 - 3 z) k / 24 with the noise's excess kurtosis k
    (Cornish and Fisher, 1938): for Skellam noise k = 1 / variance; for the difference of two
    negative binomials of exponent r, (1 + 4 p + p^2) / (2 r p). Never more than Chebyshev's
    inequality wants.
    """
    shares = survivors / spec.get("shares")
    if spec.name == polya.NAME:
        p = math.exp(-polya.UNIT / spec.get("scale"))
        kurtosis = (1.0 + 4.0 * p + p * p) / (2.0 * shares * p)
    else:
        kurtosis = 1.0 / (shares * spec.get("variance"))
    return min(_Z95 + (_Z95**3 - 3.0 * _Z95) * kurtosis / 24.0, _CHEBYSHEV)
