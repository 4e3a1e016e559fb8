"""Loads that several tests ask for."""

from __future__ import annotations

from shoal.cli.load.tasks import Target
from shoal.crypto.trust import serve_task
from tests.worlds.devices.clients import World


def target_of_world(world: World, window: int = 0) -> Target:
    served = serve_task(world.signed_task, world.signed_schedule, world.authorities)
    return Target(served, world.signed_task, world.signed_schedule, world.authority.public, window)
