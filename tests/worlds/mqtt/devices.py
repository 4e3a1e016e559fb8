"""Devices that reach a shuffler through a broker, as simple as can be: publish a frame, wait for a
reply that its sender can read.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from shoal.crypto.brokered import read_reply
from shoal.errors import ShoalError
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import down_topic, new_reply, tag_of, up_topic

PATIENCE_S = 60.0  # only a failing test waits that long


def table(settings: BrokerSettings) -> dict[str, Any]:
    """[mqtt] of shuffler.toml for a broker without TLS."""
    return {
        "broker": f"{settings.host}:{settings.port}",
        "protocol": settings.protocol,
        "insecure": settings.insecure,
    }


class Devices:
    """One connection, any number of frames under way. ``payloads``: everything that came, in
    order.
    """

    def __init__(self, settings: BrokerSettings, shuffler_key: bytes) -> None:
        self.reply = new_reply()
        self.topic = up_topic(tag_of(shuffler_key), self.reply)
        self.link = Link(
            settings, subscribe=[(down_topic(self.reply), 1)], on_message=self._arrived
        )
        self.payloads: list[bytes] = []
        # by frame: its ack key, and its status once it is known
        self._waiting: dict[bytes, tuple[bytes, asyncio.Future[int]]] = {}

    async def __aenter__(self) -> Devices:
        self.link.open()
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.link.close()

    async def up(self) -> None:
        """Returns once the broker is there."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.link.connected(PATIENCE_S)
                except ShoalError:
                    await asyncio.sleep(0.01)

    def _arrived(self, topic: str, payload: bytes) -> None:
        self.payloads.append(payload)
        for frame, (ack_key, known) in self._waiting.items():
            status = read_reply(payload, frame, ack_key)
            if status is not None and not known.done():
                known.set_result(status)

    async def publish(self, frame: bytes, **changes: Any) -> None:
        await self.link.publish(
            changes.pop("topic", self.topic), frame, timeout_s=PATIENCE_S, **changes
        )

    async def came(self, count: int) -> list[bytes]:
        """The first ``count`` payloads, readable or not."""
        async with asyncio.timeout(PATIENCE_S):
            # only tests wait for payloads that nobody can read
            while len(self.payloads) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.payloads

    async def submit(self, frame: bytes, ack_key: bytes, again_s: float = PATIENCE_S) -> int:
        """The status. The same bytes again whenever ``again_s`` went by without an answer, or the
        broker could not be reached.
        """
        async with asyncio.timeout(PATIENCE_S):
            known: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting[frame] = (ack_key, known)
            try:
                while not known.done():
                    try:
                        await self.link.publish(self.topic, frame, timeout_s=again_s)
                    except ShoalError:
                        await asyncio.sleep(0.01)
                        continue
                    await asyncio.wait([known], timeout=again_s)
                return known.result()
            finally:
                del self._waiting[frame]
