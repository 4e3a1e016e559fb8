"""A device takes part in one round of secure aggregation, from asking for it to its end.

The machine (``shoal.crypto.secagg.device``) checks and answers; this module carries its messages: it asks, waits, sends a large vector
in pieces, and sends the same bytes again when a network loses them. A round that fails is over: nothing of it is used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal import codec
from shoal.clients.core import Assignment
from shoal.clients.rounds_ledger import Answered, Standing
from shoal.clients.rounds_transport import RoundTransport
from shoal.clock import Clock
from shoal.crypto.enrolment import DeviceIdentity
from shoal.crypto.secagg.device import DeviceRound, DeviceState, RoundLedger
from shoal.crypto.secagg.exchange import open_reply, seal_request
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.suites import PublicKeyConfig
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0  # between two attempts to send the same bytes
_LEAST_WAIT_S, _MOST_WAIT_S = 0.05, 60.0  # whatever a shuffler asks for
_KINDS = {kind.value: kind for kind in Kind}
_FINAL_OF_CALL = frozenset({Kind.INVALID, Kind.OVERSIZE, Kind.UNKNOWN_KEY, Kind.UNKNOWN_TASK, Kind.WINDOW_CLOSED, Kind.CONFIG})
Sleep = Callable[[float], Awaitable[object]]


@unique
class RoundState(Enum):
    """How a device's part in a round ended."""

    COUNTED = "counted"  # the vector is in a sum that the analyzer has
    ABORTED = "aborted"  # the round ended without a sum, or without this device
    LOST = "lost"  # this device lost sight of a round that may have its vector in the sum
    NONE = "none"  # no seat was had: nothing left this device


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """``charged``: the vector was made, so the window is answered, whatever became of the round.

    ``kind``, ``message``: why it is not COUNTED.
    """

    state: RoundState
    round_id: Digest | None = None
    charged: bool = False
    kind: Kind | None = None
    message: str = ""


class Ledger(RoundLedger, Protocol):
    """A device's durable memory, with what became of its answers: ``rounds_ledger``."""

    def settle(self, task_id: TaskId, window: int, standing: Standing, kind: Kind | None = None) -> None: ...

    def find(self, task_id: TaskId, window: int) -> Answered | None: ...


@dataclass(frozen=True, slots=True)
class RoundPlace:
    """One window of one task: what its rounds are, and the shuffler's key that steps are sealed to."""

    terms: RoundTerms
    hop: PublicKeyConfig

    @classmethod
    def of(cls, assignment: Assignment, window: int) -> RoundPlace:
        """Raises INVALID for a task without secure aggregation, or a window that it has not."""
        terms = RoundTerms.of(assignment.task, assignment.task_id, assignment.keys, window)
        return cls(terms, assignment.keys.hop_keys[window])


class _OverError(Exception):
    """The device's part is over, with this outcome."""

    def __init__(self, outcome: RoundOutcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


async def take_part(
    place: RoundPlace,
    identity: DeviceIdentity,
    vector: NDArray[np.int64],
    ledger: Ledger,
    transport: RoundTransport,
    *,
    deadline: float,
    clock: Clock,
    entropy: Entropy = SYSTEM,
    sleep: Sleep = asyncio.sleep,
    send_deadline_s: float = LIMITS.send_deadline_s,
) -> RoundOutcome:
    """One round of the window: asked for, joined, and gone through to its end, before ``deadline`` (Unix seconds).

    ``vector``: int64[d], quantized and with this device's noise share, in grid steps. ``sleep`` waits between steps (tests shorten it).
    Never raises for what happened to the round: the outcome says it. Raises INVALID for a vector of the wrong shape or type, and
    CONFLICT if the window was answered already; nothing is sent then. Cancelled: the keys are dropped, and a vector that was made counts
    as answered.
    """
    terms = place.terms
    if vector.dtype != np.int64 or vector.shape != (terms.dimension,):
        raise ShoalError(Kind.INVALID, f"a vector of this task is int64[{terms.dimension}]")
    if await asyncio.to_thread(ledger.find, terms.task_id, terms.window) is not None:
        raise ShoalError(Kind.CONFLICT, "this device has answered the window before: a window is answered once")
    part = _Part(place, identity, vector, ledger, transport, deadline, clock, entropy, sleep, send_deadline_s)
    outcome = RoundOutcome(RoundState.LOST)
    try:
        outcome = await part.run()
    finally:
        part.device.abort("the device gave the round up")
        if part.device.charged:
            await asyncio.shield(asyncio.to_thread(ledger.settle, terms.task_id, terms.window, _STANDING[outcome.state], outcome.kind))
    return outcome


_STANDING = {
    RoundState.COUNTED: Standing.COUNTED,
    RoundState.ABORTED: Standing.ABORTED,
    RoundState.LOST: Standing.LOST,
    RoundState.NONE: Standing.LOST,
}


class _Part:
    """One device's way through one round."""

    def __init__(
        self,
        place: RoundPlace,
        identity: DeviceIdentity,
        vector: NDArray[np.int64],
        ledger: Ledger,
        transport: RoundTransport,
        deadline: float,
        clock: Clock,
        entropy: Entropy,
        sleep: Sleep,
        send_deadline_s: float,
    ) -> None:
        self._place, self._identity, self._vector, self._ledger, self._transport = place, identity, vector, ledger, transport
        self._deadline, self._clock, self._entropy, self._sleep, self._send_deadline_s = deadline, clock, entropy, sleep, send_deadline_s
        self.device = DeviceRound(place.terms, identity, entropy)
        self._sealed = b""

    async def run(self) -> RoundOutcome:
        try:
            answer = await self._seat()
            while True:
                answer = await self._next(answer)
        except _OverError as over:
            return over.outcome
        except ShoalError as error:  # the machine found something wrong, or the ledger could not be written: nothing more is sent
            return self._outcome(RoundState.ABORTED, error)

    # --- joining ------------------------------------------------------------------------------------------------------

    async def _seat(self) -> pairwise_pb2.Answer:
        """Ask until there is a round, and join it; a round that filled up meanwhile is followed by the next."""
        while True:
            answer = await self._send(ask=pairwise_pb2.Ask())
            kind = _KINDS.get(answer.kind)
            if kind is not None and kind is not Kind.TOO_EARLY:
                raise self._over(RoundState.NONE, ShoalError(kind, answer.reason))
            if not answer.HasField("offer"):
                await self._wait(answer.wait_ms)
                continue
            # Every offer gets keys of its own: those of one that was not joined are forgotten.
            self.device = DeviceRound(self._place.terms, self._identity, self._entropy)
            join = self.device.join(answer.offer, self._clock.now())
            answer = await self._send(join=join)
            kind = _KINDS.get(answer.kind)
            if kind is None:
                return answer
            if kind not in {Kind.NOT_FOUND, Kind.WINDOW_CLOSED, Kind.TOO_EARLY}:
                raise self._over(RoundState.ABORTED if kind is Kind.ABORTED else RoundState.NONE, ShoalError(kind, answer.reason))
            await self._wait(1_000)

    # --- one step after the other -------------------------------------------------------------------------------------

    async def _next(self, answer: pairwise_pb2.Answer) -> pairwise_pb2.Answer:
        """What the answer asks for, and the answer to that. Raises _OverError at the end, ShoalError for what is wrong with it."""
        device, kind = self.device, _KINDS.get(answer.kind)
        if kind is not None or answer.phase == pairwise_pb2.PHASE_ABORTED:
            self._refused(kind or Kind.ABORTED, answer.reason)
        match answer.phase:
            case pairwise_pb2.PHASE_SHARE if answer.HasField("started") and device.state is DeviceState.JOINED:
                return await self._send(shares=await asyncio.to_thread(device.share, answer.started, self._clock.now()))
            case pairwise_pb2.PHASE_MASK if answer.HasField("roster") and device.state in {DeviceState.SHARED, DeviceState.MASKED}:
                return await self._upload(answer)
            case pairwise_pb2.PHASE_ENDORSE if answer.HasField("commit") and device.state is DeviceState.MASKED:
                return await self._send(endorse=device.endorse(answer.commit))
            case pairwise_pb2.PHASE_UNMASK if answer.HasField("commit"):
                sealed = await asyncio.to_thread(device.unmask, answer.commit, answer.endorsements, self._ledger)
                hit("client.round.released")
                return await self._send(unmask=sealed)
            case pairwise_pb2.PHASE_DONE:
                raise self._done()
        await self._wait(answer.wait_ms)
        return await self._send(poll=pairwise_pb2.Poll())

    async def _upload(self, answer: pairwise_pb2.Answer) -> pairwise_pb2.Answer:
        """The next piece of the vector, from where the shuffler is."""
        if not self._sealed:
            self._sealed = await asyncio.to_thread(self.device.mask, answer.roster, self._vector, self._ledger)
            hit("client.round.masked")
        at, total = answer.received, len(self._sealed)
        if at >= total:  # all of it is there, the shuffler has only not looked at it yet
            at = max(0, total - LIMITS.upload_bytes)
        chunk = self._sealed[at : at + LIMITS.upload_bytes]
        return await self._send(upload=pairwise_pb2.Upload(offset=at, total=total, chunk=chunk))

    def _refused(self, kind: Kind, reason: str) -> None:
        """Raises _OverError unless the step is only too early."""
        if kind is Kind.TOO_EARLY:
            return
        # Late once the vector was there: it may be in the sum, which then was made without this device's shares.
        doubtful = self.device.state in {DeviceState.MASKED, DeviceState.ENDORSED, DeviceState.RELEASED} and kind is not Kind.ABORTED
        raise self._over(RoundState.LOST if doubtful else RoundState.ABORTED, ShoalError(kind, reason))

    def _done(self) -> _OverError:
        """The round has its sum: with this device's vector if it gave shares, and nobody can say if it did not."""
        if self.device.state is DeviceState.RELEASED:
            outcome = self._outcome(RoundState.COUNTED)
            self.device.end()
            return _OverError(outcome)
        return self._over(self._gone(), ShoalError(Kind.WINDOW_CLOSED, "the round ended before this device had done its part"))

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send(
        self,
        *,
        ask: pairwise_pb2.Ask | None = None,
        join: pairwise_pb2.Join | None = None,
        poll: pairwise_pb2.Poll | None = None,
        shares: pairwise_pb2.Shares | None = None,
        upload: pairwise_pb2.Upload | None = None,
        endorse: pairwise_pb2.Endorse | None = None,
        unmask: pairwise_pb2.Unmask | None = None,
    ) -> pairwise_pb2.Answer:
        """One step, sealed once and sent until it is answered: every attempt has the same bytes.

        Raises _OverError when the deadline passes, or the shuffler refuses the frame itself for good.
        """
        terms = self._place.terms
        step = pairwise_pb2.Step(
            task_id=terms.task_id.raw,
            window=terms.window,
            session=self.device.session,
            ask=ask,
            join=join,
            poll=poll,
            shares=shares,
            upload=upload,
            endorse=endorse,
            unmask=unmask,
        )
        request = seal_request(self._place.hop, step.SerializeToString(), self._entropy)
        pause = _FIRST_PAUSE_S
        while True:
            self._in_time()
            try:
                sealed = await self._transport.exchange(request.frame, self._send_deadline_s)
                answer = codec.parse(pairwise_pb2.Answer, open_reply(request.reply_key, sealed), "answer")
                if answer.kind not in _AGAIN:
                    return answer
            except ShoalError as error:
                if error.kind in _FINAL_OF_CALL:
                    raise self._over(self._gone(), error) from None
            await self._sleep(pause * self._spread())
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _wait(self, wait_ms: int) -> None:
        self._in_time()
        await self._sleep(min(max(wait_ms / 1000, _LEAST_WAIT_S), _MOST_WAIT_S) * self._spread())

    def _spread(self) -> float:
        """Uniform on [0.75, 1.25), from the CSPRNG: devices that were told the same don't come back at once."""
        return 0.75 + int.from_bytes(self._entropy.bytes(4), "big") / (1 << 33)

    def _in_time(self) -> None:
        if self._clock.now() >= self._deadline:
            raise self._over(self._gone(), ShoalError(Kind.DEADLINE, "the round was not over in time: this device gave it up"))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _gone(self) -> RoundState:
        """What it means to lose sight of the shuffler now."""
        if self.device.state is DeviceState.NEW:
            return RoundState.NONE
        return RoundState.LOST if self.device.charged else RoundState.ABORTED

    def _over(self, state: RoundState, error: ShoalError) -> _OverError:
        outcome = self._outcome(state, error)
        self.device.abort(error.message)
        return _OverError(outcome)

    def _outcome(self, state: RoundState, error: ShoalError | None = None) -> RoundOutcome:
        return RoundOutcome(state, self.device.round_id, self.device.charged, error.kind if error else None, error.message if error else "")


# Refusals after which the same bytes may be sent again.
_AGAIN = frozenset({Kind.OVERLOADED.value, Kind.UNAVAILABLE.value, Kind.DEADLINE.value, Kind.INTERNAL.value})
