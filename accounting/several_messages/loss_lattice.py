"""Laws of losses on a lattice, from exact masses: placed, added, and cut where charges begin.
Every step errs upward: the curve of what comes out is nowhere below that of what went in.

**Placed.** A mass at l goes to the lattice points a <= l < b so that its mass and its share of
exp(-l) stay; (1 - e exp(-l))_+ is convex in exp(-l), so by Jensen the curve only rises. Losses are
first raised by what rounding may have taken from them, which raises it too.

**Added.** The sum of two independent losses is a convolution of positive numbers, without a
transform: its relative error is its length in units of rounding.

**Larger.** Of two curves the larger one is convex too, as it is a maximum. Its values at e =
exp(l) of all lattice points l, joined by straight lines, are nowhere below it, and are the curve of
a law again: with slopes s_i left of the i-th point (the first from e = 0, where both curves are
their whole mass), the masses exp(l_i) (s_i - s_(i+1)), and the last value at infinity. Differences
cancel, so the finished curve is compared with the values at e = 0 and at all points, and raised by
what is missing. (What is below the floats is mass at infinity, some 1e-280 of it: so no value is 0,
and what is missing is a matter of rounding.)

**Cut.** Let the true curve be h(e) <= h'(e) + (1 + e) t for every e >= 0; h falls with e. Let H' >=
h' be the curve of a law, and L a loss. The law returned has the curve

    H(e) = H'(e) (+ a chord) + (1 + exp(L)) t          for e <= exp(L),
    H(e) = H'(exp(L)) + (1 + exp(L)) t                 beyond:

(1 + exp(L)) t is mass at infinity, and a mass m at l > L is split between L and infinity so that
mass and share of exp(-l) stay: m exp(L - l) to L. So H >= h up to exp(L), and beyond since h(e) <=
h(exp(L)). Any L is sound; the one that leaves least at infinity is taken, or the first that is
nearly as good. ``losses.LossLaw`` wants no more than H >= h for e >= 0, and composes by it,
adaptive choices included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.accounting.composition.losses import MARGIN, LossLaw
from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.accounting.numerics.compound import NEGLIGIBLE, UNIT
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

# Lattice steps to one standard deviation of the loss.
_FINENESS = 512.0
# No finite loss of a law is above: what lies below minus this is raised to it, what lies above is
# split.
_LARGEST_LOSS = 16.0
# How much more than the least may stay at infinity, of that and of delta.
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """Masses at ``first`` * step, (``first`` + 1) * step, ..., and at infinity."""

    first: int
    masses: Floats
    infinity: float


def step_of(losses: Floats, masses: Floats) -> float:
    """A power of two: a share of the losses' standard deviation."""
    kept = np.minimum(np.abs(losses), _LARGEST_LOSS)
    spread = math.sqrt(float(np.sum(masses * kept * kept)) / float(np.sum(masses)))
    return math.ldexp(1.0, math.frexp(max(spread, 1e-9) / _FINENESS)[1] - 1)


def reach_of(losses: Floats, masses: Floats, tail: float) -> float:
    """A size of losses that about ``tail`` of the masses is beyond, no more than the largest; 0 of
    none.
    """
    if not len(losses):
        return 0.0
    outward = np.argsort(-np.abs(losses))
    within = int(np.searchsorted(np.cumsum(masses[outward]), tail))
    return min(_LARGEST_LOSS, abs(float(losses[outward[min(within, len(losses) - 1)]])))


def at_most(points: int, reach: float) -> float:
    """A power of two: the least step with which so many ``points``, or fewer, come to ``reach``."""
    return math.ldexp(1.0, math.ceil(math.log2(max(reach, 1e-9) / points)))


def placed(
    losses: Floats, masses: Floats, infinity: float, step: float, error: float, tail: float
) -> Lattice:
    """The masses on the lattice of ``step``, of which about ``tail`` lies beyond its ends.
    Direction: UPPER.
    """
    raised: Floats = losses + (3.0 * error + 1e-13 * (1.0 + np.abs(losses)))
    end = max(1, math.ceil(reach_of(raised, masses, tail) / step))
    top = end * step
    beyond = raised > top
    kept = masses[beyond] * np.exp(top - raised[beyond])
    infinity += float(np.sum(masses[beyond] - kept)) * (1.0 + MARGIN)
    infinity += float(np.sum(masses[beyond])) * 1e-12
    raised = np.asarray(np.clip(raised, -top, top), dtype=np.float64)
    masses = np.array(masses, dtype=np.float64)
    masses[beyond] = kept
    left: Ints = np.floor(raised / step).astype(np.int64)
    along = raised - left * step
    up = -np.expm1(-along) / -math.expm1(-step)
    down = np.exp(-along) * -np.expm1(along - step) / -math.expm1(-step)
    first = int(left.min())
    size = int(left.max()) - first + 2
    out: Floats = np.zeros(size)
    out += np.bincount(left - first, masses * down, minlength=size)
    out += np.bincount(left - first + 1, masses * up, minlength=size)
    rounding = 1.0 + error + (len(masses) + 16) * UNIT + MARGIN
    return Lattice(first, out * rounding, infinity * rounding)


def added(one: Lattice, other: Lattice) -> Lattice:
    """The sum of two independent losses. Direction: UPPER."""
    masses = np.convolve(one.masses, other.masses)
    rounding = 1.0 + (min(len(one.masses), len(other.masses)) + 8) * UNIT
    total = float(np.sum(one.masses)) + one.infinity
    infinity = other.infinity * total + one.infinity * float(np.sum(other.masses))
    return Lattice(one.first + other.first, masses * rounding, infinity * (1.0 + MARGIN))


def mixed(parts: Sequence[tuple[float, Lattice]]) -> Lattice:
    """The sum of the masses, each times its weight; of no parts no mass at all."""
    first = min((part.first for _, part in parts), default=0)
    last = max((part.first + len(part.masses) for _, part in parts), default=1)
    out = np.zeros(last - first)
    for weight, part in parts:
        out[part.first - first : part.first - first + len(part.masses)] += weight * part.masses
    rounding = 1.0 + 2.0 * (len(parts) + 2) * UNIT
    infinity = math.fsum(weight * part.infinity for weight, part in parts)
    return Lattice(first, out * rounding, infinity * rounding)


def larger(one: Lattice, other: Lattice, step: float) -> Lattice:
    """A law whose curve is nowhere below that of either. Direction: UPPER."""
    first = min(one.first, other.first)
    last = max(part.first + len(part.masses) for part in (one, other))
    both = [
        np.pad(part.masses, (part.first - first, last - part.first - len(part.masses)))
        for part in (one, other)
    ]
    curves = [
        _curve(masses, part.infinity, step) for masses, part in zip(both, (one, other), strict=True)
    ]
    # of a curve: three roundings a step, the masses above it, and the share of a step itself
    rounding = 1.0 + 4.0 * (last - first + 8) * UNIT + MARGIN
    heights = np.maximum(*curves) * rounding + NEGLIGIBLE
    whole = max(float(np.sum(part.masses)) + part.infinity for part in (one, other)) * rounding
    whole = max(whole, float(heights[0]))
    points = np.exp((first + np.arange(last - first)) * step)
    # slopes times the distance in units of the right point: sums stay in range
    slopes = np.concatenate(
        [
            [(whole - heights[0]) / points[0]],
            (heights[:-1] - heights[1:]) / (points[:-1] * math.expm1(step)),
            [0.0],
        ]
    )
    masses = np.maximum(points * (slopes[:-1] - slopes[1:]), 0.0)
    infinity = float(heights[-1])
    missing = max(
        1.0,
        float(np.max(heights / _curve(masses, infinity, step))),
        whole / (float(np.sum(masses)) + infinity),
    )
    return Lattice(first, masses * (missing * rounding), infinity * (missing * rounding))


def _curve(masses: Floats, infinity: float, step: float) -> Floats:
    """The curve at e = exp(l) of each point l: infinity, and the sum over all l' > l of m (1 -
    exp(l - l')), by sums from the right: A(l) = A(l + step) exp(-step) + M(l + step) (1 -
    exp(-step)), M = the mass from there on.
    """
    above = np.cumsum(masses[::-1])[::-1]
    fall, rise, at = math.exp(-step), -math.expm1(-step), 0.0
    out = np.zeros(len(masses))
    for index in range(len(masses) - 2, -1, -1):
        at = at * fall + float(above[index + 1]) * rise
        out[index] = at
    return out + infinity


def cut_at(both: Lattice, step: float, far: float, lost: float, delta: float) -> LossLaw:
    """The law with its charges, cut at the best L >= 0."""
    indices = both.first + np.arange(len(both.masses), dtype=np.int64)
    losses: Floats = np.asarray(indices * step, dtype=np.float64)
    # H'(exp(L)) at every L
    beyond = _curve(both.masses, 0.0, step)
    charge = (1.0 + np.exp(losses)) * far
    left = np.where(losses >= 0.0, beyond + charge, math.inf)
    least = float(np.min(left))
    if not math.isfinite(least):
        raise ShoalError(Kind.INVALID, "a law of losses has none above 0: its curve is not one")
    cut = int(np.argmax(left <= least * (1.0 + _NEARLY) + _NEARLY * delta))
    masses: Floats = both.masses[: cut + 1].copy()
    masses[cut] += float(np.sum(both.masses[cut + 1 :] * np.exp(losses[cut] - losses[cut + 1 :])))
    rounding = 1.0 + 2 * len(losses) * UNIT + MARGIN
    infinity = (both.infinity + float(left[cut]) + lost) * rounding
    if not masses.any():  # all at infinity: a law has one finite loss at least
        masses[cut] = NEGLIGIBLE
    present = masses > 0.0
    return LossLaw(
        step, indices[: cut + 1][present], masses[present] * rounding, min(infinity, 1.0), math.inf
    )
