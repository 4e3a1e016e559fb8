"""Loops as the services wire them: that they come round, that their pauses grow and end, that they
forget what is finished.

Pauses are looked at where a loop asks for them (``Pauses``), or by a clock that a test moves:
nothing here waits for time to pass.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.analyzer.batches import processing
from shoal.analyzer.batches.spool import spool_path
from shoal.analyzer.rounds import window_ends
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt import link as mqtt_link
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.rounds import driver as round_driver
from shoal.shuffler.rounds import live_round
from shoal.shuffler.rounds.live_round import GaveUpError, ask
from tests.unit.shuffler.reports.test_lifecycle import Line
from tests.worlds.pauses import QUICK_S, Longest, Pauses, replaced, until
from tests.worlds.rounds import services as rounds_world
from tests.worlds.rounds.services import running as serving_rounds
from tests.worlds.services.analyzer import World as AnalyzerWorld
from tests.worlds.services.analyzer import make_task
from tests.worlds.services.analyzer_service import running as serving_analyzer
from tests.worlds.services.shuffler import GRACE, LENGTH, START

DEADLINE = START + LENGTH + GRACE


# --- the shuffler's lifecycle ---------------------------------------------------------------------


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    await one.stop()


@pytest.mark.parametrize("bug", [False, True])
async def test_pauses_after_failures_double_up_to_five_minutes_and_begin_anew(
    line: Line, bug: bool
) -> None:
    """Anew after an answer, though it was only that the analyzer is still at work. ``bug``: what no
    rule foresees waits for the longest at once. Planted: failures not counted up (either branch),
    or not set back -> another row of gaps.
    """
    published = line.world.publish()
    line.start()
    line.lifecycle._entropy = Longest()
    await line.submit(published, 3)
    failure: Exception = ZeroDivisionError() if bug else ShoalError(Kind.UNAVAILABLE, "no")
    answers: list[Exception | bool] = [failure] * 12 + [False] + [failure] * 2 + [True]
    attempts, failed = list[float](), 0

    async def attempt(*_: object) -> bool:
        nonlocal failed
        attempts.append(line.clock.now())
        answer = answers.pop(0)
        if isinstance(answer, bool):
            failed = 0
            return answer
        failed += 1
        raise answer

    line.sink.attempt = attempt  # type: ignore[method-assign,assignment]
    await line.tick(DEADLINE)
    while line.state(published) is not WindowState.SHREDDED:
        await line.tick(line.clock.now() + 1)
        failing = line.lifecycle.trouble().values()
        assert [count for _, count in failing] in ([], [failed])
    gaps = [round(later - sooner) for sooner, later in itertools.pairwise(attempts)]
    grown = [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    poll = round(LIMITS.deliver_poll_s)
    assert gaps == ([*[300] * 12, poll, 300, 300] if bug else [*grown, poll, 2, 4])


async def test_a_finished_window_is_worked_on_no_more(line: Line) -> None:
    """Planted: finished windows left among those that wait -> each tick begins work for every
    window there ever was.
    """
    published = line.world.publish(count=3)
    line.start()
    for window in range(2):  # one with reports, one withheld
        await line.submit(published, 3 - 2 * window, window)
    await line.tick(START + 3 * LENGTH + GRACE, times=3)
    assert {line.state(published, window) for window in range(3)} == {WindowState.SHREDDED}
    assert not line.lifecycle._pending
    begun = list[WindowId]()
    line.lifecycle._work = lambda window, _: begun.append(window)  # type: ignore[method-assign,assignment,return-value]
    await line.tick(line.clock.now() + 1, times=5)
    assert not begun


# --- the analyzer ---------------------------------------------------------------------------------


async def test_the_analyzer_sweeps_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows whose batch never comes lose their keys with their retention, while nobody calls; a
    look that fails ends no sweep.

    Planted: a loop that never sweeps, or that ends at the first failure -> waits in vain.
    """
    monkeypatch.setattr(processing, "_SWEEP_S", QUICK_S)
    world, failures = (
        AnalyzerWorld(make_task()),
        [ShoalError(Kind.OVERLOADED, "disk"), ZeroDivisionError()],
    )
    clock = FakeClock(world.after)
    async with serving_analyzer(world, tmp_path, clock=clock) as one:
        whole = one.store.batches

        def batches() -> Any:
            if failures:
                raise failures.pop()
            return whole()

        monkeypatch.setattr(one.store, "batches", batches)
        await until(lambda: not failures)
        clock.time = world.expiry(world.task.windows.count)
        await until(lambda: not list((tmp_path / "keys").iterdir()))


async def test_sums_are_released_at_the_end_of_retention_without_a_word_of_the_shuffler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the rounds' loop never sweeps, or ends at a failure -> waits in vain."""
    monkeypatch.setattr(window_ends, "_SWEEP_S", QUICK_S)
    failures = [ShoalError(Kind.OVERLOADED, "disk"), ZeroDivisionError()]
    async with serving_rounds(rounds_world.World(tmp_path)) as one:
        asked = one.begin(one.world.devices(12))
        await one.until(lambda: all(task.done() for task in asked))
        assert len(one.sums()) == 1
        await one.stop("shuffler")
        sums = one.analyzer._rounds._sums
        whole = sums.unreleased

        def unreleased() -> Any:
            if failures:
                raise failures.pop()
            return whole()

        monkeypatch.setattr(sums, "unreleased", unreleased)
        await one.until(lambda: not failures)
        plan = one.world.published.task
        one.clock.time = plan.windows.start_of(0) + plan.retention_s + plan.windows.skew_s
        await one.until(lambda: [stored.window for stored in one.store.releases()] == [0])


async def test_rows_that_are_gone_are_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shuffler has delivered everything and asks for its acknowledgement; the rows vanish
    before they were opened.

    Planted: such a batch left PROCESSING, or its old count of rows neither forgotten nor deleted ->
    never done.
    """
    monkeypatch.setattr(processing, "_AGAIN", Backoff(QUICK_S, QUICK_S))
    world = AnalyzerWorld(make_task())
    async with serving_analyzer(world, tmp_path) as one:
        batch = world.batch(world.seal_cells([1] * 30, 0), 0)
        whole, held = one.service._processor._open, asyncio.Event()

        async def opened(*arguments: Any) -> Any:
            if not held.is_set():
                raise ShoalError(Kind.OVERLOADED, "not yet")
            return await whole(*arguments)

        monkeypatch.setattr(one.service._processor, "_open", opened)
        await one.caller.offer(batch)
        await one.caller.deliver([batch.chunk(0, 30)])
        spool_path(one.data / "spool", batch.manifest_hash).unlink()
        held.set()
        assert (await one.caller.done(batch)).ack
        assert [stored.window for stored in one.store.releases()] == [0]


async def test_a_batch_that_fails_is_opened_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to once a minute; and the next trouble begins with half a second again. Planted: the pause
    not doubled, not bounded, or kept.
    """
    monkeypatch.setattr(processing, "_SWEEP_S", 3_600.0)  # the sweep is asleep already
    world, failing = AnalyzerWorld(make_task()), {"left": 9}
    async with serving_analyzer(world, tmp_path) as one:
        processor = one.service._processor
        whole = processor.process

        async def process(batch: Any) -> None:
            if failing["left"]:
                failing["left"] -= 1
                raise ShoalError(Kind.OVERLOADED, "not yet")
            await whole(batch)

        pauses = list[float]()

        async def pause(length_s: float) -> None:
            pauses.append(length_s)
            await asyncio.sleep(0)

        monkeypatch.setattr(processor, "process", process)
        monkeypatch.setattr(processor, "_pause", pause)
        await one.caller.done(world.batch(world.seal_cells([1] * 30, 0), 0))
        assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
        failing["left"] = 1
        await one.caller.done(world.batch(world.seal_cells([1] * 30, 1), 1))
        assert pauses[9:] == [0.5]


# --- rounds, and the broker's connection ----------------------------------------------------------


async def test_a_round_asks_the_analyzer_less_and_less_often_until_its_patience_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the pause not doubled, not bounded, or patience never over -> another row, or
    none.
    """
    clock = FakeClock(START)
    pauses = replaced(monkeypatch, live_round, lambda _: clock.advance(1.0))

    async def attempt() -> None:
        raise ShoalError(Kind.UNAVAILABLE, "no")

    window = WindowId(AnalyzerWorld(make_task()).task_id, 0)
    with pytest.raises(GaveUpError):
        await ask(attempt, window, clock, Longest(), START + 8.0, "OpenRound")
    assert [round(pause, 2) for pause in pauses.asked] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_a_window_that_cannot_be_finished_is_tried_less_and_less_often_until_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not given up by a clock that is disputed. Planted: the pause not doubled, or the end by
    the wall clock -> fails.
    """
    async with serving_rounds(rounds_world.World(tmp_path)) as one:
        clock, driver = FakeClock(START), one.shuffler.rounds
        served = one.world.published.served
        # the windows that are under way are not ours
        monkeypatch.setattr(driver, "tick", lambda: None)
        parts = replace(driver._parts, clock=clock, entropy=Longest())
        monkeypatch.setattr(driver, "_parts", parts)

        def passes(count: int) -> None:
            if count == 12:
                clock.time, clock.disputed = START + served.task.retention_s + 1.0, True
            if count == 14:
                clock.disputed = False

        pauses = Pauses(passes)
        attempts = 0

        async def attempt() -> bool:
            nonlocal attempts
            attempts += 1
            raise ShoalError(Kind.UNAVAILABLE, "no")

        with monkeypatch.context() as here:
            here.setattr(round_driver, "asyncio", pauses)
            await driver._until_done(served, one.window(), attempt)
        assert [round(pause) for pause in pauses.asked] == [
            1,
            2,
            4,
            8,
            16,
            32,
            64,
            128,
            256,
            300,
            300,
            300,
            300,
            300,
        ]
        assert attempts == 14


async def test_a_broker_that_is_away_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And anew after a connection that lasted. Planted: the attempt not counted, or never set back
    -> another row of pauses.
    """
    enough, now = asyncio.Event(), 0.0
    pauses = replaced(monkeypatch, mqtt_link, lambda count: enough.set() if count >= 11 else None)
    link = Link(
        BrokerSettings(host="127.0.0.1", port=1, insecure=True), entropy=Longest(), client_id="one"
    )
    whole = link._once

    async def once() -> None:
        nonlocal now
        if len(pauses.asked) == 9:
            now += LIMITS.mqtt_retry_most_s + 1.0
        else:
            await whole()

    monkeypatch.setattr(link, "_once", once)
    async with link:
        monkeypatch.setattr(
            pauses, "get_running_loop", lambda: SimpleNamespace(time=lambda: now), raising=False
        )
        await asyncio.wait_for(enough.wait(), 60)
    assert [round(pause, 1) for pause in pauses.asked[:11]] == [
        0.5,
        1,
        2,
        4,
        8,
        16,
        30,
        30,
        30,
        0.5,
        1,
    ]
