"""What the analyzer's store takes and gives: plain values, without a database."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.ids import TaskId


@dataclass(frozen=True, slots=True)
class Spending:
    """What one opened batch cost, for composition: the upper epsilon that was charged for it, and
    its delta.

    ``law``: the bytes of its law of privacy losses, or of what a window of sums is certified by,
    which compose more tightly; None if only epsilon and delta are known. ``lifetime``: of a
    memoized task, epsilon0 of its permanent reports; None if every window drew anew.
    """

    task_id: TaskId
    epsilon_upper: float
    delta: float
    law: bytes | None = None
    lifetime: float | None = None


@dataclass(frozen=True, slots=True)
class WindowOutcome:
    """The end of a batch, written as one transaction. ``tally`` is None when the release is
    withheld: it is not kept then.
    """

    release: bytes
    release_signature: bytes
    ack: bytes
    ack_signature: bytes
    tally: bytes | None
    spending: Spending


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """The bytes of a release as they were signed, with the signature."""

    task_id: TaskId
    window: int
    release: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class StoredAck:
    """The bytes of an acknowledgement as they were signed, with the signature."""

    ack: bytes
    signature: bytes
