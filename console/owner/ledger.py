"""The page Ledger: everything that happened, and whether the chain of it holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.clients.memory.ledger import EMPTY, Head
from shoal.clients.owner.book import look
from shoal.clients.owner.entry_words import details, utc
from shoal.console.web import NavItem
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.ledger import Stored
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Ledger", "/ledger")
_MOST = 100  # entries of a page

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
        rows: list[Stored] = []
        head: Head | None = None
        try:
            looked = await asyncio.to_thread(look, desk.config(), noted)
            rows, head = looked.rows, looked.head
        except ShoalError as error:
            if error.kind is not Kind.MISMATCH:
                raise
            broken = error.message
        last = _number(query.get("to", ""), len(rows))
        shown = [_row(row) for row in reversed(rows[max(0, last - _MOST) : last])]
        return desk.page(
            request,
            "ledger.html.j2",
            rows=shown,
            head=head,
            broken=broken,
            given=given,
            wrong=wrong,
            agrees=bool(given and not wrong and head is not None),
            newer=min(len(rows), last + _MOST) if last < len(rows) else None,
            older=last - _MOST if last > _MOST else None,
        )

    return [Route(NAVIGATION.path, ledger)]


def _number(text: str, most: int) -> int:
    """The number of the last entry of a page; the ledger's last one for anything else."""
    fits = text.isascii() and text.isdigit() and len(text) <= 15 and 0 < int(text) <= most
    return int(text) if fits else most


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
