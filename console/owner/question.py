"""One question in whole, in plain words; and the owner's word on one that gives away more than the
limit of agent.toml: what `shoal agent consent TASK --accept-epsilon0` does, once the page has said
what it means.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shoal.accounting.meaning import above_a_limit, bound_text
from shoal.clients.owner.policy import counted_on, never_answered
from shoal.clients.owner.purposes import not_kept
from shoal.console.owner.desk import STATUS
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.agent import Agent
    from shoal.clients.core import Assignment
    from shoal.console.owner.desk import OwnDesk

_ACCEPT, _BACK = "accept", "back"
_DONE = {
    _ACCEPT: "accepted, for this question alone: a running agent heeds it at its next step",
    _BACK: "taken back: your limit holds for this question too",
}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What an owner is asked who answers above the own limit. ``epsilon``: how much; ``accepted``:
    how much was accepted before, None: nothing. ``why_not``: why nobody here can accept it, or "".
    """

    epsilon: float
    limit: float
    accepted: float | None
    meaning: tuple[str, ...]
    why_not: str

    @property
    def needed(self) -> bool:
        """Whether the limit stands before an answer."""
        return not self.epsilon <= self.limit

    @property
    def holds(self) -> bool:
        """Whether what was accepted is enough, and counts."""
        return not self.why_not and self.accepted is not None and self.epsilon <= self.accepted

    @property
    def seen(self) -> str:
        """``epsilon`` to the last bit: a form says with it what its reader saw."""
        return self.epsilon.hex()


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """The page, and its switch."""

    async def question(request: Request) -> Response:
        return await _shown(desk, request, _DONE.get(request.query_params.get("done", ""), ""))

    async def accept(request: Request) -> Response:
        word = purpose = ""
        try:
            given = await desk.form(request)
            word = given.get("answer", "")
            async with desk.agent() as agent:
                assignment = _exactly(agent, request.path_params["task"])
                purpose = assignment.task.purpose
                await _answer(agent, assignment, word, given.get("seen", ""))
        except ShoalError as error:
            wrong = error
            if wrong.kind is Kind.OVERLOADED and word == _BACK:
                wrong = not_kept(wrong, desk.file_name, purpose)
            try:
                return await _shown(desk, request, "", str(wrong), STATUS.get(wrong.kind, 503))
            except ShoalError:  # what stopped the switch stops the page
                raise wrong from None
        done = urllib.parse.urlencode({"done": word})
        return RedirectResponse(f"/questions/{assignment.task_id.hex}?{done}", 303)

    return [
        Route("/questions/{task}", question),
        Route("/questions/{task}/accept", accept, methods=["POST"]),
    ]


async def _shown(
    desk: OwnDesk, request: Request, done: str, wrong: str = "", status: int = 200
) -> Response:
    async with desk.agent() as agent:
        name = request.path_params["task"]
        assignment = agent.tasks.find(name, agent.clock.now())
        lines = await agent.explain(name)
        asked = await agent.memory.run(partial(_asked, agent, assignment))
    return desk.page(
        request,
        "question.html.j2",
        status=status,
        a=assignment,
        lines=lines,
        asked=asked,
        done=done,
        wrong=wrong,
    )


def _exactly(agent: Agent, given: str) -> Assignment:
    """The question of this very id: a name may have gone over to another since. Raises as
    ``find``.
    """
    assignment = agent.tasks.find(given)
    if assignment.task_id.hex != given:
        raise ShoalError(
            Kind.REFUSED, "this was not about one certain question: choose it on the page Questions"
        )
    return assignment


async def _answer(agent: Agent, assignment: Assignment, word: str, seen: str) -> None:
    """Keep the owner's word. Raises CONFIG for another; REFUSED where it would mean more than was
    seen, or nothing.
    """
    name = assignment.task_id.hex
    if word == _BACK:
        await agent.accept(name, back=True)
        return
    if word != _ACCEPT:
        raise ShoalError(Kind.CONFIG, f'the answer is "accept" or "back", not "{word[:40]}"')
    asked = await agent.memory.run(partial(_asked, agent, assignment))
    if asked is None or not asked.needed:
        raise ShoalError(
            Kind.REFUSED,
            "this question is within your limit, so there is nothing to accept; nothing was "
            "changed",
        )
    if asked.why_not:
        raise ShoalError(Kind.REFUSED, f"{asked.why_not}; nothing was changed")
    if seen != asked.seen:
        raise ShoalError(
            Kind.REFUSED,
            "what this question gives away is not what the page said when you answered: read it "
            "again; nothing was changed",
        )
    await agent.accept(name, asked.epsilon)


def _asked(agent: Agent, assignment: Assignment) -> Acceptance | None:
    """None: the limit pays for it, and nothing was accepted."""
    policy, task = agent.config.effective_policy, assignment.task
    epsilon = counted_on(policy, assignment.epsilon0, assignment.epsilon_apart)
    accepted = agent.memory.commitments.accepted(assignment.campaign.promise)
    limit, ceiling = policy.max_epsilon0, policy.ceiling
    if epsilon <= limit and accepted is None:
        return None
    why = ""
    if epsilon > ceiling.max_epsilon0:
        why = (
            f"the fleet's file allows no more than epsilon {bound_text(ceiling.max_epsilon0)}, and "
            "you can only tighten what it says: ask who runs the fleet"
        )
    elif never := never_answered(policy, assignment):
        why = never
    elif (
        assignment.epsilon_apart is not None
        and not ceiling.sums_if_apart
        and epsilon > assignment.epsilon_apart
    ):
        why = (
            "the fleet's file forbids sums that can be read if shuffler and analyzer work together"
        )
    if assignment.epsilon_apart is not None and epsilon == assignment.epsilon_apart:
        seen = "sees the sum of a round"
    else:
        of = "for one answer of yours, in all windows" if task.memoized else "in one window"
        seen = (
            f"can open everything that this device sends {of}, as shuffler and analyzer could "
            "together"
        )
    return Acceptance(
        epsilon, limit, accepted, tuple(above_a_limit(epsilon, task.delta, limit, seen)), why
    )
