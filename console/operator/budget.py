"""The page Budget: what every question has spent over its windows, and how long a limit lasts."""

from __future__ import annotations

import math
import urllib.parse
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shoal.accounting.meaning import bound_text
from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.analyzer.results.questions import spent_by_question
from shoal.console.operator import services
from shoal.console.operator.charts import BudgetCurve, curve
from shoal.console.operator.desk import Desk, Fields, asked
from shoal.console.operator.forecast import BudgetForecast, Spent, forecast
from shoal.console.operator.holdings import Holdings, ReleasedQuestion
from shoal.console.operator.limit import LARGEST, LEAST
from shoal.console.signin.visitors import Visitor, operator_of, visitor_of
from shoal.console.web import NavItem
from shoal.console.words import day, odds, plural
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

NAVIGATION = NavItem("Budget", "/budget")
_KEEP = f"{NAVIGATION.path}/limit"
_AHEAD = 12  # windows that a forecast looks ahead where no task says how many there are


@dataclass(frozen=True, slots=True)
class Account:
    """One question's budget, as the page shows it. ``planned``: windows in all, None where its task
    can't be read. ``verdict``: whether the limit lasts, in one sentence. ``devices``: what it costs
    each device's own budget.
    """

    question: ReleasedQuestion
    forecast: BudgetForecast
    planned: int | None
    odds: str
    verdict: str
    devices: str
    curve: BudgetCurve


def routes(desk: Desk) -> list[BaseRoute]:
    """One page; a limit may be tried in it."""

    def budget(request: Request) -> Response:
        fields = asked(request)
        kept = desk.limit.read()
        given = fields.values.get("limit", "" if kept is None else f"{kept:g}").strip()
        fields = Fields({**fields.values, "limit": given})
        limit = fields.number("limit", LEAST, LARGEST, 0.0) if given else 0.0
        accounts, together = desk.once(
            ("budget", limit), lambda held: (_accounts(held, limit), _together(held))
        )
        told = services.windows(desk.status("shuffler").value, desk.status("analyzer").value)
        return desk.page(
            request,
            "budget.html.j2",
            accounts=accounts,
            versions=desk.once(("versions",), versions),
            given_up={each.task_id: each for each in told if each.given_up},
            limit=given,
            kept=kept,
            keeps=desk.limit.path is not None and _acts(request),
            wrong=fields.wrong,
            together=together,
        )

    async def keep(request: Request) -> Response:
        visitor = operator_of(request)
        sent = urllib.parse.parse_qs((await request.body()).decode("ascii", "replace"))
        fields = Fields({name: values[-1] for name, values in sent.items()})
        given = fields.text("limit").strip()
        limit = fields.number("limit", LEAST, LARGEST, 0.0) if given else None
        if fields.wrong:
            raise ShoalError(Kind.INVALID, f"limit: {fields.wrong['limit']}, or nothing for none")
        await run_in_threadpool(_set, desk, visitor, limit)
        return RedirectResponse(NAVIGATION.path, 303)

    return [Route(NAVIGATION.path, budget), Route(_KEEP, keep, methods=["POST"])]


def versions(holdings: Holdings, name: str | None = None) -> list[dict[str, Any]]:
    """What ``shoal results spent`` shows: by question, over all versions of its task; or of the one
    question of that ``name`` alone, which is quicker.
    """
    names = {TaskId.parse(each.task_id): each.name for each in holdings.questions}
    of_it = [each for each in holdings.spendings if name is None or names.get(each.task_id) == name]
    return spent_by_question(of_it, names)


def _set(desk: Desk, visitor: Visitor, limit: float | None) -> None:
    before = desk.limit.read()
    desk.gate.tell("sets the limit", visitor, before=_told(before), after=_told(limit))
    desk.limit.write(limit)


def _told(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:g}"


def _acts(request: Request) -> bool:
    visitor = visitor_of(request)
    return visitor is not None and visitor.acts


def _accounts(holdings: Holdings, limit: float) -> list[Account]:
    spent: dict[str, list[Spending]] = {}
    for each in holdings.spendings:
        spent.setdefault(each.task_id.hex, []).append(each)
    return [
        _account(question, spent[question.task_id], limit or None)
        for question in holdings.questions
        if question.task_id in spent
    ]


def _together(holdings: Holdings) -> tuple[Spent, str] | None:
    if not holdings.spendings:
        return None
    all_of_it = compose_spendings(holdings.spendings)
    spent = Spent(len(holdings.spendings), all_of_it.epsilon_upper, all_of_it.delta)
    return spent, _odds(spent)


def _odds(spent: Spent) -> str:
    return "always" if not _promised(spent) else odds(spent.epsilon, spent.delta)


def _promised(spent: Spent) -> bool:
    return math.isfinite(spent.epsilon) and spent.delta < 1.0


def _account(question: ReleasedQuestion, spent: list[Spending], limit: float | None) -> Account:
    task = question.task
    planned = None if task is None else task.windows.count
    made = forecast(spent, len(spent) + _AHEAD if planned is None else planned, limit)
    return Account(
        question,
        made,
        planned,
        _odds(made.spent),
        _verdict(question, made, planned, limit),
        _devices(question, planned),
        curve(
            [(each.windows, each.epsilon) for each in made.curve if math.isfinite(each.epsilon)],
            made.spent.windows,
            limit,
        ),
    )


def _verdict(
    question: ReleasedQuestion, made: BudgetForecast, planned: int | None, limit: float | None
) -> str:
    about = "at most, by an upper estimate, " if made.upper else ""
    whole = f"{plural(made.end.windows, 'window')} in all"
    if not _promised(made.spent):
        return "something that was opened has no bound any more: nothing is promised"
    if limit is None:
        end = bound_text(made.end.epsilon)
        reach = "planned" if planned is not None else "if it goes on"
        return f"{whole} {reach}: {about}epsilon {end} together"
    if made.spent.epsilon > limit:
        return f"the limit of {limit:g} is used up: {bound_text(made.spent.epsilon)} is spent"
    left = bound_text(limit - made.spent.epsilon, up=False)
    if made.lasts is None and made.end.windows == made.spent.windows:
        return f"{left} of {limit:g} is left, and no more windows are planned"
    if made.lasts is None:
        return (
            f"{left} of {limit:g} is left, which lasts for {whole}: together "
            f"{about}epsilon {bound_text(made.end.epsilon)}"
        )
    more = made.lasts - made.spent.windows
    when = ""
    if question.task is not None:
        when = f", on {day(question.task.windows.start_of(made.lasts))}"
    return (
        f"{left} of {limit:g} is left, which lasts for {plural(more, 'more window')}: window "
        f"{made.lasts}{when}, would go beyond it"
    )


def _devices(question: ReleasedQuestion, planned: int | None) -> str:
    """Of the owners' own budgets (``lifetime_epsilon``), which count what each report lets through
    by itself.
    """
    privacy = question.latest["privacy"]
    epsilon0 = privacy["epsilon0"]
    if epsilon0 is None:
        return "the noise is shared: a device by itself is promised nothing"
    if "memoized" in privacy:
        return f"epsilon0 {bound_text(privacy['memoized']['lifetime_epsilon'])} once per value"
    each = f"epsilon0 {bound_text(epsilon0)} in each window"
    return (
        each if planned is None else f"{each}, {bound_text(epsilon0 * planned)} for all that answer"
    )
