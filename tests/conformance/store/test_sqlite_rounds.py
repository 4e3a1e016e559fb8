"""The embedded stores for sums under the common suite, and what their threads add."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.configured import ShufflerStorage, open_embedded
from shoal.shuffler.stores.threaded_rounds import ThreadedAnswers, ThreadedVectors
from tests.conformance.store.harness import HOUR, OTHER, devices
from tests.conformance.store.rounds_suite import ONE, SIZE, RoundsSuite, mine


class TestSqliteRounds(RoundsSuite):
    async def make(self, folder: Path) -> ShufflerStorage:
        return open_embedded(folder, commit_ms=0)

    def remains(self, folder: Path) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))

    async def test_a_window_of_sums_is_not_taken_over_in_the_middle_of_a_change(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also when whoever waited for it is cancelled: its thread goes on. Planted, for each of
        these: the claim looked at before the change alone, without the window's turn -> taken over
        meanwhile, fails.
        """
        storage, (one,) = await self.open(tmp_path), devices(1)
        answers, vectors = storage.answered, storage.vectors
        assert isinstance(answers, ThreadedAnswers)
        assert isinstance(vectors, ThreadedVectors)
        changes: list[tuple[object, str, Callable[[Claim], Awaitable[None]]]] = [
            (answers._blocking, "remember", lambda claim: answers.remember(claim, one)),
            (answers._blocking, "forget", answers.forget),
            (vectors._blocking, "take_no_more", vectors.take_no_more),
            (
                vectors._blocking,
                "leave_out_damaged",
                lambda claim: vectors.leave_out_damaged(claim, SIZE),
            ),
            (vectors._blocking, "fix", lambda claim: vectors.fix(claim, [], [])),
            (vectors._blocking, "forget", vectors.forget),
        ]
        for blocking, name, change in changes:
            entered, go_on = threading.Event(), threading.Event()
            claim = await storage.reports.claim(ONE, OTHER, 0.0)
            assert claim is not None
            with monkeypatch.context() as patched:
                patched.setattr(blocking, name, _held_up(getattr(blocking, name), entered, go_on))
                changing = asyncio.ensure_future(change(claim))
                assert await asyncio.to_thread(entered.wait, 30)
                taking = asyncio.create_task(mine(storage))
                changing.cancel()
                for _ in range(20):
                    await asyncio.sleep(0)
                early = changing.done() or taking.done()
                go_on.set()
                await asyncio.wait([changing])
            assert not early, name
            await storage.reports.renew(await taking, HOUR)
            with pytest.raises(StaleClaimError):
                await change(claim)
            await storage.reports.release(taking.result())


def _held_up(
    real: Callable[..., None], entered: threading.Event, go_on: threading.Event
) -> Callable[..., None]:
    def slow(window: WindowId, *arguments: object) -> None:
        entered.set()
        assert go_on.wait(30)
        real(window, *arguments)

    return slow
