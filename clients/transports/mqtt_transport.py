"""Frames through an MQTT broker that nobody trusts.

A frame is published to the shuffler's uplink topic, and the reply comes to a topic that this
connection drew. The broker's acknowledgement says nothing about the report: what counts is a reply
that ``brokered.read_reply`` verifies with the frame's own ack key. Anything else that comes to the
reply topic (forged, damaged, another frame's, or the answer to a frame that did not open) is as if
it had not come, and the call goes on waiting.

A broker can hold back what it carries, repeat it and change its order, at any time. That a report
is stored stays true; that it was refused says nothing about another delivery of the same bytes,
which the broker may have made by itself. So refusals are ``Undated``.

A call that is cancelled or late before the broker has acknowledged its frame ends the connection: a
frame that waits in it would leave when the broker takes it, however long after its owner withdrew
it. Other calls send theirs again over the next connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.clients.transports.transport import Receipt, Undated
from shoal.crypto.brokered import ACCEPTED, NAME_SIZE, REPLY_SIZE, read_reply, reply_name
from shoal.crypto.envelope import receipt_mac
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import down_topic, new_reply, tag_of, up_topic

# What a shuffler's refusal means to a device: over a broker only its number comes.
_TEXTS: dict[Kind, str] = {
    Kind.INVALID: "the shuffler could not read the frame: drop the report",
    Kind.UNKNOWN_TASK: (
        "this shuffler does not serve the task: refresh the task, or ask its authority where it is "
        "served"
    ),
    Kind.UNKNOWN_KEY: (
        "this shuffler does not hold the key that the frame is sealed for: fetch the key schedule "
        "again"
    ),
    Kind.TOO_EARLY: "the window has not begun: try again when it has, or check this device's clock",
    Kind.WINDOW_CLOSED: "the window is over: drop the report",
    Kind.WINDOW_FULL: "the window has all the reports that it takes: drop the report",
    Kind.OVERLOADED: "the shuffler takes no more reports now: try again later",
    Kind.OVERSIZE: "the report is larger than this shuffler takes: drop it",
    Kind.UNAVAILABLE: "the shuffler is ending or beginning: try again later",
    Kind.DEADLINE: "the shuffler had too little time left: try again later",
    Kind.UNAUTHENTICATED: (
        "the frame does not say which device it comes from, and the task wants to know: have this "
        "device enrolled"
    ),
    Kind.FORBIDDEN: "the shuffler does not admit this device: ask for a new certificate",
    Kind.BAD_SIGNATURE: (
        "the frame's proof of its device does not verify: have this device enrolled again"
    ),
    Kind.CONFLICT: (
        "this device has been admitted in this window, with another report: drop this one"
    ),
    Kind.INTERNAL: "the report could not be stored: try again later",
}
_OTHERWISE = "the shuffler refuses the report: ask whoever runs it"
_IN_FLIGHT = 512  # frames of one batch that wait for their reply: one group of the bridge
_CLOSED = "this transport is closed: open another and send the same bytes"
_LOST = "the connection to the MQTT broker ended and did not come back: send the same bytes again"
_NO_REPLY = "no reply that verifies came from the shuffler: send the same bytes again"


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A frame that waits for its reply. ``status`` becomes what a verified reply says."""

    frame: bytes = field(repr=False)
    ack_key: bytes = field(repr=False)
    status: asyncio.Future[int]


class _Uplink:
    """A link, with what is drawn for each of its connections: the reply id, and ``again``, which is
    done when the next one is up.
    """

    def __init__(
        self, settings: BrokerSettings, entropy: Entropy, answered: Callable[[str, bytes], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.reply, self.again, self.opened_s = "", loop.create_future(), loop.time()
        self._entropy = entropy
        self.link = Link(
            settings,
            subscribe=self._subscribe,
            on_message=answered,
            on_up=self._on_up,
            entropy=entropy,
            retained=False,
            most_bytes=REPLY_SIZE,
        )
        self.link.open()

    def _subscribe(self) -> list[tuple[str, int]]:
        self.reply = new_reply(self._entropy)
        return [(down_topic(self.reply), 1)]

    def _on_up(self) -> None:
        earlier, self.again = self.again, asyncio.get_running_loop().create_future()
        earlier.set_result(None)


class MqttTransport:
    """One connection for all frames of a process to one shuffler; it connects at the first call and
    again whenever it must.

    Client id and reply topic are drawn anew for every connection, and a connection ends after
    LIMITS.connection_idle_s without a call and, between calls, after LIMITS.connection_age_s: what
    a device sends in one window and in the next is not linked by a name of ours. ``shuffler_key``:
    the task's. Raises INVALID for a key of another length; the first call raises CONFIG if no MQTT
    library is installed.
    """

    def __init__(
        self, settings: BrokerSettings, shuffler_key: bytes, entropy: Entropy = SYSTEM
    ) -> None:
        self._settings, self._tag, self._entropy = settings, tag_of(shuffler_key), entropy
        self._closed = False
        self._uplink: _Uplink | None = None
        self._calls: dict[bytes, list[_Call]] = {}  # by the name that their replies begin with
        self._idle: asyncio.TimerHandle | None = None
        self._parting: set[asyncio.Task[None]] = set()  # links that are closing

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        """As ``Transport.submit``. If the connection ends before the reply came, another is waited
        for and the frame sent again.
        """
        status = await self._status(frame, ack_key, deadline_s)
        if status == ACCEPTED:
            return receipt_mac(ack_key, ACCEPTED, frame)
        kind = Kind(status)
        raise Undated(kind, _TEXTS.get(kind, _OTHERWISE))

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        """As ``BatchTransport.submit_batch``, several hundred under way at a time. A frame without
        a verified reply (it may be one that did not open) gets the status of that failure, and no
        mac. Raises what the first frame met if none got a reply.
        """
        loop = asyncio.get_running_loop()
        room, until = asyncio.Semaphore(_IN_FLIGHT), loop.time() + deadline_s

        async def submit_one(frame: bytes, ack_key: bytes) -> Receipt | ShoalError:
            async with room:
                try:
                    status = await self._status(frame, ack_key, until - loop.time())
                except ShoalError as error:
                    return error
            return Receipt(status, receipt_mac(ack_key, status, frame))

        results = await asyncio.gather(
            *(submit_one(frame, key) for frame, key in zip(frames, ack_keys, strict=True))
        )
        failures = [result for result in results if isinstance(result, ShoalError)]
        if failures and len(failures) == len(results):
            raise failures[0]
        return [
            Receipt(result.kind.value, b"") if isinstance(result, ShoalError) else result
            for result in results
        ]

    async def close(self) -> None:
        """Idempotent; calls under way end with UNAVAILABLE."""
        self._closed = True
        for call in [call for calls in self._calls.values() for call in calls]:
            if not call.status.done():
                call.status.set_exception(ShoalError(Kind.UNAVAILABLE, _CLOSED))
        self._part()
        if self._parting:
            await asyncio.wait(self._parting)

    async def _status(self, frame: bytes, ack_key: bytes, deadline_s: float) -> int:
        """What a verified reply says. Raises UNAVAILABLE, DEADLINE, CONFIG."""
        if self._closed:
            raise ShoalError(Kind.UNAVAILABLE, _CLOSED)
        loop = asyncio.get_running_loop()
        uplink, call, name = (
            self._current(),
            _Call(frame, ack_key, loop.create_future()),
            reply_name(frame),
        )
        self._calls.setdefault(name, []).append(call)
        try:
            await self._until_answered(uplink, call, loop.time() + deadline_s)
            return call.status.result()
        finally:
            if call.status.done():
                call.status.exception()  # seen: another failure may have come first
            self._calls[name].remove(call)
            if not self._calls[name]:
                del self._calls[name]
            if not self._calls and not self._closed:
                self._idle = loop.call_later(LIMITS.connection_idle_s, self._part)

    async def _until_answered(self, uplink: _Uplink, call: _Call, until: float) -> None:
        """Returns when ``call.status`` is done. The frame is published once in every connection
        that comes up until then.
        """
        loop, link = asyncio.get_running_loop(), uplink.link
        while not call.status.done():
            await link.connected(until - loop.time())
            again = uplink.again
            try:
                await link.publish(
                    up_topic(self._tag, uplink.reply),
                    call.frame,
                    timeout_s=until - loop.time(),
                    recall=True,
                )
            except ShoalError as error:
                if (link.up or error.kind is Kind.DEADLINE) and not call.status.done():
                    raise  # refused, or too late
                continue
            waited: set[asyncio.Future[Any]] = {call.status, again}
            await asyncio.wait(
                waited, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not call.status.done() and loop.time() >= until:
                raise (
                    ShoalError(Kind.DEADLINE, _NO_REPLY)
                    if link.up
                    else ShoalError(Kind.UNAVAILABLE, _LOST)
                )

    def _answered(self, topic: str, reply: bytes) -> None:
        """Whatever comes from the broker."""
        for call in self._calls.get(reply[:NAME_SIZE], ()):
            status = read_reply(reply, call.frame, call.ack_key)
            if status is not None and not call.status.done():
                call.status.set_result(status)

    def _current(self) -> _Uplink:
        """The connection to use now: never one that was idle for long, or that is old while nothing
        is under way.
        """
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._uplink is not None and not self._calls:
            age_s = asyncio.get_running_loop().time() - self._uplink.opened_s
            if age_s > LIMITS.connection_age_s:
                self._part()
        if self._uplink is None:
            self._uplink = _Uplink(self._settings, self._entropy, self._answered)
        return self._uplink

    def _part(self) -> None:
        """Close the connection; the next call opens another."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._uplink is not None:
            closing = asyncio.get_running_loop().create_task(self._uplink.link.close())
            self._parting.add(closing)
            closing.add_done_callback(self._parting.discard)
            self._uplink = None
