"""The smallest epsilon for which a mechanism of several messages reaches a target error.

Its error falls as the epsilon that its noise is designed for grows. Below some epsilon the design
refuses (so much noise wants more messages than a report may have, or than are drawn), above some it
may refuse too (for a large epsilon no few floods do), and limits on a report rule out small ones.
So what can be had lies between two ends: it is looked for from the largest epsilon down, first in
wide steps, and then between the last two of them, along the line through their errors. Each step is
a design, with its exact account.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.question import wrong
from shoal.errors import Kind, ShoalError

LARGEST, LEAST = 40.0, 1e-4  # epsilons that a design is asked for
_STEP = 2.0
_LARGE = 4.0  # above, errors fall faster than 1 / epsilon
_LEAST_STEP, _MOST_STEP = 1.02, 8.0
_ASIDE = 4e-4
_NEAR = 1.001  # how near to the smallest it is found
_DIGITS = 4  # of an epsilon that a design is asked for: a task file can have it


@dataclass(frozen=True, slots=True)
class _Try:
    """``option``: what a design for ``epsilon`` makes, None where it refuses for ``why``."""

    epsilon: float
    option: SeveralOption | None
    why: str

    def reaches(self, error: float) -> bool:
        return self.option is not None and self.option.error <= error


def least_epsilon(design: Callable[[float], SeveralOption], error: float) -> SeveralOption:
    """The option of the smallest epsilon (to 0.1 %) whose standard error is at most ``error``.

    ``design`` makes an option of an epsilon of four digits, and may refuse with a ShoalError.
    Raises CONFIG where none reaches the error, with the least that there is.
    """
    seen = list[_Try]()

    def at(epsilon: float) -> _Try:
        try:
            seen.append(_Try(epsilon, design(epsilon), ""))
        except ShoalError as refusal:
            if refusal.kind is Kind.INTERNAL:
                raise
            seen.append(_Try(epsilon, None, refusal.message))
        return seen[-1]

    good, below = _first(at, error)
    if good is None:
        raise wrong(_unreached(seen, error))
    steps = 0
    while below is not None and good.epsilon > below.epsilon * _NEAR:
        middle = _toward(good, below, error, steps)
        if not below.epsilon < middle < good.epsilon:
            middle = _between(below.epsilon, good.epsilon)
        if not below.epsilon < middle < good.epsilon:
            break
        tried, steps = at(middle), steps + 1
        good, below = (tried, below) if tried.reaches(error) else (good, tried)
    if good.option is None:
        raise TypeError("what reaches an error is an option")
    return good.option


def _first(at: Callable[[float], _Try], error: float) -> tuple[_Try | None, _Try | None]:
    """From the largest epsilon down: one that reaches the error, and the next one below it that
    does not; None for either where there is none.
    """
    good, above, epsilon = None, None, LARGEST
    while True:
        tried = at(epsilon)
        if tried.reaches(error):
            good = tried
        elif good is not None:
            return good, tried
        elif tried.option is not None:  # errs too much, and would more so below
            return (None, tried) if above is None else _at_the_top(at, above, tried, error)
        else:
            above = tried
        if epsilon <= LEAST:
            return good, None
        epsilon = max(LEAST, rounded_up(epsilon / _step(tried, error)))


def _step(tried: _Try, error: float) -> float:
    """How far down to go: errors grow as 1 / epsilon or more slowly, where epsilon is small."""
    if tried.option is None or tried.option.error <= 0.0 or tried.epsilon > _LARGE:
        return _STEP
    return min(max(error / tried.option.error, _LEAST_STEP), _MOST_STEP)


def _toward(good: _Try, below: _Try, error: float, steps: int) -> float:
    """Where the line between both errors, on logarithmic axes, meets the target: a little to this
    side of it and to that one, so that both ends close in; every third time the middle.
    """
    if good.option is None or below.option is None or good.option.error <= 0.0 or steps % 3 == 2:
        return _between(below.epsilon, good.epsilon)
    spare = math.log(error / good.option.error)
    share = spare / math.log(below.option.error / good.option.error)
    at = good.epsilon * (below.epsilon / good.epsilon) ** share
    return rounded_up(at * (1.0 + (_ASIDE if steps % 3 == 0 else -_ASIDE)))


def _at_the_top(
    at: Callable[[float], _Try], refused: _Try, low: _Try, error: float
) -> tuple[_Try | None, _Try | None]:
    """Between an epsilon that is refused, and one below that errs too much."""
    high = refused
    while high.epsilon > low.epsilon * _NEAR:
        middle = _between(low.epsilon, high.epsilon)
        if not low.epsilon < middle < high.epsilon:
            break
        tried = at(middle)
        if tried.reaches(error):
            return tried, low
        low, high = (low, tried) if tried.option is None else (tried, high)
    return None, low


def _between(low: float, high: float) -> float:
    return rounded_up(math.sqrt(low * high))


def rounded_up(epsilon: float, digits: int = _DIGITS) -> float:
    """``epsilon`` in so many significant digits, never less."""
    return float(bound_text(epsilon, digits=digits))


def _unreached(seen: list[_Try], error: float) -> str:
    errors = [tried.option.error for tried in seen if tried.option is not None]
    if not errors:
        return seen[-1].why
    return f"its error stays above {error:g} at every epsilon: {min(errors):.3g} is the least"
