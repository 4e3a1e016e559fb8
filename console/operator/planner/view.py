"""What the Planner's page shows of an answer: one sentence, figures, the chart, and a row for every
mechanism. Upper bounds are rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.accounting.meaning import bet, bound_text
from shoal.analyzer.planner.accuracy.answers import AccuracyAnswer, Reach, half_width
from shoal.analyzer.planner.accuracy.central import Z95, central
from shoal.analyzer.planner.question import Frequencies, Quantiles, Request, Sum
from shoal.analyzer.planner.result import Option
from shoal.console.operator.planner.chart import AccuracyChart, chart
from shoal.console.operator.planner.work import Worked
from shoal.console.words import odds, plural, size
from shoal.mechanisms import REGISTRY
from shoal.pictures.axes import number

_POINTS = 25  # of the central line
AGAIN_MS, _SOON_MS = 500, 100


def view(request: Request, worked: Worked[AccuracyAnswer]) -> dict[str, Any]:
    """Values for the template's part ``answer``."""
    answer = worked.answer
    shown: dict[str, Any] = {
        "wanted": wanted(request),
        "trouble": worked.trouble,
        "coarse": not worked.over,
        "again_ms": None if worked.over else AGAIN_MS if answer and answer.options else _SOON_MS,
        "tried": 0 if answer is None else answer.tried,
        "of": 0 if answer is None else answer.of,
        "reach": None if answer is None or answer.reach is None else _reach(request, answer.reach),
        "found": None,
        "several": None,
        "several_trouble": None,
        "several_over": False,
    }
    if answer is not None and answer.options:
        shown["found"] = _found(request, answer)
    return shown


def unit(request: Request) -> str:
    """With a blank before it, where there is one."""
    word = request.question.unit
    return f" {word}" if word else ""


def error_text(request: Request, error: float) -> str:
    """Rounded up, with its share of the devices where devices are counted."""
    text = f"{number(float(bound_text(error, digits=3)))}{unit(request)}"
    if isinstance(request.question, Frequencies):
        text += f" ({bound_text(100.0 * error / request.n, digits=2)} %)"
    return text


def wanted(request: Request) -> str:
    """What the figures are to be, in words."""
    question, error = request.question, Z95 * (request.error or 0.0)
    what = (
        "every count" if isinstance(question, Frequencies)
        else _quantiles(question) if isinstance(question, Quantiles)
        else "the sum" if isinstance(question, Sum) else "the mean"
    )  # fmt: skip
    return f"{what} within {error_text(request, error)} of the truth, 95 times in a hundred"


def _quantiles(question: Quantiles) -> str:
    """ "the median", or "each of the 25 %, 50 % and 75 % quantiles"."""
    if question.at == (0.5,):
        return "the median"
    named = [f"{100.0 * share:g} %" for share in question.at]
    if len(named) == 1:
        return f"the {named[0]} quantile"
    return f"each of the {', '.join(named[:-1])} and {named[-1]} quantiles"


def _reach(request: Request, reach: Reach) -> dict[str, Any]:
    return {
        "error": error_text(request, reach.error),
        "devices": reach.devices,
        "cap": request.most_epsilon0,
    }


def _found(request: Request, answer: AccuracyAnswer) -> dict[str, Any]:
    choice = answer.options[0] if answer.plan is None else answer.plan.choice
    epsilon, delta = choice.epsilon_upper, request.delta
    total, total_delta, upper = epsilon, delta, False
    made = None if answer.plan is None else answer.plan.repeated
    if request.windows > 1:
        upper = made is None
        total = request.windows * epsilon if made is None else made.fresh_central
        total_delta = min(0.999, request.windows * delta) if made is None else made.central_delta
    anew, left = total, choice.epsilon0
    if answer.kept is not None:
        total, total_delta, left = answer.kept, 0.0, answer.kept
    return {
        "bet": bet(total, total_delta, request.windows),
        "memoized": request.memoized,
        "anew": None if upper else anew,
        "changes": request.changes,
        "smooth": isinstance(request.question, Quantiles),
        "heaped": None if answer.heaped is None else error_text(request, answer.heaped),
        "epsilon": epsilon,
        "odds": odds(epsilon, delta),
        "delta": delta,
        "windows": request.windows,
        "total": total,
        "total_delta": total_delta,
        "upper": upper,
        "together": (left, odds(left, 0.0)),
        "choice": choice.candidate.title,
        "summary": choice.candidate.summary,
        "sends": f"{plural(choice.messages, 'message')} of {size(choice.message_bytes)}",
        "frame": choice.frame_bytes,
        "central": _central(request, choice),
        "honest": request.n_honest,
        "rows": _rows(answer, choice),
        "chart": _chart(request, answer, choice),
        "unsuited": [] if answer.plan is None else answer.plan.unsuited,
    }


def _central(request: Request, choice: Option) -> tuple[str, str] | None:
    """None of quantiles: how well a curator does depends on how close others' numbers lie."""
    if isinstance(request.question, Quantiles):
        return None
    line = central(request.question, request.n, choice.epsilon_upper, request.delta)
    return error_text(request, line.error) if line.error > 0.0 else "nothing", line.noise


def _rows(answer: AccuracyAnswer, choice: Option) -> list[Mapping[str, Any]]:
    reasons = (
        {}
        if answer.plan is None
        else {option.candidate: option.reason for option in answer.plan.others}
    )
    return [
        {
            "number": at,
            "title": choice.candidate.title if at == 1 else option.candidate.title,
            "summary": REGISTRY[option.candidate.mechanism].summary,
            "epsilon": choice.epsilon_upper if at == 1 else option.epsilon_upper,
            "epsilon0": option.epsilon0,
            "messages": option.messages,
            "bytes": option.report_bytes,
            "frame": option.frame_bytes,
            "reason": "" if at == 1 else reasons.get(option.candidate, ""),
        }
        for at, option in enumerate(answer.options, 1)
    ]


def _chart(request: Request, answer: AccuracyAnswer, choice: Option) -> AccuracyChart:
    curves = [
        [(point.epsilon, point.error) for point in answer.curves[name].points]
        if name in answer.curves
        else []
        for name in (option.candidate.mechanism for option in answer.options)
    ]
    epsilon = choice.epsilon_upper
    steps = [epsilon * 12.0 ** (2.0 * i / (_POINTS - 1) - 1.0) for i in range(_POINTS)]
    line = [
        (each, error)
        for each in (() if isinstance(request.question, Quantiles) else steps)
        if (error := central(request.question, request.n, each, request.delta).error) > 0.0
    ]
    return chart(curves, line, (epsilon, half_width(choice)))
