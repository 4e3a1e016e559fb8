"""The divergence of two laws whose loss is a sum of independent losses, from both sides.

L is the loss ln(P / Q) under P; where it is finite it is a sum of independent ones, each of a law
of few thousand values. With G(epsilon) = E_P[(1 - e^(epsilon - L))_+; L finite],

    delta(epsilon) = G(epsilon) + P(L infinite).

**The integral.** (1 - e^(-y))_+ is 1/(2 pi i) times the integral of e^(zy) / (z (z + 1)) over the
line z = theta + i omega, for any theta > 0 (poles at 0 and -1). So with M(z) = E_P[e^(zL); L
finite], a product of one factor for each summand,

    G(epsilon) = 1/(2 pi) * integral of M(z) e^(-z epsilon) / (z (z + 1)) domega.

**Smoothing.** Let Z be normal, of mean tau^2 / 2 and deviation tau: E[e^(-Z)] = 1. (1 - e^(epsilon
- L) w)_+ is convex in w, so by Jensen's inequality L + Z instead of L gives G from above, G'. The
integrand has the factor e^(tau^2 z (z + 1) / 2) more, which falls like e^(-tau^2 omega^2 / 2). The
other side: G falls with epsilon, so with a c that Z exceeds with probability t, G(epsilon) >=
G'(epsilon + c) - t.

**The sum.** A sum over omega = 2 pi k / T instead of the integral is, by Poisson's formula, the sum
over all m of e^(theta m T) G'(epsilon + m T). No term is negative: the sum is above what is meant.
The terms m < 0 are at most e^(-theta |m| T) each. As (1 - e^(-y))_+ <= e^(2 theta y), those of m >
0 are at most M(2 theta) E[e^(2 theta Z)] e^(-2 theta epsilon) e^(-theta m T). Both are taken off
the lower side.

**Rounding** (u = 2^-53, 16 u are counted for each operation that a number passes through). A loss
is off by a few u of itself and of 1: as if epsilon were off by that much for each summand. M(theta)
is a product of sums of positive numbers. Under the law tilted by e^(theta L) a factor is a mean of
turns e^(i omega (l - centre)), off by 16 u omega |l - centre| and for each of its summands; the
product of so many is off by at most so many times that, times the others' sizes. Chances are off by
a share that the caller states: all are positive, and G is linear in those of each summand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.checker.expectation import Between

Floats: TypeAlias = "NDArray[np.float64]"

_ROUND = 16 * 2.0**-53
_TINY = 1e-300
_IMAGES = 60.0  # theta T, at least
_END = 75.0  # what the normal factor falls to: e^-75
_FAR, _BEYOND = 9.5, 1.1e-21  # deviations of Z for c, and how often it is further up
_FINE = 64  # places of the finer table of turns
_AT_ONCE = 1 << 19  # numbers of one table: 8 MiB
_LARGEST = 400.0  # of theta times a loss
_FLOATS = 700.0  # e^700 is the range of floats
# tau theta, from coarse to fine
SMOOTHING = (1e-2, 1e-3, 2e-4)


@dataclass(frozen=True, slots=True, eq=False)
class LossSummand:
    """``count`` independent losses of one law: ``losses``, finite, with ``chances`` > 0 that sum to
    1 or less (the rest is infinite, or left out). ``error``: of chances, relative, at most.
    """

    losses: Floats
    chances: Floats
    error: float
    count: int


def smoothed_divergence(
    summands: Sequence[LossSummand], epsilon: float, smoothing: float
) -> Between:
    """G(``epsilon``), for an epsilon from 0 on. ``smoothing``: tau theta, in (0, 0.1]: the smaller,
    the closer and slower.
    """
    return _Line(summands, epsilon, smoothing).around()


class _Line:
    """One path of integration."""

    def __init__(self, summands: Sequence[LossSummand], epsilon: float, smoothing: float) -> None:
        largest = max(float(np.abs(one.losses).max()) for one in summands)
        self._summands, self._epsilon = summands, epsilon
        self._count = sum(one.count for one in summands)
        self._moved = self._count * _ROUND * (2 + largest)
        self._theta = min(_saddle(summands, epsilon), _LARGEST / largest)
        self._tau = smoothing / self._theta
        self._tilted, self._away = list[Floats](), list[Floats]()
        self._log_mass = self._log_double = self._centre = 0.0
        for one in summands:
            log_mass, tilted = _tilt(one, self._theta)
            centre = float(tilted @ one.losses)
            self._tilted.append(tilted)
            self._away.append(one.losses - centre)
            self._log_mass += one.count * log_mass
            self._log_double += one.count * _tilt(one, 2 * self._theta)[0]
            self._centre += one.count * centre

    def around(self) -> Between:
        theta, tau, epsilon = self._theta, self._tau, self._epsilon
        smooth = tau * tau * theta * (theta + 1) / 2  # ln E[e^(theta Z)]
        double = tau * tau * theta * (2 * theta + 1)
        # so that the images after are as small as those before, beside what is meant
        extra = max(0.0, self._log_double - self._log_mass - theta * epsilon)
        period = (_IMAGES + min(extra, 4 * _IMAGES)) / theta
        step, end = 2 * math.pi / period, math.sqrt(2 * _END) / tau
        shift = self._moved + tau * tau / 2 + _FAR * tau
        above, below, wrong = self._sums(step, math.ceil(end / step), shift)
        wrong += math.exp(-_END) / end**2 * (1 + 1 / (step * tau * tau * end))
        log_scale = self._log_mass - theta * epsilon + smooth
        scale = math.exp(min(_FLOATS, log_scale)) * step / math.pi
        loose = self._loose()
        high = (above + wrong) * scale * math.exp(theta * self._moved) * (1 + loose)
        low = (below - wrong) * scale * math.exp(-theta * shift) * (1 - loose)
        after = math.exp(min(_FLOATS, self._log_double + double - 2 * theta * epsilon))
        low -= 2 * math.exp(-theta * period) * (1 + after) + _BEYOND
        return Between(max(0.0, low), min(1.0, high + _TINY))

    def _loose(self) -> float:
        """Of everything that is no sum over frequencies, relative."""
        values = sum(len(one.losses) * one.count for one in self._summands)
        share = sum(one.count * one.error for one in self._summands)
        return 2 * (share + _ROUND * (values + self._count * (8 + _LARGEST) + 8))

    def _sums(self, step: float, last: int, shift: float) -> tuple[float, float, float]:
        """Of the real parts with epsilon too small by what losses are off, and too large by
        ``shift``, both without the common factor; and how far off each sum may be.
        """
        theta, smoothed = self._theta, self._tau**2
        rows = max(1, _AT_ONCE // max(len(one) for one in self._away))
        above = below = wrong = 0.0
        for first in range(0, last + 1, rows * _FINE):
            count = min(rows, -(-(last + 1 - first) // _FINE))
            omega = step * np.arange(first, first + count * _FINE, dtype=np.float64)
            product, off = self._product(omega, step)
            pole = (theta + 1j * omega) * (theta + 1 + 1j * omega)
            weight = np.exp(-smoothed * omega * omega / 2) / np.abs(pole)
            if first == 0:
                weight[0] /= 2
            away = self._centre - self._epsilon + smoothed * (theta + 0.5)
            phase = omega * away - np.angle(pole)
            turned = product * weight
            above += float((turned * np.exp(1j * (phase + omega * self._moved))).real.sum())
            below += float((turned * np.exp(1j * (phase - omega * shift))).real.sum())
            reach = abs(self._centre) + self._epsilon + smoothed * (theta + 1) + shift
            turns = np.minimum(2.0, _ROUND * (32 + self._count + len(omega) + omega * reach))
            wrong += float((weight * (off + turns * np.abs(product))).sum()) * (1 + 1e-9)
        return above, below, wrong

    def _product(self, omega: Floats, step: float) -> tuple[NDArray[np.complex128], Floats]:
        """Of the tilted factors about their centres; and how far off it may be, but for the
        rounding of the powers.
        """
        product, sizes = np.ones(len(omega), dtype=np.complex128), list[Floats]()
        offs = list[Floats]()
        for one, away, tilted in zip(self._summands, self._away, self._tilted, strict=True):
            fine = np.exp(1j * step * np.arange(_FINE)[:, None] * away)
            coarse = np.exp(1j * omega[::_FINE, None] * away) * tilted
            mean = (coarse @ fine.T).reshape(-1)
            reach = float((tilted * (np.abs(away) + np.abs(one.losses))).sum())
            off = _ROUND * (len(tilted) + 16 + omega * reach)
            offs.append(off)
            sizes.append(np.abs(mean) + off)
            product *= _power(mean, one.count)
        return product, self._off(sizes, offs)

    def _off(self, sizes: Sequence[Floats], offs: Sequence[Floats]) -> Floats:
        """A product moves by what one factor moves, times the sizes of all others, for each."""
        total = np.zeros(len(offs[0]))
        for at, one in enumerate(self._summands):
            moved = one.count * offs[at]
            for other, (each, size) in enumerate(zip(self._summands, sizes, strict=True)):
                moved = moved * size ** (each.count - (other == at))
            total += moved
        return total


def _power(factor: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """By squaring: each of the ``count`` factors adds a few u."""
    result = np.ones(len(factor), dtype=np.complex128)
    while count:
        if count & 1:
            result = result * factor
        factor, count = factor * factor, count >> 1
    return result


def _tilt(one: LossSummand, theta: float) -> tuple[float, Floats]:
    """ln E[e^(theta L)], and the law tilted by it."""
    exponents = theta * one.losses
    top = float(exponents.max())
    weights = one.chances * np.exp(exponents - top)
    total = float(weights.sum())
    return math.log(total) + top, weights / total


def _saddle(summands: Sequence[LossSummand], epsilon: float) -> float:
    """theta > 0 near the least of ln M(theta) - theta epsilon - ln(theta (theta + 1)). Any theta is
    sound.
    """

    def rises(theta: float) -> bool:
        mean = sum(one.count * float(_tilt(one, theta)[1] @ one.losses) for one in summands)
        return mean - epsilon > 1 / theta + 1 / (theta + 1)

    low, high = 0.0, 1.0
    for _ in range(40):
        if rises(high):
            break
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return high
