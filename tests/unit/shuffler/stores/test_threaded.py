"""What the embedded store adds to its steps: they end before anybody else has the window."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.errors import Kind
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.claims import Claim, ClaimTable, OwnerId, StaleClaimError
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, SealedRows
from shoal.shuffler.stores.threaded import ThreadedStore

TASK, ROW = TaskId(bytes(32)), 40
WINDOW = WindowId(TASK, 0)
ME, OTHER = OwnerId(b"m" * 16), OwnerId(b"o" * 16)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_window_is_not_taken_over_before_a_step_of_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Also when whoever waited for the step is cancelled, once or more: its thread goes on.
    Planted: the lock of the window not taken by ``claim``, the thread not waited for, or not after
    a second cancellation -> taken over meanwhile, fails.
    """
    files = SqliteStore(tmp_path)
    store = ThreadedStore(files, commit_ms=0)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100), ROW)
    await store.append([AdmittedReport(WINDOW, (secrets.token_bytes(ROW),)) for _ in range(3)])
    mine = await store.claim(WINDOW, ME, 0.0)
    assert mine is not None
    await store.close_intake(mine)
    entered, go_on = threading.Event(), threading.Event()
    real = files.seal

    def slow(window: WindowId, added: Sequence[bytes]) -> SealedRows:
        entered.set()
        assert go_on.wait(30)
        return real(window, added)

    monkeypatch.setattr(files, "seal", slow)
    sealing = asyncio.create_task(store.seal(mine))
    assert await asyncio.to_thread(entered.wait, 30)
    taking = asyncio.create_task(store.claim(WINDOW, OTHER, 60.0))
    for _ in range(times):
        sealing.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
    early = sealing.done() or taking.done()
    go_on.set()
    assert not early
    with pytest.raises(asyncio.CancelledError):
        await sealing
    theirs = await taking
    assert theirs is not None
    monkeypatch.setattr(files, "seal", real)
    with pytest.raises(StaleClaimError):
        await store.seal(mine)
    assert (await store.seal(theirs)).rows == 3
    await store.close()


async def test_an_open_window_is_shredded_behind_what_was_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the thread that stores reports: its inbox is that thread's. Planted: in another one ->
    fails.
    """
    files, threads = SqliteStore(tmp_path), list[int]()
    store = ThreadedStore(files, commit_ms=0)
    real_append, real_shred = files.append, files.shred

    def append(submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        threads.append(threading.get_ident())
        return real_append(submissions)

    def shred(window: WindowId) -> None:
        threads.append(threading.get_ident())
        real_shred(window)

    monkeypatch.setattr(files, "append", append)
    monkeypatch.setattr(files, "shred", shred)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100), ROW)
    assert await store.append([AdmittedReport(WINDOW, (secrets.token_bytes(ROW),))]) == [None]
    claim = await store.claim(WINDOW, ME, 60.0)
    assert claim is not None
    await store.shred(claim)
    assert len(threads) == 2
    assert len(set(threads)) == 1
    assert store.distinct(WINDOW) == 0
    await store.close()


def test_a_claim_runs_out_by_the_clock_of_the_store() -> None:
    """At the second, not before. Planted: ``<=`` for ``<`` -> fails."""
    now = 100.0
    table = ClaimTable(lambda: now)
    first = table.claim(WINDOW, ME, 15.0)
    assert first == Claim(WINDOW, ME, 1)
    now = 114.9
    assert table.claim(WINDOW, OTHER, 15.0) is None
    table.renew(first, 15.0)
    now = 129.8
    assert table.claim(WINDOW, OTHER, 15.0) is None
    now = 129.9
    second = table.claim(WINDOW, OTHER, 15.0)
    assert second == Claim(WINDOW, OTHER, 2)
    assert not table.is_last(first)
