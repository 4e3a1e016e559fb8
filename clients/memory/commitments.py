"""What a device must remember to keep its word over many windows: the seam.

Budget: every answered window has one charge, in whole nano-epsilon (1e-9), and the sum never goes
down. Memo: the permanent randomized reports of memoized tasks. What was seen, what the owner agreed
to, and the ledger of it all. The true value never comes here.

A memoized report is found by HMAC-SHA256(32 random bytes of this task, cell as u32be; from 2^32 on
as u128be), so that the store doesn't name the cell. This is no protection against whoever can read
the store: the key lies beside it, and all cells can be tried.

Mechanisms with a memory of their own (shoal.mechanisms.longitudinal.protocol) keep more, and less:
what they chose once for the task, and in the place of reports the permanent answers of their keys,
from which every window's report is drawn anew.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol, TypeVar

from shoal.clients.memory.ledger import Head, LedgerEntry, Stored
from shoal.digests import hmac_sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId

K = TypeVar("K")
V = TypeVar("V")
ConsentAnswer = Literal["allowed", "denied"]
NANO = 10**9
MOST_NANO = 1 << 62  # of all charges together: what a 64-bit integer holds, with room
SECRET_SIZE = 32
ROUNDING_SIZE = 8


@lru_cache(maxsize=256)  # a device asks for the same few
def nano_up(epsilon: float) -> int:
    """A charge: ceil(epsilon * 1e9), exactly. Direction: up. Raises INVALID for anything but a
    finite number >= 0.

    ``epsilon`` stands for the decimal number that it is shown as (the shortest one of that float,
    less than an ulp away): a budget of 0.3 pays for three reports of 0.1, though the float 0.1 lies
    above a tenth. Nothing is charged too little by that: ``epsilon0_upper`` lies several ulps above
    the real epsilon.
    """
    return math.ceil(_decimal(epsilon) * NANO)


def nano_down(epsilon: float) -> int | None:
    """A limit: floor(epsilon * 1e9), exactly; None for an infinite one (no limit). Direction: down.
    Raises INVALID below 0 or for NaN.
    """
    return None if epsilon == math.inf else math.floor(_decimal(epsilon) * NANO)


def _decimal(epsilon: float) -> Fraction:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ShoalError(
            Kind.INVALID, "an epsilon that can be charged is a finite number, 0 or more"
        )
    return Fraction(repr(float(epsilon)))


@dataclass(frozen=True, slots=True)
class WindowCharge:
    """What one answered window cost, in nano-epsilon. ``permanent``: a memoized task's; 0 if an
    earlier report was sent again.
    """

    task_id: TaskId
    window: int
    nano: int
    permanent: bool


@dataclass(frozen=True, slots=True)
class TaskCharges:
    """All charges of one task: how many ``windows`` were answered, and what they cost together, in
    nano-epsilon.
    """

    windows: int
    nano: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What the owner confirmed as lost with a memory that was set back, all confirmations together.

    ``before_s``: Unix seconds; windows that may have begun by then (``WindowPlan``) may have been
    answered, and are taken as answered. ``nano``: nano-epsilon that may have been spent beyond the
    charges that are known.
    """

    before_s: float
    nano: int


@dataclass(frozen=True, slots=True)
class SeenTask:
    """What is remembered of a task after its files are gone. ``epsilon0_nano``: of one report,
    rounded up; None: infinite.

    ``authority``: its Ed25519 public key. ``verdict``: what the policy said last, "accepted" or the
    reason of the refusal.
    """

    task_id: TaskId
    name: str
    purpose: str
    authority: bytes
    epsilon0_nano: int | None
    verdict: str

    def __post_init__(self) -> None:
        if self.epsilon0_nano is not None and not 0 <= self.epsilon0_nano <= MOST_NANO:
            raise ShoalError(
                Kind.INVALID, "the epsilon of a task is 0 or more nano-epsilon, or infinite"
            )


class Commitments(Protocol):
    """Every method is durable when it returns (where the implementation is durable at all), or when
    the surrounding transaction ends.

    All are safe to call from any thread. One that raises has changed nothing. OVERLOADED: disk
    full, failing or busy.
    """

    def transaction(self) -> AbstractContextManager[object]:
        """Everything inside commits together, or nothing if an exception leaves it. May be nested,
        and joins one of the outbox.
        """
        ...

    # --- budget -----------------------------------------------------------------------------------

    def spent(self) -> int:
        """Nano-epsilon over everything that was ever charged. Never goes down."""
        ...

    def charge(
        self, task_id: TaskId, window: int, nano: int, limit: int | None, *, permanent: bool = False
    ) -> int:
        """Charge a window ``nano`` >= 0. Once per task and window: again is a no-op, whatever
        ``nano`` says. Returns what the window is charged.

        Raises REFUSED "budget" if spent() + nano > limit; a charge of 0 is never refused. ``limit``
        None: none.
        """
        ...

    def charged(self, task_id: TaskId, window: int) -> int | None:
        """The window's charge in nano-epsilon; None if it has none."""
        ...

    def charges(self) -> list[WindowCharge]:
        """All of them, in the order in which they were made."""
        ...

    def tally(self, task_id: TaskId) -> TaskCharges:
        """Charges of this task so far, and their sum in nano-epsilon; zeros if it has none."""
        ...

    def lose(self, before_s: float, nano: int) -> None:
        """What a memory that was set back does not know: windows that had begun by ``before_s``, or
        nearly (``WindowPlan.may_have_begun``), may have been answered, and ``nano`` >= 0 more may
        have been spent. It is spent from now on, and never less. Raises INVALID.
        """
        ...

    def lost(self) -> Loss | None:
        """All that was lost, together; None: nothing."""
        ...

    # --- memo -------------------------------------------------------------------------------------

    def rounding(self, task_id: TaskId) -> bytes:
        """8 random bytes, the same until ``forget``: where this device rounds values that lie
        between two cells of a memoized task.
        """
        ...

    def permanent(self, task_id: TaskId, cell: int) -> bytes | None:
        """The report (of a mechanism with a memory: the permanent answer) that stands for this cell
        or key, or None. 0 <= cell < 2^128.
        """
        ...

    def remember(self, task_id: TaskId, cell: int, report: bytes) -> None:
        """From now on ``report`` stands for ``cell``, and it is the ``latest``. Call it at every
        use.

        Raises CONFLICT if another report stands for it.
        """
        ...

    def latest(self, task_id: TaskId) -> bytes | None:
        """The permanent report or answer that was used last, or None."""
        ...

    def choice(self, task_id: TaskId) -> bytes | None:
        """What was chosen once for the task, or None. May be empty."""
        ...

    def choose(self, task_id: TaskId, choice: bytes) -> None:
        """From now on, until ``forget``, that is the task's choice. Raises CONFLICT if another one
        is.
        """
        ...

    def forget(self, task_id: TaskId) -> int:
        """Delete the task's permanent reports or answers, their key, its rounding and choice.
        Returns how many reports or answers.

        What was charged stays charged.
        """
        ...

    # --- tasks and consent ------------------------------------------------------------------------

    def seen(self, task_id: TaskId) -> SeenTask | None:
        """What is remembered of the task; None if it was never shown to ``see``."""
        ...

    def see(self, task: SeenTask) -> None:
        """Remember, in the place of what was known of that task."""
        ...

    def tasks_of(self, purpose: str) -> list[TaskId]:
        """Every task ever seen with exactly this purpose, by id."""
        ...

    def consents(self) -> dict[str, str]:
        """The answers that the owner gave by command or call, by purpose: "allowed" or "denied"."""
        ...

    def set_consent(self, purpose: str, answer: ConsentAnswer | None) -> None:
        """None: as if never asked. Raises INVALID for another answer."""
        ...

    def accepted(self, task_id: TaskId) -> float | None:
        """Up to which local epsilon the owner said yes to this very task; None if never."""
        ...

    def accept(self, task_id: TaskId, epsilon0: float | None) -> None:
        """The owner's explicit yes to a large or infinite local epsilon of this task; None takes it
        back.

        Raises INVALID for NaN or <= 0.
        """
        ...

    # --- ledger -----------------------------------------------------------------------------------

    def append(self, entry: LedgerEntry) -> int:
        """Enter an event; its number."""
        ...

    def problem(self, digest: Digest, entry: LedgerEntry) -> int | None:
        """Enter a problem with bytes that nobody vouches for, once per ``digest`` of them, and
        LIMITS.refusals of them in all.

        None: it was entered before, or there is no more room, so that strangers can't fill the
        disk; then ``unentered`` counts it.
        """
        ...

    @property
    def unentered(self) -> int:
        """Problems that found no more room, as seen by this process."""
        ...

    def entries(self, after: int = 0, most: int | None = None) -> list[Stored]:
        """The entries with numbers above ``after``, oldest first, at most ``most``."""
        ...

    def verify(self) -> Head:
        """Check the whole chain, and the head that was noted beside it. Raises MISMATCH naming the
        first bad entry.
        """
        ...


def over_budget(spent: int, nano: int, limit: int) -> ShoalError:
    """REFUSED "budget": what is left of ``limit`` does not pay for ``nano``, all in
    nano-epsilon.
    """
    left = max(0, limit - spent)
    return ShoalError(
        Kind.REFUSED,
        f"budget: this answer costs epsilon {nano / NANO:g}, and {left / NANO:g} of "
        f"{limit / NANO:g} are left: nothing was sent; "
        "lifetime_epsilon in this device's configuration is the limit",
    )


def check_charge(spent: int, nano: int, limit: int | None) -> None:
    """Raises REFUSED if the budget does not pay, INVALID for a charge below 0."""
    if nano < 0:
        raise ShoalError(Kind.INVALID, "a charge is 0 or more")
    most = MOST_NANO if limit is None else min(limit, MOST_NANO)
    if nano and spent + nano > most:
        raise over_budget(spent, nano, most)


def check_loss(before_s: float, nano: int) -> None:
    """Raises INVALID unless ``before_s`` is finite (Unix seconds) and ``nano`` within its range."""
    if not (math.isfinite(before_s) and 0 <= nano <= MOST_NANO):
        raise ShoalError(Kind.INVALID, "what is lost is a time, and an epsilon of 0 or more")


def check_answer(answer: str | None) -> None:
    """Raises INVALID unless a consent is "allowed", "denied" or None (not asked)."""
    if answer not in ("allowed", "denied", None):
        raise ShoalError(Kind.INVALID, 'a consent is "allowed" or "denied"')


def check_accepted(epsilon0: float | None) -> None:
    """Raises INVALID unless ``epsilon0`` is above 0, or None (nothing accepted)."""
    if epsilon0 is not None and not epsilon0 > 0:
        raise ShoalError(Kind.INVALID, "an epsilon that is accepted is above 0")


def another_report() -> ShoalError:
    """CONFLICT: a second permanent report for one cell would give both away by their difference."""
    return ShoalError(
        Kind.CONFLICT, "another report stands for this cell: a memoized report is drawn once"
    )


def another_choice() -> ShoalError:
    """CONFLICT: a second choice of a device that chooses once for a task."""
    return ShoalError(Kind.CONFLICT, "another choice was made for this task: a device chooses once")


def tag(secret: bytes, cell: int) -> bytes:
    """The name of a memoized report in the store."""
    return hmac_sha256(secret, cell.to_bytes(4 if cell < 1 << 32 else 16, "big"))


def rounding_of(secret: bytes) -> bytes:
    """Independent of every ``tag``: those are of 4 or of 16 bytes."""
    return hmac_sha256(secret, b"rounding")[:ROUNDING_SIZE]
