"""A plan: what was chosen, its certificate, and every alternative with the reason why it loses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shoal.accounting.guarantee import Guarantee
from shoal.analyzer.planner.candidates import Candidate, Unsuited
from shoal.analyzer.planner.predict import Errors
from shoal.analyzer.planner.question import Quantiles, Request
from shoal.domain import Numeric
from shoal.task import MechanismSpec


class Standing(StrEnum):
    """What became of a candidate in the comparison. The values are part of the plan's JSON."""

    CHOSEN = "chosen"
    LOSES = "loses"
    OVER_LIMIT = "over the limit"  # it was not compared
    # at an epsilon0 above what could be proven it errs too much already: no more was computed
    BEATEN = "beaten"
    NOT_TRIED = "not tried"  # its like with other numbers of levels was beaten by far
    IMPOSSIBLE = "impossible"  # no epsilon0 of it does what is asked


@dataclass(frozen=True, slots=True)
class Option:
    """One candidate with its integers. What is missing (``spec``, ``errors``, ...) was not
    computed, ``reason`` says why.

    ``epsilon_upper``: proven central epsilon, at most the target; where an error was asked for, the
    epsilon that this error costs. ``settled``: False if the search for epsilon0 was cut short,
    since even ``best_case`` (the smaller of the ranked errors at a proven epsilon0 and at one at
    most 2 % above it that is *not* proven) loses; ``errors`` are those of the proven one.
    ``best_case`` is nan where nothing bounds it: the setting picks another integer thereabouts (of
    hash values, say), and its errors jump. ``message_bytes``: of one message; ``frame_bytes``: what
    a device sends, sealed and padded, in the default suite.
    """

    candidate: Candidate
    standing: Standing
    reason: str
    spec: MechanismSpec | None = None
    epsilon0: float = math.nan
    epsilon_upper: float = math.nan
    errors: Errors | None = None
    best_case: float = math.nan
    settled: bool = True
    messages: int = 0
    message_bytes: int = 0
    frame_bytes: int = 0

    @property
    def report_bytes(self) -> int:
        """Of all messages of one report, before sealing."""
        return self.messages * self.message_bytes

    def to_json(self, shown: tuple[str, str]) -> dict[str, Any]:
        """``shown``: ``Question.shown``."""
        light, heavy = shown
        value: dict[str, Any] = {
            "mechanism": self.candidate.mechanism,
            "setting": self.candidate.setting,
            "standing": str(self.standing),
            "reason": self.reason,
        }
        if isinstance(self.candidate.domain, Numeric):
            value["levels"] = self.candidate.domain.levels
        if self.spec is not None and self.errors is not None:
            value |= {
                "parameters": dict(self.spec.parameters),
                "epsilon0": self.epsilon0,
                "epsilon_upper": self.epsilon_upper,
                "error": self.errors.ranked,
                f"error_{light}": self.errors.light,
                f"error_{heavy}": self.errors.heavy,
                "settled": self.settled,
                "messages": self.messages,
                "message_bytes": self.message_bytes,
                "frame_bytes": self.frame_bytes,
            }
        return value


@dataclass(frozen=True, slots=True)
class Repeated:
    """What ``windows`` releases of each of ``tasks`` alike tasks about the same devices add up to,
    drawn anew in each and memoized; a value changes ``changes`` times.

    ``first_epsilon0``: local epsilon of one report. ``fresh_epsilon0``: of all reports drawn anew,
    against shuffler and analyzer together; ``fresh_central``: central epsilon of all their releases
    together, at ``central_delta``. ``kept_epsilon0``: of all reports, where the device keeps its
    permanent answers: ``permanent_epsilon0`` for each distinct value, of which there are ``values``
    at most (or as many as the mechanism tells apart); no central figure is claimed of them
    (docs/ACCOUNTING.md). None where a report can't be memoized.
    """

    windows: int
    changes: int
    memoized: bool
    first_epsilon0: float
    fresh_epsilon0: float
    fresh_central: float
    central_delta: float
    values: int
    permanent_epsilon0: float
    kept_epsilon0: float | None
    tasks: int = 1

    @property
    def lifetime_epsilon0(self) -> float | None:
        """Of what was asked for."""
        return self.kept_epsilon0 if self.memoized else self.fresh_epsilon0

    @property
    def central_epsilon(self) -> float | None:
        """Of what was asked for; None where none is claimed."""
        return None if self.memoized else self.fresh_central

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``shoal plan --json`` prints them; epsilons are upper bounds."""
        return {
            "windows": self.windows,
            "tasks": self.tasks,
            "changes": self.changes,
            "memoized": self.memoized,
            "first_epsilon0": self.first_epsilon0,
            "lifetime_epsilon0": self.lifetime_epsilon0,
            "central_epsilon": self.central_epsilon,
            "central_delta": self.central_delta,
            "fresh": {
                "lifetime_epsilon0": self.fresh_epsilon0,
                "central_epsilon": self.fresh_central,
            },
            "kept": {
                "values": self.values,
                "permanent_epsilon0": self.permanent_epsilon0,
                "lifetime_epsilon0": self.kept_epsilon0,
            },
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """``choice`` and ``others``, best first; ``guarantee`` is the choice's. ``least_batch``: the
    smallest min_batch that certifies the target with the choice as it stands (min_batch itself, to
    0.1 %, unless epsilon0 was capped by a limit). ``asked``: the epsilon of all windows and tasks
    together that was asked for; the request's is then the one of a window that was found for it.
    """

    request: Request
    choice: Option
    guarantee: Guarantee
    others: tuple[Option, ...]
    unsuited: tuple[Unsuited, ...]
    least_batch: int
    repeated: Repeated | None = None
    asked: float | None = None

    @property
    def options(self) -> tuple[Option, ...]:
        """Every candidate that was looked at, the chosen one first."""
        return (self.choice, *self.others)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``shoal plan --json`` prints them."""
        request = self.request
        shown = request.question.shown
        return {
            "question": request.question.what,
            "n": request.n,
            "min_batch": request.min_batch,
            "least_batch": self.least_batch,
            "honest_fraction": float(request.honest_fraction),
            "delta": request.delta,
            "target_epsilon": request.epsilon if self.asked is None else self.asked,
            "target_epsilon_per_window": request.epsilon,
            "target_error": request.error,
            "unit": request.question.unit,
            **(
                {"shape": str(request.question.shape)}
                if isinstance(request.question, Quantiles)
                else {}
            ),
            "choice": self.choice.to_json(shown),
            "certificate": self.guarantee.to_json(),
            "repeated": None if self.repeated is None else self.repeated.to_json(),
            "others": [option.to_json(shown) for option in self.others],
            "unsuited": [
                {"mechanism": each.mechanism, "reason": each.reason} for each in self.unsuited
            ],
        }
