"""When the demo has everything: every campaign is over."""

from __future__ import annotations

import pytest

from shoal.cli.demo.collect import releases_of
from shoal.errors import ShoalError
from tests.conformance.campaign.suite import release_of
from tests.conformance.campaign.test_members import InOrder, task

STEPS = (task("coarse"), task("middle"), task("fine"))


def test_a_campaign_is_waited_for_until_its_last_release() -> None:
    """Planted: the first step's release taken for the end -> fails."""
    campaign = InOrder(STEPS)
    stored = {task("visits").task_id: release_of(task("visits"))}
    for step in STEPS:
        assert releases_of(campaign, stored) is None
        stored[step.task_id] = release_of(step)
    assert releases_of(campaign, stored) == [release_of(step) for step in STEPS]


def test_a_release_under_another_tasks_id_is_seen() -> None:
    """Planted: releases that no campaign looked at -> passes, and this fails."""
    stored = {step.task_id: release_of(STEPS[0]) for step in STEPS}
    with pytest.raises(ShoalError):
        releases_of(InOrder(STEPS), stored)
