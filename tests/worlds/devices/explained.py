"""Tasks and configurations whose explanations tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.clients.core import Assignment, assign
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.crypto.trust import trust_schedule, trust_task
from tests.worlds.devices.clients import World, make_world


def small_world(**changes: Any) -> World:
    """One whose certificate takes milliseconds."""
    return make_world(min_batch=100, **changes)


def assignment_of(world: World) -> Assignment:
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def config_of(world: World, **changes: Any) -> AgentConfig:
    policy = changes.pop("policy", None) or Policy(
        world.authorities, 4.0, 100, {world.task.purpose: "allowed"}, lifetime_epsilon=10.0
    )
    return AgentConfig(Path("/t"), Path("/o"), policy, **changes)


def text_of(lines: list[str]) -> str:
    assert all(line and "\n" not in line for line in lines)
    return "\n".join(lines)
