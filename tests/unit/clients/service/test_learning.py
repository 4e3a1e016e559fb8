"""The models of a running device: nothing waits for a dead disk, and nothing but a model's own task
is asked by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.rounds import followed
from shoal.clients.rounds.release_files import HandedRelease, read_release
from shoal.clients.service.learning import ModelsInFolders, missing
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import START, World
from tests.worlds.devices.explained import assignment_of
from tests.worlds.devices.runner import HOUR, Place
from tests.worlds.devices.sources import gone
from tests.worlds.learning import learning_world, release_file

TOTALS = (9.0, -4.5, 1.8)
PATIENT_S = 60.0
SHORT_S = 0.05


@pytest.fixture(scope="module")
def world() -> World:
    return learning_world()


async def test_a_dead_disk_keeps_nobody(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window waits, with a line; a second look starts no second thread; and what was read when
    the disk came back counts. Planted: ``asyncio.to_thread`` instead of a thread of its own -> the
    test runs into its time limit.
    """
    over, reading = threading.Event(), []

    def dead(file: Path) -> HandedRelease:
        reading.append(file.name)
        over.wait()
        return read_release(file)

    monkeypatch.setattr(followed, "read_release", dead)
    release_file(world, tmp_path / "0.json", 0, TOTALS)
    models, assignment = ModelsInFolders(), assignment_of(world)
    for said in ("took too long", "has not come back"):
        with pytest.raises(ShoalError, match=said) as caught:
            await models.at(assignment, tmp_path, 1, SHORT_S)
        assert caught.value.kind is Kind.UNAVAILABLE
    assert "has not come back" in await missing(assignment, tmp_path, 1, SHORT_S)
    assert reading == ["0.json"]
    over.set()
    await gone("source")
    assert (await models.at(assignment, tmp_path, 1, PATIENT_S)).done == 1
    assert reading == ["0.json", "0.json"]  # looked at, and followed


async def test_a_model_is_kept_until_its_task_is_forgotten(world: World, tmp_path: Path) -> None:
    """Planted: nothing forgotten -> the model of a task that was withdrawn stays, fails."""
    release_file(world, tmp_path / "0.json", 0, TOTALS)
    models, assignment = ModelsInFolders(), assignment_of(world)
    state = await models.at(assignment, tmp_path, 1, PATIENT_S)
    assert await models.at(assignment, tmp_path, 1, PATIENT_S) is state
    found = await models.answer(assignment, tmp_path, state, '{"row": [1, 2], "yes": false}')
    assert found is not None
    assert found.shape == (3,)
    models.forget(assignment.task_id)
    assert await models.at(assignment, tmp_path, 1, PATIENT_S) is not state


async def test_releases_for_a_task_that_learns_nothing_are_refused(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Said once, and no window is answered, whatever the value is. Planted: the key passed over ->
    reports, fails.
    """
    file = place.folder / "agent.toml"
    file.write_text(file.read_text().replace('kind = "json"', 'kind = "json"\nreleases = "."'))
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.windows() == []
    assert place.entries(LedgerEvent.REPORTED) == []
    told = [one for one in logged() if one["event"] == "window gets no report"]
    assert len(told) == 1
    assert "learns no model" in told[0]["error"]
