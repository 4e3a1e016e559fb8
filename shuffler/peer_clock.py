"""Asking the analyzer what time it is, and telling it ours: once a minute, more often while the
clock is disputed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection

from shoal.clocks.timekeeper import Timekeeper
from shoal.crypto.signing import SigningKey
from shoal.crypto.timewords import NONCE_SIZE, TimeWord, read_word, sign_word
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.rpc.channel import CallsPeer, call

log = get_log("shuffler")
METHOD = "/shoal.v1.Delivery/Time"
ASK_S, DISPUTED_ASK_S = 60.0, 5.0


class AnalyzerClock:
    """``analyzers``: the keys that may sign the answer, asked anew each time."""

    def __init__(
        self,
        channel: CallsPeer,
        key: SigningKey,
        keeper: Timekeeper,
        entropy: Entropy,
        analyzers: Callable[[], Collection[bytes]],
    ) -> None:
        self._channel, self._key, self._keeper = channel, key, keeper
        self._entropy, self._analyzers = entropy, analyzers
        self._failing = False

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``. An analyzer that is away, or of an older version, is no witness, and
        nothing else is wrong.
        """
        while not stop.is_set():
            try:
                await self.ask()
                self._failing = False
            except Exception as error:  # noqa: BLE001 - whatever it answers, it is asked again
                if not self._failing:
                    log.debug("the analyzer does not say what time it is", error=error)
                self._failing = True
            pause = ASK_S if self._keeper.decide() is not None else DISPUTED_ASK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async def ask(self) -> None:
        """One exchange. Raises what the analyzer or the way to it answers."""
        wall, vouched = self._keeper.word()
        nonce = self._entropy.bytes(NONCE_SIZE)
        request = sign_word(TimeWord(wall, vouched, nonce, reply=False), self._key)
        began = self._keeper.steady()
        answer = await call(self._channel, METHOD, request, LIMITS.send_deadline_s, peer="analyzer")
        took = self._keeper.steady() - began
        signer, word = read_word(answer, self._analyzers(), reply=True)
        if word.nonce != nonce:
            raise ShoalError(
                Kind.MISMATCH, "time: the analyzer answered another question than ours"
            )
        # It looked at its clock at some moment of the call.
        self._keeper.hear(signer.hex()[:8], word.unix_s + took / 2, took / 2, word.vouched)
