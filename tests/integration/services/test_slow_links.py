"""Devices, relays, brokers and services a long way from one another: everything still arrives."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.drawing import prepare
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundOutcome, RoundState, take_part
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.clients.transports.rounds_transport import GrpcRoundTransport
from shoal.clocks.clock import FakeClock
from shoal.crypto.envelope import verify_receipt
from shoal.crypto.signing import SigningKey
from shoal.domain import Norm, Vector
from shoal.limits import LIMITS
from shoal.questions.places import Places
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.service import Shuffler
from tests.integration.agent.test_agent import HOUR, Owner, now
from tests.sizes import FULL, size
from tests.unit.clients.test_core import assignment_of
from tests.worlds.devices.clients import CA, FarEnd, make_world
from tests.worlds.mqtt.bridge import Bridge, honest
from tests.worlds.mqtt.broker import Broker
from tests.worlds.rounds import services as rounds_world
from tests.worlds.services import shuffler as shuffler_world
from tests.worlds.slow_link import SlowLink

# Round trips in seconds and shares of lost segments. A link of 2 s takes some 20 s of waiting, and
# is tried at full counts alone.
LINKS = (
    [(rtt_s, loss) for rtt_s in (0.0, 0.1, 0.4, 2.0) for loss in (0.0, 0.2)]
    if FULL
    else [(0.15, 0.2)]
)


TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_554_000, 6, 6)
# two uploads of each device, which end inside a segment
LONG = {"dimension": 66_000, "segment_words": 20_000, "target_epsilon": 1e12}


class Running(FakeClock):
    """Goes on by itself from where the tasks of tests begin."""

    def __init__(self) -> None:
        super().__init__(shuffler_world.START + 1.0)
        self._began = time.monotonic()

    def now(self) -> float:
        return super().now() + time.monotonic() - self._began


def owner_at(folder: Path, link: SlowLink) -> Owner:
    """A device whose shuffler is behind ``link``."""
    folder.mkdir(parents=True)
    world = make_world(link.address, start=now() - HOUR // 2, length=HOUR)
    return Owner(folder, world)


async def by_hand(folder: Path, link: SlowLink) -> None:
    """A report, and on another device a flush, over the command line, as their owners give them."""
    far = FarEnd([])
    async with far.serving():
        link.target = far.port
        async with link.open():
            one, other = (owner_at(folder / name, link) for name in ("one", "other"))
            far.hops[:] = [one.world.hop, other.world.hop]
            await asyncio.gather(reported(one), flushed(other))
    assert len(far.frames) == 2


async def reported(owner: Owner) -> None:
    outcome = await owner.json("report", "visits", "3")
    assert (outcome["state"], outcome["attempts"]) == ("acked", 1)


async def flushed(owner: Owner) -> None:
    assert (await owner.json("report", "--queue", "visits", "3"))["state"] == "queued"
    (outcome,) = await owner.json("flush")
    assert (outcome["state"], outcome["attempts"]) == ("acked", 1)


async def by_batch(link: SlowLink) -> None:
    """What a relay or a load test sends: many frames in one call. Answers, places and vectors."""
    world, place, vector = (
        make_world(),
        make_world(domain=TOWN, mechanism="planar"),
        make_world(domain=Vector(64, Norm.L2, 1.0, 65_536), mechanism="privunit"),
    )
    far = FarEnd([one.hop for one in (world, place, vector)])
    many = [prepare(assignment_of(world), 0, value % 6) for value in range(size(60, 600))]
    many += [prepare(assignment_of(place), 0, "48.12, 11.52") for _ in range(10)]
    many += [prepare(assignment_of(vector), 0, str([0.5] * 64)) for _ in range(10)]
    async with far.serving():
        link.target = far.port
        async with link.open():
            transport = GrpcTransport(link.address, CA, private_pool=True)
            try:
                receipts = await transport.submit_batch(
                    [one.frame for one in many],
                    [one.ack_key for one in many],
                    LIMITS.send_deadline_s,
                )
            finally:
                await transport.close()
    for one, receipt in zip(many, receipts, strict=True):
        verify_receipt(one.ack_key, receipt.status, one.frame, receipt.mac)
    assert link.opened == 1


async def by_broker(link: SlowLink) -> None:
    """Through a broker that is far from the devices."""
    world, key = make_world(), SigningKey.generate().public
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker())
        await stack.enter_async_context(Bridge(broker.settings, key, honest(FarEnd([world.hop]))))
        link.target = broker.port
        await stack.enter_async_context(link.open())
        transport = MqttTransport(replace(broker.settings, port=link.port), key)
        stack.push_async_callback(transport.close)
        for value in range(2):
            one = prepare(assignment_of(world), 0, value)
            verify_receipt(
                one.ack_key,
                0,
                one.frame,
                await transport.submit(one.frame, one.ack_key, LIMITS.send_deadline_s),
            )
    assert link.opened == 1


async def to_the_analyzer(folder: Path, link: SlowLink, most: int = 1) -> None:
    """A batch from a shuffler to an analyzer that is far from it, of reports of 1 to ``most``
    messages; where these are several, the devices are as far from the shuffler.
    """
    world, clock = shuffler_world.World(folder), Running()
    count = size(40, 1_000)
    published = world.publish(max_batch=count, messages=most, fewest_messages=1 if most > 1 else 0)
    analyzer = shuffler_world.AnalyzerEnd(world)
    async with AsyncExitStack() as stack:
        link.target = int((await analyzer.start()).rpartition(":")[2])
        stack.push_async_callback(analyzer.stop)
        await stack.enter_async_context(link.open())
        shuffler = await stack.enter_async_context(
            Shuffler(world.config(f"127.0.0.1:{link.port}"), clock=clock)
        )
        port = shuffler.port
        if most > 1:
            here = replace(link, target=port, seed=link.seed + 1)
            port = (await stack.enter_async_context(here.open())).port
        channel = build_channel(f"127.0.0.1:{port}", shuffler_world.CA.cert_pem, private_pool=True)
        stack.push_async_callback(channel.close)
        reports = [
            tuple(published.sealed() for _ in range(1 + number % most)) for number in range(count)
        ]
        for at in range(0, count, 200):
            frames = [published.bundle(one) for one in reports[at : at + 200]]
            await call(
                channel, "/shoal.v1.Ingress/SubmitBatch", shuffler_world.submit_batch(frames), 60.0
            )
        window = WindowId(published.task_id, 0)
        while (  # noqa: ASYNC110
            record := shuffler.store.record(window)
        ) is None or record.state is not WindowState.SHREDDED:
            await asyncio.sleep(0.05)
    assert (record.outcome, record.reports) == (WindowState.ACKNOWLEDGED, count)
    sent = sorted(message for report in reports for message in report)
    assert [sorted(rows) for rows in analyzer.delivered.values()] == [sent]


async def short(seconds: float) -> None:
    """A device's pause between two polls, which are seconds long by themselves."""
    await asyncio.sleep(seconds / 10)


async def by_rounds(folder: Path, link: SlowLink, **changes: Any) -> None:
    """A sum, in rounds whose phases are as long as tasks have them by default: devices far from the
    shuffler, it far from the analyzer. ``changes``: of the task.
    """
    world = rounds_world.World(
        folder, devices=4, dropout_ppm=100_000, honest_ppm=990_000, **changes
    )
    devices, one, onward = (
        world.devices(4),
        rounds_world.Running(world),
        replace(link, seed=link.seed + 1),
    )
    one.clock = Running()
    terms = one.world.terms
    async with AsyncExitStack() as stack:
        stack.push_async_callback(one.close)
        await one.start_analyzer()
        onward.target = one.analyzer_port
        await stack.enter_async_context(onward.open())
        one.analyzer_port = onward.port
        await one.start_shuffler()
        link.target = one.shuffler.port
        await stack.enter_async_context(link.open())
        hop, until = (
            world.published.served.keys.hop_keys[0],
            shuffler_world.START + shuffler_world.LENGTH,
        )

        async def part(device: rounds_world.Device) -> RoundOutcome:
            transport = GrpcRoundTransport(
                link.address, shuffler_world.CA.cert_pem, private_pool=True
            )
            stack.push_async_callback(transport.close)
            line = RoundLine(
                hop, transport, one.clock, until, sleep=asyncio.sleep if FULL else short
            )
            # as an agent does: a round that too few joined in time cost nothing, and the next one
            # is joined
            while True:
                outcome = await take_part(
                    terms, device.identity, device.vector, device.ledger, line
                )
                if outcome.charged or outcome.state is not RoundState.ABORTED:
                    return outcome

        outcomes = await asyncio.gather(*(part(device) for device in devices))
        assert [outcome.state for outcome in outcomes] == [RoundState.COUNTED] * len(devices), (
            outcomes
        )
        (stored,) = one.sums()
        assert stored.vector.tolist() == rounds_world.total(devices)


@pytest.mark.parametrize(("rtt_s", "loss"), LINKS)
async def test_everything_arrives_over_a_long_link(
    rtt_s: float, loss: float, tmp_path: Path
) -> None:
    """Each way by a link of its own, all at the same time: most of it is waiting.

    Planted: attempts to connect that end after 200 ms -> a report by hand is queued, and a batch
    can't be sent; services, which try again and again, take longer. Planted: mqtt_connect_s = 0.3
    -> the broker's way fails.
    """
    ways = ("hand", "batch", "broker", "analyzer", "several", "rounds", "long")
    links = {way: SlowLink(0, rtt_s, loss, seed=number) for number, way in enumerate(ways)}
    async with asyncio.TaskGroup() as together:
        together.create_task(by_hand(tmp_path / "device", links["hand"]))
        together.create_task(by_batch(links["batch"]))
        together.create_task(by_broker(links["broker"]))
        together.create_task(to_the_analyzer(tmp_path / "shuffler", links["analyzer"]))
        together.create_task(to_the_analyzer(tmp_path / "several", links["several"], most=4))
        together.create_task(by_rounds(tmp_path / "rounds", links["rounds"]))
        together.create_task(by_rounds(tmp_path / "long", links["long"], **LONG))


@pytest.mark.parametrize("command", [("report", "visits", "3"), ("flush",)])
async def test_ctrl_c_ends_a_command_that_waits_for_its_network(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The far end took the connection and says nothing. The report stays, whatever was under
    way.
    """
    link = SlowLink(0, dead=True)
    async with link.open():
        owner = owner_at(tmp_path / "device", link)
        if command[0] == "flush":
            await owner.run("report", "--queue", "visits", "3")
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "agent",
                command[0],
                "--config",
                str(owner.folder / "agent.toml"),
                *command[1:],
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ,
        )
        await link.met.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, out) == (130, b"")
        assert b"Traceback" not in err
        (held,) = (await owner.json("status"))["reports"]
        # a report asks whether it may be taken first
        assert (held["state"], held["attempts"]) == ("queued", int(command[0] == "flush"))
