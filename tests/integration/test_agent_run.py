"""``shoal agent run`` as a process of its own against a real shuffler: learning, signals, kill -9,
consent taken back elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal import codec
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.settings.config import AgentConfig
from shoal.codec import TaskBundle
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.domain import YesNo
from shoal.mechanisms import create, design
from shoal.mqtt.link import Link
from shoal.mqtt.topics import task_topic
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.worlds import shuffler as shuffler_world
from tests.worlds.analyzer_process import free_port
from tests.worlds.broker import Broker, kinds
from tests.worlds.clients import FarEnd, World, make_world
from tests.worlds.mqtt_devices import table
from tests.worlds.shuffler import AnalyzerEnd, Published

HOUR = 3_600
PATIENCE_S = 60.0  # only a failing test waits that long


def now() -> int:
    return int(time.time())


_STARTED: list[asyncio.subprocess.Process] = []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test started ends with it, also when it fails half way."""
    yield
    while _STARTED:
        process = _STARTED.pop()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@dataclass
class Device:
    """A device's folder and the service on it, started again and again."""

    folder: Path
    authority: bytes
    purposes: dict[str, str] = field(default_factory=lambda: {"testing": "allowed"})
    feeds: str = ""
    send: str = ""
    sources: dict[str, str] = field(default_factory=lambda: {"test": "value.json"})
    process: asyncio.subprocess.Process | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)
        (self.folder / "value.json").write_text("1")
        self.write()

    def write(self) -> None:
        purposes = "\n".join(
            f'"{purpose}" = "{answer}"' for purpose, answer in self.purposes.items()
        )
        sources = "\n".join(
            f'[sources.{name}]\nkind = "json"\nfile = "{file}"'
            for name, file in self.sources.items()
        )
        (self.folder / "agent.toml").write_text(
            'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
            f'["{self.authority.hex()}"]\nmax_epsilon0 = 4.0\n'
            f"min_batch_floor = 2\n[policy.purposes]\n{purposes}\n[send]\ndeadline_s = "
            "5.0\nretry_first_s = 0.01\nretry_most_s = 0.1\n"
            f"gap_s = 0.01\n{self.send}\n[measure]\nmean_s = 0.01\n{sources}\n{self.feeds}\n"
        )

    @property
    def config(self) -> AgentConfig:
        return AgentConfig.load(self.folder / "agent.toml")

    async def start(self, *arguments: str, failpoints: str = "") -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "agent",
                "run",
                "--config",
                str(self.folder / "agent.toml"),
                *arguments,
            ),
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, "SHOAL_FAILPOINTS": failpoints},
        )
        _STARTED.append(self.process)

    async def until(self, event: str) -> dict[str, Any]:
        """The next log line about it."""
        assert self.process is not None
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := await self.process.stderr.readline():
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        raise AssertionError(f"ended without {event}: {self.events}")

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """The exit status. Whatever it said last is in ``events``: JSON lines, and nothing else."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            _, err = await self.process.communicate()
        self.events += [json.loads(line) for line in err.splitlines()]
        status = self.process.returncode
        assert status is not None
        return status

    async def entries(self, *events: LedgerEvent) -> list[LedgerEntry]:
        """Of the ledger, whose chain holds."""
        async with Agent(self.config, background=False) as agent:
            await agent.verify()
            return [one.entry for one in await agent.ledger() if one.entry.event in events]

    async def states(self) -> list[ReportState]:
        async with Agent(self.config, background=False) as agent:
            return [one.state for one in await agent.outcomes()]


@dataclass
class Place:
    """A shuffler in this process, with one task of three windows, and a device that trusts its
    authority.
    """

    world: shuffler_world.World
    published: Published
    shuffler: Shuffler
    device: Device

    def counted(self, window: int = 0) -> int:
        return self.shuffler.store.distinct(WindowId(self.published.task_id, window))

    async def arrived(self, count: int = 1, window: int = 0) -> None:
        await until(lambda: self.counted(window) >= count)


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.02)


@asynccontextmanager
async def shuffling(
    folder: Path, port: int, **changes: Any
) -> AsyncIterator[tuple[shuffler_world.World, Published, Shuffler]]:
    world = shuffler_world.World(folder)
    mechanism = design("binary_rr", YesNo(), 3.0)
    made = create(mechanism, YesNo())
    published = world.publish(
        start_s=now() - 600,
        count=3,
        shuffler_address=f"localhost:{port}",
        mechanism=mechanism,
        report_size=made.report_size,
        messages=made.messages,
    )
    analyzer = AnalyzerEnd(world)
    address = await analyzer.start()
    try:
        async with Shuffler(
            world.config(address, listen=f"127.0.0.1:{port}", **changes)
        ) as shuffler:
            yield world, published, shuffler
    finally:
        await analyzer.stop()


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
    await delivered(place.device)
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
        _STARTED.append(child)
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
    while len(await device.entries(LedgerEvent.REPORTED)) < 2:
        pass  # each look opens the memory and verifies the chain: no busy loop
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
            await delivered(device)
            other = tuple(generate(SuiteId.X25519_AES128) for _ in range(3))
            await published_with(world.schedule(published.task_id, other, published.hop))
        async with asyncio.timeout(PATIENCE_S):
            while not await device.entries(LedgerEvent.STRUCK):
                pass  # each look opens the memory: no busy loop
        assert await device.end() == 0
    assert await device.states() == [ReportState.ACKED]


async def delivered(device: Device) -> None:
    """Until its one report is acknowledged."""
    async with asyncio.timeout(PATIENCE_S):
        while await device.states() != [ReportState.ACKED]:
            pass  # each look opens the memory: no busy loop


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
