"""One step of a device, sealed once and sent until it is answered: every attempt has the same
bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal import codec
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import Clock
from shoal.crypto.secagg.exchange import open_reply, seal_request
from shoal.crypto.suites import PublicKeyConfig
from shoal.entropy import SYSTEM, Entropy, uniform
from shoal.errors import RETRYABLE, Kind, ShoalError
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2

# between two attempts to send the same bytes
_RETRY = Backoff(LIMITS.step_retry_first_s, LIMITS.step_retry_most_s, least=0.75, largest=1.25)
_KINDS = {kind.value: kind for kind in Kind}
# What a shuffler says of a frame that no repetition mends; of a step it says so in its answer.
FINAL_OF_CALL = frozenset(
    {
        Kind.INVALID,
        Kind.OVERSIZE,
        Kind.UNKNOWN_KEY,
        Kind.UNKNOWN_TASK,
        Kind.WINDOW_CLOSED,
        Kind.CONFIG,
    }
)
Sleep = Callable[[float], Awaitable[object]]


def kind_of(answer: pairwise_pb2.Answer) -> Kind | None:
    """Why the step was refused, or the round is over; None for neither. An unknown number is
    INTERNAL.
    """
    return _KINDS.get(answer.kind, Kind.INTERNAL) if answer.kind else None


def _unheard(_: ShoalError) -> None:
    """Nobody asks why it takes long."""


@dataclass(frozen=True, slots=True)
class RoundLine:
    """A device's line to its shuffler. ``deadline``: Unix seconds after which nothing is sent.
    ``sleep``: tests shorten it.

    ``trouble`` hears why an attempt failed that will be made again.
    """

    hop: PublicKeyConfig
    transport: RoundTransport
    clock: Clock
    deadline: float
    entropy: Entropy = SYSTEM
    sleep: Sleep = asyncio.sleep
    send_deadline_s: float = LIMITS.send_deadline_s
    trouble: Callable[[ShoalError], None] = _unheard

    async def send(self, step: pairwise_pb2.Step) -> pairwise_pb2.Answer:
        """The shuffler's answer, which may be a refusal.

        Raises DEADLINE when the time is over, and what the shuffler says of a frame that no
        repetition mends (``FINAL_OF_CALL``).
        """
        request = seal_request(self.hop, step.SerializeToString(), self.entropy)
        attempts = 0
        while True:
            self.in_time()
            try:
                sealed = await self.transport.exchange(request.frame, self.send_deadline_s)
                answer = codec.parse(
                    pairwise_pb2.Answer, open_reply(request.reply_key, sealed), "answer"
                )
                kind = kind_of(answer)
                if kind is Kind.TOO_EARLY or kind not in RETRYABLE:
                    return answer
                failure = ShoalError(kind, answer.reason, retry_after_s=answer.wait_ms / 1000)
            except ShoalError as error:
                if error.kind in FINAL_OF_CALL:
                    raise
                failure = error
            self.trouble(failure)
            attempts += 1
            pause = _RETRY.pause(attempts, self.entropy)
            await self.sleep(max(pause, self._asked(failure)))

    def _asked(self, failure: ShoalError) -> float:
        """Seconds that the shuffler asks to wait, and up to a quarter more; never beyond half of
        the time that is left.
        """
        asked = min(failure.retry_after_s, LIMITS.retry_after_most_s)
        asked *= 1.0 + uniform(self.entropy) / 4.0
        return min(asked, max(self.deadline - self.clock.now(), 0.0) / 2)

    def in_time(self) -> None:
        """Raises DEADLINE when the time is over."""
        if self.clock.now() >= self.deadline:
            raise ShoalError(Kind.DEADLINE, "it was not over in time: this device gave it up")
