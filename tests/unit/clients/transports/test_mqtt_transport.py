"""Frames through a broker that may do whatever it likes: what is believed, what is waited for, and
what the broker gets to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shoal.clients.core import Action, ReportState, SealedReport, judge
from shoal.clients.drawing import prepare
from shoal.clients.memory.outbox import MemoryOutbox
from shoal.clients.reports.delivery import attempt
from shoal.clients.transports import mqtt_transport as module
from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.clients.transports.transport import Transport
from shoal.crypto.brokered import make_reply
from shoal.crypto.envelope import verify_receipt
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import make_authority
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt import link as link_module
from shoal.mqtt.topics import down_topic
from tests.flipped import last_bit_flipped
from tests.unit.clients.test_core import assignment_of
from tests.worlds.devices.clients import DirectTransport, FarEnd, World, make_world
from tests.worlds.mqtt.bridge import Answers, Bridge, honest
from tests.worlds.mqtt.broker import Broker, Tap, kinds
from tests.worlds.mqtt.wire import (
    Packet,
    Puppet,
    message,
    packets,
)

PATIENCE_S = 30.0  # only a failing test waits that long
SHORT_S = 0.3  # where nothing is to come


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=False) as running:
        yield running


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        link_module, "LIMITS", replace(LIMITS, mqtt_retry_first_s=0.01, mqtt_retry_most_s=0.02)
    )


def new_key() -> bytes:
    return SigningKey.generate().public


def reports(world: World, count: int) -> list[SealedReport]:
    assignment = assignment_of(world)
    return [prepare(assignment, 0, value % 10) for value in range(count)]


async def submitted(link: Transport, one: SealedReport, deadline_s: float = PATIENCE_S) -> None:
    verify_receipt(one.ack_key, 0, one.frame, await link.submit(one.frame, one.ack_key, deadline_s))


async def up(transport: MqttTransport) -> None:
    """Connected, however slow the machine is: a short deadline is then the reply's alone."""
    await transport._current().link.connected(PATIENCE_S)


async def failure(link: Transport, one: SealedReport, deadline_s: float = SHORT_S) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        await link.submit(one.frame, one.ack_key, deadline_s)
    assert len(caught.value.message.splitlines()) == 1
    return caught.value


# --- what is believed -----------------------------------------------------------------------------

# (the report under way, another report) -> a reply
Forger = Callable[[SealedReport, SealedReport], bytes]
FORGED: dict[str, Forger] = {
    "nothing": lambda _one, _other: b"",
    "random bytes": lambda _one, _other: SYSTEM.bytes(48),
    "the right name and nothing else": lambda one, _other: make_reply(one.frame, None, 0),
    "made with another key": lambda one, _other: make_reply(one.frame, SYSTEM.bytes(32), 0),
    "another frame's": lambda _one, other: make_reply(other.frame, other.ack_key, 0),
    "another frame's under this name": lambda one, other: (
        make_reply(one.frame, None, 0)[:16] + make_reply(other.frame, other.ack_key, 0)[16:]
    ),
    "this frame's by another sender's key": lambda one, other: make_reply(
        one.frame, other.ack_key, 0
    ),
    "of a status there is not": lambda one, _other: make_reply(one.frame, one.ack_key, 99),
    "cut": lambda one, _other: make_reply(one.frame, one.ack_key, 0)[:-1],
    "too long": lambda one, _other: make_reply(one.frame, one.ack_key, 0) + b"\x00",
    "the frame itself": lambda one, _other: one.frame,
    "one bit of its status changed": lambda one, _other: _flipped(
        make_reply(one.frame, one.ack_key, 6), 40
    ),
    "one bit of its nonce changed": lambda one, _other: _flipped(
        make_reply(one.frame, one.ack_key, 0), 20
    ),
}


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("forger", FORGED)
async def test_what_does_not_verify_is_as_if_it_had_not_come(
    broker: Broker, world: World, forger: str
) -> None:
    """Nothing follows: DEADLINE. The true reply follows: believed. Planted: a reply taken by its
    name alone -> both fail; a call that ends at the first bad reply -> the second fails.
    """
    one, other = reports(world, 2)
    far = FarEnd([world.hop])
    both = honest(far)
    bad = FORGED[forger](one, other)
    script: list[Answers] = [lambda _n, _f: [bad, bad], lambda n, f: [bad, *both(n, f), bad]]
    key = new_key()
    async with Bridge(broker.settings, key, lambda n, f: script[n](n, f)):
        transport = MqttTransport(broker.settings, key)
        await up(transport)
        error = await failure(transport, one)
        assert error.kind is Kind.DEADLINE
        assert judge(error.kind, False).doubtful
        await submitted(transport, one)
        await transport.close()


async def test_two_replies_at_once_are_one_reply(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Both come before the caller is resumed: the first counts. Planted: the second set on the same
    call -> an error.
    """
    (one,) = reports(world, 1)

    def twice(published: Packet) -> bytes:
        topic = down_topic(published.topic.split("/")[-1]).encode()
        return b"".join(
            message(topic, make_reply(one.frame, one.ack_key, status)) for status in (0, 6, 0)
        )

    async with Puppet(on_publish=twice) as puppet:
        transport = MqttTransport(puppet.settings, new_key())
        await submitted(transport, one)
        await transport.close()
    assert "not handled" not in caplog.text


async def test_a_duplicated_reply_is_one_reply(broker: Broker, world: World) -> None:
    """Also if a later one says something else, and where the same frame is under way several
    times.
    """
    one, other = reports(world, 2)
    key = new_key()

    def answers(_n: int, frame: bytes) -> list[bytes]:
        sender = one if frame == one.frame else other
        first = make_reply(frame, sender.ack_key, 0)
        return [
            first,
            first,
            make_reply(frame, sender.ack_key, 6),
            make_reply(frame, sender.ack_key, 0),
        ]

    async with Bridge(broker.settings, key, answers) as bridge:
        transport = MqttTransport(broker.settings, key)
        await submitted(transport, one)
        await submitted(transport, other)
        await asyncio.gather(*(submitted(transport, sender) for sender in (one, one, other, one)))
        assert sorted(set(bridge.frames)) == sorted([one.frame, other.frame])
        assert transport._calls == {}
        await transport.close()


async def test_a_lost_reply_is_a_deadline_and_the_same_bytes_go_again(
    broker: Broker, world: World
) -> None:
    (one,) = reports(world, 1)
    far = FarEnd([world.hop])
    truth = honest(far)
    key = new_key()
    async with Bridge(
        broker.settings, key, lambda n, f: truth(n, f) if n else truth(n, f)[:0]
    ) as bridge:
        transport = MqttTransport(broker.settings, key)
        await up(transport)
        assert (await failure(transport, one)).kind is Kind.DEADLINE
        await submitted(transport, one)
        assert bridge.frames == [one.frame] * 2
        assert len(far.contents) == 1
        await transport.close()


async def test_a_frame_that_does_not_open_and_a_shuffler_that_is_not_there_look_the_same(
    broker: Broker, world: World
) -> None:
    """Planted: a reply under a known key -> one of the two ends otherwise."""
    (one,) = reports(world, 1)
    stranger = replace(one, frame=last_bit_flipped(one.frame))
    key = new_key()
    errors = []
    async with Bridge(broker.settings, key, honest(FarEnd([world.hop]))) as bridge:
        for transport in (
            MqttTransport(broker.settings, key),
            MqttTransport(broker.settings, new_key()),
        ):
            await up(transport)
            errors.append(await failure(transport, stranger))
            await transport.close()
        await asyncio.wait_for(bridge.came.wait(), PATIENCE_S)
        assert bridge.frames == [stranger.frame]
    assert [(error.kind, error.message) for error in errors] == [
        (Kind.DEADLINE, errors[0].message)
    ] * 2


# --- what a refusal means -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        Kind.WINDOW_CLOSED,
        Kind.WINDOW_FULL,
        Kind.INVALID,
        Kind.CONFLICT,
        Kind.OVERLOADED,
        Kind.UNKNOWN_TASK,
    ],
)
async def test_over_a_broker_no_refusal_says_that_nothing_was_stored(
    broker: Broker, world: World, kind: Kind
) -> None:
    """The broker may have delivered the frame before, held that reply back, and delivered it again
    when its window was closed.

    Over a channel that nobody else holds the same answer is what it says. Planted: an ordinary
    error -> "refused" is recorded for a report that counts; every error taken for doubtful -> the
    second half fails.
    """
    key, far = new_key(), FarEnd([world.hop], lambda _n, _f: ShoalError(kind, "no"))
    async with Bridge(broker.settings, key, honest(far)):
        mqtt = MqttTransport(broker.settings, key)
        for transport, doubtful in ((mqtt, True), (DirectTransport(far), False)):
            outbox, one = MemoryOutbox(), reports(world, 1)[0]
            outbox.add(one)
            entry = outbox.load(one.task_id, one.window)
            assert entry is not None
            error = await attempt(outbox, entry, transport, PATIENCE_S)
            assert error is not None
            assert error.kind is kind
            (record,) = outbox.records()
            if judge(kind, False).action is Action.DROP:
                assert record.state is (ReportState.UNKNOWN if doubtful else ReportState.REFUSED)
            else:
                assert (record.state, record.doubtful) == (ReportState.QUEUED, doubtful)
        await mqtt.close()


# --- a broker that goes away ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.usefixtures("quick")
async def test_a_broker_killed_in_the_middle_loses_no_report(world: World, kind: str) -> None:
    """60 reports while the broker is killed and started three times: all are acknowledged and each
    is held once.

    Planted: a call that isn't told of a lost connection -> this hangs; an acknowledgement of the
    broker taken for a receipt -> frames miss.
    """
    many, far, key = reports(world, 60), FarEnd([world.hop]), new_key()
    truth = honest(far)
    done = 0

    async def deliver(transport: Transport, one: SealedReport) -> None:
        nonlocal done
        while True:
            try:
                await submitted(transport, one, 1.0)
            except ShoalError as error:
                assert error.kind in {Kind.UNAVAILABLE, Kind.DEADLINE}  # noqa: PT017
                await asyncio.sleep(0.01)
            else:
                done += 1
                return

    async with Broker(kind) as broker, Bridge(broker.settings, key, truth):
        transport = MqttTransport(broker.settings, key)
        room = asyncio.Semaphore(5)

        async def limited(one: SealedReport) -> None:
            async with room:
                await deliver(transport, one)

        sending = asyncio.gather(*(limited(one) for one in many))
        async with asyncio.timeout(4 * PATIENCE_S):
            for share in (10, 25, 40):
                while done < share:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await broker.kill()
                await broker.start()
            await sending
        await transport.close()
    assert len(far.contents) == done == 60
    assert set(far.frames) == {one.frame for one in many}


@pytest.mark.usefixtures("quick")
async def test_a_call_that_waits_sends_again_in_the_next_connection(
    broker: Broker, world: World
) -> None:
    """Whoever called needs to do nothing; the reply goes to a topic that was drawn anew. Planted:
    publish once -> DEADLINE.
    """
    (one,), key = reports(world, 1), new_key()
    truth = honest(FarEnd([world.hop]))
    async with (
        Bridge(broker.settings, key, lambda n, f: truth(n, f) if n else []) as bridge,
        Tap(broker.port) as tap,
    ):
        transport = MqttTransport(tap.before(broker.settings), key)
        sending = asyncio.create_task(submitted(transport, one))
        await bridge.came.wait()
        assert transport._uplink is not None
        session = transport._uplink.link._session
        assert session is not None
        # the broker has acknowledged it: only the reply is missing
        while session._answers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        tap.cut()
        await sending
        assert bridge.frames == [one.frame] * 2
        assert len(set(bridge.replies)) == 2
        await transport.close()


async def test_a_broker_that_never_answers_takes_no_longer_than_was_said(world: World) -> None:
    """It takes the connection and is silent; it takes the frame and is silent. Both retryable, both
    doubtful.
    """
    (one,) = reports(world, 1)
    for puppet, kind in ((Puppet(None), Kind.UNAVAILABLE), (Puppet(puback=False), Kind.DEADLINE)):
        async with puppet:
            transport = MqttTransport(puppet.settings, new_key())
            if kind is Kind.DEADLINE:
                await up(transport)
            error = await failure(transport, one)
            assert error.kind is kind
            assert judge(error.kind, False).action is Action.RETRY
            assert judge(error.kind, False).doubtful
            await transport.close()


@pytest.mark.usefixtures("quick")
async def test_what_is_configured_wrongly_is_said_in_one_line(world: World) -> None:
    """And never ends a report: the owner mends it. Planted: the library's own exception let through
    -> another type.
    """
    (one,) = reports(world, 1)
    async with Broker(username="device", password="pass-word") as broker:
        good = broker.settings
        for settings, words in (
            (replace(good, password="other"), "username and password"),
            (
                replace(good, ca=make_authority("stranger").cert_pem),
                "does not chain to the given CA",
            ),
        ):
            transport = MqttTransport(settings, new_key())
            error = await failure(transport, one, PATIENCE_S)
            assert words in error.message
            assert error.kind is Kind.UNAVAILABLE
            await transport.close()
        await broker.kill()
        transport = MqttTransport(good, new_key())
        assert "nobody listens" in (await failure(transport, one, PATIENCE_S)).message
        await transport.close()
    for key in (b"", bytes(31)):
        with pytest.raises(ShoalError) as caught:
            MqttTransport(good, key)
        assert caught.value.kind is Kind.INVALID


# --- calls ----------------------------------------------------------------------------------------


async def test_a_batch_goes_on_where_a_frame_gets_no_reply(broker: Broker, world: World) -> None:
    """And raises where none does. Planted: the first failure raised -> the receipts of all others
    are lost.
    """
    many, key = reports(world, 5), new_key()
    broken = last_bit_flipped(many[2].frame)
    frames = [broken if index == 2 else one.frame for index, one in enumerate(many)]
    ack_keys = [one.ack_key for one in many]
    async with Bridge(broker.settings, key, honest(FarEnd([world.hop]))):
        transport = MqttTransport(broker.settings, key)
        receipts = await transport.submit_batch(frames, ack_keys, 1.0)
        assert (receipts[2].status, receipts[2].mac) == (Kind.DEADLINE.value, b"")
        for index in (0, 1, 3, 4):
            assert receipts[index].status == 0
            verify_receipt(ack_keys[index], 0, frames[index], receipts[index].mac)
        with pytest.raises(ShoalError) as caught:
            await transport.submit_batch([broken], ack_keys[:1], SHORT_S)
        assert caught.value.kind is Kind.DEADLINE
        assert await transport.submit_batch([], [], SHORT_S) == []
        await transport.close()


async def test_closing_ends_calls_and_leaves_nothing_behind(broker: Broker, world: World) -> None:
    """Whoever is cancelled stays cancelled. Planted: a link that is not awaited at the end -> a
    task is left.
    """
    before = asyncio.all_tasks()
    one, other = reports(world, 2)
    async with Puppet(puback=False) as puppet:
        transport = MqttTransport(puppet.settings, new_key())
        cancelled = asyncio.create_task(transport.submit(other.frame, other.ack_key, 600.0))
        await puppet.published.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        puppet.published.clear()
        calls = [
            asyncio.create_task(transport.submit(one.frame, one.ack_key, 600.0)) for _ in range(2)
        ]
        await puppet.published.wait()
        await transport.close()
        await transport.close()
        for call in calls:
            with pytest.raises(ShoalError) as caught:
                await call
            assert caught.value.kind is Kind.UNAVAILABLE
        assert "closed" in (await failure(transport, one)).message
        assert transport._calls == {}
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "change",
    [{"connection_idle_s": 0}, {"connection_age_s": -1}],
    ids=lambda change: next(iter(change)),
)
async def test_a_connection_is_not_kept_for_the_next_window(
    broker: Broker, world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    """After an idle time, and after its age between two calls, the next report goes by another
    connection.

    Planted: a link for the life of the transport -> one client id and one reply topic in all
    windows.
    """
    monkeypatch.setattr(module, "LIMITS", replace(LIMITS, **change))  # type: ignore[arg-type]
    key = new_key()
    async with (
        Bridge(broker.settings, key, honest(FarEnd([world.hop]))) as bridge,
        Tap(broker.port) as tap,
    ):
        transport = MqttTransport(tap.before(broker.settings), key)
        for one in reports(world, 4):
            await submitted(transport, one)
            await asyncio.sleep(0.01)
        together = reports(world, 4)
        await asyncio.gather(*(submitted(transport, one) for one in together))
        await transport.close()
        assert len(set(bridge.replies[:4])) == 4
        assert len(set(bridge.replies[4:])) == 1  # calls that overlap share one
    assert len({packets(bytes(wire.up))[0].client_id for wire in tap.wires}) == 5
