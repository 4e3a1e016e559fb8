"""How long a device's call may take: by what it carries."""

from __future__ import annotations

import pytest

from shoal.clients.transports import shuffler_channel
from shoal.clients.transports.shuffler_channel import ShufflerChannel
from shoal.limits import LIMITS
from tests.worlds.devices.clients import CA


@pytest.mark.parametrize(
    ("size", "back", "more_s"),
    [(0, 0, 0.0), (LIMITS.batch_bytes, 0, 256.0), (0, LIMITS.reply_bytes, 64.0)],
)
async def test_a_call_has_time_for_its_bytes(
    size: int, back: int, more_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second for every LIMITS.slowest_bytes_s, either way.

    Planted: one limit for every size -> a full batch never crosses a slow link."""
    seen: list[float] = []

    async def call(
        _channel: object, _method: str, _request: bytes, deadline_s: float, *, peer: str
    ) -> bytes:
        seen.append(deadline_s)
        return b""

    monkeypatch.setattr(shuffler_channel, "call", call)
    channel = ShufflerChannel("localhost:1", CA)
    try:
        await channel.call("/x/Y", bytes(size), 60.0, reply_bytes=back)
    finally:
        await channel.close()
    assert seen == [60.0 + more_s]
