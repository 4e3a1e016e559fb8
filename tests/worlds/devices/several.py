"""Worlds whose devices send several messages, or whose shuffler adds some."""

from __future__ import annotations

from dataclasses import replace

from shoal.accounting.several_messages.of_domain import design_several
from shoal.domain import YesNo
from tests.worlds.devices.clients import START, World, make_world
from tests.worlds.tasks import shaped, without_empties


def several(
    count: int = 4,
    start: int = START,
    epsilon0: float | None = None,
    *,
    delta: float = 1e-8,
    windows: int | None = None,
    min_batch: int = 1_000,
    hidden: bool = True,
) -> World:
    """A world whose task is a signed count, designed for its smallest batch and for ``windows``
    (None: ``count``). ``epsilon0``: if shuffler and analyzer work together. Not ``hidden``: as
    tasks were before there were empty messages. (With the usual ``min_batch`` submissions are full,
    with 100,000 they are not.)
    """
    world = make_world(
        domain=YesNo(), mechanism="binary_rr", count=count, start=start, min_batch=min_batch
    )
    spec = design_several(
        "signed_count",
        YesNo(),
        world.task.n_certified,
        1.0,
        delta,
        windows=windows or count,
        epsilon0_if_colluding=epsilon0,
    )
    task = shaped(spec, YesNo(), world.task, delta=delta)
    world.task = task if hidden else without_empties(task)
    world.sign()
    return world


def noisy() -> World:
    """A world whose task trusts the shuffler to add noise."""
    world = make_world(domain=YesNo(), mechanism="binary_rr")
    spec = design_several("shuffler_noise", YesNo(), 900, 1.0, 1e-8, windows=4)
    world.task = replace(world.task, mechanism=spec)
    world.sign()
    return world
