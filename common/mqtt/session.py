"""One connection to a broker, from its socket to its end. The only module that knows the MQTT
library.

The library (aiomqtt over paho) packs and parses packets, keeps the connection alive and subscribes.
What it leaves open is done here: the socket comes connected (``dial``), a step under way ends when
its connection does, and a payload that is too large is thrown away while it arrives. The library's
own logger would write topics; it is silenced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from shoal.errors import Kind, ShoalError
from shoal.limits import KIB, LIMITS
from shoal.mqtt.dial import BufferedSocket
from shoal.mqtt.settings import BrokerSettings, LoginRefused

T = TypeVar("T")
ENDED = "the connection to the MQTT broker ended: send again"

_FAREWELL_S = 1.0  # seconds that saying goodbye may take
_TOPIC_ROOM = 64 * KIB  # bytes of a packet that are not payload
_REFUSED = 128  # reason codes from here on are refusals (MQTT 5 section 2.4)
_BAD_PROTOCOL, _BAD_LOGIN, _NOT_AUTHORIZED = 132, 134, 135  # MQTT 5 section 3.2.2.2
_silent = logging.Logger("shoal.mqtt.library")  # not in the tree of loggers: nobody configures it
_silent.disabled = True


class Message(Protocol):
    """What arrives. ``topic`` raises if it is no UTF-8; ``retain``: the broker had stored it."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def retain(self) -> bool: ...


class Session:
    """Started once, stopped once. ``lost`` is done when the connection has ended: wait for it by
    ``asyncio.wait``.

    Takes the socket, also if it raises. received: called on the event loop, must neither block nor
    raise. most_bytes: of a payload, no more than a little above it is kept. Raises CONFIG if no
    MQTT library is installed.
    """

    def __init__(
        self,
        plug: BufferedSocket,
        settings: BrokerSettings,
        client_id: str,
        received: Callable[[Message], None],
        most_bytes: int,
    ) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._plug, self._settings, self._most = plug, settings, most_bytes + _TOPIC_ROOM
        self._refusal: int | None = None  # the broker's reason code, if it did not let us in
        # packet id -> reason code of its acknowledgement
        self._pending: dict[int, asyncio.Future[int]] = {}
        try:
            self._client = library()(settings, client_id, plug)
        except BaseException:
            plug.close()
            raise
        self._paho = paho = self._client._client
        paho.on_connect, paho.on_disconnect, paho.on_publish = (
            self._on_connect,
            self._on_disconnect,
            self._on_publish,
        )
        paho.on_message = lambda _client, _data, message: received(message)
        self._client._disconnected.add_done_callback(self._on_broken)
        self._bound_packets()

    async def start(self) -> None:
        """Returns when the broker has let us in. Raises UNAVAILABLE."""
        from aiomqtt import MqttError

        self._paho.connect(self._settings.host, self._settings.port, LIMITS.mqtt_keepalive_s)
        # before the loop runs, that is before the password is written
        if self._paho.socket() is not self._plug:
            raise ShoalError(
                Kind.INTERNAL,
                "this version of the MQTT library connects by itself: install one that "
                "pyproject.toml names",
            )
        # it registers the socket in the next round of the loop: what follows may close it
        await asyncio.sleep(0)
        try:
            await self._unless_lost(self._client.__aenter__())
        except (MqttError, ShoalError):
            raise _why_not(
                self._refusal, self._settings.protocol, self._settings.insecure
            ) from None

    async def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Returns when the broker has granted all, each (filter, QoS). Raises UNAVAILABLE."""
        from aiomqtt import MqttError

        for topic, qos in filters:
            try:
                granted = await self._unless_lost(self._client.subscribe(topic, qos))
            except MqttError:
                raise _unavailable(ENDED) from None
            if any(_number(code) >= _REFUSED for code in granted):
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
        self._pending[sent.mid] = acknowledged = asyncio.get_running_loop().create_future()
        try:
            code = await acknowledged
        except asyncio.CancelledError:
            if recall:
                self._cut()
            raise
        finally:
            self._pending.pop(sent.mid, None)
        if code >= _REFUSED:
            raise _unavailable(
                "the MQTT broker refuses the message: check its access list, or try again later"
            )

    async def stop(self) -> None:
        """Say goodbye if there is somebody to say it to, then close whatever is open.
        Idempotent.
        """
        if self._paho.is_connected() and not self.lost.done():
            self._paho.disconnect()
            await asyncio.wait({self.lost}, timeout=_FAREWELL_S)
        self._paho._sock_close()
        self._plug.close()
        self._end()
        pulse: asyncio.Task[None] | None = self._client._misc_task
        if pulse is not None:
            pulse.cancel()
            await asyncio.wait({pulse})

    def _cut(self) -> None:
        """End the connection at once. What the library and the system still hold of it is thrown
        away, not sent.
        """
        self._plug.discard()
        self._paho._sock_close()
        self._end()

    async def _unless_lost(self, step: Coroutine[Any, Any, T]) -> T:
        """What the step returns or raises; UNAVAILABLE if the connection ends before."""
        task = asyncio.ensure_future(step)
        either: set[asyncio.Future[Any]] = {task, self.lost}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _unavailable(ENDED)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # seen: asyncio would complain of it

    def _bound_packets(self) -> None:
        """Keep no more of a packet than its topic and a payload that is just too large: a peer may
        send 256 MiB (MQTT 5 section 2.1.4).
        """
        read = self._paho._packet_read

        def bounded() -> Any:
            code = read()
            del self._paho._in_packet["packet"][self._most :]
            return code

        self._paho._packet_read = bounded

    def _on_connect(self, paho: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if _number(reason) >= _REFUSED:
            self._refusal = _number(reason)
        self._client._on_connect(paho, data, flags, reason, properties)
        told = self._client._connected
        if told.done() and not told.cancelled():
            # seen: a broker that refuses and hangs up at once leaves nobody to look, and asyncio
            # would complain
            told.exception()

    def _on_disconnect(
        self, paho: Any, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        self._end()

    def _on_broken(self, broken: asyncio.Future[None]) -> None:
        """The library raised while it read or wrote."""
        if not broken.cancelled():
            broken.exception()
        self._end()

    def _on_publish(
        self, paho: Any, data: Any, packet_id: int, reason: Any, properties: Any
    ) -> None:
        acknowledged = self._pending.get(packet_id)
        if acknowledged is not None and not acknowledged.done():
            acknowledged.set_result(_number(reason))

    def _end(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        for acknowledged in self._pending.values():
            if not acknowledged.done():
                acknowledged.set_exception(_unavailable(ENDED))


@cache
def library() -> Callable[[BrokerSettings, str, BufferedSocket], Any]:
    """The library's client, over a socket that is connected already. Loads the library. Raises
    CONFIG if there is none.
    """
    try:
        import aiomqtt
    except ImportError:
        raise ShoalError(
            Kind.CONFIG, 'mqtt: no MQTT library is installed: pip install "shoal[mqtt]"'
        ) from None

    class Dialled(aiomqtt.Client):
        def __init__(self, settings: BrokerSettings, client_id: str, plug: BufferedSocket) -> None:
            five = settings.protocol == "5"
            super().__init__(
                settings.host,
                settings.port,
                username=settings.username or None,
                password=settings.password or None,
                logger=_silent,
                identifier=client_id,
                protocol=aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311,
                clean_session=None
                if five
                else True,  # MQTT 5: the library's first connection begins a session that ends with it
                timeout=LIMITS.mqtt_connect_s,
                max_inflight_messages=LIMITS.mqtt_in_flight,
            )
            self._client._create_socket = lambda: plug  # type: ignore[method-assign, assignment, return-value]
            self._plug = plug

        def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:
            """As the base class does it, but turn by turn: that one reads for as long as anything
            comes.
            """
            # a turn is due, whatever the socket announces: one in each round of the loop
            waiting = False

            def announced() -> None:
                if not waiting:
                    read()

            def read() -> None:
                nonlocal waiting
                waiting = False
                self._plug.turn()
                # as the base class: whatever it was, the connection is broken
                try:
                    while True:
                        client.loop_read()
                        if client.socket() is None or not self._plug.pending():
                            return
                        if self._plug.turn_over:  # what is here already is announced by nobody
                            break
                except Exception as error:  # noqa: BLE001
                    if not self._disconnected.done():
                        self._disconnected.set_exception(error)
                else:
                    waiting = True
                    self._loop.call_soon(read)

            def pulse() -> None:
                self._misc_task = self._loop.create_task(self._misc_loop())

            self._loop.call_soon_threadsafe(self._loop.add_reader, sock.fileno(), announced)
            self._loop.call_soon_threadsafe(pulse)

        def _client_connect(self) -> None:
            """The base class calls this in a thread, for it may block. Nothing is left to do:
            ``Session.start`` has connected.
            """

    return Dialled


def _number(code: Any) -> int:
    """A reason code as a number, which the library sometimes wraps."""
    return int(getattr(code, "value", code))


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
