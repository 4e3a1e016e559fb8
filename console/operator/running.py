"""The page Running: both services, how they are, and the windows of every task."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.console.operator import services
from shoal.console.operator.desk import Desk
from shoal.console.operator.holdings import Holdings
from shoal.console.web import NavItem
from shoal.console.words import ago, moment

NAVIGATION = NavItem("Running", "/running")


def routes(desk: Desk) -> list[BaseRoute]:
    """One page; it looks again by itself where scripts run."""

    def running(request: Request) -> Response:
        shuffler, analyzer = desk.status("shuffler"), desk.status("analyzer")
        holdings = desk.holdings()
        told = services.windows(shuffler.value, analyzer.value)
        tasks = [{"task": task, "now": _now(holdings, task.task_id, desk.now())} for task in told]
        return desk.page(
            request,
            "running.html.j2",
            services=[_service(desk, "shuffler"), _service(desk, "analyzer")],
            tasks=tasks,
            backlog=sum(task.backlog for task in told),
            refusals=services.refusals(shuffler.value or {}),
            states=services.STATES,
        )

    return [Route(NAVIGATION.path, running)]


def _service(desk: Desk, name: str) -> dict[str, Any]:
    known = desk.status(name)
    status = known.value or {}
    trouble = services.text(status.get("ready")) or None
    conditions = [
        row for row in services.rows(status.get("conditions")) if services.text(row.get("message"))
    ]
    return {
        "name": name,
        "known": known.value is not None,
        "asked": desk.watches(name),
        "trouble": known.trouble,
        "age": ago(known.age_s) if known.value is not None else "",
        "ready": trouble is None,
        "version": services.text(status.get("version")),
        "conditions": [
            (services.text(row.get("message")), bool(row.get("stops"))) for row in conditions
        ],
        "certificates": services.certificates(status),
        "disk": services.disk(status),
        "clock": services.clock(status),
    }


def _now(holdings: Holdings, task_id: str, now: float) -> str:
    """Which window is open now and until when, by the task's plan; "" where it isn't known."""
    task = holdings.tasks.get(task_id)
    if task is None:
        return ""
    plan, number = task.windows, task.windows.current(now)
    if number is not None:
        return f"window {number} of {plan.count} by its plan, until {moment(plan.end_of(number))}"
    if now < plan.start_s:
        return f"begins {moment(plan.start_s)}"
    return f"over since {moment(plan.end_of(plan.count - 1))}"
