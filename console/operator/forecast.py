"""What windows of a task have spent together, and what more of them will: by the same composition
that releases are signed with, never by a straight line.

A window that is still to come is taken to cost what the task guarantees: the law of losses of its
smallest batch, which every release of enough reports was charged. So the forecast errs up where
more reports come, and holds for windows that are released. Where no law is known (releases from
files), each window counts by its epsilon and delta alone, which composes to more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.errors import Kind, ShoalError

_POINTS = 24  # of a curve
_FARTHEST = 4096  # windows that a forecast looks ahead


@dataclass(frozen=True, slots=True)
class Spent:
    """All together. Direction: upper bound; math.inf where nothing is promised any more."""

    windows: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """``spent``: so far. ``curve``: after so many windows in all, from the first to the last that
    was looked at. ``end``: after the windows that are planned. ``lasts``: so many windows in all
    stay within the limit, None where all that are planned do (or there is no limit). ``upper``:
    whether no law is known, so that what is to come is an upper estimate.
    """

    spent: Spent
    curve: tuple[Spent, ...]
    end: Spent
    lasts: int | None
    upper: bool


def forecast(
    spendings: Sequence[Spending], planned: int, limit: float | None = None
) -> BudgetForecast:
    """Of one task. spendings: of its windows so far, at least one; planned: windows in all, at
    least as many. limit: the epsilon that may be spent. Raises INVALID for no spendings.
    """
    if not spendings:
        raise ShoalError(Kind.INVALID, "nothing was spent yet: there is nothing to go by")
    done, total = len(spendings), min(max(planned, len(spendings)), _FARTHEST)
    known = tuple(spendings)
    counts = sorted({*range(1, done + 1), *_steps(done, total)})
    if len(counts) > 2 * _POINTS:
        counts = sorted({*counts[:: math.ceil(len(counts) / _POINTS)], done, total})
    curve = tuple(composed(known, count) for count in counts)
    end = composed(known, total)
    lasts = None if limit is None or end.epsilon <= limit else _lasts(known, total, limit)
    return BudgetForecast(composed(known, done), curve, end, lasts, _typical(known).law is None)


@lru_cache(maxsize=4096)
def composed(spendings: tuple[Spending, ...], count: int) -> Spent:
    """The first ``count`` windows together; those beyond ``spendings`` cost what the cheapest
    of them did, which is the task's guarantee.
    """
    more = count - len(spendings)
    rows = [*spendings[:count], *(_typical(spendings) for _ in range(more))]
    together = compose_spendings(rows)
    return Spent(count, together.epsilon_upper, together.delta)


def _typical(spendings: tuple[Spending, ...]) -> Spending:
    """What a window costs that enough devices answer. One of too few is charged more, without a
    law.
    """
    return min(spendings, key=lambda each: (each.law is None, each.epsilon_upper))


def _steps(first: int, last: int) -> set[int]:
    """About ``_POINTS`` whole numbers from first to last, both among them."""
    return {first + round((last - first) * at / _POINTS) for at in range(_POINTS + 1)}


def _lasts(spendings: tuple[Spending, ...], most: int, limit: float) -> int:
    """The largest count below ``most`` that stays within the limit: what is composed of more
    windows is never less, so the first that does not is looked for by halving.
    """
    within, beyond = 0, most
    while beyond - within > 1:
        middle = (within + beyond) // 2
        if composed(spendings, middle).epsilon <= limit:
            within = middle
        else:
            beyond = middle
    return within
