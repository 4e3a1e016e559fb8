"""A device whose clock jumps: nothing is lost by one reading, nothing is measured in doubt, and a
new time is taken in the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.core import ReportState
from shoal.clients.device_clock import (
    CLOCK_SUFFIX,
    HOLD_S,
    KEEP_S,
    SETTLE_S,
    Known,
    OwnClock,
    Unhurried,
)
from shoal.clients.feeds.task_store import LearntTasks
from shoal.clocks.clock import FakeClock
from shoal.clocks.timekeeping import Reading
from shoal.errors import Kind, ShoalError
from tests.unit.clients.test_agent import Device
from tests.worlds.clock import DAY, Machine
from tests.worlds.devices.clients import START, WEEK, make_world
from tests.worlds.devices.runner import HOUR, Place, bundle

NOW = START + 100.0


@pytest.fixture
def machine() -> Machine:
    return Machine(NOW)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def settled(box: Path, machine: Machine) -> OwnClock:
    """A device that has run for more than a day."""
    one = OwnClock(box, machine)
    one.doubt()
    machine.passes(SETTLE_S + 1)
    assert one.over() == machine.true
    return one


# --- the rule -------------------------------------------------------------------------------------


def test_a_clock_that_goes_on_is_never_in_doubt(box: Path, machine: Machine) -> None:
    """Also over suspends, in which wall clock and the time since the boot go on together. Planted:
    no allowance for drift -> doubt.
    """
    machine.rate = 1 + 90e-6
    one = OwnClock(box, machine)
    for _ in range(200):
        machine.passes(DAY)
        assert one.doubt() == ""
    assert machine.true - 3 * 60 < one.over() <= machine.true + 1


@pytest.mark.parametrize("jump", [10 * DAY, -10 * DAY, 200.0])
def test_a_jump_is_in_doubt_until_the_clock_is_right_again(
    box: Path, machine: Machine, jump: float
) -> None:
    """Planted: ``over`` by the wall clock -> the assertion in the loop fails for the jumps
    ahead.
    """
    one = settled(box, machine)
    for _ in range(2):
        machine.jumps(jump)
        for _ in range(9):
            assert one.doubt().startswith(f"the clock jumped {'ahead' if jump > 0 else 'back'} by")
            assert one.over() <= machine.true
            machine.passes(60)
        machine.jumps(-jump)
        assert one.doubt() == ""
        assert one.over() == machine.true


def test_a_restart_of_the_agent_in_the_middle_changes_nothing(box: Path, machine: Machine) -> None:
    """Planted: the record not read, or the candidate not kept -> no doubt, or a doubt that begins
    anew.
    """
    settled(box, machine)
    machine.jumps(10 * DAY)
    assert OwnClock(box, machine).doubt()
    machine.passes(HOLD_S - 1)
    assert OwnClock(box, machine).doubt()
    assert OwnClock(box, machine).over() <= machine.true
    machine.passes(2)
    assert not OwnClock(box, machine).doubt()


def test_a_new_time_is_measured_by_after_ten_minutes_and_ended_by_after_a_day(
    box: Path, machine: Machine
) -> None:
    """Planted: no step noted when it is taken -> ``over`` jumps with it."""
    one = settled(box, machine)
    machine.jumps(10 * DAY)
    assert one.doubt()
    machine.passes(HOLD_S)
    assert not one.doubt()
    machine.passes(SETTLE_S - 60)
    assert one.over() == pytest.approx(machine.true)
    machine.passes(60)
    assert one.over() == pytest.approx(machine.true + 10 * DAY)


def test_a_time_that_does_not_hold_is_not_taken(box: Path, machine: Machine) -> None:
    """Another jump begins the ten minutes anew. Planted: the first candidate kept -> taken in the
    second round.
    """
    one = settled(box, machine)
    for _ in range(5):
        machine.jumps(DAY)
        assert one.doubt()
        machine.passes(HOLD_S - 60)
        assert one.doubt()
        assert one.over() <= machine.true


def test_a_first_start_ends_nothing_for_a_day_of_running_time(box: Path, machine: Machine) -> None:
    """Counted over restarts of the machine, without the nights. Planted: time off counted -> over
    after the first night.
    """
    for _ in range(10):
        one = OwnClock(box, machine)
        assert (one.doubt(), one.over() < DAY) == ("", True)
        for _ in range(2):
            machine.passes(KEEP_S)
            one.doubt()
        machine.reboots(off=16 * HOUR)
    one = OwnClock(box, machine)
    assert one.over() < DAY
    machine.passes(4 * KEEP_S)
    assert machine.true - 7 * DAY < one.over() < machine.true


def test_a_night_off_is_no_doubt_and_counts_for_nothing_yet(box: Path, machine: Machine) -> None:
    settled(box, machine)
    before = machine.true
    machine.reboots(off=8 * HOUR)
    one = OwnClock(box, machine)
    assert not one.doubt()
    assert one.over() <= before + 10.0 + 1.0
    machine.passes(SETTLE_S)
    assert one.over() == pytest.approx(machine.true)


def test_a_wrong_clock_over_a_restart_of_the_machine_stays_in_doubt(
    box: Path, machine: Machine
) -> None:
    """Planted: a later time taken whatever was before -> no doubt."""
    one = settled(box, machine)
    machine.jumps(10 * DAY)
    assert one.doubt()
    machine.reboots()
    one = OwnClock(box, machine)
    assert one.doubt()
    machine.jumps(-10 * DAY)
    assert not one.doubt()


def test_a_machine_that_comes_up_in_the_past_is_in_doubt_until_its_clock_is_set(
    box: Path, machine: Machine
) -> None:
    """A computer without a clock of its own, before it has a network."""
    settled(box, machine)
    behind = machine.true - 86_400.0 * 30
    machine.reboots()
    machine.jumps(-behind)
    one = OwnClock(box, machine)
    assert "back" in one.doubt()
    machine.passes(30)
    machine.jumps(behind)
    assert not one.doubt()


def test_steps_do_not_pile_up(box: Path, machine: Machine) -> None:
    for _ in range(200):
        OwnClock(box, machine).doubt()
        machine.passes(60)
        machine.reboots(off=300)
    assert len(box.with_name(box.name + CLOCK_SUFFIX).read_bytes()) < 4_096
    assert OwnClock(box, machine).over() < NOW


@pytest.mark.parametrize("damage", [b"", b"{}", b"[" * 70_000, b'{"format": 9}\n', b"\xff" * 100])
def test_a_damaged_record_ends_nothing(box: Path, machine: Machine, damage: bytes) -> None:
    """Planted: no seal -> the changed anchor is believed, and the clock is in doubt."""
    settled(box, machine)
    path = box.with_name(box.name + CLOCK_SUFFIX)
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for content in (
        damage,
        whole.replace(str(int(NOW)).encode(), str(int(NOW) - 900_000).encode()),
    ):
        path.write_bytes(content)
        one = OwnClock(box, machine)
        assert (one.doubt(), one.over() < DAY) == ("", True)


def test_a_disk_that_takes_nothing_stops_nothing(
    box: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this program saw itself counts. Planted: the record read again after a failed write ->
    no end to the doubt.
    """
    one = settled(box, machine)

    def full(*_: Any) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr("shoal.clients.memory.sealed_line.os.open", full)
    machine.jumps(DAY)
    assert one.doubt()
    machine.passes(HOLD_S)
    assert not one.doubt()


def test_a_clock_that_goes_on_is_written_once_an_hour(
    box: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, writes = OwnClock(box, machine), list[Known]()
    one.doubt()
    save = one._save

    def kept(known: Known) -> None:
        writes.append(known)
        save(known)

    monkeypatch.setattr(one, "_save", kept)
    for _ in range(6 * 60 + 1):
        one.doubt()
        machine.passes(60)
    assert len(writes) == 6


def test_what_is_under_way_is_not_ended_by_a_jump(box: Path, machine: Machine) -> None:
    """Such as a round with this device's vector. Planted: the wall clock alone -> ten days pass at
    once.
    """
    one = Unhurried(OwnClock(box, machine))
    machine.jumps(10 * DAY)
    machine.passes(60)
    assert one.now() == machine.true
    machine.jumps(-11 * DAY)
    assert one.now() == machine.true - DAY


# --- what a device would lose ---------------------------------------------------------------------


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, make_world())


async def test_a_jump_of_ten_days_for_a_minute_loses_no_waiting_report(
    device: Device, machine: Machine
) -> None:
    """Nor one far beyond the reports' expiry, twice, with a restart within. Planted: the end of a
    report by the wall clock alone -> every waiting report is dropped.
    """
    box = device.folder / "outbox.db"
    settled(box, machine)
    device.transport.down = True
    async with device.agent(clock=OwnClock(box, machine)) as agent:
        await agent.report("visits", 3, send=False)
    for jump in (10 * DAY, 100.0 * WEEK):
        machine.jumps(jump)
        for _ in range(2):
            async with device.agent(clock=OwnClock(box, machine)) as agent:
                (outcome,) = await agent.flush()
                assert (outcome.state, outcome.kind) == (ReportState.QUEUED, Kind.UNAVAILABLE)
            machine.passes(60)
        machine.jumps(-jump)
    device.transport.down = False
    async with device.agent(clock=OwnClock(box, machine)) as agent:
        (outcome,) = await agent.flush()
    assert outcome.state is ReportState.ACKED


async def test_the_shuffler_s_word_ends_a_report_at_once_and_time_alone_after_a_day(
    device: Device, machine: Machine
) -> None:
    box = device.folder / "outbox.db"
    clock = settled(box, machine)
    device.transport.down = True
    async with device.agent(clock=clock) as agent:
        await agent.report("visits", 3, send=False)
        machine.passes(WEEK)
        await agent.report("visits", 3, send=False)
        machine.passes(100 * WEEK)
        await agent.flush()
        assert {one.kind for one in await agent.outcomes()} == {Kind.WINDOW_CLOSED}
        assert await agent.flush() == []


async def test_a_refusal_for_a_closed_window_needs_no_clock(
    device: Device, machine: Machine
) -> None:
    device.far.script = lambda *_: ShoalError(Kind.WINDOW_CLOSED, "over")
    async with device.agent(clock=OwnClock(device.folder / "outbox.db", machine)) as agent:
        outcome = await agent.report("visits", 3)
    assert outcome.state is ReportState.REFUSED


def test_a_jump_deletes_no_learnt_task(tmp_path: Path, box: Path, machine: Machine) -> None:
    """Planted: ``prune`` by the wall clock -> the task is gone."""
    world = make_world()
    clock = settled(box, machine)
    shelf = LearntTasks(tmp_path / "shelf", world.authorities, clock)
    assert shelf.offer(bundle(world)).fresh
    machine.jumps(100.0 * WEEK)
    assert shelf.prune() == []
    machine.jumps(-100.0 * WEEK)
    assert shelf.prune() == []
    machine.passes(100 * WEEK)
    assert shelf.prune() == [world.task_id]


# --- the service ----------------------------------------------------------------------------------


class Driven(FakeClock):
    """The clock of a ``Place``: its time passes with the machine's, but for jumps."""

    def __init__(self, now: float, box: Path) -> None:
        super().__init__(now)
        self.jumped, self.own = 0.0, OwnClock(box, self)

    def read(self) -> Reading:
        return Reading(self.time, self.time - self.jumped - START, "boot")

    def over(self) -> float:
        return self.own.over()

    def doubt(self) -> str:
        return self.own.doubt()

    def jumps(self, place: Place, seconds: float) -> None:
        """Whoever sleeps, sleeps on: by steady time."""
        self.time, self.jumped = self.time + seconds, self.jumped + seconds
        place.sleepers = [(at + seconds, number, future) for at, number, future in place.sleepers]
        heapq.heapify(place.sleepers)


async def test_a_running_agent_measures_nothing_by_a_clock_that_jumped(
    place: Place, logged: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into the next window, for which a moment is drawn already, and back, then two ahead and back;
    then a time that stays is measured by. One line at each change.

    Planted: doubt not asked before a measurement -> a window ahead is answered, and charged.
    """
    monkeypatch.setattr("shoal.clients.service.measuring._NAP_S", 60.0)
    monkeypatch.setattr("shoal.clients.service.runner.LOOK_S", 60.0)
    place.clock = clock = Driven(START + 10.0, place.folder / "outbox.db")
    async with place.running():
        await place.until(lambda: place.windows() == [0])
        for landing in (START + 2 * HOUR - 2 * HOLD_S, START + 3 * HOUR):
            ahead = landing - clock.time
            clock.jumps(place, ahead)
            back = clock.time + HOLD_S / 2
            # mypy knows no default there
            await place.until(lambda back=back: clock.time >= back)  # type: ignore[misc]
            assert place.windows() == [0]
            clock.jumps(place, -ahead)
            back = clock.time + HOLD_S / 2
            await place.until(lambda back=back: clock.time >= back)  # type: ignore[misc] # the same
        await place.until(lambda: place.windows() == [0, 1])
        assert clock.time < START + 2 * HOUR
        clock.jumps(place, 2.0 * HOUR)
        await place.until(lambda: 3 in place.windows())
        assert not clock.doubt()
    assert [one["event"] for one in logged() if one.get("where") == "clock"] == [
        "clock jumped",
        "clock is believed again",
    ] * 3


async def test_a_single_pass_measures_nothing_in_doubt_and_still_sends(place: Place) -> None:
    place.clock.disputed = True
    assert await place.runner().once(place.config) == []
    assert place.windows() == []
    place.clock.disputed = False
    (outcome,) = await place.runner().once(place.config)
    assert outcome.state is ReportState.ACKED
