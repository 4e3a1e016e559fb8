"""One attempt to deliver one queued report: the only place where bytes leave a device, used by
agents and simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from shoal.clients.core import Action, ReportState, judge
from shoal.clients.memory.outbox import Entry, Outbox, Record
from shoal.clients.transports.transport import Transport, Undated
from shoal.crypto.envelope import verify_receipt
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit

T = TypeVar("T")


async def attempt(
    outbox: Outbox, entry: Entry, transport: Transport, deadline_s: float
) -> ShoalError | None:
    """Send the entry's bytes once and record what came of it. None: a receipt was verified; else
    the failure.

    The attempt is recorded before anything is sent and stays doubtful if this process dies or the
    caller is cancelled while it is under way.
    """
    await on(outbox, partial(outbox.sending, entry.record.task_id, entry.record.window))
    _, failure = await deliver(outbox, entry, transport, deadline_s)
    return failure


async def deliver(
    outbox: Outbox, entry: Entry, transport: Transport, deadline_s: float
) -> tuple[Record | None, ShoalError | None]:
    """The rest of an attempt that ``sending`` has recorded. ``entry``: as it stood before that.

    Returns the report's standing afterwards, and the failure; None: a receipt was verified.
    """
    hit("client.send")
    try:
        mac = await transport.submit(entry.frame, entry.ack_key, deadline_s)
        verify_receipt(entry.ack_key, 0, entry.frame, mac)
    except ShoalError as failure:
        doubtful = entry.record.doubtful or isinstance(failure, Undated)
        return await on(outbox, partial(_failed, outbox, entry, failure.kind, doubtful)), failure
    hit("client.receipt")
    return await on(outbox, partial(_acknowledged, outbox, entry)), None


def _acknowledged(outbox: Outbox, entry: Entry) -> Record | None:
    task_id, window = entry.record.task_id, entry.record.window
    return outbox.finish(task_id, window, ReportState.ACKED) or outbox.find(task_id, window)


def _failed(outbox: Outbox, entry: Entry, kind: Kind, doubtful: bool) -> Record | None:
    settle(outbox, entry, kind, doubtful)
    return outbox.find(entry.record.task_id, entry.record.window)


async def on(outbox: Outbox, step: Callable[[], T]) -> T:
    """Run a step of the outbox: in its thread if it waits for a disk, so that the owner's event
    loop doesn't.
    """
    return step() if outbox.thread is None else await outbox.thread.run(step)


def settle(outbox: Outbox, entry: Entry, kind: Kind, doubtful: bool) -> None:
    """Record a failed attempt of an entry: ``doubtful`` if it, or an earlier one, may have been
    stored whatever ``kind`` says.
    """
    verdict = judge(kind, doubtful)
    if verdict.action is Action.DROP:
        outbox.finish(entry.record.task_id, entry.record.window, verdict.state, kind)
    else:
        outbox.failed(entry.record.task_id, entry.record.window, kind, verdict.doubtful)


def give_up(outbox: Outbox, entry: Entry, kind: Kind) -> None:
    """End an entry that will not be tried again: UNKNOWN if an attempt may have been stored, else
    REFUSED.
    """
    state = ReportState.UNKNOWN if entry.record.doubtful else ReportState.REFUSED
    outbox.finish(entry.record.task_id, entry.record.window, state, kind)
