"""Evaluate a ``CellSum``, E[(L_1 + ... + L_n)_+] / n with finitely many values of L, erring upward
or downward as asked.

**Method.** S = L_1 + ... + L_n has the moment generating function phi(z)^n, phi(z) = sum_j p_j
exp(z l_j). Let Z ~ N(0, tau^2) be independent of S and X = S + Z. For every t > 0

    E[X_+] = 1/(2 pi) * integral over omega of  E[exp((t + i omega) X)] / (t + i omega)^2,

a contour integral (Lugannani, Rice 1980; Daniels 1987 for the saddle point), taken on a lattice of
frequencies omega = k D. t is the saddle point E_t[S] = 1/t, where E_t is the expectation under the
*tilted* law, p_j exp(t l_j) / phi(t). So the whole size of delta, be it 1e-100, stands in front as
phi(t)^n, and what is summed is of order one. The number of frequencies does not grow with n.

All is scaled by t: W = 2 pi t / D and tau t are called ``window`` and ``smoothing``. With g(x) =
x_+ exp(-x):

* *Smoothing.* Z has mean zero, so E[X_+] >= E[S_+] (Jensen): nothing to add for UPPER. For LOWER,
  E[X_+] - E[S_+] = tau E[psi(S / tau)] with psi(u) = normal_pdf(u) - |u| P(N > |u|) <=
  normal_pdf(u), hence at most tau^2 times the density of X at 0, and this comes from the same
  frequencies. Each bound is off by about (tau t)^2 / 2 = 1e-5 of delta where S takes many values
  near 0, so 1e-6 of epsilon. An atom of S at 0 would cost 0.4 tau times its mass: the one of n
  reports with L = 0 exactly contributes nothing to E[S_+] and is taken out of the law (what is left
  is a positive measure, all that is needed).
* *Lattice.* By Poisson summation the sum over all k is E_t[sum_m g(tX + m W)] exactly, times
  exp((tau t)^2 / 2) since Z is tilted too. All terms are positive and m = 0 is what is wanted: the
  sum errs upward, nothing to add for UPPER. (So does the density.) For LOWER the others are
  subtracted: if tX >= -W/2, those with m >= 1 are at most 1.1 (W/2) exp(-W/2) together (W >= 20).
  Otherwise, and for m <= -1, which needs tX > W, they are at most 1 (sup g = 1/e, spacing W), times
  the probability of such an X: Chernoff's inequality with the exact generating function.
* *Cut.* |k| > N is dropped: |phi_t|^n <= 1, so by the Gaussian at most exp((s^2 - r^2) / 2) / (pi
  (r/s) max(1, r^2)), s the smoothing and r = N D tau. Added to UPPER; subtracted from LOWER.
* *Rounding.* Values and masses are rounded outward: E[S_+] grows with each of them. From there on
  let u = 2^-53. The tilted masses are off by u (|log p| + |t l| + few) of themselves, phases by a
  few u of themselves, so phi_t is off by d_k = u (few + sum of these), and phi_t^n by at most n d_k
  (|phi_t| + d_k)^(n-1), logarithm and angle included. Four times that is added (subtracted). At n =
  1e7 it is about 1e-7 of delta, so 1e-8 of epsilon.
* *Quiet frequencies.* With f = (|phi_t| + d_k)^(n-1) exp(s^2 (1 - omega^2) / 2), which bounds the
  true phi_t^n with its damping too, a frequency with f <= e^-100 is not summed. It stands for at
  most 2 e^-100 (K + s^2) of the sums, K = 1 / (1 + omega^2): all of them together, lattice sums of
  K being below pi, cost 1e-43 (1 + s^2 N D).

Hence UPPER >= E[S_+]/n >= LOWER whatever t, window, smoothing and the number of frequencies are;
these only decide how tight.

**Checked**: against exact fractions at small n, against 40 digits and the walks of ``curve`` at
large n, with coarse settings, random laws and tiny deltas, and with error terms left out on purpose
(tests/unit/accounting/numerics/test_lattice.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.cells import CellSum
from shoal.accounting.numerics.curve import Direction
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

_U = 2.0**-53
# Added to every upper value: below any delta that can be asked for (1e-100), above what underflow
# can lose.
_TINY = 1e-290
# Values this far below the delta that is searched for are left at Chernoff's bound, or at 0.
_IGNORED = 1e-30
# Atoms at 0 smaller than this are left in: removing them is not worth the time.
_FAINT = 1e-9
# The logarithm of |phi_t|^n below which a frequency is left out.
_QUIET = -100.0
# What smoothing may cost, as a share of the value, before it is made finer.
_DEAR = 2e-3


@dataclass(frozen=True, slots=True)
class Contour:
    """How finely the integral is taken. Soundness never depends on it; tightness and time do.

    ``smoothing``: tau t, costs its square / 2 of delta. ``window``: at least so many 1/t, and
    ``sigmas`` tilted standard deviations, widened until what wraps around is below ``alias`` of
    delta. ``reach``: frequencies up to reach / tau. ``finer``: how much smaller the smoothing may
    become where it would cost more than 2e-3. ``work``: most (frequencies times cells); beyond, the
    smoothing grows.
    """

    smoothing: float = 0.005
    window: float = 60.0
    sigmas: float = 14.0
    alias: float = 1e-8
    reach: float = 6.0
    finer: float = 10.0
    work: int = 2_000_000

    def __post_init__(self) -> None:
        if not (
            self.smoothing > 0.0
            and self.window >= 20.0
            and self.sigmas > 0.0
            and self.reach > 0.0
            and self.work >= 1
        ):
            raise ShoalError(
                Kind.INVALID, "a contour wants positive settings and a window of at least 20"
            )


DEFAULT_CONTOUR = Contour()
# A sixth of the work: within 1e-3 of the value, which mostly tells on which side of a target it is.
ROUGH_CONTOUR = Contour(smoothing=0.03, finer=1.0)


@dataclass(frozen=True, slots=True)
class _Tilted:
    """The law of t (L - c) under the tilted measure: ``shares`` (float64, sum 1; also as
    logarithms) at ``steps``.

    ``t`` per unit of L; ``shift`` = n t c; ``log_scale`` = ln E[exp(t S)]; ``spread``: standard
    deviation of t S; ``rounding``: relative error of a share, on average; ``phase``: E_t |step|;
    ``idle``: the share of L = 0 exactly.
    """

    t: float
    shares: Floats
    log_shares: Floats
    steps: Floats
    shift: float
    log_scale: float
    spread: float
    rounding: float
    phase: float
    idle: float


class LatticeCurve:
    """delta as a function of epsilon for one sum, never below (UPPER) or never above (LOWER) the
    true value.

    The same contract as ``curve.Curve``. ``delta`` in (0, 1) is the value that will be searched
    for: values below 1e-30 of it are Chernoff's bound (UPPER) or 0 (LOWER). ``epsilon_max`` >= 0 is
    the largest epsilon that will be asked for.
    """

    def __init__(
        self,
        cell_sum: CellSum,
        direction: Direction,
        delta: float,
        epsilon_max: float,
        contour: Contour = DEFAULT_CONTOUR,
    ) -> None:
        if not (0.0 < delta < 1.0 and epsilon_max >= 0.0):
            raise ShoalError(Kind.INVALID, "a curve wants delta in (0, 1) and epsilon_max >= 0")
        self._n, self._delta, self._contour = cell_sum.n, delta, contour
        self._upper = direction is Direction.UPPER
        sign = 1.0 if self._upper else -1.0
        self._sign = sign
        # Rounded outward before anything is computed: E[S_+] grows with every mass and with every
        # value of L, so an upper curve gets larger ones and a lower curve smaller ones.
        masses = np.array([float(cell.mass) for cell in cell_sum.cells])
        # A mass below the smallest float: kept as that float (up), or left out (down).
        masses = np.maximum(masses, 1e-300) if self._upper else masses
        kept = masses >= 1e-300
        logs = np.log(masses[kept])
        self._logs = logs + sign * 8.0 * _U * (1.0 + np.abs(logs))
        self._gap = np.array([float(cell.first - cell.second) for cell in cell_sum.cells])[kept]
        self._second = np.array([float(cell.second) for cell in cell_sum.cells])[kept]

    def delta(self, epsilon: float) -> float:
        """The divergence at ``epsilon`` >= 0, moved to the safe side. May exceed 1 for an upper
        curve.

        Why it errs to the safe side: masses and values were rounded outward, ``slack`` covers what
        is computed from them, and every error of the integral was added or subtracted in
        ``_integral``. Chernoff's bound stands in where it is all that is asked for.
        """
        growth = math.expm1(epsilon)
        # L = (first - second) - (e - 1) second: exact but for 8 units in the last place of each
        # term.
        slope = growth * self._second
        values = self._gap - slope
        values += self._sign * 8.0 * _U * (np.abs(self._gap) + slope)
        if len(values) == 0 or float(values.max()) <= 0.0:
            return _TINY if self._upper else 0.0
        # From here on everything is relative to the size of delta, which ``log_front`` carries:
        # phi(t)^n / (t n).
        tilted = _tilt(self._logs, values, self._n, self._sign)
        slack = 8.0 * self._n * tilted.rounding + 64.0 * _U * (1.0 + abs(tilted.log_scale))
        log_front = tilted.log_scale - math.log(tilted.t) - math.log(self._n)
        front = math.exp(max(-745.0, min(700.0, log_front)))
        # sup g = 1/e: Chernoff's bound.
        chernoff = front / math.e * (1.0 + slack) + _TINY
        if chernoff <= self._delta * _IGNORED:
            return chernoff if self._upper else 0.0
        if self._upper:
            return min(chernoff, front * (1.0 + slack) * max(0.0, self._integral(tilted)) + _TINY)
        return max(0.0, front * (1.0 - slack) * self._integral(tilted))

    def _integral(self, tilted: _Tilted) -> float:
        """E_t[g(t S)], moved to the safe side; see the module's text."""
        plan = self._contour
        value, price = self._smoothed(tilted, plan.smoothing)
        if price > _DEAR * value and plan.finer > 1.0:
            # Few values, and one of them at 0 (small n, mostly): less smoothing, for as much as the
            # work allows.
            value, _ = self._smoothed(
                tilted, plan.smoothing * max(1.0 / plan.finer, _DEAR * max(value, 0.0) / price)
            )
        return value

    def _smoothed(self, tilted: _Tilted, smoothing: float) -> tuple[float, float]:
        """E_t[g(t S)], moved to the safe side; and what smoothing can have cost."""
        plan = self._contour
        # As many frequencies as the Gaussian lets matter; if that is more work than allowed, the
        # smoothing grows instead, which costs tightness.
        window, alias = _window(tilted, self._n, smoothing, plan)
        most = max(64, min(1 << 20, plan.work // len(tilted.steps)))
        count = math.ceil(plan.reach * window / (2.0 * math.pi * smoothing))
        if count > most:
            count, smoothing = most, plan.reach * window / (2.0 * math.pi * most)
            # A wider Gaussian in the tails of the window.
            alias = _alias(tilted, self._n, smoothing, window)
        value, density, error = _sums(tilted, self._n, smoothing, window, count)
        # The cut, as in the module's text: what frequencies beyond the last one can hold, by the
        # Gaussian alone.
        top = 2.0 * math.pi * count / window
        r = top * smoothing
        gauss = math.exp((smoothing * smoothing - r * r) / 2.0) / (math.pi * top)
        error += gauss / max(1.0, r * r)
        price = smoothing * smoothing * max(0.0, density) + gauss
        return (value + error if self._upper else value - error - alias - price), price


def _tilt(logs: Floats, values: Floats, n: int, sign: float) -> _Tilted:
    """The tilted law at (about) the saddle point n t E_t[L] = 1; there is one, since some value is
    positive.
    """
    highest = float(values.max())

    def shares_at(t: float) -> Floats:
        exponents = logs + t * (values - highest)
        weights: Floats = np.exp(exponents - exponents.max())
        weights /= weights.sum()
        return weights

    def score(t: float) -> float:
        return n * t * float(shares_at(t) @ values) - 1.0

    # E_t[L] <= highest: the saddle point is not below this.
    low = 1.0 / (n * highest)
    high = 2.0 * low
    while score(high) < 0.0:
        low, high = high, 8.0 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if score(middle) < 0.0 else (low, middle)
    t = high
    center = float(shares_at(t) @ values)
    # From here on L is center + centered, exactly: what the subtraction rounds goes to the safe
    # side.
    centered = values - center
    centered += sign * 4.0 * _U * (np.abs(values) + abs(center))
    steps = t * centered
    exponents = logs + steps
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    mass = float(weights.sum())
    shares = weights / mass
    shift = n * (t * center)
    phase = float(shares @ np.abs(steps))
    return _Tilted(
        t=t,
        shares=shares,
        log_shares=exponents - (top + math.log(mass)),
        steps=steps,
        shift=shift,
        log_scale=n * (top + math.log(mass)) + shift,
        spread=math.sqrt(n * float(shares @ (steps * steps))),
        rounding=_U
        * (8.0 + len(steps) + 2.0 * float(shares @ np.abs(logs)) + 4.0 * phase + 4.0 * abs(top)),
        phase=phase,
        idle=min(1.0, float(shares[values == 0.0].sum())),
    )


def _window(tilted: _Tilted, n: int, smoothing: float, plan: Contour) -> tuple[float, float]:
    """(window, what wraps around it): widened until the latter is a small part of E_t[g], which is
    about 0.4 / (1 + spread).
    """
    window = max(plan.window, plan.sigmas * tilted.spread)
    goal = plan.alias * 0.4 / (1.0 + tilted.spread)
    for _ in range(16):
        alias = _alias(tilted, n, smoothing, window)
        if alias <= goal:
            break
        window *= 1.3
    return window, alias


def _alias(tilted: _Tilted, n: int, smoothing: float, window: float) -> float:
    """An upper bound on E_t[sum over m != 0 of g(tX + m window)].

    Errs upward: 1.1 covers the geometric series, and the tails are Chernoff bounds.
    """
    near = 1.1 * (window / 2.0) * math.exp(-window / 2.0)
    far = _tail(tilted, n, smoothing, window, 1.0) + _tail(tilted, n, smoothing, window / 2.0, -1.0)
    return (near + far) * math.exp(smoothing * smoothing / 2.0)


def _tail(tilted: _Tilted, n: int, smoothing: float, distance: float, side: float) -> float:
    """Chernoff: an upper bound on P_t(side * tX > distance), the best of some exponents. 1.01
    covers their rounding.
    """
    variance = tilted.spread**2 + smoothing**2
    s = side * np.exp2(np.arange(-8.0, 5.0, 0.5)) * (distance / variance)
    s = np.append(s, side * np.exp2(np.arange(-6.0, 4.0, 1.0)))
    exponents = s[:, None] * tilted.steps + tilted.log_shares
    top = exponents.max(axis=1)
    logs = n * (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))
    logs += s * (tilted.shift + smoothing**2) + s * s * (smoothing**2 / 2.0) - np.abs(s) * distance
    # The shares are off by ``rounding`` of themselves, the exponents by a few units in the last
    # place: on average over the sum, that of the largest one.
    logs += n * (tilted.rounding + 8.0 * _U * (len(tilted.steps) + np.abs(top)))
    return min(1.0, 1.01 * math.exp(min(0.0, float(logs.min()))))


def _sums(
    tilted: _Tilted, n: int, smoothing: float, window: float, count: int
) -> tuple[float, float, float]:
    """(E_t[sum of g], density of tX at 0, rounding error of both together), from the frequencies
    0..count times 2 pi / window.
    """
    distance = 2.0 * math.pi / window
    # exp(i k D l) for all k as products of two tables: 2 sqrt(count) exponentials per cell.
    width = math.isqrt(count) + 1
    rows = -(-(count + 1) // width)
    coarse = (
        np.exp(1j * np.outer(np.arange(rows) * (width * distance), tilted.steps)) * tilted.shares
    )
    fine = np.exp(1j * np.outer(tilted.steps, np.arange(width) * distance))
    generating = (coarse @ fine).ravel()[: count + 1]
    frequency = np.arange(count + 1) * distance
    size = np.abs(generating)
    damping = smoothing * smoothing * (1.0 - frequency * frequency) / 2.0
    # How far phi_t may be off at each frequency (d_k of the module's text, four times), and from it
    # the most that |phi_t|^(n-1) can be.
    off = 4.0 * (tilted.rounding + _U * (16.0 + 4.0 * tilted.phase * frequency))
    log_largest = (n - 1) * np.log(np.minimum(1.0, size + off) + 1e-300) + damping
    idle = math.exp(max(-745.0, n * math.log(tilted.idle))) if tilted.idle > 0.0 else 0.0
    faint = 0.0
    if idle <= _FAINT:
        # Most of |phi_t|^n is nothing where n is large: these frequencies, at most e^-100 each, are
        # left out and paid for.
        loud = np.flatnonzero(log_largest > _QUIET)
        generating = generating[loud]
        frequency, size, damping, log_largest = (
            frequency[loud],
            size[loud],
            damping[loud],
            log_largest[loud],
        )
        off = np.asarray(off[loud])
        faint = 1e-43 * (1.0 + smoothing * smoothing * count * distance)
    angle = n * np.angle(generating) + frequency * (tilted.shift + smoothing * smoothing)
    amplitude = np.exp(n * np.log(np.maximum(size, 1e-300)) + damping)
    cosine, sine = amplitude * np.cos(angle), amplitude * np.sin(angle)
    if idle > _FAINT:
        amplitude = idle * np.exp(damping)
        angle = frequency * (smoothing * smoothing)
        cosine -= amplitude * np.cos(angle)
        sine -= amplitude * np.sin(angle)
    # k and -k are conjugate: all but k = 0 count twice. (The sine is 0 there.)
    cosine[0] /= 2.0
    square = frequency * frequency
    kernel = 1.0 / (1.0 + square)
    value = (
        float(np.sum((cosine * (1.0 - square) + 2.0 * frequency * sine) * (kernel * kernel)))
        * distance
        / math.pi
    )
    density = float(np.sum(cosine)) * distance / math.pi
    largest = np.exp(log_largest)
    # exp is off by u times its argument: beyond 128 units that is below 1e-50 altogether.
    error = 1e-54 + largest * (
        n * off + _U * (128.0 + 16.0 * frequency * (abs(tilted.shift) + smoothing * smoothing))
    )
    if idle > _FAINT:
        error += amplitude * (
            n * off + _U * (128.0 + 16.0 * frequency * (abs(tilted.shift) + smoothing * smoothing))
        )
    return (
        value,
        density,
        float(np.sum(error * (kernel + smoothing * smoothing))) * distance / math.pi + faint,
    )
