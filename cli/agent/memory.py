"""``shoal agent ledger`` and ``budget``: what a device remembers, read from its file; nothing is
sent, entered or changed.

They want neither tasks folder nor network: an owner can look even where the agent can't start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.output import down, print_json, print_lines, up, utc
from shoal.clients.memory.commitments import NANO
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    import argparse

    from shoal.clients.memory.commitments import Commitments
    from shoal.clients.memory.database import AgentStore
    from shoal.clients.memory.ledger import Head, LedgerEntry, Stored
    from shoal.clients.settings.config import AgentConfig
    from shoal.ids import TaskId

_LEAST_ID = 8  # hex digits that may stand for a task id
_SHOWN_HEX = 32  # digits of what was sent, on a terminal; --json has all
_NO_DELTA = ("delta_charged", 0.0)
# say something only where they are there: an outcome without a failure, a task that is not memoized
_SILENT = {
    "kind",
    "lifetime",
}
# How the details of an entry are told, in this order; what is not here comes after, by name.
_WORDS = {
    "purpose": "purpose",
    "question": "question",
    "answer": "answer",
    "reason": "reason",
    "state": "state",
    "kind": "kind",
    "source": "value from",
    "value": "true value",
    "epsilon_local": "local epsilon",
    "epsilon_first": "of this report by itself",
    "epsilon_central": "guaranteed central epsilon",
    "epsilon_charged": "charged",
    "delta_charged": "but for a delta of",
    "basis": "by",
    "epsilon_spent_after": "spent in all",
    "lifetime": "spent on this task",
    "first_report": "first report",
    "memoized": "memoized",
    "report": "sent",
}


@contextmanager
def memory(config: AgentConfig) -> Iterator[Commitments | None]:
    """The device's book; None if it has none yet.

    Raises CONFIG, OVERLOADED; MISMATCH if the file is gone and the head of its ledger isn't.
    """
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments

    with _store(config) as store:
        yield None if store is None else SqliteCommitments(store)


@contextmanager
def _store(config: AgentConfig) -> Iterator[AgentStore | None]:
    from shoal.clients.memory.database import HEAD_SUFFIX, AgentStore
    from shoal.clients.memory.ledger import EMPTY

    head = config.outbox.with_name(config.outbox.name + HEAD_SUFFIX)
    if not config.outbox.exists():
        if head.exists() and not head.read_bytes()[:200].strip().endswith(str(EMPTY).encode()):
            raise ShoalError(
                Kind.MISMATCH,
                f"ledger: entry 1 does not verify: {config.outbox.name} is gone, and {head.name} "
                "says that there were entries: "
                "keep what is left, and find out who can write it; `shoal agent memory "
                "--confirm-set-back` begins anew",
            )
        yield None
        return
    store = AgentStore(config.outbox)
    try:
        yield store
    finally:
        store.close()


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


def found_damaged(commitments: Commitments | None) -> list[str]:
    """A line for every row that the disk damaged."""
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments
    from shoal.clients.memory.marks import COMMAND

    damages = commitments.damages() if isinstance(commitments, SqliteCommitments) else []
    return [f"damaged: {damage}; {COMMAND}" for damage in damages]


def budget_json(config: AgentConfig, commitments: Commitments | None) -> dict[str, Any]:
    """limit, spent and left (None: no limit) in epsilon, and per task what its answered windows
    were charged.

    Where sums are damaged ``spent`` is never too little, and the tasks are left out.
    """
    limit = config.effective_policy.limit_nano
    spent = commitments.spent() if commitments is not None else 0
    tasks = []
    try:
        for task_id in (
            dict.fromkeys(charge.task_id for charge in commitments.charges())
            if commitments is not None
            else ()
        ):
            tally = commitments.tally(task_id) if commitments is not None else None
            if tally is not None:
                row = {
                    "task": _name(commitments, task_id),
                    "task_id": task_id.hex,
                    "windows": tally.windows,
                    "epsilon": tally.nano / NANO,
                }
                tasks.append(row)
    except ShoalError as error:
        if error.kind is not Kind.MISMATCH:
            raise
        tasks = []
    return {
        "limit": None if limit is None else config.effective_policy.lifetime_epsilon,
        "spent": spent / NANO,
        "left": None if limit is None else max(0, limit - spent) / NANO,
        "tasks": tasks,
    }


def _name(commitments: Commitments | None, task_id: TaskId) -> str:
    seen = commitments.seen(task_id) if commitments is not None else None
    return seen.name if seen is not None else task_id.short


# --- ledger ---------------------------------------------------------------------------------------


def ledger(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """The entries, oldest first, after the whole chain was verified, and that the tables say the
    same. Raises MISMATCH naming the first bad entry, or the first difference, INVALID for a bad
    HEAD.
    """
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments
    from shoal.clients.memory.ledger import EMPTY, Head

    noted = Head.parse(arguments.verify) if arguments.verify is not None else EMPTY
    with _store(config) as store:
        commitments = None if store is None else SqliteCommitments(store)
        head = EMPTY if store is None else verified(store)
        _lies_on(noted, head, commitments)
        # What a running agent entered since is not verified yet, and comes with the next look.
        rows = (
            [row for row in commitments.entries(arguments.since) if row.number <= head.count]
            if commitments is not None
            else []
        )
        rows = [row for row in rows if _wanted(row.entry, arguments.task)]
        figures = budget_json(config, commitments)
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


def verified(store: AgentStore) -> Head:
    """The head of a chain that holds, and that the tables beside it fit. Raises MISMATCH."""
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments
    from shoal.clients.memory.outbox_sqlite import SqliteOutbox
    from shoal.clients.memory.reconcile import reconcile

    commitments = SqliteCommitments(store)
    with (
        store.write()
    ):  # a running agent waits meanwhile: what it enters and what it charges are looked at together
        head = commitments.verify()
        reconcile(commitments.entries(), commitments, SqliteOutbox(store))
    return head


def _lies_on(noted: Head, head: Head, commitments: Commitments | None) -> None:
    """That the chain whose last head is ``head`` once had the head ``noted``. Raises MISMATCH."""
    from shoal.clients.memory.ledger import check

    if noted.count > head.count:
        raise ShoalError(
            Kind.MISMATCH,
            f"ledger: entry {head.count + 1} does not verify: it is missing, {noted.count} entries "
            "were there when HEAD was noted",
        )
    if commitments is not None and noted.count:
        check(commitments.entries(0, noted.count), noted)


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
    told = {
        name
        for name, value in entry.details.items()
        if (value is not None or name not in _SILENT) and (name, value) != _NO_DELTA
    }
    names = [*(name for name in _WORDS if name in told), *sorted(told - set(_WORDS))]
    details = "; ".join(
        f"{_WORDS.get(name, name.replace('_', ' '))} {_shown(name, entry.details[name])}"
        for name in names
    )
    return f"{row.number} {utc(entry.at_s)} {entry.event.value}{task}{window}" + (
        f": {details}" if details else ""
    )


def _shown(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and (name.startswith("epsilon") or name == "lifetime"):
        return up(value)
    if name == "report" and isinstance(value, str) and len(value) > _SHOWN_HEX:
        return f"{value[:_SHOWN_HEX]}... ({len(value) // 2} bytes)"
    return f"{value}"
