"""deploy/mosquitto.conf and its rules in a real mosquitto: who may do what is what the broker
enforces.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.crypto.tlscerts import issue
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings, LoginRefused
from shoal.mqtt.topics import (
    TASKS_FILTER,
    down_topic,
    new_reply,
    tag_of,
    task_topic,
    up_filter,
    up_topic,
)
from tests.unit.packaging.test_deploy import compose
from tests.worlds.mqtt import broker as brokers
from tests.worlds.mqtt.broker import Broker
from tests.worlds.ports import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"
OURS = (
    "listener",
    "certfile",
    "keyfile",
    "persistence",
    "connection_messages",
    "log_dest",
    "set_tcp_nodelay",
    "allow_anonymous",
)
TAG = tag_of(bytes(32))
UP, DOWN, TASK = up_topic(TAG, new_reply()), down_topic(new_reply()), task_topic(TaskId(bytes(32)))
pytestmark = pytest.mark.skipif(brokers.mosquitto() is None, reason=brokers.LACKING)


def lines(folder: Path) -> list[str]:
    """The sample's, but for those that the test's own broker has (a port, certificates), with the
    rules and passwords of ``folder``.
    """
    found = [
        line
        for line in (DEPLOY / "mosquitto.conf").read_text().splitlines()
        if line and line[0] != "#"
    ]
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
    maker = (
        shutil.which("mosquitto_passwd", path="/usr/bin:/usr/sbin:/usr/local/bin")
        or "mosquitto_passwd"
    )
    (tmp_path / "passwords").write_text(f"shuffler:{secret}\npublisher:{secret}\n")
    for name in ("passwords", "mosquitto.acl"):
        (tmp_path / name).chmod(0o600)
    process = await asyncio.create_subprocess_exec(maker, "-U", str(tmp_path / "passwords"))
    assert await process.wait() == 0
    async with Broker("mosquitto", tls=False, lines=lines(tmp_path)) as broker:
        named = {
            name: replace(broker.settings, username=name, password=secret)
            for name in ("shuffler", "publisher")
        }
        yield {"": broker.settings, **named}


async def received(
    settings: BrokerSettings,
    publishers: list[tuple[BrokerSettings, str]],
    marker: BrokerSettings | None = None,
) -> tuple[set[str], set[tuple[str, str]]]:
    """The topics that came to somebody with these settings who subscribes to all, and which (user,
    topic) were refused. ``marker``: the publisher, if it and not the shuffler sends the last
    message, after which all have come.
    """
    came: set[str] = set()
    marked = asyncio.Event()
    end = down_topic(new_reply()) if settings.username != "shuffler" else up_topic(TAG, new_reply())
    if marker is not None:
        end = task_topic(TaskId(bytes(31) + b"\1"))

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
        async with Link(
            marker or (device if settings.username == "shuffler" else shuffler)
        ) as last:
            await last.publish(end, b"end", timeout_s=20.0)
        if settings.username != "publisher":
            async with asyncio.timeout(20):
                await marked.wait()
    return came - {end}, refused


async def test_the_broker_enforces_the_rules(sample: dict[str, BrokerSettings]) -> None:
    """Devices can't answer one another or publish tasks; nobody but the shuffler reads frames.
    Planted: "topic write shoal/#" for devices, or no acl_file -> this fails.
    """
    device, shuffler, publisher = sample[""], sample["shuffler"], sample["publisher"]
    everything = [
        (device, UP),
        (device, DOWN),
        (device, TASK),
        (publisher, UP),
        (publisher, DOWN),
        (shuffler, UP),
        (shuffler, TASK),
    ]
    came, refused = await received(device, [*everything, (shuffler, DOWN)])
    assert came == {DOWN}
    assert refused == {
        ("", DOWN),
        ("", TASK),
        ("publisher", UP),
        ("publisher", DOWN),
        ("shuffler", UP),
        ("shuffler", TASK),
    }
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


def install(folder: Path, port: int, as_root: bool = True) -> Path:
    """The sample with another port and folder, and what it names. ``as_root``: where tests run as
    root, so does the broker, to read its files.
    """
    shutil.copy(DEPLOY / "mosquitto.acl", folder / "mosquitto.acl")
    text = (DEPLOY / "mosquitto.conf").read_text().replace("/etc/mosquitto", str(folder))
    text = text.replace("listener 8883", f"listener {port} 127.0.0.1") + (
        "user root\n" if as_root and os.getuid() == 0 else ""
    )
    (folder / "passwords").touch()
    (folder / "mosquitto.conf").write_text(text)
    certify(folder)
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder / "mosquitto.conf"


def certify(folder: Path) -> bytes:
    """A new certificate in place of the one that is there; DER."""
    identity = issue(
        brokers.authority(),
        "broker",
        ["localhost", "127.0.0.1"],
        server=True,
        client=False,
        days=30,
    )
    (folder / "broker.pem").write_bytes(identity.cert_pem)
    (folder / "broker.key").write_bytes(identity.key_pem)
    return ssl.PEM_cert_to_DER_cert(
        identity.cert_pem.decode().partition("-----END CERTIFICATE-----")[0]
        + "-----END CERTIFICATE-----\n"
    )


def passwords(folder: Path, *names: str, secret: str) -> None:
    """As the sample's comment says, and hashed. The file stays the same one, of the same owner."""
    maker = (
        shutil.which("mosquitto_passwd", path="/usr/bin:/usr/sbin:/usr/local/bin")
        or "mosquitto_passwd"
    )
    with tempfile.TemporaryDirectory() as elsewhere:
        made = Path(elsewhere) / "passwords"
        made.write_text("".join(f"{name}:{secret}\n" for name in names))
        subprocess.run([maker, "-U", str(made)], check=True)
        (folder / "passwords").write_bytes(made.read_bytes())


@pytest.mark.skipif(os.getuid() != 0, reason="wants root, to become somebody else")
async def test_the_broker_of_compose_runs_as_nobody_on_files_of_its_own() -> None:
    """deploy/compose.yaml's user, on a folder that it can read and nobody can write, without any
    privilege: the sample starts, serves all three kinds of clients over TLS, and takes new
    passwords and a new certificate on SIGHUP, as its comments say.

    Planted: "persistence true" (it can't write, and says so), log_type all, user 0:0 in
    compose.yaml, a passwords file of somebody else's -> this fails.
    """
    user, _, group = str(compose()["services"]["broker"]["user"]).partition(":")
    port, program = free_port(), brokers.mosquitto()
    assert program is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = install(folder, port, as_root=False)
        passwords(folder, "publisher", secret="right")
        give(folder, int(user), int(group))
        process = await asyncio.create_subprocess_exec(
            *(
                "setpriv",
                "--reuid",
                user,
                "--regid",
                group,
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
                "--no-new-privs",
            ),
            *(program, "-c", str(config)),
            cwd="/",
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            device = BrokerSettings("127.0.0.1", port, brokers.authority().cert_pem)
            publisher = replace(device, username="publisher", password="right")
            shuffler = replace(device, username="shuffler", password="later")
            await up(device)
            assert set(rights(process.pid)) >= {
                f"Uid:\t{user}\t{user}\t{user}\t{user}",
                "CapEff:\t0000000000000000",
            }
            came, refused = await received(
                device, [(device, UP), (publisher, TASK)], marker=publisher
            )
            assert (came, refused) == ({TASK}, set())
            with pytest.raises(ShoalError, match="username and password"):
                await up(shuffler)
            passwords(folder, "publisher", "shuffler", secret="later")
            certificate = certify(folder)
            process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(brokers.PATIENCE_S):
                while await shown(port) != certificate:
                    continue
            await up(shuffler)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                process.terminate()
            _, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")


def give(folder: Path, user: int, group: int) -> None:
    """All of it to somebody who may read it and write nothing."""
    for path in [folder, *folder.iterdir()]:
        os.chown(path, user, group)
    folder.chmod(0o500)


def rights(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


async def up(settings: BrokerSettings) -> None:
    """Returns once it lets them in, though it may still be starting. Raises what it says against
    them.
    """
    async with Link(settings) as link, asyncio.timeout(brokers.PATIENCE_S):
        while not link.up:
            try:
                await link.connected(brokers.PATIENCE_S)
            except LoginRefused:
                raise
            except ShoalError:
                continue


async def shown(port: int) -> bytes:
    """The certificate of a new connection; DER."""
    context = ssl.create_default_context(cadata=brokers.authority().cert_pem.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate
    finally:
        writer.close()  # with TLS's goodbye: without, the broker would have something to say
        await writer.wait_closed()


async def test_the_sample_as_it_is_starts_and_says_nothing(tmp_path: Path) -> None:
    """TLS, a device that connects, publishes, is refused and goes, and not one line or file about
    it.

    Planted: connection_messages true with log_type all, or persistence true -> this fails.
    """
    port = free_port()
    config = install(tmp_path, port)
    before = set(os.listdir(tmp_path))
    program = brokers.mosquitto()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, "-c", str(config), cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
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
