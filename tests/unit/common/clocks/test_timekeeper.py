"""A clock that jumps, goes back, stands still or is changed while the machine is off: what is
believed, and what ends a dispute.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.clocks import timekeeper
from shoal.clocks.readings import SystemReadings, in_words
from shoal.clocks.timekeeper import CONFIRM_NAME, FILE_NAME, Timekeeper, confirm, inspect
from shoal.clocks.timekeeping import FRESH_S, MOST_OFF_S, TOLERANCE_S, Origin, Trouble
from shoal.errors import Kind, ShoalError
from shoal.services.conditions import Condition
from tests.worlds.clock import DAY, Machine, keeper

NOW = 1_800_000_000.0


@pytest.fixture
def machine() -> Machine:
    return Machine(NOW)


def test_a_clock_that_goes_on_is_believed_for_ever(tmp_path: Path, machine: Machine) -> None:
    """Two hundred days with quartz that is off by 90 ppm. Planted: no allowance for drift ->
    disputed after eight days.
    """
    machine.rate = 1 + 90e-6
    one = keeper(tmp_path, machine)
    for _ in range(200):
        machine.passes(DAY)
        assert one.look() is None
        assert one.decide() == machine.true
    assert one.now() == machine.true


@pytest.mark.parametrize(
    ("jump", "trouble"),
    [(10 * DAY, Trouble.AHEAD), (TOLERANCE_S + 1, Trouble.AHEAD), (-DAY, Trouble.BACK)],
)
def test_a_jump_stops_decisions_at_once_and_its_return_lets_them_go_on(
    tmp_path: Path, machine: Machine, jump: float, trouble: Trouble
) -> None:
    """Also between two looks. Planted: ``decide`` by the last look -> the first assertion fails."""
    one = keeper(tmp_path, machine)
    machine.jumps(jump)
    assert one.decide() is None
    assert one.look() is trouble
    assert one.earliest() == min(machine.true, machine.true + jump)
    machine.passes(66)
    assert one.look() is trouble
    machine.jumps(-jump)
    assert one.decide() == machine.true
    assert one.look() is None


def test_a_step_of_a_minute_is_none(tmp_path: Path, machine: Machine) -> None:
    one = keeper(tmp_path, machine)
    machine.jumps(TOLERANCE_S - 1)
    assert one.decide() is not None


def test_small_steps_add_up(tmp_path: Path, machine: Machine) -> None:
    """50 s ahead, eight times in as many hours, with restarts of the service. Planted: the anchor
    moved along -> all are believed.
    """
    one = keeper(tmp_path, machine)
    seen = []
    for _ in range(8):
        machine.passes(3_600)
        machine.jumps(50)
        seen.append(one.look())
        one.keep()
        one = keeper(tmp_path, machine)
    assert seen[0] is None
    assert seen[1:] == [Trouble.AHEAD] * 7


def test_a_restart_of_the_service_in_the_middle_of_a_dispute_changes_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    """Twice. Planted: the anchor not kept, or kept with the wrong clock -> the second service
    decides.
    """
    keeper(tmp_path, machine)
    machine.jumps(10 * DAY)
    for _ in range(2):
        machine.passes(100)
        one = keeper(tmp_path, machine)
        assert (one.decide(), one.look()) == (None, Trouble.AHEAD)
        one.keep()
    machine.jumps(-10 * DAY)
    assert keeper(tmp_path, machine).decide() == machine.true


def test_a_reboot_takes_minutes_and_a_longer_time_off_wants_a_witness(
    tmp_path: Path, machine: Machine
) -> None:
    keeper(tmp_path, machine)
    machine.reboots(off=120)
    one = keeper(tmp_path, machine)
    assert one.decide() == machine.true
    one.keep()
    machine.reboots(off=MOST_OFF_S)  # with the 120 s before: too long
    one = keeper(tmp_path, machine)
    assert (one.decide(), one.look()) == (None, Trouble.OFF)
    one.hear("analyzer", machine.true, 1.0, vouched=True)
    assert one.look() is None
    assert one.decide() == machine.true


def test_reboots_do_not_add_up_to_days(tmp_path: Path, machine: Machine) -> None:
    """Each with a clock two minutes further ahead. Planted: the time off not summed -> every one is
    believed.
    """
    one = keeper(tmp_path, machine)
    for _ in range(12):
        machine.passes(3_600)
        one.keep()
        machine.reboots(off=0)
        machine.jumps(120)
        one = keeper(tmp_path, machine)
    assert one.look() is Trouble.OFF
    assert one.decide() is None


def test_a_peer_ends_the_sum_of_short_times_off(tmp_path: Path, machine: Machine) -> None:
    one = keeper(tmp_path, machine)
    for _ in range(12):
        machine.reboots(off=120)
        one = keeper(tmp_path, machine)
        one.hear("analyzer", machine.true, 1.0, vouched=True)
        assert one.look() is None


def test_a_clock_behind_the_last_known_time_after_a_reboot(
    tmp_path: Path, machine: Machine
) -> None:
    keeper(tmp_path, machine)
    machine.reboots()
    machine.jumps(-10 * DAY)
    one = keeper(tmp_path, machine)
    assert (one.decide(), one.look()) == (None, Trouble.EARLIER)
    machine.jumps(10 * DAY)  # NTP came up
    assert one.look() is None


def test_a_wrong_clock_is_not_what_is_kept(tmp_path: Path, machine: Machine) -> None:
    """A reboot in a dispute, with the wrong time in the hardware clock. Planted: the disputed wall
    clock kept as the last known time -> the machine comes up and is believed.
    """
    one = keeper(tmp_path, machine)
    machine.jumps(10 * DAY)
    machine.passes(300)
    one.look()
    one.keep()
    machine.reboots()
    assert keeper(tmp_path, machine).look() is Trouble.OFF


def test_a_machine_that_stood_still_is_explained_by_a_peer(
    tmp_path: Path, machine: Machine
) -> None:
    one = keeper(tmp_path, machine)
    machine.pauses(7_200)
    assert one.look() is Trouble.AHEAD
    one.hear("analyzer", machine.true, 1.0, vouched=False)
    assert one.look() is Trouble.AHEAD  # it does not know itself
    one.hear("analyzer", machine.true, 1.0, vouched=True)
    assert one.look() is None
    assert one.decide() == machine.true
    assert keeper(tmp_path, machine).decide() == machine.true


def test_a_snapshot_that_was_restored_is_another_boot(tmp_path: Path, machine: Machine) -> None:
    """With the clock of then; the data folder is elsewhere and newer. Planted: only the boot id
    compared -> believed.
    """
    one = keeper(tmp_path, machine)
    machine.passes(DAY)
    one.look()
    one.keep()
    machine.up -= DAY
    machine.jumps(-DAY)
    assert keeper(tmp_path, machine).look() is Trouble.EARLIER


def test_a_peer_that_differs_stops_decisions_and_a_lying_one_moves_none(
    tmp_path: Path, machine: Machine
) -> None:
    """Planted: a peer's time taken for ours -> the second assertion fails."""
    one = keeper(tmp_path, machine)
    for lie in (10 * DAY, -10 * DAY, 200.0):
        one.hear("analyzer", machine.true + lie, 1.0, vouched=True)
        assert (one.look(), one.decide()) == (Trouble.PEER, None)
    machine.passes(FRESH_S + 2)  # what it said is old
    assert one.decide() == machine.true
    # it says itself that it does not know
    one.hear("analyzer", machine.true + DAY, 1.0, vouched=False)
    assert one.decide() == machine.true


def test_of_several_peers_one_that_disagrees_explains_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    one = keeper(tmp_path, machine)
    machine.jumps(DAY)
    one.hear("a", machine.true + DAY, 1.0, vouched=True)
    one.hear("b", machine.true, 1.0, vouched=True)
    assert one.look() is Trouble.AHEAD


def test_a_first_start_believes_a_clock_that_leads_to_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    assert keeper(tmp_path / "a", machine, over=NOW + 1).decide() == NOW
    one = keeper(tmp_path / "b", machine, over=NOW)
    assert (one.decide(), one.look()) == (None, Trouble.FIRST)
    one.hear("analyzer", NOW + 5, 1.0, vouched=True)
    assert one.look() is None
    assert one.decide() == NOW


def test_a_first_start_without_a_witness_lets_in(tmp_path: Path, machine: Machine) -> None:
    """Ready, and shown. Not once anything speaks against the clock. Planted: ``letting`` by the
    wall clock, whatever speaks against it -> the last assertions fail; the condition stops as any
    other -> the first do.
    """
    one = keeper(tmp_path, machine, over=NOW)
    one.look()
    assert (one.decide(), one.letting()) == (None, NOW)
    (condition,) = one.conditions()
    assert (condition.code, condition.stops) == ("clock", False)
    one.hear("analyzer", NOW + DAY, 1.0, vouched=True)
    assert (one.decide(), one.letting()) == (None, None)
    (condition,) = one.conditions()
    assert condition.stops
    assert one.look() is Trouble.PEER


def test_a_jump_lets_nobody_in(tmp_path: Path, machine: Machine) -> None:
    """Planted: as above."""
    one = keeper(tmp_path, machine)
    machine.jumps(DAY)
    assert (one.decide(), one.letting()) == (None, None)
    machine.jumps(-DAY)
    assert one.letting() == one.decide() == machine.true


def test_who_may_be_a_witness(tmp_path: Path, machine: Machine) -> None:
    """Not a clock that was just believed for want of another, nor one in dispute. Planted: always
    -> fails twice.
    """
    one = keeper(tmp_path, machine)
    assert one.word() == (machine.true, False)
    machine.passes(700)
    assert one.word() == (machine.true, True)
    one.hear("analyzer", machine.true + DAY, 1.0, vouched=True)
    assert one.word()[1]  # that another differs takes nothing from our own
    machine.jumps(DAY)
    assert not one.word()[1]


def test_an_operator_confirms_what_is_seen_and_nothing_else(
    tmp_path: Path, machine: Machine
) -> None:
    """On a running service, once. Planted: the file not deleted, or its anchor not compared -> a
    later jump is believed.
    """
    one = keeper(tmp_path, machine)
    machine.jumps(10 * DAY)
    one.look()
    assert confirm(tmp_path, machine).trouble is Trouble.AHEAD
    kept = (tmp_path / CONFIRM_NAME).read_bytes()
    assert one.look() is None
    assert one.decide() == machine.true + 10 * DAY
    assert not (tmp_path / CONFIRM_NAME).exists()
    machine.jumps(10 * DAY)
    (tmp_path / CONFIRM_NAME).write_bytes(kept)
    assert one.look() is Trouble.AHEAD
    assert not (tmp_path / CONFIRM_NAME).exists()
    machine.jumps(-20 * DAY)  # back to the truth, which the operator had called wrong
    assert one.look() is Trouble.BACK
    confirm(tmp_path, machine)
    assert one.look() is None
    machine.jumps(10 * DAY)  # where it was when the first was given: that was for another anchor
    (tmp_path / CONFIRM_NAME).write_bytes(kept)
    assert one.look() is Trouble.AHEAD


def test_a_confirmation_of_a_clock_that_moved_since_counts_for_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    """Planted: its reading not compared -> believed, fails."""
    one = keeper(tmp_path, machine)
    machine.jumps(DAY)
    one.look()
    confirm(tmp_path, machine)
    machine.jumps(9 * DAY)
    assert one.look() is Trouble.AHEAD


def test_a_stopped_service_takes_a_confirmation_up_at_its_start(
    tmp_path: Path, machine: Machine
) -> None:
    keeper(tmp_path, machine)
    machine.reboots(off=3 * DAY)
    assert inspect(tmp_path, machine).trouble is Trouble.OFF
    confirm(tmp_path, machine)
    machine.passes(600)
    one = keeper(tmp_path, machine)
    assert one.decide() == machine.true
    assert one.word()[1]


def test_a_peer_that_differs_can_be_excused(tmp_path: Path, machine: Machine) -> None:
    """By what it differs now; more than that is another disagreement."""
    one = keeper(tmp_path, machine)
    one.hear("analyzer", machine.true + 7_200, 1.0, vouched=True)
    assert one.look() is Trouble.PEER
    assert inspect(tmp_path, machine).peers == {"analyzer": pytest.approx(7_200)}
    confirm(tmp_path, machine)
    assert one.look() is None
    machine.passes(30)
    one.hear("analyzer", machine.true + 7_205, 1.0, vouched=True)
    assert one.look() is None
    one.hear("analyzer", machine.true + DAY, 1.0, vouched=True)
    assert one.look() is Trouble.PEER


def test_nothing_is_confirmed_where_nothing_is_disputed(tmp_path: Path, machine: Machine) -> None:
    with pytest.raises(ShoalError) as caught:
        confirm(tmp_path, machine)
    assert caught.value.kind is Kind.NOT_FOUND
    keeper(tmp_path, machine)
    with pytest.raises(ShoalError) as caught:
        confirm(tmp_path, machine)
    assert caught.value.kind is Kind.CONFLICT


def test_a_first_start_can_be_confirmed(tmp_path: Path, machine: Machine) -> None:
    one = keeper(tmp_path, machine, over=NOW)
    assert confirm(tmp_path, machine).trouble is Trouble.FIRST
    assert one.look() is None
    assert inspect(tmp_path, machine).origin == Origin.OPERATOR.value


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": 1}\n', b"x" * 200_000])
def test_a_damaged_record_is_none(tmp_path: Path, machine: Machine, damage: bytes) -> None:
    """Planted: no seal over the line -> a flipped digit moves the anchor, and the last assertion
    fails.
    """
    keeper(tmp_path, machine)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert keeper(tmp_path, machine, over=NOW).look() is Trouble.FIRST
    path.write_bytes(whole.replace(b"1800000000.0", b"1800900000.0"))
    assert keeper(tmp_path, machine, over=NOW).look() is Trouble.FIRST
    (tmp_path / CONFIRM_NAME).write_bytes(damage)
    assert keeper(tmp_path, machine, over=NOW).look() is Trouble.FIRST


def test_a_disk_that_takes_nothing_stops_no_decision(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(timekeeper, "_save", full)
    one = keeper(tmp_path, machine)
    machine.passes(600)
    assert one.look() is None
    assert one.decide() == machine.true


def test_the_time_is_kept_once_a_minute(tmp_path: Path, machine: Machine) -> None:
    """So that a machine that lost its power is known to within a minute. Planted: only at the end
    -> off for an hour, disputed.
    """
    one = keeper(tmp_path, machine)
    for _ in range(3_600):
        machine.passes(1)
        one.look()
    machine.reboots()
    assert keeper(tmp_path, machine).look() is None
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_dispute_is_a_condition_that_says_what_to_do(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """And one line in the log at each change. Planted: told at every look -> three lines."""
    one = keeper(tmp_path, machine)
    assert not list(one.conditions())
    caplog.clear()
    machine.jumps(10 * DAY)
    for _ in range(3):
        one.look()
    (found,) = one.conditions()
    assert found == Condition("clock", "", found.message, stops=True)
    assert "10 d" in found.message
    assert "shoal shuffler clock" in found.message
    machine.jumps(-10 * DAY)
    one.look()
    assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]


def test_this_machine_has_clocks(tmp_path: Path) -> None:
    readings = SystemReadings()
    first, second = readings.read(), readings.read()
    assert first.boot_id == second.boot_id
    assert second.steady >= first.steady
    one = Timekeeper(tmp_path, "shoal analyzer clock")
    one.watch(lambda _: True)
    assert one.look() is None
    assert one.decide() is not None
    if os.path.exists("/proc/sys/kernel/random/boot_id"):
        assert SystemReadings().read().boot_id == first.boot_id


def test_durations_in_words() -> None:
    assert [in_words(one) for one in (0, 59, 61, 3_660, 10 * DAY + 7_200)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "1 h 1 min",
        "10 d 2 h",
    ]


def test_a_clock_that_only_doubts_stops_decisions_and_never_confirms_any(tmp_path: Path) -> None:
    """As a database's, which may be on the same machine: it jumps with ours. What was heard is also
    what a command reads. Planted: taken for a peer's word -> a jump is believed, fails. Planted:
    not heard at all -> ten minutes of difference decide, fails.
    """
    machine = Machine(NOW)
    made = keeper(tmp_path, machine)
    assert made.decide() is not None
    made.hear("database", NOW + 600.0, 0.1, vouched=True, witness=False)
    assert (made.look(), made.letting()) == (Trouble.PEER, None)
    assert inspect(tmp_path, machine).trouble is Trouble.PEER
    made.hear("database", NOW, 0.1, vouched=True, witness=False)
    assert made.look() is None
    machine.jumps(10 * DAY)
    made.hear("database", machine.read().wall, 0.1, vouched=True, witness=False)
    assert made.look() is Trouble.AHEAD
    assert inspect(tmp_path, machine).trouble is Trouble.AHEAD
