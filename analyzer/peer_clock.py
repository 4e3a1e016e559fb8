"""Answering a shuffler that asks what time it is, and remembering what it says."""

from __future__ import annotations

import asyncio

from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.clocks.timekeeper import Timekeeper
from shoal.crypto.signing import SigningKey
from shoal.crypto.timewords import TimeWord, read_word, sign_word
from shoal.limits import KIB, LIMITS
from shoal.rpc.call import Call
from shoal.rpc.server import Method


class TimeAnswers:
    """Tells the shufflers of our tasks what time it is here."""

    def __init__(self, tasks: AnalyzerTasks, key: SigningKey, clock: SureClock) -> None:
        self._tasks, self._key, self._clock = tasks, key, clock

    def method(self) -> Method:
        """The gRPC method ``Time``, for requests of at most 1 KiB."""
        return Method(KIB, handler=self.time)

    async def time(self, request: bytes, call: Call) -> bytes:
        """SignedTime -> SignedTime. Raises INVALID, FORBIDDEN, BAD_SIGNATURE."""
        shufflers = {served.task.shuffler_key for served in self._tasks.all()}
        signer, word = await asyncio.to_thread(read_word, request, shufflers, reply=False)
        wall, vouched = self._clock.now(), False
        if isinstance(self._clock, Timekeeper):
            # The request may have been on its way for as long as its sender waits for an answer.
            transit_s = LIMITS.send_deadline_s / 2
            self._clock.hear(signer.hex()[:8], word.unix_s + transit_s, transit_s, word.vouched)
            wall, vouched = self._clock.word()
        return sign_word(TimeWord(wall, vouched, word.nonce, reply=True), self._key)
