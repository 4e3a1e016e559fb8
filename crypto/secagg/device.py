"""A device's part in one round of secure aggregation: join, share, mask, (endorse,) unmask. No I/O but the ledger; no clock.

Every step checks everything that it is told before it answers, in a fixed order (``device_checks``). A check that fails ends the round
for good: ``state`` is ABORTED, ``reason`` says why in one line, every key is dropped and a ``ShoalError`` is raised. What the caller of
this class got wrong itself (a step out of order, a vector of a wrong shape) is raised too, but changes nothing.

A step may be repeated: the same input gives the identical bytes again, kept in memory, however often a network loses them. The same step
with another input is a CONFLICT and ends the round: two different vectors under the same pads would show their difference, and shares for
two survivor sets could open a single vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.crypto.enrolment import DeviceIdentity
from shoal.crypto.secagg.terms import RoundTerms
from shoal.entropy import SYSTEM, Entropy
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2


class RoundLedger(Protocol):
    """A device's durable memory of what it has answered. It outlives the round, the process and a power cut."""

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Write down that this window is answered in this round by the vector whose sealed bytes have this SHA-256.

        Durable on return. Raises CONFLICT if the window was answered already, in whatever round.
        """
        ...

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Write down that shares were given for the commit record with this SHA-256.

        Durable on return. Raises CONFLICT if another commit of this round was answered.
        """
        ...


@unique
class DeviceState(Enum):
    """Where a device stands in its round. ENDORSED exists in strict mode alone."""

    NEW = "new"
    JOINED = "joined"
    SHARED = "shared"
    MASKED = "masked"
    ENDORSED = "endorsed"
    RELEASED = "released"
    ENDED = "ended"
    ABORTED = "aborted"


class DeviceRound:
    """One device's part in one round. Keys in memory only; never printed, pickled or copied."""

    session: bytes
    state: DeviceState
    reason: str
    round_id: Digest | None
    charged: bool  # from the MASKED ledger entry on: the window's privacy budget counts as spent, whatever becomes of the round

    def __init__(self, terms: RoundTerms, identity: DeviceIdentity, entropy: Entropy = SYSTEM) -> None:
        """Raises INVALID for a task in helper mode: it has no rounds."""
        raise NotImplementedError

    def join(self, offer: pairwise_pb2.SignedOffer, now: float) -> pairwise_pb2.Join:
        """NEW -> JOINED. ``now``: Unix seconds."""
        raise NotImplementedError

    def share(self, started: pairwise_pb2.Started, now: float) -> pairwise_pb2.Shares:
        """JOINED -> SHARED; ``round_id`` is set. ``now``: Unix seconds."""
        raise NotImplementedError

    def mask(self, roster: pairwise_pb2.Roster, vector: NDArray[np.int64], ledger: RoundLedger) -> bytes:
        """SHARED -> MASKED. ``vector``: int64[d], the quantized vector plus this device's noise share, in grid steps.

        The vector with its check words, masked and sealed for the analyzer: ``terms.sealed_vector_bytes`` bytes to upload. The ledger
        entry is durable before anything is returned.
        """
        raise NotImplementedError

    def endorse(self, commit: pairwise_pb2.SignedRecord) -> pairwise_pb2.Endorse:
        """MASKED -> ENDORSED, in strict mode alone (INVALID otherwise)."""
        raise NotImplementedError

    def unmask(
        self, commit: pairwise_pb2.SignedRecord, endorsements: Sequence[pairwise_pb2.Endorsement], ledger: RoundLedger
    ) -> pairwise_pb2.Unmask:
        """MASKED (in strict mode: ENDORSED) -> RELEASED. Outside strict mode ``endorsements`` are ignored."""
        raise NotImplementedError

    def end(self) -> None:
        """The round is over as far as this device is concerned: drop all keys. Nothing happens after an abort."""
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        """End the round from outside (a deadline, a refusal, a shutdown): drop all keys. The first reason stays; nothing after end()."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError("a device's round holds one-time keys: it is not pickled or copied")
