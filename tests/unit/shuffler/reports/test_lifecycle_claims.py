"""Two shufflers over one store: a window is worked on by one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.entropy import SeededEntropy
from shoal.shuffler.core import WindowId
from shoal.shuffler.core import WindowState as S
from shoal.shuffler.reports.lifecycle import CLAIM_S, RENEW_S, Lifecycle
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.store import AdmittedReport
from shoal.shuffler.stores.threaded import ThreadedStore
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line, Sink


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
    store = ThreadedStore(line.files, commit_ms=0, steady=lambda: seconds)
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
    lifecycle, renewed = line.lifecycle, list[WindowId]()
    windows = [WindowId(published.task_id, number) for number in (0, 1)]
    claims = [await lifecycle._claimed(window) for window in windows]
    real = line.store.renew

    async def renew(claim: Claim, seconds: float) -> None:
        if len(renewed) == released_in:  # the work on the second window ends here
            finished = claims[1]
            assert finished is not None
            lifecycle._claims.pop(windows[1])
            await line.store.release(finished)
        renewed.append(claim.window)
        await real(claim, seconds)

    monkeypatch.setattr(line.store, "renew", renew)
    await lifecycle._renew(line.clock.steady())
    assert renewed == windows[: released_in + 1]
    assert not [entry for entry in caplog.records if "taken over" in entry.getMessage()]
