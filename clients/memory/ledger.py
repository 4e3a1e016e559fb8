"""The form of a device's ledger: what an entry may hold, its one byte form, and the chain of hashes
over all entries. Pure.

Entry n is kept as body(n), the canonical JSON of what happened, and

    hash(n) = SHA-256("shoal/v1/ledger" || 0x00 || hash(n - 1) || body(n)),
    hash(0) = 32 zero bytes.

A chain proves order and wholeness to whoever knows a later head: an entry that was altered, moved,
left out or put in between breaks it from there on. Two things it can't show. Whoever may write the
device's files can compute another chain, head and all: only a head that was noted elsewhere
(``shoal agent ledger --verify HEAD``) speaks against that. And what was never entered is not
missed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from types import MappingProxyType
from typing import Any

from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

Detail = str | int | float | bool | None
_DETAILS = str, int, float  # a union takes longer to ask
_SURE = frozenset({str, int, bool, type(None)})  # of these nothing more is asked
INFINITE = "infinite"  # the text for an epsilon without bound: JSON has no number for it
HASH_SIZE = 32
_CONTEXT = b"shoal/v1/ledger\x00"
_NOTED = b"shoal/v1/noted\x00"
# json.dumps makes one for each call
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)
_MOST_BODY = 2 * 1024 * 1024  # bytes: the largest report, in hexadecimal, has a quarter of that


@unique
class LedgerEvent(Enum):
    """What an entry tells."""

    SEEN = "seen"  # a task was met for the first time
    ACCEPTED = "accepted"  # the policy allows a task, from now on
    REFUSED = "refused"  # the policy forbids a task, from now on: ``details`` say why
    REPORTED = "reported"  # a window was answered: randomized, charged, and ready to be sent
    OUTCOME = "outcome"  # what became of a report
    CONSENT = "consent"  # the owner answered for a purpose, or for one task
    # reports that waited were deleted, because the owner took a consent back
    WITHDRAWN = "withdrawn"
    FORGOTTEN = "forgotten"  # memoized reports were deleted
    STRUCK = "struck"  # a second key schedule was seen for a task: nothing of it is sent any more
    PROBLEM = "problem"  # something that does not verify was offered, or a file can't be read
    MENDED = "mended"  # the owner had what the disk damaged replaced by what is safe
    # this device drew which one window of a task it answers, by itself
    DREW = "drew"
    # the owner confirmed that this memory is an older one: what is taken as answered and as spent
    # from now on
    SET_BACK = "set_back"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One event. ``at_s``: Unix seconds by this device's clock. ``task``: the task's name, "" if
    the event is about no task.

    ``details``: flat, names to texts, numbers, truth values or None. Raises INVALID for numbers
    that JSON hasn't (an infinite epsilon is the text "infinite") and for anything else that has no
    canonical form.
    """

    event: LedgerEvent
    at_s: float
    task_id: TaskId | None = None
    task: str = ""
    window: int | None = None
    details: Mapping[str, Detail] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (
            isinstance(self.at_s, bool)
            or not isinstance(self.at_s, int | float)
            or not math.isfinite(self.at_s)
        ):
            raise _bad("a ledger entry wants the time in Unix seconds")
        for name, value in self.details.items():
            if type(name) is str and type(value) in _SURE:
                continue
            if not isinstance(name, str) or not (value is None or isinstance(value, _DETAILS)):
                raise _bad(
                    "the details of a ledger entry are texts, numbers, true, false or null, by name"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise _bad(f"detail {name} of a ledger entry is no finite number: write a text")
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def body(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, ASCII. The same entry has the same bytes,
        always.
        """
        parts = {
            "at_s": self.at_s,
            "details": dict(self.details),
            "event": self.event.value,
            "task": self.task,
            "task_id": None if self.task_id is None else self.task_id.hex,
            "window": self.window,
        }
        body = _canonical(parts)
        if len(body) > _MOST_BODY:
            raise _bad(f"a ledger entry is at most {_MOST_BODY} bytes long")
        return body

    @classmethod
    def parse(cls, body: bytes) -> LedgerEntry:
        """The entry of a body. Raises INVALID unless it is the canonical form of one."""
        try:
            parts: dict[str, Any] = json.loads(body)
            task_id = None if parts["task_id"] is None else TaskId.parse(parts["task_id"])
            entry = cls(
                LedgerEvent(parts["event"]),
                parts["at_s"],
                task_id,
                parts["task"],
                parts["window"],
                parts["details"],
            )
            canonical = entry.body() == bytes(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ShoalError):
            canonical = False
        if not canonical:
            raise _bad("this is no ledger entry")
        return entry

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: the parsed body."""
        parsed: dict[str, Any] = json.loads(self.body())
        return parsed


@dataclass(frozen=True, slots=True)
class Stored:
    """One row: entry ``number`` (from 1), its body as kept, and the hash of the chain up to and
    with it.
    """

    number: int
    body: bytes
    digest: bytes

    @property
    def entry(self) -> LedgerEntry:
        """Raises MISMATCH if the body is no entry."""
        try:
            return LedgerEntry.parse(self.body)
        except ShoalError:
            raise _broken(self.number, "it can't be read") from None


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain, or of a beginning of it: ``count`` entries, the last of which has the
    hash ``digest``.
    """

    count: int
    digest: bytes

    def __post_init__(self) -> None:
        if (
            self.count < 0
            or len(self.digest) != HASH_SIZE
            or (self.count == 0) != (self.digest == bytes(HASH_SIZE))
        ):
            raise _bad(
                "the head of a ledger is a number of entries and the SHA-256 of the last of them"
            )

    def __str__(self) -> str:
        return f"{self.count}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """From ``COUNT:HEX``, as ``str`` writes it. Raises INVALID."""
        count, _, digest = text.strip().partition(":")
        try:
            if not (count.isascii() and count.isdigit() and len(count) <= 15):
                raise ValueError
            return cls(int(count), bytes.fromhex(digest))
        except ValueError:
            raise _bad(
                "the head of a ledger is written COUNT:HEX, as the ledger shows it"
            ) from None


EMPTY = Head(0, bytes(HASH_SIZE))


@dataclass(frozen=True, slots=True)
class Noted:
    """What stands beside a ledger's file: its head when it was noted, and what all charges together
    may have come to by then.

    ``spent``: nano-epsilon, written before a charge that goes beyond it commits: so never too
    little, if perhaps too much. None: a file of before it was noted.
    """

    head: Head
    spent: int | None

    def __str__(self) -> str:
        return (
            f"{self.head}"
            if self.spent is None
            else f"spent {self.spent} {self._mark()}\n{self.head}"
        )

    def _mark(self) -> str:
        """Finds what a disk changed."""
        return sha256(_NOTED + f"{self.spent}\n{self.head}".encode())[:16].hex()

    @classmethod
    def parse(cls, text: str) -> Noted:
        """Of what ``str`` gives: the head is in the last line. Raises INVALID."""
        amount, _, last = text.strip().rpartition("\n")
        word, _, rest = amount.strip().partition(" ")
        number, _, mark = rest.partition(" ")
        if amount and not (
            word == "spent" and number.isascii() and number.isdigit() and len(number) <= 19
        ):
            raise _bad("what is noted of a ledger is what was spent, and its head")
        noted = cls(Head.parse(last), int(number) if amount else None)
        if mark and mark != noted._mark():
            raise _bad("what is noted of a ledger was changed since")
        return noted


def chained(before: bytes, body: bytes) -> bytes:
    """hash(n) from hash(n - 1) and body(n)."""
    return sha256(_CONTEXT + before + body)


def check(rows: Iterable[Stored], head: Head | None = None) -> Head:
    """Verify a whole chain from its first entry, and that ``head``, an earlier or its last head,
    lies on it. Returns its last head.

    Raises MISMATCH naming the first bad entry: one that is missing, out of place, altered, or does
    not lead to ``head``.
    """
    last, on_chain = EMPTY, head is None or head == EMPTY
    for row in rows:
        last = _led_to(last, row)
        number = last.count
        if head is not None and head.count == number:
            if head.digest != row.digest:
                raise _broken(number, "it is not the one that was there when its hash was noted")
            on_chain = True
    if not on_chain:
        raise _broken(
            last.count + 1,
            f"{head.count if head else 0} entries were there when their number was noted",
        )
    return last


def unbroken(rows: Iterable[Stored]) -> int:
    """How many entries lead from one to the next, from the first on: as far as a chain that
    ``check`` refuses can be shown at all. The last of them may be the one that was altered.
    """
    last = EMPTY
    try:
        for row in rows:
            last = _led_to(last, row)
    except ShoalError as error:
        if error.kind is not Kind.MISMATCH:
            raise
    return last.count


def _led_to(last: Head, row: Stored) -> Head:
    """The head after ``row``. Raises MISMATCH unless it follows ``last``."""
    number = last.count + 1
    if row.number != number:
        raise _broken(number, "it is missing")
    if not isinstance(row.body, bytes) or chained(last.digest, row.body) != row.digest:
        raise _broken(number, "it was altered, or one before it was")
    _ = row.entry  # a body that is no entry can't have been appended
    return Head(number, row.digest)


def missing_head(name: str) -> ShoalError:
    """MISMATCH: without its head a ledger that was cut short would look whole."""
    return ShoalError(
        Kind.MISMATCH,
        f"ledger: {name} is missing or unreadable, and it says how many entries there were: find "
        "out who removed it",
    )


def _canonical(parts: Mapping[str, Any]) -> bytes:
    try:
        return _CANONICAL.encode(parts).encode("ascii")
    except (ValueError, TypeError):
        raise _bad("a ledger entry that has no canonical form") from None


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


def _broken(number: int, why: str) -> ShoalError:
    return ShoalError(
        Kind.MISMATCH,
        f"ledger: entry {number} does not verify: {why}: keep the files as they are, and find out "
        "who can write them",
    )
