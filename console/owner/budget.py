"""The page Budget: what answers may cost, have cost, and what is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.clients.owner.book import budget_json, found_damaged, memory
from shoal.console.web import NavItem
from shoal.console.words import odds

if TYPE_CHECKING:
    from shoal.clients.settings.config import AgentConfig
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Budget", "/budget")


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """One page."""

    async def budget(request: Request) -> Response:
        figures, damaged = await asyncio.to_thread(_read, desk.config())
        limit, spent = figures["limit"], figures["spent"]
        used = None if limit is None else 100.0 if limit <= 0.0 else min(100.0, 100 * spent / limit)
        meaning = None if limit is None else odds(limit, 0.0)
        return desk.page(
            request,
            "budget.html.j2",
            f=figures,
            damaged=damaged,
            used=used,
            odds_spent=odds(spent, 0.0),
            odds_limit=meaning,
        )

    return [Route(NAVIGATION.path, budget)]


def _read(config: AgentConfig) -> tuple[dict[str, Any], list[str]]:
    with memory(config) as commitments:
        return budget_json(config, commitments), found_damaged(commitments)
