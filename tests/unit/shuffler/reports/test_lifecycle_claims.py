"""Two shufflers over one store: a window is worked on by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from shoal.entropy import SeededEntropy
from shoal.shuffler.core import WindowId
from shoal.shuffler.core import WindowState as S
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.stores.claims import CLAIM_S, RENEW_S, Claim, StaleClaimError
from shoal.shuffler.stores.store import AdmittedReport, Store
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.stores.threaded_claims import ThreadedClaims
from shoal.shuffler.tasks import ShufflerTasks
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line, Sink
from tests.worlds.rounds.services import PATIENCE_S


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    await one.stop()


async def test_a_window_of_a_shuffler_that_is_gone_is_taken_over_once(line: Line) -> None:
    """The second one waits for the claim of the first to run out and delivers; the first one, which
    was only slow, finds that out and stops. Planted: a claim given to whoever asks -> the second
    one delivers at once; the claims not renewed -> the first one never stops, fails.
    """
    seconds = 0.0
    line.start()
    published = line.world.publish(min_batch=3)
    line.book.reload()
    store = ThreadedStore(line.files, commit_ms=0, claims=ThreadedClaims(lambda: seconds))
    sinks = [Sink(store), Sink(store)]
    first = Lifecycle(line.book, store, sinks[0], line.clock, SeededEntropy("one"), 0.0)
    for sink in sinks:
        sink.clock = line.clock
    window = WindowId(published.task_id, 0)
    await store.append([AdmittedReport(window, (published.sealed(),)) for _ in range(5)])
    sinks[0].endless = True  # in the middle of a delivery, and slow for ever
    line.clock.time = DEADLINE
    await first.tick()
    line.clock.advance(1)
    await first.tick()
    await sinks[0].began.wait()
    second = Lifecycle(line.book, store, sinks[1], line.clock, SeededEntropy("two"), 0.0)
    await second.tick()
    await second.settle()
    assert sinks[1].attempts == []  # another owner works on it, and is alive
    seconds += CLAIM_S
    line.clock.advance(CLAIM_S)
    await second.tick()
    await second.settle()
    assert len(sinks[1].batches) == 1
    record = store.record(window)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, S.ACKNOWLEDGED)
    line.clock.advance(RENEW_S)
    await first.tick()
    await first.settle()  # would wait for ever
    assert sinks[0].batches == {}
    await store.close()


class Sleeper:
    """A store whose owner is suspended right before one of its changes, until ``wake``."""

    CHANGES = frozenset({"close_intake", "seal", "advance", "destroy_inbox", "mend", "shred"})

    def __init__(self, store: ThreadedStore, before: int) -> None:
        """``before``: how many changes come before it."""
        self._store, self._left = store, before
        self.asleep, self.wake = asyncio.Event(), asyncio.Event()
        self.refused = False  # whether the change was, after it woke

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in self.CHANGES:
            return real

        async def change(*arguments: object, **more: object) -> Any:
            self._left -= 1
            if self._left == -1:
                self.asleep.set()
                await self.wake.wait()
                with pytest.raises(StaleClaimError) as late:
                    await real(*arguments, **more)
                self.refused = True
                raise late.value
            return await real(*arguments, **more)

        return change


@pytest.mark.parametrize("before", range(10))
async def test_a_shuffler_that_sleeps_longer_than_its_claim_loses_and_doubles_nothing(
    line: Line, before: int
) -> None:
    """Suspended right before any of the changes of a window's life, for longer than its claim
    holds; another one carries the window on; the first one wakes, and goes on where it was. Each
    row is in the batch once, there is one batch, and the window ends once. Planted, for each method
    of ``ThreadedStore`` that takes a claim, but ``lapse`` (which the store's suite holds): the
    check left out -> the first one's change is carried out after the window's end, or it is not
    told that it was late, fails. Planted: a window that is closed already is closed again and again
    -> it stays undecided, fails.
    """
    seconds = 0.0
    line.start()
    published = line.world.publish(min_batch=3)
    line.book.reload()
    store = ThreadedStore(line.files, commit_ms=0, claims=ThreadedClaims(lambda: seconds))
    sleeper, sinks = Sleeper(store, before), [Sink(store), Sink(store)]
    for sink in sinks:
        sink.clock = line.clock
    first = Lifecycle(
        line.book, cast(Store, sleeper), sinks[0], line.clock, SeededEntropy("one"), 0.0
    )
    window = WindowId(published.task_id, 0)
    sent = [published.sealed() for _ in range(5)]
    assert await store.append([AdmittedReport(window, (one,)) for one in sent]) == [None] * 5
    line.clock.time = DEADLINE
    work = asyncio.create_task(_ticks(first, line))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(
            [work, asyncio.create_task(sleeper.asleep.wait())], return_when="FIRST_COMPLETED"
        )
    assert sleeper.asleep.is_set() == (before < 9), "changes of a window's life"
    seconds += CLAIM_S
    line.clock.advance(CLAIM_S)
    # what comes while its shuffler sleeps is in the window, or is told that it is over
    late = published.sealed()
    counts = await store.append([AdmittedReport(window, (late,))]) == [None]
    assert counts == (before == 0)
    book = ShufflerTasks(  # the second one's own: the first one's does not hear of what it does
        store,
        line.clock,
        line.world.tasks_dir,
        line.world.keys_dir,
        frozenset({line.world.authority.public}),
        line.world.shuffler.public,
    )
    second = Lifecycle(book, store, sinks[1], line.clock, SeededEntropy("two"), 0.0)
    await _ticks(second, line)
    ended = store.records()
    assert (ended[window].state, ended[window].outcome) == (S.SHREDDED, S.ACKNOWLEDGED)
    sleeper.wake.set()
    await work
    await _ticks(first, line)
    assert sleeper.refused == sleeper.asleep.is_set()
    assert store.records() == ended
    batches = {sink.batches[window] for sink in sinks if sink.batches}
    assert len(batches) == 1
    (batch,) = batches
    size = len(late)
    rows = [batch[at : at + size] for at in range(0, len(batch), size)]
    assert sorted(rows) == sorted([*sent, late] if counts else sent)
    assert first._held._held == {}
    assert window not in [one for _, one in line.book.running(line.clock.now())]
    await store.close()


async def _ticks(lifecycle: Lifecycle, line: Line) -> None:
    for _ in range(4):
        await lifecycle.tick()
        await lifecycle.settle()
        line.clock.advance(1)


@pytest.mark.parametrize("released_in", [0, 1])
async def test_a_window_that_is_finished_during_a_renewal_was_not_taken_over(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    released_in: int,
) -> None:
    """In the renewal of another claim (0) or of its own (1). Planted: claims renewed whether they
    are held still or not, or a stale one of a finished window told -> "taken over", fails.
    """
    line.start()
    published = line.world.publish(min_batch=3)
    line.book.reload()
    lifecycle, renewed, taken = line.lifecycle, list[WindowId](), list[WindowId]()
    windows = [WindowId(published.task_id, number) for number in (0, 1)]
    for window in windows:
        assert await lifecycle._held.get(window) is not None
    real = line.store.renew

    async def renew(claim: Claim, seconds: float) -> None:
        if len(renewed) == released_in:  # the work on the second window ends here
            await lifecycle._held.release(windows[1])
        renewed.append(claim.window)
        await real(claim, seconds)

    monkeypatch.setattr(line.store, "renew", renew)
    await lifecycle._held.renew(line.clock.steady(), taken.append)
    assert (renewed, taken) == (windows[: released_in + 1], [])
    assert not [entry for entry in caplog.records if "taken over" in entry.getMessage()]
