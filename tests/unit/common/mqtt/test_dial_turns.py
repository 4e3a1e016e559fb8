"""A peer that sends without a pause gets its turns, and no more than that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from shoal.mqtt import dial
from shoal.mqtt.dial import BufferedSocket
from shoal.mqtt.link import Link
from tests.worlds.broker import Broker


@pytest.fixture
def pair() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    yield BufferedSocket(near), far
    near.close()
    far.close()


def drain(plug: BufferedSocket) -> bytes:
    """As the MQTT library does: a byte, then more, until there is nothing to read."""
    data = b""
    try:
        while piece := plug.recv(1) + plug.recv(500):
            data += piece
    except BlockingIOError:
        return data
    return data


def test_a_turn_ends_and_nothing_is_lost(pair: tuple[BufferedSocket, socket.socket]) -> None:
    """Planted: no end of a turn -> all comes at once; bytes thrown away at its end -> the rest is
    missing: this fails.
    """
    plug, far = pair
    sent = bytes(range(256)) * 200
    far.sendall(sent)
    came = b""
    for _ in range(100):
        plug.turn()
        piece = b""
        try:
            while True:
                piece += plug.recv(100)
        except BlockingIOError:
            assert len(piece) < dial._TURN + 100
        came += piece
        if len(came) == len(sent):
            break
        assert plug.turn_over
        assert plug.pending()
    assert came == sent


def test_between_turns_there_is_nothing_to_read(pair: tuple[BufferedSocket, socket.socket]) -> None:
    plug, far = pair
    far.sendall(bytes(10 * dial._TURN))
    plug.turn()
    drain(plug)
    assert plug.turn_over
    with pytest.raises(BlockingIOError):
        plug.recv(1)
    plug.turn()
    assert plug.recv(1) == b"\x00"


async def test_a_flood_through_a_broker_leaves_the_loop_to_others() -> None:
    """Thousands of messages that are there at once: in one turn of the event loop only a few are
    handled, and all of them in the end.

    Planted: the library's own reading, for as long as anything comes -> hundreds in one turn, this
    fails. Planted: no further turn where the socket announces nothing -> messages are missing, this
    hangs.
    """
    count, came, most, last = 3_000, 0, 0, 0
    done = asyncio.Event()

    def arrived(topic: str, payload: bytes) -> None:
        nonlocal came
        came += 1
        if came == count:
            done.set()

    async def watch() -> None:
        nonlocal most, last
        while not done.is_set():
            most, last = max(most, came - last), came
            await asyncio.sleep(0)

    async with (
        Broker(tls=False) as broker,
        Link(broker.settings, subscribe=[("flood", 0)], on_message=arrived) as link,
        Link(broker.settings) as sender,
    ):
        await link.connected(60.0)
        await sender.connected(60.0)
        watching = asyncio.create_task(watch())
        async with asyncio.timeout(60):
            for _ in range(count):
                await sender.publish("flood", bytes(500), qos=0, timeout_s=60.0)
            await done.wait()
        await watching
    assert most <= 2 * (dial._TURN // 500 + 2)
