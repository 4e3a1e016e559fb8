"""What a device must remember to keep its word over many windows: the seam, and the one in memory.

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
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol, TypeVar

from shoal.clients.memory.ledger import EMPTY, Head, LedgerEntry, Stored, chained, check
from shoal.digests import hmac_sha256
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

K = TypeVar("K")
V = TypeVar("V")
Answer = Literal["allowed", "denied"]
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
class Charge:
    """What one answered window cost, in nano-epsilon. ``permanent``: a memoized task's; 0 if an
    earlier report was sent again.
    """

    task_id: TaskId
    window: int
    nano: int
    permanent: bool


@dataclass(frozen=True, slots=True)
class Tally:
    """All charges of one task: how many ``windows`` were answered, and what they cost together, in
    nano-epsilon.
    """

    windows: int
    nano: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What the owner confirmed as lost with a memory that was set back, all confirmations together.

    ``before_s``: Unix seconds; windows that had begun by then may have been answered, and are taken
    as answered. ``nano``: nano-epsilon that may have been spent beyond the charges that are known.
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


class Book(Protocol):
    """Every method is durable when it returns (where the implementation is durable at all), or when
    the surrounding transaction ends.

    All are safe to call from any thread. One that raises has changed nothing. OVERLOADED: disk
    full, failing or busy.
    """

    def transaction(self) -> AbstractContextManager[None]:
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
    ) -> None:
        """Charge a window ``nano`` >= 0. Once per task and window: again is a no-op, whatever
        ``nano`` says.

        Raises REFUSED "budget" if spent() + nano > limit; a charge of 0 is never refused. ``limit``
        None: none.
        """
        ...

    def charged(self, task_id: TaskId, window: int) -> int | None:
        """The window's charge in nano-epsilon; None if it has none."""
        ...

    def charges(self) -> list[Charge]:
        """All of them, in the order in which they were made."""
        ...

    def tally(self, task_id: TaskId) -> Tally: ...

    def lose(self, before_s: float, nano: int) -> None:
        """What a memory that was set back does not know: windows that had begun by ``before_s`` may
        have been answered, and ``nano`` >= 0 more may have been spent. It is spent from now on, and
        never less. Raises INVALID.
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

    def seen(self, task_id: TaskId) -> SeenTask | None: ...

    def see(self, task: SeenTask) -> None:
        """Remember, in the place of what was known of that task."""
        ...

    def tasks_of(self, purpose: str) -> list[TaskId]:
        """Every task ever seen with exactly this purpose, by id."""
        ...

    def consents(self) -> dict[str, str]:
        """The answers that the owner gave by command or call, by purpose: "allowed" or "denied"."""
        ...

    def set_consent(self, purpose: str, answer: Answer | None) -> None:
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
    if not (math.isfinite(before_s) and 0 <= nano <= MOST_NANO):
        raise ShoalError(Kind.INVALID, "what is lost is a time, and an epsilon of 0 or more")


def check_answer(answer: str | None) -> None:
    if answer not in ("allowed", "denied", None):
        raise ShoalError(Kind.INVALID, 'a consent is "allowed" or "denied"')


def check_accepted(epsilon0: float | None) -> None:
    if epsilon0 is not None and not epsilon0 > 0:
        raise ShoalError(Kind.INVALID, "an epsilon that is accepted is above 0")


def another_report() -> ShoalError:
    return ShoalError(
        Kind.CONFLICT, "another report stands for this cell: a memoized report is drawn once"
    )


def another_choice() -> ShoalError:
    return ShoalError(Kind.CONFLICT, "another choice was made for this task: a device chooses once")


def tag(secret: bytes, cell: int) -> bytes:
    """The name of a memoized report in the store."""
    return hmac_sha256(secret, cell.to_bytes(4 if cell < 1 << 32 else 16, "big"))


def rounding_of(secret: bytes) -> bytes:
    """Independent of every ``tag``: those are of 4 or of 16 bytes."""
    return hmac_sha256(secret, b"rounding")[:ROUNDING_SIZE]


class MemoryBook:
    """A book that forgets with its process: for tests. The same rules, transactions included."""

    def __init__(self, entropy: Entropy = SYSTEM) -> None:
        self.unentered = 0
        self._entropy, self._lock = entropy, threading.RLock()
        self._undo: list[Callable[[], object]] | None = None
        self._charges: dict[tuple[bytes, int], Charge] = {}
        self._tallies: dict[bytes, Tally] = {}
        self._spent: dict[str, int] = {"": 0}
        self._losses: dict[str, Loss] = {}
        self._secrets: dict[bytes, bytes] = {}
        self._memo: dict[tuple[bytes, bytes], bytes] = {}
        self._latest: dict[bytes, bytes] = {}
        self._choices: dict[bytes, bytes] = {}
        self._seen: dict[bytes, SeenTask] = {}
        self._consents: dict[str, str] = {}
        self._accepted: dict[bytes, float] = {}
        self._problems: dict[bytes, None] = {}
        self._ledger: list[Stored] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            outer, mine = self._undo, []  # type: tuple[list[Callable[[], object]] | None, list[Callable[[], object]]]
            self._undo = mine
            try:
                yield
            except BaseException:
                while mine:
                    mine.pop()()
                raise
            finally:
                self._undo = outer
            if outer is not None:
                outer.extend(mine)

    def _put(self, table: dict[K, V], key: K, value: V | None) -> None:
        """Set, or with None delete, so that it can be undone."""
        before = table.get(key)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        if self._undo is not None:
            self._undo.append(
                lambda: table.pop(key, None) if before is None else table.__setitem__(key, before)
            )

    def spent(self) -> int:
        return self._spent[""]

    def charge(
        self, task_id: TaskId, window: int, nano: int, limit: int | None, *, permanent: bool = False
    ) -> None:
        with self._lock:
            if (task_id.raw, window) in self._charges:
                return
            check_charge(self.spent(), nano, limit)
            tally = self.tally(task_id)
            self._put(
                self._charges, (task_id.raw, window), Charge(task_id, window, nano, permanent)
            )
            self._put(self._tallies, task_id.raw, Tally(tally.windows + 1, tally.nano + nano))
            self._put(self._spent, "", self.spent() + nano)

    def charged(self, task_id: TaskId, window: int) -> int | None:
        charge = self._charges.get((task_id.raw, window))
        return None if charge is None else charge.nano

    def charges(self) -> list[Charge]:
        return list(self._charges.values())

    def tally(self, task_id: TaskId) -> Tally:
        return self._tallies.get(task_id.raw, Tally(0, 0))

    def lose(self, before_s: float, nano: int) -> None:
        check_loss(before_s, nano)
        with self._lock:
            known = self._losses.get("") or Loss(before_s, 0)
            self._put(self._losses, "", Loss(max(known.before_s, before_s), known.nano + nano))
            self._put(self._spent, "", self.spent() + nano)

    def lost(self) -> Loss | None:
        return self._losses.get("")

    def _secret(self, task_id: TaskId) -> bytes:
        if task_id.raw not in self._secrets:
            self._put(self._secrets, task_id.raw, self._entropy.bytes(SECRET_SIZE))
        return self._secrets[task_id.raw]

    def rounding(self, task_id: TaskId) -> bytes:
        with self._lock:
            return rounding_of(self._secret(task_id))

    def permanent(self, task_id: TaskId, cell: int) -> bytes | None:
        with self._lock:
            secret = self._secrets.get(task_id.raw)
            return None if secret is None else self._memo.get((task_id.raw, tag(secret, cell)))

    def remember(self, task_id: TaskId, cell: int, report: bytes) -> None:
        with self._lock:
            known = self.permanent(task_id, cell)
            if known not in (None, report):
                raise another_report()
            self._put(self._memo, (task_id.raw, tag(self._secret(task_id), cell)), report)
            self._put(self._latest, task_id.raw, report)

    def latest(self, task_id: TaskId) -> bytes | None:
        return self._latest.get(task_id.raw)

    def choice(self, task_id: TaskId) -> bytes | None:
        return self._choices.get(task_id.raw)

    def choose(self, task_id: TaskId, choice: bytes) -> None:
        with self._lock:
            if self.choice(task_id) not in (None, choice):
                raise another_choice()
            self._put(self._choices, task_id.raw, choice)

    def forget(self, task_id: TaskId) -> int:
        with self._lock:
            gone = [key for key in self._memo if key[0] == task_id.raw]
            for key in gone:
                self._put(self._memo, key, None)
            self._put(self._latest, task_id.raw, None)
            self._put(self._choices, task_id.raw, None)
            self._put(self._secrets, task_id.raw, None)
            return len(gone)

    def seen(self, task_id: TaskId) -> SeenTask | None:
        return self._seen.get(task_id.raw)

    def see(self, task: SeenTask) -> None:
        with self._lock:
            self._put(self._seen, task.task_id.raw, task)

    def tasks_of(self, purpose: str) -> list[TaskId]:
        with self._lock:
            return sorted(task.task_id for task in self._seen.values() if task.purpose == purpose)

    def consents(self) -> dict[str, str]:
        with self._lock:
            return dict(self._consents)

    def set_consent(self, purpose: str, answer: Answer | None) -> None:
        check_answer(answer)
        with self._lock:
            self._put(self._consents, purpose, answer)

    def accepted(self, task_id: TaskId) -> float | None:
        return self._accepted.get(task_id.raw)

    def accept(self, task_id: TaskId, epsilon0: float | None) -> None:
        check_accepted(epsilon0)
        with self._lock:
            self._put(self._accepted, task_id.raw, epsilon0)

    def append(self, entry: LedgerEntry) -> int:
        with self._lock:
            body, number = entry.body(), len(self._ledger) + 1
            self._ledger.append(
                Stored(
                    number,
                    body,
                    chained(self._ledger[-1].digest if self._ledger else EMPTY.digest, body),
                )
            )
            if self._undo is not None:
                self._undo.append(self._ledger.pop)
            return number

    def problem(self, digest: Digest, entry: LedgerEntry) -> int | None:
        with self._lock:
            if digest.raw in self._problems:
                return None
            if len(self._problems) >= LIMITS.refusals:
                self.unentered += 1
                return None
            number = self.append(entry)
            if self._undo is not None:
                self._undo.append(lambda: self._problems.pop(digest.raw))
            self._problems[digest.raw] = None
            return number

    def entries(self, after: int = 0, most: int | None = None) -> list[Stored]:
        with self._lock:
            return self._ledger[max(after, 0) :][: None if most is None else max(most, 0)]

    def verify(self) -> Head:
        with self._lock:
            return check(self._ledger)
