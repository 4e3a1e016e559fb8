"""Two shufflers over one store: a window is worked on by one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.entropy import SeededEntropy
from shoal.shuffler.core import WindowId
from shoal.shuffler.core import WindowState as S
from shoal.shuffler.reports.lifecycle import CLAIM_S, RENEW_S, Lifecycle
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
