"""How a window of secure aggregation ends at the analyzer: its rounds stop, its sums become one
release, and what could open its vectors is deleted.

The shuffler says when; a window whose end it never said is released when its retention is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from shoal.analyzer.core import retention_over
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.rounds.open_rounds import OpenRounds
from shoal.analyzer.rounds.sums import AnySum, Conclude, SumStore, sum_form
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log

log = get_log("analyzer")
_SWEEP_S = 60.0


class ConcludeSums(Protocol):
    """How the sums of a window become its release: ``sum_release.conclude_sums``."""

    def __call__(
        self,
        served: ServedTask,
        window: int,
        sums: Sequence[AnySum],
        aborted: Mapping[str, int],
        earlier: Sequence[Spending],
        key: SigningKey,
        damaged: int,
    ) -> WindowOutcome: ...


class WindowEnds:
    """Ends windows of sums, each once.

    ``shred`` deletes what could open vectors of a released window; it blocks, may be repeated and
    raises KEY_FILE or OSError.
    """

    def __init__(
        self,
        rounds: OpenRounds,
        sums: SumStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        signing_key: SigningKey,
        conclude: ConcludeSums,
        shred: Callable[[TaskId, int], None],
        clock: SureClock,
    ) -> None:
        self._rounds, self._sums, self._tasks, self._clock = rounds, sums, tasks, clock
        self._keys, self._signing_key = keys, signing_key
        self._conclude, self._shred = conclude, shred
        self._ending = asyncio.Lock()

    async def end(self, served: ServedTask, window: int, damaged: int = 0, summed: int = 0) -> None:
        """Release a window once, abort what is open of it, and delete what could open its vectors.
        May be repeated. Raises OVERLOADED (disk), UNAVAILABLE (keys can't be deleted).

        ``damaged``: acknowledged vectors that the shuffler lost. ``summed``: devices in this
        window's sums, as far as it knows.
        """
        async with self._ending:
            await self._rounds.end_window(served.task_id, window)
            least = served.task.pairwise.survivors_min if served.task.pairwise else 0
            concluding = self._concluding(served, window, damaged, summed)
            fresh = await asyncio.to_thread(
                self._sums.finish,
                served.task_id,
                window,
                concluding,
                least,
                sum_form(served.task),
            )
            if fresh:
                log.info("window of rounds finished", task=served.task_id, window=window)
            try:
                await asyncio.to_thread(self._shred, served.task_id, window)
            except (ShoalError, OSError) as error:
                log.error(
                    "the key of a window that is over can't be deleted",
                    task=served.task_id,
                    window=window,
                    error=error,
                )
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    "the analyzer can't delete what it released: its operator finds the reason in "
                    "its log",
                ) from None

    def _concluding(self, served: ServedTask, window: int, damaged: int, summed: int) -> Conclude:
        def conclude(
            sums: Sequence[AnySum],
            aborted: Mapping[str, int],
            earlier: list[Spending],
            lost: int,
        ) -> tuple[WindowOutcome, bool]:
            """Sums whose row is gone are missed by what the shuffler knows; a damaged one is told
            by its head too.
            """
            lost_here = max(lost, summed - sum(stored.survivors for stored in sums))
            if lost_here:
                log.error(
                    "devices of sums are lost", task=served.task_id, window=window, count=lost_here
                )
            self._keys.begin_release(served.keys.analyzer_keys[window].key_id)
            outcome = self._conclude(
                served, window, sums, aborted, earlier, self._signing_key, damaged + lost_here
            )
            return outcome, not decode_release(outcome.release).withheld

        return conclude

    async def sweep_forever(self) -> None:
        """``sweep`` once a minute, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            # whatever it was, retention is held at the next sweep
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001
                log.error("rounds could not be swept: will be tried again", error=error)

    async def sweep(self) -> None:
        """Abort rounds that the shuffler has forgotten, and release windows with sums whose end it
        never said before retention.
        """
        await self._rounds.drop_forgotten()
        now = self._clock.decide()
        if now is None:
            return
        for task_id, window in sorted(await asyncio.to_thread(self._sums.unreleased)):
            if not self._tasks.serves(task_id):  # a condition says so
                continue
            served = self._tasks.get(task_id)
            if retention_over(served.task, window, now):
                await self.end(served, window)
