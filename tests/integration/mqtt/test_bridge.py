"""A real shuffler behind a real broker: frames arrive, are stored once and answered; the broker
learns nothing, and may die.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from shoal import failpoints
from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.clocks.clock import FakeClock
from shoal.crypto.brokered import REPLY_SIZE
from shoal.crypto.envelope import HopContent, seal_frame, verify_receipt
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mqtt.topics import tag_of, up_topic
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.flipped import last_bit_flipped
from tests.sizes import size
from tests.worlds.mqtt import broker as brokers
from tests.worlds.mqtt.bridged import Site
from tests.worlds.mqtt.broker import Broker, Tap
from tests.worlds.mqtt.devices import PATIENCE_S, Devices, table
from tests.worlds.services.shuffler import START, Published, World


@pytest.fixture(params=brokers.kinds())
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with Broker(request.param, tls=False) as one:
        yield one


@pytest.fixture
async def site(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    # after its first tick the service waits for ours
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Site(tmp_path, broker)
    yield one
    await one.stop()


def sealed(published: Published, content: HopContent) -> bytes:
    return seal_frame(published.hop.config, content)


async def test_reports_are_stored_once_whatever_way_they_come(site: Site) -> None:
    """By the broker, by gRPC, by both, and again: every report is delivered once. Planted: a store
    that takes repeats -> this fails.
    """
    published = site.world.publish()
    await site.start()
    reports = [published.sealed() for _ in range(60)]
    contents = [published.content(one) for one in reports]
    frames = [sealed(published, content) for content in contents]
    async with site.devices() as devices:
        await site.ready()
        for frame in frames[:10]:
            await site.by_call(frame)
        statuses = await asyncio.gather(
            *(devices.submit(f, c.ack_key) for f, c in zip(frames, contents, strict=True))
        )
        assert statuses == [0] * 60
        for frame in frames[:5]:
            await site.by_call(frame)
        assert await devices.submit(frames[7], contents[7].ack_key) == 0
    assert await site.delivered() == sorted(reports)


async def test_a_devices_own_transport_and_the_bridge_understand_each_other(site: Site) -> None:
    """One frame, many at once, a refusal with its kind. Planted: another layout of the reply on
    either side -> this fails.
    """
    published = site.world.publish()
    await site.start()
    transport = MqttTransport(site.broker.settings, site.world.shuffler.public)
    try:
        await site.ready()
        contents = [published.content() for _ in range(40)]
        frames = [sealed(published, content) for content in contents]
        verify_receipt(
            contents[0].ack_key,
            0,
            frames[0],
            await transport.submit(frames[0], contents[0].ack_key, 20.0),
        )
        receipts = await transport.submit_batch(
            frames, [content.ack_key for content in contents], 20.0
        )
        for receipt, content, frame in zip(receipts, contents, frames, strict=True):
            assert receipt.status == 0
            verify_receipt(content.ack_key, 0, frame, receipt.mac)
        early = published.content(window=1)
        with pytest.raises(ShoalError) as refused:
            await transport.submit(sealed(published, early), early.ack_key, 20.0)
        assert refused.value.kind is Kind.TOO_EARLY
    finally:
        await transport.close()
    assert await site.delivered() == sorted(content.sealed[0] for content in contents)


async def test_the_sender_learns_why_and_the_broker_sees_replies_of_one_size(site: Site) -> None:
    """Every outcome that a frame can have; on the wire between bridge and broker all replies are
    messages of one length.

    Planted: the status beside the MAC for refusals, or no reply to what does not open -> this
    fails.
    """
    published, full = site.world.publish(), site.world.publish(max_batch=3)
    strange = site.world.publish(name="strange")
    enrolled = site.world.publish(site.world.enrolled(), name="enrolled")
    cases: list[tuple[Published, HopContent, Kind | None]] = [
        (published, published.content(), None),
        (published, published.content(window=1), Kind.TOO_EARLY),
        (published, published.content(task_id=TaskId(bytes(32))), Kind.UNKNOWN_TASK),
        (published, replace(published.content(), sealed=(b"short",)), Kind.INVALID),
        (strange, published.content(), Kind.UNKNOWN_KEY),  # sealed for another task's hop key
        (enrolled, enrolled.content(), Kind.UNAUTHENTICATED),
        *((full, full.content(), None) for _ in range(3)),
    ]
    async with Tap(site.broker.port) as tap:
        await site.start(tap.before(site.broker.settings))
        async with site.devices() as devices:
            await site.ready()
            before = len(tap.up)
            for owner, content, kind in cases:
                status = await devices.submit(sealed(owner, content), content.ack_key)
                assert status == (0 if kind is None else kind.value)
            content = full.content()
            assert (
                await devices.submit(sealed(full, content), content.ack_key)
                == Kind.WINDOW_FULL.value
            )
            readable = len(cases) + 1
            good = published.frame()
            unreadable = [
                last_bit_flipped(good),  # does not open
                secrets.token_bytes(512),  # names no key
                b"\x01\x01\x00"
                + published.hop.config.key_id.raw
                + secrets.token_bytes(501),  # names one, and is noise
                secrets.token_bytes(32 * 1024),
            ]
            for frame in unreadable:
                await devices.publish(frame)
            payloads = await devices.came(readable + len(unreadable))
            assert {len(payload) for payload in payloads} == {REPLY_SIZE}
            lengths = publish_lengths(tap.up[before:], site.broker.settings.protocol)
        assert len(lengths) >= readable + len(unreadable) - 1
        assert len(set(lengths)) == 1, lengths


def publish_lengths(data: bytes, protocol: str) -> list[int]:
    """Remaining lengths of the PUBLISH packets in a client's stream (MQTT 5 sections 2.1 and 3.3),
    which begins between two packets.
    """
    found, at = [], 0
    while at < len(data):
        kind, at = data[at] >> 4, at + 1
        length = shift = 0
        while True:
            length |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 128:
                break
        if kind == 3:
            assert data[at - 2 - (length > 127)] & 0b111 == 0b010  # QoS 1, not retained
            size = struct.unpack_from(">H", data, at)[0]
            assert data[at + 2 : at + 2 + size].startswith(b"shoal/v1/down/")
            found.append(length)
        at += length
    return found


async def test_what_is_no_frame_gets_no_reply_and_is_counted(site: Site) -> None:
    """Odd sizes, a topic that names no reply, too large, retained. Planted: a reply to any of them
    -> more payloads come, fails.
    """
    published = site.world.publish()
    async with site.devices() as devices:
        stored = published.content()
        # before the shuffler listens: the broker hands it over later
        await devices.publish(sealed(published, stored), retain=True)
        await site.start()
        await site.ready()
        for payload in (b"", b"x", bytes(511), bytes(LIMITS.frame_sizes[-1] - 1)):
            await devices.publish(payload)
        await devices.publish(bytes(LIMITS.frame_sizes[-1] + 1))
        await devices.publish(
            published.frame(), topic=f"shoal/v1/up/{tag_of(site.world.shuffler.public)}/nobody"
        )
        # another shuffler's
        await devices.publish(published.frame(), topic=up_topic(tag_of(bytes(32)), devices.reply))
        content = published.content()
        assert await devices.submit(sealed(published, content), content.ack_key) == 0
        assert len(devices.payloads) == 1
        status = json.loads(await site.get("/status"))
        assert status["mqtt"] == {"connected": True, "dropped": {"odd": 5, "oversize": 1}}
        metrics = await site.get("/metrics")
        assert 'shoal_shuffler_mqtt_dropped_total{reason="odd"} 5.0' in metrics
        assert "shoal_shuffler_mqtt_connected 1.0" in metrics
        # one report, fewer than min_batch: the retained one was not taken
        assert await site.delivered() == []
        record = site.shuffler.store.record(WindowId(published.task_id, 0))
        assert record is not None
        assert record.reports == 1
        await devices.publish(b"", retain=True)


async def test_a_broker_that_dies_and_comes_back(site: Site) -> None:
    """Killed under load, twice: gRPC is served meanwhile and readiness says why; what was
    acknowledged is there once.

    Planted: answering before the commit, or not subscribing again -> this fails.
    """
    published, count = site.world.publish(), size(60, 200)
    await site.start()
    reports = [published.sealed() for _ in range(count)]
    contents = [published.content(one) for one in reports]
    frames = [sealed(published, content) for content in contents]
    async with site.devices() as devices:
        await site.ready()
        under_way = [
            asyncio.create_task(devices.submit(f, c.ack_key, 0.5))
            for f, c in zip(frames[:-1], contents, strict=False)
        ]
        for _ in range(2):
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            await site.broker.kill()
            reason = site.broker_trouble(
                await site.until(lambda text: site.broker_trouble(text) is not None, "/status")
            )
            assert reason is not None
            assert await site.get("/readyz") == "ready\n"
            assert reason.startswith("frames are taken over gRPC alone: ")
            assert "127.0.0.1" not in reason
            await site.by_call(frames[-1])
            assert json.loads(await site.get("/status"))["mqtt"]["connected"] is False
            await site.broker.start()
            await site.ready()
        assert await asyncio.gather(*under_way) == [0] * (count - 1)
    assert await site.delivered() == sorted(reports)


async def test_a_shuffler_starts_and_stops_without_its_broker(site: Site) -> None:
    published = site.world.publish()
    await site.broker.kill()
    await site.start()
    await site.by_call(published.frame())
    assert str(site.broker_trouble(await site.get("/status"))).startswith(
        "frames are taken over gRPC alone: "
    )
    async with asyncio.timeout(LIMITS.drain_s):
        await site.stop()
    site.channel = None
    await site.broker.start()


async def test_a_disabled_table_is_no_table(site: Site) -> None:
    site.world.publish()
    await site.start(mqtt={**table(site.broker.settings), "enabled": False})
    assert await site.get("/readyz") == "ready\n"
    assert "mqtt" not in json.loads(await site.get("/status"))
    assert "mqtt" not in await site.get("/metrics")


async def test_a_disk_that_fails_costs_no_report(site: Site) -> None:
    """The commit of a group fails: its devices read that and come again, or get no reply and come
    again; each is stored once.

    Planted: an acceptance before the commit -> this fails.
    """
    published = site.world.publish()
    await site.start()
    contents = [published.content() for _ in range(30)]
    async with site.devices() as devices:
        await site.ready()
        for number, point in enumerate(
            ("writer.append=eio@1", "writer.answer=eio@1", "inbox.commit=enospc@1")
        ):
            failpoints.arm(point)
            await asyncio.gather(
                *(
                    until_stored(devices, sealed(published, one), one.ack_key)
                    for one in contents[number::3]
                )
            )
            failpoints.arm("")
    assert await site.delivered() == sorted(content.sealed[0] for content in contents)


async def until_stored(devices: Devices, frame: bytes, ack_key: bytes) -> None:
    while (status := await devices.submit(frame, ack_key, 0.5)) != 0:
        assert Kind(status) in (Kind.OVERLOADED, Kind.INTERNAL)


async def test_a_flood_on_the_topic_does_not_starve_calls(site: Site) -> None:
    """Thousands of frames in one go: calls are answered while the flood is still being worked on,
    and afterwards the bridge serves as before. Planted: opening everything that waits in one turn
    of the loop -> no call comes through before, fails.
    """
    published = site.world.publish()
    await site.start()
    # costs an opening each
    noise = bytes((1, 1, 0)) + published.hop.config.key_id.raw + secrets.token_bytes(501)
    flood = [noise[:-2] + number.to_bytes(2, "big") for number in range(size(1_500, 3_000))]
    async with site.devices() as devices, site.devices() as other:
        await site.ready()
        publishing = asyncio.create_task(publish_all(devices, flood))
        await other.came(0)
        await devices.came(1)
        during = 0
        while len(devices.payloads) < len(flood) and not (publishing.done() and during >= 20):
            await site.by_call(published.frame())
            during += len(devices.payloads) < len(flood)
        assert during >= 5
        await publishing
        content = published.content()
        assert await other.submit(sealed(published, content), content.ack_key, 5.0) == 0


async def publish_all(devices: Devices, frames: list[bytes]) -> None:
    for at in range(0, len(frames), 200):
        await asyncio.gather(*(devices.publish(frame) for frame in frames[at : at + 200]))


async def test_nothing_of_a_message_is_written_down(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Reply ids, frames and ack keys: not on disk, in logs, or in metrics; with failures forced.

    Planted: a topic in a log line -> this fails.
    """
    caplog.set_level("DEBUG", "shoal")  # whatever a command that ran here before has set
    published = site.world.publish()
    await site.start(log_level="debug")
    async with site.devices() as devices:
        await site.ready()
        content = published.content()
        frame = sealed(published, content)
        failpoints.arm("writer.append=eio@1")
        await devices.publish(frame)
        async with asyncio.timeout(PATIENCE_S):
            # another thread's doing
            while "could not be taken" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        failpoints.arm("")
        assert await devices.submit(frame, content.ack_key) == 0
        await devices.publish(devices.reply.encode() * 16)
        await site.broker.kill()
        await site.until(lambda text: site.broker_trouble(text) is not None, "/status")
        await site.broker.start()
        await devices.up()
        disk = b"".join(path.read_bytes() for path in sorted(site.world.data_dir.iterdir()))
        metrics = generate_latest(site.shuffler.registry)
        for where in (disk, caplog.text.encode(), metrics):
            for secret in (
                bytes.fromhex(devices.reply),
                content.ack_key,
                frame[11:43],
                content.ack_key[:8],
            ):
                assert secret not in where
                assert secret.hex().encode() not in where
            assert b"shoal/v1/up" not in where
            assert str(site.broker.port).encode() not in where


async def test_tls_and_a_password(tmp_path: Path) -> None:
    """As in earnest; then with a wrong password, which readiness names."""
    world = World(tmp_path)
    published = world.publish()
    (tmp_path / "broker-ca.pem").write_bytes(brokers.authority().cert_pem)
    for name, text in (("password", "correct horse\n"), ("wrong", "battery staple\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    async with Broker(username="shuffler", password="correct horse") as broker:
        keys = {
            **table(broker.settings),
            "insecure": False,
            "ca": "broker-ca.pem",
            "username": "shuffler",
        }
        right, wrong = (
            world.config(mqtt={**keys, "password_file": name}) for name in ("password", "wrong")
        )
        async with (
            Shuffler(right, clock=FakeClock(START + 10)),
            Devices(broker.settings, world.shuffler.public) as devices,
        ):
            content = published.content()
            assert await devices.submit(sealed(published, content), content.ack_key, 0.5) == 0
        async with Shuffler(wrong, clock=FakeClock(START + 10)) as shuffler:
            site = Site(tmp_path / "unused", broker)
            site.shuffler = shuffler
            assert "username and password" in await site.until(
                lambda text: "refuses" in text, "/status"
            )


async def test_a_broker_that_is_wrongly_configured_refuses_to_start(tmp_path: Path) -> None:
    """One line each, before anything is served."""
    world = World(tmp_path)
    world.publish()
    for keys, kind in (
        ({"broker": "broker.example.org:1883", "insecure": True}, Kind.CONFIG),
        ({"broker": "127.0.0.1:1883", "ca": "none.pem"}, Kind.KEY_FILE),
        (
            {"broker": "127.0.0.1:1883", "ca": "ca.pem", "username": "x", "password_file": "none"},
            Kind.KEY_FILE,
        ),
    ):
        with pytest.raises(ShoalError) as refused:
            async with Shuffler(world.config(mqtt=keys), clock=FakeClock(START)):
                pass
        assert refused.value.kind is kind
        assert "\n" not in refused.value.message
