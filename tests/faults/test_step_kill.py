"""Analyzer and shuffler are killed at every point of a step of a discovery: what was told to
anybody is what is told afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.discovery.steps import POINT as ANALYZER
from shoal.shuffler.asked_steps import POINT as SHUFFLER
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas.steps import SharedSteps
from tests.unit.analyzer.discovery.test_steps import Desk
from tests.unit.shuffler.test_asked_steps import FIRST, OTHER, WORLD, Bench
from tests.worlds import postgres
from tests.worlds.replica_stores import SHUFFLER as REPLICA
from tests.worlds.services.analyzer import LENGTH
from tests.worlds.step_books import asking
from tests.worlds.words import words_world

_ALONE = "SHOAL_STEP_KILL"  # set in a process of its own: a fork beside other tests' threads hangs
alone = pytest.mark.skipif(_ALONE not in os.environ, reason="runs in a process of its own")


@pytest.mark.skipif(_ALONE in os.environ, reason="this is that process")
@pytest.mark.timeout(240)
def test_all_kills_in_a_process_of_their_own() -> None:
    """Those below."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, _ALONE: "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


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


@alone
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


@alone
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


@alone
@pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
@pytest.mark.parametrize(
    ("point", "entered"),
    [
        ("postgresql.step", False),
        ("postgresql.step.done", True),
        (f"{SHUFFLER}.rename", True),
        (f"{SHUFFLER}.renamed", True),
    ],
)
async def test_replicas_tell_one_step_though_the_first_to_hear_it_is_killed(
    tmp_path: Path, point: str, entered: bool
) -> None:
    """Between its row and its file, too. Another one is offered another step since; the one that
    was killed comes back with what it has. Planted: kept before it is entered -> killed then, it
    is not the one that others tell: the last two cases fail.
    """
    dsn = postgres.shared().database()

    async def hear(name: str, *steps: bytes) -> tuple[bytes, ...]:
        async with await Database.open(dsn, REPLICA, connections=2) as database:
            one = asking(SharedSteps(database), tmp_path / name, 1.0, WORLD)
            await one.look()
            await one.hear(steps)
            return one.listed()

    await hear("two")
    killed_at(point, lambda: asyncio.run(hear("one", FIRST.data)))
    told = (FIRST.data,) if entered else (OTHER.data,)
    assert await hear("two", OTHER.data) == told
    assert await hear("one") == told
    assert await hear("one", FIRST.data, OTHER.data) == told
