"""The law of losses of one release with the noise of a ``NoiseLaw``, for composing windows.

**Without charges** the pair (P', Q') of ``noise`` is a product of two cells, so its loss is a sum
of two independent losses:

- of x, with one message more under P: -ln r_i with mass more_i;
- of x', with one more under Q: ln r_j with mass without_j, and infinity with mass certain.

For a signed count it is one cell: -ln r_v with mass w(v), ln r_v with mass w(v) r_v, 0 with the
mass of u = v, and infinity with mass w(0). Each law is put on a lattice: a mass at l goes to the
lattice points a <= l < b so that its mass and its share of exp(-l) stay; (1 - e exp(-l))_+ is
convex in exp(-l), so by Jensen the curve only rises. Losses are first raised by what rounding may
have taken from them, which raises it too. The sum over the two cells is a convolution of positive
numbers, without a transform: its relative error is its length in units of rounding.

**With charges.** h(e) <= h'(e) + (1 + e) t for every e >= 0, and h falls with e. Let H' >= h' be
the curve of the law above, and L a loss. The law returned has the curve

    H(e) = H'(e) (+ a chord) + (1 + exp(L)) t          for e <= exp(L),
    H(e) = H'(exp(L)) + (1 + exp(L)) t                 beyond:

(1 + exp(L)) t is mass at infinity, and a mass m at l > L is split between L and infinity so that
mass and share of exp(-l) stay: m exp(L - l) to L. So H >= h up to exp(L), and beyond since h(e) <=
h(exp(L)). Any L is sound; the one that leaves least at infinity is taken, or the first that is
nearly as good. ``losses.LossLaw`` wants no more than H >= h for e >= 0, and composes by it,
adaptive choices included. What remains at infinity adds up over windows: a law for many windows
wants ``longest`` and ``slots`` for a smaller delta than that of one.

Lost windows' mass (``Shown.lost``) goes to infinity as well. There is no pure epsilon: epsilon0 is
infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.composition.losses import MARGIN, LossLaw
from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.accounting.numerics.compound import UNIT
from shoal.accounting.numerics.curve import TAIL_SHARE
from shoal.accounting.several_messages.noise import counted, distance, shown
from shoal.accounting.several_messages.one_more import Shown
from shoal.accounting.several_messages.signed_count import CountShown
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.noise_law import NoiseLaw

# Lattice steps to one standard deviation of the loss.
_FINENESS = 512.0
# Finite losses of a cell reach so far that this share of delta lies beyond, but no further than the
# other number: what lies below is raised to it, what lies above is split.
_BEYOND = 1e-8
_LARGEST_LOSS = 16.0
# How much more than the least may stay at infinity, of that and of delta.
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Lattice:
    """Masses at ``first`` * step, (``first`` + 1) * step, ..., and at infinity."""

    first: int
    masses: Floats
    infinity: float


def noise_losses(law: NoiseLaw, n_honest: int, delta: float) -> LossLaw | None:
    """The law of one release for ``n_honest`` honest devices, in the order of ``delta``, the total
    that it will be composed to; None where nothing is proven. Direction: UPPER.
    """
    check_delta(delta)
    if check_n(n_honest) < law.shares:
        return None
    found = shown(counted(law), delta * TAIL_SHARE)
    far = distance(law, law.shares, delta)
    if isinstance(found, Shown):
        step = _step(np.log(found.ratios), found.more)
        logs, error, tail = np.log(found.ratios), found.error, delta * _BEYOND
        one = _placed(-logs, found.more, 0.0, step, error, tail)
        other = _placed(logs, found.without, found.certain, step, error, tail)
        both, lost = _added(one, other), 2.0 * found.lost
    else:
        both, step = _of_count(found, delta * _BEYOND)
        lost = found.lost
    return _cut(both, step, far, lost, delta)


def _of_count(found: CountShown, tail: float) -> tuple[_Lattice, float]:
    """The law of one cell of a signed count, and its step."""
    losses, masses = -np.log(found.ratios[1:]), found.masses[1:]
    step = _step(losses, masses)
    all_losses = np.concatenate([losses, -losses, [0.0]])
    all_masses = np.concatenate([masses, masses * found.ratios[1:], [found.level]])
    certain = float(found.masses[0])
    return _placed(all_losses, all_masses, certain, step, found.error, tail), step


def _step(losses: Floats, masses: Floats) -> float:
    """A power of two: a share of the losses' standard deviation."""
    kept = np.minimum(np.abs(losses), _LARGEST_LOSS)
    spread = math.sqrt(float(np.sum(masses * kept * kept)) / float(np.sum(masses)))
    return math.ldexp(1.0, math.frexp(max(spread, 1e-9) / _FINENESS)[1] - 1)


def _placed(
    losses: Floats, masses: Floats, infinity: float, step: float, error: float, tail: float
) -> _Lattice:
    """The masses on the lattice of ``step``, of which about ``tail`` lies beyond its ends.
    Direction: UPPER.
    """
    raised: Floats = losses + (3.0 * error + 1e-13 * (1.0 + np.abs(losses)))
    outward = np.argsort(-np.abs(raised))
    within = int(np.searchsorted(np.cumsum(masses[outward]), tail))
    reach = min(_LARGEST_LOSS, abs(float(raised[outward[min(within, len(raised) - 1)]])))
    end = max(1, math.ceil(reach / step))
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
    return _Lattice(first, out * rounding, infinity * rounding)


def _added(one: _Lattice, other: _Lattice) -> _Lattice:
    """The sum of two independent losses. Direction: UPPER."""
    masses = np.convolve(one.masses, other.masses)
    rounding = 1.0 + (min(len(one.masses), len(other.masses)) + 8) * UNIT
    total = float(np.sum(one.masses)) + one.infinity
    infinity = other.infinity * total + one.infinity * float(np.sum(other.masses))
    return _Lattice(one.first + other.first, masses * rounding, infinity * (1.0 + MARGIN))


def _cut(both: _Lattice, step: float, far: float, lost: float, delta: float) -> LossLaw:
    """The law with its charges, cut at the best L >= 0."""
    indices = both.first + np.arange(len(both.masses), dtype=np.int64)
    losses: Floats = np.asarray(indices * step, dtype=np.float64)
    # H'(exp(L)) at every L: sum over l > L of m (1 - exp(L - l)), by sums from the right, which is
    # A(L) = A(L + step) exp(-step) + M(L + step) (1 - exp(-step)), M = the mass from there on.
    above = np.cumsum(both.masses[::-1])[::-1]
    fall, rise, at = math.exp(-step), -math.expm1(-step), 0.0
    beyond = np.zeros(len(losses))
    for index in range(len(losses) - 2, -1, -1):
        at = at * fall + float(above[index + 1]) * rise
        beyond[index] = at
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
    present = masses > 0.0
    return LossLaw(
        step, indices[: cut + 1][present], masses[present] * rounding, min(infinity, 1.0), math.inf
    )
