"""What a sum by secure aggregation gives away: certificates, and the noise for a certificate that
is asked for.

A round reveals the sum of its survivors' integer vectors, in which every survivor's own share of
the noise is contained. An adversary who controls the corrupt survivors subtracts their vectors and
their noise; what hides the rest is the noise of the honest ones, floor(honest_fraction * survivors)
at least. The guarantee of a task is that of its smallest sum, of survivors_min devices. Here
honest_fraction is of the *survivors*: for a task that is ``PairwisePlan.honest_share``, less than
the honest share of those who begin. docs/ACCOUNTING.md, "Sums by secure aggregation", has the
statements; ``skellam`` and ``laplace_sum`` have the proofs.

*Direction.* ``epsilon_upper`` and ``epsilon0`` err upward: norms are bounds, variances enter as
exact fractions, and rounding goes up. ``epsilon_lower`` errs downward, and belongs to a vector that
a device sends for certain, and its negative (``Bounds.certain_squared``). Tests compare both with
every pair of small vectors (tests/unit/accounting/sums/test_pairwise.py, test_attained.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from shoal.accounting.certificate import RELATION, check_delta, check_honest, check_n, count_honest
from shoal.accounting.guarantee import Remaining
from shoal.accounting.sums.laplace_sum import laplace_epsilon, laplace_lower
from shoal.accounting.sums.skellam import skellam_epsilon
from shoal.accounting.sums.skellam_tail import skellam_lower, skellam_one
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.polya import LEAST_SCALE, MOST_SCALE
from shoal.mechanisms.noise.skellam import MOST_RATE
from shoal.secagg import Mode
from shoal.task import MechanismSpec

SKELLAM = "skellam"
LAPLACE = "discrete_laplace"

# Methods, as they appear in certificates.
SKELLAM_RDP = "skellam-rdp"
SKELLAM_EXACT = "skellam-exact"
PURE = "discrete-laplace"

_WHO = {
    Mode.DEFAULT: (
        "it holds against the analyzer alone and against the shuffler alone, each with the corrupt "
        "devices; shuffler and analyzer together can see one device's vector with its own share of "
        "the noise: epsilon0"
    ),
    Mode.STRICT: (
        "it holds against shuffler and analyzer together with the corrupt devices: honest devices "
        "have compared who survived"
    ),
    Mode.HELPER: (
        "it holds against the analyzer with the corrupt devices, and the shuffler sees no vector; "
        "shuffler and analyzer together can see one device's vector with its own share of the "
        "noise: epsilon0"
    ),
}
_ENFORCED = {
    Mode.DEFAULT: "every honest device refuses to unmask fewer",
    Mode.STRICT: "every honest device refuses to unmask fewer",
    Mode.HELPER: "the shuffler alone sees to it that fewer are not summed",
}


class Bounds(Protocol):
    """Of ONE device's integer vector, whatever its values: sum |q_i| <= l1, sum q_i^2 <=
    l2_squared, max |q_i| <= linf. Whole, >= 1. And what some values are sent as for certain.
    """

    @property
    def l1(self) -> int:
        """Bound on sum |q_i|, in grid steps; whole, at least 1."""
        ...

    @property
    def l2_squared(self) -> int:
        """Bound on sum q_i^2, in grid steps squared; whole, at least 1."""
        ...

    @property
    def linf(self) -> int:
        """Bound on the largest |q_i|, in grid steps; whole, at least 1."""
        ...

    @property
    def certain_squared(self) -> int:
        """Some values are sent for certain as c or more in m coordinates, their negatives as -c or
        less, for all m c <= l1, m c^2 <= certain_squared, c <= linf; whole, at least 1.
        """
        ...


@dataclass(frozen=True, slots=True)
class SumBound:
    """(epsilon, delta) of one sum. The true epsilon at ``delta`` is proven to lie in
    [epsilon_lower, epsilon_upper].

    ``epsilon_upper``: the guarantee, with the noise of ``honest`` = floor(honest_fraction *
    survivors) devices. ``epsilon_lower``: refuted for a pair of vectors that are sent (0.0 if
    none is known). ``epsilon0``: what one device's own share of the noise guarantees by itself, if
    masks or protocol fail; an upper bound, math.inf where nothing is proven. ``remaining``: against
    the analyzer with the corrupt devices, and against shuffler and analyzer together with them,
    which is ``epsilon_upper`` in strict mode, ``epsilon0`` otherwise.
    ``assumptions``: plain sentences, without which the numbers are worth nothing. Raises INVALID
    unless 0 <= lower <= upper <= epsilon0, what remains lies between upper and epsilon0, and upper
    is finite.
    """

    epsilon_upper: float
    epsilon_lower: float
    epsilon0: float
    delta: float
    honest: int
    survivors: int
    honest_fraction: Fraction
    method: str
    assumptions: tuple[str, ...]
    remaining: Remaining
    relation: str = RELATION

    def __post_init__(self) -> None:
        check_n(self.survivors)
        check_delta(self.delta)
        share = check_honest(self.honest_fraction)
        object.__setattr__(self, "honest_fraction", share)
        if self.honest != count_honest(self.survivors, share) or self.honest < 1:
            raise ShoalError(
                Kind.INVALID,
                "a certificate counts floor(honest_fraction * survivors) honest devices, one at "
                "least",
            )
        if (
            not 0.0 <= self.epsilon_lower <= self.epsilon_upper <= self.epsilon0
            or not math.isfinite(self.epsilon_upper)
        ):
            raise ShoalError(
                Kind.INVALID,
                "a certificate wants 0 <= epsilon_lower <= epsilon_upper <= epsilon0, the first "
                "two finite",
            )
        left = self.remaining
        if not self.epsilon_upper <= left.analyzer <= left.together <= self.epsilon0:
            raise ShoalError(Kind.INVALID, "what remains lies between epsilon_upper and epsilon0")
        if self.relation != RELATION:
            raise ShoalError(Kind.INVALID, f"a certificate is about {RELATION} neighbours only")
        if not self.method or not self.assumptions:
            raise ShoalError(Kind.INVALID, "a certificate names its method and its assumptions")

    @property
    def n(self) -> int:
        """``survivors``, by the name that every guarantee has for it."""
        return self.survivors

    @property
    def n_honest(self) -> int:
        """``honest``, by the name that every guarantee has for it."""
        return self.honest

    def to_json(self) -> dict[str, float | int | str | list[str] | None]:
        """The stable machine shape; None stands for an epsilon that is not bounded."""
        return {
            "epsilon_upper": self.epsilon_upper,
            "epsilon_lower": self.epsilon_lower,
            "epsilon0": _finite(self.epsilon0),
            "epsilon_analyzer": _finite(self.remaining.analyzer),
            "epsilon_together": _finite(self.remaining.together),
            "delta": self.delta,
            "survivors": self.survivors,
            "honest": self.honest,
            "honest_fraction": float(self.honest_fraction),
            "relation": self.relation,
            "method": self.method,
            "assumptions": list(self.assumptions),
        }


@dataclass(frozen=True, slots=True)
class Shift:
    """How far replacing one device's vector moves a sum: bounds on a whole vector of ``dimension``
    coordinates.
    """

    l1: int
    l2_squared: int
    linf: int
    dimension: int

    @classmethod
    def of(cls, bounds: Bounds, dimension: int) -> Shift:
        """The difference of two vectors within ``bounds``: twice each norm, so four times the
        square. Raises INVALID for numbers below 1.
        """
        return cls._twice(bounds, bounds.l2_squared, dimension)

    @classmethod
    def certain(cls, bounds: Bounds, dimension: int) -> Shift:
        """As ``of`` or less, of vectors that a device sends for certain: for lower ends."""
        return cls._twice(bounds, min(bounds.l2_squared, bounds.certain_squared), dimension)

    @classmethod
    def _twice(cls, bounds: Bounds, l2_squared: int, dimension: int) -> Shift:
        """Each norm is cut to what the others allow: |s|_1 <= d |s|_inf, |s|_1 <= sqrt(d) |s|_2,
        |s|_1 <= |s|_2^2 as s is whole, and |s|_2^2 <= |s|_1 |s|_inf.
        """
        numbers = (bounds.l1, l2_squared, bounds.linf, dimension)
        if any(
            isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in numbers
        ):
            raise ShoalError(
                Kind.INVALID,
                f"bounds and dimension of a vector are whole numbers of at least 1, got {numbers}",
            )
        linf = min(2 * bounds.linf, 2 * bounds.l1, math.isqrt(4 * l2_squared))
        l1 = min(
            2 * bounds.l1,
            dimension * linf,
            math.isqrt(dimension * 4 * l2_squared),
            4 * l2_squared,
        )
        return cls(l1, min(4 * l2_squared, l1 * linf), linf, dimension)


@dataclass(frozen=True, slots=True)
class _NoiseBounds:
    """Of one noise law: the guarantee with all honest shares, what is refuted there, and one share
    by itself.
    """

    upper: float
    lower: float
    alone: float
    method: str


def certify_sum(
    spec: MechanismSpec,
    bounds: Bounds,
    dimension: int,
    *,
    survivors: int,
    honest_fraction: Fraction | float,
    delta: float,
    mode: Mode,
) -> SumBound:
    """The certificate of a sum over ``survivors`` devices, each with one share of the noise
    ``spec`` in every coordinate.

    ``spec``: "skellam" (variance, shares) or "discrete_laplace" (scale, shares). ``bounds``: of one
    device's integer vector, in grid steps. The noise that counts is that of floor(honest_fraction *
    survivors) devices, whether that is ``shares``, more or fewer. Every upper end is rounded up,
    every lower one down. Raises INVALID for noise or bounds that make no sense and for less than
    one honest survivor, CONFIG for bad numbers.

    ``epsilon_lower`` is 0.0 where no pair is known to refute anything. ``delta`` in [1e-100, 1);
    ``honest_fraction`` of the *survivors*, in (0, 1].
    """
    check_n(survivors)
    check_delta(delta)
    share = check_honest(honest_fraction)
    honest = count_honest(survivors, share)
    if honest < 1:
        raise ShoalError(
            Kind.INVALID,
            "honest_fraction x survivors is below 1: no noise is certain, raise survivors above "
            f"{survivors}",
        )
    shift, certain = Shift.of(bounds, dimension), Shift.certain(bounds, dimension)
    of_noise = _noise_bounds(spec, shift, certain, honest, delta)
    return SumBound(
        epsilon_upper=of_noise.upper,
        epsilon_lower=of_noise.lower,
        epsilon0=of_noise.alone,
        delta=delta,
        honest=honest,
        survivors=survivors,
        honest_fraction=share,
        method=of_noise.method,
        assumptions=_assumptions(honest, survivors, share, mode),
        remaining=Remaining(
            of_noise.upper, of_noise.upper if mode is Mode.STRICT else of_noise.alone
        ),
    )


def calibrate(
    name: str,
    bounds: Bounds,
    dimension: int,
    *,
    epsilon: float,
    delta: float,
    survivors: int,
    honest_fraction: Fraction | float,
    windows: int = 1,
) -> MechanismSpec:
    """The least noise with ``certify_sum(...).epsilon_upper <= epsilon`` for sums of ``survivors``
    devices: the smallest whole parameter.

    ``windows`` above 1: the least with which the sums of so many windows, each with fresh noise,
    are together within (epsilon, delta) (``windows.epsilon_of_windows``). ``shares`` is
    floor(honest_fraction * survivors). Checked with the bound that certifies: the parameter
    returned meets the target, and one less does not, or is below what the noise law takes.
    Raises INVALID for an unknown law, and where no parameter is enough.
    """
    check_n(survivors)
    check_delta(delta)
    if isinstance(epsilon, bool) or not (math.isfinite(epsilon) and epsilon > 0.0):
        raise ShoalError(
            Kind.INVALID,
            f"the target epsilon is a finite number above 0, got {epsilon}: give the central "
            "epsilon wanted",
        )
    honest = count_honest(survivors, check_honest(honest_fraction))
    if honest < 1:
        raise ShoalError(
            Kind.INVALID,
            "honest_fraction x survivors is below 1: no noise is certain, raise survivors above "
            f"{survivors}",
        )
    check_windows(windows)
    shift = Shift.of(bounds, dimension)
    if name == SKELLAM:
        most = min((1 << 64) - 1, 2 * honest * MOST_RATE)
        variance = _smallest(
            lambda value: _skellam_proves(Fraction(value), shift, delta, epsilon, windows), 1, most
        )
        return MechanismSpec.of(name, variance=variance, shares=honest)
    if name == LAPLACE:
        scale = _smallest(
            lambda value: (
                laplace_epsilon(value, Fraction(1), shift.l1, dimension, windows) <= epsilon
            ),
            LEAST_SCALE,
            MOST_SCALE,
        )
        return MechanismSpec.of(name, scale=scale, shares=honest)
    raise _unknown(name)


def _noise_bounds(
    spec: MechanismSpec, shift: Shift, certain: Shift, honest: int, delta: float
) -> _NoiseBounds:
    """Both ends for ``honest`` shares of the noise, and the guarantee of a single share; the lower
    end is that of ``certain``. Raises INVALID for noise that no certificate is made for.
    """
    if spec.name not in (SKELLAM, LAPLACE):
        raise _unknown(spec.name)
    shares = _at_least_one(spec, "shares")
    if spec.name == SKELLAM:
        whole = _at_least_one(spec, "variance")
        # Skellam noise adds: h shares of variance v / shares each have h v / shares. A single share
        # is what one device keeps by itself.
        together = Fraction(whole * honest, shares)
        upper, method = _skellam_upper(together, shift, delta)
        # equal for a single honest device
        alone = max(upper, _skellam_upper(Fraction(whole, shares), shift, delta)[0])
        return _NoiseBounds(upper, _skellam_lower(together, certain, delta), alone, method)
    scale = _at_least_one(spec, "scale")
    upper, alone = (
        laplace_epsilon(scale, Fraction(k, shares), shift.l1, shift.dimension) for k in (honest, 1)
    )
    # More shares than r = 1 are a post-processing of it: what is refuted there need not be refuted
    # here.
    lower = _laplace_lower(scale, certain, delta) if honest <= shares else 0.0
    return _NoiseBounds(upper, lower, alone, PURE)


def check_windows(windows: int) -> int:
    """``windows`` itself, if it is a whole number of at least 1. Raises INVALID."""
    if isinstance(windows, bool) or not isinstance(windows, int) or windows < 1:
        raise ShoalError(
            Kind.INVALID, f"a device is asked in 1 window or more, got {windows}: raise windows"
        )
    return windows


def spread(shift: Shift, coordinates: int) -> int:
    """The largest even number c so that +c/2 and -c/2 in so many coordinates are two vectors within
    the bounds; 0 if there is none.
    """
    return 2 * min(
        shift.linf // 2,
        shift.l1 // (2 * coordinates),
        math.isqrt(shift.l2_squared // (4 * coordinates)),
    )


def _counts(shift: Shift) -> set[int]:
    """Of how many coordinates the examples move: few, many and in between."""
    return {min(1 << power, shift.dimension) for power in range(shift.dimension.bit_length() + 1)}


def _skellam_upper(variance: Fraction, shift: Shift, delta: float) -> tuple[float, str]:
    """(epsilon, method): by Renyi divergence, and for a single coordinate also by the divergence of
    that law itself.
    """
    renyi = skellam_epsilon(variance, shift.l1, shift.l2_squared, delta)
    exact = (
        skellam_one(math.nextafter(float(variance), 0.0), shift.l1, delta)
        if shift.dimension == 1
        else math.inf
    )
    return (exact, SKELLAM_EXACT) if exact < renyi else (renyi, SKELLAM_RDP)


def _skellam_proves(
    variance: Fraction, shift: Shift, delta: float, epsilon: float, windows: int
) -> bool:
    """Whether ``_skellam_upper`` is at most ``epsilon`` (of several windows: the Renyi bound);
    quicker where the Renyi bound is enough, or epsilon is refuted.
    """
    if skellam_epsilon(variance, shift.l1, shift.l2_squared, delta, windows) <= epsilon:
        return True
    if windows > 1 or shift.dimension > 1 or _skellam_lower(variance, shift, delta) > epsilon:
        return False
    return _skellam_upper(variance, shift, delta)[0] <= epsilon


def _skellam_lower(variance: Fraction, shift: Shift, delta: float) -> float:
    """m coordinates moved by c each, and their sum looked at: Skellam noise of m times the
    variance, moved by m c. Direction: lower bound, of a ``Shift.certain``.

    Of counts that move equally far the largest, as Skellam noise hides many small moves less well.
    """
    best = max(_counts(shift), key=lambda count: (count * spread(shift, count) ** 2, count))
    # More noise refutes less: the variance is rounded up.
    more = [
        (math.nextafter(float(count * variance), math.inf), count * spread(shift, count))
        for count in {1, best}
    ]
    return max(skellam_lower(noise, moved, delta) for noise, moved in more)


def _laplace_lower(scale: int, shift: Shift, delta: float) -> float:
    """The best of several pairs of vectors. Direction: lower bound, of a ``Shift.certain``."""
    return max(
        laplace_lower(scale, (count, spread(shift, count)), delta) for count in _counts(shift)
    )


def _smallest(enough: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest value in low..high that is enough, if whatever is above a value that is enough
    is enough. Raises INVALID if none is.
    """
    if not enough(high):
        raise ShoalError(
            Kind.INVALID,
            "no noise of this kind is enough for the target: raise epsilon, choose a coarser grid, "
            "or more survivors per round",
        )
    if enough(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


def _assumptions(honest: int, survivors: int, share: Fraction, mode: Mode) -> tuple[str, ...]:
    """What the numbers rest on, as the sentences of the certificate: whose noise counts, who
    enforces the number of survivors, and against whom the figure holds.
    """
    return (
        "neighbours differ in the vector of one device that takes part; that it takes part, and "
        "how many do, is not hidden",
        f"of the {survivors} survivors of a sum at least {honest} (a share of {float(share):g}, "
        "rounded down) run this code and keep their "
        "noise to themselves; the others may tell the adversary everything",
        f"no sum of fewer than {survivors} survivors is revealed: {_ENFORCED[mode]}",
        _WHO[mode],
        "a device is in one sum per window; sums of several windows and tasks add up",
        "the noise is drawn exactly from the operating system's random numbers, and the masks hide "
        "what they must: "
        "the chance that they fail is not part of delta",
    )


def _at_least_one(spec: MechanismSpec, name: str) -> int:
    value = spec.get(name)
    if value < 1:
        raise ShoalError(
            Kind.INVALID, f'{spec.name}: the parameter "{name}" is at least 1: raise it'
        )
    return value


def _unknown(name: str) -> ShoalError:
    return ShoalError(
        Kind.INVALID, f"no sum is certified with noise {name}: choose {SKELLAM} or {LAPLACE}"
    )


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
