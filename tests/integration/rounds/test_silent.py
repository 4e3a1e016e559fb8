"""Devices that join rounds and fall silent: they end a few, and not every round of the window."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from shoal.clients.rounds.participation import RoundState
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.records import Reason
from shoal.errors import Kind, ShoalError
from shoal.shuffler.rounds.seats import MOST_LEFT
from tests.worlds.rounds.services import Device, Running, Wire, World, running, total

COHORT = 12  # of which a quarter may be lost
SILENT = 4


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path, devices=COHORT)) as both:
        yield both


async def silence_a_round(one: Running, silent: Sequence[Device], honest: Sequence[Device]) -> None:
    """A full cohort joins; the silent ones are never heard of again, and the phase passes."""
    before = sum(one.rounds.ended.values())
    wires = [Wire(one.transport(), one.world, "shares") for _ in silent]
    lost = [
        asyncio.create_task(one.take_part(device, wire))
        for device, wire in zip(silent, wires, strict=True)
    ]
    others = one.begin(honest)
    await one.until(
        lambda: one.counts().get("shared") == len(honest) and one.counts()["joined"] == COHORT
    )
    await one.advance(61)
    outcomes = await asyncio.gather(*others)
    assert {outcome.state for outcome in outcomes} == {RoundState.ABORTED}
    assert {outcome.charged for outcome in outcomes} == {False}
    for task in lost:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await one.until(lambda: sum(one.rounds.ended.values()) == before + 1)


async def test_silent_devices_end_three_rounds_and_no_more(one: Running) -> None:
    """Who was there all the time keeps its place. Planted: ``left`` never counted
    (Seats.end) -> the fourth round takes them; everybody of an aborted round counted ->
    the honest ones get no seat.
    """
    silent, honest = one.world.devices(SILENT), one.world.devices(COHORT - SILENT)
    for _ in range(MOST_LEFT):
        await silence_a_round(one, silent, honest)
    assert one.rounds.ended == {Reason.TOO_FEW_SHARED.value: MOST_LEFT}
    late = one.world.devices(SILENT)
    there = one.begin(honest)
    await one.until(lambda: one.counts().get("joined") == len(honest))
    live, *_ = one.rounds._under_way
    for device in silent:
        join = DeviceRound(one.world.terms, device.identity).join(
            live.coordinator.offer, one.clock.now()
        )
        with pytest.raises(ShoalError) as refused:
            await one.rounds.join(bytes(16), join)
        assert refused.value.kind is Kind.TOO_EARLY
    outcomes = await asyncio.gather(*there, *one.begin(late))
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    (made,) = one.sums()
    assert made.vector.tolist() == total([*honest, *late])
