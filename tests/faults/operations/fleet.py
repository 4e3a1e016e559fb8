"""Devices that send all the time to services that are killed, and what they know of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter

import grpc

from shoal.crypto.envelope import HopContent, seal_frame, seal_report
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import Release
from shoal.rpc.channel import build_channel, call
from tests.worlds.services.shuffler import CA, submit

LENGTH = 3  # seconds of a window
FULL = 14  # reports at which it is closed
PATIENCE_S = 60.0  # only a failing test waits that long
SUBMIT = "/shoal.v1.Ingress/Submit"
# a task and its keys are unknown until the service has looked at its files
_NOT_YET = (Kind.UNKNOWN_TASK, Kind.UNKNOWN_KEY)
_LATER = (Kind.UNAVAILABLE, Kind.OVERLOADED, Kind.DEADLINE, *_NOT_YET)
_OVER = (Kind.WINDOW_FULL, Kind.WINDOW_CLOSED)


def newest(served: ServedTask) -> int:
    """The newest window that has begun."""
    return int(time.time() - served.task.windows.start_s) // LENGTH


def frame(served: ServedTask, window: int) -> bytes:
    """A report as a device makes it."""
    key, hop = served.keys.analyzer_keys[window], served.keys.hop_keys[window]
    nonce = secrets.token_bytes(16)
    sealed = seal_report(key, served.task_id, window, nonce, b"\x01")
    content = HopContent(
        task_id=served.task_id,
        window=window,
        ack_key=secrets.token_bytes(32),
        analyzer_key_id=key.key_id,
        admission=b"",
        sealed=(sealed,),
    )
    return seal_frame(hop, content)


class Fleet:
    """Devices that send to the oldest window that takes reports: the same bytes until they are
    acknowledged or refused for good, and now and then once more.

    acked: distinct reports by window. unknown: those of which nobody learned what became of them
    before the window was over, or its service lost for good. over: windows that take no more.
    """

    def __init__(self, port: int, served: ServedTask) -> None:
        self._port, self._served, self.stopping, self.acks = port, served, False, 0
        self.acked, self.unknown = Counter[int](), Counter[int]()
        self._later = dict[int, float]()  # windows that are not asked for before that time
        self.over, self._moved = set[int](), asyncio.Event()
        self._broken: Exception | None = None

    async def device(self) -> None:
        try:
            await self._live()
        except Exception as error:
            self._broken = error  # whoever waits for what it sends learns why nothing comes
            self._moved.set()
            raise

    async def _live(self) -> None:
        address = f"127.0.0.1:{self._port}"
        while not self.stopping:
            channel = build_channel(address, CA.cert_pem, private_pool=True)
            for _ in range(20):
                window = self._next()
                if window is None:
                    await asyncio.sleep(0.05)
                elif not self.stopping:
                    await self._send(channel, window, submit(frame(self._served, window)))
            await channel.close()

    def _next(self) -> int | None:
        begun, now = set(range(newest(self._served) + 1)), time.monotonic()
        later = {window for window, until in self._later.items() if now < until}
        return min(begun - self.over - later, default=None)

    async def _send(self, channel: grpc.aio.Channel, window: int, frame: bytes) -> None:
        sure = True  # that nothing of it is stored
        while not self.stopping or not sure:
            try:
                await call(channel, SUBMIT, frame, 5)
            except ShoalError as error:
                if error.kind in _OVER:
                    self.over.add(window)
                    break
                if "can't open this window" in str(error):  # yet, or its key is lost
                    self._later[window] = time.monotonic() + 1
                    break
                assert error.kind in _LATER, error  # noqa: PT017
                sure = sure and error.kind in _NOT_YET
                if self.stopping:
                    break
                await asyncio.sleep(0.05)
                continue
            self.acked[window] += 1
            self.acks += 1
            self._moved.set()
            if self.acks % 4 == 0:  # the answer was lost
                try:
                    await call(channel, SUBMIT, frame, 5)
                except ShoalError as error:
                    assert error.kind in (*_LATER, *_OVER), error  # noqa: PT017
            return
        self.unknown[window] += not sure

    async def reach(self, acks: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.acks < acks:
                if self._broken is not None:
                    raise self._broken
                self._moved.clear()
                await self._moved.wait()

    def full(self) -> set[int]:
        """Windows of which so many were acknowledged that they are closed."""
        return {window for window, count in self.acked.items() if count >= FULL}

    def check(self, released: dict[int, Release]) -> None:
        """Acknowledged is counted, and nothing else is but what nobody knows of."""
        assert {one.withheld for one in released.values()} <= {""}
        assert not any(one.rejected or one.damaged for one in released.values())
        lost = {w: (self.acked[w], one.n) for w, one in released.items() if one.n < self.acked[w]}
        twice = {
            w: (self.acked[w], self.unknown[w], one.n)
            for w, one in released.items()
            if one.n > self.acked[w] + self.unknown[w]
        }
        assert (lost, twice) == ({}, {})
