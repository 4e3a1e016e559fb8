"""One connection to a broker, from its socket to its end. The only module that knows the MQTT
library.

The library (paho) packs and parses packets and keeps the connection alive. It is driven through
what it offers for an event loop of somebody else's: it says when a socket is to be watched, and
``loop_read``, ``loop_write`` and ``loop_misc`` are called in turn. What it leaves open is done
here: the socket comes connected (``dial``) and bounded (``bounded_socket``), and whoever waits for
an answer hears of the end of the connection. It logs nothing unless it is given a logger: it is
given none, for it would write topics.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from shoal.errors import Kind, ShoalError
from shoal.limits import KIB, LIMITS
from shoal.mqtt.bounded_socket import BoundedSocket
from shoal.mqtt.settings import BrokerSettings, LoginRefused

ENDED = "the connection to the MQTT broker ended: send again"

_FAREWELL_S = 1.0  # seconds that saying goodbye may take
_PULSE_S = 1.0  # between two looks at whether a ping is due, or its answer overdue
_TOPIC_ROOM = 64 * KIB  # bytes of a packet that are not payload
_REFUSED = 128  # reason codes from here on are refusals (MQTT 5 section 2.4)
_BAD_PROTOCOL, _BAD_LOGIN, _NOT_AUTHORIZED = 132, 134, 135  # MQTT 5 section 3.2.2.2


class Message(Protocol):
    """What arrives. ``topic`` raises if it is no UTF-8; ``retain``: the broker had stored it."""

    @property
    def topic(self) -> str:
        """Where it was published. Raises UnicodeDecodeError if the broker sent no UTF-8."""
        ...

    @property
    def payload(self) -> bytes | bytearray:
        """What was published; a broker may have changed it."""
        ...

    @property
    def retain(self) -> bool:
        """Whether the broker had stored it, so that it may be old."""
        ...


class Session:
    """Started once, stopped once. ``lost`` is done when the connection has ended: wait for it by
    ``asyncio.wait``.

    Takes the socket, also if it raises. received: called on the event loop, must neither block nor
    raise. most_bytes: of a payload, no more than a little above it is kept. Raises CONFIG if no
    MQTT library is installed.
    """

    def __init__(
        self,
        raw: socket.socket,
        settings: BrokerSettings,
        client_id: str,
        received: Callable[[Message], None],
        most_bytes: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._let_in: asyncio.Future[None] = self._loop.create_future()
        self._refusal: int | None = None  # the broker's reason code, if it did not let us in
        # packet id -> reason code of what answers it; None: the connection ended before
        self._answers: dict[int, asyncio.Future[int | None]] = {}
        self._turn_due = False  # whatever the socket announces: one in each round of the loop
        self._pulse: asyncio.TimerHandle | None = None
        self._settings = settings
        self._socket = BoundedSocket(raw, most_bytes + _TOPIC_ROOM)
        try:
            self._paho = paho = library()(self._socket, settings, client_id)
        except BaseException:
            raw.close()
            raise
        paho.on_socket_open = self._on_socket_open
        paho.on_socket_close = lambda _client, _data, _socket: self._end()
        paho.on_socket_register_write = self._on_socket_register_write
        paho.on_socket_unregister_write = self._on_socket_unregister_write
        paho.on_connect = self._on_connect
        paho.on_subscribe = self._on_subscribe
        paho.on_publish = self._on_publish
        paho.on_message = lambda _client, _data, message: received(message)

    async def start(self) -> None:
        """Returns when the broker has let us in. Raises UNAVAILABLE."""
        # opens nothing and does not wait: the socket is there, and the packet is queued
        self._paho.connect(self._settings.host, self._settings.port, LIMITS.mqtt_keepalive_s)
        either: set[asyncio.Future[None]] = {self._let_in, self.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._let_in.done():
            raise _why_not(self._refusal, self._settings.protocol, self._settings.insecure)

    async def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Returns when the broker has granted all, each (filter, QoS). Raises UNAVAILABLE."""
        for topic, qos in filters:
            if self.lost.done():
                raise _unavailable(ENDED)
            status, packet_id = self._paho.subscribe(topic, qos)
            if status != 0 or packet_id is None:
                raise _unavailable(ENDED)
            if await self._answer(packet_id) >= _REFUSED:
                raise _unavailable(
                    "the MQTT broker does not let this user subscribe: check its access list"
                )

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, recall: bool = False
    ) -> None:
        """Returns when it is acknowledged, or with QoS 0 written. Raises UNAVAILABLE, INVALID.
        ``recall``: cancelled before that, it ends the connection with everything that has not left
        yet: the library would send on what waits in it, however much later.
        """
        if self.lost.done():
            raise _unavailable(ENDED)
        try:
            if not topic:
                raise ValueError  # MQTT 5 would take it for an alias
            sent = self._paho.publish(topic, payload, qos, retain)
        except ValueError:
            raise ShoalError(
                Kind.INVALID, "MQTT can't carry a message of this topic, length or QoS"
            ) from None
        if sent.rc != 0:
            raise _unavailable(ENDED)
        try:
            code = await self._answer(sent.mid)
        except asyncio.CancelledError:
            if recall:
                self._cut()
            raise
        if code >= _REFUSED:
            raise _unavailable(
                "the MQTT broker refuses the message: check its access list, or try again later"
            )

    async def stop(self) -> None:
        """Say goodbye if there is somebody to say it to, then close whatever is open.
        Idempotent.
        """
        try:
            if self._paho.is_connected() and not self.lost.done():
                self._paho.disconnect()
                await asyncio.wait({self.lost}, timeout=_FAREWELL_S)
        finally:
            self._end()

    def _cut(self) -> None:
        """End the connection at once. What the library and the system still hold of it is thrown
        away, not sent.
        """
        self._socket.discard()
        self._end()

    def _end(self) -> None:
        """Close the socket, for whatever reason, and tell whoever waits. Idempotent."""
        if self.lost.done():
            return
        self.lost.set_result(None)
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        if self._pulse is not None:
            self._pulse.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)

    async def _answer(self, packet_id: int) -> int:
        """The reason code that answers this packet. Raises UNAVAILABLE if the connection ends."""
        answer: asyncio.Future[int | None] = self._loop.create_future()
        self._answers[packet_id] = answer
        try:
            code = await answer
        finally:
            self._answers.pop(packet_id, None)
        if code is None:
            raise _unavailable(ENDED)
        return code

    def _answered(self, packet_id: int, code: int) -> None:
        answer = self._answers.get(packet_id)
        if answer is not None and not answer.done():
            answer.set_result(code)

    # --- the library's turns on the event loop ----------------------------------------------------

    def _advance(self, step: Callable[[], object]) -> bool:
        """Let the library read, write or look at its clock. False: the connection has ended."""
        try:
            step()
        except Exception:  # noqa: BLE001 - whatever a peer's bytes made it raise
            self._end()
        return not self.lost.done()

    def _readable(self) -> None:
        if not self._turn_due:
            self._read()

    def _read(self) -> None:
        """One turn, and another in the next round of the loop if there is more: what is here
        already is announced by nobody.
        """
        self._turn_due = False
        if self.lost.done():
            return
        self._socket.turn()
        while self._advance(self._paho.loop_read) and self._socket.pending():
            if self._socket.turn_over:
                self._turn_due = True
                self._loop.call_soon(self._read)
                return

    def _write(self) -> None:
        self._advance(self._paho.loop_write)

    def _beat(self) -> None:
        if self._advance(self._paho.loop_misc):
            self._pulse = self._loop.call_later(_PULSE_S, self._beat)

    # --- what the library calls -------------------------------------------------------------------

    def _on_socket_open(self, _client: Any, _data: Any, opened: Any) -> None:
        """Before anything is written. Raises INTERNAL if it is another socket than ours."""
        if opened is not self._socket:
            opened.close()
            raise ShoalError(
                Kind.INTERNAL,
                "this version of the MQTT library connects by itself: install one that "
                "pyproject.toml names",
            )
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._pulse = self._loop.call_later(_PULSE_S, self._beat)

    def _on_socket_register_write(self, _client: Any, _data: Any, _socket: Any) -> None:
        if not self.lost.done():
            self._loop.add_writer(self._socket.fileno(), self._write)

    def _on_socket_unregister_write(self, _client: Any, _data: Any, _socket: Any) -> None:
        if not self.lost.done():
            self._loop.remove_writer(self._socket.fileno())

    def _on_connect(
        self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        if reason.value >= _REFUSED:
            self._refusal = int(reason.value)  # the library ends the connection now
        elif not self._let_in.done():
            self._let_in.set_result(None)

    def _on_subscribe(
        self,
        _client: Any,
        _data: Any,
        packet_id: int,
        reasons: Sequence[Any],
        _properties: Any,
    ) -> None:
        self._answered(packet_id, max((int(reason.value) for reason in reasons), default=0))

    def _on_publish(
        self, _client: Any, _data: Any, packet_id: int, reason: Any, _properties: Any
    ) -> None:
        self._answered(packet_id, int(reason.value))


@cache
def library() -> Callable[[BoundedSocket, BrokerSettings, str], Any]:
    """The library's client, over a socket that is connected already. Loads the library. Raises
    CONFIG if there is none.
    """
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    except ImportError:
        raise ShoalError(
            Kind.CONFIG, 'mqtt: no MQTT library is installed: pip install "shoal[mqtt]"'
        ) from None

    class DialledClient(Client):
        def __init__(
            self, dialled: BoundedSocket, settings: BrokerSettings, client_id: str
        ) -> None:
            five = settings.protocol == "5"
            super().__init__(
                CallbackAPIVersion.VERSION2,
                client_id,
                # MQTT 5: the first connection, and there is one, begins a session that ends with it
                clean_session=None if five else True,
                protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
                reconnect_on_failure=False,
            )
            if settings.username:
                self.username_pw_set(settings.username, settings.password or None)
            self.max_inflight_messages = LIMITS.mqtt_in_flight
            self._dialled = dialled

        def _create_socket(self) -> BoundedSocket:
            """The one private member of the library that is used: nothing public takes a socket
            that is connected. ``Session`` refuses any other socket, and the version is pinned.
            """
            return self._dialled

    return DialledClient


def _why_not(refusal: int | None, protocol: str, insecure: bool) -> ShoalError:
    """What to mend, from the reason code with which a broker let nobody in; None: it ended the
    connection instead.
    """
    if refusal in {_BAD_LOGIN, _NOT_AUTHORIZED}:
        return LoginRefused(
            Kind.UNAVAILABLE, "the MQTT broker refuses this username and password: check them"
        )
    if refusal in {_BAD_PROTOCOL, None}:
        spoken = f"the MQTT broker does not answer in MQTT {protocol}: "
        if insecure and refusal is None:
            spoken += "if its port speaks TLS, leave out insecure; or "
        return _unavailable(
            spoken + 'try again later, or set protocol to what it speaks, "5" or "3.1.1"'
        )
    return _unavailable("the MQTT broker lets nobody in now: try again later")


def _unavailable(text: str) -> ShoalError:
    return ShoalError(Kind.UNAVAILABLE, text)
