"""The page Questions: who asks this device what, what for, what is drawn, and the owner's word."""

from __future__ import annotations

import asyncio
import urllib.parse
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shoal.clients.owner.book import found_damaged
from shoal.clients.owner.consent import ALLOWED, DENIED, TAKES_BACK, answer_of
from shoal.clients.owner.explain_cost import pays
from shoal.clients.owner.explain_draws import randomized_line
from shoal.clients.owner.policy import never_answered
from shoal.clients.owner.purposes import not_kept, purposes
from shoal.console.owner.desk import STATUS
from shoal.console.web import NavItem
from shoal.console.words import odds
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.agent import Agent, TaskStatus
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Questions", "/questions")
_ID_BYTES = 16  # of a purpose's SHA-256: browsers change the blanks of what a form sends
_UNPAID = "the budget does not pay for another window"


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """All questions, and the switches."""

    async def questions(request: Request) -> Response:
        return await _shown(desk, request, _done(request))

    async def consent(request: Request) -> Response:
        given: dict[str, str] = {}
        word = purpose = ""
        try:
            given = await desk.form(request)
            word = given.get("answer", "")
            answer = answer_of(word)
            async with desk.agent() as agent:
                purpose = await _meant(agent, given.get("purpose", ""), desk.file_name, answer)
                deleted = len(await agent.consent(purpose, answer))
        except ShoalError as refused:
            wrong = refused
            if wrong.kind is Kind.OVERLOADED and word in TAKES_BACK:
                wrong = not_kept(wrong, desk.file_name, purpose)
            try:
                status = STATUS.get(wrong.kind, 503)
                return await _shown(desk, request, "", str(wrong), given.get("purpose", ""), status)
            except ShoalError:  # what stopped the switch stops the page
                raise wrong from None
        done = urllib.parse.urlencode({"done": word, "deleted": deleted})
        return RedirectResponse(f"{NAVIGATION.path}?{done}", 303)

    return [
        Route(NAVIGATION.path, questions),
        Route("/consent", consent, methods=["POST"]),
    ]


async def _shown(
    desk: OwnDesk, request: Request, done: str, wrong: str = "", at: str = "", status: int = 200
) -> Response:
    """``wrong``: why a switch was not moved, beside the purpose whose id is ``at``."""
    async with desk.agent() as agent:
        rows = await _purposes(agent)
        policy = agent.config.effective_policy
        statuses = [
            one
            for one in await asyncio.to_thread(agent.status)
            if not never_answered(policy, one.assignment)
        ]
        tasks = [_task(one, await agent.memory.run(partial(_paid, agent, one))) for one in statuses]
        for task, one in zip(tasks, statuses, strict=True):
            task["answered"] = one.window is not None and await agent.memory.run(
                partial(agent.answered, one.assignment.task_id, one.window)
            )
        problems = await agent.memory.run(partial(_problems, agent))
    for row in rows:
        row["asks"] = [one for one in tasks if one["purpose"] == row["purpose"]]
    known = any(row["id"] == at for row in rows)
    return desk.page(
        request,
        "questions.html.j2",
        status=status,
        rows=rows,
        problems=problems,
        done=done,
        wrong=wrong,
        beside=at if known else "",
    )


async def _purposes(agent: Agent) -> list[dict[str, Any]]:
    statuses = await asyncio.to_thread(agent.status)
    stored = await agent.memory.run(agent.memory.commitments.consents)
    rows = purposes(agent.config, statuses, stored)
    for row in rows:
        row["id"] = sha256(row["purpose"].encode())[:_ID_BYTES].hex()
    return rows


def _problems(agent: Agent) -> list[str]:
    """What an owner should know of this device's memory, tasks, clock and configuration."""
    older, doubt = agent.memory.forgetful(), agent.clock.doubt()
    return [
        *([older.message] if older is not None else []),
        *found_damaged(agent.memory.commitments),
        *(error.message for error in agent.tasks.problems.values()),
        *([doubt] if doubt else []),
        *agent.config.notes,
    ]


def _paid(agent: Agent, status: TaskStatus) -> bool:
    """Whether the budget pays for another window; not, where the disk damaged what was spent."""
    commitments, assignment = agent.memory.commitments, status.assignment
    try:
        return pays(
            assignment,
            agent.config.effective_policy,
            commitments.spent(),
            kept=commitments.latest(assignment.task_id) is not None,
        )
    except ShoalError:
        return False


def _task(status: TaskStatus, paid: bool) -> dict[str, Any]:
    assignment, task = status.assignment, status.assignment.task
    return {
        "purpose": task.purpose,
        "id": assignment.task_id.hex,
        "name": task.name,
        "question": task.question,
        "drawn": randomized_line(assignment),
        "refusal": status.refusal.removeprefix(f"task {task.name}: ") or ("" if paid else _UNPAID),
        "above": "--accept-epsilon0" in status.refusal,
        "unasked": "never agreed to" in status.refusal,
        "window": status.window,
        "windows": task.windows.count,
        "min_batch": task.min_batch,
        "a": assignment,
        "odds": odds(assignment.epsilon0, task.delta),
        "odds_apart": odds(assignment.epsilon_apart, task.delta),
    }


async def _meant(agent: Agent, given: str, file: str, answer: str | None) -> str:
    """The purpose whose id a form names. Raises CONFIG for one that nobody knows, REFUSED for a yes
    that somebody else's no stands above.
    """
    row = next((row for row in await _purposes(agent) if row["id"] == given), None)
    if row is None:
        raise ShoalError(
            Kind.CONFIG, "no question and no answer is for that purpose any more: choose one below"
        )
    if answer == ALLOWED and row["fleet"] == DENIED:
        raise ShoalError(
            Kind.REFUSED,
            "the fleet's file denies this purpose, and you can only tighten what it says: ask who "
            "runs the fleet; nothing was changed",
        )
    if answer == ALLOWED and row["written"] not in (None, ALLOWED):
        raise ShoalError(
            Kind.REFUSED,
            f"this purpose is denied in {file} under [policy.purposes], above any answer "
            "here: take that line out first; nothing was changed",
        )
    purpose: str = row["purpose"]
    return purpose


def _done(request: Request) -> str:
    """What a switch did, in words; "" where none was moved."""
    word = request.query_params.get("done", "")
    said = {
        "allow": "allowed: a running agent answers at its next step",
        "deny": "denied: nothing is sent for that purpose any more",
        "ask": "taken back: nothing is sent for that purpose until you say yes",
    }.get(word, "")
    deleted = request.query_params.get("deleted", "0")
    if said and deleted.isascii() and deleted.isdigit() and deleted[:9].strip("0"):
        count = int(deleted[:9])
        said += f"; {count:,} {'report' if count == 1 else 'reports'} that waited "
        said += f"{'was' if count == 1 else 'were'} deleted"
    return said
