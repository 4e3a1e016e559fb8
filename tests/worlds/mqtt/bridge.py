"""The far end of an MQTT uplink, scripted: what a shuffler's bridge answers, and what anybody else
on the broker may send instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from shoal.crypto.brokered import ACCEPTED, make_reply
from shoal.crypto.envelope import open_frame
from shoal.errors import ShoalError
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import down_topic, reply_of, tag_of, up_filter
from tests.worlds.devices.clients import FarEnd

PATIENCE_S = 120.0  # on a busy machine; only a failing test waits that long
# (number of the frame, frame) -> payloads for its reply topic
Answers = Callable[[int, bytes], Sequence[bytes]]


def honest(far: FarEnd) -> Answers:
    """One reply per frame, saying what the far end says."""

    def answers(_number: int, frame: bytes) -> list[bytes]:
        try:
            far.answer(frame)
            status = ACCEPTED
        except ShoalError as error:
            status = error.kind.value
        try:
            ack_key = open_frame(far.hops[0], frame).ack_key
        except ShoalError:
            ack_key = None
        return [make_reply(frame, ack_key, status)]

    return answers


class Bridge:
    """``async with Bridge(settings, shuffler_key, answers) as bridge``: subscribed once entered. It
    keeps what came, and from where.
    """

    def __init__(self, settings: BrokerSettings, shuffler_key: bytes, answers: Answers) -> None:
        self.tag, self.answers = tag_of(shuffler_key), answers
        self.frames: list[bytes] = []
        self.replies: list[str] = []  # the reply ids that they named
        self.came = asyncio.Event()
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.link = Link(settings, subscribe=[(up_filter(self.tag), 1)], on_message=self._take)
        self._task: asyncio.Task[None] | None = None

    def _take(self, topic: str, frame: bytes) -> None:
        reply = reply_of(topic, self.tag)
        assert reply is not None
        number = len(self.frames)
        self.frames.append(frame)
        self.replies.append(reply)
        self.came.set()
        for payload in self.answers(number, frame):
            self._outgoing.put_nowait((reply, payload))

    async def send(self, reply: str, payload: bytes) -> None:
        await self.link.publish(down_topic(reply), payload, timeout_s=PATIENCE_S)

    async def _send_all(self) -> None:
        while True:
            reply, payload = await self._outgoing.get()
            try:
                await self.send(reply, payload)
            except ShoalError:
                continue  # the broker is away: the reply is lost

    async def __aenter__(self) -> Bridge:
        await self.link.__aenter__()
        await self.link.connected(PATIENCE_S)
        self._task = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.link.close()
