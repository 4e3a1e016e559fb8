"""From an upper curve delta(epsilon) of one release to a discrete law of privacy losses that
dominates it.

*What is given.* h(e) = sup over ordered pairs of neighbouring datasets of sum (P - e Q)_+, and a
callable that is never below h(e^epsilon) for epsilon in [0, epsilon0). Each sum is convex in e, so
h is; it does not increase, h(0) = 1, and h(e) = 0 from e = e^epsilon0 on (pure epsilon0). Since sum
(P - e Q)_+ = 1 - e + e sum (Q - P/e)_+ and h is over ordered pairs,

    h(1/e) = 1 - 1/e + h(e)/e:        one side of the curve determines the other.

*What is built.* A positive measure mu on losses in (-inf, inf] with H(e) = integral (1 - e
exp(-l))_+ dmu(l) >= h(e) for every e >= 0. That h itself belongs to a pair: Zhu, Dong, Wang,
"Optimal accounting of differential privacy via characteristic function", AISTATS 2022, Section 3.
Building a law from values of a curve at points ("connect the dots"): Doroshenko, Ghazi, Kamath,
Kumar, Manurangsi, "Connect the dots: tighter discrete approximations of privacy loss
distributions", PoPETs 2022.

*Why it is enough* (also for adaptive rounds; mu need not have mass 1). Let y be the first round's
view, with laws P1, Q1, and let the second round depend on y. Its divergence at e Q1(y)/P1(y) is at
most H2 there, so the joint divergence at e is at most

    sum_y P1(y) H2(e Q1(y)/P1(y)) = integral dmu2(l) sum_y (P1(y) - e exp(-l) Q1(y))_+ <= integral
    dmu2(l) H1(e exp(-l)),

the divergence of the convolution of mu1 and mu2 (y with P1(y) = 0 contributes nothing, y with Q1(y)
= 0 needs H2(0) >= 1).

*Construction.* Points 0 = l_0 < ... < l_m on a lattice, values u_j >= h(e^l_j); if l_m reached
epsilon0 (rounded up), u_m = 0 exactly. A convex function lies below every chord between points on
or above it, so below the piecewise linear function through *any* subset of the points with its
mirror image, through (0, 1), and constant after the last point. We take those on the lower convex
hull, which makes that function convex: hence itself the H of a measure. With slopes s_j right of
the j-th hull point (s_m = 0) the measure has

    p_j = exp(l_j) (s_j - s_{j-1}) at l_j,   p_j exp(-l_j) at -l_j,   1 - u_0 + 2 s_0 at 0,
    u_m at infinity.

The mass at 0 is not negative once u_0 is at most every mirror chord (exp(l_j) - 1 + 2 u_j) /
(exp(l_j) + 1), by which it may be replaced: (1, that) lies on the chord between the j-th point and
its mirror image.

*Numbers.* Differences e^l_{j+1} - e^l_j are e^l_j expm1(l_{j+1} - l_j), and losses are whole
multiples of a power of two, so exact; what still cancels is s_j - s_{j-1}. The finished measure is
checked: its H, a sum of positive terms, is compared with u at every point that was kept, on both
sides, and with 1 at e = 0. If it falls short anywhere all masses are multiplied by what is missing
(about 1e-13), plus 1e-12 for the rounding of the check itself (at most a thousand terms, 1.2e-16
each). H and the function to be dominated are both linear between these points, so this proves H >=
h everywhere. A wrong choice of the hull by rounding cannot harm.

*Checked*: random pairs of laws in both directions at many epsilons, randomized response to 50
digits, curves that vanish or have a floor (tests/unit/accounting/composition/test_losses.py,
test_compose.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

# What the check of a finished law may itself have rounded away, relative.
MARGIN = 1e-12
# The lattice: at least this many steps to one standard deviation of the loss.
FINENESS = 24
# Evenly spaced points up to this many standard deviations, beyond that a constant ratio apart.
_EVEN_REACH = 4.0
_RATIO = 1.0 / 96.0
_MOST_SPARSE = 160
# A pure law's epsilon is rounded up by at most one in so many.
_PURE_STEPS = 4096
_SMALLEST_STEP = 2.0**-200
# A curve's law wants e^epsilon0 to be a float.
LARGEST_PURE = 700.0


@dataclass(frozen=True, slots=True, eq=False)
class LossLaw:
    """A positive measure of privacy losses whose hockey-stick curve is never below that of the
    release. Direction: UPPER.

    ``masses[i]`` (float64, >= 0) sits at the loss ``indices[i] * step``; ``step`` is a power of
    two, so laws of different steps share a lattice; ``indices`` (int64) increase; ``infinity`` is
    the mass at an infinite loss. ``epsilon0`` >= 0: the release is also (epsilon0, infinity-free)
    pure, or math.inf if it is not. Total mass >= 1 up to 1e-9: it may exceed it, erring upward.
    Compared by identity. Raises ShoalError INVALID on construction for anything else.
    """

    step: float
    indices: Ints
    masses: Floats
    infinity: float
    epsilon0: float

    def __post_init__(self) -> None:
        good = (
            self.step > 0.0
            and math.frexp(self.step)[0] == 0.5
            and len(self.indices) == len(self.masses) > 0
            and bool(np.all(np.diff(self.indices) > 0))
            and bool(np.all(self.masses >= 0.0))
            and 0.0 <= self.infinity <= 1.0 + 1e-6
            and self.epsilon0 >= 0.0
        )
        if not good or not 1.0 - 1e-9 <= float(np.sum(self.masses)) + self.infinity <= 3.0:
            raise ShoalError(
                Kind.INVALID,
                "a loss law wants a power of two as step, increasing indices and masses >= 0 of at "
                "least 1 in all",
            )
        self.indices.flags.writeable = False
        self.masses.flags.writeable = False

    @property
    def losses(self) -> Floats:
        """The finite losses, increasing; exact."""
        return np.asarray(self.indices * self.step, dtype=np.float64)

    @property
    def variance(self) -> float:
        """Of the finite part, about 0; for choosing steps only."""
        return float(np.sum(self.masses * self.losses**2))


def loss_law(
    curve: Callable[[float], float], epsilon0: float, tail: float, *, step: float | None = None
) -> LossLaw:
    """The law of losses of a release with this upper curve, by about 150 to 350 evaluations of it.

    ``curve(epsilon)`` must bound the divergence in both directions for every epsilon in [0,
    epsilon0); ``epsilon0`` (finite, >= 0) is the pure bound, never below the true one; ``tail`` >
    0: losses beyond which at most about this much mass lies count as infinite. ``step`` (optional,
    a power of two) replaces the automatic lattice of 1/48 to 1/24 standard deviation. Soundness
    depends on neither. Direction: UPPER. Raises ShoalError INVALID for a curve that returns NaN or
    is negative.
    """
    if not 0.0 <= epsilon0 < LARGEST_PURE or not tail > 0.0:
        raise ShoalError(
            Kind.INVALID,
            "a loss law wants epsilon0 in [0, 700) and a tail above 0: use pure_law for more",
        )
    if epsilon0 == 0.0:
        return LossLaw(1.0, np.zeros(1, dtype=np.int64), np.ones(1), 0.0, 0.0)
    start = _value(curve, 0.0)
    # A Gaussian loss of standard deviation s has delta(0) = 0.4 s.
    spread = max(2.5 * min(start, 1.0), epsilon0 * 2.0**-40, _SMALLEST_STEP)
    step = _power_of_two(min(spread, epsilon0) / FINENESS) if step is None else step
    top = math.ceil(epsilon0 / step)
    points = _points(_reach(curve, spread, epsilon0, tail), spread, step, top)
    values = np.array(
        [start, *(_value(curve, k * step) if k < top else 0.0 for k in points[1:].tolist())]
    )
    # h does not increase: each value holds for all later points too.
    values = np.minimum.accumulate(np.minimum(values, 1.0))
    return _from_values(points, values, step, epsilon0)


def pure_law(epsilon: float, delta: float = 0.0, *, steps: int = _PURE_STEPS) -> LossLaw:
    """The law that dominates every (epsilon, delta)-private release: randomized response that fails
    openly with probability delta (Kairouz, Oh, Viswanath, "The composition theorem for differential
    privacy", ICML 2015, Section 3). epsilon is rounded up to the lattice, by at most 1 / ``steps``
    of itself. Direction: UPPER.
    """
    if not 0.0 <= epsilon < math.inf or not 0.0 <= delta < 1.0:
        raise ShoalError(Kind.INVALID, "a pure law wants a finite epsilon >= 0 and delta in [0, 1)")
    pure = epsilon if delta == 0.0 else math.inf
    if epsilon == 0.0:
        return LossLaw(
            1.0,
            np.zeros(1, dtype=np.int64),
            np.array([(1.0 - delta) * (1.0 + MARGIN)]),
            delta,
            pure,
        )
    step = _power_of_two(max(epsilon / steps, _SMALLEST_STEP))
    top = math.ceil(epsilon / step)
    low = math.exp(-top * step)
    masses = np.array([low / (1.0 + low), 1.0 / (1.0 + low)]) * ((1.0 - delta) * (1.0 + MARGIN))
    # Beyond the floats nothing is left at -epsilon: less than 1e-300, which the margin covers.
    present = masses > 0.0
    return LossLaw(
        step, np.array([-top, top], dtype=np.int64)[present], masses[present], delta, pure
    )


def hockey(law: LossLaw, epsilon: float) -> float:
    """The law's hockey-stick divergence at ``epsilon`` (any sign), rounded up; at least that of the
    release there.

    float64 sums of positive terms: nothing cancels, and ``MARGIN`` covers their rounding.
    """
    beyond = law.losses > epsilon
    inside = law.masses[beyond] * -np.expm1(epsilon - law.losses[beyond])
    return (float(np.sum(inside)) + law.infinity) * (1.0 + MARGIN)


def on_lattice(law: LossLaw, step: float) -> LossLaw:
    """The law on a lattice of ``step`` (a power of two): its curve is nowhere lower. Direction:
    UPPER.

    A finer lattice than its own contains it: nothing moves. On a coarser one each mass goes to its
    two neighbours a < l < b so that mass and sum of exp(-loss) stay: (1 - e x)_+ is convex in x =
    exp(-loss), so by Jensen the curve can only rise.
    """
    if step <= law.step:
        refinement = round(law.step / step)
        if refinement * int(max(-law.indices[0], law.indices[-1], 1)) >= 1 << 52:
            raise ShoalError(
                Kind.INVALID,
                "a lattice that fine has more points than floats tell apart: coarsen the finer law",
            )
        return (
            law
            if refinement == 1
            else LossLaw(step, law.indices * refinement, law.masses, law.infinity, law.epsilon0)
        )
    # A power of two that may be beyond the integers: the quotient is exact, and a distance that is
    # not is moved by a unit of itself.
    ratio = step / law.step
    left = np.floor(law.indices / ratio).astype(np.int64)
    along = (law.indices - left * ratio) * law.step
    up = -np.expm1(-along) / -math.expm1(-step)
    down = np.exp(-along) * -np.expm1(along - step) / -math.expm1(-step)
    first = int(left[0])
    size = int(left[-1]) - first + 2
    masses: Floats = np.zeros(size)
    masses += np.bincount(left - first, law.masses * down, minlength=size)
    masses += np.bincount(left - first + 1, law.masses * up, minlength=size)
    kept = np.flatnonzero(masses > 0.0)
    return LossLaw(step, kept + first, masses[kept] * (1.0 + MARGIN), law.infinity, law.epsilon0)


def _value(curve: Callable[[float], float], epsilon: float) -> float:
    """The curve's value, checked: a NaN or a negative number is no upper bound of a divergence."""
    value = float(curve(epsilon))
    if not value >= 0.0:
        raise ShoalError(
            Kind.INVALID,
            f"a curve gave {value} at epsilon {epsilon:g}: an upper bound of a divergence is at "
            "least 0",
        )
    return value


def _power_of_two(value: float) -> float:
    """The largest one that is not above ``value``."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1)


def _reach(curve: Callable[[float], float], spread: float, epsilon0: float, tail: float) -> float:
    """An epsilon, at most epsilon0, where the curve has fallen to ``tail``; within a tenth of the
    first such.
    """
    low, high = 0.0, min(8.0 * spread, epsilon0)
    while high < epsilon0 and _value(curve, high) > tail:
        low, high = high, min(2.0 * high, epsilon0)
    for _ in range(3):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _value(curve, middle) <= tail else (middle, high)
    return high


def _points(reach: float, spread: float, step: float, top: int) -> Ints:
    """Lattice indices at which to evaluate, from 0 to ``reach`` (``top``, the index of epsilon0, at
    most).
    """
    last = min(max(1, math.ceil(reach / step)), top)
    even = min(last, math.ceil(_EVEN_REACH * spread / step))
    points = np.arange(even + 1, dtype=np.int64)
    if even > 4 * FINENESS * _EVEN_REACH:
        # A step that was asked for: no more evaluations than the automatic one.
        points = np.linspace(0, even, int(4 * FINENESS * _EVEN_REACH)).astype(np.int64)
    if last > even:
        span = math.log(last / even)
        count = max(2, math.ceil(span / max(_RATIO, span / _MOST_SPARSE)))
        sparse = np.rint(even * np.exp(np.linspace(0.0, span, count))).astype(np.int64)
        points = np.concatenate([points, sparse, [last]])
    return np.unique(points[points <= last])


def _from_values(points: Ints, values: Floats, step: float, epsilon0: float) -> LossLaw:
    """The construction of the module's text; ``points`` start with 0."""
    losses: Floats = np.asarray(points * step, dtype=np.float64)
    chords = np.tanh(losses / 2.0) + values * (2.0 / (np.exp(losses) + 1.0))
    values = values.copy()
    # chords[0] is values[0]. The chord itself is rounded: a few units up.
    values[0] = min(values[0], float(np.min(chords)) * (1.0 + 1e-15))
    kept = _lower_hull(losses, values)
    losses, values, points = losses[kept], values[kept], points[kept]
    slopes = np.append(np.diff(values) / (np.exp(losses[:-1]) * np.expm1(np.diff(losses))), 0.0)
    mirrored = np.maximum(np.diff(slopes), 0.0)
    forward = np.exp(losses[1:]) * mirrored
    center = max(0.0, 1.0 - float(values[0]) + 2.0 * float(slopes[0]))
    masses = np.concatenate([mirrored[::-1], [center], forward])
    indices = np.concatenate([-points[:0:-1], points])
    infinity = float(values[-1])
    lift = (
        1.0
        + _shortfall(np.asarray(indices * step, dtype=np.float64), masses, infinity, losses, values)
    ) * (1.0 + MARGIN)
    present = (masses > 0.0) | (indices == 0)
    return LossLaw(
        step, indices[present], masses[present] * lift, min(infinity * lift, 1.0), epsilon0
    )


def _lower_hull(losses: Floats, values: Floats) -> list[int]:
    """Indices of the points on the lower convex hull of (exp(losses), values), first and last
    included.
    """
    kept: list[int] = []
    slopes: list[float] = []
    for index in range(len(losses)):
        slope = -math.inf
        while kept:
            last = kept[-1]
            slope = float(values[index] - values[last]) / (
                math.exp(losses[last]) * math.expm1(losses[index] - losses[last])
            )
            if len(kept) == 1 or slope > slopes[-1]:
                break
            kept.pop()
            slopes.pop()
        kept.append(index)
        slopes.append(slope)
    return kept


def _shortfall(
    losses: Floats, masses: Floats, infinity: float, points: Floats, values: Floats
) -> float:
    """By what share, at most, the measure's curve is below the wanted values: at the points, at
    their mirrors, and at e = 0.
    """
    wanted = np.concatenate([-np.expm1(-points) + np.exp(-points) * values, values])
    at = np.concatenate([-points, points])
    reached = (
        np.array(
            [float(np.sum(masses[losses > t] * -np.expm1(t - losses[losses > t]))) for t in at]
        )
        + infinity
    )
    # Where a value is 0 nothing can be missing.
    share = np.divide(
        wanted, reached, out=np.ones_like(wanted), where=(wanted > 0.0) & (reached > 0.0)
    )
    share = np.append(share, 1.0 / (float(np.sum(masses)) + infinity))
    if np.any((wanted > 0.0) & (reached <= 0.0)):
        raise ShoalError(
            Kind.INVALID,
            "a loss law came out empty where its curve is not: the curve is not one of a "
            "divergence",
        )
    return max(0.0, float(np.max(share)) - 1.0)
