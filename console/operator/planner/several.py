"""Several messages per device, on the Planner's page: what is asked, what is known so far, and the
frontier with the plan's single message as the page shows it.

It is worked out once the plan is final, behind all first answers: a protocol is a few dozen designs
for one error, some seconds each where epsilon is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.accuracy.central import Z95
from shoal.analyzer.planner.candidates import Unsuited
from shoal.analyzer.planner.frontier.lines import Frontier, FrontierLine, frontier
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import every_option, protocols
from shoal.analyzer.planner.question import Request
from shoal.analyzer.planner.result import Plan
from shoal.pictures.axes import number

ONE = "one"  # the choice of one message
_UP = 3  # digits of an error


@dataclass(frozen=True, slots=True)
class SeveralQuestion:
    """The same question, for several messages per device."""

    request: Request


@dataclass(frozen=True, slots=True)
class SeveralAnswer:
    """What is known so far: ``options``, the least epsilon first, and why there are no others;
    ``tried`` of ``of`` protocols.
    """

    options: tuple[SeveralOption, ...] = ()
    unsuited: tuple[Unsuited, ...] = ()
    tried: int = 0
    of: int = 0

    @property
    def done(self) -> bool:
        """Whether all were looked at."""
        return self.tried == self.of

    def beside(self, plan: Plan) -> Frontier:
        """With the single message that was planned for the same request."""
        return frontier(plan, (self.options, self.unsuited))


def several_answers(question: SeveralQuestion) -> Iterator[SeveralAnswer]:
    """One more protocol in each. Raises CONFIG for a question that none of them answers."""
    request = question.request
    known = SeveralAnswer(of=len(protocols(request, trusting=True)))
    for each in every_option(request, trusting=True):
        if isinstance(each, SeveralOption):
            options = sorted((*known.options, each), key=lambda option: option.epsilon)
            known = replace(known, options=tuple(options))
        else:
            known = replace(known, unsuited=(*known.unsuited, each))
        known = replace(known, tried=known.tried + 1)
        yield known


def key_of(line: FrontierLine) -> str:
    """What the form calls it."""
    return ONE if line.several is None else line.several.spec.name


def chosen_line(found: Frontier, key: str) -> FrontierLine | None:
    """The one that ``key`` names, the recommended one if it is empty; None if it isn't there, or
    trusts the shuffler: a task gets that by its name alone.
    """
    if not key:
        return found.recommended
    own = (line for line in found.lines if not line.trusts_shuffler)
    return next((line for line in own if key_of(line) == key), None)


def several_view(answer: SeveralAnswer, plan: Plan) -> dict[str, Any]:
    """Values for the template's part ``several``."""
    found = answer.beside(plan)
    best = found.recommended
    return {
        "rows": [_row(line, best) for line in found.lines],
        "tried": answer.tried,
        "of": answer.of,
        "done": answer.done,
        "best": best.title,
        "epsilon": best.epsilon,
        "single": best.several is None,
        "trusting": [line.title for line in found.lines if line.trusts_shuffler],
        "unsuited": answer.unsuited,
    }


def _row(line: FrontierLine, best: FrontierLine) -> dict[str, Any]:
    moved = line.moved_by_one
    return {
        "title": line.title,
        "note": _note(line, best),
        "error": number(float(bound_text(Z95 * line.error, digits=_UP))),
        "messages": f"{line.mean_messages:.2f}",
        "most": line.messages,
        "frame": line.frame_bytes,
        "radio": f"{line.radio_seconds:.2f}",
        "opening": number(float(f"{line.analyzer_seconds:.3g}")),
        "epsilon": line.epsilon,
        "epsilon0": line.epsilon0 if math.isfinite(line.epsilon0) else None,
        "moved": "not known" if math.isnan(moved)
        else "anything, unseen" if math.isinf(moved)
        else number(float(bound_text(moved, digits=_UP))),
    }  # fmt: skip


def _note(line: FrontierLine, best: FrontierLine) -> str:
    also = "" if line.several is None else _ranges(line.several)
    if line is best:
        return f"recommended: the least epsilon of those that trust nobody for the noise{also}"
    if line.trusts_shuffler:
        return "trusts the shuffler to add the noise; shown to compare"
    if line.several is None:
        return "one message per device, as planned above"
    beaten = f"{line.beaten_by} is as good in everything" if line.beaten_by else ""
    return (beaten + also).removeprefix("; ")


def _ranges(option: SeveralOption) -> str:
    """What else its release answers."""
    if option.range_error is None:
        return ""
    off = number(float(bound_text(Z95 * option.range_error, digits=_UP)))
    return f"; of any range of levels it counts the devices too, off by {off} or so"
