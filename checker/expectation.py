"""E[(L_1 + ... + L_n)_+] / n for independent L_i of one finite law, from both sides.

Every divergence of a batch that is checked here, but those of two outputs, is such a number.

**The integral.** For theta > 0 and a variable X with a moment generating function,

    E[X_+] = 1/(2 pi) * integral of E[e^(zX)] / z^2 over z = theta + i omega,

since 1/z^2 is the integral of y e^(-zy) over y > 0. X is S + Z: S the sum, Z an independent normal
variable of deviation tau. Z does not look at S, so by Jensen E[(S + Z)_+] >= E[S_+]: what is
computed is above what is meant. It makes the integrand fall like e^(-tau^2 omega^2 / 2), so that
the integral ends. (x + Z)_+ exceeds x_+ by at most 0.4 tau e^(-x^2 / (2 tau^2)) on average, which
is at most 0.4 tau e^(theta x) e^(theta^2 tau^2 / 2). So the lower side loses at most 0.4 tau
e^(theta^2 tau^2 / 2) E[e^(theta S)].

**The sum.** A sum over omega = 2 pi k / T instead of the integral is, by Poisson's formula, the sum
over all m of E[(X - mT)_+] e^(theta m T). No term is negative: the sum too is above what is meant.
The terms m < 0 are at most (|m| T + E[X_+]) e^(-theta |m| T). In those of m > 0, (x - y)_+ is at
most e^(2 theta (x - y)) / (2 e theta), so they are at most E[e^(2 theta X)] e^(-theta m T) /
(2 e theta). Both are taken off the lower side.

**The rest.** Frequencies that are left out are bounded by the normal factor. Rounding: a cosine or
sine of floats is off by a few units in the last place of its argument and of itself; ``_ROUND``
counts 16 of them for each operation that a term passes through, and the terms' bounds are added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.checker.errors import UnreadableError

_ROUND = 16 * 2.0**-53
_AT_ONCE, _CELLS = 1 << 16, 1 << 20  # frequencies, and numbers of one table: 8 MiB
_FEW = 20_000
_TINY = 1e-300  # what leaves the range of floats is less
_IMAGES = 45.0  # theta T, at least: images weigh e^-45
_LARGEST = 300.0  # of theta times a value
_END = 75.0  # what the normal factor falls to: e^-75
# tau theta, from coarse to fine: the upper side is too large by about half the square of it
SMOOTHING = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True, slots=True)
class Between:
    """The number meant is at least ``low`` and at most ``high``."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summand:
    """One value of a summand, exactly, and its probability."""

    value: Fraction
    chance: Fraction


def mean_positive_part(kinds: Sequence[Summand], n: int, smoothing: float) -> Between:
    """E[(L_1 + ... + L_n)_+] / n. The chances of ``kinds`` sum to 1 or less; the rest is zeros.

    ``smoothing`` is tau theta, in (0, 0.1]: the smaller, the closer and slower. Raises
    UnreadableError for sums that floats can't hold.
    """
    if max((kind.value for kind in kinds if kind.chance), default=Fraction(0)) <= 0:
        return Between(0.0, 0.0)
    mean = sum((kind.value * kind.chance for kind in kinds), Fraction(0))
    if min(kind.value for kind in kinds) >= 0:
        exact = float(mean)
        return Between(exact * (1 - _ROUND), exact * (1 + _ROUND))
    values = np.array([float(kind.value) for kind in kinds])
    chances = np.array([float(kind.chance) for kind in kinds])
    theta = min(saddle(values, chances, n), _LARGEST / float(np.abs(values).max()))
    if not 0.0 < theta < math.inf:
        raise UnreadableError("this sum leaves the range of floats: it is not checked")
    left = float(1 - sum((one.chance for one in kinds), Fraction(0)))
    found = _Contour(values, chances, n, left, theta, smoothing).around()
    return Between(found.low, found.high + _TINY)


def exact_mean_positive_part(kinds: Sequence[Summand], n: int) -> Fraction:
    """The same, exactly: by listing how often each value occurs. For ``few_counts`` alone."""
    left = 1 - sum((kind.chance for kind in kinds), Fraction(0))
    values = [kind.value for kind in kinds] + [Fraction(0)]
    chances = [kind.chance for kind in kinds] + [left]
    total = Fraction(0)
    for counts in _counts(n, len(values)):
        reached = sum((value * c for value, c in zip(values, counts, strict=True)), Fraction(0))
        if reached > 0:
            ways, weight, rest = 1, Fraction(1), n
            for chance, c in zip(chances, counts, strict=True):
                ways, rest = ways * math.comb(rest, c), rest - c
                weight *= chance**c
            total += ways * weight * reached
    return total / n


def few_counts(kinds: Sequence[Summand], n: int) -> bool:
    """Whether ``exact_mean_positive_part`` ends within a second or so."""
    return math.comb(n + len(kinds), len(kinds)) * n <= _FEW


def _counts(n: int, places: int) -> Iterator[tuple[int, ...]]:
    if places == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for others in _counts(n - first, places - 1):
            yield (first, *others)


class _Contour:
    """The sum over frequencies at one theta and tau."""

    def __init__(
        self,
        values: NDArray[np.float64],
        chances: NDArray[np.float64],
        n: int,
        left: float,
        theta: float,
        smoothing: float,
    ) -> None:
        self._n, self._theta, self._tau = n, theta, smoothing / theta
        grown = chances * np.expm1(theta * values)
        self._log_mass = n * math.log1p(float(grown.sum()))  # ln E[e^(theta S)]
        mass = 1.0 + float(grown.sum())
        largest = 1.0 + theta * float(np.abs(values).max())
        self._mass_error = n * _ROUND * float(np.abs(grown).sum()) * largest / mass + _ROUND
        tilted = np.append(chances * np.exp(theta * values), left)
        self._tilted = tilted / float(tilted.sum())
        reach = np.append(values, 0.0)
        self._centre = float((self._tilted * reach).sum())
        self._away = reach - self._centre
        self._spread = float((self._tilted * np.abs(self._away)).sum())
        self._doubled = n * math.log1p(float((chances * np.expm1(2 * theta * values)).sum()))
        self._period = (_IMAGES + min(max(0.0, -self._log_mass), _IMAGES)) / theta

    def around(self) -> Between:
        step = 2 * math.pi / self._period
        end = math.sqrt(2 * _END) / self._tau
        total, error = 0.0, 0.0
        last = math.ceil(end / step)
        at_once = max(1, min(_AT_ONCE, _CELLS // len(self._away)))
        for first in range(0, last + 1, at_once):
            omega = step * np.arange(first, min(first + at_once, last + 1), dtype=np.float64)
            terms, errors = self._terms(omega)
            if first == 0:
                terms[0], errors[0] = terms[0] / 2, errors[0] / 2
            total += float(terms.sum())
            error += float(errors.sum())
        # Everything but the factor E[e^(theta S)] e^(theta^2 tau^2 / 2), which is put in last.
        error += _after(end, self._tau, step)
        scale = math.exp(self._log_mass + (self._theta * self._tau) ** 2 / 2)
        wide = 1 + self._mass_error + 4 * _ROUND
        high = (total + error) * step / math.pi * scale * wide / self._n
        low = ((total - error) * step / math.pi - 0.4 * self._tau) * scale / wide / self._n
        return Between(max(0.0, low - self._images(high)), high)

    def _images(self, high: float) -> float:
        """What the periodic images may have added, per report; ``high`` bounds E[X_+] / n."""
        falls = math.exp(-self._theta * self._period)
        before = falls * (4 * self._period + 2 * high * self._n)
        smoothed = self._doubled + 2 * (self._theta * self._tau) ** 2
        room = smoothed - self._theta * self._period
        after = math.exp(room) / (math.e * self._theta) if room < 700 else math.inf
        return (before + after) / self._n

    def _terms(self, omega: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Real parts of the integrand without the common factor, and how far off each may be."""
        half = 0.5 * omega[:, None] * self._away[None, :]
        sine, cosine = np.sin(half), np.cos(half)
        real = -2.0 * (sine * sine) @ self._tilted
        imaginary = 2.0 * (sine * cosine) @ self._tilted
        log_size = 0.5 * np.log1p(np.maximum(2 * real + real**2 + imaginary**2, -1 + 1e-300))
        turned = np.arctan2(imaginary, 1 + real)
        phase = self._n * (turned + omega * self._centre) + self._theta * self._tau**2 * omega
        size = np.exp(self._n * log_size - (self._tau * omega) ** 2 / 2)
        denominator = (self._theta + 1j * omega) ** 2
        values = size * np.real(np.exp(1j * phase) / denominator)
        length = size / np.abs(denominator)
        wrong = _ROUND * (
            4
            + omega
            * (self._n * (2 * self._spread + abs(self._centre)) + self._theta * self._tau**2)
            + (self._tau * omega) ** 2
        )
        # A factor e^wrong either way; where that is large the whole term is an error.
        return values, length * np.minimum(2 * wrong, 2.0) * np.exp(np.minimum(wrong, 50.0))


def _after(end: float, tau: float, step: float) -> float:
    """A bound on the sum of all terms beyond ``end``: |integrand| <= e^(-tau^2 omega^2 / 2) /
    omega^2, which falls.
    """
    first = math.exp(-((tau * end) ** 2) / 2) / end**2
    return first * (1 + 1 / (step * tau**2 * end))


def saddle(values: NDArray[np.float64], chances: NDArray[np.float64], n: int) -> float:
    """theta > 0 near the least of n ln E[e^(theta L)] - 2 ln theta. Any theta is sound."""
    low, high = 0.0, 1.0 / float(np.abs(values).max())
    for _ in range(60):
        if _rises(values, chances, n, high):
            break
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _rises(values, chances, n, middle):
            high = middle
        else:
            low = middle
    return high


def _rises(values: NDArray[np.float64], chances: NDArray[np.float64], n: int, theta: float) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        weights = chances * np.exp(np.minimum(theta * values, 700.0))
    mass = float(weights.sum()) + max(0.0, 1.0 - float(chances.sum()))
    return n * float((weights * values).sum()) / mass > 2 / theta
