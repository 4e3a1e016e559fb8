"""The page Ledger: everything that happened, and whether the chain of it holds. Where it does not,
entries are shown as far as they lead from one to the next, and the one that is named is marked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.clients.memory.ledger import EMPTY, Head
from shoal.clients.owner.book import LedgerPage, ledger_page
from shoal.clients.owner.entry_words import details, utc
from shoal.console.owner.leaves import MOST, Leaf, number_of
from shoal.console.web import NavItem
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.ledger import Stored
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Ledger", "/ledger")

# What happened, for people who never saw these words
_EVENTS = {
    "seen": "a question was met for the first time",
    "accepted": "your rules allow a question",
    "refused": "your rules forbid a question",
    "reported": "a window was answered",
    "outcome": "what became of a report",
    "consent": "your answer",
    "withdrawn": "reports that waited were deleted",
    "forgotten": "remembered answers were deleted",
    "struck": "two key schedules were seen: no more is sent for this question",
    "problem": "something was not taken, or can't be read",
    "mended": "what the disk damaged was replaced",
    "set_back": "this memory is an older one, and you said to go on",
}


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """One page."""

    async def ledger(request: Request) -> Response:
        query = request.query_params
        given = query.get("head", "").strip()[:200]
        noted, wrong, broken = EMPTY, "", ""
        try:
            noted = Head.parse(given) if given else EMPTY
        except ShoalError as error:
            wrong = error.message
        found = LedgerPage([], None, 0)
        to = number_of(query.get("to", ""))
        try:
            found = await asyncio.to_thread(ledger_page, desk.config(), noted, to, MOST)
            broken = found.broken
        except ShoalError as error:  # its file is gone
            if error.kind is not Kind.MISMATCH:
                raise
            broken = error.message
        last = found.rows[-1].number if found.rows else 0
        return desk.page(
            request,
            "ledger.html.j2",
            rows=[_row(row) for row in reversed(found.rows)],
            head=found.head,
            broken=broken,
            bad=_bad(found, last),
            breaks=found.at == found.shown + 1 and last == found.shown,
            given=given,
            wrong=wrong,
            agrees=bool(given and not wrong and found.head is not None),
            leaf=Leaf(NAVIGATION.path, last, found.shown, given if not wrong else ""),
        )

    return [Route(NAVIGATION.path, ledger)]


def _bad(found: LedgerPage, last: int) -> dict[str, Any] | None:
    """The entry that a refusal names: its number, and ``to``, the page that has it, if this one
    has not.
    """
    at = found.at
    if at is None or (at > found.shown and last == found.shown):
        return {"number": at, "to": None} if at is not None else None
    here = any(row.number == at for row in found.rows)
    return {"number": at, "to": None if here else min(at + MOST // 2, found.shown)}


def _row(row: Stored) -> dict[str, Any]:
    entry = row.entry
    return {
        "number": row.number,
        "at": utc(entry.at_s),
        "event": _EVENTS[entry.event.value],
        "task": entry.task or (entry.task_id.short if entry.task_id is not None else ""),
        "window": entry.window,
        "details": details(entry),
    }
