"""A frame that was given up before the broker took it never leaves: not when the broker wakes up,
not when the network comes back.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt import dial as dial_module
from shoal.mqtt import link as link_module
from shoal.mqtt.settings import BrokerSettings
from tests.unit.clients.transports.test_mqtt_transport import (
    PATIENCE_S,
    SHORT_S,
    failure,
    new_key,
    reports,
)
from tests.worlds.devices.clients import make_world
from tests.worlds.mqtt.wire import CONNACK, PUBACK, PUBLISH, SUBACK, Puppet, packet


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        link_module, "LIMITS", replace(LIMITS, mqtt_retry_first_s=0.01, mqtt_retry_most_s=0.02)
    )


def frames_of(puppet: Puppet) -> list[bytes]:
    return [one.payload(five=False) for one in puppet.seen if one.kind == PUBLISH]


def acknowledgements(puppet: Puppet) -> bytes:
    """Of everything that was published so far."""
    found = b""
    for one in puppet.seen:
        if one.kind == PUBLISH:
            at = 2 + int.from_bytes(one.body[:2], "big")
            found += packet(PUBACK, one.body[at : at + 2])
    return found


async def drained(peer: socket.socket, arrived: bytearray) -> None:
    while data := await asyncio.get_running_loop().sock_recv(peer, 65_536):
        arrived += data


async def test_a_broker_that_holds_its_acknowledgements_back_gets_no_frame_that_was_withdrawn() -> (
    None
):
    """The library keeps more than LIMITS.mqtt_in_flight frames to itself until earlier ones are
    acknowledged.

    Planted: the connection not ended (``recall`` left out) -> the last frame leaves after its call
    was cancelled.
    """
    many = LIMITS.mqtt_in_flight
    *earlier, last = reports(make_world(), many + 1)
    async with Puppet(puback=False) as puppet:
        transport = MqttTransport(puppet.settings, new_key(), SYSTEM)
        calls = [
            asyncio.create_task(transport.submit(one.frame, one.ack_key, PATIENCE_S))
            for one in earlier
        ]
        async with asyncio.timeout(PATIENCE_S):
            while len(frames_of(puppet)) < many:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        calls.append(asyncio.create_task(transport.submit(last.frame, last.ack_key, PATIENCE_S)))
        await asyncio.sleep(SHORT_S)
        assert last.frame not in frames_of(puppet)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        puppet.send(acknowledgements(puppet))
        await asyncio.sleep(SHORT_S)
        assert last.frame not in frames_of(puppet)
        await transport.close()
        await asyncio.sleep(SHORT_S)
        assert last.frame not in frames_of(puppet)


async def test_a_frame_whose_time_is_over_does_not_leave_later() -> None:
    """Planted: as above. The transport goes on with the next frame, over the next connection."""
    many = LIMITS.mqtt_in_flight
    *earlier, last, fresh = reports(make_world(), many + 2)
    async with Puppet(puback=False) as puppet:
        transport = MqttTransport(puppet.settings, new_key(), SYSTEM)
        calls = [
            asyncio.create_task(transport.submit(one.frame, one.ack_key, 2 * SHORT_S))
            for one in earlier
        ]
        async with asyncio.timeout(PATIENCE_S):
            while len(frames_of(puppet)) < many:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert (await failure(transport, last)).kind in {Kind.DEADLINE, Kind.UNAVAILABLE}
        await asyncio.gather(*calls, return_exceptions=True)
        puppet.send(acknowledgements(puppet))
        puppet.puback = True
        next_call = asyncio.create_task(transport.submit(fresh.frame, fresh.ack_key, PATIENCE_S))
        async with asyncio.timeout(PATIENCE_S):
            while fresh.frame not in frames_of(puppet):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert last.frame not in frames_of(puppet)
        next_call.cancel()
        await asyncio.gather(next_call, return_exceptions=True)
        await transport.close()


async def test_what_the_system_holds_for_a_broker_that_does_not_read_is_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker, or a network, that stands still: the frames lie in the buffers of the system and of
    the library.

    Planted: the socket closed without ``discard`` -> the bytes arrive when the broker reads again.
    """
    real = dial_module._connect

    async def narrow(settings: BrokerSettings) -> socket.socket:
        raw = await real(settings)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return raw

    monkeypatch.setattr(dial_module, "_connect", narrow)
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        settings = BrokerSettings(
            "127.0.0.1", listener.getsockname()[1], protocol="3.1.1", insecure=True
        )
        transport = MqttTransport(settings, new_key(), SYSTEM)
        sent = reports(make_world(), LIMITS.mqtt_in_flight)
        calls = [
            asyncio.create_task(transport.submit(one.frame, one.ack_key, PATIENCE_S))
            for one in sent
        ]
        peer, _ = await loop.sock_accept(listener)
        with peer:
            peer.setblocking(False)
            await loop.sock_recv(peer, 65_536)
            await loop.sock_sendall(peer, packet(CONNACK, b"\0\0"))
            subscribe = await loop.sock_recv(peer, 65_536)
            await loop.sock_sendall(peer, packet(SUBACK, subscribe[2:4] + b"\x01"))
            await asyncio.sleep(SHORT_S)  # more frames than the buffers hold; nothing is read
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            arrived = bytearray()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(drained(peer, arrived), PATIENCE_S)
            assert sent[-1].frame not in arrived
        await transport.close()


async def test_the_frames_of_others_are_sent_again() -> None:
    """One call is cancelled, the other goes on over the next connection."""
    first, second = reports(make_world(), 2)
    async with Puppet(puback=False) as puppet:
        transport = MqttTransport(puppet.settings, new_key(), SYSTEM)
        calls = [
            asyncio.create_task(transport.submit(one.frame, one.ack_key, PATIENCE_S))
            for one in (first, second)
        ]
        async with asyncio.timeout(PATIENCE_S):
            while len(frames_of(puppet)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            calls[0].cancel()
            while frames_of(puppet).count(second.frame) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert frames_of(puppet).count(first.frame) == 1
        await transport.close()
        with pytest.raises(ShoalError) as caught:
            await calls[1]
        assert caught.value.kind is Kind.UNAVAILABLE
