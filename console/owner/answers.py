"""The page Answers: every window that this device answered, what it sent, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.entry_words import details
from shoal.clients.owner.explain_draws import drawn_label
from shoal.console.owner.leaves import MOST, Leaf, number_of
from shoal.console.web import NavItem
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.clients.agent import Agent, ReportOutcome
    from shoal.clients.core import Assignment
    from shoal.clients.memory.ledger import Stored
    from shoal.console.owner.desk import OwnDesk
    from shoal.ids import TaskId

NAVIGATION = NavItem("Answers", "/answers")
_AT_ONCE = 500  # entries of the ledger that are read
_ANSWERED = f'"event":"{LedgerEvent.REPORTED.value}"'.encode()  # as bodies of entries have it
_STATES = {
    ReportState.QUEUED: ("waits", "warn"),
    ReportState.ACKED: ("delivered", "good"),
    ReportState.REFUSED: ("refused", "bad"),
    ReportState.UNKNOWN: ("unknown: counts once or not at all", "warn"),
    ReportState.WITHDRAWN: ("withdrawn", ""),
    ReportState.NOT_ASKED: ("not asked of this device", ""),
}


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """One page."""

    async def answers(request: Request) -> Response:
        async with desk.agent() as agent:
            outcomes = await agent.outcomes()
            total = len(outcomes)
            last = min(number_of(request.query_params.get("to", "")) or total, total)
            leaf = Leaf(NAVIGATION.path, last, total)
            shown = outcomes[max(0, last - MOST) : last]
            told = await agent.memory.run(partial(_told, agent, shown))
            tasks = {one.task_id: agent.tasks.get(one.task_id) for one in shown}
        rows = [
            _row(one, told.get((one.task_id, one.window), []), tasks[one.task_id])
            for one in reversed(shown)
        ]
        return desk.page(request, "answers.html.j2", rows=rows, leaf=leaf)

    return [Route(NAVIGATION.path, answers)]


def _told(
    agent: Agent, shown: Sequence[ReportOutcome]
) -> dict[tuple[TaskId, int], list[tuple[str, str]]]:
    """What the ledger has of these answers, in words. The true value is there only where its owner
    had it kept.
    """
    wanted = {(one.task_id, one.window) for one in shown}
    told: dict[tuple[TaskId, int], list[tuple[str, str]]] = {}
    for row in _entries(agent) if wanted else ():
        if not isinstance(row.body, bytes) or _ANSWERED not in row.body:
            continue
        try:
            entry = row.entry
        except ShoalError:  # damaged: the page Ledger names it
            continue
        if entry.task_id is not None and entry.window is not None:
            key = entry.task_id, entry.window
            if key in wanted:
                told[key] = details(entry)
    return told


def _entries(agent: Agent) -> Iterator[Stored]:
    """All of the ledger, some at a time."""
    after = 0
    while some := agent.memory.commitments.entries(after, _AT_ONCE):
        yield from some
        after = some[-1].number


def _row(
    outcome: ReportOutcome, told: list[tuple[str, str]], assignment: Assignment | None
) -> dict[str, Any]:
    state, mark = _STATES[outcome.state]
    why = outcome.message or (outcome.kind.name.lower().replace("_", " ") if outcome.kind else "")
    words = dict(told)
    return {
        "task": outcome.task,
        "id": outcome.task_id.hex,
        "window": outcome.window,
        "state": state,
        "mark": mark,
        "why": "" if outcome.state is ReportState.ACKED else why,
        "sent": words.get("sent", ""),
        "says": "" if assignment is None else drawn_label(assignment, words.get("sent", "")),
        "cost": words.get("charged", ""),
        "source": words.get("value from", ""),
        "value": words.get("true value", ""),
    }
