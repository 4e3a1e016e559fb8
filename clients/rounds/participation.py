"""A device takes part in one round of secure aggregation, from asking for it to its end.

The machine (``shoal.crypto.secagg.device.machine``) checks and answers; this module carries its
messages: it asks, waits, sends a large vector in pieces, and sends the same bytes again when a
network loses them. A round that fails is over: nothing of it is used again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, Protocol

from shoal.arrays import NDArray
from shoal.clients.memory.rounds_ledger import Answered, RoundStanding
from shoal.clients.rounds.exchange import RoundLine, kind_of
from shoal.clocks.backoff import spread
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.device.ledger import RoundLedger
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2

# whatever a shuffler asks for
_LEAST_WAIT_S, _MOST_WAIT_S = LIMITS.step_wait_least_s, LIMITS.step_wait_most_s
_JOIN_AGAIN_MS = 1_000  # after a round that filled up meanwhile
_SENT = frozenset({DeviceState.MASKED, DeviceState.ENDORSED, DeviceState.RELEASED})
# who says so may have lost sight of a sum that was made
_UNSURE = Reason.RESTARTED, Reason.UNREACHABLE, Reason.DISAGREE, Reason.OTHER


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

    def settle(
        self, task_id: TaskId, window: int, standing: RoundStanding, kind: Kind | None = None
    ) -> None:
        """Write down what became of a MASKED answer; anything else stays as it is. Durable on
        return.
        """
        ...

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        """How the window was answered; None if it was not. Raises MISMATCH for a damaged entry."""
        ...


class _OverError(Exception):
    """The device's part is over, with this outcome."""

    def __init__(self, outcome: RoundOutcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def _unwatched(device: DeviceRound) -> None:
    """Nobody looks."""


async def take_part(
    terms: RoundTerms,
    identity: DeviceIdentity,
    vector: NDArray[Any],
    ledger: Ledger,
    line: RoundLine,
    watch: Callable[[DeviceRound], None] = _unwatched,
) -> RoundOutcome:
    """One round of the window: asked for, joined, and gone through to its end, before
    ``line.deadline``.

    ``vector``: int64[d], quantized and with this device's noise share, in grid steps; or its words
    (``words.narrow``), of a task with segments. Never raises for what happened to the round: the
    outcome says it. Raises INVALID for a vector of the wrong shape or type, and CONFLICT if the
    window was answered already; nothing is sent then. Cancelled: the keys are dropped, and a vector
    that was made counts as answered. ``watch`` sees the machine after every step that was answered;
    what it raises ends this device's part as a cancellation does.
    """
    if not terms.takes(vector):
        raise ShoalError(Kind.INVALID, f"a vector of this task is int64[{terms.dimension}]")
    if await asyncio.to_thread(ledger.find, terms.task_id, terms.window) is not None:
        raise ShoalError(
            Kind.CONFLICT, "this device has answered the window before: a window is answered once"
        )
    part = _Part(terms, identity, vector, ledger, line, watch)
    outcome = RoundOutcome(RoundState.LOST)
    try:
        outcome = await part.run()
    finally:
        part.device.abort("the device gave the round up")
        if part.device.charged:
            with contextlib.suppress(
                ShoalError
            ):  # the entry itself is there; what became of it is a comfort
                await asyncio.shield(
                    asyncio.to_thread(
                        ledger.settle,
                        terms.task_id,
                        terms.window,
                        _STANDING[outcome.state],
                        outcome.kind,
                    )
                )
    return outcome


_STANDING = {
    RoundState.COUNTED: RoundStanding.COUNTED,
    RoundState.ABORTED: RoundStanding.ABORTED,
    RoundState.LOST: RoundStanding.LOST,
    RoundState.NONE: RoundStanding.LOST,
}


class _Part:
    """One device's way through one round."""

    def __init__(
        self,
        terms: RoundTerms,
        identity: DeviceIdentity,
        vector: NDArray[Any],
        ledger: Ledger,
        line: RoundLine,
        watch: Callable[[DeviceRound], None],
    ) -> None:
        self._watch = watch
        self._terms, self._identity, self._vector, self._ledger, self._line = (
            terms,
            identity,
            vector,
            ledger,
            line,
        )
        self.device = DeviceRound(terms, identity, line.entropy)
        self._sealed = b""

    async def run(self) -> RoundOutcome:
        try:
            answer = await self._seat()
            while True:
                self._watch(self.device)
                answer = await self._next(answer)
        except _OverError as over:
            return over.outcome
        except ShoalError as error:
            # the machine found something wrong, or the ledger could not be written: nothing more is
            # sent
            return self._outcome(RoundState.LOST if self._sealed else RoundState.ABORTED, error)

    # --- joining ----------------------------------------------------------------------------------

    async def _seat(self) -> pairwise_pb2.Answer:
        """Ask until there is a round, and join it; a round that filled up meanwhile is followed by
        the next.
        """
        while True:
            answer = await self._send(ask=pairwise_pb2.Ask())
            kind = kind_of(answer)
            if kind is not None and kind is not Kind.TOO_EARLY:
                raise self._over(RoundState.NONE, ShoalError(kind, answer.reason))
            if not answer.HasField("offer"):
                await self._wait(answer.wait_ms)
                continue
            # Every offer gets keys of its own: those of one that was not joined are forgotten.
            self.device = DeviceRound(self._terms, self._identity, self._line.entropy)
            join = self.device.join(answer.offer, self._line.clock.now())
            answer = await self._send(join=join)
            kind = kind_of(answer)
            if kind is None:
                return answer
            if kind not in {Kind.NOT_FOUND, Kind.WINDOW_CLOSED, Kind.TOO_EARLY}:
                raise self._over(
                    RoundState.ABORTED if kind is Kind.ABORTED else RoundState.NONE,
                    ShoalError(kind, answer.reason),
                )
            await self._wait(_JOIN_AGAIN_MS)

    # --- one step after the other -----------------------------------------------------------------

    async def _next(self, answer: pairwise_pb2.Answer) -> pairwise_pb2.Answer:
        """What the answer asks for, and the answer to that. Raises _OverError at the end,
        ShoalError for what is wrong with it.
        """
        device, kind = self.device, kind_of(answer)
        if kind is not None or answer.phase == pairwise_pb2.PHASE_ABORTED:
            self._refused(kind or Kind.ABORTED, answer.reason)
        match answer.phase:
            case pairwise_pb2.PHASE_SHARE if (
                answer.HasField("started") and device.state is DeviceState.JOINED
            ):
                return await self._send(
                    shares=await asyncio.to_thread(
                        device.share, answer.started, self._line.clock.now()
                    )
                )
            case pairwise_pb2.PHASE_CHECK if (
                answer.HasField("dealt") and device.state is DeviceState.SHARED
            ):
                return await self._send(
                    check=await asyncio.to_thread(device.complain, answer.dealt)
                )
            case pairwise_pb2.PHASE_CHECK if (
                answer.HasField("roster") and device.state is DeviceState.SHARED
            ):
                return await self._send(check=await asyncio.to_thread(device.check, answer.roster))
            case pairwise_pb2.PHASE_MASK if answer.HasField("roster") and device.state in {
                DeviceState.SHARED,
                DeviceState.MASKED,
            }:
                return await self._upload(answer)
            case pairwise_pb2.PHASE_ENDORSE if (
                answer.HasField("commit") and device.state is DeviceState.MASKED
            ):
                return await self._send(endorse=device.endorse(answer.commit))
            case pairwise_pb2.PHASE_UNMASK if answer.HasField("commit"):
                sealed = await asyncio.to_thread(
                    device.unmask, answer.commit, answer.endorsements, self._ledger
                )
                hit("client.round.released")
                return await self._send(unmask=sealed)
            case pairwise_pb2.PHASE_DONE:
                raise self._done()
        await self._wait(answer.wait_ms)
        return await self._send(poll=pairwise_pb2.Poll())

    async def _upload(self, answer: pairwise_pb2.Answer) -> pairwise_pb2.Answer:
        """The next piece of the vector, from where the shuffler is."""
        if not self._sealed:
            self._sealed = await asyncio.to_thread(
                self.device.mask, answer.roster, self._vector, self._ledger
            )
            hit("client.round.masked")
        at, total = answer.received, len(self._sealed)
        if at >= total:  # all of it is there, the shuffler has only not looked at it yet
            at = max(0, total - LIMITS.upload_bytes)
        chunk = self._sealed[at : at + LIMITS.upload_bytes]
        hit("client.round.chunk")
        return await self._send(upload=pairwise_pb2.Upload(offset=at, total=total, chunk=chunk))

    def _refused(self, kind: Kind, reason: str) -> None:
        """Raises _OverError unless the step is only too early."""
        if kind is Kind.TOO_EARLY:
            return
        if self.device.state not in _SENT:
            raise self._over(RoundState.ABORTED, ShoalError(kind, reason))
        unsure = next((cause.value for cause in _UNSURE if cause.error.message == reason), "")
        if unsure:
            raise self._over(
                RoundState.LOST,
                ShoalError(kind, f"{unsure} after the vector was sent: it is in a sum, or in none"),
            )
        # Late once the vector was there: it may be in the sum, which then was made without this
        # device's shares.
        raise self._over(
            RoundState.ABORTED if kind is Kind.ABORTED else RoundState.LOST,
            ShoalError(kind, reason),
        )

    def _done(self) -> _OverError:
        """The round has its sum: with this device's vector if it gave shares, and nobody can say if
        it did not.
        """
        if self.device.state is DeviceState.RELEASED:
            outcome = self._outcome(RoundState.COUNTED)
            self.device.end()
            return _OverError(outcome)
        return self._over(
            self._gone(),
            ShoalError(Kind.WINDOW_CLOSED, "the round ended before this device had done its part"),
        )

    # --- sending ----------------------------------------------------------------------------------

    async def _send(
        self,
        *,
        ask: pairwise_pb2.Ask | None = None,
        join: pairwise_pb2.Join | None = None,
        poll: pairwise_pb2.Poll | None = None,
        shares: pairwise_pb2.Shares | None = None,
        check: pairwise_pb2.Check | None = None,
        upload: pairwise_pb2.Upload | None = None,
        endorse: pairwise_pb2.Endorse | None = None,
        unmask: pairwise_pb2.Unmask | None = None,
    ) -> pairwise_pb2.Answer:
        """One step and its answer. Raises _OverError when the time is over, or the shuffler refuses
        the frame itself for good.
        """
        step = pairwise_pb2.Step(
            task_id=self._terms.task_id.raw,
            window=self._terms.window,
            session=self.device.session,
            ask=ask,
            join=join,
            poll=poll,
            shares=shares,
            check=check,
            upload=upload,
            endorse=endorse,
            unmask=unmask,
        )
        try:
            return await self._line.send(step)
        except ShoalError as error:
            raise self._over(self._gone(), error) from None

    async def _wait(self, wait_ms: int) -> None:
        """Before the next step: as long as the shuffler asks for, within bounds, spread."""
        seconds = min(max(wait_ms / 1000, _LEAST_WAIT_S), _MOST_WAIT_S)
        await self._line.sleep(spread(seconds, self._line.entropy))

    # --- the end ----------------------------------------------------------------------------------

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
        return RoundOutcome(
            state,
            self.device.round_id,
            self.device.charged,
            error.kind if error else None,
            error.message if error else "",
        )
