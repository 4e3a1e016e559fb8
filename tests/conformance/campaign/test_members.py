"""The campaigns that there are, and one of two steps, which shows that the suite knows their
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from shoal.crypto.campaign import Campaign, OneTask
from shoal.crypto.trust import TrustedTask, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.release_pb2 import Release
from tests.conformance.campaign.suite import CampaignSuite
from tests.worlds.devices.clients import make_world


@cache
def task(name: str) -> TrustedTask:
    """A signed task, verified as a device does."""
    world = make_world(name=name)
    return trust_task(world.signed_task, world.authorities)


class TestOneTask(CampaignSuite):
    def make(self) -> Campaign:
        return OneTask(task("visits"))

    def other(self) -> Campaign:
        return OneTask(task("nights"))

    def test_a_single_task_is_its_own_promise(self) -> None:
        """What owners accepted for a task before there were campaigns still counts. Planted: a
        digest of the id as the promise -> fails.
        """
        assert self.make().promise == task("visits").task_id


@dataclass(frozen=True, slots=True)
class InOrder:
    """Steps that are known before the first release: the plainest campaign of several."""

    steps: tuple[TrustedTask, ...]

    @property
    def promise(self) -> TaskId:
        return TaskId.of(b"".join(step.task_id.raw for step in self.steps))

    def next(self, releases: Sequence[Release]) -> TrustedTask | None:
        asked = [step.task_id.raw for step in self.steps[: len(releases)]]
        if [release.task_id for release in releases] != asked:
            raise ShoalError(Kind.MISMATCH, "releases that are not those of the steps")
        return self.steps[len(releases)] if len(releases) < len(self.steps) else None


class TestInOrder(CampaignSuite):
    def make(self) -> Campaign:
        return InOrder((task("coarse"), task("middle"), task("fine")))

    def other(self) -> Campaign:
        return InOrder((task("visits"), task("nights")))
