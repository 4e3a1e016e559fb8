"""How a frame reaches the shuffler: one method to implement, one conformance suite to inherit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.errors import ShoalError
from shoal.task import Task


class Undated(ShoalError):  # noqa: N818 - it is a ShoalError that says a little more
    """A refusal by the shuffler, over a way whose keeper can hold back, repeat and reorder what it
    carries.

    It answers one delivery of the frame. Another, which the keeper may have made by itself, may
    have been stored: of no attempt over such a way it is known that it left nothing behind.
    """


class Transport(Protocol):
    """A way to one shuffler. Opened lazily: making one never fails because nobody answers."""

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        """Send one frame; the reply's MAC once the shuffler says that the report is on its disk.

        ``ack_key``: of this frame. A transport over a channel that nobody vouches for finds out
        with it what a reply means, and whether the shuffler made it; it is never sent. Who calls
        verifies the MAC again.

        Raises ShoalError: a refusal's kind only if the shuffler itself named it, otherwise a kind
        after which the same bytes may be sent again (UNAVAILABLE, DEADLINE, OVERLOADED, INTERNAL).
        ``Undated``: see there.
        """
        ...

    async def close(self) -> None:
        """Idempotent; calls under way end with UNAVAILABLE."""
        ...


TransportFactory = Callable[[Task, bool], Transport]
"""(a task; whether its shuffler may be reached without TLS, on loopback)."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One frame's answer in a batch. ``status``: 0, or the number of a failure kind; ``mac`` empty
    if the frame did not open.
    """

    status: int
    mac: bytes


class BatchTransport(Transport, Protocol):
    """A transport that also takes many frames in one call: for relays and simulators."""

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        """Send many frames in one call, for a relay: one receipt per frame, in order. Raises like
        ``submit``.
        """
        ...
