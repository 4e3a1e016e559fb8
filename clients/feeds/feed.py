"""What a feed is. A feed brings bytes; whoever is offered them decides what they are worth."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from shoal.entropy import Entropy, uniform
from shoal.ids import TaskId

BundleListener = Callable[[bytes, str], None]
"""(a serialized TaskBundle, nothing of it verified; where it came from: "mqtt" or "shuffler").
Called on the event loop.

It raises a ShoalError if the bundle was not taken: kinds of ``task_store.FINAL`` end it, after
others the feed offers it again later.
"""

Pause = Callable[[str, Mapping[TaskId, frozenset[int]]], None]
"""(a shuffler's address; windows of its tasks in which it could not take an answer now, none named:
all). Called on the event loop.
"""


def unheard(_: str, __: Mapping[TaskId, frozenset[int]]) -> None:
    """A ``Pause`` for who answers nothing."""


Told = Callable[[bytes], object]
"""(a serialized SignedDiscoveryStep, nothing of it verified): what a window of a discovery asks.
Called on the event loop. Raises as a ``BundleListener``.
"""


def untold(_: bytes) -> None:
    """A ``Told`` for who answers nothing."""


SHUFFLER, MQTT = "shuffler", "mqtt"


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
