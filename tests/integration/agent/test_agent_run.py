"""``shoal agent run`` as a process of its own against a real shuffler: learning, signals, kill -9,
consent taken back elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal import codec
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.codec import TaskBundle
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.mqtt.link import Link
from shoal.mqtt.topics import task_topic
from shoal.shuffler.core import WindowId
from tests.worlds.devices.agent_process import (
    PATIENCE_S,
    STARTED,
    Device,
    Place,
    now,
    shuffling,
    until,
)
from tests.worlds.devices.clients import FarEnd, World, make_world
from tests.worlds.mqtt.broker import Broker, kinds
from tests.worlds.mqtt.devices import table
from tests.worlds.ports import free_port

HOUR = 3_600


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test started ends with it, also when it fails half way."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with shuffling(tmp_path / "shuffler", free_port()) as (world, published, shuffler):
        device = Device(tmp_path / "device", world.authority.public)
        device.feeds = (
            f'[[feeds.shuffler]]\naddress = "localhost:{shuffler.port}"\nca = '
            f'"{tmp_path / "shuffler" / "ca.pem"}"'
        )
        device.write()
        yield Place(world, published, shuffler, device)
        if device.process is not None and device.process.returncode is None:
            await device.end(signal.SIGKILL)


def hand_over(place: Place) -> None:
    """The task as a file in the device's folder, and no feed."""
    for path in place.world.tasks_dir.iterdir():
        (place.device.folder / "tasks" / path.name).write_bytes(path.read_bytes())
    place.device.feeds = ""
    place.device.write()


async def test_it_learns_a_task_from_the_shuffler_answers_it_and_ends_on_sigterm(
    place: Place,
) -> None:
    """Nothing is configured but the shuffler's address, the purpose and the source."""
    await place.device.start()
    await place.arrived()
    assert await place.device.end() == 0
    assert [event["event"] for event in place.device.events][-1] == "agent ended"
    assert place.counted() == 1
    assert await place.device.states() == [ReportState.ACKED]
    (reported,) = await place.device.entries(LedgerEvent.REPORTED)
    assert (reported.task, reported.window, reported.details["source"]) == ("test", 0, "json")
    assert len(await place.device.entries(LedgerEvent.OUTCOME)) == 1


async def test_sighup_reads_the_file_again_and_a_wrong_one_changes_nothing(place: Place) -> None:
    """Denied at first: nothing. A broken file: the same. Then allowed: answered. Planted: no
    handler -> SIGHUP kills it.
    """
    hand_over(place)
    device = place.device
    device.purposes = {"testing": "denied"}
    device.write()
    await device.start()
    await device.until("task refused")
    assert device.process is not None
    (device.folder / "agent.toml").write_text("broken")
    device.process.send_signal(signal.SIGHUP)
    await device.until("the configuration can't be used: the old one stays")
    assert place.counted() == 0
    device.purposes = {"testing": "allowed"}
    device.write()
    device.process.send_signal(signal.SIGHUP)
    await device.until("configuration read again")
    await place.arrived()
    assert await device.end(signal.SIGINT) == 0
    refused = await device.entries(LedgerEvent.REFUSED)
    assert ["denied" in str(one.details["reason"]) for one in refused] == [True]
    assert len(await device.entries(LedgerEvent.ACCEPTED)) == 1


# schedule, task, report, attempt, outcome
_COMMITS = [f"outbox.commit=exit@{number}" for number in range(1, 6)]


@pytest.mark.parametrize("point", ["client.send=exit", "client.receipt=exit", *_COMMITS])
async def test_kill_9_and_a_restart_draw_no_second_report(place: Place, point: str) -> None:
    """Killed with the report on disk before anything is sent, with the receipt on its way, and
    before each commit from the first start to the outcome. Counted once, charged once, one entry;
    the chain holds.

    Planted: randomize outside the transaction that stores the report, and a second REPORTED of the
    window is entered.
    """
    hand_over(place)
    await place.device.start(failpoints=point)
    assert await place.device.ended() == -signal.SIGKILL
    await place.device.start()
    await place.device.delivered()
    assert await place.device.end() == 0
    assert place.counted() == 1
    assert len(await place.device.entries(LedgerEvent.REPORTED)) == 1
    async with Agent(place.device.config, background=False) as agent:
        assert [charge.window for charge in agent.memory.commitments.charges()] == [0]


async def test_a_source_that_fails_costs_no_report(place: Place) -> None:
    """The window gets "no answer", one line says why. Planted: wait for a source that works -> this
    runs into its time limit.
    """
    hand_over(place)
    (place.device.folder / "value.json").unlink()
    await place.device.start()
    await place.arrived()
    assert await place.device.end() == 0
    failed = [event for event in place.device.events if event["event"] == "source gives no value"]
    assert len(failed) == 1
    assert "cannot be read" in failed[0]["error"]


async def test_a_single_pass_learns_answers_sends_and_ends(place: Place) -> None:
    await place.device.start("--once")
    assert await place.device.ended() == 0
    assert place.counted() == 1
    await place.device.start("--once")
    assert await place.device.ended() == 0
    assert place.counted() == 1
    assert len(await place.device.entries(LedgerEvent.REPORTED)) == 1


async def test_a_wrong_configuration_ends_it_at_once_with_2(place: Place) -> None:
    (place.device.folder / "agent.toml").write_text("broken = true\n")
    await place.device.start()
    assert place.device.process is not None
    _, err = await place.device.process.communicate()
    assert place.device.process.returncode == 2
    assert err.startswith(b"shoal: agent.toml: ")
    assert err.count(b"\n") == 1


async def test_two_agents_never_run_on_one_outbox(tmp_path: Path) -> None:
    """The second says so and ends, also after a reload of the first; other commands work beside it;
    kill -9 gives the place back.

    Planted: no lock -> the second one runs until the time limit; the lock given up at a reload
    before the next is had, or a lock file that a dead process leaves behind -> the second runs, or
    the third doesn't.
    """
    device = device_of(
        tmp_path, [make_world("localhost:1", start=now() - 600, length=HOUR, count=2)]
    )

    async def command(*arguments: str) -> tuple[int, str]:
        child = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "agent",
                *arguments,
                "--config",
                str(device.folder / "agent.toml"),
            ),
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        STARTED.append(child)
        async with asyncio.timeout(PATIENCE_S):
            _, err = await child.communicate()
        return child.returncode or 0, err.decode()

    await device.start()
    await device.until("agent runs")
    for arguments in (["run"], ["run", "--once"]):
        status, said = await command(*arguments)
        assert (status, said.count("\n")) == (2, 1)
        assert said.startswith(
            f"shoal: another agent runs on this outbox: {device.folder / 'outbox.db'}: "
        )
    assert device.process is not None
    device.process.send_signal(signal.SIGHUP)
    await device.until("configuration read again")
    assert (await command("run"))[0] == 2
    assert "another" not in (await command("flush"))[1]
    assert await command("consent", "visits", "deny") == (0, "")
    assert (await command("report", "visits", "3"))[0] == 1  # its purpose is denied
    assert await device.end(signal.SIGKILL) == -signal.SIGKILL
    await device.start()
    await device.until("agent runs")
    assert await device.end() == 0


async def test_nothing_of_a_purpose_leaves_after_its_consent_was_taken_back_in_another_program(
    tmp_path: Path,
) -> None:
    """Two purposes; nobody answers at the shuffler's address, so that attempts of both hang. One is
    withdrawn by this process. Then the shuffler comes up: of the other purpose a report arrives, of
    the withdrawn one nothing ever.

    Planted: no second look at the answers (the attempt is tried again) -> its frame arrives; no
    bytes deleted -> WITHDRAWN is missing; no gate -> the withdrawal returns while the attempt is
    under way, and the sink below still has its connection.
    """
    sink = Sink()
    port = await sink.start()
    kept = make_world(
        f"localhost:{port}",
        start=now() - 600,
        length=HOUR,
        count=2,
        purpose="to count steps",
        name="steps",
    )
    gone = make_world(
        f"localhost:{port}",
        start=now() - 600,
        length=HOUR,
        count=2,
        authority=kept.authority,
        hop=kept.hop,
    )
    device = device_of(tmp_path, [kept, gone])
    await device.start()
    await until(lambda: sink.connections > 0)
    await device.entered(LedgerEvent.REPORTED, 2)
    async with Agent(device.config, background=False) as owner:
        withdrawn = await owner.withdraw(gone.task.purpose)
        assert [(one.task, one.state) for one in withdrawn] == [("visits", ReportState.WITHDRAWN)]
    await sink.stop()
    far = FarEnd([kept.hop])
    async with far.serving(port):
        await until(lambda: bool(far.contents))
        assert await device.end() == 0
    assert {content.task_id for content in far.contents.values()} == {kept.task_id}
    entries = await device.entries(LedgerEvent.WITHDRAWN, LedgerEvent.CONSENT)
    assert [one.event for one in entries] == [LedgerEvent.CONSENT, LedgerEvent.WITHDRAWN]
    assert entries[1].task_id == gone.task_id


@pytest.mark.parametrize("kind", kinds())
async def test_over_a_broker_alone_it_learns_answers_and_heeds_a_second_schedule(
    tmp_path: Path, kind: str
) -> None:
    """Task and frame travel through the broker; the shuffler's own port is not even told. Then a
    second schedule is published.

    Planted: no strike -> STRUCK never comes; gRPC as the way -> the address of the task is
    nobody's, nothing is counted.
    """
    async with (
        Broker(kind, tls=False) as broker,
        shuffling(tmp_path / "shuffler", free_port(), mqtt=table(broker.settings)) as site,
    ):
        world, published, shuffler = site
        (task_file,) = world.tasks_dir.glob("*.task")
        signed = task_file.read_bytes()
        device = Device(tmp_path / "device", world.authority.public)
        device.feeds = (
            f'[mqtt]\nbroker = "127.0.0.1:{broker.port}"\nprotocol = '
            f'"{broker.settings.protocol}"\ninsecure = true\nuplink = true\n'
            "[feeds]\nmqtt = true\n"
        )
        device.write()
        await device.start()
        async with Link(broker.settings) as link:
            await link.connected(PATIENCE_S)

            async def published_with(schedule: bytes) -> None:
                bundle = codec.encode_bundle(TaskBundle(signed, schedule))
                await link.publish(
                    task_topic(published.task_id), bundle, retain=True, timeout_s=PATIENCE_S
                )

            await published_with(task_file.with_suffix(".keys").read_bytes())
            await until(lambda: shuffler.store.distinct(WindowId(published.task_id, 0)) == 1)
            await device.delivered()
            other = tuple(generate(SuiteId.X25519_AES128) for _ in range(3))
            await published_with(world.schedule(published.task_id, other, published.hop))
        await device.entered(LedgerEvent.STRUCK, 1)
        assert await device.end() == 0
    assert await device.states() == [ReportState.ACKED]


def device_of(folder: Path, worlds: list[World]) -> Device:
    device = Device(folder, worlds[0].authority.public)
    for world in worlds:
        world.write(folder / "tasks")
    device.purposes = {world.task.purpose: "allowed" for world in worlds}
    device.sources = {world.task.name: "value.json" for world in worlds}
    device.write()
    return device


class Sink:
    """Takes connections and never says anything."""

    def __init__(self) -> None:
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        while await reader.read(65_536):
            pass

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for writer in self._writers), return_exceptions=True
        )
