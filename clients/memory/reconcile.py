"""The ledger against the tables beside it: what the chain says was charged, sent and agreed to is
what the tables say.

The chain is verified before. A device acts by its tables (whether a window is answered, what is
left of the budget, which frame is sent), so a table that was altered, or whose rows were lost,
would have it act against what it once wrote down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.clients.core import ReportState
from shoal.clients.memory.commitments import NANO
from shoal.clients.memory.ledger import INFINITE, LedgerEvent
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.commitments import Commitments
    from shoal.clients.memory.ledger import Detail, LedgerEntry, Stored
    from shoal.clients.memory.outbox import Outbox
    from shoal.ids import TaskId

_NOTHING = "nothing"


@dataclass
class LedgerAccount:
    """What the chain says, entry by entry, and at which entry it said so."""

    # nano-epsilon, entry
    charges: dict[tuple[TaskId, int], tuple[int, int]] = field(default_factory=dict)
    # SHA-256 in hexadecimal, entry
    frames: dict[tuple[TaskId, int], tuple[str, int]] = field(default_factory=dict)
    ends: dict[tuple[TaskId, int], tuple[str, int]] = field(default_factory=dict)  # state, entry
    consents: dict[str, tuple[str, int]] = field(default_factory=dict)
    accepted: dict[TaskId, tuple[float | None, int]] = field(default_factory=dict)
    # Unix seconds before which windows are answered, nano-epsilon
    losses: list[tuple[float, int]] = field(default_factory=list)
    permanent: set[tuple[TaskId, int]] = field(default_factory=set)  # charges of memoized tasks
    struck: set[TaskId] = field(default_factory=set)
    lost: int = 0  # nano-epsilon
    lost_at: int = 0


def reconcile(rows: Iterable[Stored], commitments: Commitments, outbox: Outbox) -> None:
    """``rows``: the whole chain, verified. In one transaction, or while nobody writes. Raises
    MISMATCH naming the first difference.
    """
    account = read_chain(rows)
    charges = {(charge.task_id, charge.window): charge.nano for charge in commitments.charges()}
    _budget(account, charges, commitments)
    _reports(account, outbox)
    answers = commitments.consents()
    for purpose, (answer, number) in account.consents.items():
        if answers.pop(purpose, "not asked") != answer:
            raise _differs(
                number, f"that a purpose is {answer}", "the table of consents says otherwise"
            )
    if answers:
        raise _untold("a consent")
    for task_id, (epsilon0, number) in account.accepted.items():
        if commitments.accepted(task_id) != epsilon0:
            raise _differs(
                number, f"what was accepted of task {task_id.short}", "the table says otherwise"
            )


def read_chain(rows: Iterable[Stored]) -> LedgerAccount:
    """What a verified chain says. Raises MISMATCH if its entries contradict one another."""
    account, spent = LedgerAccount(), 0
    for row in rows:
        entry = row.entry
        match entry.event:
            case LedgerEvent.REPORTED:
                spent += _reported(account, row.number, entry, spent)
            case LedgerEvent.SET_BACK | LedgerEvent.MENDED if "epsilon_lost" in entry.details:
                nano = _nano(entry.details, "epsilon_lost") or 0
                account.lost, account.lost_at, spent = account.lost + nano, row.number, spent + nano
                account.losses.append((_seconds(entry.details.get("answered_before_s")), nano))
            case LedgerEvent.STRUCK if entry.task_id is not None:
                account.struck.add(entry.task_id)
            case LedgerEvent.OUTCOME | LedgerEvent.WITHDRAWN if (
                entry.task_id is not None and entry.window is not None
            ):
                state = str(entry.details.get("state", ReportState.WITHDRAWN.value))
                account.ends[entry.task_id, entry.window] = state, row.number
            case LedgerEvent.CONSENT if entry.task_id is None:
                account.consents[str(entry.details.get("purpose"))] = (
                    str(entry.details.get("answer")),
                    row.number,
                )
            case LedgerEvent.CONSENT if entry.task_id is not None:
                said = entry.details.get("accepted_epsilon0")
                account.accepted[entry.task_id] = (
                    math.inf if said == INFINITE else said if isinstance(said, float) else None,
                    row.number,
                )
    return account


def _reported(account: LedgerAccount, number: int, entry: LedgerEntry, spent: int) -> int:
    """Nano-epsilon that an entry charged, after ``spent`` before it."""
    nano, after = (
        _nano(entry.details, "epsilon_charged"),
        _nano(entry.details, "epsilon_spent_after"),
    )
    if entry.task_id is None or entry.window is None or nano is None or after is None:
        raise _differs(number, "that a window was answered", "does not say which, or what it cost")
    key = entry.task_id, entry.window
    if key in account.charges:
        raise _differs(
            number,
            f"that {_named(*key)} was answered",
            f"entry {account.charges[key][1]} says it too",
        )
    if after != spent + nano:
        raise _differs(
            number,
            f"that epsilon {after / NANO:g} was spent",
            f"the entries before it come to {(spent + nano) / NANO:g}",
        )
    account.charges[key] = nano, number
    if "memoized" in entry.details:
        account.permanent.add(key)
    frame = entry.details.get("frame_sha256")
    if isinstance(frame, str):
        account.frames[key] = frame, number
    return nano


def _seconds(value: Detail) -> float:
    """Where it is no number: of the whole past and future."""
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.inf
    )


def _nano(details: Mapping[str, Detail], name: str) -> int | None:
    value = details.get(name)
    return (
        round(value * NANO)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else None
    )


def _budget(
    account: LedgerAccount, charges: dict[tuple[TaskId, int], int], commitments: Commitments
) -> None:
    for key, (nano, number) in account.charges.items():
        charged = charges.pop(key, None)
        if charged != nano:
            has = _NOTHING if charged is None else f"{charged / NANO:g}"
            raise _differs(
                number,
                f"that {_named(*key)} was charged epsilon {nano / NANO:g}",
                f"the budget has {has} for it",
            )
    if charges:
        raise _untold(f"a charge for {_named(*min(charges))}")
    lost = commitments.lost()
    if (lost.nano if lost is not None else 0) != account.lost or (lost is None) != (
        account.lost_at == 0
    ):
        raise _differs(
            account.lost_at,
            f"that epsilon {account.lost / NANO:g} was lost",
            "the budget says otherwise",
        )
    spent = sum(nano for nano, _ in account.charges.values()) + account.lost
    if commitments.spent() != spent:
        raise ShoalError(
            Kind.MISMATCH,
            f"ledger: its entries come to epsilon {spent / NANO:g}, and the budget says "
            f"{commitments.spent() / NANO:g}: {_KEEP}",
        )
    for task_id in {task_id for task_id, _ in account.charges}:
        of_task = [nano for key, (nano, _) in account.charges.items() if key[0] == task_id]
        tally = commitments.tally(task_id)
        if (tally.windows, tally.nano) != (len(of_task), sum(of_task)):
            raise ShoalError(
                Kind.MISMATCH,
                f"ledger: it has {len(of_task)} windows of task {task_id.short}, at epsilon "
                f"{sum(of_task) / NANO:g}, and the budget "
                f"{tally.windows}, at {tally.nano / NANO:g}: {_KEEP}",
            )


def _reports(account: LedgerAccount, outbox: Outbox) -> None:
    for key, (digest, number) in account.frames.items():
        record = outbox.find(*key)
        if record is None:
            raise _differs(number, f"that {_named(*key)} has a report", "the outbox has none")
        held = outbox.load(*key)
        if held is not None and sha256(held.frame).hex() != digest:
            raise _differs(
                number, f"which frame {_named(*key)} is sent in", "the outbox has another"
            )
    for key, (state, number) in account.ends.items():
        record = outbox.find(*key)
        if record is None or record.state.value != state:
            has = _NOTHING if record is None else record.state.value
            raise _differs(
                number, f"that the report of {_named(*key)} is {state}", f"the outbox has {has}"
            )


_KEEP = "keep the files as they are, and find out who can write them"


def _named(task_id: TaskId, window: int) -> str:
    return f"window {window} of task {task_id.short}"


def _differs(number: int, what: str, otherwise: str) -> ShoalError:
    return ShoalError(
        Kind.MISMATCH, f"ledger: entry {number} says {what}, and {otherwise}: {_KEEP}"
    )


def _untold(what: str) -> ShoalError:
    return ShoalError(
        Kind.MISMATCH, f"ledger: no entry tells of {what} that the tables have: {_KEEP}"
    )
