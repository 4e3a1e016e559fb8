"""Clocks that jump under services as they are wired: their own loops look, close, sweep and ask; a
test moves the machine's clocks.

Every case ends with the time that is right, and with the work that waits for it: what stops must
also go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clocks.clock import FakeClock
from shoal.clocks.timekeeper import confirm
from shoal.errors import Kind
from shoal.shuffler.core import WindowId, WindowState
from tests.worlds.clock import DAY, Machine
from tests.worlds.rounds import services as rounds_world
from tests.worlds.rounds.services import Running
from tests.worlds.services.analyzer import World as AnalyzerWorld
from tests.worlds.services.analyzer import make_task
from tests.worlds.services.analyzer_service import running as serving_analyzer
from tests.worlds.services.clock_loops import Bench, Loops, until
from tests.worlds.services.shuffler import GRACE, LENGTH, START, AnalyzerEnd, World


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Loops:
    return Loops(monkeypatch)


# --- the analyzer: +10 days for 66 s deleted every key --------------------------------------------


async def test_ten_days_ahead_for_a_minute_delete_no_key(tmp_path: Path, loops: Loops) -> None:
    """Also over restarts in the jump, twice; afterwards keys go with their retention. Planted: the
    sweep by the wall clock (as it was) -> every key is gone at the first sweep; ``decide`` never
    None -> the same.
    """
    world = AnalyzerWorld(replace(make_task(), retention_s=2 * 86_400))
    machine = Machine(world.task.windows.start_s + 10.0)
    keys = [tmp_path / "keys" / f"{key.config.key_id.hex}.key" for key in world.keys]
    async with serving_analyzer(world, tmp_path, readings=machine) as one:
        machine.jumps(10 * DAY)
        await loops.passed("look", "sweep")
        assert all(key.exists() for key in keys)
        assert "ahead" in str(one.service.conditions.ready())
    for _ in range(2):
        machine.passes(33)
        async with serving_analyzer(world, tmp_path, readings=machine) as one:
            await loops.passed("look", "sweep")
            assert all(key.exists() for key in keys)
            assert one.service.conditions.ready() is not None
    async with serving_analyzer(world, tmp_path, readings=machine) as one:
        machine.jumps(-10 * DAY)
        await loops.passed("look", "sweep")
        assert one.service.conditions.ready() is None
        assert all(key.exists() for key in keys)
        for _ in range(4):
            machine.passes(DAY)
            await loops.passed("look")
        await until(lambda: not any(key.exists() for key in keys))


async def test_a_batch_is_taken_and_released_in_a_dispute_and_its_own_key_goes(
    tmp_path: Path, loops: Loops
) -> None:
    """A release rests on no clock; retention does. Planted: offers refused by the wall clock that
    is ahead -> WINDOW_CLOSED.
    """
    world = AnalyzerWorld(replace(make_task(), retention_s=2 * 86_400))
    machine = Machine(world.task.windows.start_s + 10.0)
    keys = [tmp_path / "keys" / f"{key.config.key_id.hex}.key" for key in world.keys]
    async with serving_analyzer(world, tmp_path, readings=machine) as one:
        machine.passes(world.task.windows.length_s)
        machine.jumps(10 * DAY)
        await loops.passed("look", "sweep")
        await one.caller.done(world.batch(world.seal_cells([1] * 30, 0), 0))
        assert [key.exists() for key in keys] == [False, True]
        await loops.passed("sweep")
        assert [key.exists() for key in keys] == [False, True]


# --- the shuffler: +1 day for 4 s closed 100 windows, +10 days for 6 s deleted acknowledged reports


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    one = Bench(World(tmp_path), Machine(START + 10.0))
    yield one
    await one.stop()
    with contextlib.suppress(Exception):
        await one.analyzer.stop()


async def test_a_day_ahead_for_four_seconds_closes_no_window(bench: Bench, loops: Loops) -> None:
    """100 windows of a quarter of an hour, the first with reports; a device that reports meanwhile
    is told to try again.

    Planted: closing by the wall clock (as it was) -> all 100 are closed, the hop key is gone;
    admission by it -> WINDOW_CLOSED, and the device drops its report; the catalogue by it -> empty,
    and it stays so.
    """
    published = bench.world.publish(count=100, length_s=900, grace_s=60)
    await bench.start()
    assert [await bench.submit(published) for _ in range(3)] == [None] * 3
    shown = await bench.catalogue()
    bench.machine.jumps(DAY + 7_200)
    await loops.passed("tick", "look")
    assert await bench.submit(published) is Kind.UNAVAILABLE
    assert await bench.batch(published) == [Kind.UNAVAILABLE.value]
    assert await bench.catalogue() == shown
    bench.machine.passes(4)
    assert bench.states(published) == {0: WindowState.OPEN}
    assert "clock" in str(bench.shuffler.conditions.ready())
    bench.machine.jumps(-DAY - 7_200)
    await loops.passed("tick", "look")
    assert bench.states(published) == {0: WindowState.OPEN}
    assert list(bench.world.keys_dir.iterdir())
    assert bench.shuffler.conditions.ready() is None
    assert await bench.submit(published) is None
    assert await bench.batch(published) == [0, 0]
    assert await bench.catalogue() == shown
    bench.machine.passes(960)
    await until(lambda: bench.states(published).get(0) is WindowState.SHREDDED)
    (rows,) = bench.analyzer.delivered.values()
    assert len(rows) == 5


async def test_ten_days_ahead_for_six_seconds_delete_no_report(bench: Bench, loops: Loops) -> None:
    """Reports of a closed window wait for an analyzer that is away, those of an open one for its
    end; retention is five days.

    Planted: expiry by the wall clock (as it was) -> both are gone; a retry's time taken from it ->
    the batch waits ten days more.
    """
    published = bench.world.publish(count=2, retention_s=5 * 86_400)
    await bench.start()
    await bench.analyzer.stop()
    assert [await bench.submit(published, 0) for _ in range(3)] == [None] * 3
    bench.machine.passes(LENGTH + GRACE)
    await until(lambda: bench.states(published).get(0) is WindowState.DELIVERING)
    assert [await bench.submit(published, 1) for _ in range(3)] == [None] * 3
    bench.machine.jumps(10 * DAY)
    for _ in range(2):
        await loops.passed("tick", "look")
        assert bench.states(published) == {0: WindowState.DELIVERING, 1: WindowState.OPEN}
        bench.machine.passes(3)
        await bench.stop()
        await bench.start()
    # a delivery failed in the jump: when is the next?
    await until(lambda: bool(bench.shuffler.lifecycle.trouble()))
    bench.machine.jumps(-10 * DAY)
    await loops.passed("tick", "look")
    assert bench.states(published) == {0: WindowState.DELIVERING, 1: WindowState.OPEN}
    again = AnalyzerEnd(bench.world)
    await again.start(bench.address)
    bench.analyzer = again

    def shredded(window: int) -> bool:
        bench.machine.passes(1)
        return bench.states(published).get(window) is WindowState.SHREDDED

    await until(lambda: shredded(0))
    bench.machine.passes(LENGTH)
    await until(lambda: shredded(1))
    assert sorted(map(len, again.delivered.values())) == [3, 3]


async def test_a_clock_that_goes_back_holds_nothing_up_for_longer_than_that(
    bench: Bench, loops: Loops
) -> None:
    """And what was closed before is delivered meanwhile. Planted: delivery times by the wall clock
    -> the batch waits a day.
    """
    published = bench.world.publish(count=2)
    await bench.start(delivery_delay_max_s=300)
    assert [await bench.submit(published) for _ in range(3)] == [None] * 3
    bench.machine.passes(LENGTH + GRACE - 30)
    bench.machine.jumps(-DAY)
    await loops.passed("tick", "look")
    # not TOO_EARLY, not stored by a clock that may be wrong
    assert await bench.submit(published) is Kind.UNAVAILABLE
    bench.machine.passes(60)
    bench.machine.jumps(DAY)
    await until(lambda: bench.states(published).get(0) is WindowState.SEALED)
    await until(
        lambda: all(
            one.deliver_at is not None for one in bench.shuffler.lifecycle._pending.values()
        )
    )
    bench.machine.jumps(-DAY)
    await loops.passed("tick")
    bench.machine.passes(300)
    await until(lambda: bench.states(published).get(0) is WindowState.SHREDDED)


async def test_a_first_start_with_windows_that_are_over_waits_for_a_word(
    bench: Bench, loops: Loops
) -> None:
    """A clock that is a day ahead when there is nothing to compare it with. The service is ready,
    and turns nobody away.

    Planted: believed -> the windows are closed, the key is gone; refusals by ``letting`` alone ->
    WINDOW_CLOSED.
    """
    published = bench.world.publish(count=2)
    bench.machine.jumps(DAY)
    await bench.start()
    await loops.passed("tick", "look")
    assert bench.states(published) == {}
    assert [one.code for one in bench.shuffler.conditions.current() if not one.stops] == ["clock"]
    assert bench.shuffler.conditions.ready() is None
    assert await bench.submit(published) is Kind.UNAVAILABLE
    assert await bench.batch(published) == [Kind.UNAVAILABLE.value] * 2
    bench.machine.jumps(-DAY)
    await until(lambda: bench.shuffler.conditions.current() == ())
    assert await bench.submit(published) is None
    await bench.stop()
    bench.machine.reboots(off=30)
    bench.machine.jumps(DAY)
    (bench.world.data_dir / "clock.json").unlink()
    await bench.start()
    await loops.passed("tick", "look")
    assert bench.states(published) == {0: WindowState.OPEN}
    confirm(bench.world.data_dir, bench.machine)
    await until(lambda: bench.states(published).get(1) is not None)


async def test_a_first_start_in_mid_task_takes_reports(bench: Bench, loops: Loops) -> None:
    """A shuffler that moved to another machine: its first window is over, and nobody vouches for
    its clock.

    Planted: admission by ``decide`` alone (as it was) -> UNAVAILABLE; a full window closed by
    ``decide`` alone -> waits for ever.
    """
    published = bench.world.publish(count=3, max_batch=3)
    plan = published.task.windows
    bench.machine.passes(plan.length_s + plan.grace_s)
    await bench.start()
    await loops.passed("tick", "look")
    assert await bench.submit(published, window=1) is None
    assert await bench.batch(published, window=1) == [0, 0]
    assert await bench.submit(published, window=0) is Kind.UNAVAILABLE
    assert await bench.submit(published, window=2) is Kind.UNAVAILABLE
    await loops.passed("tick")
    assert bench.states(published) == {1: WindowState.OPEN}
    assert await bench.submit(published, window=1) is None
    await until(lambda: bench.states(published).get(1) is WindowState.SHREDDED)
    assert bench.states(published) == {1: WindowState.SHREDDED}


async def test_an_analyzers_first_start_with_keys_that_are_over_waits_for_a_word(
    tmp_path: Path, loops: Loops
) -> None:
    """Planted: believed -> the keys are deleted."""
    world = AnalyzerWorld(replace(make_task(), retention_s=2 * 86_400))
    machine = Machine(world.task.windows.start_s + 10.0)
    machine.jumps(10 * DAY)
    async with serving_analyzer(world, tmp_path, readings=machine) as one:
        await loops.passed("look", "sweep")
        assert len(list((tmp_path / "keys").iterdir())) == len(world.keys)
        machine.jumps(-10 * DAY)
        await until(lambda: one.service.conditions.ready() is None)


async def test_retention_holds_after_an_operator_confirmed(bench: Bench, loops: Loops) -> None:
    """A machine that was off for a month, and an analyzer that is gone. Planted: the confirmation
    never looked at -> waits for ever.
    """
    published = bench.world.publish(count=1, retention_s=86_400)
    await bench.start()
    await bench.analyzer.stop()
    assert [await bench.submit(published) for _ in range(3)] == [None] * 3
    await bench.stop()
    bench.machine.reboots(off=30 * DAY)
    await bench.start()
    await loops.passed("tick", "look")
    assert bench.states(published) == {0: WindowState.OPEN}
    assert "restart" in str(bench.shuffler.conditions.ready())
    confirm(bench.world.data_dir, bench.machine)
    await until(lambda: bench.states(published).get(0) is WindowState.SHREDDED)
    record = bench.shuffler.store.record(WindowId(published.task_id, 0))
    assert record is not None
    assert record.outcome is WindowState.EXPIRED


# --- both services --------------------------------------------------------------------------------


@pytest.fixture
async def both(tmp_path: Path, loops: Loops) -> AsyncIterator[Running]:
    """A shuffler and an analyzer on machines of their own, which have been up for longer than it
    takes to be a witness.
    """
    one = Running(rounds_world.World(tmp_path))
    one.machines = {"analyzer": Machine(START + 1.0), "shuffler": Machine(START + 1.0)}
    try:
        await one.start_analyzer()
        await one.start_shuffler()
        for machine in machines(one):
            machine.passes(700)
        await loops.passed("look", "ask")
        yield one
    finally:
        await one.close()


def machines(one: Running) -> list[Machine]:
    return [machine for machine in one.machines.values() if isinstance(machine, Machine)]


async def test_a_machine_that_stood_still_is_set_right_by_the_other(
    both: Running, loops: Loops
) -> None:
    """The shuffler's first, then the analyzer's. Planted: the word not asked for while disputed, or
    not heard by the analyzer -> waits for ever.
    """
    analyzer, shuffler = machines(both)
    for paused, other, conditions in (
        (shuffler, analyzer, both.shuffler.conditions),
        (analyzer, shuffler, both.analyzer.conditions),
    ):
        other.passes(7_200)
        paused.pauses(7_200)
        await loops.passed("ask", "look")
        await until(lambda conditions=conditions: conditions.ready() is None)  # type: ignore[misc]
    assert both.shuffler.conditions.ready() is None
    assert both.analyzer.conditions.ready() is None


async def test_one_time_server_that_fools_both_moves_neither(both: Running, loops: Loops) -> None:
    """Planted: a peer that is in dispute itself taken for a witness -> both believe the jump, and
    the window ends.
    """
    for machine in machines(both):
        machine.jumps(10 * DAY)
    await loops.passed("ask", "look", "sweep", "tick")
    assert both.shuffler.conditions.ready() is not None
    assert both.analyzer.conditions.ready() is not None
    assert list((both.world.folder / "analyzer" / "keys").iterdir())
    assert list(both.world.shuffler.keys_dir.iterdir())
    assert both.shuffler.store.records() == {}
    for machine in machines(both):
        machine.jumps(-10 * DAY)
    await until(
        lambda: (
            both.shuffler.conditions.ready() is None and both.analyzer.conditions.ready() is None
        )
    )


async def test_clocks_that_differ_stop_both_until_one_is_mended(
    both: Running, loops: Loops
) -> None:
    """The shuffler's machine is set two hours ahead, and its operator says that this is right; then
    the analyzer's is set so too.
    """
    analyzer, shuffler = machines(both)
    shuffler.jumps(7_200)
    await loops.passed("ask", "look")
    confirm(both.world.shuffler.data_dir, shuffler)
    await until(lambda: both.shuffler.conditions.ready() is None)
    await until(lambda: "other service" in str(both.analyzer.conditions.ready()))
    analyzer.jumps(7_200)
    await until(lambda: both.analyzer.conditions.ready() is None)
    assert both.shuffler.conditions.ready() is None


async def test_a_jump_ends_no_round(tmp_path: Path) -> None:
    """Devices are in a round when the shuffler's clock goes ten days ahead, and the analyzer's an
    hour back: the round ends with its sum.

    Planted: the phases by the wall clock (as they were) -> the round is aborted, and its devices
    have answered for nothing.
    """
    one = Running(rounds_world.World(tmp_path, devices=12))
    one.machines = {"analyzer": Machine(START + 1.0), "shuffler": Machine(START + 1.0)}
    try:
        await one.start_analyzer()
        await one.start_shuffler()
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is not None)
        devices = one.world.devices(12)
        asked = one.begin(devices[:11])
        await one.until(lambda: one.counts().get("joined", 0) == 11)
        machines(one)[1].jumps(10 * DAY)
        machines(one)[0].jumps(-3_600)
        asked += one.begin(devices[11:])
        await one.until(lambda: all(task.done() for task in asked))
        assert [total.survivors for total in one.sums()] == [12]
    finally:
        await one.close()


async def test_a_hand_clock_is_still_a_clock(tmp_path: Path) -> None:
    """Services of tests and of whoever brings a clock of their own answer a peer, and vouch for
    nothing.
    """
    one = Running(rounds_world.World(tmp_path))
    one.machines = {"shuffler": Machine(START + 1.0)}
    assert isinstance(one.clock, FakeClock)
    try:
        await one.start_analyzer()
        await one.start_shuffler()
        assert one.shuffler.conditions.ready() is None
    finally:
        await one.close()
