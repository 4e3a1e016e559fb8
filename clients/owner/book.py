"""A device's book, to look into it: what was spent, and whether the ledger holds. Nothing is sent,
entered or changed.

It wants neither tasks folder nor network: an owner can look even where the agent can't start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.clients.memory.commitments import NANO
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.commitments import Commitments
    from shoal.clients.memory.database import AgentStore
    from shoal.clients.memory.ledger import Head, Stored
    from shoal.clients.settings.config import AgentConfig
    from shoal.ids import TaskId


_NAMED = re.compile(r"ledger: entry ([0-9]{1,15}) ")  # how refusals of a ledger begin


@dataclass(frozen=True, slots=True)
class Looked:
    """A ledger that holds: entries, its head, and ``budget_json``."""

    rows: list[Stored]
    head: Head
    figures: dict[str, Any]


def look(config: AgentConfig, noted: Head, since: int = 0) -> Looked:
    """Entries with numbers above ``since``, oldest first, after the whole chain was verified, that
    the tables say the same, and that the head ``noted`` lies on it. Raises MISMATCH naming the
    first bad entry, or the first difference.
    """
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments
    from shoal.clients.memory.ledger import EMPTY

    with store_of(config) as store:
        commitments = None if store is None else SqliteCommitments(store)
        head = EMPTY if store is None else verified(store)
        lies_on(noted, head, commitments)
        # What a running agent entered since is not verified yet, and comes with the next look.
        rows = (
            [row for row in commitments.entries(since) if row.number <= head.count]
            if commitments is not None
            else []
        )
        return Looked(rows, head, budget_json(config, commitments))


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Some entries of a ledger, oldest first. ``head``: that of the whole ledger, which holds; None
    where it does not, and ``broken`` says why. ``shown``: how many entries can be shown: all, or as
    many as still lead from one to the next. ``at``: the entry that ``broken`` names, if it does.
    """

    rows: list[Stored]
    head: Head | None
    shown: int
    broken: str = ""

    @property
    def at(self) -> int | None:
        """See the class."""
        named = _NAMED.match(self.broken)
        return int(named[1]) if named is not None else None


def ledger_page(config: AgentConfig, noted: Head, last: int | None, most: int) -> LedgerPage:
    """Up to ``most`` entries that end with number ``last`` (None, or none such: the last), after
    all of the ledger was looked at as ``look`` does. Holds few of them at a time.
    """
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments
    from shoal.clients.memory.ledger import EMPTY

    head, broken = None, ""
    with store_of(config) as store:
        if store is None:
            lies_on(noted, EMPTY, None)
            return LedgerPage([], EMPTY, 0)
        commitments = SqliteCommitments(store)
        try:
            head = verified(store)
            lies_on(noted, head, commitments)
        except ShoalError as error:
            if error.kind is not Kind.MISMATCH:
                raise
            head, broken = None, error.message
        shown = commitments.unbroken() if head is None else head.count
        end = last if last is not None and 0 < last <= shown else shown
        begin = max(0, end - most)
        return LedgerPage(commitments.entries(begin, end - begin), head, shown, broken)


@contextmanager
def memory(config: AgentConfig) -> Iterator[Commitments | None]:
    """The device's book; None if it has none yet.

    Raises CONFIG, OVERLOADED; MISMATCH if the file is gone and the head of its ledger isn't.
    """
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments

    with store_of(config) as store:
        yield None if store is None else SqliteCommitments(store)


@contextmanager
def store_of(config: AgentConfig) -> Iterator[AgentStore | None]:
    """The device's file, to look into; None if it has none yet. Raises as ``memory`` does."""
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
        reconcile(commitments.all_entries(), commitments, SqliteOutbox(store))
    return head


def lies_on(noted: Head, head: Head, commitments: Commitments | None) -> None:
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
