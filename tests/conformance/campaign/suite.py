"""The suite that a campaign inherits: subclass ``CampaignSuite``, give ``make`` and ``other``, and
name the class Test*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shoal.crypto.campaign import Campaign, check_step
from shoal.crypto.trust import TrustedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.release_pb2 import Release

LONGEST = 1_000  # steps of a campaign that is tried


def release_of(step: TrustedTask) -> Release:
    """What an analyzer publishes of a step, as far as every campaign reads it."""
    return Release(version=1, task_id=step.task_id.raw, name=step.task.name, n=1_000)


def played(campaign: Campaign) -> tuple[list[TrustedTask], list[Release]]:
    """Every step in order, each followed by its release."""
    steps, releases = list[TrustedTask](), list[Release]()
    while (step := campaign.next(releases)) is not None:
        steps.append(step)
        releases.append(release_of(step))
        assert len(steps) < LONGEST, "a campaign ends"
    return steps, releases


def refusal(campaign: Campaign, releases: Sequence[Release], step: TrustedTask) -> Kind | None:
    """The kind of error with which a device refuses a step; None: it takes part."""
    try:
        check_step(campaign, releases, step)
    except ShoalError as error:
        return error.kind
    return None


class CampaignSuite:
    """``make``: a campaign, the same at every call; ``other``: one with another promise."""

    def make(self) -> Campaign:
        raise NotImplementedError

    def other(self) -> Campaign:
        raise NotImplementedError

    def test_the_first_step_needs_no_release(self) -> None:
        """Planted: nothing before a first release -> fails."""
        assert self.make().next(()) is not None

    def test_it_ends_and_no_step_comes_twice(self) -> None:
        """Planted: the last step again after its release -> ``played`` never ends."""
        steps, releases = played(self.make())
        assert self.make().next(releases) is None
        assert len({step.task_id for step in steps}) == len(steps) >= 1

    def test_the_same_releases_give_the_same_step_on_every_machine(self) -> None:
        """Planted: a salt drawn anew in ``next`` -> the steps differ."""
        steps, releases = played(self.make())
        again = self.make()
        for place, step in enumerate(steps):
            assert again.next(releases[:place]) == step
            assert again.next([Release.FromString(r.SerializeToString()) for r in releases[:place]])
            assert again.next(releases[:place]) == step

    def test_its_promise_is_its_own(self) -> None:
        """Planted: the id of the authority's key as the promise -> both are equal."""
        assert self.make().promise == self.make().promise != self.other().promise

    def test_a_device_takes_part_in_each_step_at_its_place_alone(self) -> None:
        """Too early, repeated and after the end are refused. Planted: ``check_step`` that asks
        whether the campaign has the task anywhere -> fails.
        """
        campaign = self.make()
        steps, releases = played(campaign)
        for place in range(len(steps) + 1):
            for number, step in enumerate(steps):
                expected = None if number == place else Kind.REFUSED
                assert refusal(campaign, releases[:place], step) is expected

    def test_a_changed_step_is_refused(self) -> None:
        """Planted: names compared, or tasks without their ids or authority -> fails."""
        campaign = self.make()
        steps, releases = played(campaign)
        for place, step in enumerate(steps):
            looser = replace(step.task, min_batch=step.task.min_batch - 1)
            for changed in (
                replace(step, task=looser, task_id=TaskId(bytes(32))),
                replace(step, task=looser),
                replace(step, task_id=TaskId(bytes(32))),
                replace(step, authority=bytes(32)),
            ):
                assert refusal(campaign, releases[:place], changed) is Kind.REFUSED

    def test_a_step_of_another_campaign_is_refused(self) -> None:
        """Planted: ``check_step`` that looks at the number of the step alone -> fails."""
        for step in played(self.other())[0]:
            assert refusal(self.make(), (), step) is Kind.REFUSED

    def test_a_strange_release_is_refused(self) -> None:
        """Of another campaign, one too many, two exchanged. Planted: releases counted and not
        looked at -> fails.
        """
        campaign = self.make()
        steps, releases = played(campaign)
        strange = played(self.other())[1][0]
        cases = [[*releases[:place], strange] for place in range(len(releases) + 1)]
        cases += [[strange, *releases[1:]], [*releases, releases[-1]]]
        if len(releases) > 1:
            cases.append(list(reversed(releases)))
        for case in cases:
            with pytest.raises(ShoalError) as refused:
                campaign.next(case)
            assert refused.value.kind is Kind.MISMATCH
            assert refusal(campaign, case, steps[0]) is Kind.MISMATCH
