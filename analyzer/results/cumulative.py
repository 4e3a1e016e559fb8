"""What everything that an analyzer ever opened gives away together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shoal.accounting.composition.basic import Composed, compose_basic
from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.loss_bytes import from_bytes
from shoal.accounting.composition.losses import LossLaw, pure_law
from shoal.accounting.sums.skellam import rounds_epsilon
from shoal.accounting.sums.spent import from_bytes as sum_spent
from shoal.analyzer.records import Spending
from shoal.errors import ShoalError
from shoal.ids import TaskId

COMPOSED = (
    "the cumulative figures compose every batch that this analyzer opened so far, withheld ones "
    "too, as if the same devices had"
    " answered in all of them, each time with fresh randomness, and stand on the assumptions of"
    " each of them"
)
COMPOSED_MEMOIZED = (
    "memoized tasks are the exception: of each of them, once two of its windows were opened, the "
    "cumulative figures count epsilon0 for all"
    " its windows together (of a mechanism with a memory: the lifetime epsilon), of a device whose "
    "value did not change; each further"
    " distinct value adds as much, and that the value changed is not hidden"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """One summand: (epsilon, delta), and its law where there is one."""

    epsilon_upper: float
    delta: float
    law: bytes | None = None


def compose_spendings(spendings: Sequence[Spending]) -> Composed:
    """All batches together, at the sum of their deltas: the smaller of the sum of epsilons and of
    the composition of their losses.

    A memoized task of which one window was opened counts like any other. Of two windows or more
    nothing of what they were charged is composed (their reports are the same ones): the task counts
    once, with its lifetime epsilon0, at delta = 0.
    """
    parts = _parts(spendings)
    # damaged, and nobody knows what it cost: nothing is promised
    if any(math.isinf(part.epsilon_upper) for part in parts):
        return Composed(math.inf, min(1.0, math.fsum(part.delta for part in parts)), len(spendings))
    try:
        added = compose_basic(parts)
    except ShoalError:
        # The deltas add up to 1: nothing is promised any more. (epsilon, 1) holds for every
        # epsilon, and says so.
        return Composed(math.fsum(part.epsilon_upper for part in parts), 1.0, len(spendings))
    try:
        together = min(_of_losses(parts, added.delta), _of_sums(parts, added.delta))
    except ShoalError:
        # more batches than can be composed, or a law of another version: the sum holds all the same
        together = math.inf
    return Composed(min(added.epsilon_upper, together), added.delta, len(spendings))


def _of_losses(parts: Sequence[_Part], delta: float) -> float:
    """By their laws of losses; windows of sums by their (epsilon, delta)."""
    kinds: Counter[tuple[bytes | None, float | None, float | None]] = Counter()
    for part in parts:
        if part.law and sum_spent(part.law) is None:
            kinds[part.law, None, None] += 1
        else:
            kinds[None, part.epsilon_upper, part.delta] += 1
    return compose(
        [(_loss_law(*kind), count) for kind, count in kinds.items()], delta
    ).epsilon_upper


def _of_sums(parts: Sequence[_Part], delta: float) -> float:
    """By Renyi divergences, where all of them are windows of sums; else math.inf."""
    rounds = Counter(sum_spent(part.law) if part.law else None for part in parts)
    known = [(one, count) for one, count in rounds.items() if one is not None]
    return math.inf if None in rounds else rounds_epsilon(known, delta)


def composed_words(spendings: Iterable[Spending]) -> list[str]:
    """What the cumulative figures stand on."""
    return (
        [COMPOSED, COMPOSED_MEMOIZED]
        if any(spending.lifetime is not None for spending in spendings)
        else [COMPOSED]
    )


def _parts(spendings: Sequence[Spending]) -> list[_Part]:
    """What may be composed as if it were independent."""
    parts: list[_Part] = []
    repeated: dict[TaskId, list[Spending]] = {}
    for spending in spendings:
        if spending.lifetime is None:
            parts.append(_Part(spending.epsilon_upper, spending.delta, spending.law))
        else:
            repeated.setdefault(spending.task_id, []).append(spending)
    for windows in repeated.values():
        if len(windows) == 1:
            parts.append(_Part(windows[0].epsilon_upper, windows[0].delta, windows[0].law))
        else:
            parts.append(_Part(max(spending.lifetime or 0.0 for spending in windows), 0.0))
    return parts


@lru_cache(maxsize=1024)
def _loss_law(law: bytes | None, epsilon: float | None, delta: float | None) -> LossLaw:
    """A batch's own law, or the one that dominates everything of its (epsilon, delta)."""
    return from_bytes(law) if law else pure_law(epsilon or 0.0, delta or 0.0)
