"""An agent on a disk that is full, or read-only: a single pass ends and says which, and nothing is
lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.clients.service.runner import Runner
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.runner import HOUR, Place, place_at
from tests.worlds.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def device(disk: SmallDisk, quick: None) -> Place:
    return place_at(disk.folder)


async def failure(device: Place, runner: Runner | None = None) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        await (runner or device.runner()).once(device.config)
    assert caught.value.kind is Kind.OVERLOADED
    assert "\n" not in caught.value.message
    return caught.value


async def test_a_single_pass_ends_on_a_full_disk_and_says_why(
    device: Place, disk: SmallDisk
) -> None:
    """Before there is a memory, and with one; then it goes on. Planted: the pass waits for room ->
    it never ends.
    """
    disk.fill()
    assert "the disk is full" in (await failure(device)).message
    disk.restore()
    assert len(await device.runner().once(device.config)) == 1
    device.clock.advance(HOUR)
    disk.fill()
    assert "the disk is full" in (await failure(device)).message
    disk.restore()
    assert len(await device.runner().once(device.config)) == 1
    assert device.windows() == [0, 1]


async def test_a_disk_that_fills_up_during_the_pass(
    device: Place, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the memory and the answer: what waits is tried all the same, then the pass
    fails.

    Planted: the failure logged alone -> the pass ends well, "nothing to send".
    """
    device.transport.down = True
    await device.runner().once(device.config)  # waits
    device.clock.advance(HOUR)
    device.transport.down = False
    runner = device.runner()
    fed = runner._sources

    def then_full(agent: object) -> None:
        fed(agent)  # type: ignore[arg-type]
        disk.fill()

    monkeypatch.setattr(runner, "_sources", then_full)
    message = (await failure(device, runner)).message
    assert "the disk is full" in message
    disk.restore()
    await device.runner().once(device.config)
    assert device.windows() == [0, 1]
    assert len(device.far.contents) == 2


async def test_a_read_only_disk_is_called_that(device: Place, disk: SmallDisk) -> None:
    """Planted: EROFS among what a full disk says -> "make room"."""
    await device.runner().once(device.config)
    device.clock.advance(HOUR)
    disk.read_only()
    if not disk.real and os.geteuid() == 0:
        return  # root without a disk of its own: nothing is read-only for it
    assert "read-only" in (await failure(device)).message
    disk.restore()
    assert len(await device.runner().once(device.config)) == 1
