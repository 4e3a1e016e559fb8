"""Which window of a discovery a device answers, where each answers in one alone (``fresh``).

The device draws it by itself, uniformly among all windows of the task, before it answers anything.
It draws once: the draw is kept in its memory, and entered in its ledger. Neither its value nor
anybody else has a part in it. What a window asks is chosen by the analyzer, step by step; which of
them this device answers is not.

Of a task for enrolled devices the draw is made of the device's enrolment key
(``shoal.crypto.admission.fresh_window``): whoever keeps the key draws the same window again,
whatever becomes of the memory, and the shuffler takes one report of a key and window. Any other
draw is random. If it is lost, and the loss is seen, it is not made again where the device may have
answered: it answers no more of that task then. A memory that is lost whole, or set back together
with the head beside it, looks like a new one: such a device draws, and answers, once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.clients.core import Assignment, enrolled_identity
from shoal.clients.memory.commitments import Commitments
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.domain import Discovery
from shoal.entropy import Entropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.task import Admission

if TYPE_CHECKING:
    from shoal.crypto.admission.enrolment import DeviceIdentity

_BYTES = 4


@dataclass(frozen=True, slots=True)
class OwnWindow:
    """``window``: the one that this device answers; None: none any more, and it says so."""

    window: int | None

    def words(self, count: int) -> str:
        """Why another of ``count`` windows gets nothing, for the owner."""
        if self.window is None:
            return (
                "not asked of this device: it answers in one window alone, and has answered "
                "already, or may have before its memory was lost"
            )
        return (
            "not asked of this device: it answers in one window alone, and drew window "
            f"{self.window} of 0 to {count - 1}"
        )


def answers_once(assignment: Assignment) -> bool:
    """Whether each device of the task answers in one window alone."""
    domain = assignment.task.domain
    return isinstance(domain, Discovery) and domain.fresh


def own_window(assignment: Assignment, commitments: Commitments) -> OwnWindow | None:
    """What this device drew; None: nothing yet, or every device answers every window. Raises
    MISMATCH for a draw that is none of the task's.
    """
    if not answers_once(assignment):
        return None
    task, kept = assignment.task, commitments.choice(assignment.task_id)
    if kept is None:
        return OwnWindow(None) if _may_have_answered(assignment, commitments) else None
    window = int.from_bytes(kept, "big")
    if len(kept) != _BYTES or window >= task.windows.count:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name}: the window that this device remembers is none of the task's: deny "
            "its purpose, which forgets it, and allow it again",
        )
    return OwnWindow(window)


def draw_window(
    assignment: Assignment,
    commitments: Commitments,
    entropy: Entropy,
    now: float,
    identity: DeviceIdentity | None = None,
) -> OwnWindow | None:
    """The same, drawn and kept if it was not yet, in a transaction of its own: it stands whatever
    becomes of the answer. ``now``: Unix seconds, for the ledger and the certificate. ``identity``:
    of the device, for tasks that want one. Raises MISMATCH, OVERLOADED; CONFIG as ``prover_for``,
    and nothing is drawn then.
    """
    known = own_window(assignment, commitments)
    if known is not None or not answers_once(assignment):
        return known
    task = assignment.task
    window = _drawn(assignment, entropy, now, identity)
    with commitments.transaction():
        known = own_window(assignment, commitments)  # another process may have been faster
        if known is not None:
            return known
        commitments.choose(assignment.task_id, window.to_bytes(_BYTES, "big"))
        details = {"windows": task.windows.count}
        commitments.append(
            LedgerEntry(LedgerEvent.DREW, now, assignment.task_id, task.name, window, details)
        )
    return OwnWindow(window)


def _drawn(
    assignment: Assignment, entropy: Entropy, now: float, identity: DeviceIdentity | None
) -> int:
    task, count = assignment.task, assignment.task.windows.count
    if task.admission is not Admission.ENROLLED:
        return uniform_below(count, entropy)
    # as in ``prover_for``: only for enrolled tasks
    from shoal.crypto.admission.fresh_window import fresh_window

    key = enrolled_identity(task, identity, now).key
    return fresh_window(key, assignment.task_id, count)


def check_own(assignment: Assignment, window: int, commitments: Commitments) -> None:
    """Return if this device may answer a window, as far as its draw says. Raises CONFLICT where it
    drew another one or none, or has answered already.
    """
    if not answers_once(assignment):
        return
    own = own_window(assignment, commitments)
    name, count = assignment.task.name, assignment.task.windows.count
    if own is None:
        raise ShoalError(
            Kind.CONFLICT, f"task {name}: this device has not drawn its window: draw it first"
        )
    if own.window != window:
        raise ShoalError(Kind.CONFLICT, f"task {name}: window {window} is {own.words(count)}")
    if commitments.tally(assignment.task_id).windows:
        raise ShoalError(
            Kind.CONFLICT, f"task {name}: window {window} is {OwnWindow(None).words(count)}"
        )


def _may_have_answered(assignment: Assignment, commitments: Commitments) -> bool:
    """Whether a window was charged, or one had begun that may have been in what was lost."""
    if commitments.tally(assignment.task_id).windows:
        return True
    lost = commitments.lost()
    return lost is not None and assignment.task.windows.may_have_begun(0, lost.before_s)
