"""A task whose vectors are summed by secure aggregation: its numbers computed, and checked, in one
place.

``design_sum`` computes what nobody should type: the smallest word that cannot wrap, the noise for
the guaranteed survivors. ``check_sum`` is the same question asked of a task that somebody signed:
devices, analyzer and ``shoal task lint`` all ask it before they act.

The numbers depend on one another in one direction: cohort_min and dropout give the survivors that a
round must have; with the honest fraction they give the honest shares of noise that are sure; these
and the bounds of a vector give the noise; the noise and the largest round give the width of a word.
``check_sum`` walks the same way, so a task whose numbers were typed by hand is refused wherever
they do not follow.

Direction: shares are rounded down, noise up, and the width of a word up. A device that checks a
task itself need not trust who signed it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from shoal.accounting.sums.pairwise import SumBound, calibrate, certify_sum
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.noise.width import noise_tail, word_bits_for
from shoal.mechanisms.quantize import bounds, default_grid
from shoal.questions.layout import NamedShape
from shoal.secagg import WORD_BITS, Mode, PairwisePlan
from shoal.task import PPM, MechanismSpec, Task

# What a round should lose little to: of cohort_max devices that could join, this share is enough to
# begin.
_COHORT_MIN = Fraction(4, 5)


@dataclass(frozen=True, slots=True)
class SumDesign:
    """What a task needs beside its words: domain with its grid, noise, settings of the rounds."""

    domain: Vector
    mechanism: MechanismSpec
    plan: PairwisePlan


def design_sum(
    *,
    dimension: int,
    norm: Norm,
    clip: float,
    noise: str,
    mode: Mode,
    cohort_max: int,
    dropout_ppm: int,
    honest_fraction_ppm: int,
    epsilon: float,
    delta: float,
    cohort_min: int | None = None,
    grid: int | None = None,
    names: Sequence[str] = (),
    unit: str = "",
    layout: Sequence[NamedShape] = (),
    phases: Sequence[int] = (30, 60, 120, 60),
    windows: int = 1,
) -> SumDesign:
    """The smallest noise whose certificate is at most (``epsilon``, ``delta``), of so many
    ``windows`` together (``calibrate``), and the smallest word that holds every sum.

    ``cohort_max``: devices of a round at most; ``cohort_min``: at least, by default four fifths of
    it. The survivors that a round must have are cohort_min - floor(dropout * cohort_min).
    ``phases``: seconds of join, share, mask, unmask. Raises INVALID for what cannot be had, in one
    line that names the number to change.

    ``dimension`` >= 1 coordinates; ``clip`` > 0 in the domain's unit, the bound on a vector's
    ``norm``; ``grid``: steps that ``clip`` is divided into (None: one that costs little, of
    long vectors one in whose steps the noise can be drawn).
    More than ``LIMITS.dense_words`` coordinates travel in segments, and are released as one array;
    so do fewer that have a ``layout``, whose arrays are read from it by name.
    ``dropout_ppm``, ``honest_fraction_ppm``: shares of a round's devices, in millionths.
    """
    least, survivors = _smallest_round(cohort_min, cohort_max, dropout_ppm)
    # With the widest word first: what is wrong with the sizes is said before anything is computed
    # from them.
    widest = PairwisePlan(mode, least, cohort_max, survivors, dropout_ppm, WORD_BITS[-1], *phases)
    if widest.honest_survivors(honest_fraction_ppm) < 1:
        raise _hides_nobody()
    steps = grid if grid is not None else default_grid(norm, clip, dimension)
    domain = Vector(dimension, norm, clip, steps, tuple(names), unit, tuple(layout))
    share = widest.honest_share(honest_fraction_ppm)

    def calibrated(domain: Vector) -> MechanismSpec:
        return calibrate(
            noise,
            bounds(domain),
            dimension,
            epsilon=epsilon,
            delta=delta,
            survivors=survivors,
            honest_fraction=share,
            windows=windows,
        )

    if grid is None and norm is Norm.L2 and dimension > LIMITS.dense_words:
        domain, spec = _coarsened(domain, calibrated)
    else:
        spec = calibrated(domain)
    limits = bounds(domain)
    # Modulo 2^w: a sum that does not fit would be wrong without anybody noticing.
    bits = word_bits_for(cohort_max, limits.linf, noise_tail(spec, dimension, cohort_max))
    plan = replace(widest, word_bits=bits, segment_words=_segment_words(domain, mode))
    return SumDesign(domain, spec, plan)


def _smallest_round(cohort_min: int | None, cohort_max: int, dropout_ppm: int) -> tuple[int, int]:
    """(devices that begin, devices that survive). Raises INVALID."""
    least = (
        cohort_min
        if cohort_min is not None
        else max(2, -(-cohort_max * _COHORT_MIN.numerator // _COHORT_MIN.denominator))
    )
    survivors = least - least * dropout_ppm // PPM
    if survivors < 2:
        raise ShoalError(
            Kind.INVALID,
            f"of cohort_min = {least} devices dropout leaves {survivors}: raise cohort_min or "
            "lower dropout",
        )
    return least, survivors


def _coarsened(
    domain: Vector, calibrated: Callable[[Vector], MechanismSpec]
) -> tuple[Vector, MechanismSpec]:
    """The grid, halved until a device's share of the noise can be drawn: the usual one grows with
    the dimension, and so does the noise in its steps.

    Not below 4 sqrt(d) steps, where rounding lengthens a vector by a quarter. Raises what the first
    grid did if none will do.
    """
    least, first = 4 * math.isqrt(domain.dimension), domain
    while True:
        try:
            return domain, calibrated(domain)
        except ShoalError:
            if domain.grid // 2 < least:
                return first, calibrated(first)
            domain = replace(domain, grid=domain.grid // 2)


def _segment_words(domain: Vector, mode: Mode) -> int:
    """Long vectors travel in segments, and those with a layout; in helper mode, whose vectors are
    stored whole, none do.
    """
    long = domain.dimension > LIMITS.dense_words or bool(domain.layout)
    return LIMITS.segment_words if long and mode is not Mode.HELPER else 0


@lru_cache(maxsize=64)
def check_sum(task: Task) -> SumBound:
    """The certificate of every round of this task, if it holds together.

    Raises INVALID for a task without secure aggregation, for noise that is not made for exactly the
    guaranteed honest survivors, and for words in which a sum could wrap: such a sum would be wrong
    without anybody noticing.
    """
    plan, domain = task.pairwise, task.domain
    if plan is None or not isinstance(domain, Vector):
        raise ShoalError(
            Kind.INVALID,
            f"task {task.name} is not summed by secure aggregation: certify it as a task of "
            "reports",
        )
    create_noise(task.mechanism)
    honest = plan.honest_survivors(task.honest_fraction_ppm)
    if honest < 2:
        raise _hides_nobody()
    if task.mechanism.get("shares") != honest:
        shares = task.mechanism.get("shares")
        raise ShoalError(
            Kind.INVALID,
            f"the noise is made for {shares} honest survivors, {honest} are guaranteed: shares "
            "must be that number",
        )
    limits = bounds(domain)
    bits = word_bits_for(
        plan.cohort_max, limits.linf, noise_tail(task.mechanism, domain.dimension, plan.cohort_max)
    )
    if bits > plan.word_bits:
        raise ShoalError(
            Kind.INVALID,
            f"a sum could wrap in words of {plan.word_bits} bits: word_bits must be {bits}",
        )
    return certify_sum(
        task.mechanism,
        limits,
        domain.dimension,
        survivors=plan.survivors_min,
        honest_fraction=plan.honest_share(task.honest_fraction_ppm),
        delta=task.delta,
        mode=plan.mode,
    )


def _hides_nobody() -> ShoalError:
    return ShoalError(
        Kind.INVALID,
        "with this honest_fraction and dropout fewer than 2 honest devices are sure to survive a "
        "round: a sum would hide nobody, "
        "raise the honest fraction or the size of rounds, or lower dropout",
    )
