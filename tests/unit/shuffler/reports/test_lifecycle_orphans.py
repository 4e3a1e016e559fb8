"""Windows whose task is not served, and the rest of a shuffler's work beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.shuffler.core import WindowState as S
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    await one.stop()


async def test_a_window_without_its_task_waits_and_the_others_go_on(line: Line) -> None:
    """Sealed and not delivered when its files went; it is delivered when they are back, without
    another start.

    Planted: the tick looks its task up -> every tick fails, and nothing is closed any more: fails.
    """
    lost, other = line.world.publish(name="lost"), line.world.publish(name="other")
    line.start()
    await line.submit(lost, 3)
    await line.submit(other, 3, window=1)
    line.answers = line.sink.answers = [False]
    await line.tick(DEADLINE, times=1)
    assert line.state(lost) not in {S.OPEN, S.SHREDDED}
    await line.stop()
    away = [
        path.rename(line.world.folder / path.name) for path in line.world.tasks_dir.glob("lost.*")
    ]
    line.answers = []
    line.start()
    held = line.state(lost)
    await line.tick(DEADLINE + 3_600, times=3)
    assert line.state(lost) is held
    assert line.state(other, 1) is S.SHREDDED
    for path in away:
        path.rename(line.world.tasks_dir / path.name)
    assert line.book.refresh()
    await line.tick(DEADLINE + 3_700, times=3)
    assert line.state(lost) is S.SHREDDED
    assert len(line.sink.batches) == 2
