"""Connections over long links, many at once, and to those who never answer: what a caller gets, and
what it is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from shoal.crypto.tlscerts import make_authority
from shoal.errors import Kind
from shoal.limits import LIMITS
from shoal.rpc import channel as channel_module
from shoal.rpc.call import Call
from shoal.rpc.channel import call
from shoal.rpc.server import Method
from shoal.rpc.status import Unnamed
from tests.sizes import size
from tests.unit.common.rpc.world import connected, path, served
from tests.worlds.slow_link import SlowLink

FAR_S = size(400, 2_000) / 1000


@asynccontextmanager
async def behind(address: str, link: SlowLink) -> AsyncIterator[str]:
    """The address of a link to the server at ``address``."""
    link.target = int(address.rpartition(":")[2])
    async with link.open():
        yield f"127.0.0.1:{link.port}"


async def refusal(address: str, deadline_s: float = 30.0, ca: bytes | None = None) -> Unnamed:
    async with connected(address, ca=ca) as channel:
        with pytest.raises(Unnamed) as caught:
            await call(channel, path(), b"", deadline_s, peer="analyzer")
    return caught.value


@pytest.mark.parametrize("loss", [0.0, 0.2])
async def test_a_far_service_is_reached(loss: float) -> None:
    """Over links of several round trips and losses, each by a connection of its own.

    Planted: an attempt to connect that ends after 200 ms (gRPC's min_reconnect_backoff) -> all but
    the nearest can't be reached.
    """

    async def one(address: str, rtt_s: float) -> bytes:
        async with (
            behind(address, SlowLink(0, rtt_s, loss, seed=3)) as far,
            connected(far) as channel,
        ):
            return await call(channel, path(), b"hello", LIMITS.send_deadline_s)

    async with served() as address:
        assert (
            await asyncio.gather(*(one(address, rtt_s) for rtt_s in (0.0, 0.1, 0.2, FAR_S)))
            == [b"hello"] * 4
        )


async def test_hundreds_connect_at_once_and_none_is_turned_away() -> None:
    """Planted: the same 200 ms -> dozens of connections that only waited for their turn are said to
    be impossible.
    """

    async def one(address: str) -> bytes:
        async with connected(address) as channel:
            return await call(channel, path(), b"hello", 300.0)

    async with served() as address:
        answers = await asyncio.gather(*(one(address) for _ in range(300)), return_exceptions=True)
    assert [answer for answer in answers if answer != b"hello"] == []


async def test_who_takes_a_connection_and_never_answers_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half-open: the attempt ends at its bound, as UNAVAILABLE, or the call before it at its own
    deadline.
    """
    async with served() as address, behind(address, SlowLink(0, dead=True)) as far:
        late = await refusal(far, deadline_s=0.2)
        assert late.kind is Kind.DEADLINE
        monkeypatch.setattr(channel_module, "LIMITS", replace(LIMITS, connect_s=0.2))
        never = await refusal(far)
        assert never.kind is Kind.UNAVAILABLE
        assert f"{LIMITS.connect_s:g} s" in never.message


async def test_a_peer_that_vanishes_in_the_middle_of_a_call_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its network ends without a word: the call ends when a question stays without an answer, long
    before its deadline.

    Planted: no keepalive at the caller -> this waits for an hour.
    """
    monkeypatch.setattr(
        channel_module, "LIMITS", replace(LIMITS, keepalive_s=0.2, keepalive_timeout_s=0.2)
    )
    arrived = asyncio.Event()

    async def hang(request: bytes, call: Call) -> bytes:
        arrived.set()
        await asyncio.Event().wait()
        return b""

    link = SlowLink(0)
    async with served({"Echo": Method(10, hang)}) as address, behind(address, link) as far:
        ended = asyncio.create_task(refusal(far, deadline_s=3_600.0))
        await arrived.wait()
        link.frozen = True
        assert (await ended).kind is Kind.UNAVAILABLE


async def test_why_nobody_is_reached_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cause has its own advice, and no text of the library, which names addresses, is in any.

    Planted: one sentence for all -> this fails."""
    nobody = make_authority("another authority").cert_pem
    monkeypatch.setattr(channel_module, "LIMITS", replace(LIMITS, connect_s=0.2))
    async with served() as address:
        found = {
            "certificate": await refusal(address, ca=nobody),
            "name": await refusal(f"localhost:{address.rpartition(':')[2]}"),
        }
        async with behind(address, SlowLink(0, cut_first=99)) as far:
            found["cut"] = await refusal(far)
        async with behind(address, SlowLink(0, dead=True)) as far:
            found["late"] = await refusal(far)
        found["unresolved"] = await refusal("nobody.invalid:443")
    found["refused"] = await refusal(address)
    assert {error.kind for error in found.values()} == {Kind.UNAVAILABLE}
    assert len({error.message for error in found.values()}) == len(found)
    for error in found.values():
        assert error.message.startswith("the analyzer can't be reached: ")
        assert "127.0.0.1" not in error.message
        assert "invalid" not in error.message
    assert "port" in found["refused"].message
    assert "CA" in found["certificate"].message
