"""A task on its way from the authority's desk to a device: `shoal task publish` into a real broker,
and a real feed onto a real shelf.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.clients.feeds.mqtt_feed import MqttFeed
from shoal.clients.feeds.task_store import LearntTask, LearntTasks
from shoal.clocks.clock import FakeClock
from shoal.crypto.signing import SigningKey
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.mqtt import link
from tests.worlds.devices.clients import World, make_world
from tests.worlds.mqtt.broker import Broker, authority, kinds

AUTHORITY = SigningKey.generate()
PATIENCE_S = 60.0
_ATTEMPTS = 5  # a second or more each


def a_world(name: str) -> World:
    start = int(time.time()) - 100
    return make_world(authority=AUTHORITY, name=name, start=start, length=3_600, count=3)


@pytest.fixture(params=kinds())
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.param, username="authority", password="correct horse")


def arguments(broker: Broker, folder: Path, name: str) -> list[str]:
    (folder / "ca.pem").write_bytes(authority().cert_pem)
    (folder / "pw").touch(mode=0o600)
    (folder / "pw").write_text(f"{broker.password}\n")
    made = [
        "task",
        "publish",
        str(folder / f"{name}.task"),
        "--mqtt",
        f"localhost:{broker.port}",
        "--ca",
        str(folder / "ca.pem"),
    ]
    return [
        *made,
        "--username",
        broker.username,
        "--password-file",
        str(folder / "pw"),
        "--protocol",
        broker.settings.protocol,
    ]


def learn(broker: Broker, folder: Path) -> tuple[list[LearntTask], list[str]]:
    """What a device takes from the broker, and what it refuses, by a new feed and shelf."""
    shelf = LearntTasks(folder, {AUTHORITY.public}, FakeClock(time.time()))
    taken: list[LearntTask] = []
    refused: list[str] = []

    def offer(data: bytes, _: str) -> None:
        try:
            taken.append(shelf.offer(data))
        except ShoalError as error:
            refused.append(str(error))
            raise

    async def once() -> None:
        await MqttFeed(broker.settings, offer, every_s=60.0).once(PATIENCE_S)

    asyncio.run(once())
    return taken, refused


def test_from_the_desk_to_the_device_and_off_again(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published tasks arrive, withdrawn ones stay where they are but reach nobody new. Planted:
    published without retain -> nothing arrives; --withdraw that publishes the task -> it still
    arrives: this fails.
    """
    worlds = [a_world("visits"), a_world("steps")]
    with broker:
        for world in worlds:
            world.write(tmp_path)
            assert main([*arguments(broker, tmp_path, world.task.name), "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)
            assert shown["topic"] == f"shoal/v1/tasks/{world.task_id.hex}"
            assert (shown["withdrawn"], shown["warnings"]) == (False, [])
        taken, refused = learn(broker, tmp_path / "shelf")
        assert {one.name for one in taken} == {"steps", "visits"}
        assert not refused
        assert (tmp_path / "shelf" / f"{worlds[0].task_id.hex}.task").read_bytes() == worlds[
            0
        ].signed_task
        assert main([*arguments(broker, tmp_path, "visits"), "--withdraw"]) == 0
        assert "withdrawn from" in capsys.readouterr().out
        # a broker may say that it has a message before it keeps none for new devices
        names = set[str]()
        for attempt in range(_ATTEMPTS):
            names = {one.name for one in learn(broker, tmp_path / f"new-{attempt}")[0]}
            if names == {"steps"}:
                break
        assert names == {"steps"}
        # a broker may send a retained message twice
        assert {one.fresh for one in learn(broker, tmp_path / "shelf")[0]} == {False}


def test_a_broker_that_is_away_or_says_no_is_one_line(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_world("visits").write(tmp_path)
    command = arguments(broker, tmp_path, "visits")
    assert main(command) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with broker:
        (tmp_path / "pw").write_text("wrong\n")
        assert main(command) == 1
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert "wrong" not in error


def test_tls_at_a_port_without_it_and_the_reverse_name_the_option(
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the link's words without a way to mend, or without the name that the option has here
    -> this fails.
    """
    a_world("visits").write(tmp_path)
    with broker:
        command = arguments(broker, tmp_path, "visits")
        assert main([*command, "--insecure"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "if its port speaks TLS, leave out --insecure" in line
    plain = Broker(broker.kind, tls=False, username="authority", password="correct horse")
    with plain:
        command = arguments(plain, tmp_path, "visits")
        with monkeypatch.context() as patch:  # one kind of broker waits for more, in vain
            patch.setattr(link, "LIMITS", replace(LIMITS, mqtt_connect_s=2.0))
            assert main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "check that its port speaks TLS" in line
        assert "a broker on a loopback address may do without: --insecure" in line
        assert main([*command, "--insecure"]) == 0


def test_every_keeps_a_forgetful_broker_supplied_and_ends_when_told(
    broker: Broker, tmp_path: Path
) -> None:
    """The test's brokers keep nothing over a restart. Planted: published once alone -> nothing
    arrives after it, and this fails.
    """
    a_world("visits").write(tmp_path)
    with broker:
        publisher = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "shoal.cli.main",
                *arguments(broker, tmp_path, "visits"),
                "--every",
                "1",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert publisher.stdout is not None
            assert "published every 1 s" in publisher.stdout.readline()
            for number in range(2):
                assert until_learnt(broker, tmp_path / f"shelf{number}")
                if number == 0:
                    asyncio.run(again(broker))
        finally:
            publisher.send_signal(signal.SIGTERM)
            _, error = publisher.communicate(timeout=PATIENCE_S)
    assert publisher.returncode == 0, error
    assert "Traceback" not in error


async def again(broker: Broker) -> None:
    await broker.kill()
    await broker.start()


def until_learnt(broker: Broker, folder: Path) -> bool:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        if learn(broker, folder)[0]:
            return True
    return False
