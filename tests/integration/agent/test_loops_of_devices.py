"""Loops of a device, and of who publishes its tasks, as they are wired: pauses grow and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from shoal.cli.task import publish as task_publish
from shoal.clients import core
from shoal.clients.core import ReportState
from shoal.clients.feeds import grpc_feed, mqtt_feed
from shoal.clients.feeds.feed import Feed
from shoal.clients.reports import attempts as attempts_module
from shoal.codec import TaskBundle
from shoal.crypto.trust import trust_task
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings
from tests.unit.clients.test_agent import Device
from tests.worlds.clock import DAY, Machine
from tests.worlds.devices.clients import WEEK, make_world
from tests.worlds.pauses import Longest, until
from tests.worlds.services.shuffler import START


async def test_a_device_tries_less_and_less_often_and_a_new_report_does_not_wait_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: ``attempts`` not handed to the pause -> it does not grow; no wake-up by a new report
    -> the last line never comes.
    """
    device, waits = Device(tmp_path, make_world()), list[float]()

    def shortened(
        attempts: int, _: Entropy, first_s: float, most_s: float, asked_s: float
    ) -> float:
        waits.append(core.pause(attempts, Longest(), 1.0, 3_600.0, asked_s))
        return waits[-1] / 1e6 if len(waits) < 14 else waits[-1]

    monkeypatch.setattr(attempts_module, "pause", shortened)
    device.transport.down = True
    async with device.agent(background=True) as agent:
        await agent.report("visits", 3, send=False)
        await until(lambda: len(waits) == 14)
        device.transport.down = False
        device.clock.advance(WEEK)
        await agent.report("visits", 3, send=False)
        await until(lambda: len(device.far.frames) == 1)
        assert [one.state for one in await agent.outcomes()].count(ReportState.QUEUED) == 1
    assert [round(one) for one in waits] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
        512,
        1_024,
        2_048,
        3_600,
        3_600,
    ]


@pytest.mark.parametrize("wrong", [0.0, 3_000.0], ids=["right", "wrong at the start"])
async def test_publishing_goes_on_through_a_jump_of_the_clock_and_ends_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """Planted: the end by the wall clock alone, or by steady time alone -> one round less, in one
    of the cases.
    """
    world = make_world(start=START, length=3_600, count=1)
    signed = task_publish.PublishedTask(
        trust_task(world.signed_task, world.authorities),
        TaskBundle(world.signed_task, b""),
        "visits",
    )
    machine, rounds = Machine(START + 60.0), 0
    machine.jumps(wrong)

    def put(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        match rounds:
            case 1:
                machine.jumps(30 * DAY - wrong)
            case 2:
                machine.jumps(-30 * DAY)
                machine.passes(600.0)
            case 3:
                machine.passes(3_600.0)

    monkeypatch.setattr(task_publish, "_put", put)
    async with asyncio.timeout(60):
        await task_publish._rounds(None, tmp_path, signed, 0.001, asyncio.Event(), machine)
    assert rounds == 3


@pytest.mark.parametrize("way", [grpc_feed, mqtt_feed], ids=["grpc", "mqtt"])
async def test_a_feed_that_fails_is_asked_less_and_less_often_and_begins_anew(
    way: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: failures not counted up, or not set back after a look that went well -> another row
    of pauses.
    """
    stop, pauses, looks = asyncio.Event(), list[float](), 0

    async def waited(_: asyncio.Event, seconds: float) -> bool:
        pauses.append(seconds)
        return stop.is_set()

    async def look(*_: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 14:
            stop.set()
        if looks != 12:
            raise ShoalError(Kind.UNAVAILABLE, "no")

    monkeypatch.setattr(way, "waited", waited)
    one: Feed
    if way is grpc_feed:
        one = grpc_feed.GrpcFeed(
            "localhost:1", b"", lambda *_: None, every_s=3_600.0, entropy=Longest(), insecure=True
        )
        monkeypatch.setattr(one, "once", look)
    else:
        one = mqtt_feed.MqttFeed(
            BrokerSettings("localhost", 1, insecure=True),
            lambda *_: None,
            every_s=3_600.0,
            entropy=Longest(),
        )
        monkeypatch.setattr(one, "_session", look)
    await one.run(stop)
    grown = [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600]
    # the gRPC feed waits here until its next look, the other one begins it at once
    between = pauses[11:-2]
    assert [round(seconds) for seconds in [*pauses[:11], *pauses[-2:]]] == [*grown, 5, 10]
    assert len(between) == (way is grpc_feed)
    assert all(seconds > 3_600 / 2 for seconds in between)
