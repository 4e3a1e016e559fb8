"""``shoal agent ledger`` and ``budget``: what a device remembers, read from its file; nothing is
sent, entered or changed.

They want neither tasks folder nor network: an owner can look even where the agent can't start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.output import down, print_json, print_lines, up
from shoal.clients.owner.book import budget_json, found_damaged, look, memory
from shoal.clients.owner.entry_words import details, utc

if TYPE_CHECKING:
    import argparse

    from shoal.clients.memory.ledger import LedgerEntry, Stored
    from shoal.clients.settings.config import AgentConfig

_LEAST_ID = 8  # hex digits that may stand for a task id


def budget(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """What all answers may cost, have cost, and cost by task."""
    with memory(config) as commitments:
        figures, damaged = budget_json(config, commitments), found_damaged(commitments)
    if arguments.json:
        print_json({**figures, "damaged": damaged} if damaged else figures)
        return 0
    print_lines(budget_line(figures))
    for task in figures["tasks"]:
        windows = "1 window" if task["windows"] == 1 else f"{task['windows']:,} windows"
        print_lines(
            f"  task {task['task']} ({task['task_id'][:8]}): epsilon {up(task['epsilon'])} for "
            f"{windows}"
        )
    for line in damaged:
        print_lines(line)
    return 0


def budget_line(figures: Mapping[str, Any]) -> str:
    """The lifetime budget in one sentence: what is spent is rounded up, what is left down."""
    if figures["limit"] is None:
        return (
            "budget: none is set (policy.lifetime_epsilon); answers have cost epsilon "
            f"{up(figures['spent'])} so far"
        )
    return (
        f"budget: epsilon {up(figures['spent'])} of {figures['limit']:g} spent, "
        f"{down(figures['left'])} "
        "left"
    )


# --- ledger ---------------------------------------------------------------------------------------


def ledger(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """The entries, oldest first, after the whole chain was verified, and that the tables say the
    same. Raises MISMATCH naming the first bad entry, or the first difference, INVALID for a bad
    HEAD.
    """
    from shoal.clients.memory.ledger import EMPTY, Head

    noted = Head.parse(arguments.verify) if arguments.verify is not None else EMPTY
    looked = look(config, noted, arguments.since)
    rows = [row for row in looked.rows if _wanted(row.entry, arguments.task)]
    head, figures = looked.head, looked.figures
    if arguments.json:
        print_json(
            {
                "entries": [_entry_json(row) for row in rows],
                "head": {"count": head.count, "hash": head.digest.hex()},
                "verified": True,
                "budget": {key: figures[key] for key in ("limit", "spent", "left")},
            }
        )
        return 0
    for row in rows:
        print_lines(entry_line(row))
    if not rows:
        print_lines("no entries")
    print_lines(budget_line(figures))
    print_lines(f"verified: {head.count} entries, head {head}")
    return 0


def _wanted(entry: LedgerEntry, task: str | None) -> bool:
    """By the task's name, or 8 or more hex digits of its id."""
    if task is None or entry.task == task:
        return True
    return (
        len(task) >= _LEAST_ID
        and entry.task_id is not None
        and entry.task_id.hex.startswith(task.lower())
    )


def _entry_json(row: Stored) -> dict[str, Any]:
    entry = row.entry
    return {
        "number": row.number,
        "at": utc(entry.at_s),
        **entry.to_json(),
        "hash": row.digest.hex(),
    }


def entry_line(row: Stored) -> str:
    """One entry for people: what happened, to what, and the details in words."""
    entry = row.entry
    task = f" task {entry.task or '?'} ({entry.task_id.short})" if entry.task_id is not None else ""
    window = f" window {entry.window}" if entry.window is not None else ""
    told = "; ".join(f"{name} {value}" for name, value in details(entry))
    return f"{row.number} {utc(entry.at_s)} {entry.event.value}{task}{window}" + (
        f": {told}" if told else ""
    )
