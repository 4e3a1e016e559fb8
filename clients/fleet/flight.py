"""One frame on its way, and what each answer to it means: for honest reports, their copies, and
frames that break a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, unique

from shoal.clients.core import ACTION_OF, NOT_STORED, Action, ReportState
from shoal.clients.fleet.misbehaviour import Carrier, Conduct, expected
from shoal.clients.fleet.share import (
    ACKED,
    GARBAGE_ACKED,
    GARBAGE_UNKNOWN,
    NO_ANSWER,
    NOT_SENT,
    SURPRISE,
    UNKNOWN,
    ShareResult,
)
from shoal.clients.memory.outbox import Entry, MemoryOutbox
from shoal.clients.reports.delivery import give_up
from shoal.clients.transports.transport import Undated
from shoal.errors import Kind, ShoalError


@unique
class FlightRole(Enum):
    """What a frame of the simulation is, and so how its answer counts."""

    OWN = "own"  # a device's one report: counted once
    COPY = "copy"  # the same bytes again: acknowledged with the same bytes, not counted again
    BREACH = "breach"  # a frame that breaks a rule


@dataclass(slots=True)
class Flight:
    """A frame and where it stands. ``since``: when it was due, on the simulation's clock; 0: not
    yet sent. ``outbox``: of an OWN one.

    ``doubtful``: some attempt of a COPY or BREACH may have been stored.
    """

    role: FlightRole
    conduct: Conduct
    frame: bytes = field(repr=False)
    ack_key: bytes = field(repr=False)
    task: int
    device: int
    since: float
    outbox: MemoryOutbox | None = None
    entry: Entry | None = None
    attempts: int = 0
    doubtful: bool = False

    @property
    def believes_unverified(self) -> bool:
        """Whether any acknowledgement counts as one: a shuffler that can't open a frame can't make
        its receipt, yet must not say yes.
        """
        return self.role is FlightRole.BREACH and self.conduct is not Conduct.GARBAGE


class Tracker:
    """Writes a share's result as answers come. A report that was acknowledged in any of its copies
    is acknowledged.
    """

    def __init__(self, result: ShareResult, way: Carrier, now: Callable[[], float]) -> None:
        self._result, self._way, self._now = result, way, now
        # (task, device) of honest reports under way: marked unknown, not counted as such
        self._open: set[tuple[int, int]] = set()
        self._doubt: set[tuple[int, int]] = set()  # whose copy may have been stored

    def refused_itself(self, task: int, device: int, error: ShoalError) -> None:
        """The device sent nothing."""
        self._own(task, device, error.kind.value)
        self._result.reasons.setdefault(error.kind.value, error.message)

    def begin(self, flight: Flight) -> None:
        """An attempt: from here on its fate is open, also if the load is interrupted."""
        flight.attempts += 1
        self._result.retried += flight.attempts > 1
        codes = self._result.codes[flight.task]
        if flight.attempts > 1 or codes[flight.device] != NOT_SENT:
            return
        if flight.role is FlightRole.BREACH:
            codes[flight.device] = (
                GARBAGE_UNKNOWN if flight.conduct is Conduct.GARBAGE else NO_ANSWER
            )
        else:
            codes[flight.device] = UNKNOWN
            self._open.add((flight.task, flight.device))

    def settle(self, flight: Flight, answer: ShoalError | None, late: bool) -> bool:
        """Record one answer (None: acknowledged); True if the same bytes must be sent again.
        ``late``: patience has ended.
        """
        match flight.role:
            case FlightRole.OWN:
                return self._settle_own(flight, answer, late)
            case FlightRole.COPY:
                return self._settle_copy(flight, answer, late)
            case FlightRole.BREACH:
                return self._settle_breach(flight, answer, late)

    # --- the three roles --------------------------------------------------------------------------

    def _settle_own(self, flight: Flight, answer: ShoalError | None, late: bool) -> bool:
        """The outbox has the attempt's outcome already."""
        if answer is None:
            self._own(flight.task, flight.device, ACKED)
            self._result.trouble = ""
            self._result.latencies_ms.append((self._now() - flight.since) * 1000.0)
            return False
        # of every OWN flight
        assert flight.outbox is not None and flight.entry is not None  # noqa: S101, PT018
        record = flight.entry.record
        held = flight.outbox.load(record.task_id, record.window)
        if held is not None:
            self._result.trouble = answer.message
        if held is not None and not late:
            flight.entry = held
            return True
        if held is not None:
            give_up(flight.outbox, held, answer.kind)
        ended = flight.outbox.find(record.task_id, record.window)
        if ended is not None and ended.state is ReportState.UNKNOWN:
            self._own(flight.task, flight.device, UNKNOWN)
        else:
            self._own(flight.task, flight.device, answer.kind.value)
            self._result.reasons.setdefault(answer.kind.value, answer.message)
        return False

    def _settle_copy(self, flight: Flight, answer: ShoalError | None, late: bool) -> bool:
        sent, acked = self._result.copies
        if answer is None:
            self._result.copies = (sent + 1, acked + 1)
            self._own(flight.task, flight.device, ACKED)
            return False
        flight.doubtful |= answer.kind not in NOT_STORED or isinstance(answer, Undated)
        if answer.kind is Kind.BAD_SIGNATURE:
            self._surprise("a duplicate was acknowledged with other bytes than its first")
        elif answer.kind not in expected(Conduct.DUPLICATE, self._way):
            if ACTION_OF[answer.kind] is not Action.DROP and not late:
                return True
            if ACTION_OF[answer.kind] is Action.DROP:
                self._surprise(f"a duplicate was refused: {answer.kind.name}")
        self._result.copies = (sent + 1, acked)
        if flight.doubtful:
            self._doubt.add((flight.task, flight.device))
            if (flight.task, flight.device) not in self._open:
                self._own(flight.task, flight.device, UNKNOWN)
        return False

    def _settle_breach(self, flight: Flight, answer: ShoalError | None, late: bool) -> bool:
        garbage = flight.conduct is Conduct.GARBAGE
        name = flight.conduct.name.lower().replace("_", " ")
        if answer is None:
            if garbage:
                return self._answered(flight, GARBAGE_ACKED)
            self._surprise(f"{name} frame acknowledged")
            return self._answered(flight, SURPRISE)
        flight.doubtful |= answer.kind not in NOT_STORED or isinstance(answer, Undated)
        if answer.kind in expected(flight.conduct, self._way):
            return self._answered(
                flight, GARBAGE_UNKNOWN if garbage and flight.doubtful else answer.kind.value
            )
        if ACTION_OF[answer.kind] is Action.RETRY:
            return not late or self._answered(
                flight, GARBAGE_UNKNOWN if garbage and flight.doubtful else NO_ANSWER
            )
        self._surprise(f"{name} frame refused as {answer.kind.name}")
        return self._answered(flight, SURPRISE)

    # --- writing ----------------------------------------------------------------------------------

    def _answered(self, flight: Flight, code: int) -> bool:
        """A misbehaving frame's last word. Always False."""
        self._result.answers[flight.conduct, code] += 1
        # whose place in the history, and in the progress, is that of its honest report
        if flight.conduct is not Conduct.SECOND:
            self._result.handled += code != SURPRISE
            self._result.codes[flight.task][flight.device] = code
        return False

    def _own(self, task: int, device: int, code: int) -> None:
        """What became of an honest report: acknowledged in any copy is acknowledged; perhaps stored
        is stronger than refused.
        """
        codes, result, key = self._result.codes[task], self._result, (task, device)
        old = codes[device]
        if old == ACKED:
            return
        if code != ACKED and key in self._doubt:
            code = UNKNOWN
        if key in self._open:
            self._open.discard(key)
        elif old == UNKNOWN:
            result.unknown -= 1
        elif old != NOT_SENT:
            result.refused[old] -= 1
        codes[device] = code
        if code == ACKED:
            result.acked += 1
        elif code == UNKNOWN:
            result.unknown += 1
        else:
            result.refused[code] += 1

    def _surprise(self, what: str) -> None:
        self._result.surprises[what] += 1
