"""What a way to ask costs a device, honestly: of one window, a day, all windows that were really
run, and a year. Every figure is an upper bound.

Two onlookers are told apart. *Apart*: shuffler and analyzer do not work together, and what is seen
is batches. *Together*: they do, or nobody shuffles: every report is seen with its sender.

- Answers drawn anew add up: against both together epsilon0 for each window; apart the exact laws of
  losses of the windows are composed, at one delta for all of them.
- Answers that are kept cost epsilon0 of what is kept for each distinct value, against either
  onlooker once two windows were opened, since the batches that hide a report are the same ones
  (``accounting.composition.memoized``). A value that never changes is paid for once. *When* a value
  changed is not hidden, which no epsilon here says.
- Several messages: shuffler and analyzer together see the value itself: math.inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.accounting.accountant import simplest, upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.of_task import guaranteed, guaranteed_several
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.analyzer.planner.deployments.claims import DAYS
from shoal.mechanisms import Mechanism
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.several.protocol import Several
from shoal.privacy import epsilon0_upper


@dataclass(frozen=True, slots=True)
class EpsilonSpent:
    """Epsilons, upper bounds: of one ``window``, a ``day``, the windows of a ``run``, a
    ``year``.
    """

    window: float
    day: float
    run: float
    year: float

    def to_json(self) -> dict[str, float | None]:
        """None: nothing is promised."""
        figures = {"window": self.window, "day": self.day, "run": self.run, "year": self.year}
        return {name: each if math.isfinite(each) else None for name, each in figures.items()}


@dataclass(frozen=True, slots=True)
class HonestAccount:
    """``epsilon0``: of one report. ``apart``, ``together``: of a device whose value changes as
    often as it can. ``unchanged``: of one whose value never does, where devices keep their answers;
    against both together, and once two windows were opened apart too. ``n``, ``delta``: of a batch,
    all of it honest; each figure of ``apart`` holds at that delta.
    """

    epsilon0: float
    apart: EpsilonSpent
    together: EpsilonSpent
    unchanged: EpsilonSpent | None
    n: int
    delta: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; None for an infinite epsilon."""
        return {
            "epsilon0": self.epsilon0 if math.isfinite(self.epsilon0) else None,
            "apart": self.apart.to_json(),
            "together": self.together.to_json(),
            "unchanged": None if self.unchanged is None else self.unchanged.to_json(),
            "n": self.n,
            "delta": self.delta,
        }


def account(
    made: Mechanism | Several,
    cells: int,
    n: int,
    delta: float,
    *,
    windows: int,
    per_day: int,
    memoized: bool,
) -> HonestAccount:
    """Of a mechanism over a domain of ``cells``, in batches of ``n`` honest reports, ``per_day``
    windows a day, of which ``windows`` are run. Raises CONFIG or INVALID where nothing is proven.
    """
    rounds = (1, per_day, windows, DAYS * per_day)
    if isinstance(made, Several):
        bound = guaranteed_several(made, n, 1, delta)
        apart = [_several_over(made, n, delta, count, bound.epsilon_upper) for count in rounds]
        nothing = EpsilonSpent(math.inf, math.inf, math.inf, math.inf)
        together = nothing if math.isinf(made.epsilon0) else _times(made.epsilon0, rounds)
        return HonestAccount(made.epsilon0, EpsilonSpent(*apart), together, None, n, delta)
    law = made.privacy()
    first, single = epsilon0_upper(law), guaranteed(law, n, 1, delta).epsilon_upper
    if not memoized:
        losses = release_law(upper_curve, simplest(law), n, delta)
        apart = [
            single
            if count == 1
            else min(compose([(losses, count)], delta).epsilon_upper, count * first)
            for count in rounds
        ]
        return HonestAccount(first, EpsilonSpent(*apart), _times(first, rounds), None, n, delta)
    return _kept(made, cells, n, delta, first, single, rounds)


def _kept(
    made: Mechanism,
    cells: int,
    n: int,
    delta: float,
    first: float,
    single: float,
    rounds: tuple[int, int, int, int],
) -> HonestAccount:
    keys, life = cells, first
    if isinstance(made, Longitudinal):
        keys, life = min(cells, made.keys), epsilon0_upper(made.permanent())
    moving = [first if count == 1 else min(count, keys) * life for count in rounds]
    still = [first if count == 1 else life for count in rounds]
    apart = [single if count == 1 else each for count, each in zip(rounds, moving, strict=True)]
    return HonestAccount(
        first, EpsilonSpent(*apart), EpsilonSpent(*moving), EpsilonSpent(*still), n, delta
    )


def _times(epsilon: float, rounds: tuple[int, int, int, int]) -> EpsilonSpent:
    return EpsilonSpent(*(count * epsilon for count in rounds))


def _several_over(made: Several, n: int, delta: float, count: int, single: float) -> float:
    return single if count == 1 else epsilon_together(made, n, delta, count)
