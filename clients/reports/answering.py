"""Where an agent's value becomes a report: charged, randomized (or remembered), sealed and entered
in the ledger, in one transaction.

``answer_window`` claims the window, answers it and keeps the report: all of it commits together, or
nothing does.

**Fresh tasks.** Each window draws anew and costs epsilon0 anew.

**Memoized tasks.** The first report of a cell is drawn, charged and remembered; later windows in
which the value falls into the same cell send the same report again, sealed anew, and cost nothing.
Idea: the permanent randomized response of Erlingsson, Pihur, Korolova, "RAPPOR", CCS 2014, section
2. A value that does not change costs epsilon0 once, over all windows; each further distinct value
costs epsilon0 again, and that the value changed may show. When the budget does not pay for another
draw, the report that was sent last is sent again: the device takes part all the same, because
staying away would tell.

**Memoized tasks of a mechanism with a memory** (shoal.mechanisms.longitudinal.protocol). What it
chooses once is drawn with the first report and kept; what is drawn, charged and remembered is the
permanent answer of the value's key, and every window's report is drawn anew from it. The charge is
what the permanent answer costs over all windows, not what one report does. When the budget does not
pay for another key, the permanent answer that was used last is used again, for a fresh report.

One budget pays for all tasks. What a memoized task cost depends on how many distinct values it had,
and when, so the moment at which the budget pays for no more fresh draws, and other tasks get no
report, depends on that too: a change of value may show there as well.

A numeric value between two cells is rounded at random. Drawn anew in every window this would show
an unchanged value in two cells, at twice the cost, so a memoized task rounds at one random point
that the device keeps (alpha-point rounding: Ding, Kulkarni, Yekhanin, "Collecting Telemetry Data
Privately", NeurIPS 2017, section 4). Over the fleet the mean is kept as before.

**What is charged.** epsilon0, rounded up to a nano-epsilon. A task whose epsilon0 is above the
owner's cap, or infinite, is answered only if the owner said yes to it by name; it is charged what
the certificate guarantees behind the shuffler (``Terms.central``), and the entry says so. Nothing
is ever given back: not for a window that is withheld, not for a report that is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.clients.core import Assignment, SealedReport, seal
from shoal.clients.drawing import draw, report_of
from shoal.clients.memory.commitments import NANO, Commitments, TaskCharges, check_charge, nano_up
from shoal.clients.memory.ledger import INFINITE, Detail, LedgerEntry, LedgerEvent
from shoal.clients.memory.outbox import Outbox, Record
from shoal.clients.reports.own_window import check_own, own_window
from shoal.digests import sha256
from shoal.domain import Value
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.crypto.admission.admission import Prover
    from shoal.task import Task

NEW, AGAIN, KEPT = "new", "again", "kept"
"""How a memoized task's window came by its report: a fresh draw, what its cell or key had, or the
last one's for want of budget.
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which an answer is given.

    ``limit_nano``: the lifetime budget in nano-epsilon, None: none. ``keep_values``: the owner
    wants true values in the ledger. ``source``: where the value came from, in a word or two.
    ``central``: the epsilon that the task's certificate guarantees behind the shuffler, at
    floor(honest fraction x min_batch) reports, rounded up; may raise ShoalError if there is none.
    It runs inside the transaction, with the file locked: have it computed before. ``max_epsilon0``:
    the owner's cap; above it an explicit yes is needed. ``sums_if_apart``: the owner trusts
    shuffler and analyzer not to work together, for sums.
    """

    limit_nano: int | None
    keep_values: bool = False
    source: str = "given"
    central: Callable[[], float] | None = None
    max_epsilon0: float = math.inf
    sums_if_apart: bool = False


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A window that is to be answered, and everything that its answer is made of.

    ``value``: by the owner's rules already; never shown. ``prover``: from ``prover_for``.
    ``now``: Unix seconds, for the ledger.
    """

    assignment: Assignment
    window: int
    value: Value = field(repr=False)
    prover: Prover
    terms: Terms
    now: float


@dataclass(frozen=True, slots=True)
class _Cost:
    """``nano`` for one draw, and which guarantee that is: of one report alone ("local") or behind
    the shuffler ("central").
    """

    nano: int
    basis: str
    central: float | None


def answer_window(
    request: AnswerRequest,
    outbox: Outbox,
    commitments: Commitments,
    entropy: Entropy,
    *,
    sending: bool = False,
) -> tuple[Record, SealedReport | None]:
    """Claim a window, answer it and queue the report, in one transaction. Returns the report's
    standing, and the report if it was made now, with its first attempt begun if it is ``sending``:
    a window that has a report keeps it, and the value is ignored.

    ``outbox`` and ``commitments`` stand on one store. Raises what ``Outbox.claim`` and ``answer``
    raise; nothing has changed then.
    """
    with outbox.transaction():
        known = outbox.claim(request.assignment.task_id, request.window)
        if known is not None:
            return known, None
        made = answer(request, commitments, entropy)
        return outbox.add(made, sending=sending), made


def answer(request: AnswerRequest, commitments: Commitments, entropy: Entropy) -> SealedReport:
    """The report of one window: charged, made, sealed, remembered and entered.

    Raises REFUSED if the budget does not pay or the owner never said yes to this epsilon, CONFLICT
    if the window was charged before or is not the one that the device drew, INVALID for a window
    that the task hasn't or a task of sums; nothing is charged, remembered or entered then. The
    value leaves no trace but through the randomizer, and in the ledger with ``terms.keep_values``.
    No refusal depends on this ``value``;
    a memoized task's comes before its first report or never. All depend on what was spent: by
    memoized tasks, on whether and when their values changed.
    """
    assignment, window, terms = request.assignment, request.window, request.terms
    with commitments.transaction():
        # a charge that is no-op would make this draw free
        if commitments.charged(assignment.task_id, window) is not None:
            raise ShoalError(
                Kind.CONFLICT,
                f"task {assignment.task.name}: window {window} was charged before: a window is "
                "answered once",
            )
        _check_known(assignment, window, commitments)
        check_own(assignment, window, commitments)
        cost = _cost(assignment, commitments, terms)
        before = commitments.tally(assignment.task_id)
        if assignment.task.memoized:
            report, origin, nano = _memoized(request, commitments, entropy, cost)
        else:
            nano = commitments.charge(assignment.task_id, window, cost.nano, terms.limit_nano)
            report, origin = report_of(assignment, request.value, entropy, window), None
        prepared = seal(assignment, window, report, entropy, request.prover)
        details = _charged(assignment, commitments, terms, cost, before, nano)
        details |= {"memoized": origin} if origin else {}
        # one of several messages is the value itself
        if assignment.several is None or terms.keep_values:
            details["report"] = b"".join(report).hex()
        if assignment.several is not None:
            details["messages"] = len(report)
        details |= {
            "frame_sha256": sha256(prepared.frame).hex(),
            "frame_bytes": len(prepared.frame),
        }
        if terms.keep_values:
            details["value"] = _shown(request.value)
        entry = LedgerEntry(
            LedgerEvent.REPORTED,
            request.now,
            assignment.task_id,
            assignment.task.name,
            window,
            details,
        )
        commitments.append(entry)
    return prepared


def charge_sum(
    assignment: Assignment, window: int, commitments: Commitments, terms: Terms, now: float
) -> int:
    """Charge a window of a task that is summed in rounds, before the first byte of its vector may
    leave. Returns the nano-epsilon.

    What holds if shuffler and analyzer work together, or, where the owner accepts sums that are
    protected while they don't, the smaller of the two. Charged once, and for good, whatever becomes
    of the round; again is a no-op. Raises REFUSED as ``answer`` does.
    """
    known = commitments.charged(assignment.task_id, window)
    if known is not None:
        return known
    with commitments.transaction():
        _check_known(assignment, window, commitments)
        cost = _cost(assignment, commitments, terms)
        before = commitments.tally(assignment.task_id)
        known = commitments.charged(
            assignment.task_id, window
        )  # another process may have been faster
        if known is not None:
            return known
        nano = commitments.charge(assignment.task_id, window, cost.nano, terms.limit_nano)
        details = _charged(assignment, commitments, terms, cost, before, nano)
        commitments.append(
            LedgerEntry(
                LedgerEvent.REPORTED, now, assignment.task_id, assignment.task.name, window, details
            )
        )
    return cost.nano


def check_affordable(
    assignment: Assignment, window: int | None, commitments: Commitments, terms: Terms
) -> None:
    """Raises what ``answer`` or ``charge_sum`` would refuse a window with (None: any that has no
    answer): REFUSED, CONFLICT. Charges nothing, and writes nothing.

    Whatever the value: a memoized task is refused before its first report or never, and whether a
    new draw is needed is not looked at.
    """
    if window is not None:
        if commitments.charged(assignment.task_id, window) is not None:
            return
        _check_known(assignment, window, commitments)
    cost = _cost(assignment, commitments, terms)
    try:
        check_charge(commitments.spent(), cost.nano, terms.limit_nano)
    except ShoalError as error:
        if (
            error.kind is not Kind.REFUSED
            or not assignment.task.memoized
            or commitments.latest(assignment.task_id) is None
        ):
            raise


def is_answered(
    task_id: TaskId, window: int, known: Assignment | None, outbox: Outbox, commitments: Commitments
) -> bool:
    """Whether a window has its report, its vector was charged, either may be so in what was lost,
    or the device drew another window, and answers that alone. ``known``: the task, if its files are
    there.
    """
    if outbox.find(task_id, window) is not None or commitments.charged(task_id, window) is not None:
        return True
    if known is None:
        return False
    own = own_window(known, commitments)
    return (own is not None and own.window != window) or forgotten(known, window, commitments)


def forgotten(assignment: Assignment, window: int, commitments: Commitments) -> bool:
    """Whether a window may have been answered in a part of this memory that was lost: then it is
    taken as answered, and charged.
    """
    lost = commitments.lost()
    return lost is not None and assignment.task.windows.may_have_begun(window, lost.before_s)


def _check_known(assignment: Assignment, window: int, commitments: Commitments) -> None:
    """Raises CONFLICT."""
    if forgotten(assignment, window, commitments):
        raise ShoalError(
            Kind.CONFLICT,
            f"task {assignment.task.name}: window {window} may have been answered before this "
            "device's memory was set back: it is taken "
            "as answered, and the next one is not",
        )


# --- what it costs --------------------------------------------------------------------------------


def _cost(assignment: Assignment, commitments: Commitments, terms: Terms) -> _Cost:
    """Raises REFUSED where the owner's explicit yes is missing, or nothing at all is guaranteed."""
    name, epsilon0 = assignment.task.name, assignment.epsilon0
    central = _central(terms)
    if assignment.epsilon_apart is not None:
        together = epsilon0 <= assignment.epsilon_apart or not terms.sums_if_apart
        epsilon, basis = (epsilon0, "together") if together else (assignment.epsilon_apart, "apart")
    else:
        epsilon, basis = epsilon0, "local"
    if epsilon <= terms.max_epsilon0 and math.isfinite(epsilon):
        return _Cost(nano_up(epsilon), basis, central)
    accepted = commitments.accepted(assignment.campaign.promise)
    if accepted is None or not accepted >= epsilon:
        raise ShoalError(
            Kind.REFUSED,
            f"task {name}: its local epsilon is above the owner's limit: shoal agent consent "
            f"{name} --accept-epsilon0 says yes to it",
        )
    # Memoized windows are no independent draws, so that no guarantee behind the shuffler adds up
    # over them: epsilon0 is what holds.
    if (
        assignment.epsilon_apart is None
        and not assignment.task.memoized
        and central is not None
        and central < epsilon
    ):
        return _Cost(nano_up(central), "central", central)
    if not math.isfinite(epsilon):
        raise ShoalError(
            Kind.REFUSED,
            f"task {name}: no finite epsilon is guaranteed for it: there is nothing that could be "
            "charged",
        )
    return _Cost(nano_up(epsilon), basis, central)


def _central(terms: Terms) -> float | None:
    """None where no finite one can be computed."""
    if terms.central is None:
        return None
    try:
        epsilon = terms.central()
    except ShoalError:
        return None
    return epsilon if math.isfinite(epsilon) and epsilon >= 0 else None


def _charged(
    assignment: Assignment,
    commitments: Commitments,
    terms: Terms,
    cost: _Cost,
    before: TaskCharges,
    nano: int,
) -> dict[str, Detail]:
    """What the ledger says of every charge: of ``nano``, the task's first after those of
    ``before``. Epsilons are upper bounds; what is not of one report alone ("local") holds but for a
    delta.
    """
    epsilon0 = assignment.epsilon0
    return {
        "source": terms.source,
        "epsilon_local": epsilon0 if math.isfinite(epsilon0) else INFINITE,
        **({} if assignment.epsilon_first is None else {"epsilon_first": assignment.epsilon_first}),
        "epsilon_central": cost.central,
        "epsilon_charged": nano / NANO,
        "delta_charged": 0.0 if cost.basis == "local" else assignment.task.delta,
        "basis": cost.basis,
        "epsilon_spent_after": commitments.spent() / NANO,
        "first_report": before.windows == 0,
        "lifetime": (before.nano + nano) / NANO,
    }


# --- what is sent ---------------------------------------------------------------------------------


def _memoized(
    request: AnswerRequest, commitments: Commitments, entropy: Entropy, cost: _Cost
) -> tuple[tuple[bytes, ...], str, int]:
    """The report of a memoized task, its origin, NEW, AGAIN or KEPT, and what the window is
    charged, which is done here: for a new draw, else 0.
    """
    assignment, task_id = request.assignment, request.assignment.task_id
    cell = assignment.task.domain.encode(request.value, SamePoint(commitments.rounding(task_id)))
    mechanism = assignment.longitudinal
    if mechanism is None:
        kept, origin = _pay_for_key(request, cell, commitments, cost)
        if kept is None:
            kept = b"".join(draw(assignment, cell, entropy))
        nano = _keep(request, cell, kept, origin, commitments)
        return _messages(assignment.task, kept), origin, nano
    choice = commitments.choice(task_id)
    if choice is None:
        choice = mechanism.choose_one(entropy)
        commitments.choose(task_id, choice)
    try:
        key = mechanism.key_of(choice, cell)
        kept, origin = _pay_for_key(request, key, commitments, cost)
        if kept is None:
            kept = mechanism.remember_one(choice, key, entropy)
        nano = _keep(request, key, kept, origin, commitments)
        return mechanism.report_one(choice, kept, entropy), origin, nano
    except ShoalError as error:
        raise (error if error.kind is not Kind.INVALID else _foreign(assignment.task)) from None


def _pay_for_key(
    request: AnswerRequest, key: int, commitments: Commitments, cost: _Cost
) -> tuple[bytes | None, str]:
    """What the device keeps for a key, AGAIN; None, NEW, where it keeps nothing and a draw is paid
    for now; and where the budget does not pay for it, what was used last, whichever key that is of,
    KEPT. Raises REFUSED if there is nothing of these.
    """
    task_id = request.assignment.task_id
    kept = commitments.permanent(task_id, key)
    if kept is not None:
        return kept, AGAIN
    try:
        commitments.charge(
            task_id, request.window, cost.nano, request.terms.limit_nano, permanent=True
        )
    except ShoalError as error:
        latest = commitments.latest(task_id)
        if error.kind is not Kind.REFUSED or latest is None:
            raise
        return latest, KEPT
    return None, NEW


def _keep(
    request: AnswerRequest, key: int, kept: bytes, origin: str, commitments: Commitments
) -> int:
    """From now on it stands for the key, and was used last. The window is charged 0, unless it was
    charged for the draw: what it is charged is returned.
    """
    task_id = request.assignment.task_id
    if origin != KEPT:
        commitments.remember(task_id, key, kept)
    return commitments.charge(task_id, request.window, 0, request.terms.limit_nano, permanent=True)


def _foreign(task: Task) -> ShoalError:
    return ShoalError(
        Kind.MISMATCH,
        f"task {task.name}: what this device remembers for it is not of the task's mechanism: deny "
        "its purpose, which forgets it, and "
        "allow it again",
    )


def _messages(task: Task, kept: bytes) -> tuple[bytes, ...]:
    """The messages of a report that was remembered: one after the other."""
    size = task.report_size
    if len(kept) != task.messages * size:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name}: the report that this device remembers has another length than the "
            "task's: deny its purpose, which "
            "forgets it, and allow it again",
        )
    return tuple([kept[at : at + size] for at in range(0, len(kept), size)])


class SamePoint:
    """An entropy whose every draw of a word is the same: a value is rounded at the same point
    whenever it comes.
    """

    def __init__(self, word: bytes) -> None:
        self._word = word

    def bytes(self, count: int) -> bytes:
        """The one word, 8 bytes. Raises INTERNAL for another number of bytes."""
        if count != len(self._word):
            raise ShoalError(Kind.INTERNAL, "a value is rounded by one word of 8 bytes")
        return self._word

    def words(self, count: int) -> NDArray[np.uint64]:
        """Raises INTERNAL: a device rounds one value at a time."""
        raise ShoalError(Kind.INTERNAL, "a value is rounded by one word of 8 bytes")


def _shown(value: Value) -> Detail:
    """A value as the ledger can keep it: what JSON has no form for, or what is too long, as
    text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return f"an integer of {value.bit_length()} bits"
    return value[: LIMITS.text_chars] if isinstance(value, str) else value
