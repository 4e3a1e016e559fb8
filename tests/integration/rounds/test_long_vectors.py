"""Long vectors through real services: in segments from the device to the sum, and released as one
array. The reduced dimension has more segments than the full one; the full one is ten million.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import failpoints
from shoal.analyzer.results.checkable import checkable
from shoal.analyzer.results.totals import FOLDER
from shoal.checker.check import check_release
from shoal.checker.findings import Outcome, Statement
from shoal.cli.main import main
from shoal.clients.rounds.participation import RoundState
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.shuffler.rounds.collection import GrpcCollection
from tests.sizes import size
from tests.worlds.rounds.services import Running, Wire, World, running

DIMENSION = size(150_000, 10_000_000)  # of 32 bits: three chunks of an upload, or 153
SEGMENT = size(7_000, LIMITS.segment_words)
DEVICES = size(8, 8)


class Breaking(Wire):
    """A line that breaks with every second chunk of an upload: half of these before the shuffler
    has it, half after it.
    """

    def __init__(self, inner: RoundTransport, world: World) -> None:
        super().__init__(inner, world)
        self.broken = 0

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        passed = len(self.kinds)
        before = self.kinds.count("upload")
        if passed and self.broken < before and before % 2:
            self.broken = before
            if before % 4 == 1:
                raise ShoalError(Kind.UNAVAILABLE, "the connection broke")
            await super().exchange(frame, deadline_s)
            raise ShoalError(Kind.UNAVAILABLE, "the connection broke before the answer")
        return await super().exchange(frame, deadline_s)


async def released(one: Running) -> Path:
    """The window's end; the analyzer's folder."""
    plan = one.world.published.served.task.windows
    await one.advance(plan.length_s + plan.grace_s + 1)
    task_id = one.world.published.task_id
    await one.until(lambda: one.store.released(task_id, 0))
    return one.store.folder


async def test_a_long_vector_is_summed_and_released_as_an_array(tmp_path: Path) -> None:
    """One device's line breaks again and again while it uploads; the sum is exact all the same, and
    the array is what was signed until a byte of it changes.

    Planted: an upload that begins anew after a broken line -> CONFLICT, and the device is lost; a
    sum without its last segment -> fails.
    """
    world = World(
        tmp_path,
        devices=DEVICES,
        dimension=DIMENSION,
        segment_words=SEGMENT,
        survivors_min=6,
        target_epsilon=1e12,  # vectors of so many coordinates, each as large as the clip
    )
    devices = world.devices(DEVICES)
    async with running(world) as one:
        wire = Breaking(one.transport(), world)
        breaking = asyncio.create_task(one.take_part(devices[0], wire))
        outcomes = [await breaking_or(task) for task in [breaking, *one.begin(devices[1:])]]
        assert outcomes == [RoundState.COUNTED] * DEVICES
        assert wire.broken > 0
        exact = np.sum([device.vector for device in devices], axis=0)
        (stored,) = one.sums()
        np.testing.assert_array_equal(stored.vector, exact)
        folder = await released(one)
        await one.until(lambda: not list((folder / "sums").iterdir()))
        np.testing.assert_array_equal(np.load(next((folder / FOLDER).iterdir())), exact)
        totals = shoal.read_release(folder).array("weights")
        np.testing.assert_allclose(totals[-5:], exact[-5:] / 16)
        ((name, data),) = checkable(world.analyzer_config())
    beside = tmp_path / "published"
    beside.mkdir()
    (array,) = (folder / FOLDER).iterdir()
    authority = world.shuffler.authority.public
    assert told(data, authority, beside).outcome is Outcome.OPEN  # no array lies there
    shutil.copy(array, beside)
    assert told(data, authority, beside).outcome is Outcome.HOLDS
    (beside / name).write_bytes(data)
    command = ["verify", str(beside), "--authority", authority.hex(), "--accept-open"]
    assert main(command) == 0
    with (beside / array.name).open("r+b") as file:
        file.seek(-9, 2)
        byte = file.read(1)
        file.seek(-9, 2)
        file.write(bytes([byte[0] ^ 1]))
    assert told(data, authority, beside).outcome is Outcome.WRONG
    assert main(command) == 1


async def breaking_or(task: asyncio.Task[object]) -> RoundState:
    return (await task).state  # type: ignore[attr-defined, no-any-return]


def told(data: bytes, authority: bytes, folder: Path) -> Statement:
    """What is said of the array; of the rest nothing is wrong."""
    checked = check_release(data, {authority}, folder).checked
    (found,) = [one for one in checked if one.what.startswith("the array")]
    assert not [one for one in checked if one.outcome is Outcome.WRONG and one is not found]
    return found


async def test_a_full_disk_costs_no_sum(tmp_path: Path) -> None:
    """At the analyzer, when a round's sum is to be kept: its shuffler asks again, and the sum is
    there. Planted: the sum forgotten with the first attempt -> fails.
    """
    world = World(tmp_path, devices=6, dimension=500, segment_words=64, survivors_min=4)
    devices = world.devices(6)
    failpoints.arm("analyzer.sum_file.rename=enospc@1")
    try:
        async with running(world) as one:
            outcomes = await asyncio.gather(*one.begin(devices))
            assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
            (stored,) = one.sums()
            exact = np.sum([device.vector for device in devices], axis=0)
            assert stored.vector.tolist() == exact.tolist()
    finally:
        failpoints.arm("")


async def test_a_delivery_that_breaks_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the shuffler to the analyzer, in the middle of the third row: the whole rows before are
    not added again. Planted: half a row added, or the first rows twice -> the sum does not check,
    and the round has none.
    """
    whole, broken = GrpcCollection._chunks, list[int]()

    async def cut(self: GrpcCollection, *args: Any) -> AsyncIterator[bytes]:
        async for chunk in whole(self, *args):
            if len(broken) == 4:
                broken.append(0)
                raise ShoalError(Kind.UNAVAILABLE, "the connection broke")
            if len(broken) < 4:
                broken.append(len(chunk))
            yield chunk

    monkeypatch.setattr(GrpcCollection, "_chunks", cut)
    world = World(tmp_path, devices=6, dimension=100_000, segment_words=9_000, survivors_min=4)
    devices = world.devices(6)
    async with running(world) as one:
        outcomes = await asyncio.gather(*one.begin(devices))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        assert len(broken) == 5
        (stored,) = one.sums()
        np.testing.assert_array_equal(stored.vector, sum(device.vector for device in devices))
