"""kill -9 of the real service, with real workers, at any moment of a batch: counted once, and no
worker left behind.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.protos.delivery_pb2 import BATCH_STATE_RECEIVING
from tests.sizes import size
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.services.analyzer_process import serving, wait_gone
from tests.worlds.services.analyzer_service import chunks

PAST = make_task()
WORLD = World(
    replace(
        PAST, windows=replace(PAST.windows, start_s=1_700_000_000), retention_s=100 * 366 * 86_400
    )
)
ROWS = size(8_000, 60_000)  # half a second of opening for one worker, 4 s in full


def state(folder: Path) -> BatchState:
    store = AnalyzerStore(folder / "data" / FILE_NAME, read_only=True)
    (batch,) = store.batches()
    store.close()
    return batch.state


async def test_killed_while_it_receives_and_while_it_opens(tmp_path: Path) -> None:
    """Planted: PROCESSING batches not queued at the start -> the release does not come, and this
    fails.
    """
    batch = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(ROWS)]))
    orphans: list[int] = []
    with serving(WORLD, tmp_path) as analyzer:
        caller = analyzer.caller()
        await caller.offer(batch)
        await caller.deliver(chunks(batch, 0, 500)[:3])
        orphans += analyzer.workers()
        assert analyzer.end(signal.SIGKILL) == -signal.SIGKILL
        await caller.channel.close()
    assert state(tmp_path) is BatchState.RECEIVING
    with serving(WORLD, tmp_path) as analyzer:
        caller = analyzer.caller()
        reply = await caller.offer(batch)
        # synced, so all of it is there
        assert (reply.state, reply.received_rows) == (BATCH_STATE_RECEIVING, 1_500)
        await caller.deliver(chunks(batch, 1_500, 500))
        orphans += analyzer.workers()
        assert analyzer.end(signal.SIGKILL) == -signal.SIGKILL
        await caller.channel.close()
    assert state(tmp_path) is BatchState.PROCESSING  # the reply came before the opening was over
    with serving(WORLD, tmp_path) as analyzer:
        analyzer.until("window released")
        caller = analyzer.caller()
        await caller.done(batch)
        await caller.channel.close()
        assert analyzer.end(signal.SIGTERM) == 0
    store = AnalyzerStore(tmp_path / "data" / FILE_NAME, read_only=True)
    (stored,) = store.releases()
    store.close()
    release = to_json(decode_release(stored.release))
    assert (release["n"], release["rejected"]) == (ROWS, {})
    wait_gone(orphans)


async def test_a_clean_stop_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    """SIGTERM while a batch is opened: exit 0, and the next start finishes it."""
    batch = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(ROWS)]))
    with serving(WORLD, tmp_path) as analyzer:
        caller = analyzer.caller()
        await caller.offer(batch)
        await caller.deliver(chunks(batch, 0, 500))
        await caller.channel.close()
        workers = analyzer.workers()
        assert analyzer.end(signal.SIGTERM) == 0
    wait_gone(workers)
    with serving(WORLD, tmp_path) as analyzer:
        caller = analyzer.caller()
        await caller.done(batch)
        await caller.channel.close()
    store = AnalyzerStore(tmp_path / "data" / FILE_NAME, read_only=True)
    assert [to_json(decode_release(stored.release))["n"] for stored in store.releases()] == [ROWS]
    store.close()
