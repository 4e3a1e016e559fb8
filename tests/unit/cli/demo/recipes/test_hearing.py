"""Who follows a discovery waits for no window that can't come."""

from __future__ import annotations

import time
from dataclasses import replace

from shoal.cli.demo.recipes.hearing import HeardSteps
from tests.worlds.ports import free_port
from tests.worlds.services.analyzer import TLS_CA
from tests.worlds.words import SMALL, step_of, words_world

WORLD = words_world()


def heard(begins: float) -> HeardSteps:
    """Windows of an hour from ``begins`` on, of a shuffler that is not there."""
    windows = replace(WORLD.task.windows, start_s=int(begins))
    address = f"127.0.0.1:{free_port()}"
    task = replace(
        WORLD.task,
        windows=windows,
        shuffler_address=address,
        shuffler_ca=TLS_CA.cert_pem,
    )
    return HeardSteps(task, WORLD.task_id)


async def test_nothing_comes_after_the_last_window_nor_when_all_are_over() -> None:
    """Planted: neither is looked at -> it waits for as long as its patience, and fails."""
    plan = WORLD.task.windows
    assert await heard(time.time()).after(plan.count - 1) is None
    assert await heard(time.time() - plan.count * plan.length_s - 1).after(0) is None


async def test_what_was_heard_comes_before_the_end() -> None:
    """The first later step, also when the windows are over. Planted: the end is looked at first ->
    None.
    """
    steps = heard(time.time() - WORLD.task.windows.count * WORLD.task.windows.length_s - 1)
    first = step_of(WORLD, 1, SMALL.level(1, [b"\x00"]))
    steps.steps |= {1: first, 3: step_of(WORLD, 3, SMALL.level(1, [b"\x00"]))}
    assert await steps.after(0) == first
