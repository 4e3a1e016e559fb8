"""Simulated devices that remember: permanent answers, charges and ledgers over windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.clients.core import SealedReport, assign
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.remembering import RememberingDevices
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.share import SimulatedTask
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Value
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.answers import made
from tests.worlds.devices.clients import START, World
from tests.worlds.words import SMALL, step_of, words_world

VALUES: tuple[Value, ...] = (3, 3, 0, 12)


def sealed(
    people: RememberingDevices, window: int, values: tuple[Value, ...], asked: object
) -> tuple[SealedReport, ...]:
    return people.answers(asked, window, values, START + window, central=0.5)  # type: ignore[arg-type]


def opened(world: World, reports: tuple[SealedReport, ...]) -> list[bytes]:
    return [world.reports(one.frame)[0] for one in reports]


def test_kept_answers_are_sent_again_and_paid_for_once() -> None:
    """A device whose value changed pays twice, and has its first answer back when its value is.
    Planted: a memory for each window -> other answers (one in 1e4 runs not), and more is charged;
    one memory for all -> one charge for all of a value, fails.
    """
    world, assignment = made(memoized=True, count=30, stated=2.0)
    people = RememberingDevices(len(VALUES))
    first = opened(world, sealed(people, 0, VALUES, assignment))
    for window in range(1, 20):
        assert opened(world, sealed(people, window, VALUES, assignment)) == first
    assert people.charged(assignment.task_id) == [2.0] * 4
    sealed(people, 20, (0, *VALUES[1:]), assignment)
    assert people.charged(assignment.task_id) == [4.0, 2.0, 2.0, 2.0]
    assert opened(world, sealed(people, 21, VALUES, assignment)) == first
    assert people.charged(assignment.task_id) == [4.0, 2.0, 2.0, 2.0]


def test_fresh_answers_are_paid_for_in_every_window() -> None:
    """Planted: memoized whatever the task says -> charged once, fails."""
    _, assignment = made(stated=1.5)
    people = RememberingDevices(len(VALUES))
    told = list[int]()
    for window in range(3):
        people.answers(assignment, window, VALUES, START, central=0.5, told=told.append)
    assert people.charged(assignment.task_id) == [4.5] * 4
    assert told == [4] * 3


def test_a_window_is_answered_once_and_by_everybody() -> None:
    _, assignment = made()
    people = RememberingDevices(len(VALUES))
    with pytest.raises(ShoalError) as few:
        sealed(people, 0, VALUES[:2], assignment)
    assert few.value.kind is Kind.INVALID
    assert people.charged(assignment.task_id) == [0.0] * 4
    sealed(people, 0, VALUES, assignment)
    with pytest.raises(ShoalError) as again:
        sealed(people, 0, VALUES, assignment)
    assert again.value.kind is Kind.CONFLICT


def test_the_simulator_sends_what_a_device_made() -> None:
    """Each its own, whichever process it is in. Planted: reports not parted as devices are ->
    another device's report; ignored -> a draw of the simulator's own, another frame.
    """
    world, assignment = made()
    people = RememberingDevices(len(VALUES))
    reports = sealed(people, 0, VALUES, assignment)
    task = SimulatedTask(world.signed_task, world.signed_schedule, VALUES, 0, made=reports)
    plan = SimulationPlan((task,), authorities=frozenset(world.authorities), way=Carrier.RELAY)
    found = dict[int, bytes]()
    for number in range(2):
        share = plan.share(bytes(len(VALUES)), number, 2)
        reporter = Reporter(share)
        for device in range(share.devices):
            known = reporter.assignment(0)
            found[number + 2 * device] = reporter.report(known, 0, 0, device).frame
    assert [found[device] for device in range(len(VALUES))] == [one.frame for one in reports]
    with pytest.raises(ShoalError, match="one for each device"):
        SimulationPlan(
            (SimulatedTask(world.signed_task, world.signed_schedule, VALUES, 0, made=reports[:1]),),
            authorities=frozenset(world.authorities),
        )


def test_each_device_of_a_discovery_answers_the_window_that_it_drew() -> None:
    """Three hundred devices and six windows, played through: everyone is asked once, pays once, and
    the same ones are asked again. Planted: drawn anew in every window -> some twice, some never;
    all are asked -> 300 in each, fails.
    """
    world = words_world(replace(SMALL, fresh=True), 6)
    trusted = trust_task(world.signed_task, {world.authority.public})
    asked = assign(trusted, trust_schedule(world.signed_schedule, trusted))
    level = replace(SMALL, fresh=True).level(0)
    for window in range(1, 6):
        asked.steps[window] = step_of(world, window, level, None)
    people = RememberingDevices(300, SeededEntropy("fleet"))
    windows = [people.asked(asked, window, START) for window in range(6)]
    assert sorted(device for window in windows for device in window) == list(range(300))
    assert people.asked(asked, 3, START) == windows[3]
    some = windows[2][:3]
    reports = people.answers(asked, 2, ["cat"] * 300, START, central=0.5)
    assert len(reports) == len(windows[2])
    paid = people.charged(asked.task_id)
    assert [device for device, epsilon in enumerate(paid) if epsilon] == list(windows[2])
    assert {paid[device] for device in some} == {0.5}
    with pytest.raises(ShoalError) as again:
        people.answers(asked, 2, ["cat"] * 300, START, central=0.5)
    assert again.value.kind is Kind.CONFLICT
