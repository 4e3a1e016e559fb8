"""One thread writes: it gathers calls for a few milliseconds, commits them together, and only then
are they answered.

A group commit costs one fsync per window for hundreds of reports. The caller awaits a future; if it
is cancelled (its deadline passed, its connection broke) the write goes on, because what is half
done must not depend on a peer. The queue is bounded in rows: beyond it calls are refused at once,
nothing waits without limit.

Then the store counts, outside of where the reports are, how many are there, and only after that is
anybody answered: one more sync. Where a whole group waits already, a second thread does that and
answers, once for all groups that are committed meanwhile, so that the disk has both to do at once.
Otherwise the first thread does it: who waits for an answer sends nothing new, so going on meanwhile
would only make two small groups of one, and each group has its price in CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.shuffler.stores.store import Store, Submission

log = get_log("shuffler")
Outcomes = list[Kind | None]


@dataclass(slots=True)
class _Call:
    """One call's reports, or a piece of work that must run between commits."""

    future: asyncio.Future[Any]
    reports: list[Submission]
    work: Callable[[], Any] | None = None


_Result = tuple[asyncio.Future[Any], Any]
_Done = tuple[list[_Call], list[_Result]]  # a group that is on disk, and what is to be answered


class Writer:
    """Belongs to the event loop that starts it. ``commit_rows``, ``commit_ms``, ``queue_rows``: see
    ``LIMITS``.
    """

    def __init__(
        self,
        store: Store,
        *,
        commit_rows: int = LIMITS.commit_rows,
        commit_ms: float = LIMITS.commit_ms,
        queue_rows: int = LIMITS.writer_queue_rows,
    ) -> None:
        self._store = store
        self._commit_rows, self._commit_s, self._queue_rows = (
            commit_rows,
            commit_ms / 1000,
            queue_rows,
        )
        self._calls: deque[_Call] = deque()
        self._wake = threading.Condition()
        self._rows = 0  # reports in the queue and in the commit under way
        self._queued = 0  # reports in the queue
        self._works = 0  # pieces of work in the queue
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._counted = threading.Condition()
        self._done: deque[_Done | None] = deque()  # None: the end
        self._thread = threading.Thread(target=self._run, name="shuffler-writer", daemon=True)
        self._counter = threading.Thread(target=self._confirm, name="shuffler-counter", daemon=True)
        self._thread.start()
        self._counter.start()

    async def submit(self, reports: list[Submission]) -> Outcomes:
        """Store reports; per report None = on disk, or the kind of failure. Raises OVERLOADED,
        UNAVAILABLE (stopping).
        """
        outcomes: Outcomes = await self._enqueue(_Call(self._loop.create_future(), reports))
        return outcomes

    async def run(self, work: Callable[[], Any]) -> Any:  # whatever the work returns
        """Run ``work`` in the writer's thread after everything that was submitted before."""
        return await self._enqueue(_Call(self._loop.create_future(), [], work))

    def _enqueue(self, call: _Call) -> asyncio.Future[Any]:
        with self._wake:
            if self._stopping:
                raise ShoalError(Kind.UNAVAILABLE, "the service is stopping: try again")
            if self._rows and self._rows + len(call.reports) > self._queue_rows:
                raise ShoalError(
                    Kind.OVERLOADED,
                    "too many reports wait for the disk: try again later",
                    retry_after_s=LIMITS.retry_after_s,
                )
            self._rows += len(call.reports)
            self._queued += len(call.reports)
            self._works += call.work is not None
            self._calls.append(call)
            # Waking the thread for every call would cost a switch each; it wakes by itself when its
            # time is over.
            if len(self._calls) == 1 or self._works or self._queued >= self._commit_rows:
                self._wake.notify()
        return call.future

    async def stop(self) -> None:
        """Commit what is queued, then end the thread. Later calls are UNAVAILABLE."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._counter.join)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            calls = self._gather()
            if not calls:
                self._hand_over(None)
                return
            done = (calls, self._carry_out(calls))
            with self._wake:
                another = self._queued >= self._commit_rows
            if another:
                self._hand_over(done)
            else:
                self._finish([done])

    def _hand_over(self, done: _Done | None) -> None:
        with self._counted:
            self._done.append(done)
            self._counted.notify()

    def _confirm(self) -> None:
        """The second thread: count what is on disk, then answer."""
        while True:
            with self._counted:
                while not self._done:
                    self._counted.wait()
                groups = [one for one in self._done if one is not None]
                ended = len(groups) < len(self._done)
                self._done.clear()
            self._finish(groups)
            if ended:
                return

    def _finish(self, groups: list[_Done]) -> None:
        results = self._confirmed(groups)
        with self._wake:
            self._rows -= sum(len(call.reports) for calls, _ in groups for call in calls)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for an answer
            self._loop.call_soon_threadsafe(_answer, results)

    def _confirmed(self, groups: list[_Done]) -> list[_Result]:
        """The results, or a failure for every report of which it is not certain that its loss would
        be noticed.
        """
        results = [result for _, group in groups for result in group]
        if all(call.work is not None for calls, _ in groups for call in calls):
            return results
        try:
            self._store.confirm()
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            kind = error.kind if isinstance(error, ShoalError) else Kind.INTERNAL
            log.error("reports could not be counted", kind=kind, error=error)
            return [
                (
                    future,
                    [one or kind for one in result]
                    if call.work is None and isinstance(result, list)
                    else result,
                )
                for calls, group in groups
                for call, (future, result) in zip(calls, group, strict=True)
            ]
        return results

    def _gather(self) -> list[_Call]:
        """Wait for the first call, then up to commit_ms for more; until commit_rows are there.
        Empty: stop.
        """
        with self._wake:
            while not self._calls and not self._stopping:
                self._wake.wait()
            deadline = time.monotonic() + self._commit_s
            while not (self._stopping or self._works or self._queued >= self._commit_rows):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._wake.wait(left)
            calls: list[_Call] = []
            while self._calls and not (calls and self._calls[0].work):
                calls.append(self._calls.popleft())
                if calls[-1].work:
                    self._works -= 1
                    break
            self._queued -= sum(len(call.reports) for call in calls)
            return calls

    def _carry_out(self, calls: list[_Call]) -> list[_Result]:
        """(future, result or exception) per call. No exception leaves the thread: it would end all
        writing.
        """
        try:
            work = calls[0].work
            if work is not None:
                return [(calls[0].future, work())]
            failpoints.hit("writer.append")
            outcomes = self._store.append([report for call in calls for report in call.reports])
            failpoints.hit("writer.answer")
        except ShoalError as error:
            return [(call.future, error) for call in calls]
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            log.error("the writer failed", error=error)
            return [
                (
                    call.future,
                    ShoalError(Kind.INTERNAL, "the report could not be stored: try again later"),
                )
                for call in calls
            ]
        results: list[_Result] = []
        at = 0
        for call in calls:
            results.append((call.future, outcomes[at : at + len(call.reports)]))
            at += len(call.reports)
        return results


def _answer(results: list[_Result]) -> None:
    for future, result in results:
        if future.done():  # cancelled by its caller; the write stands
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
