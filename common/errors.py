"""The one error type of Shoal, its kinds, and the one table between kinds and gRPC statuses.

Every failure that a person or a peer can meet is a ``ShoalError``: a kind (what sort of failure;
decides the gRPC status and what a client does next) and one line of text that says what is wrong
and how to mend it. The text never holds a key, a value, an address or bytes that a peer sent: it
may be shown to anybody.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class Kind(Enum):
    """What sort of failure. The number crosses the wire (SubmitBatch receipts): never reuse one."""

    INVALID = 1  # unparsable, wrong length, out of range: drop it, count it locally
    UNKNOWN_TASK = 2  # this service does not serve the task: refresh the configuration once
    UNKNOWN_KEY = 3  # sealed under a key that the schedule does not name: fetch the schedule
    TOO_EARLY = 4  # the window has not begun: try again when it has
    WINDOW_CLOSED = 5  # over, or released: drop
    WINDOW_FULL = 6  # the task's max_batch is reached: drop
    OVERLOADED = 7  # queue full, disk full, too many calls: back off with jitter and retry
    OVERSIZE = 8  # larger than the limit of the method: drop
    UNAVAILABLE = 9  # draining or unreachable: retry
    DEADLINE = 10  # too little time left: retry with a longer deadline
    UNAUTHENTICATED = 11  # no valid identity: stop
    FORBIDDEN = 12  # an identity that may not do this: stop
    BAD_SIGNATURE = 13  # a signature does not verify: stop and tell somebody
    CONFLICT = 14  # contradicts something already accepted (two schedules, another manifest): stop
    TOO_FEW = 15  # fewer reports than the minimum: withheld
    MISMATCH = 16  # a manifest does not fit what came with it: stop
    CONFIG = 17  # a configuration file or a command line is wrong: mend it
    KEY_FILE = 18  # a key file is missing, unreadable or too widely readable: mend it
    REFUSED = 19  # the device's own policy says no: nothing was sent
    PORT_IN_USE = 20  # another process listens there: choose another port or stop it
    INTERNAL = 21  # a bug: an incident id, never details
    NOT_FOUND = 22  # no such release, window or file
    # a round of secure aggregation ended without a sum: its keys are gone, nothing of it is counted
    ABORTED = 23


# One table, both ways: names of grpc.StatusCode, kept as text so that this module imports nothing.
STATUS_OF: dict[Kind, str] = {
    Kind.INVALID: "INVALID_ARGUMENT",
    Kind.UNKNOWN_TASK: "NOT_FOUND",
    Kind.UNKNOWN_KEY: "FAILED_PRECONDITION",
    Kind.TOO_EARLY: "FAILED_PRECONDITION",
    Kind.WINDOW_CLOSED: "FAILED_PRECONDITION",
    Kind.WINDOW_FULL: "FAILED_PRECONDITION",
    Kind.OVERLOADED: "RESOURCE_EXHAUSTED",
    Kind.OVERSIZE: "RESOURCE_EXHAUSTED",
    Kind.UNAVAILABLE: "UNAVAILABLE",
    Kind.DEADLINE: "DEADLINE_EXCEEDED",
    Kind.UNAUTHENTICATED: "UNAUTHENTICATED",
    Kind.FORBIDDEN: "PERMISSION_DENIED",
    Kind.BAD_SIGNATURE: "PERMISSION_DENIED",
    Kind.CONFLICT: "ALREADY_EXISTS",
    Kind.TOO_FEW: "FAILED_PRECONDITION",
    Kind.MISMATCH: "DATA_LOSS",
    Kind.CONFIG: "FAILED_PRECONDITION",
    Kind.KEY_FILE: "FAILED_PRECONDITION",
    Kind.REFUSED: "FAILED_PRECONDITION",
    Kind.PORT_IN_USE: "UNAVAILABLE",
    Kind.INTERNAL: "INTERNAL",
    Kind.NOT_FOUND: "NOT_FOUND",
    Kind.ABORTED: "ABORTED",
}

# Kinds after which the same bytes may be sent again.
RETRYABLE: frozenset[Kind] = frozenset(
    {Kind.OVERLOADED, Kind.UNAVAILABLE, Kind.DEADLINE, Kind.INTERNAL, Kind.TOO_EARLY}
)

# Kinds that mean "your request or configuration was wrong": exit status 2 of the command line.
USAGE: frozenset[Kind] = frozenset(
    {Kind.CONFIG, Kind.KEY_FILE, Kind.INVALID, Kind.NOT_FOUND, Kind.PORT_IN_USE}
)


class ShoalError(Exception):
    """A failure with a kind and one line that says what is wrong and how to mend it.

    ``retry_after_s``: seconds that whoever refused asks to wait before the next attempt, 0: it says
    nothing. A peer's word: who obeys it caps it.
    """

    def __init__(self, kind: Kind, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[ShoalError], tuple[Kind, str], dict[str, float]]:
        """Failures travel back from worker processes; the default would forget the kind and break
        the pool.
        """
        return type(self), (self.kind, self.message), {"retry_after_s": self.retry_after_s}

    @property
    def status(self) -> str:
        """The name of the gRPC status that this failure travels as."""
        return STATUS_OF[self.kind]

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE
