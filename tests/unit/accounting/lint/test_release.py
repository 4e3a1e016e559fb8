"""Findings about what a task's smallest release promises, whatever its mechanism."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shoal.accounting.lint.task import lint
from shoal.accounting.several_messages.of_domain import design_several
from shoal.limits import LIMITS
from shoal.task import Task
from tests.worlds.devices.clients import make_world
from tests.worlds.tasks import PAIRWISE, TASK

ONE = make_world().task
SEVERAL = replace(
    TASK, mechanism=design_several("shuffler_noise", TASK.domain, 900, 0.5, 1e-8, windows=24)
)


@pytest.mark.parametrize("task", [ONE, PAIRWISE, SEVERAL], ids=["one", "sum", "several"])
def test_a_delta_that_devices_refuse_is_a_warning(task: Task) -> None:
    """Else an authority would wonder why nobody answers. The limit itself passes. Planted: ``<``
    for ``<=``, or sums or several messages left out -> fails.
    """

    def warned(delta: float) -> bool:
        found = lint(replace(task, delta=delta))
        assert found.errors == ()
        return any("devices refuse that" in text for text in found.warnings)

    assert not warned(LIMITS.device_delta)
    assert warned(math.nextafter(LIMITS.device_delta, 1.0))
