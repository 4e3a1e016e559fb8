"""The divergence of two binomial-like views that differ in one bit, to about nine digits in
constant time, with its error.

The others' reports are independent bits; B is the number of ones among them. The victim's report is
one with probability a (P) or b < a (Q). With e = e^epsilon, x = e - 1, f the law of B, d = a - e b
and c = e (1 - b) - (1 - a) = d + x,

    P(t) - e Q(t) = f(t - 1) d - f(t) c.

*One change of sign.* A sum of independent bits has a log-concave law, so f(t - 1) / f(t) never
falls: the terms are negative first and positive afterwards. If d <= 0 none is positive and the
divergence is 0. At any T, sum over t > T is P(A) - e Q(A) of the event A = {more than T}: a lower
bound of the divergence, and equal to it at the T where the sign changes.

*Exponential tilt.* With e^theta = c / d (so e^theta - 1 = x / d, theta >= 0), bits of probability p
turn into bits of probability p c / (d + p x), and with K = prod (d + p x) / d over the others

    f(t) = K e^(-theta t) f_theta(t),
    P(t) - e Q(t) = c K e^(-theta t) (f_theta(t - 1) - f_theta(t)).

So T is the mode of f_theta, which is less than one away from its mean mu (Darroch, "On the
distribution of the number of successes in independent trials", Ann. Math. Statist. 1964): three
candidates around the integer nearest to mu always contain it. This is the classical saddle point,
but nothing is approximated. Tilted probabilities, d, c and K are exact fractions, rounded once.

*Fourier sum.* f_theta is the inverse transform of a product phi of characteristic functions. On a
period N = 2M it is replaced by its periodised self, and the sum over t = T + 1 .. T + M is a
geometric series for every frequency w_k = 2 pi k / N:

    sum e^(-theta (t - T - 1)) (f(t - 1) - f(t)) = (1 / N) sum_k phi(w_k) e^(-i w_k (T + 1)) (e^(i
    w_k) - 1) (1 - z_k^M) / (1 - z_k),

z_k = e^(-theta - i w_k). phi falls like exp(-2 s^2 sin^2(w / 2)), s^2 the variance of f_theta,
while N is about 17 s: some 25 frequencies are all that matters, whatever n is. No array over
outcomes is ever made.

*Errors*, all added to the upper and taken from the lower value (u = 2^-53):

- outside the period: sum over t of |periodised - f| and the terms beyond T + M: at most 5
  exp(-_TAIL), by Bernstein's inequality for the tilted law; M is chosen for it. Weights e^(-theta
  (t - T - 1)) are at most 1.
- frequencies left out: |e^(iw) - 1| / |1 - z| <= 2.7 and |1 - z^M| <= 2, so at most 5.4 exp(-_CUT)
  in all.
- phases: angles are computed from min(p, 1 - p) (the other ones are counted as whole reports,
  exactly), so they are of the size of s rather than of n; each is known to 16 u of its parts'
  magnitude; 128 u more for all that follows. This times sum |terms|. Below 1e-9 of the result at n
  = 1e8.
- each |phi_k| to 32 u absolutely (n v^(n/2) is bounded), as far as frequencies are summed.
- the factor in front: 16 u of the magnitude of the logarithms added up.

What is cut off, the factor in front and what is below all floats are seen by tests that make them
large. The phases' part and that of |phi_k| are bounds for the worst case alone: phases are next to
0 where terms are large, so what rounding really adds is below what the others leave, and no test
can tell whether these two are there.

The upper value is also at most d, the divergence of the victim's bit alone (data processing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError

Flags: TypeAlias = "NDArray[np.bool_]"

# exp(-34) = 1.7e-15 of the tilted law may lie outside the period, exp(-40) of phi outside the
# frequencies.
_TAIL = 34.0
_CUT = 40.0
_UNIT = 2.0**-53
# Entries (rows times frequencies) worked on at once: about 15 arrays of 8 bytes each.
_ENTRIES = 1 << 16
_LEAST = 1e-300


@dataclass(frozen=True, slots=True)
class Tilts:
    """What does not depend on the dataset, for every epsilon asked: shape (k,), or (k, kinds) for
    the kinds of the others' bits.

    ``gap`` is d (0 where the divergence is 0), ``small`` the smaller of the tilted p and 1 - p,
    ``skew`` their difference squared, ``flipped`` whether 1 - p is the smaller, ``cost`` the
    report's part of ln K (less theta if flipped).
    """

    gap: Floats
    theta: Floats
    log_c: Floats
    small: Floats
    spread: Floats
    skew: Floats
    flipped: Flags
    cost: Floats


def tilts(
    top: Fraction, bottom: Fraction, kinds: Sequence[Fraction], excess: Sequence[float]
) -> Tilts:
    """Tilts for each x = e^epsilon - 1 in ``excess`` (floats >= 0, taken at their exact value);
    ``kinds`` in (0, 1) are the others' p.

    Raises ShoalError INVALID unless 0 < bottom < top < 1 and all x are finite and >= 0.
    """
    if not 0 < bottom < top < 1 or not all(0 < p < 1 for p in kinds):
        raise ShoalError(
            Kind.INVALID,
            "a tilt wants 0 < bottom < top < 1 and probabilities strictly between 0 and 1",
        )
    if not all(math.isfinite(x) and x >= 0.0 for x in excess):
        raise ShoalError(Kind.INVALID, "a tilt wants finite e^epsilon - 1 >= 0")
    scalars = np.zeros((len(excess), 3))
    tables = np.zeros((len(excess), len(kinds), 5))
    for row, value in enumerate(excess):
        # The float x is taken at its exact value, so d and c have no rounding of their own: d is
        # what the victim's bit adds at the top, c = d + x.
        x = Fraction(value)
        d = top - bottom - x * bottom
        if d <= 0:
            continue
        c = d + x
        scalars[row] = float(d), _log(c / d), _log(c)
        for column, p in enumerate(kinds):
            total = d + p * x
            p_one, p_zero = p * c / total, (1 - p) * d / total
            flip = p_zero < p_one
            cost = _log(total / c) if flip else _log(total / d)
            tables[row, column] = (
                float(min(p_one, p_zero)),
                float(p_one * p_zero),
                float((p_one - p_zero) ** 2),
                flip,
                cost,
            )
    # One row per epsilon, one column per kind of bit; rows with d <= 0 stay 0, where the divergence
    # is 0.
    small, spread, skew, flipped, cost_of = np.moveaxis(tables, 2, 0)
    gap, theta, log_c = scalars.T
    return Tilts(gap, theta, log_c, small, spread, skew, flipped > 0.5, cost_of)


def _log(ratio: Fraction) -> float:
    """ln(ratio) to a few units in the last place, near 1 too."""
    excess = ratio - 1
    if abs(excess) < Fraction(1, 2):
        return math.log1p(float(excess))
    # Far beyond floats the difference of two logarithms is good enough: its value is large.
    large = abs(ratio.numerator.bit_length() - ratio.denominator.bit_length()) > 1000
    return (
        math.log(ratio.numerator) - math.log(ratio.denominator) if large else math.log(float(ratio))
    )


def divergences(tilt: Tilts, which: Ints, counts: Ints) -> tuple[Floats, Floats]:
    """(lower, upper) of sum (P - e Q)_+, shape (rows,): row i at epsilon number ``which[i]``,
    ``counts[i]`` bits of each kind.

    counts: int64 (rows, kinds), >= 0, together at most 1e9. Direction: lower errs down, upper errs
    up, both for the exact x.

    ``which``: int64 (rows,), numbers of epsilons in ``tilt``. The result is float64 (rows,) twice.
    lower >= 0; upper is at most ``gap``, the divergence of the victim's bit alone.
    """
    lower, upper = np.zeros(len(which)), np.zeros(len(which))
    alive = np.flatnonzero(tilt.gap[which] > 0.0)
    variance = np.einsum("ij,ij->i", counts[alive].astype(np.float64), tilt.spread[which[alive]])
    # Bernstein for sums of independent bits: exp(-t^2 / (2 (variance + t / 3))). T is within 1.6 of
    # the mean, and 3 is added: which way the rest is rounded makes no difference.
    half = np.ceil(_TAIL / 3.0 + np.sqrt(_TAIL * _TAIL / 9.0 + 2.0 * _TAIL * variance)) + 3.0
    sine = np.sqrt(np.minimum(_CUT / (2.0 * np.maximum(variance, 1e-30)), 1.0))
    need = np.minimum(np.ceil(2.0 * half / math.pi * np.arcsin(sine)) + 1.0, half).astype(np.int64)
    start = 0
    while start < len(alive):
        # Rows that need about as many frequencies as their neighbours: callers give them in order
        # of their datasets.
        rows = max(1, _ENTRIES // int(need[start : start + _ENTRIES // 32].max()))
        part = slice(start, start + rows)
        index = alive[part]
        lower[index], upper[index] = _sums(
            tilt, which[index], counts[index].astype(np.float64), half[part], int(need[part].max())
        )
        start += rows
    return lower, np.minimum(upper, tilt.gap[which] * (1.0 + 4.0 * _UNIT))


def _sums(
    tilt: Tilts, which: Ints, counts: Floats, half: Floats, frequencies: int
) -> tuple[Floats, Floats]:
    """The Fourier sums at the three candidate places, for rows that share a number of
    frequencies.
    """
    theta, small, flipped = tilt.theta[which], tilt.small[which], tilt.flipped[which]
    # A bit whose tilted p is above 1/2 is counted as a one that is missing, so that phases are of
    # the size of the standard deviation and not of n: that keeps their digits.
    # Places are counted from the number of flipped bits: T = place + that number.
    moved = np.where(flipped, -counts, counts) * small
    place = np.rint(moved.sum(axis=1))
    k = np.arange(1, frequencies + 1, dtype=np.float64)
    angle = (math.pi / 2.0) * k / half[:, None]
    sin, cos = np.sin(angle), np.cos(angle)
    square, double = sin * sin, 2.0 * sin * cos
    log_size, phase = _characteristic(
        counts, small, tilt.spread[which], tilt.skew[which], flipped, square, double, cos
    )
    phase -= (2.0 * (place + 1.0))[:, None] * angle
    # (e^(iw) - 1) / (1 - z), 1 - z = near + i far.
    ratio = np.exp(-theta)[:, None]
    near = -np.expm1(-theta)[:, None] + 2.0 * ratio * square
    far = ratio * double
    norm = near * near + far * far
    real, imaginary = (
        (double * far - 2.0 * square * near) / norm,
        (double * near + 2.0 * square * far) / norm,
    )
    # k and -k are conjugate; k = M stands alone; beyond it the period is over. z^M = e^(-theta M)
    # (-1)^k.
    weight = np.where(k < half[:, None], 2.0, np.where(k == half[:, None], 1.0, 0.0)) / (
        2.0 * half[:, None]
    )
    parity = np.where(np.arange(1, frequencies + 1) % 2 == 0, 1.0, -1.0)
    size = np.exp(log_size) * weight * (1.0 - np.exp(-theta * half)[:, None] * parity)
    wave_cos, wave_sin = np.cos(phase) * size, np.sin(phase) * size
    even = wave_cos * real - wave_sin * imaginary
    odd = wave_cos * imaginary + wave_sin * real
    turn, side = (even * (1.0 - 2.0 * square)).sum(axis=1), (odd * double).sum(axis=1)
    sums = np.stack([turn - side, even.sum(axis=1), turn + side])
    magnitude = (size * np.sqrt(4.0 * square / norm)).sum(axis=1)
    widest = np.minimum(math.pi, math.pi * frequencies / half)
    phases = 16.0 * _UNIT * (8.0 + widest * (1.6 * np.abs(moved).sum(axis=1) + np.abs(place) + 2.0))
    error = (
        magnitude * phases
        + 32.0 * _UNIT * 5.4 * np.minimum(frequencies / half, 1.0)
        + 5.0 * math.exp(-_TAIL)
        + 5.4 * math.exp(-_CUT)
    )
    logs = counts * tilt.cost[which]
    front = tilt.log_c[which] + logs.sum(axis=1) - theta * (place + 1.0)
    doubt = (
        16.0
        * _UNIT
        * (
            2.0
            + np.abs(tilt.log_c[which])
            + np.abs(logs).sum(axis=1)
            + theta * (np.abs(place) + 2.0)
        )
    )
    # The three candidates for T, one step of theta apart. The largest lower value is a bound by an
    # event. One of the three is the true T, so the largest upper value covers it.
    steps = np.array([[-1.0], [0.0], [1.0]]) * theta
    low = np.exp(np.minimum(front - doubt - steps, 700.0)) * np.maximum(sums - error, 0.0)
    high = np.exp(np.minimum(front + doubt - steps, 700.0)) * np.maximum(sums + error, 0.0)
    return low.max(axis=0), high.max(axis=0) + _LEAST


def _characteristic(
    counts: Floats,
    small: Floats,
    spread: Floats,
    skew: Floats,
    flipped: Flags,
    square: Floats,
    double: Floats,
    cos: Floats,
) -> tuple[Floats, Floats]:
    """(ln |phi|, arg phi), shape (rows, frequencies), without the phase of the flipped bits' whole
    number.

    |1 - p + p e^(iw)|^2 = 1 - 4 p q sin^2(w/2) = cos^2(w/2) + (p - q)^2 sin^2(w/2): the second form
    where the first cancels.
    """
    log_size, phase = np.zeros_like(square), np.zeros_like(square)
    for kind in range(counts.shape[1]):
        if not counts[:, kind].any():
            continue
        lost = 4.0 * spread[:, kind, None] * square
        log_bit = np.log1p(-np.minimum(lost, 0.5))
        if lost.max() > 0.5:
            rest = cos * cos + skew[:, kind, None] * square
            log_bit = np.where(lost > 0.5, np.log(np.maximum(rest, 1e-40)), log_bit)
        log_size += (0.5 * counts[:, kind, None]) * log_bit
        p = small[:, kind, None]
        signed = np.where(flipped[:, kind], -counts[:, kind], counts[:, kind])[:, None]
        phase += signed * np.arctan2(p * double, 1.0 - 2.0 * p * square)
    return log_size, phase
