"""The epsilon0 of one candidate: the largest whose certificate keeps the target, or the smallest
that reaches an error.

Largest for an epsilon: a bracket whose lower end is *proven* (``proves`` is one evaluation of the
accountant's curve at the target) and whose upper end is not. It is widened from a guess and halved
to 0.05 % of itself. Certificates grow with epsilon0, but for 1e-8 of themselves, and errors shrink
with it (but for settings that choose another integer by epsilon0, such as a number of hash values,
whose errors jump), so the errors at both ends tell what the candidate could still reach: as soon as
both are worse than the best seen, the search stops at 2 % ("not settled"). Only tightness rests on
these two monotonicities; the lower end is proven whatever holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shoal.accounting.accountant import LARGEST_EPSILON0, proves, simplest
from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.analyzer.planner.candidates import Candidate
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism

_TIGHT = 5e-4
_LOOSE = 2e-2
_FIRST_STEP = 0.03
# Where errors are met, epsilon0 is looked for from here on.
_LEAST_EPSILON0 = 1e-3
_SMALL, _LESS = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Bracket:
    """``epsilon0``: proven (or reaching the error). ``above``: the smallest that was tried and is
    not; ``epsilon0`` itself where no larger one is allowed. ``settled``: whether they are 0.05 %
    apart.
    """

    epsilon0: float
    above: float
    settled: bool


def guess(target: float, delta: float, n_honest: int) -> float:
    """An epsilon0 near the largest for a central ``target``: epsilon is about 1.7 sqrt(e^epsilon0
    ln(4 / delta) / n) when it is small.
    """
    return math.log(
        max(1.0, n_honest * target**2 / (2.8 * math.log(4.0 / delta)))
        + math.expm1(min(target, LARGEST_EPSILON0))
    )


def largest(
    candidate: Candidate,
    target: float,
    delta: float,
    n_honest: int,
    *,
    most: float = LARGEST_EPSILON0,
    start: float,
    beaten: Callable[[Mechanism], bool],
) -> Bracket:
    """The largest proven epsilon0, at most ``most``. ``beaten``: whether a mechanism of some
    epsilon0 is worse than the best seen.

    Raises INVALID where the setting has no mechanism at the smallest epsilon0 that is of use, which
    is ``target``.
    """
    floor = min(target, most)
    candidate.build(floor)  # a report of that epsilon0 needs no shuffling: the target holds

    def proven(epsilon0: float) -> bool:
        try:
            law = candidate.build(epsilon0).privacy()
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            return False
        return proves(simplest(law), n_honest, delta, target, QUICK_EFFORT)

    low, high, step = floor, math.inf, _FIRST_STEP
    point = min(max(start, floor), most)
    while low < most and high - low > _TIGHT * low:
        if point <= low or proven(point):
            low = max(low, point)
        else:
            high = point
        if (
            high - low <= _LOOSE * low
            and high - low > _TIGHT * low
            and all(_at(candidate, end, beaten) for end in (high, low))
        ):
            return Bracket(low, high, settled=False)
        point = (
            min(most, low * (1.0 + step))
            if math.isinf(high)
            else max((low + high) / 2.0, high / (1.0 + step))
        )
        step *= 2.0
    return Bracket(low, min(high, most) if high < math.inf else low, settled=True)


def _at(candidate: Candidate, epsilon0: float, beaten: Callable[[Mechanism], bool]) -> bool:
    try:
        return beaten(candidate.build(epsilon0))
    except ShoalError:
        return False


def smallest(
    candidate: Candidate, reaches: Callable[[Mechanism], bool], *, most: float = LARGEST_EPSILON0
) -> float | None:
    """The smallest epsilon0, to 0.05 %, whose mechanism ``reaches`` an error; None if that of
    ``most`` doesn't. Raises INVALID where there is no mechanism at all. Nothing is certified here:
    errors shrink with epsilon0.
    """
    low, high = min(_LEAST_EPSILON0, most), _buildable(candidate, most)
    if not reaches(candidate.build(high)):
        return None
    if _reaches(candidate, low, reaches):
        return low
    while high - low > _TIGHT * low:
        middle = math.sqrt(low * high) if high > 2.0 * low else (low + high) / 2.0
        if _reaches(candidate, middle, reaches):
            high = middle
        else:
            low = middle
    return high


def _buildable(candidate: Candidate, most: float) -> float:
    """``most``, or a little less where the integers of the setting end below it. Raises INVALID
    below 0.1.
    """
    while True:
        try:
            candidate.build(most)
        except ShoalError as error:
            if error.kind is not Kind.INVALID or most < _SMALL:
                raise
            most *= _LESS
        else:
            return most


def _reaches(candidate: Candidate, epsilon0: float, reaches: Callable[[Mechanism], bool]) -> bool:
    try:
        return reaches(candidate.build(epsilon0))
    except ShoalError as error:
        if error.kind is not Kind.INVALID:
            raise
        return False
