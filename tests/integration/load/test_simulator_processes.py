"""Processes of a simulated fleet: one schedule, and none is left when one dies or is stopped."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time

import pytest

from shoal.clients.fleet.arrivals import Arrivals
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import Progress
from shoal.clients.fleet.share import NOT_SENT, Share, SimulatedTask
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.fleet.simulator import simulate
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import DirectTransport, FarEnd, make_world
from tests.worlds.devices.fleet import HandClock, children, plan_of, worlds_at


async def test_processes_share_one_schedule() -> None:
    """Device by device in turn, so that two shares together keep the rate. Planted: each its own
    counter -> twice the rate.
    """
    world = make_world(start=int(time.time()) - 10)
    due: dict[int, list[float]] = {}
    for first in range(2):
        clock = HandClock()
        task = SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(3)))
        share = Share(
            (task, task),
            world.authorities,
            first,
            2,
            1,
            Carrier.GRPC,
            Arrivals.steady(12, 10.0),
            5.0,
            5.0,
        )
        simulation = FleetSimulation(
            share, [DirectTransport(FarEnd([world.hop]))], 1_000.0, now=clock.now, sleep=clock.sleep
        )
        due[first] = [
            round(simulation._due(task_number, device) - 1_000.0, 6)
            for device in range(3)
            for task_number in range(2)
        ]
    assert due == {0: [0.0, 0.1, 0.4, 0.5, 0.8, 0.9], 1: [0.2, 0.3, 0.6, 0.7, 1.0, 1.1]}


def busy_far_end() -> tuple[asyncio.Event, FarEnd]:
    """One that answers OVERLOADED for ever, and an event for its first frame."""
    begun = asyncio.Event()

    def script(_number: int, _frame: bytes) -> ShoalError:
        begun.set()
        return ShoalError(Kind.OVERLOADED, "busy")

    return begun, FarEnd([], script)


async def test_a_process_that_dies_ends_the_simulation_with_an_error() -> None:
    """Planted: wait for the others only -> this hangs."""
    begun, busy = busy_far_end()
    async with busy.serving() as far:
        worlds = worlds_at(far)
        running = asyncio.create_task(simulate(plan_of(worlds, 50)))
        await begun.wait()
        children = [
            child
            for child in multiprocessing.active_children()
            if child.name.startswith("devices-")
        ]
        assert len(children) == 2
        assert children[0].pid is not None
        os.kill(children[0].pid, signal.SIGKILL)
        with pytest.raises(ShoalError) as caught:
            await running
        assert caught.value.kind is Kind.INTERNAL
        assert not [
            child
            for child in multiprocessing.active_children()
            if child.name.startswith("devices-")
        ]


async def test_cancelling_ends_the_processes() -> None:
    begun, busy = busy_far_end()
    async with busy.serving() as far:
        worlds = worlds_at(far)
        running = asyncio.create_task(simulate(plan_of(worlds, 50)))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [
            child
            for child in multiprocessing.active_children()
            if child.name.startswith("devices-")
        ]


async def test_stopping_keeps_what_was_measured() -> None:
    """Reports that are due over an hour, stopped after the first ones. Planted: cancel in place of
    stopping -> no result.
    """
    stop = asyncio.Event()

    def look(now: Progress) -> None:
        if now.acked:
            stop.set()

    async with FarEnd([]).serving() as far:
        result = await simulate(plan_of(worlds_at(far)[:1], 50, over_s=3_600.0), look, stop)
    assert result.interrupted
    assert 1 <= result.acked <= result.acked + result.unknown == result.sent < 50
    assert result.outcomes[0].count(NOT_SENT) == 50 - result.sent
    assert len(far.contents) >= result.acked
    assert children() == []


async def test_stopping_while_encapsulations_are_made_sends_nothing() -> None:
    """Planted: wait for the processes to be ready first -> it takes as long as making all of
    them.
    """
    stop, parts = asyncio.Event(), list[float]()

    def preparing(part: float) -> None:
        parts.append(part)
        stop.set()

    async with FarEnd([]).serving() as far:
        result = await simulate(
            plan_of(worlds_at(far)[:1], 40_000, prepare=True), None, stop, preparing
        )
    assert result.interrupted
    assert (result.sent, result.acked, far.frames) == (0, 0, [])
    assert 0 < parts[-1] < 1
    assert children() == []
