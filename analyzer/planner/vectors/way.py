"""One way to ask for the mean of vectors, and the plan that compares all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.planner.result import Standing
from shoal.analyzer.planner.vectors.asked import VectorRequest
from shoal.domain import Vector
from shoal.secagg import PairwisePlan
from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True)
class VectorWay:
    """``name``: of ``WAYS``; ``title`` has the setting too. What is nan or 0 was not computed,
    and ``reason`` says why.

    ``error``: standard error of a coordinate of the mean over ``n`` devices, in the domain's unit,
    root mean square over the coordinates; of vectors as long as the clip, which is the largest for
    ``privunit``. ``epsilon``: proven, of one window; ``together``: of all. ``epsilon0``: what is
    left if shuffler and analyzer work together, inf for the vector itself. ``target``: what a task
    file says. ``report_bytes``: before sealing. ``visits``: calls of a device. ``rounds``: sums of
    a window, 1 where reports are shuffled.
    """

    name: str
    title: str
    standing: Standing
    reason: str
    error: float = math.nan
    epsilon: float = math.nan
    together: float = math.nan
    epsilon0: float = math.nan
    target: float = math.nan
    report_bytes: int = 0
    visits: int = 1
    rounds: int = 1
    domain: Vector | None = None
    spec: MechanismSpec | None = None
    plan: PairwisePlan | None = None

    @property
    def possible(self) -> bool:
        """Whether it keeps what was asked."""
        return self.spec is not None and self.standing is not Standing.OVER_LIMIT

    def to_json(self) -> dict[str, Any]:
        """For programs: numbers that were not computed are null, as is an infinite epsilon0."""
        return {
            "way": self.name,
            "title": self.title,
            "standing": str(self.standing),
            "reason": self.reason,
            "stderr": _finite(self.error),
            "epsilon": _finite(self.epsilon),
            "epsilon_of_all_windows": _finite(self.together),
            "epsilon0": _finite(self.epsilon0),
            "report_bytes": self.report_bytes or None,
            "visits": self.visits,
            "rounds": self.rounds,
            "parameters": None if self.spec is None else dict(self.spec.parameters),
            "noise_or_mechanism": None if self.spec is None else self.spec.name,
        }


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """``chosen``: the least error of those that keep the limits; ``others`` in order of error."""

    request: VectorRequest
    chosen: VectorWay
    others: tuple[VectorWay, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        request = self.request
        return {
            "question": "vectors",
            "dimension": request.dimension,
            "norm": request.norm.name.lower(),
            "clip": request.clip,
            "unit": request.unit,
            "n": request.n,
            "min_batch": request.smallest_batch,
            "honest_fraction": float(request.honest),
            "epsilon": request.epsilon,
            "delta": request.delta,
            "windows": request.windows,
            "choice": self.chosen.to_json(),
            "alternatives": [each.to_json() for each in self.others],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
