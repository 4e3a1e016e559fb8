"""One connection to a broker that comes back by itself. The only module that knows the MQTT library.

Nothing here logs an address, a topic or a payload, and the library's own logger is silenced: it would write topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from shoal.entropy import SYSTEM, Entropy
from shoal.limits import LIMITS
from shoal.mqtt.settings import BrokerSettings

Subscriptions = Sequence[tuple[str, int]]  # (topic filter, QoS)


class Link:
    """``async with Link(settings, ...) as link``: starts a task that connects and reconnects; entering does not wait.

    subscribe: filters with their QoS, or a function that is asked for them before every connection. on_message(topic, payload): called on
    the event loop, must not block. on_up(): called once the subscriptions of a new connection stand. retained: False drops messages that
    the broker had stored. most_bytes: larger payloads are dropped and counted in ``oversize``. client_id: drawn anew for every connection
    unless given.
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
        self.oversize = 0

    @property
    def up(self) -> bool:
        """Connected, and subscribed to everything."""
        raise NotImplementedError

    async def __aenter__(self) -> Link:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect. Idempotent; calls under way end with UNAVAILABLE."""
        raise NotImplementedError

    async def connected(self, timeout_s: float) -> None:
        """Return once the link is up. Raises UNAVAILABLE, saying why, as soon as an attempt fails and at the latest after the time."""
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, timeout_s: float) -> None:
        """Returns when the broker has acknowledged it (QoS 1) or when it has been written (QoS 0).

        Waits for the connection first. Raises UNAVAILABLE if the connection ends before or the broker refuses it, DEADLINE after the time;
        in both cases it may have been delivered.
        """
        raise NotImplementedError
