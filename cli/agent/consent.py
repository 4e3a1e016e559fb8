"""``shoal agent consent``: the owner's answers, per purpose, and to single tasks that ask for more
than the owner's limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.output import print_json, print_lines, up
from shoal.clients.owner.book import memory
from shoal.clients.owner.consent import ALLOWED, DENIED, TAKES_BACK, answer_of
from shoal.clients.owner.purposes import not_kept, purposes
from shoal.errors import Kind, ShoalError
from shoal.task import SHUFFLER_NOISE

if TYPE_CHECKING:
    import argparse

    from shoal.clients.agent import Agent
    from shoal.clients.settings.config import AgentConfig


async def consent(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """List all answers, answer for a purpose, or accept one task's epsilon0. Raises CONFIG for
    arguments that don't fit together.
    """
    from shoal.clients.agent import Agent

    name, word = arguments.name, arguments.answer
    if name is None:
        return _show(arguments, await _listed(config))
    if arguments.accept_epsilon0 and (arguments.purpose or word not in {None, "ask"}):
        raise ShoalError(
            Kind.CONFIG,
            "--accept-epsilon0 is about one task: give it alone, or with ask to take it back; "
            "answer for its purpose by itself",
        )
    withdrawn, purpose = 0, name if arguments.purpose else ""
    try:
        async with Agent(config, background=False) as agent:
            if arguments.accept_epsilon0:
                return await _accept(arguments, agent)
            purpose = _purpose(agent, config, name, arguments.purpose)
            if word is not None:
                answer = answer_of(word)
                withdrawn = len(
                    await (
                        agent.withdraw(purpose)
                        if answer == DENIED
                        else agent.consent(purpose, answer)
                    )
                )
    except ShoalError as error:
        if error.kind is Kind.OVERLOADED and word in TAKES_BACK and not arguments.accept_epsilon0:
            raise not_kept(error, arguments.config.name, purpose) from None
        raise
    rows = [row for row in await _listed(config) if row["purpose"] == purpose]
    if withdrawn and not arguments.json:
        what = "report that waited was" if withdrawn == 1 else "reports that waited were"
        print_lines(f"{withdrawn:,} {what} deleted")
    return _show(arguments, [{**row, "withdrawn": withdrawn} for row in rows])


async def _accept(arguments: argparse.Namespace, agent: Agent) -> int:
    """The explicit yes to a task's local epsilon, whatever it is, or (with "ask") that it is taken
    back.
    """
    assignment, back = agent.tasks.find(arguments.name), arguments.answer == "ask"
    accepted = await agent.accept(arguments.name, back=back)
    refusal = next(
        (
            status.refusal
            for status in agent.status()
            if status.assignment.task_id == assignment.task_id
        ),
        "",
    )
    if arguments.json:
        shown = "infinite" if accepted == math.inf else accepted
        print_json(
            {
                "task": assignment.task.name,
                "task_id": assignment.task_id.hex,
                "accepted_epsilon0": shown,
                "refusal": refusal or None,
            }
        )
        return 0
    what = (
        f"accepted is epsilon0 = {up(assignment.epsilon0)}, for this task alone"
        if not back
        else "its epsilon0 is not accepted any more"
    )
    print_lines(f"task {assignment.task.name} ({assignment.task_id.short}): {what}")
    if not back and assignment.task.mechanism.name == SHUFFLER_NOISE:
        print_lines("  it trusts the shuffler to add noise: nobody can tell whether it does")
    print_lines(
        f"  this device would send nothing: {refusal}" if refusal else "  it may be answered"
    )
    return 0


def _purpose(agent: Agent, config: AgentConfig, name: str, exact: bool) -> str:
    """The purpose that is meant: a task's, by its name or id, or the words themselves. Raises
    CONFIG for words that nobody knows.
    """
    known = {assignment.task.purpose for assignment in agent.tasks.all()} | set(
        config.policy.purposes
    )
    with memory(config) as commitments:
        known |= set(commitments.consents()) if commitments is not None else set()
    if exact:
        return name
    try:
        meant = agent.tasks.find(name).task.purpose
    except ShoalError as error:
        if error.kind is not Kind.UNKNOWN_TASK and name not in known:
            raise
        meant = name
    if meant != name and name in known:
        raise ShoalError(
            Kind.CONFLICT,
            f'"{name[:64]}" is a task and a purpose: add --purpose, or name the task by its id',
        )
    if meant in known:
        return meant
    raise ShoalError(
        Kind.CONFIG,
        f'no task and no purpose is known as "{name[:64]}": to answer for a purpose before it is '
        "asked, add --purpose",
    )


async def _listed(config: AgentConfig) -> list[dict[str, Any]]:
    """Every purpose that a task, the configuration, the fleet or an answer names, by its words."""
    from shoal.clients.agent import Agent

    async with Agent(config, background=False) as agent:
        statuses = agent.status()
    with memory(config) as commitments:
        stored = commitments.consents() if commitments is not None else {}
    return purposes(config, statuses, stored)


def _show(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> int:
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        print_lines(_line(row))
    if not rows:
        print_lines("no task asks for anything, and nothing was answered")
    return 0


def _line(row: dict[str, Any]) -> str:
    """One purpose: where it stands, why, and who asks."""
    sources = [f"{row['written']} in the configuration"] if row["written"] else []
    sources += [f"{row['answered']} by command"] if row["answered"] else []
    sources += ["denied by the fleet's file"] if row["fleet"] else []
    tasks = f"tasks: {', '.join(row['tasks'])}" if row["tasks"] else "no task asks for it"
    state = row["consent"]
    hint = "" if state in (ALLOWED, DENIED) else ": nothing is sent"
    return (
        f'purpose "{row["purpose"]}": '
        f"{state}{hint}{' (' + ', '.join(sources) + ')' if sources else ''}; "
        f"{tasks}"
    )
