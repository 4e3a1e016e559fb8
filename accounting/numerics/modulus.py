"""The last step of ``bounds.swap``: integrals of the modulus of a characteristic function, from
above.

With phi(u) = sum_c p_c exp(u L_c), one answer's law of L, and any t > 0,

    F(v) = 1/(2 pi) int |phi(u v)|^N / |u|^2 d omega,   u = t + i omega
         = phi(t v)^N / (pi t) int_0^inf |psi(x)|^N / (1 + x^2) dx,   omega = t x,

psi(x) = sum_c q_c exp(i x a_c), a_c = t v L_c, q_c the tilted p_c exp(a_c) / phi(t v).

*Near.* |psi(x)|^2 = sum q_b q_c cos(x (a_b - a_c)). While x times the largest difference is at most
pi, every cosine falls, and so do |psi| and the integrand: at the left end of a bin it is largest.
*Far.* |psi| changes by at most E|a - mean| per unit of x. So in a bin it is at most its value in
the middle and half the width times that. Beyond the last bin it is at most 1. The weight of a bin
is a difference of arctangents.

*At a glance.* |psi| <= 1 everywhere gives F(v) <= phi(t v)^N / (2 t). Of many answers those whose
value is small by it, or with few bins, are not looked at again.

*A convex function.* H begins at the lowest of the values of F, and going up on either side each
slope is the larger of the one before and of what reaches F. So H is convex, at or above F at the
points, and so at or above the chords of F.

*Rounding* (u = 2^-53). An exponent is off by u (|a_c| + few), ln phi by u (cells + 16 + 4 max |a|),
N times; psi by 8 u (cells + 16 + max |a| (1 + x)). Four times that is added to the first, all of it
to the second. Whatever is left is covered by 1e-9 of the value.

**Direction.** Upper bounds. **Checked** against 40 digits
(tests/unit/accounting/numerics/test_modulus.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.arrays import np

_UNIT = 2.0**-53
# Bins near and far, at first and where that does not decide; how far they reach, in starts of the
# far ones, and in tilted standard deviations.
_ROUGH, _FINE = (32, 0), (400, 2_000)
_REACH, _WIDE = 24.0, 8.5
# Points of V that add so little, of delta, are not looked at twice.
_FAINT = 1e-5


@dataclass(frozen=True, slots=True)
class WeightedSums:
    """``values`` L (rounded up) with ``masses``, float64[answers, cells]; ``t`` > 0; ``places`` N
    >= 1. V is ``weights``[i] with probability ``chances``[i], rising; the first ``below`` >= 2 of
    them are those at which F is wanted.
    """

    values: Floats
    masses: Floats
    t: float
    places: int
    weights: Floats
    chances: Floats
    below: int


def most(question: WeightedSums, delta: float) -> float:
    """At or above the largest E[H_z(V)] / N of all answers z, H_z a convex function that is at or
    above F_z at the first ``below`` points, and straight beyond.

    It may be any number above ``delta`` if one of them is above it, and ``delta`` where all of them
    are below.
    """
    places, t = question.places, question.t
    points = question.weights[: question.below]
    with np.errstate(over="ignore"):
        scale = np.exp(_log_scale(question, points)) / (2.0 * t * places)
    glance = _expected(question, scale)
    best, seen = delta, set[bytes]()
    for at in np.argsort(-glance, kind="stable").tolist():
        if glance[at] <= best:
            break
        order = np.lexsort((question.masses[at], question.values[at]))
        values, masses = question.values[at][order], question.masses[at][order]
        key = values.tobytes() + masses.tobytes()
        if key in seen:  # the same law
            continue
        seen.add(key)
        # outputs that count alike are one cell
        first = np.flatnonzero(np.diff(values, prepend=math.nan) != 0.0)
        values, masses = values[first], np.add.reduceat(masses, first)
        heights, value = scale[at].copy(), math.inf
        for bins in (_ROUGH, _FINE):
            where = ~(heights * question.chances[: len(points)] <= _FAINT * delta)
            shares = modulus_share(values, masses, t * points[where], places, bins)
            heights[where] = np.minimum(heights[where], scale[at][where] * shares)
            value = float(_expected(question, heights[None])[0])
            if value <= best:
                break
        if not value <= best:
            return value
    return best


def _expected(question: WeightedSums, heights: Floats) -> Floats:
    """E[H(V)] for ``heights`` of F, float64[answers, below], rounded up."""
    points, chances = question.weights, question.chances
    bottom = heights.argmin(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = heights[np.arange(len(heights)), bottom] * chances[bottom]
        for order in (range(1, len(points)), range(len(points) - 2, -1, -1)):
            total = total + _one_side(points, chances, heights, bottom, order)
    raised: Floats = np.where(np.isnan(total), math.inf, total) * (1.0 + 1e-9)
    return raised


def _one_side(
    points: Floats, chances: Floats, heights: Floats, bottom: Ints, order: range
) -> Floats:
    """What H, going up from each ``bottom`` along ``order``, adds to the expectation."""
    now = heights[:, order.start - order.step] if order.step > 0 else heights[:, -1]
    slope, total = np.zeros(len(heights)), np.zeros(len(heights))
    for i in order:
        if i >= heights.shape[1] and order.step < 0:
            continue
        gap = abs(points[i] - points[i - order.step])
        reached = heights[:, i] if i < heights.shape[1] else np.zeros(len(heights))
        steeper = np.maximum(slope, (reached - now) / gap)
        beyond = (i > bottom) if order.step > 0 else (i < bottom)
        slope = np.where(beyond, steeper, 0.0)
        now = np.where(beyond, now + slope * gap * (1.0 + 1e-13), reached)
        total = total + np.where(beyond, chances[i] * now, 0.0)
    return total


def _log_scale(question: WeightedSums, weights: Floats) -> Floats:
    """ln phi(t v)^N, rounded up: float64[answers, weights]."""
    exponents = question.t * question.values
    large = np.abs(exponents).max(axis=1)
    logs = np.empty((len(exponents), len(weights)))
    for i, weight in enumerate(weights.tolist()):
        each = weight * exponents
        top = each.max(axis=1)
        error = 4.0 * _UNIT * (each.shape[1] + 16.0 + 4.0 * weight * large)
        logs[:, i] = top + np.log((np.exp(each - top[:, None]) * question.masses).sum(axis=1))
        logs[:, i] += error
    return question.places * logs


def modulus_share(
    values: Floats, masses: Floats, tilts: Floats, places: int, bins: tuple[int, int] = _FINE
) -> Floats:
    """At or above 2/pi int_0^inf |psi(x)|^places / (1 + x^2) dx, and at most 1, for each of
    ``tilts`` = t v, with ``values`` and ``masses`` of one answer, float64[cells]. ``bins``: how
    many near and far.
    """
    exponents = np.outer(tilts, values)
    shares = masses * np.exp(exponents - exponents.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    centred = exponents - (shares * exponents).sum(axis=1, keepdims=True)
    span = np.ptp(exponents, axis=1) * (1.0 + 1e-12) + 1e-300
    spread = np.sqrt(places * (shares * centred * centred).sum(axis=1)) + 1e-300
    law = _Tilted(
        shares,
        centred,
        8.0 * _UNIT * (len(values) + 16.0 + np.abs(exponents).max(axis=1)),
        places,
    )
    end = math.pi / span * (1.0 - 1e-12)
    inner = np.minimum(end, _WIDE / spread)[:, None] * np.linspace(0.0, 1.0, bins[0] + 1)
    near = law.powers(inner, np.zeros(len(tilts)))
    total = (near[:, :-1] * np.diff(np.arctan(inner), axis=1)).sum(axis=1)
    total += near[:, -1] * (np.arctan(end) - np.arctan(inner[:, -1]))
    if bins[1]:
        outer = end[:, None] * np.linspace(1.0, _REACH, bins[1] + 1)
        half = (outer[:, 1] - outer[:, 0]) * (0.5 + 1e-9)
        drift = half * (shares * np.abs(centred)).sum(axis=1) * (1.0 + 1e-9)
        far = law.powers((outer[:, 1:] + outer[:, :-1]) / 2.0, drift)
        total += (far * np.diff(np.arctan(outer), axis=1)).sum(axis=1)
        end = outer[:, -1]
    total += math.pi / 2.0 - np.arctan(end)
    at_most_one: Floats = np.minimum(1.0, total * (2.0 / math.pi) * (1.0 + 1e-12))
    return at_most_one


@dataclass(frozen=True, slots=True)
class _Tilted:
    """The tilted laws of one answer, float64[tilts, cells], and what psi may be off by for each."""

    shares: Floats
    centred: Floats
    error: Floats
    places: int

    def powers(self, x: Floats, drift: Floats) -> Floats:
        """|psi(x)|^places for float64[tilts, bins], psi raised by its rounding and by ``drift``; at
        most 1.
        """
        real, imaginary = np.zeros_like(x), np.zeros_like(x)
        for share, step in zip(self.shares.T, self.centred.T, strict=True):
            phase = x * step[:, None]
            real += share[:, None] * np.cos(phase)
            imaginary += share[:, None] * np.sin(phase)
        size = np.hypot(real, imaginary) + self.error[:, None] * (1.0 + x) + drift[:, None]
        powers: Floats = np.exp(self.places * np.log(np.minimum(1.0, size)))
        return powers
