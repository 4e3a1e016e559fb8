"""One connection to a broker that comes back by itself.

Nothing here logs an address, a topic or a payload.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType

from shoal.clocks.backoff import Backoff
from shoal.entropy import SYSTEM, Entropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.mqtt.dial import PLAIN, dial
from shoal.mqtt.session import ENDED, Message, Session, library
from shoal.mqtt.settings import BrokerSettings

Subscriptions = Sequence[tuple[str, int]]  # (topic filter, QoS)

_CLOSED = "this connection to the MQTT broker is closed: open another"
# MQTT 3.1.1 section 3.1.3.1
_ID_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ID_SIZE = 22  # of them: about 131 bits
_log = get_log("mqtt")


class Link:
    """``async with Link(settings, ...) as link``: starts a task that connects and reconnects;
    entering does not wait.

    subscribe: filters with their QoS, or a function that is asked for them before every connection.
    on_message(topic, payload): called on the event loop, must not block. on_up(): called once the
    subscriptions of a new connection stand. retained: False drops messages that the broker had
    stored. most_bytes: larger payloads are dropped and counted in ``oversize``. client_id: drawn
    anew for every connection unless given. ``problem``: why the last attempt failed; None while the
    link is up. Entering raises CONFIG if no MQTT library is there.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        subscribe: Subscriptions | Callable[[], Subscriptions] = (),
        on_message: Callable[[str, bytes], None] | None = None,
        on_up: Callable[[], None] | None = None,
        entropy: Entropy = SYSTEM,
        client_id: str | None = None,
        retained: bool = True,
        most_bytes: int = LIMITS.bundle_bytes,
    ) -> None:
        self._settings, self._subscribe, self._entropy, self._client_id = (
            settings,
            subscribe,
            entropy,
            client_id,
        )
        self._on_message, self._on_up, self._retained, self._most = (
            on_message,
            on_up,
            retained,
            most_bytes,
        )
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came
        self._closed = False
        self.oversize = 0
        self.problem: ShoalError | None = None

    @property
    def up(self) -> bool:
        """Connected, and subscribed to everything."""
        return self._session is not None and not self._session.lost.done()

    async def __aenter__(self) -> Link:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def open(self) -> None:
        """Start connecting, on the running event loop. Raises CONFIG if no MQTT library is
        installed. Idempotent.
        """
        if self._task is None and not self._closed:
            library()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Disconnect. Idempotent; calls under way end with UNAVAILABLE."""
        self._closed = True
        self._tell(_unavailable(_CLOSED))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def connected(self, timeout_s: float) -> None:
        """Return once the link is up. Raises UNAVAILABLE, saying why, as soon as an attempt fails
        and at the latest after the time; as ``Untrusted`` or ``LoginRefused`` where no later
        attempt fares better.
        """
        if self._closed or self._task is None:
            raise _unavailable(_CLOSED)
        if self.up:
            return
        told = asyncio.get_running_loop().create_future()
        self._waiting[told] = None
        try:
            async with asyncio.timeout(timeout_s):
                await told
        except TimeoutError:
            raise self.problem or _unavailable(
                "the MQTT broker did not answer in time: try again later"
            ) from None
        finally:
            self._waiting.pop(told, None)

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        timeout_s: float,
        recall: bool = False,
    ) -> None:
        """Returns when the broker has acknowledged it (QoS 1) or when it has been written (QoS 0).

        Waits for the connection first. Raises UNAVAILABLE if the connection ends before or the
        broker refuses it, DEADLINE after the time; in both cases it may have been delivered. Raises
        INVALID for a topic or a payload that MQTT can't carry.

        ``recall``: what has not left when this call is cancelled, or its time is over, never will:
        the connection is ended, and comes back. Without it the message goes on waiting in the
        connection, and leaves whenever the broker takes it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        await self.connected(timeout_s)
        if self._session is None:
            raise _unavailable(ENDED)  # it came, and went before this call was resumed
        try:
            async with asyncio.timeout_at(until):
                await self._session.publish(topic, payload, qos, retain, recall)
        except TimeoutError:
            raise ShoalError(
                Kind.DEADLINE,
                "the MQTT broker did not acknowledge in time: send again with a longer deadline",
            ) from None

    async def _run(self) -> None:
        attempt = 0
        loop = asyncio.get_running_loop()
        backoff = Backoff(LIMITS.mqtt_retry_first_s, LIMITS.mqtt_retry_most_s)
        while True:
            began = loop.time()
            # whatever it was, ours or the library's: the next attempt may fare better
            try:
                await self._once()
                # no attempt failed: whoever waits waits for the next
                self._report(_unavailable(ENDED))
            except ShoalError as error:
                self._report(error)
                self._tell(error)
            except Exception as error:  # noqa: BLE001
                _log.error("connection not kept", error=error)
                self._tell(
                    _unavailable("the connection to the MQTT broker failed: try again later")
                )
            # A broker that takes connections only to end them is no better than one that refuses
            # them.
            attempt = 1 if loop.time() - began > LIMITS.mqtt_retry_most_s else attempt + 1
            await asyncio.sleep(backoff.pause(attempt, self._entropy))

    async def _once(self) -> None:
        """One connection, from its socket to its end. Raises UNAVAILABLE if it does not come up.
        Leaves nothing open, cancelled or not.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(LIMITS.mqtt_connect_s):
                    name = self._client_id or _new_id(self._entropy)
                    session = Session(
                        await dial(self._settings), self._settings, name, self._received, self._most
                    )
                    stack.push_async_callback(session.stop)
                    await session.start()
                    await session.subscribe(
                        self._subscribe() if callable(self._subscribe) else self._subscribe
                    )
            except TimeoutError:
                speaks = (
                    "speaks no TLS (if it does, leave out insecure)"
                    if self._settings.insecure
                    else f"speaks TLS{PLAIN}"
                )
                raise _unavailable(
                    f"the MQTT broker did not answer within {LIMITS.mqtt_connect_s:g} s: try again "
                    f"later, or check that its port {speaks}"
                ) from None
            stack.callback(self._came_down)
            self._session, self.problem = session, None
            _log.info("broker reached")
            if self._on_up is not None:
                self._on_up()
            self._tell(None)
            # awaited itself, it would be cancelled with this task
            await asyncio.wait({session.lost})

    def _came_down(self) -> None:
        self._session = None

    def _report(self, error: ShoalError) -> None:
        if self.problem is None or self.problem.message != error.message:
            # a line per change, not per attempt
            _log.warning("broker not reached", reason=error.message)
        self.problem = error

    def _tell(self, error: ShoalError | None) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None) if error is None else told.set_exception(
                    type(error)(error.kind, error.message)
                )

    def _received(self, message: Message) -> None:
        if self._on_message is None or (message.retain and not self._retained):
            return
        if len(message.payload) > self._most:
            self.oversize += 1
            return
        # a bug in one handler must not end the connection of all
        try:
            self._on_message(message.topic, bytes(message.payload))
        except Exception as error:  # noqa: BLE001
            _log.error("message not handled", error=error)


def _new_id(entropy: Entropy) -> str:
    return "".join(
        _ID_CHARACTERS[uniform_below(len(_ID_CHARACTERS), entropy)] for _ in range(_ID_SIZE)
    )


def _unavailable(text: str) -> ShoalError:
    return ShoalError(Kind.UNAVAILABLE, text)
