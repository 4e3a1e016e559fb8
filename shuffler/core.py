"""The rules of the shuffler, pure: no sockets, no disk, no clock. Everything else in this package
carries them out.

A window of a task is a batch, and its life is one line::

    OPEN -> CLOSING -> SEALED -> DELIVERING -> ACKNOWLEDGED -> SHREDDED
    OPEN -> CLOSING -> WITHHELD -> SHREDDED          fewer distinct reports than min_batch
            SEALED | DELIVERING -> WITHHELD
            the disk damaged so much of the batch that less than min_batch is left
            CLOSING | SEALED | DELIVERING -> EXPIRED -> SHREDDED
            the task's retention ended before the analyzer acknowledged, or an operator gave it up

CLOSING means that no report is taken any more and sealing goes on: a crash there is redone from the
inbox. Every state is durable before its effects begin and every effect is idempotent, so after a
crash ``resume`` names what to do again. There is no event "close now": a window closes by the clock
or by being full, never because somebody asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from functools import lru_cache

from shoal.crypto.admission.members import verifier_of
from shoal.crypto.envelope import ACK_KEY_SIZE, HopContent, frame_size, sealed_size
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS
from shoal.task import Aggregator, Task


@dataclass(frozen=True, slots=True, order=True)
class WindowId:
    """A numbered window of a task: the unit of collecting, sealing and delivering."""

    task_id: TaskId
    window: int

    def __post_init__(self) -> None:
        if not 0 <= self.window < LIMITS.windows:
            raise ShoalError(Kind.INVALID, f"a window is a number from 0 to {LIMITS.windows - 1}")


@unique
class WindowState(IntEnum):
    """Durable; the numbers are stored."""

    OPEN = 1
    CLOSING = 2
    SEALED = 3
    DELIVERING = 4
    ACKNOWLEDGED = 5
    WITHHELD = 6
    EXPIRED = 7
    SHREDDED = 8


@unique
class WindowEvent(Enum):
    """What happens to a window."""

    DUE = "due"  # end + grace has passed, or max_batch is reached
    ENOUGH = "enough"  # sealed; distinct reports >= min_batch
    TOO_FEW = "too few"  # sealed; distinct reports < min_batch
    OFFERED = "offered"  # delivery begins
    ACKNOWLEDGED = "acknowledged"  # the analyzer's signature over this manifest verified
    EXPIRED = "expired"  # retention has ended, or an operator gave the window up
    SHREDDED = "shredded"  # no file of the window is left


@unique
class Effect(Enum):
    """What must be done once the state is durable; each may be done twice."""

    SEAL = "sort the inbox into the batch and count"
    DESTROY_INBOX = "unlink the inbox with its secret"
    DELIVER = "offer and deliver until acknowledged"
    SHRED = "unlink every file of the window"


_STEPS: dict[tuple[WindowState, WindowEvent], WindowState] = {
    (WindowState.OPEN, WindowEvent.DUE): WindowState.CLOSING,
    (WindowState.CLOSING, WindowEvent.ENOUGH): WindowState.SEALED,
    (WindowState.CLOSING, WindowEvent.TOO_FEW): WindowState.WITHHELD,
    (WindowState.SEALED, WindowEvent.OFFERED): WindowState.DELIVERING,
    (
        WindowState.SEALED,
        WindowEvent.TOO_FEW,
    ): WindowState.WITHHELD,  # rows were damaged after sealing: what is left is not enough
    (WindowState.DELIVERING, WindowEvent.TOO_FEW): WindowState.WITHHELD,
    (WindowState.DELIVERING, WindowEvent.ACKNOWLEDGED): WindowState.ACKNOWLEDGED,
    (WindowState.CLOSING, WindowEvent.EXPIRED): WindowState.EXPIRED,
    (WindowState.SEALED, WindowEvent.EXPIRED): WindowState.EXPIRED,
    (WindowState.DELIVERING, WindowEvent.EXPIRED): WindowState.EXPIRED,
    (WindowState.ACKNOWLEDGED, WindowEvent.SHREDDED): WindowState.SHREDDED,
    (WindowState.WITHHELD, WindowEvent.SHREDDED): WindowState.SHREDDED,
    (WindowState.EXPIRED, WindowEvent.SHREDDED): WindowState.SHREDDED,
}

_EFFECTS: dict[WindowState, tuple[Effect, ...]] = {
    WindowState.OPEN: (),
    WindowState.CLOSING: (Effect.SEAL,),
    WindowState.SEALED: (Effect.DESTROY_INBOX, Effect.DELIVER),
    WindowState.DELIVERING: (Effect.DESTROY_INBOX, Effect.DELIVER),
    WindowState.ACKNOWLEDGED: (Effect.SHRED,),
    WindowState.WITHHELD: (Effect.SHRED,),
    WindowState.EXPIRED: (Effect.SHRED,),
    WindowState.SHREDDED: (),
}


def step(state: WindowState, event: WindowEvent) -> tuple[WindowState, tuple[Effect, ...]]:
    """The next state, and what to do once it is durable. Raises INTERNAL for a pair that no rule
    allows: that is a bug.
    """
    after = _STEPS.get((state, event))
    if after is None:
        raise ShoalError(
            Kind.INTERNAL, f"a window that is {state.name} cannot become {event.value}"
        )
    return after, _EFFECTS[after]


def resume(state: WindowState) -> tuple[Effect, ...]:
    """What to do, possibly again, for a window found in this state after a start."""
    return _EFFECTS[state]


def possible(state: WindowState, event: WindowEvent) -> bool:
    """Whether this event may happen in this state."""
    return (state, event) in _STEPS


def verdict(reports: int, min_batch: int) -> WindowEvent:
    """The decision, made once per window: ``reports`` are the distinct ones, so duplicates never
    make a batch large enough.
    """
    return WindowEvent.ENOUGH if reports >= min_batch else WindowEvent.TOO_FEW


def due(task: Task, window: int, now: float | None, distinct: int) -> bool:
    """Whether an open window closes now: at end + grace, or when it holds max_batch distinct
    reports. ``now`` None: the clock is disputed, only a full window closes.
    """
    over = now is not None and now >= task.windows.deadline_of(window)
    return over or (task.max_batch > 0 and distinct >= task.max_batch)


def expired(task: Task, window: int, now: float) -> bool:
    """Whether the task's promise to its owners (retention_s from the window's start) forbids to
    hold the batch any longer.
    """
    return now >= task.windows.start_of(window) + task.retention_s


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a window takes: ``distinct`` reports (0 = no limit) close it, ``rows`` is what a
    batch can have. Repeats cost nothing. ``messages``: of a report, at most; ``added``: rows of
    noise that the shuffler adds to every batch, at most.
    """

    messages: int
    distinct: int
    rows: int
    added: int = 0

    @property
    def several(self) -> bool:
        """Whether a report may have more messages than one."""
        return self.messages > 1

    @property
    def reports(self) -> int:
        """Reports that a window takes: no more than fit a batch, had each as many messages as a
        report may have.
        """
        room = max(0, self.rows - self.added) // self.messages
        return min(self.distinct or room, room)

    @classmethod
    def of(cls, task: Task) -> Capacity:
        """That of a task's windows."""
        return cls(task.messages, task.max_batch, LIMITS.batch_rows, task.added_messages)


def row_size(task: Task) -> int:
    """Bytes of every sealed message of the task."""
    return _row_size(task.suite, task.report_size)


@lru_cache(maxsize=1024)  # asked for every report
def _row_size(suite: int, report_size: int) -> int:
    return sealed_size(SuiteId.of(suite), report_size)


def was_full(max_batch: int, reports: int) -> bool:
    """Whether a decided window was closed because it was full. ``reports``: of its record, which
    has them from its closing on.
    """
    return 0 < max_batch <= reports


def admit(
    served: ServedTask,
    state: WindowState | None,
    content: HopContent,
    hop_key_id: KeyId,
    now: float,
    reports: int = 0,
) -> None:
    """Return if this opened frame may be stored, whoever sent it: who that is says the task's
    ``Verifier``. ``state`` None: the window has no record yet, it is open or not begun.
    ``reports``: what a decided window's record says that it holds.

    Raises, in this order: INVALID (aggregator, window, messages, lengths), UNKNOWN_KEY (hop or
    analyzer key are not the schedule's for that window), TOO_EARLY, WINDOW_CLOSED, WINDOW_FULL.
    What a peer sent is never quoted.
    """
    task, window = served.task, content.window
    if task.aggregator is not Aggregator.SHUFFLED:
        raise ShoalError(
            Kind.INVALID, "this task is summed in rounds: take part in one, send no frames"
        )
    if window >= task.windows.count:
        raise ShoalError(
            Kind.INVALID, f"the task has windows 0 to {task.windows.count - 1}: read the task again"
        )
    if len(content.ack_key) != ACK_KEY_SIZE:
        raise ShoalError(Kind.INVALID, f"an ack key is {ACK_KEY_SIZE} random bytes")
    least, most = task.least_messages, task.messages
    if not least <= len(content.sealed) <= most:
        wanted = f"{most}" if least == most else f"{least} to {most}"
        raise ShoalError(
            Kind.INVALID,
            f"a report of this task has {wanted} sealed messages, not {len(content.sealed)}",
        )
    size = row_size(task)
    if any(len(sealed) != size for sealed in content.sealed):
        raise ShoalError(
            Kind.INVALID,
            f"a sealed message of this task is {size} bytes long: use the task's mechanism and "
            "suite",
        )
    keys = served.keys
    if (
        hop_key_id != keys.hop_keys[window].key_id
        or content.analyzer_key_id != keys.analyzer_keys[window].key_id
    ):
        raise ShoalError(
            Kind.UNKNOWN_KEY,
            "sealed for a key that the schedule does not name for this window: fetch the schedule",
        )
    if now < task.windows.start_of(window) - task.windows.skew_s:
        raise ShoalError(
            Kind.TOO_EARLY,
            "the window has not begun: send the report when it has, and check the clock",
        )
    if now >= task.windows.deadline_of(window):
        raise ShoalError(Kind.WINDOW_CLOSED, "the window is over: drop the report")
    if state not in (None, WindowState.OPEN):
        # Decided before its deadline: it was full; or it was over, and the clock went back: the
        # decision stands all the same.
        if was_full(task.max_batch, reports):
            raise ShoalError(Kind.WINDOW_FULL, FULL)
        raise ShoalError(Kind.WINDOW_CLOSED, DECIDED)


def check_asked(task: Task, window: WindowId, named: WindowId | None) -> None:
    """Return if a report answers what its window asks. ``named``: the window of a discovery whose
    question it names; None: it names its task.

    Raises INVALID for another window's question, and for none where a later window of a discovery
    asks one: reports that answer different questions would not hide one another.
    """
    by_name = isinstance(task.domain, Discovery) and window.window > 0
    if named != (window if by_name else None):
        raise ShoalError(
            Kind.INVALID,
            "a report of a later window of a discovery names what that window asks: hear it from "
            "this shuffler first",
        )


def check_size(task: Task, length: int) -> None:
    """Raises INVALID for a frame of a size that no frame of the task has: the network would tell
    it, and its sender, from others.
    """
    proof_size = verifier_of(task).proof_size
    if length != _frame_size(task.suite, task.messages, task.report_size, proof_size):
        raise ShoalError(
            Kind.INVALID, "a frame has the one size of its task: the smallest of all that holds it"
        )


@lru_cache(maxsize=1024)
def _frame_size(suite: int, messages: int, report_size: int, proof_size: int) -> int:
    return frame_size(SuiteId.of(suite), messages, _row_size(suite, report_size), proof_size)


DECIDED = "the window was decided before: drop the report"
FULL = "the window holds as many reports as the task wants: drop the report"
