"""What a feed is, and which ones a configuration asks for. A feed brings bytes; whoever is offered
them decides what they are worth.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shoal.entropy import SYSTEM, Entropy, uniform
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

if TYPE_CHECKING:
    from shoal.clients.config import AgentConfig

BundleListener = Callable[[bytes, str], None]
"""(a serialized TaskBundle, nothing of it verified; where it came from: "mqtt" or "shuffler").
Called on the event loop.

It raises a ShoalError if the bundle was not taken: kinds of ``shelf.FINAL`` end it, after others
the feed offers it again later.
"""

Pause = Callable[[str, Mapping[TaskId, frozenset[int]]], None]
"""(a shuffler's address; windows of its tasks in which it could not take an answer now, none named:
all). Called on the event loop.
"""


def unheard(_: str, __: Mapping[TaskId, frozenset[int]]) -> None:
    """A ``Pause`` for who answers nothing."""


SHUFFLER, MQTT = "shuffler", "mqtt"
_CA_BYTES = 1 << 20


class Feed(Protocol):
    """A source of bundles. Whatever is offered may be offered again."""

    @property
    def origin(self) -> str:
        """As ``BundleListener`` is told."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it brings nothing just now, in one line; None: it does."""
        ...

    async def once(self, deadline_s: float) -> None:
        """Everything that there is to have now, offered. Raises ShoalError (UNAVAILABLE, DEADLINE,
        ...) if it can't be had.
        """
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until ``stop`` is set. Outlives every failure; what is wrong stands in
        ``trouble``.
        """
        ...


def open_feeds(
    config: AgentConfig, offer: BundleListener, entropy: Entropy = SYSTEM, pause: Pause = unheard
) -> list[Feed]:
    """One feed per shuffler that is asked, and one for the broker. Loads only the libraries of
    those. Raises CONFIG, KEY_FILE.
    """
    feeds: list[Feed] = []
    if config.feeds.shufflers:
        from shoal.clients.feeds.grpc_feed import GrpcFeed

        for one in config.feeds.shufflers:
            ca = b"" if config.insecure else _authorities(one.ca)
            feeds.append(
                GrpcFeed(
                    one.address,
                    ca,
                    offer,
                    pause=pause,
                    every_s=config.feeds.every_s,
                    insecure=config.insecure,
                    entropy=entropy,
                )
            )
    if config.feeds.mqtt:
        from shoal.clients.feeds.mqtt_feed import MqttFeed

        if config.mqtt is None:
            raise ShoalError(Kind.CONFIG, "feeds.mqtt: name the broker under [mqtt] too")
        feeds.append(MqttFeed(config.mqtt, offer, every_s=config.feeds.every_s, entropy=entropy))
    return feeds


def _authorities(path: Path | None) -> bytes:
    """PEM of a file, or of what this machine trusts. Raises CONFIG."""
    import ssl  # where it looks for authorities by itself

    paths = ssl.get_default_verify_paths()
    standard = (paths.cafile, paths.openssl_cafile, "/etc/ssl/certs/ca-certificates.crt")
    tried = [path] if path is not None else [Path(name) for name in standard if name is not None]
    for one in tried:
        with contextlib.suppress(OSError), one.open("rb") as file:
            data = file.read(_CA_BYTES + 1)
            if len(data) <= _CA_BYTES:
                return data
    what = "this machine's certificate authorities" if path is None else path.name
    raise ShoalError(
        Kind.CONFIG,
        f"feeds.shuffler.ca: cannot read {what}: name a PEM file with the authority of the "
        "shuffler's certificate",
    )


def jittered(every_s: float, entropy: Entropy) -> float:
    """Seconds, uniform between half of ``every_s`` and one and a half: devices that began together
    don't ask together.
    """
    return every_s * (0.5 + uniform(entropy))


async def waited(stop: asyncio.Event, seconds: float) -> bool:
    """Whether ``stop`` was set within that time."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    return stop.is_set()
