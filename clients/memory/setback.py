"""A memory that was set back: its file is older than the head beside it, or not the file that
belongs to it.

It was restored from a backup, replaced, cut, or removed, or its head was. Such a memory does not
know which windows were answered, what was spent and which memoized reports were drawn, so a device
that went on would answer windows twice, and for nothing. Until its owner confirms, nothing is
answered and nothing is sent: what waits may have lost its consent.

What is taken to be true then is the worst that can be known:

* every window of every task that had begun by now, or by a clock that was ahead by as much as is
  tolerated, is answered, unless its report is here;
* what the head says was spent is spent (it is written before the charge is: never too little).
  Where the head is gone too, every window that had begun since the last entry costs what its task
  costs, of all tasks that the device knows;
* where the file here holds answers beyond the ones that the head counted, both were given: what
  they cost is added up.

A memoized answer that was lost is drawn anew, and charged anew. What nobody can know: consents that
were taken back since then, and tasks that were struck. And a file that was set back together with
its head looks like one that was not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.clients.memory.commitments import NANO, nano_up
from shoal.clients.memory.ledger import LedgerEvent, Noted
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.clients.core import Assignment
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.settings.config import AgentConfig


@dataclass(frozen=True, slots=True)
class SetBack:
    """What is known of it. ``entries``: in the file. ``noted``: what stands beside it, None:
    nothing that can be read.

    ``nano``: nano-epsilon to be taken as spent beyond what the file knows. ``last_s``: Unix seconds
    of the file's last entry, None: it has none that can be read. ``allowed``: purposes that the
    file says the owner allowed by command.
    """

    entries: int
    noted: Noted | None
    nano: int
    last_s: float | None
    allowed: tuple[str, ...]

    def words(self, head: str) -> list[str]:
        """Lines for the owner. ``head``: the name of the file beside."""
        if self.noted is None:
            what = (
                f"{head} is missing or unreadable: whether the memory's {self.entries:,} entries "
                "are all there were is not known."
            )
        elif self.noted.head.count > self.entries:
            what = (
                f"The memory has {self.entries:,} entries, and {head} noted "
                f"{self.noted.head.count:,}: at least entries "
                f"{self.entries + 1:,} to {self.noted.head.count:,} are lost."
            )
        else:
            what = (
                f"The memory has {self.entries:,} entries, but not entry {self.noted.head.count:,} "
                f"as {head} noted it: it is another "
                "memory, or an older one that went on."
            )
        allowed = ", ".join(f'"{purpose}"' for purpose in self.allowed) or "none"
        return [
            what,
            "It was restored from an older copy, replaced, cut or removed. Find out by whom before "
            "you go on.",
            "What was answered since then is not known here: those windows would be answered "
            "again, for nothing.",
            "If you confirm, every window that has begun is taken as answered, unless its report "
            "is here: the next ones are answered.",
            f"Epsilon {self.nano / NANO:g} more is taken as spent, and is never given back.",
            "Memoized answers that are lost are drawn anew, and charged anew.",
            f"Consents given by command that are still here: {allowed}. One that you took back "
            "since then "
            "is lost: take it back again first.",
        ]


def examine(
    memory: Memory, tasks: Callable[[], Iterable[Assignment]], now: float
) -> SetBack | None:
    """What is lost; None: nothing that could be seen. ``tasks``: those that the device knows.
    Blocks for the disk.
    """
    if memory.forgetful() is None:
        return None
    commitments, noted = memory.commitments, memory.noted()
    rows = commitments.entries()
    last_s = None
    for row in reversed(rows):
        try:
            last_s = row.entry.at_s
            break
        except ShoalError:  # damaged: the one before
            continue
    spent = commitments.spent()
    if noted is None or noted.spent is None:
        nano = _since(memory, tasks(), last_s, now)
    else:
        beyond = [row for row in rows if row.number >= noted.head.count and _reported(row.body)]
        nano = noted.spent if beyond else max(noted.spent - spent, 0)
    allowed = tuple(
        purpose for purpose, answer in sorted(commitments.consents().items()) if answer == "allowed"
    )
    return SetBack(len(rows), noted, nano, last_s, allowed)


def _reported(body: bytes) -> bool:
    return f'"event":"{LedgerEvent.REPORTED.value}"'.encode() in body


def _since(memory: Memory, tasks: Iterable[Assignment], last_s: float | None, now: float) -> int:
    """Nano-epsilon of every window that had begun by ``now``, took answers after ``last_s``, and
    has no charge here. Never too little for the ``tasks``; one whose epsilon0 is infinite was
    charged what its certificate guarantees, or not answered.
    """
    nano = 0
    for assignment in tasks:
        plan, epsilon = assignment.task.windows, assignment.epsilon0
        if not math.isfinite(epsilon):
            epsilon = _certified(assignment)
        for window in range(plan.count):
            end = plan.deadline_of(window) + 2 * plan.skew_s
            late = last_s is not None and end < last_s
            if (
                not plan.may_have_begun(window, now)
                or late
                or memory.commitments.charged(assignment.task_id, window) is not None
            ):
                continue
            nano += nano_up(epsilon) if math.isfinite(epsilon) else 0
    return nano


def _certified(assignment: Assignment) -> float:
    """What is guaranteed behind the shuffler; infinite: nothing."""
    from shoal.clients.owner.explain_cost import guaranteed_epsilon

    try:
        return guaranteed_epsilon(assignment)
    except ShoalError:
        return math.inf


def confirm(memory: Memory, set_back: SetBack, now: float) -> None:
    """The owner has read ``set_back`` and goes on: entered in the ledger, with what is taken as
    answered and spent. Raises OVERLOADED.
    """
    with memory.transaction():
        memory.commitments.lose(now, set_back.nano)
        head = set_back.noted.head if set_back.noted is not None else None
        memory.enter(
            LedgerEvent.SET_BACK,
            details={
                "entries_here": set_back.entries,
                "entries_noted": None if head is None else head.count,
                "hash_noted": None if head is None else head.digest.hex(),
                "answered_before_s": now,
                "epsilon_lost": set_back.nano / NANO,
                "epsilon_spent_after": memory.commitments.spent() / NANO,
            },
        )
    memory.accept_head()


def tasks_known(config: AgentConfig, memory: Memory) -> Sequence[Assignment]:
    """Those of the device's folders, for ``examine``."""
    from shoal.clients.feeds.known_tasks import KnownTasks

    known = KnownTasks(config.tasks, config.effective_policy, memory.outbox, config.learnt_folder)
    known.refresh()
    return known.all()
