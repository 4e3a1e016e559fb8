"""The divergence of a batch from above, where the victim takes the place of another device.

The blanket tells the adversary of every device whether its report looked at its input. That is
told here of a few devices only, the *crowd*: any s of the n - 1 others. The other N hold *places*.
R(. | z) is the law of a report after the answer z, w_y > 0 at most R(y | z) for every z, gamma the
sum of w; e = e^epsilon, and all holds for each ordered pair of answers x, x'.

**What is shown.** A place I is drawn, all N alike. Shown are the reports of all places but I, each
with its place, the victim's report at place I, the crowd's reports that were not drawn from
w / gamma, and, mixed, the m that were with device I's own. That is every report of the batch once:
who forgets the places and mixes all has the batch. m ~ Bin(s, gamma) looks at no answer. Given m,
device I's report is each of the m + 1 mixed ones b_j alike, so that the density against all y_i ~
R(. | z_i) and b_j ~ w / gamma is

    (1/N) sum over i of W_i R(y_i | x) / R(y_i | z_i),  W_i = mean over j of gamma R(b_j | z_i) / w.

So delta <= E[(sum of W_i L_i)_+] / N, L_i = (R(y_i | x) - e R(y_i | x')) / R(y_i | z_i).

**Weights of one law.** Given m this is the mean of a convex function of (W_1 .. W_N). By Jensen's
inequality it only grows if the W_i become variables whose means, given what they were, are these:
- a mean of m + 1 terms becomes the mean of the first k + 1 <= m + 1 of them;
- a term, which has mean 1 and lies in [low, high], becomes low or high by a coin, one for each j
  and each answer. So each W_i is V = low + (high - low) B / (k + 1), B binomial;
- V becomes one of its two neighbours in a grid.
Devices of one answer share all coins: there are as many different weights as answers, at most.

**One answer at a time.** Let phi_z(u) = E[e^(u L(z))]. For any t > 0, as in ``expectation``,
E[S_+] is the integral of E[e^(uS)] / u^2 over u = t + i omega, by 2 pi. Given the weights E[e^(uS)]
is a product, one factor for each place. Its modulus is at most the mean of their N-th powers:

    delta <= max over z of E[F_z(V)] / N,  F_z(v) = 1/(2 pi) integral |phi_z(u v)|^N / |u|^2 domega.

**Rare weights.** E[L_+] <= 1, so a sum is at most W_1 + .. + W_N on average. Where some weight is
above c that is at most N times the largest; K answers have it above c with E[W; W > c] <=
K E[V; V > c] together. F is wanted up to c alone. Likewise a set of m of chance p costs at most p.

**The integral.** With x = omega / t, q the law of a = t v L tilted by e^a, and psi(x) = E_q[e^(i x
a)],

    F(v) = phi(t v)^N / (2 pi t) * integral of |psi(x)|^N / (1 + x^2) dx.

For even N (and s is chosen so) |psi|^N is the characteristic function of D, a sum of N / 2
differences of independent a's; of D + Z with a normal Z of deviation kappa if multiplied by
e^(-(kappa x)^2 / 2). A normal Z' of deviation kappa / t may be added to the whole sum, since
E[(S + Z')_+] >= E[S_+]: then every F has that factor, and e^(kappa^2 / 2). A sum
over x = 2 pi j / T is, by Poisson's formula, pi times the sum over all m of E[e^(-|D + Z - mT|)]:
its term m = 0 is the integral and no other is negative. What is left out falls like the normal
factor. So every step errs upward, and only rounding is left.

**Rounding** (u = 2^-53). Each a is off by some 5 u of itself. ln phi is log1p of a sum of p (e^a -
1), each off by u (|a| + few), and their sum by u times their number. psi is a product of tables
e^(i j h a): off by the same for q, and by u x |a|. ``_ROUND`` is 16 u for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.checker.crowds import CrowdWeights, crowd_of
from shoal.checker.expectation import saddle
from shoal.checker.laws import OutputLaw, Outputs

Floats: TypeAlias = "NDArray[np.float64]"

_MANY = 1 << 62  # answers
LEAST_N = 200  # of fewer reports a crowd leaves too few
_ROUND = 16 * 2.0**-53
# kappa, from coarse to fine: the bound is too large by half the square of it
_KAPPAS = (0.2, 0.02, 0.002)
_END = 30.0  # what the normal factor falls to: e^-30
_FINE = 64  # places of the finer table of turns
_AT_ONCE = 128  # points of V times outputs: tables of a few megabytes
_LOOKED = 4  # answers, to choose a crowd by
_IMAGES, _WIDE = 14.0, 6.5  # T: this, and so many deviations of D
# To choose from: sizes of the crowd, of the one that balances its costs; t, of the saddle point.
_CROWDS = tuple(2.0 ** (i / 3) for i in range(-6, 5))
_TILTS = tuple(i / 20 for i in range(10, 23))
_FIRM = 1e-5  # of delta: weights that add so little are not looked at closely
_GROWN = 600.0  # e to this is a float
_HOPELESS = 1.5  # times delta, by a guess: not looked at more closely


@dataclass(frozen=True, slots=True)
class Swapping:
    """``rows``: P(output | answer), float64[answers, outputs], of every answer that others may
    give. ``gamma``, ``low``, ``high`` as above, exactly.
    """

    rows: Floats
    different: int  # answers: K, or more
    gamma: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[Fraction]], least: Sequence[Fraction], different: int
    ) -> Swapping | None:
        """``different``: how many answers there are, or more. None if no output tells of them."""
        gamma = sum(least, Fraction(0))
        ratios = [gamma * p / low for row in rows for p, low in zip(row, least, strict=True)]
        if min(ratios) >= 1 or max(ratios) <= 1:
            return None
        shares = np.array([[float(p) for p in row] for row in rows])
        return cls(shares, different, gamma, min(ratios), max(ratios))

    def sizes(self, n: int) -> list[int]:
        """Of crowds worth trying, so that the places are even in number. A crowd of s costs s / n
        of n, and its weights' variance.
        """
        middle = math.sqrt(n * (1 - self.low) * (self.high - 1) / self.gamma)
        tried = {max(1, min(round(middle * factor), n // 2)) for factor in _CROWDS}
        return sorted(s + (n - 1 - s) % 2 for s in tried)

    def crowd(self, n: int, size: int, delta: float) -> CrowdWeights:
        return crowd_of(n, size, (self.gamma, self.low, self.high), self.different, delta)

    def chosen(self, n: int, delta: float, pair: Floats) -> tuple[float, CrowdWeights, float]:
        """(what they may prove, a crowd, t): what looks best for a pair; any is sound. ``pair``:
        R(. | x) - e R(. | x').
        """
        values = pair / self.rows
        sizes = (values * values * self.rows).sum(axis=1)
        crowds = [self.crowd(n, size, delta) for size in self.sizes(n)]
        looked, worst = list[int](), int(sizes.argmax())
        tilts = np.array(_TILTS) * saddle(values[worst], self.rows[worst], n)
        while True:  # the answer that is worst there may be another one
            looked.append(worst)
            _, crowd, t = min(
                (
                    (max(self._guess(values, at, crowd, t) for at in looked), crowd, t)
                    for crowd in crowds
                    for t in tilts.tolist()
                ),
                key=lambda each: each[0],
            )
            guesses = [self._guess(values, at, crowd, t) for at in range(len(values))]
            worst = int(np.argmax(guesses))
            if worst in looked or len(looked) == _LOOKED:
                return max(guesses), crowd, t

    def _guess(self, values: Floats, at: int, crowd: CrowdWeights, t: float) -> float:
        law = _Answer(values[at], self.rows[at], t, crowd)
        return law.guess() / crowd.places + crowd.lost

    def proves(self, pair: Floats, crowd: CrowdWeights, t: float, delta: float) -> bool:
        """Whether the divergence of the pair is at most ``delta``. False says nothing."""
        values = pair / self.rows
        if float(values.max()) <= 0:
            return True
        order = np.argsort(-(values * values * self.rows).sum(axis=1), kind="stable")
        enough = (delta - crowd.lost) * (1 - 1e-9) * crowd.places
        answers = [_Answer(values[at], self.rows[at], t, crowd) for at in order]
        # One kappa for all answers: they share one Z'.
        return any(all(one.mean(kappa, enough) <= enough for one in answers) for kappa in _KAPPAS)


class SwapProver:
    """What is asked of one law, n and delta: pair after pair."""

    def __init__(self, law: OutputLaw, n: int, delta: Fraction) -> None:
        self._n, self._delta = n, math.nextafter(float(delta), 0.0)
        self._ways = ways(law) if n >= LEAST_N else []
        self._last: tuple[Swapping, CrowdWeights, float] | None = None

    def proves(self, outputs: Sequence[Outputs], e: Fraction) -> bool:
        """Whether the pair's divergence is at most delta. False says nothing."""
        if not self._ways:
            return False
        pair = np.array([float(one.first - e * one.second) for one in outputs])
        if self._last and self._tried(pair, *self._last):  # mostly as good for this one
            return True
        found = [(way, way.chosen(self._n, self._delta, pair)) for way in self._ways]
        way, (guess, crowd, t) = min(found, key=lambda each: each[1][0])
        self._last = way, crowd, t
        return guess <= _HOPELESS * self._delta and self._tried(pair, way, crowd, t)

    def _tried(self, pair: Floats, way: Swapping, crowd: CrowdWeights, t: float) -> bool:
        return way.proves(pair, crowd, t, self._delta)


def ways(law: OutputLaw) -> list[Swapping]:
    """With the largest w there is, and, where all answers are at hand, with one that is as small as
    the largest ratio allows: it makes a smaller crowd, of weights closer to 1.

    Where answers are not ``alike``, outputs that are taken together may differ after an answer that
    shares its law with one of these. The largest w of these laws is the same for every output, and
    either of two ratios to it is that of any answer. None where others may answer what looks like
    none of these laws (``OutputLaw.listed``).
    """
    if not law.listed:
        return []
    if law.rows:
        rows, least = law.rows, [min(column) for column in zip(*law.rows, strict=True)]
    else:
        rows = tuple(zip(*(one.after for one in law.outputs), strict=True))
        least = [one.least for one in law.outputs]
    different = len(law.rows) or law.answers or _MANY
    found = [Swapping.of(rows, least, different)]
    if law.alike and different <= len(rows):
        small = [max(column) / law.ratio for column in zip(*rows, strict=True)]
        found.append(Swapping.of(rows, small, different))
    return [one for one in found if one is not None]


class _Answer:
    """F of one answer at the points of V."""

    def __init__(self, values: Floats, chances: Floats, t: float, crowd: CrowdWeights) -> None:
        self._crowd, self._t = crowd, t
        a = crowd.points[:, None] * (t * values)[None, :]
        self._largest = np.abs(a).max(axis=1)
        held = np.minimum(a, _GROWN)
        grown = chances * np.expm1(held)
        mass = 1.0 + grown.sum(axis=1)
        # Chances sum to 1, so this is ln phi; with its rounding.
        loose = (len(values) + 1 + self._largest) * np.abs(grown).sum(axis=1) / mass
        places = crowd.places
        log_scale = places * (np.log1p(grown.sum(axis=1)) + _ROUND * loose) + _ROUND
        with np.errstate(over="ignore"):
            scale = np.exp(np.where(a.max(axis=1) < _GROWN, log_scale, math.inf)) / (2 * t)
        self.scale: Floats = scale * (1 + _ROUND)
        tilted = chances * np.exp(held)
        self._tilted = tilted / tilted.sum(axis=1, keepdims=True)
        centre = (self._tilted * a).sum(axis=1, keepdims=True)
        self._away = a - centre
        self._spread = (self._tilted * (np.abs(a) + np.abs(self._away))).sum(axis=1)
        self._deviation = np.sqrt(places * (self._tilted * self._away**2).sum(axis=1))

    def guess(self) -> float:
        """About E[F(V); V <= c]: as if every D were normal."""
        y = self._deviation / math.sqrt(2)
        share = 2 / math.sqrt(math.pi) / (y + np.sqrt(y * y + 4 / math.pi))
        return float((self.scale * share * self._crowd.chances).sum())

    def mean(self, kappa: float, enough: float) -> float:
        """At or above E[F(V); V <= c]. It stops where that is at most ``enough``."""
        wide = math.exp(kappa**2 / 2) * (1 + 1e-10)
        heights, chances = self.scale * wide, self._crowd.chances  # |psi| is at most 1
        if not float(heights @ chances) <= enough:
            close = np.flatnonzero(heights * chances > _FIRM * enough / len(heights))
            close = close[np.isfinite(heights[close])]
            at_once = max(1, _AT_ONCE // self._away.shape[1])
            for some in np.array_split(close, max(1, len(close) // at_once)):
                heights[some] *= self._shares(some, kappa)
        return float(heights @ chances) * (1 + 1e-12)

    def _shares(self, at: NDArray[np.int64], kappa: float) -> Floats:
        """At or above 1/pi times the integral of |psi|^N e^(-(kappa x)^2 / 2) / (1 + x^2), and at
        most 1, at each of these points.
        """
        step = 2 * math.pi / (_IMAGES + _WIDE * float(self._deviation[at].max(initial=0.0)))
        rows = math.ceil(math.sqrt(2 * _END) / kappa / step / _FINE) + 1
        x = step * np.arange(rows * _FINE, dtype=np.float64)
        weight = np.exp(-((kappa * x) ** 2) / 2) / (1 + x * x)
        weight[0] /= 2
        away, tilted = self._away[at, None, :], self._tilted[at, None, :]
        fine = np.exp(1j * step * np.arange(_FINE)[None, :, None] * away)
        coarse = np.exp(1j * step * _FINE * np.arange(rows)[None, :, None] * away) * tilted
        psi = np.abs(coarse @ fine.transpose(0, 2, 1)).reshape(len(at), -1)
        count = away.shape[2] + 8
        psi += _ROUND * (count + self._largest[at, None] + x[None, :] * self._spread[at, None])
        powers = np.exp(self._crowd.places * np.log(np.minimum(psi, 1.0)))
        last = float(x[-1])
        total = (powers @ weight) * step + math.exp(-((kappa * last) ** 2) / 2) / last
        share: Floats = np.minimum(1.0, total * (2 / math.pi) * (1 + 1e-10))
        return share
