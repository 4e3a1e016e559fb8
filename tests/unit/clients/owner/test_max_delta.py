"""A task whose delta is large promises nothing, whatever its epsilon is: the owner's limit of delta
stands before every answer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.of_task import guarantee_of
from shoal.clients.core import assign
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.fleet_policy import FleetPolicy, loosening, tighten
from shoal.clients.owner.policy import NEVER, Policy, check
from shoal.clients.owner.purposes import purposes
from shoal.console.owner.question import _asked
from shoal.crypto.campaign import OneTask
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.unit.clients.owner.device_of_an_owner import PURPOSE, Device
from tests.worlds.devices.clients import World, make_world
from tests.worlds.devices.several import several
from tests.worlds.sums import designed, task_of

_KEYS = ("key_authority", "shuffler_key", "analyzer_key")
LIMIT = LIMITS.device_delta
NEXT = math.nextafter(LIMIT, 1.0)


def of_delta(delta: float, **changes: Any) -> World:
    """A world whose task has one message, and this delta."""
    world = make_world(**changes)
    world.task = replace(world.task, delta=delta)
    world.sign()
    return world


def nearly_exact(delta: float = 0.95) -> World:
    """A world whose devices send a signed count: with so little noise that its certificate is one
    of epsilon 0, but for ``delta``.
    """
    return several(delta=delta, windows=1)


def summed(delta: float) -> World:
    """A world whose devices are summed, for an epsilon of 1e-6 at ``delta``."""
    made = designed(1, epsilon=1e-6, delta=delta)
    world = make_world()
    same = ("name", "purpose", "windows", "retention_s", *_KEYS)
    world.task = task_of(made, delta=delta, **{name: getattr(world.task, name) for name in same})
    world.sign()
    return world


def refusal_of(policy: Policy, world: World, **stored: Any) -> str:
    """Why the owner's policy refuses a task; "" if it doesn't."""
    trusted = trust_task(world.signed_task, world.authorities)
    made = assign(trusted, trust_schedule(world.signed_schedule, trusted))
    try:
        check(policy, OneTask(trusted), trusted, made.epsilon0, made.epsilon_apart, **stored)
    except ShoalError as error:
        if error.kind is not Kind.REFUSED:
            raise
        return error.message
    return ""


def policy_of(world: World, **changes: Any) -> Policy:
    return Policy(
        world.authorities, 4.0, 2, {PURPOSE: "allowed"}, **({"sums_if_apart": True} | changes)
    )


async def test_a_nearly_exact_answer_of_several_messages_is_refused(tmp_path: Path) -> None:
    """Whoever accepted its epsilon0: nothing is charged, drawn, or sent, and no yes is kept.

    Planted: no check of delta -> answered and charged 0 nano-epsilon, fails; delta not looked
    at where a yes is kept -> an entry in the ledger, fails.
    """
    world = nearly_exact()
    made = create(world.task.mechanism, world.task.domain)
    assert guarantee_of(world.task, made).epsilon_upper == 0.0  # what would be charged
    device = Device(tmp_path, world, {"max_delta": 0.96})
    async with device.agent() as agent:
        await agent.accept("visits")
        assert agent.status()[0].refusal == ""
    device.policy = {}
    before = len(device.entries(LedgerEvent.CONSENT))
    async with device.agent() as agent:
        with pytest.raises(ShoalError, match="may leak whole with probability") as refused:
            await agent.report("visits", True)
        assert refused.value.kind is Kind.REFUSED
        for words in ("delta = 0.95 in", "max_delta = 0.0001 ", "under [policy]"):
            assert words in refused.value.message
        assert "consent" not in refused.value.message
        with pytest.raises(ShoalError, match="nothing was accepted: an answer may leak") as refused:
            await agent.accept("visits")
        assert refused.value.kind is Kind.REFUSED
        assert agent.memory.commitments.charges() == []
        assert await agent.outcomes() == []
        asked = _asked(agent, agent.tasks.find("visits"))  # of the owner's page
        assert asked is not None
        assert asked.why_not.startswith("an answer may leak")
        assert not asked.holds
    assert len(device.entries(LedgerEvent.CONSENT)) == before
    assert device.entries(LedgerEvent.REPORTED) == []
    assert device.far.frames == []


async def test_a_sum_that_is_charged_nothing_is_refused(tmp_path: Path) -> None:
    """Of an owner who takes shuffler and analyzer for two. Planted: delta looked at for tasks of
    several messages alone -> fails.
    """
    device = Device(tmp_path, summed(0.999999), {"sums_if_apart": True})
    async with device.agent() as agent:
        (status,) = agent.status()
        assert status.assignment.epsilon_apart is not None
        assert status.assignment.epsilon_apart <= 1e-6
        assert "max_delta = 0.0001" in status.refusal
        with pytest.raises(ShoalError, match="max_delta") as refused:
            await agent.report("visits", [0.5])
        assert refused.value.kind is Kind.REFUSED
        assert agent.memory.commitments.charges() == []
        assert await agent.outcomes() == []
    assert refusal_of(policy_of(device.world, max_delta=0.9999995), device.world) == ""


async def test_what_waits_is_not_sent_once_the_limit_is_lower(tmp_path: Path) -> None:
    """Planted: no check of delta -> the frame goes out, fails."""
    device = Device(tmp_path, of_delta(1e-6))
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
    device.policy = {"max_delta": 1e-7}
    async with device.agent() as agent:
        await agent.flush()
    assert device.far.frames == []


@for_each(
    "delta, most, passes",
    [
        (1e-8, LIMIT, True),
        (LIMIT, LIMIT, True),
        (NEXT, LIMIT, False),
        (1e-3, LIMIT, False),
        (0.5, 0.5, True),
        (1e-8, 1e-9, False),
    ],
)
def test_the_limit_itself_passes(delta: float, most: float, passes: bool) -> None:
    """Planted: ``<`` for ``<=`` -> fails."""
    world = of_delta(delta)
    message = refusal_of(policy_of(world, max_delta=most), world)
    assert (message == "") == passes
    assert passes or f"max_delta = {most:g} allows" in message


def test_a_delta_that_is_no_number_never_passes() -> None:
    """No task says one, but the check does not stand on that. Planted: ``not delta > limit`` ->
    fails.
    """
    world = make_world()
    trusted = trust_task(world.signed_task, world.authorities)
    made = assign(trusted, trust_schedule(world.signed_schedule, trusted))
    object.__setattr__(trusted.task, "delta", math.nan)
    with pytest.raises(ShoalError, match="max_delta"):
        check(policy_of(world), OneTask(trusted), trusted, made.epsilon0)


@for_each("most", [0.0, -1e-6, 1.0, 2.0, math.inf, math.nan])
def test_a_limit_lies_between_0_and_1(most: float) -> None:
    """The owner's and the fleet's. Planted: NaN or 1 taken -> no limit at all, fails."""
    for make in (
        lambda: Policy(frozenset({bytes(32)}), 4.0, 2, max_delta=most),
        lambda: FleetPolicy(max_delta=most),
    ):
        with pytest.raises(ShoalError, match="max_delta: a number above 0 and below 1") as caught:
            make()
        assert caught.value.kind is Kind.CONFIG


@for_each(
    "owners, fleets, refused",
    [
        (1e-4, None, ""),
        (1e-4, 1e-6, ""),
        (1e-4, 1e-7, "the fleet's max_delta = 1e-07 allows, which the device's owner can't change"),
        (1e-8, 1e-7, "more than max_delta = 1e-08 allows: change that under [policy]"),
        (1e-8, 1e-8, "the fleet's max_delta = 1e-08 "),
        (1e-7, 0.5, "more than max_delta = 1e-07 "),
    ],
)
def test_the_stricter_of_owner_and_fleet_holds(
    owners: float, fleets: float | None, refused: str
) -> None:
    """And who can change it is said. Planted: the larger of both -> fails; the fleet's limit not in
    the ceiling -> an owner is told to change what would change nothing, fails.
    """
    world = of_delta(1e-6)
    owner, fleet = policy_of(world, max_delta=owners), FleetPolicy(max_delta=fleets)
    tight = tighten(owner, fleet)
    message = refusal_of(tight, world, accepted=math.inf, consents={PURPOSE: "allowed"})
    assert bool(message) == bool(refused)
    assert "\n" not in message
    assert refused in message
    assert not message or refusal_of(tight, nearly_exact(), accepted=math.inf)
    looser = fleets is not None and fleets > owners
    assert [line.split(" =")[0] for line in loosening(owner, fleet)] == ["max_delta"] * looser


async def test_a_fleet_s_limit_stops_a_device_whose_owner_allows_more(tmp_path: Path) -> None:
    """Nothing is charged, drawn or sent, and the ledger says why. Planted: the owner's own policy
    asked before an answer -> a frame, fails.
    """
    device = Device(tmp_path, of_delta(0.5), {"max_delta": 0.9})
    device.config = {"fleet_policy": FleetPolicy(max_delta=1e-6)}
    async with device.agent() as agent:
        with pytest.raises(ShoalError, match="the fleet's max_delta = 1e-06 allows") as refused:
            await agent.report("visits", 3)
        assert refused.value.kind is Kind.REFUSED
        assert agent.memory.commitments.charges() == []
        assert await agent.outcomes() == []
    assert [one.event for one in device.entries()] == [LedgerEvent.SEEN, LedgerEvent.REFUSED]
    assert device.far.frames == []
    device.config = {}
    async with device.agent() as agent:
        await agent.report("visits", 3)
    assert len(device.far.frames) == 1


async def test_nor_is_anybody_asked_about_such_a_task(tmp_path: Path) -> None:
    """Its purpose and its epsilon0 are no questions: a yes would change nothing. Planted: consent
    looked at first -> the refusal names a command that would not help, fails; the task listed under
    its purpose -> fails.
    """
    device = Device(tmp_path, of_delta(0.5), {"purposes": {}, "infinite_epsilon0": NEVER})
    async with device.agent() as agent:
        (status,) = agent.status()
        assert "max_delta" in status.refusal
        assert "consent" not in status.refusal
        assert [row["tasks"] for row in purposes(device.settings, [status], {})] == []
        told = "\n".join(await agent.explain("visits"))
        assert "For this task you are not asked about it" in told


def test_a_task_of_one_message_is_held_to_it_too() -> None:
    """Its epsilon0 holds without a delta, but an owner who accepts more than his limit is charged
    what the certificate says at one. Planted: tasks within ``max_epsilon0`` let through -> fails.
    """
    world = of_delta(0.5)
    assert "max_delta" in refusal_of(policy_of(world), world)
    assert refusal_of(policy_of(world, max_delta=0.6), world) == ""
