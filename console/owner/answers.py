"""The page Answers: every window that this device answered, what it sent, and what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.entry_words import details
from shoal.console.web import NavItem

if TYPE_CHECKING:
    from shoal.clients.agent import Agent, ReportOutcome
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Answers", "/answers")
_MOST = 200  # the latest; the ledger has all of them
_STATES = {
    ReportState.QUEUED: ("waits", "warn"),
    ReportState.ACKED: ("delivered", "good"),
    ReportState.REFUSED: ("refused", "bad"),
    ReportState.UNKNOWN: ("unknown: counts once or not at all", "warn"),
    ReportState.WITHDRAWN: ("withdrawn", ""),
}


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """One page."""

    async def answers(request: Request) -> Response:
        async with desk.agent() as agent:
            outcomes = await agent.outcomes()
            told = await asyncio.to_thread(_told, agent)
        rows = [_row(one, told.get((one.task_id.hex, one.window), [])) for one in outcomes]
        return desk.page(request, "answers.html.j2", rows=rows[: -_MOST - 1 : -1], total=len(rows))

    return [Route(NAVIGATION.path, answers)]


def _told(agent: Agent) -> dict[tuple[str, int], list[tuple[str, str]]]:
    """What the ledger has of each answer, in words. The true value is there only where its owner
    had it kept.
    """
    entries = (one.entry for one in agent.memory.commitments.entries())
    return {
        (entry.task_id.hex, entry.window): details(entry)
        for entry in entries
        if entry.event is LedgerEvent.REPORTED
        and entry.task_id is not None
        and entry.window is not None
    }


def _row(outcome: ReportOutcome, told: list[tuple[str, str]]) -> dict[str, Any]:
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
        "cost": words.get("charged", ""),
        "source": words.get("value from", ""),
        "value": words.get("true value", ""),
    }
