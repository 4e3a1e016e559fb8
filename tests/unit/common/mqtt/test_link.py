"""A link comes up, comes back and closes; whatever a broker sends, nothing of ours breaks."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shoal.errors import Kind, ShoalError
from shoal.mqtt.bounded_socket import BoundedSocket
from shoal.mqtt.link import Link
from shoal.mqtt.session import library
from shoal.mqtt.settings import BrokerSettings
from tests.worlds.mqtt.broker import Broker, Tap, kinds
from tests.worlds.mqtt.links import PATIENCE_S, Inbox, silent, until, up_again
from tests.worlds.mqtt.wire import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    Puppet,
    message,
    packet,
    packets,
)


@pytest.fixture(scope="module", params=kinds())
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(request.param) as running:
        yield running


# --- up -------------------------------------------------------------------------------------------


async def test_what_is_published_arrives_as_it_is(broker: Broker) -> None:
    inbox = Inbox()
    payloads = [
        bytes([number]) * size for number, size in enumerate((0, 1, 48, 512, 4096, 32_768, 300_000))
    ]
    async with Link(broker.settings, subscribe=[("a/+", 1)], on_message=inbox) as link:
        await link.connected(PATIENCE_S)
        assert link.up
        for payload in payloads:
            await link.publish("a/b", payload, timeout_s=PATIENCE_S)
        await link.publish("a/b", b"at most once", qos=0, timeout_s=PATIENCE_S)
        assert await inbox.until(8) == [
            ("a/b", payload) for payload in [*payloads, b"at most once"]
        ]


async def test_what_was_stored_comes_or_is_dropped(broker: Broker) -> None:
    """Planted: the retain flag not looked at -> the second link gets the message. Clearing it is
    publishing nothing.
    """
    async with Link(broker.settings) as writer:
        await writer.publish("stored/one", b"kept", retain=True, timeout_s=PATIENCE_S)
        for retained, expected in ((True, [b"kept", b"live"]), (False, [b"live"])):
            inbox = Inbox()
            async with Link(
                broker.settings, subscribe=[("stored/+", 1)], on_message=inbox, retained=retained
            ) as link:
                await link.connected(PATIENCE_S)
                await writer.publish("stored/two", b"live", timeout_s=PATIENCE_S)
                assert (
                    sorted(payload for _, payload in await inbox.until(len(expected))) == expected
                )
        await writer.publish("stored/one", b"", retain=True, timeout_s=PATIENCE_S)


async def test_many_publications_at_once_are_all_acknowledged(broker: Broker) -> None:
    """More than the broker takes at once. Planted: an acknowledgement noted for another packet -> a
    call hangs.
    """
    inbox = Inbox()
    async with Link(broker.settings, subscribe=[("m/+", 1)], on_message=inbox) as link:
        await asyncio.gather(
            *(link.publish(f"m/{n}", b"x" * 512, timeout_s=PATIENCE_S) for n in range(300))
        )
        assert {topic for topic, _ in await inbox.until(300)} == {f"m/{n}" for n in range(300)}


async def test_a_payload_that_is_too_large_is_dropped_and_counted(broker: Broker) -> None:
    """What comes after it arrives. Planted: no count, or a connection that ends -> this fails."""
    inbox = Inbox()
    async with Link(
        broker.settings, subscribe=[("o/+", 1)], on_message=inbox, most_bytes=512
    ) as link:
        await link.connected(PATIENCE_S)
        for size in (512, 513, 3_000_000, 512):
            await link.publish("o/x", bytes(size), timeout_s=PATIENCE_S)
        assert await inbox.until(2) == [("o/x", bytes(512))] * 2
        assert (link.oversize, link.up) == (2, True)


async def test_of_a_huge_packet_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer may announce 256 MiB. Planted: the bound of ``Session`` not given to its socket -> all
    of it is handed to the library, which keeps a packet until it is whole.
    """
    inbox, handed, read = Inbox(), 0, BoundedSocket.recv

    def watched(self: BoundedSocket, count: int) -> bytes:
        nonlocal handed
        data = read(self, count)
        handed += len(data)
        return data

    async with (
        Puppet() as puppet,
        Link(puppet.settings, subscribe=[("a", 0)], on_message=inbox, most_bytes=1024) as link,
    ):
        await link.connected(PATIENCE_S)
        monkeypatch.setattr(BoundedSocket, "recv", watched)
        puppet.send(message(b"a", bytes(40_000_000)) + message(b"a", b"after"))
        assert await inbox.until(1) == [("a", b"after")]
        assert (link.oversize, link.up) == (1, True)
        assert 1024 < handed <= 1024 + 64 * 1024 + 100


@pytest.mark.parametrize(
    ("topic", "qos"), [("", 1), ("a/+", 1), ("#", 1), ("x" * 65_536, 1), ("a", 3)]
)
async def test_what_mqtt_can_not_carry_is_invalid(broker: Broker, topic: str, qos: int) -> None:
    async with Link(broker.settings) as link:
        with pytest.raises(ShoalError) as caught:
            await link.publish(topic, b"", qos=qos, timeout_s=PATIENCE_S)
        assert caught.value.kind is Kind.INVALID
        assert link.up


# --- away and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds())
async def test_a_broker_that_was_killed_is_found_again(kind: str) -> None:
    """Subscriptions stand again, and whoever waits is told. Planted: subscribe once -> nothing
    arrives after the second start.
    """
    inbox, asked, ups = Inbox(), list[str](), list[int]()

    def filters() -> list[tuple[str, int]]:
        asked.append(f"f{len(asked)}")
        return [(asked[-1], 1)]

    async with (
        Broker(kind) as broker,
        Link(
            broker.settings, subscribe=filters, on_message=inbox, on_up=lambda: ups.append(1)
        ) as link,
    ):
        await link.connected(PATIENCE_S)
        for way, word in ((broker.kill, b"killed"), (broker.stop, b"stopped")):
            await way()
            with pytest.raises(ShoalError) as caught:
                await link.publish("x", b"", timeout_s=PATIENCE_S)
            assert caught.value.kind is Kind.UNAVAILABLE
            await broker.start()
            async with asyncio.timeout(PATIENCE_S):
                # amqtt, just started, may lose one that it acknowledged
                while word not in {payload for _, payload in inbox.messages}:
                    await up_again(link)
                    await link.publish(asked[-1], word, timeout_s=PATIENCE_S)
                    await asyncio.sleep(0.01)
        assert len({topic for topic, _ in inbox.messages} - {"f0"}) == 2
        assert len(ups) >= 3


async def test_client_ids_are_drawn_for_every_connection() -> None:
    """22 characters that MQTT 3.1.1 lets everybody use, and a session that ends with its
    connection.

    Planted: one id for the life of a link -> a broker could follow a device through its
    connections.
    """
    async with Broker(tls=False) as broker, Tap(broker.port) as tap:
        async with Link(tap.before(broker.settings)) as link:
            for _ in range(3):
                await up_again(link)
                tap.cut()
                async with asyncio.timeout(PATIENCE_S):
                    await until(lambda: not link.up)
        async with Link(tap.before(broker.settings), client_id="given") as link:
            await link.connected(PATIENCE_S)
        connects = [packets(bytes(wire.up))[0] for wire in tap.wires if wire.up]
    *drawn, given = [one.client_id for one in connects]
    assert given == "given"
    assert len(set(drawn)) == len(drawn) >= 3
    assert all(len(one) == 22 and one.isascii() and one.isalnum() for one in drawn)
    for one in connects:
        flags = one.body[2 + int.from_bytes(one.body[:2], "big") + 1]
        assert flags == 0x02  # clean; no will, no user name


# --- closing --------------------------------------------------------------------------------------


async def test_closing_ends_whoever_waits_and_says_goodbye() -> None:
    """Twice is fine, and then nothing is sent. Planted: a waiting call left alone -> this hangs; no
    DISCONNECT, or a connection that counts as ended when its task is cancelled -> the last line
    fails.
    """
    async with Puppet(puback=False) as puppet:
        link = Link(puppet.settings)
        with pytest.raises(ShoalError):
            await link.connected(1.0)  # nobody opened it
        link.open()
        sending = asyncio.create_task(link.publish("a", b"", timeout_s=600.0))
        await puppet.published.wait()
        await link.close()
        await link.close()
        for step in (sending, link.publish("a", b"", timeout_s=600.0), link.connected(600.0)):
            with pytest.raises(ShoalError) as caught:
                await step
            assert caught.value.kind is Kind.UNAVAILABLE
        await puppet.ended.wait()
        assert [one.kind for one in puppet.seen] == [CONNECT, PUBLISH, DISCONNECT]
    async with silent() as settings:
        for protected in (settings, replace(settings, insecure=False)):
            link = Link(protected)
            link.open()
            waiting = asyncio.create_task(link.connected(600.0))
            await until(lambda: bool(link._waiting))  # noqa: B023
            await link.close()
            with pytest.raises(ShoalError) as caught:
                await waiting
            assert "closed" in caught.value.message


@pytest.mark.parametrize("rounds", range(12))
async def test_closing_at_any_moment_leaves_nothing_behind(broker: Broker, rounds: int) -> None:
    """No task, no socket (an unclosed one is an error here). Planted: the socket not closed when
    TLS is cancelled -> a warning.
    """
    before = asyncio.all_tasks()
    link = Link(broker.settings, subscribe=[("a", 1)])
    link.open()
    for _ in range(2**rounds):
        await asyncio.sleep(0)
    await link.close()
    assert asyncio.all_tasks() == before


async def test_a_cancelled_caller_stays_cancelled() -> None:
    async with Puppet(puback=False) as puppet, Link(puppet.settings) as link:
        sending = asyncio.create_task(link.publish("a", b"", timeout_s=600.0))
        await puppet.published.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        puppet.puback = True
        await link.publish("a", b"", timeout_s=PATIENCE_S)


# --- whatever comes -------------------------------------------------------------------------------

GARBAGE = [
    b"\x00" * 64,
    b"\xff" * 64,
    packet(PUBLISH, b""),
    packet(PUBLISH, b"\xff\xff"),
    packet(PUBLISH, b"\x00\x05ab"),
    packet(PUBLISH, b"\x00\x01a" + b"x", flags=6),  # QoS 3
    packet(PUBLISH, b"\x00\x01a", flags=2),  # no packet id
    message(b"\xff\xfe", b"x"),  # no UTF-8
    message(b"", b"x"),
    packet(PUBACK, b"\x00\x63"),  # of nothing
    packet(PUBACK, b""),
    packet(SUBACK, b"\x00\x63\x01"),
    packet(SUBACK, b""),
    packet(CONNACK, b"\x00\x00"),  # again
    packet(CONNACK, b""),
    packet(15, b"x"),
    packet(0, b""),
    b"\x30\xff\xff\xff\xff\xff",  # a length of five bytes
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage[:8].hex())
async def test_whatever_a_broker_sends_the_link_works_on(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It may end the connection and make another; then messages come as before. Planted: a task
    that dies of it -> this hangs.
    """
    inbox = Inbox()
    async with (
        Puppet() as puppet,
        Link(puppet.settings, subscribe=[("a", 0)], on_message=inbox) as link,
    ):
        await link.connected(PATIENCE_S)
        puppet.send(garbage)
        async with asyncio.timeout(PATIENCE_S):
            while ("a", b"fine") not in inbox.messages:
                await up_again(link)
                puppet.send(message(b"a", b"fine"))
                await asyncio.sleep(0.01)
        await link.publish("b", b"", timeout_s=PATIENCE_S)
    assert [one.kind for one in puppet.seen[:2]] == [CONNECT, SUBSCRIBE]
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_handler_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The next message comes, in the same connection, and the log names the kind of failure
    alone.
    """
    inbox = Inbox()

    def handler(topic: str, payload: bytes) -> None:
        inbox(topic, payload)
        if payload == b"bad":
            raise ValueError("secret-word")

    async with (
        Puppet() as puppet,
        Link(puppet.settings, subscribe=[("a", 0)], on_message=handler) as link,
    ):
        await link.connected(PATIENCE_S)
        puppet.send(message(b"a", b"bad") + message(b"a", b"good"))
        assert [payload for _, payload in await inbox.until(2)] == [b"bad", b"good"]
        assert link.up
    assert [one.kind for one in puppet.seen].count(CONNECT) == 1
    assert "ValueError" in caplog.text
    assert "secret-word" not in caplog.text


async def test_whatever_raises_the_link_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    """Planted: a task that dies of what it does not expect -> this hangs."""
    times = 0

    def on_up() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise ValueError("secret-word")

    async with Puppet() as puppet, Link(puppet.settings, on_up=on_up) as link:
        await up_again(link)
        assert times == 3
    assert caplog.text.count("connection not kept") == 2
    assert "secret-word" not in caplog.text


async def test_without_a_library_the_first_use_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    library.cache_clear()
    with pytest.raises(ShoalError) as caught:
        Link(BrokerSettings("127.0.0.1", 1, insecure=True)).open()
    assert caught.value.kind is Kind.CONFIG
    assert 'pip install "shoal[mqtt]"' in caught.value.message


async def test_no_log_holds_an_address_a_topic_or_a_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the lowest level of every logger. Planted: ``enable_logger`` -> topics are in it;
    log.info(host=...) raises anyway.
    """
    library()
    caplog.set_level(logging.DEBUG)
    for name in ("mqtt", "paho", "shoal", "shoal.mqtt"):
        caplog.set_level(logging.DEBUG, logger=name)
    inbox = Inbox()
    async with Broker(username="user-word", password="pass-word") as broker:
        async with Link(broker.settings, subscribe=[("topic-word/+", 1)], on_message=inbox) as link:
            await asyncio.gather(
                *(
                    link.publish("topic-word/x", b"payload-word", timeout_s=PATIENCE_S)
                    for _ in range(30)
                )
            )
            await inbox.until(30)
            await broker.kill()
            with pytest.raises(ShoalError):
                await link.publish("topic-word/x", b"payload-word", timeout_s=PATIENCE_S)
        for word in (
            "user-word",
            "pass-word",
            "topic-word",
            "payload-word",
            "127.0.0.1",
            str(broker.port),
        ):
            assert word not in caplog.text
    assert "broker reached" in caplog.text
