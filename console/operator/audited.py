"""The page Audit, for operators: what was done here, by whom, the latest first."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.console.operator.desk import Desk
from shoal.console.signin.audit import check
from shoal.console.signin.visitors import operator_of, plain
from shoal.console.web import NavItem
from shoal.errors import ShoalError

NAVIGATION = NavItem("Audit", "/audit", acting=True)
_MOST = 200  # entries; `shoal console audit` has all of them


def routes(desk: Desk) -> list[BaseRoute]:
    """One page."""

    def audit(request: Request) -> Response:
        operator_of(request)
        rows: list[dict[str, Any]] = []
        total, head, wrong = 0, "", ""
        if desk.gate.audit is not None:
            try:
                checked = check(desk.gate.audit.path)
                total, head = len(checked.entries), checked.head
                rows = [_row(entry) for entry in checked.entries[: -_MOST - 1 : -1]]
            except ShoalError as error:
                wrong = str(error)
        return desk.page(request, "audit.html.j2", rows=rows, total=total, head=head, broken=wrong)

    return [Route(NAVIGATION.path, audit)]


def _row(entry: Any) -> dict[str, str]:
    detail = entry.get("detail")
    told = detail if isinstance(detail, dict) else {}
    return {
        **{name: plain(str(entry.get(name, ""))) for name in ("what", "who", "role")},
        "at": plain(str(entry.get("at", ""))).replace("T", " ").removesuffix("Z"),
        "detail": plain(", ".join(f"{name}: {value}" for name, value in told.items())),
    }
