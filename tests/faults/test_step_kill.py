"""Analyzer and shuffler are killed at every point of a step of a discovery: what was told to
anybody is what is told afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.discovery.steps import POINT as ANALYZER
from shoal.shuffler.asked_steps import POINT as SHUFFLER
from tests.unit.analyzer.discovery.test_steps import Desk
from tests.unit.shuffler.test_asked_steps import FIRST, OTHER, WORLD, Bench
from tests.worlds.services.analyzer import LENGTH
from tests.worlds.words import words_world


def killed_at(point: str, act: Callable[[], object]) -> None:
    """Do it in a process that ends at that point, and must get there."""
    child = os.fork()
    if child == 0:
        try:
            failpoints.arm(f"{point}=exit@1")
            act()
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (f"{ANALYZER}.rename", False),
        (f"{ANALYZER}.renamed", True),
        ("analyzer.discovery.step", True),
    ],
)
def test_an_analyzer_that_is_killed_asks_the_same_or_nobody_knows_of_it(
    tmp_path: Path, point: str, told: bool
) -> None:
    """Started again at once it asks the same bytes. When that window has run for half: what may
    have been told stands, and else the next window is asked. Planted: told before the file is
    whole -> the last case; a file written in its place -> the first.
    """
    world = words_world()
    for name, later in (("soon", 0.1), ("late", 0.6)):
        (tmp_path / name).mkdir()
        first = Desk(tmp_path / name, world)
        first.release(0)
        first.store.close()

        def act(folder: Path = tmp_path / name) -> None:
            desk = Desk(folder, world)
            desk.clock.advance(LENGTH)
            desk.steps.look()

        killed_at(point, act)
        again = Desk(tmp_path / name, world)
        step = again.last()
        assert (step is not None) is told
        again.clock.advance(LENGTH * (1 + later))
        again.steps.look()
        after = again.last()
        assert after is not None
        assert after == step or not told
        assert after.step.window == (1 if told or name == "soon" else 2)
        again.store.close()


@pytest.mark.parametrize(
    ("point", "kept"), [(f"{SHUFFLER}.rename", False), (f"{SHUFFLER}.renamed", True)]
)
async def test_a_shuffler_that_is_killed_tells_one_step(
    tmp_path: Path, point: str, kept: bool
) -> None:
    """What it may have told a device is what it tells from then on, though another is offered.
    Planted: as above.
    """
    killed_at(point, lambda: asyncio.run(Bench(tmp_path, WORLD).steps.hear([FIRST.data])))
    again = Bench(tmp_path, WORLD)
    assert again.steps.listed() == ((FIRST.data,) if kept else ())
    await again.steps.hear([OTHER.data])
    one = FIRST if kept else OTHER
    assert again.steps.listed() == (one.data,)
    for step in (FIRST, OTHER):
        assert (again.steps.find(step.name) is not None) is (step is one)
