"""What an owner of several devices reads about all of them."""

from __future__ import annotations

from dataclasses import replace

from shoal.accounting.groups.bound import SHIFT
from shoal.accounting.groups.chain import LARGEST_GROUP
from shoal.accounting.groups.of_task import group_of_task
from shoal.accounting.meaning import bound_text
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.sums.sum_task import check_sum
from shoal.clients.owner.explain import explain
from shoal.clients.owner.fleet_policy import FleetPolicy, tighten
from shoal.clients.owner.policy import MOST_OWNER_DEVICES
from shoal.secagg import Mode
from tests.cases import for_each
from tests.unit.clients.owner.test_explain import sum_world
from tests.worlds.devices.clients import World
from tests.worlds.devices.explained import assignment_of, config_of, small_world
from tests.worlds.devices.several import several


def lines_of(world: World, devices: int) -> list[str]:
    config = config_of(world)
    policy = replace(config.policy, owner_devices=devices)
    return explain(assignment_of(world), replace(config, policy=policy))


def line_of(world: World, devices: int) -> str:
    (line,) = [line for line in lines_of(world, devices) if "of your devices" in line]
    return line


def test_one_device_has_no_such_line() -> None:
    """All else is as it was. Planted: a line for one device -> this fails."""
    world = small_world()
    one, three = lines_of(world, 1), lines_of(world, 3)
    assert not [line for line in one if "of your devices" in line]
    assert [line for line in three if "of your devices" not in line] == one


def test_three_devices_of_a_plain_task() -> None:
    """The group's figure, which is at least three times what one is shown to give away. Planted:
    one device's epsilon, or min_batch for the honest of it -> this fails.
    """
    world = small_world()
    found = group_of_task(world.task, 3)
    assert line_of(world, 3) == (
        f"If 3 of your devices take part in this: epsilon <= {bound_text(found.epsilon_upper)} at "
        f"delta = {bound_text(world.task.delta)} for all of them together, of one window. Windows "
        "add up."
    )
    assert found.epsilon_upper > 3 * guarantee_of(world.task).epsilon_lower
    assert (
        found.epsilon_upper > group_of_task(replace(world.task, min_batch=1_000), 3).epsilon_upper
    )


def test_a_fleet_leaves_it_to_the_owner() -> None:
    """Planted: a tightened policy that forgets it -> this fails."""
    policy = replace(config_of(small_world()).policy, owner_devices=3)
    assert tighten(policy, FleetPolicy()).owner_devices == 3


def test_more_devices_than_are_honest() -> None:
    """The reason stands in the line, and the explanation goes on. Planted: the error let through ->
    this fails.
    """
    line = line_of(small_world(), 1_000)
    assert line.startswith("If 1,000 of your devices take part in this: nothing is proven")
    assert "give a smaller group" in line


@for_each("mode", (Mode.DEFAULT, Mode.STRICT))
def test_a_sum(mode: Mode) -> None:
    """Vectors of three devices shift a sum three times as far: more than three times epsilon where
    delta is kept. Planted: bounds of one device, or L2 squared times three -> this fails.
    """
    world = sum_world(mode)
    found, one = group_of_task(world.task, 3), check_sum(world.task)
    assert found.method == SHIFT
    assert 3.0 * one.epsilon_upper < found.epsilon_upper < 5.0 * one.epsilon_upper
    assert f"epsilon <= {bound_text(found.epsilon_upper)} at" in line_of(world, 3)


@for_each("epsilon0", (None, 8.0))
def test_a_task_of_several_messages(epsilon0: float | None) -> None:
    """Designed for epsilon 1 of one device over four windows; five cost five times one window's at
    least. Planted: losses of one device alone -> this fails.
    """
    world = several(epsilon0=epsilon0)
    found, one = group_of_task(world.task, 5), guarantee_of(world.task)
    assert 5 * one.epsilon_lower < found.epsilon_upper < 5.5 * one.epsilon_upper
    assert f"epsilon <= {bound_text(found.epsilon_upper)} at" in line_of(world, 5)


def test_a_memoized_task() -> None:
    """Of all windows a device's permanent answers count: three of them. Planted: lifetime
    epsilon of one -> this fails.
    """
    world = small_world()
    world.task = replace(world.task, memoized=True)
    world.sign()
    epsilon0 = assignment_of(world).epsilon0
    assert line_of(world, 3).endswith(
        f"; of all windows, for values that don't change, epsilon <= {bound_text(3 * epsilon0)}."
    )


def test_policies_take_as_many_as_the_accountant() -> None:
    """Planted: another number there -> this fails."""
    assert MOST_OWNER_DEVICES == LARGEST_GROUP
