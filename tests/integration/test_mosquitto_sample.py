"""deploy/mosquitto.conf and its rules in a real mosquitto: who may do what is what the broker enforces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.crypto.tlscerts import issue
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import TASKS_FILTER, down_topic, new_reply, tag_of, task_topic, up_filter, up_topic
from tests import broker as brokers
from tests.broker import Broker, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
OURS = ("listener", "certfile", "keyfile", "persistence", "connection_messages", "log_dest", "set_tcp_nodelay", "allow_anonymous")
TAG = tag_of(bytes(32))
UP, DOWN, TASK = up_topic(TAG, new_reply()), down_topic(new_reply()), task_topic(TaskId(bytes(32)))
pytestmark = pytest.mark.skipif(brokers.mosquitto() is None, reason="mosquitto is not installed")


def lines(folder: Path) -> list[str]:
    """The sample's, but for those that the test's own broker has (a port, certificates), with the rules and passwords of ``folder``."""
    found = [line for line in (DEPLOY / "mosquitto.conf").read_text().splitlines() if line and line[0] != "#"]
    return [
        line.replace("/etc/mosquitto", str(folder))
        for line in found
        if line.split()[0] not in (*OURS, "max_queued_messages", "log_type", "log_timestamp")
    ]


@pytest.fixture
async def sample(tmp_path: Path) -> AsyncIterator[dict[str, BrokerSettings]]:
    """How each user reaches it; "" is a device."""
    shutil.copy(DEPLOY / "mosquitto.acl", tmp_path / "mosquitto.acl")
    secret = secrets.token_hex(16)
    maker = shutil.which("mosquitto_passwd", path="/usr/bin:/usr/sbin:/usr/local/bin") or "mosquitto_passwd"
    (tmp_path / "passwords").write_text(f"shuffler:{secret}\npublisher:{secret}\n")
    for name in ("passwords", "mosquitto.acl"):
        (tmp_path / name).chmod(0o600)
    process = await asyncio.create_subprocess_exec(maker, "-U", str(tmp_path / "passwords"))
    assert await process.wait() == 0
    async with Broker("mosquitto", tls=False, lines=lines(tmp_path)) as broker:
        named = {name: replace(broker.settings, username=name, password=secret) for name in ("shuffler", "publisher")}
        yield {"": broker.settings, **named}


async def received(settings: BrokerSettings, publishers: list[tuple[BrokerSettings, str]]) -> tuple[set[str], set[tuple[str, str]]]:
    """The topics that came to somebody with these settings who subscribes to all, and which (user, topic) were refused."""
    came: set[str] = set()
    marked = asyncio.Event()
    end = down_topic(new_reply()) if settings.username != "shuffler" else up_topic(TAG, new_reply())

    def arrived(topic: str, payload: bytes) -> None:
        came.add(topic)
        if topic == end:
            marked.set()

    refused: set[tuple[str, str]] = set()
    filters = [(up_filter(TAG), 1), ("shoal/v1/down/+", 1), (TASKS_FILTER, 1), ("shoal/#", 1)]
    async with Link(settings, subscribe=filters, on_message=arrived) as link:
        await link.connected(20.0)
        for who, topic in publishers:
            async with Link(who) as publisher:
                try:
                    await publisher.publish(topic, b"x", timeout_s=20.0)
                except ShoalError as error:
                    assert error.kind is Kind.UNAVAILABLE  # noqa: PT017
                    refused.add((who.username, topic))
        shuffler, device = publishers[-1][0], publishers[0][0]
        async with Link(device if settings.username == "shuffler" else shuffler) as last:
            await last.publish(end, b"end", timeout_s=20.0)
        if settings.username != "publisher":
            async with asyncio.timeout(20):
                await marked.wait()
    return came - {end}, refused


async def test_the_broker_enforces_the_rules(sample: dict[str, BrokerSettings]) -> None:
    """Devices can't answer one another or publish tasks; nobody but the shuffler reads frames. Planted: "topic write shoal/#" for
    devices, or no acl_file -> this fails.
    """
    device, shuffler, publisher = sample[""], sample["shuffler"], sample["publisher"]
    everything = [(device, UP), (device, DOWN), (device, TASK), (publisher, UP), (publisher, DOWN), (shuffler, UP), (shuffler, TASK)]
    came, refused = await received(device, [*everything, (shuffler, DOWN)])
    assert came == {DOWN}
    assert refused == {("", DOWN), ("", TASK), ("publisher", UP), ("publisher", DOWN), ("shuffler", UP), ("shuffler", TASK)}
    came, refused = await received(shuffler, [(device, UP), (publisher, TASK), (shuffler, DOWN)])
    assert (came, refused) == ({UP}, set())
    came, refused = await received(publisher, [(device, UP), (publisher, TASK), (shuffler, DOWN)])
    assert (came, refused) == (set(), set())
    came, refused = await received(device, [(device, UP), (publisher, TASK), (shuffler, DOWN)])
    assert (came, refused) == ({DOWN, TASK}, set())


async def test_a_wrong_password_does_not_pass_for_nobody(sample: dict[str, BrokerSettings]) -> None:
    async with Link(replace(sample["shuffler"], password="guess")) as link:
        with pytest.raises(ShoalError, match="username and password"):
            await link.connected(20.0)


def install(folder: Path, port: int) -> Path:
    """The sample with another port and folder, and what it names. Where tests run as root, so does the broker, to read its files."""
    identity = issue(brokers.authority(), "broker", ["localhost", "127.0.0.1"], server=True, client=False, days=30)
    shutil.copy(DEPLOY / "mosquitto.acl", folder / "mosquitto.acl")
    text = (DEPLOY / "mosquitto.conf").read_text().replace("/etc/mosquitto", str(folder))
    text = text.replace("listener 8883", f"listener {port} 127.0.0.1") + ("user root\n" if os.getuid() == 0 else "")
    files = {"broker.pem": identity.cert_pem, "broker.key": identity.key_pem, "passwords": b"", "mosquitto.conf": text.encode()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder / "mosquitto.conf"


async def test_the_sample_as_it_is_starts_and_says_nothing(tmp_path: Path) -> None:
    """TLS, a device that connects, publishes, is refused and goes, and not one line or file about it.

    Planted: connection_messages true with log_type all, or persistence true -> this fails.
    """
    port = free_port()
    config = install(tmp_path, port)
    before = set(os.listdir(tmp_path))
    program = brokers.mosquitto()
    assert program is not None
    process = await asyncio.create_subprocess_exec(program, "-c", str(config), cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
    try:
        async with Link(BrokerSettings("127.0.0.1", port, brokers.authority().cert_pem)) as link:
            async with asyncio.timeout(brokers.PATIENCE_S):
                while not link.up:
                    with contextlib.suppress(ShoalError):
                        await link.connected(brokers.PATIENCE_S)
            await link.publish(UP, bytes(512), timeout_s=20.0)
            with pytest.raises(ShoalError, match="refuses the message"):
                await link.publish(DOWN, b"", timeout_s=20.0)
    finally:
        process.terminate()
        _, said = await process.communicate()
    assert [line for line in said.splitlines() if b"run as root" not in line] == []
    assert set(os.listdir(tmp_path)) == before
