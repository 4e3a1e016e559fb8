"""A peer that sends without a pause gets its turns and no more; of a packet that is too large only
the beginning is handed over.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterator

import pytest

from shoal.mqtt import bounded_socket
from shoal.mqtt.bounded_socket import BoundedSocket
from shoal.mqtt.link import Link
from tests.worlds.mqtt.broker import Broker
from tests.worlds.mqtt.wire import PINGRESP, PUBLISH, Packet, packet, packets

MOST = 300  # more than one byte of length says, as are the packets below


@pytest.fixture
def pair() -> Iterator[tuple[BoundedSocket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    yield BoundedSocket(near, MOST), far
    near.close()
    far.close()


def drain(plug: BoundedSocket, count: int = 500) -> bytes:
    """As the MQTT library does: a byte, then more, until there is nothing to read."""
    data = b""
    try:
        while (piece := plug.recv(1)) or plug.pending():
            data += piece
            data += plug.recv(count)
    except BlockingIOError:
        pass
    return data


def test_a_turn_ends_and_nothing_is_lost(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """Planted: no end of a turn -> all comes at once; bytes thrown away at its end -> the rest is
    missing: this fails.
    """
    plug, far = pair
    sent = packet(PUBLISH, bytes(range(256))) * 200
    far.sendall(sent)
    came = b""
    for _ in range(100):
        plug.turn()
        piece = drain(plug, 100)
        assert len(piece) < bounded_socket._TURN + 100
        came += piece
        if len(came) == len(sent):
            break
        assert plug.turn_over
        assert plug.pending()
    assert came == sent


def test_between_turns_there_is_nothing_to_read(pair: tuple[BoundedSocket, socket.socket]) -> None:
    plug, far = pair
    far.sendall(packet(PUBLISH, bytes(250)) * 160)
    plug.turn()
    drain(plug)
    assert plug.turn_over
    with pytest.raises(BlockingIOError):
        plug.recv(1)
    plug.turn()
    assert len(plug.recv(1)) == 1


def test_throwing_away_takes_turns_too(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """Planted: what is thrown away counts for nothing -> all of it goes in one turn."""
    plug, far = pair
    far.sendall(packet(PUBLISH, bytes(150_000)))
    turns = 0
    while plug._surplus or not turns:
        plug.turn()
        drain(plug)
        turns += 1
    assert turns >= 3


def test_a_packet_is_cut_however_it_arrives(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """Sequences of packets of all sizes, in pieces of all sizes: what is handed over is each
    packet, or its first ``MOST`` bytes as a packet.

    Planted: the length that was announced handed on, the bound off by one, or a surplus that eats
    the next packet -> this fails.
    """
    plug, far = pair
    draw = random.Random(1)  # noqa: S311 - sizes in a test
    sizes = [0, 1, 127, 128, MOST - 1, MOST, MOST + 1, 16_383, 16_384, 40_000, 2_100_000]
    steps: list[Callable[[], int]] = [lambda: draw.randrange(1, 9), lambda: 3_000, lambda: 60_000]
    for step in steps:
        chosen = [size for size in sizes if size < 20_000 or step() > 1_000]
        sent = [
            Packet(draw.choice((PUBLISH, PINGRESP)), draw.randrange(16), draw.randbytes(size))
            for size in draw.sample(chosen, len(chosen))
        ]
        stream = b"".join(packet(one.kind, one.body, one.flags) for one in sent)
        came = fed(plug, far, stream, step)
        assert [(one.kind, one.flags, one.body) for one in packets(came)] == [
            (one.kind, one.flags, one.body[:MOST]) for one in sent
        ]
        assert plug.pending() == 0


def fed(plug: BoundedSocket, far: socket.socket, stream: bytes, step: Callable[[], int]) -> bytes:
    came, at = b"", 0
    while at < len(stream):
        piece = stream[at : at + step()]
        at += len(piece)
        far.sendall(piece)
        more = True
        while more:
            plug.turn()
            came += drain(plug)
            more = plug.turn_over
    return came


@pytest.mark.parametrize(
    "header", [b"\x00\x00", b"\x0f\x05", b"\x30\xff\xff\xff\xff", b"\x30\x80\x80\x80\x80"]
)
def test_what_is_no_header_of_mqtt_is_never_handed_over(
    pair: tuple[BoundedSocket, socket.socket], header: bytes
) -> None:
    """The library takes a kind of 0 for "no packet yet": what follows would be read with two
    framings. Planted: one of the two conditions gone -> bytes are handed over, and this fails.
    """
    plug, far = pair
    far.sendall(header + b"\x30\x01a")
    with pytest.raises(ConnectionAbortedError):
        plug.recv(1)


def test_the_end_is_the_end_wherever_it_comes(pair: tuple[BoundedSocket, socket.socket]) -> None:
    plug, far = pair
    far.sendall(packet(PUBLISH, bytes(2 * MOST), claimed=100_000))
    far.shutdown(socket.SHUT_WR)
    plug.turn()
    came = b""
    while piece := plug.recv(1_000):
        came += piece
    assert came == packet(PUBLISH, bytes(MOST))
    assert plug.recv(1) == b""


async def test_a_flood_through_a_broker_leaves_the_loop_to_others() -> None:
    """Thousands of messages that are there at once: in one turn of the event loop only a few are
    handled, and all of them in the end.

    Planted: the library's own reading, for as long as anything comes -> hundreds in one turn, this
    fails.
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
    assert most <= 2 * (bounded_socket._TURN // 500 + 2)
