"""The exact divergence of a batch whose reports have two outputs, over every dataset.

A report is 1 with probability a after a yes and with probability b < a after a no. Of the n - 1
others m say yes. The view is the number of ones: T of the others, and the victim's. With f the law
of T, A = a - e b, B = e (1 - b) - (1 - a) and e = e^epsilon,

    P(t) - e Q(t) = A f(t - 1) - B f(t),

and since f is log-concave (a convolution of two binomial laws), f(t) / f(t - 1) falls, so that the
difference is positive from some t on and negative before. Therefore

    delta(m) = max over t of D(t),   D(t) = sum over s >= t of A f(s - 1) - B f(s).

D rises up to its largest value and falls afterwards, so a t that is at least as good as its two
neighbours is the best. The other direction is the same with ones and zeros exchanged: (a, b)
becomes (1 - b, 1 - a), and over all m nothing else changes.

**How D is computed.** D(t) is a coefficient of a power series: with G(z) = (1 - a + a z)^m (1 - b +
b z)^(n - 1 - m) and any r > 1,

    D(t) = 1/(2 pi) * integral of (A z - B) G(z) z^(1 - t) / (z - 1) over z = r e^(i omega).

r = B / A puts the path through the saddle point. A sum over N frequencies in a circle is, exactly,
the sum over k of D(t + kN) r^(kN). Terms k > 0 are not negative; those of k < 0 are at least
-e r^(-|k|N) together, which is added. |G| falls in |omega|, so frequencies that are left out weigh
at most the first of them each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.checker.errors import UnreadableError
from shoal.checker.expectation import Between

_ROUND = 16 * 2.0**-53
_SMALL = 1e-22  # of the largest term: what is left out
_IMAGES = 60.0
MOST_DATASETS = 50_000
_CELLS = 1 << 19
_MOST_POINTS = 20_000_000
_TINY = 1e-300  # what leaves the range of floats is less
_TRIED = 4  # places of D, the first before its top


@dataclass(frozen=True, slots=True)
class Coin:
    """Probabilities of the output 1: ``yes`` > ``no``, both in (0, 1), exactly."""

    yes: Fraction
    no: Fraction

    def exchanged(self) -> Coin:
        """The same with outputs and answers exchanged: the other direction of the divergence."""
        return Coin(1 - self.no, 1 - self.yes)


def largest_divergence(coin: Coin, n: int, e: Fraction, most: int = MOST_DATASETS) -> Between:
    """max over all datasets of n reports and over both directions, at e = e^epsilon >= 1.

    More than ``most`` of them are taken in blocks of s. Who is told s - 1 of the others'
    reports, and takes them away, sees a batch of n - s + 1; that can only show more (deletion
    lemma), so a block is bounded by its first member in a batch that is smaller by s - 1. ``low``
    is then that of the blocks' first members themselves.
    """
    block = -(-n // most)
    above = _both_ways(coin, n - block + 1, e, block)
    below = above if block == 1 else _both_ways(coin, n, e, block)
    return Between(below.low, above.high)


def divergence_above(coin: Coin, n: int, e: Fraction, most: int) -> float:
    """The upper side of ``largest_divergence`` alone."""
    block = -(-n // most)
    return _both_ways(coin, n - block + 1, e, block).high


def _both_ways(coin: Coin, n: int, e: Fraction, block: int) -> Between:
    turned = coin.exchanged()
    directions = (coin,) if turned == coin else (coin, turned)
    found = [_over_datasets(one, n, e, block) for one in directions]
    return Between(max(one.low for one in found), max(one.high for one in found))


def _over_datasets(coin: Coin, n: int, e: Fraction, block: int) -> Between:
    rises, falls = coin.yes - e * coin.no, e * (1 - coin.no) - (1 - coin.yes)
    if rises <= 0:
        return Between(0.0, 0.0)  # no output is more than e times as likely
    if falls <= rises:  # e = 1: the total variation, which is at most that of one report
        return Between(0.0, float(coin.yes - coin.no) * (1 + _ROUND))
    circle = _Circle(coin, n, rises, falls, e)
    low = high = 0.0
    at_once = max(1, _CELLS // circle.size)
    # The last one is looked at too: in a smaller batch it stands for the last ones of the larger.
    firsts = np.unique(np.append(np.arange(0, n, block), n - 1))
    for first in range(0, len(firsts), at_once):
        found = circle.divergences(firsts[first : first + at_once])
        low, high = max(low, found.low), max(high, found.high)
    return Between(low, high)


class _Circle:
    """One path of integration for all datasets of a batch of n reports."""

    def __init__(self, coin: Coin, n: int, rises: Fraction, falls: Fraction, e: Fraction) -> None:
        self._n, self._e = n, float(e)
        radius = float(falls / rises)
        self._log_radius = math.log(radius)
        self._ones = [float(share) for share in (coin.yes, coin.no)]
        tilted = [share * radius / (1 - share + share * radius) for share in self._ones]
        self._tilted = tilted
        self._mass = [math.log1p(share * (radius - 1)) for share in self._ones]
        points = max(_IMAGES / self._log_radius, 16 * math.sqrt(n)) + 64
        if points > _MOST_POINTS:
            raise UnreadableError("an epsilon as small as this is not checked here")
        self._points = math.ceil(points)
        # Every frequency where |G| may matter: |G|^2 falls as (1 - 2 v (1 - cos omega)) per report.
        most = self._points // 2
        steps = np.arange(0, most + 1)
        omega = 2 * math.pi * steps / self._points
        flat = min(share * (1 - share) for share in tilted)
        size = 0.5 * (n - 1) * np.log1p(-4 * flat * np.sin(omega / 2) ** 2)
        kept = int(np.searchsorted(-size, -math.log(_SMALL))) + 1
        self._omega = omega[: min(kept, most + 1)]
        self._left_out = 0 if kept > most else self._points
        turn = -2 * np.sin(self._omega / 2) ** 2 + 1j * np.sin(self._omega)
        self._logs = [_log1p(share * turn) for share in tilted]
        z = radius * np.exp(1j * self._omega)
        weight = np.full(self._omega.shape, 2.0)
        weight[0] = 1.0
        if self._points % 2 == 0 and len(self._omega) == most + 1:
            weight[-1] = 1.0
        share_of_one = weight * float(falls) * z / (z - 1) / self._points
        self._factor = share_of_one * turn
        # The radius is B / A but for its rounding: A z - B is B (turn) but for as much of B.
        self._rounded = 4 * _ROUND * np.abs(share_of_one)
        self._largest = float(np.abs(share_of_one).max())
        self._near = 1 / np.abs(z - 1)  # by how much its rounding counts there
        self._back = np.exp(-1j * self._omega)
        self.size = len(self._omega)

    def divergences(self, yes: NDArray[np.int64]) -> Between:
        """Both sides of the largest D over the datasets with these numbers of yeses."""
        no = self._n - 1 - yes
        mean = yes * self._tilted[0] + no * self._tilted[1]
        best = np.floor(mean).astype(np.int64)
        exponents = np.outer(yes, self._logs[0]) + np.outer(no, self._logs[1])
        size = np.exp(exponents.real)
        loose_z = self._near + 4 * self._n * self._omega
        wrong = np.minimum(_ROUND * (8 + loose_z), 2.0) * np.abs(self._factor)
        error = size @ (wrong + self._rounded) + self._left_out * self._largest * _SMALL
        at = best - 1
        terms = np.exp(1j * (exponents.imag - np.outer(at, self._omega)))
        terms *= size * self._factor[None, :]
        low, high = np.zeros(len(yes)), np.zeros(len(yes))
        past = np.zeros(len(yes), dtype=bool)
        loose = 1 + _ROUND * (self._n * (max(self._mass) + self._log_radius) + 8)
        for _ in range(_TRIED):
            terms *= self._back[None, :]
            at = at + 1
            total = terms.real.sum(axis=1)
            log_scale = yes * self._mass[0] + no * self._mass[1] - at * self._log_radius
            scale = np.exp(np.minimum(log_scale, 700.0))
            above = (total + error) * scale * loose
            past = above <= high
            high = np.maximum(high, above)
            low = np.maximum(low, (total - error) * scale / loose)
        high = np.where(past, high, 1.0)  # the top may lie beyond what was tried
        images = 2 * self._e * math.exp(-self._log_radius * self._points)
        return Between(float(low.max()), float(high.max()) + images + _TINY)


def _log1p(w: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """ln(1 + w), close also where w is small."""
    # -500 is as good as minus infinity, and 0 times it is 0.
    real = np.maximum(0.5 * np.log1p(np.maximum(2 * w.real + np.abs(w) ** 2, -1 + 1e-16)), -500.0)
    turned: NDArray[np.complex128] = real + 1j * np.arctan2(w.imag, 1 + w.real)
    return turned
