"""Clients that misbehave on purpose, how their frames are made, and the one answer that each of
them must get.

A load test proves little if every client is well-bred. Each ``Conduct`` breaks exactly one rule, so
what a right shuffler answers is known beforehand; any other answer, above all an acknowledgement,
is a surprise and fails the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, unique
from typing import TYPE_CHECKING

from shoal.arrays import np
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import (
    ACK_KEY_SIZE,
    HEADER_SIZE,
    VERSION,
    HopContent,
    seal_frame,
    sealed_size,
)
from shoal.entropy import SYSTEM, Entropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.crypto.admission.admission import Prover


@unique
class Carrier(Enum):
    """How frames reach the shuffler: one call each, batches as a relay sends them, or an MQTT
    broker.
    """

    GRPC = "grpc"
    RELAY = "relay"
    MQTT = "mqtt"


@unique
class Conduct(IntEnum):
    """What one simulated device does with every task. One byte per device."""

    HONEST = 0
    DUPLICATE = 1  # sends its frame twice at the same time, and again after the receipt
    LATE = 2  # seals for a window that is over
    NOISE = 3  # random bytes, as many as a frame has
    TRUNCATED = 4  # a frame without its last bytes
    VERSION = 5  # a frame of an unknown version
    FOREIGN_KEY = 6  # a frame whose key id no service holds
    DAMAGED = 7  # a frame with one bit turned over
    GARBAGE = 8  # a good frame; where the analyzer's bytes should be there are random ones
    STRANGER = 9  # a good frame of a task that nobody serves
    MISSHAPEN = 10  # a good frame whose sealed message is a byte too long
    OVERSIZED = 11  # more bytes than any frame or call may have
    SECOND = 12  # an enrolled device's honest report, and then another one
    UNENROLLED = 13  # the honest report of a device that proves no enrolment


MALFORMED = (
    Conduct.NOISE,
    Conduct.TRUNCATED,
    Conduct.VERSION,
    Conduct.FOREIGN_KEY,
    Conduct.DAMAGED,
)
HOSTILE = (Conduct.GARBAGE, Conduct.STRANGER, Conduct.MISSHAPEN, Conduct.OVERSIZED)
HOSTILE_TO_ENROLLED = (*HOSTILE, Conduct.SECOND, Conduct.UNENROLLED)
# their own report must be counted once
REPORTING = frozenset({Conduct.HONEST, Conduct.DUPLICATE, Conduct.SECOND})

# Whether a window is still open is looked at before the rule that is broken, so these may say so
# instead: a load's last frames come to a window that its other frames have filled.
_ENDED = frozenset({Kind.WINDOW_FULL, Kind.WINDOW_CLOSED})
_REFUSALS: dict[Conduct, frozenset[Kind]] = {
    Conduct.LATE: frozenset({Kind.WINDOW_CLOSED}),
    Conduct.NOISE: frozenset(
        {Kind.INVALID, Kind.UNKNOWN_KEY}
    ),  # of 65,536 one has a right version and suite
    Conduct.TRUNCATED: frozenset({Kind.INVALID}),
    Conduct.VERSION: frozenset({Kind.INVALID}),
    Conduct.FOREIGN_KEY: frozenset({Kind.UNKNOWN_KEY}),
    Conduct.DAMAGED: frozenset({Kind.INVALID}) | _ENDED,
    Conduct.GARBAGE: _ENDED,
    Conduct.STRANGER: frozenset({Kind.UNKNOWN_TASK}) | _ENDED,
    Conduct.MISSHAPEN: frozenset({Kind.INVALID}) | _ENDED,
    Conduct.OVERSIZED: frozenset(
        {Kind.INVALID, Kind.OVERSIZE}
    ),  # by the frame's rule in a batch, by the call's limit alone
    Conduct.SECOND: frozenset({Kind.CONFLICT}) | _ENDED,
    Conduct.UNENROLLED: frozenset({Kind.UNAUTHENTICATED}) | _ENDED,
    Conduct.DUPLICATE: _ENDED,  # of the copies
}
# Over MQTT a frame that does not open gets an answer that says nothing, or none: these wait in
# vain, and must.
_MUTE = frozenset({*MALFORMED, Conduct.OVERSIZED, Conduct.LATE})


def expected(conduct: Conduct, way: Carrier) -> frozenset[Kind]:
    """The refusals that a right service may answer with. DEADLINE among them: over MQTT it says
    nothing at all.
    """
    kinds = _REFUSALS[conduct]
    return kinds | {Kind.DEADLINE} if mute(conduct, way) else kinds


def mute(conduct: Conduct, way: Carrier) -> bool:
    """Whether silence is a right answer: the frame does not open, and a broker must not learn that
    it was refused.
    """
    return way is Carrier.MQTT and conduct in _MUTE


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the fleet, each in [0, 1], together at most 1; the rest is honest. Raises
    INVALID.
    """

    duplicates: float = 0.0
    late: float = 0.0
    malformed: float = 0.0
    hostile: float = 0.0

    def __post_init__(self) -> None:
        parts = (self.duplicates, self.late, self.malformed, self.hostile)
        if not (all(0 <= part <= 1 for part in parts) and sum(parts) <= 1 + 1e-9):
            raise ShoalError(
                Kind.INVALID,
                "the shares of duplicates, late, malformed and hostile clients lie in [0, 1], "
                "together at most 1",
            )


def mix(shares: Shares, devices: int, enrolled: bool) -> Counter[Conduct]:
    """How many devices of each conduct. The kinds of malformed and hostile clients take turns.

    A share above 0 is at least one device, else the nearest number of them. ``enrolled``: all tasks
    admit enrolled devices alone, so that breaking that rule is possible. Raises INVALID if there
    are fewer devices than the shares want.
    """
    counts: Counter[Conduct] = Counter()
    for share, turns in (
        (shares.duplicates, (Conduct.DUPLICATE,)),
        (shares.late, (Conduct.LATE,)),
        (shares.malformed, MALFORMED),
        (shares.hostile, HOSTILE_TO_ENROLLED if enrolled else HOSTILE),
    ):
        count = max(1, round(share * devices)) if share > 0 else 0
        counts.update(
            {
                turn: (count - number + len(turns) - 1) // len(turns)
                for number, turn in enumerate(turns)
            }
        )
    honest = devices - counts.total()
    if honest < 0:
        raise ShoalError(
            Kind.INVALID,
            f"{devices} devices are too few for these shares of misbehaving ones: take more",
        )
    counts[Conduct.HONEST] = honest
    return +counts


def conducts(shares: Shares, devices: int, enrolled: bool, entropy: Entropy = SYSTEM) -> bytes:
    """One ``Conduct`` per device, as many of each as ``mix`` says, in random order. Raises
    INVALID.
    """
    return scattered(mix(shares, devices, enrolled), entropy)


def scattered(counts: Counter[Conduct], entropy: Entropy = SYSTEM) -> bytes:
    """One ``Conduct`` per device, so many of each, in random order."""
    devices = counts.total()
    kinds = b"".join(
        bytes((conduct,)) * count
        for conduct, count in counts.items()
        if conduct is not Conduct.HONEST
    )
    if not kinds:
        return bytes(devices)
    chosen = np.zeros(devices, dtype=np.uint8)
    chosen[np.argsort(entropy.words(devices))[: len(kinds)]] = np.frombuffer(kinds, dtype=np.uint8)
    return chosen.tobytes()


@dataclass(frozen=True, slots=True)
class Crafted:
    """A frame to send as it is. ``ack_key``: random where the shuffler can't learn it."""

    frame: bytes = field(repr=False)
    ack_key: bytes = field(repr=False)


def over_window(assignment: Assignment, now: float) -> int:
    """The last window that takes no reports any more. Raises INVALID if all still do."""
    windows = assignment.task.windows
    over = [window for window in range(windows.count) if windows.deadline_of(window) <= now]
    if not over:
        raise ShoalError(
            Kind.INVALID,
            f"task {assignment.task.name} has no window that is over: late clients want one, so "
            "use --late 0 or an older task",
        )
    return over[-1]


def craft(
    conduct: Conduct,
    assignment: Assignment,
    window: int,
    report: Sequence[bytes],
    prover: Prover,
    late: int | None,
    entropy: Entropy = SYSTEM,
) -> Crafted:
    """The frame that breaks the rule of ``conduct``. ``report``: its messages, randomized; ``late``
    from ``over_window``.

    Raises INVALID for a conduct that sends honest frames alone, or LATE without a window.
    """
    # `shoal load --help` needs the names of this file, not a device
    from shoal.clients.core import seal

    match conduct:
        case Conduct.GARBAGE | Conduct.STRANGER | Conduct.MISSHAPEN:
            return _sealed(conduct, assignment, window, prover, entropy)
        case Conduct.NOISE:
            return Crafted(entropy.bytes(LIMITS.frame_sizes[0]), entropy.bytes(ACK_KEY_SIZE))
        case Conduct.OVERSIZED:
            return Crafted(entropy.bytes(LIMITS.submit_bytes + 1), entropy.bytes(ACK_KEY_SIZE))
        case Conduct.LATE if late is not None:
            window = late
        case Conduct.HONEST | Conduct.DUPLICATE | Conduct.LATE:
            raise ShoalError(
                Kind.INVALID, f"there is nothing to craft for a client that is {conduct.name}"
            )
    prepared = seal(
        assignment, window, report, entropy, OPEN if conduct is Conduct.UNENROLLED else prover
    )
    return Crafted(_broken(conduct, prepared.frame, entropy), prepared.ack_key)


def _broken(conduct: Conduct, frame: bytes, entropy: Entropy) -> bytes:
    match conduct:
        case Conduct.TRUNCATED:
            return frame[: 1 + uniform_below(len(frame) - 1, entropy)]
        case Conduct.VERSION:
            return bytes((VERSION + 1,)) + frame[1:]
        case Conduct.FOREIGN_KEY:
            return (
                frame[: HEADER_SIZE - KeyId.SIZE] + entropy.bytes(KeyId.SIZE) + frame[HEADER_SIZE:]
            )
        case Conduct.DAMAGED:
            bit = 8 * HEADER_SIZE + uniform_below(8 * (len(frame) - HEADER_SIZE), entropy)
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            return bytes(damaged)
    return frame


def _sealed(
    conduct: Conduct,
    assignment: Assignment,
    window: int,
    prover: Prover,
    entropy: Entropy,
) -> Crafted:
    """A frame that opens. What it holds for the analyzer is random."""
    task, config = assignment.task, assignment.keys.analyzer_keys[window]
    task_id = (
        TaskId(entropy.bytes(TaskId.SIZE)) if conduct is Conduct.STRANGER else assignment.task_id
    )
    length = sealed_size(config.suite, task.report_size) + (conduct is Conduct.MISSHAPEN)
    sealed = tuple(entropy.bytes(length) for _ in range(task.messages))
    admission = prover.prove(task_id, window, sealed)
    ack_key = entropy.bytes(ACK_KEY_SIZE)
    content = HopContent(task_id, window, ack_key, config.key_id, admission, sealed)
    return Crafted(seal_frame(assignment.keys.hop_keys[window], content), ack_key)
