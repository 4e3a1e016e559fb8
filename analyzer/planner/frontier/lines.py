"""One frontier over mechanisms of one message and of several: what each line errs by, costs, and
leaves where somebody does not keep to the rules.

Of one message there is one line, the plan's choice: what beats it in anything is in the plan's own
table. The recommended line is the one that errs least, or where an error was asked for, the one
that reaches it with the least epsilon. Whoever asks for a frontier says that owners
may be asked by name for tasks that have no epsilon0, and not that they trust a shuffler to add the
noise: such a line is there to compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from shoal.analyzer.planner.candidates import Unsuited
from shoal.analyzer.planner.frontier.costs import analyzer_seconds, moved_by_one, radio_seconds
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import least_worthwhile
from shoal.analyzer.planner.result import Plan
from shoal.mechanisms import create

_NEAR = 0.99  # of a target error: what reaches it with a little to spare gains nothing by that


@dataclass(frozen=True, slots=True)
class FrontierLine:
    """A way to answer a request.

    ``several``: what it is of several messages, None for the plan's choice. ``epsilon``: what the
    analyzer alone learns of one device in a release, upper bound. ``epsilon0``: what shuffler and
    analyzer learn together; math.inf: the answer itself. ``error``: standard error, in the
    question's unit. ``mean_messages``, ``messages``: of a report, on average and at most.
    ``radio_seconds``: of a device in one window; ``analyzer_seconds``: CPU for a batch.
    ``moved_by_one``: how far a device that lies moves one estimate, at most; math.inf: anywhere,
    math.nan: not known. ``beaten_by``: the title of a line that is as good in everything, or "".
    ``trusts_shuffler``: the shuffler adds the noise, and nobody can tell whether it does.
    """

    title: str
    several: SeveralOption | None
    epsilon: float
    epsilon0: float
    error: float
    mean_messages: float
    messages: int
    frame_bytes: int
    radio_seconds: float
    analyzer_seconds: float
    moved_by_one: float
    beaten_by: str = ""
    trusts_shuffler: bool = False

    def beats(self, other: FrontierLine, target: float | None = None) -> bool:
        """Whether it is as good in everything, and better in something. ``target``: the error that
        was asked for; then epsilon counts too, and errors near it are alike.
        """
        mine, others = self._costs(target), other._costs(target)
        return all(a <= b for a, b in zip(mine, others, strict=True)) and mine != others

    def _costs(self, target: float | None) -> tuple[float, ...]:
        moved = math.inf if math.isnan(self.moved_by_one) else self.moved_by_one
        near = target is not None and self.error > _NEAR * target
        return (
            target if target is not None and near else self.error,
            0.0 if target is None else self.epsilon,
            self.epsilon0,
            self.mean_messages,
            self.messages,
            self.frame_bytes,
            moved,
            self.trusts_shuffler,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. None: an infinite epsilon0; ``moved_by_one`` where it is not known, or
        anything (``moved_anywhere``).
        """
        return {
            "title": self.title,
            "several_messages": self.several is not None,
            "error": self.error,
            "epsilon_upper": self.epsilon,
            "epsilon0": _finite(self.epsilon0),
            "mean_messages": self.mean_messages,
            "messages": self.messages,
            "frame_bytes": self.frame_bytes,
            "radio_seconds": self.radio_seconds,
            "analyzer_seconds": self.analyzer_seconds,
            "moved_by_one": _finite(self.moved_by_one),
            "moved_anywhere": math.isinf(self.moved_by_one),
            "trusts_shuffler": self.trusts_shuffler,
            "beaten_by": self.beaten_by or None,
        }


@dataclass(frozen=True, slots=True)
class Frontier:
    """``lines``: the least error first, the plan's choice among them; with ``for_error``, which was
    the target, the least epsilon first. ``epsilon0``: asked for, if shuffler and analyzer work
    together; ``worthwhile``: from which on that is a good trade.
    """

    lines: tuple[FrontierLine, ...]
    unsuited: tuple[Unsuited, ...]
    epsilon0: float | None
    worthwhile: float
    for_error: bool = False

    @property
    def recommended(self) -> FrontierLine:
        """The first one, within the request's limits, that trusts nobody for the noise."""
        return next(line for line in self.lines if not line.trusts_shuffler)

    @property
    def options(self) -> tuple[SeveralOption, ...]:
        """Those of several messages, in the order of the lines."""
        return tuple(line.several for line in self.lines if line.several is not None)

    def to_json(self) -> dict[str, Any]:
        """What ``shoal plan --json`` adds to a plan."""
        drawn = {} if self.epsilon0 is None else {_WORTHWHILE: self.worthwhile}
        return {
            "several_messages": drawn
            | {
                "options": [option.to_json() for option in self.options],
                "unsuited": [
                    {"mechanism": each.mechanism, "reason": each.reason} for each in self.unsuited
                ],
            },
            "frontier": [line.to_json() for line in self.lines],
            "recommended": self.recommended.to_json(),
        }


_WORTHWHILE = "least_worthwhile_epsilon0_if_colluding"


def frontier(
    plan: Plan,
    several: tuple[tuple[SeveralOption, ...], tuple[Unsuited, ...]],
    epsilon0_if_colluding: float | None = None,
) -> Frontier:
    """Of a plan, and what ``several_options`` found for the request that it was made for."""
    options, unsuited = several
    target = plan.request.error
    # of lines that do alike the plan's choice, which comes first
    every = sorted(
        (_of_choice(plan), *map(_of_several, options)),
        key=lambda line: line.error if target is None else line.epsilon,
    )
    lines = tuple(replace(line, beaten_by=_better(line, every, target)) for line in every)
    worthwhile = least_worthwhile(plan.request.n)
    return Frontier(lines, unsuited, epsilon0_if_colluding, worthwhile, target is not None)


def _better(line: FrontierLine, every: list[FrontierLine], target: float | None) -> str:
    better = (other.title for other in every if other.beats(line, target))
    return next(better, "")


def _of_choice(plan: Plan) -> FrontierLine:
    choice, request = plan.choice, plan.request
    if choice.errors is None or choice.spec is None:
        raise TypeError("a choice has errors and integers")
    made = create(choice.spec, choice.candidate.domain)
    return FrontierLine(
        choice.candidate.title,
        None,
        choice.epsilon_upper,
        choice.epsilon0,
        choice.errors.ranked,
        float(choice.messages),
        choice.messages,
        choice.frame_bytes,
        radio_seconds(choice.frame_bytes),
        analyzer_seconds(request.n * choice.messages),
        moved_by_one(request.question, made, choice.errors, request.n),
    )


def _of_several(option: SeveralOption) -> FrontierLine:
    return FrontierLine(
        option.title,
        option,
        option.epsilon,
        option.epsilon0,
        option.error,
        option.mean_messages,
        option.messages,
        option.frame_bytes,
        option.radio_seconds,
        option.analyzer_seconds,
        option.moved_by_one,
        trusts_shuffler=option.trusts_shuffler,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
