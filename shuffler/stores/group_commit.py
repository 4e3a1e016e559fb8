"""One thread commits: it gathers calls for a few milliseconds, stores them together, and only then
are they answered.

A group costs one fsync for hundreds of items. The caller awaits a future; if it is cancelled (its
deadline passed, its connection broke) the write goes on, because what is half done must not depend
on a peer. The queue is bounded: beyond it calls are refused at once, nothing waits without limit.

Where a store counts what it has in a second place (``confirm``), nobody is answered before that:
one more sync. Where a whole group waits already, a second thread does that and answers, once for
all groups that are committed meanwhile, so that the disk has both to do at once. Otherwise the
first thread does it: who waits for an answer sends nothing new, so going on meanwhile would only
make two small groups of one, and each group has its price in CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log

log = get_log("shuffler")
Item = TypeVar("Item")
Outcomes = list[Kind | None]  # for each item None: stored; or why it isn't


@dataclass(slots=True)
class _Call(Generic[Item]):
    """One call's items, ``count`` outcomes long, or a piece of work that must run between
    commits.
    """

    future: asyncio.Future[Any]
    items: Sequence[Item]
    count: int
    work: Callable[[], Any] | None = None


_Result = tuple[asyncio.Future[Any], Any]
# a group that is on disk, and what is to be answered
_Done = tuple[list[_Call[Item]], list[_Result]]


class GroupCommit(Generic[Item]):
    """Belongs to the event loop of the first call, which starts its threads.

    ``append``: stores a group and returns an outcome for each item, or ``count`` of them in all
    where an item is many; ``confirm``: counts what was appended. Both block, and run in a thread of
    this object. ``what``: an item in messages.
    ``group_items``: a group ends with so many; ``wait_s``: or so long after its first call.
    ``queue_items``: more than so many waiting are refused.
    """

    def __init__(
        self,
        append: Callable[[list[Item]], Outcomes],
        confirm: Callable[[], None] | None = None,
        *,
        what: str,
        group_items: int = LIMITS.commit_rows,
        wait_s: float = LIMITS.commit_ms / 1000,
        queue_items: int = LIMITS.writer_queue_rows,
    ) -> None:
        self._append, self._confirm, self._what = append, confirm, what
        self._group_items, self._wait_s, self._queue_items = group_items, wait_s, queue_items
        self._calls: deque[_Call[Item]] = deque()
        self._wake = threading.Condition()
        self._items = 0  # in the queue and in the commit under way
        self._queued = 0  # in the queue
        self._works = 0  # pieces of work in the queue
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commit_done = threading.Condition()
        self._done: deque[_Done[Item] | None] = deque()  # None: the end
        self._threads: list[threading.Thread] = []

    async def submit(self, items: Sequence[Item], count: int | None = None) -> Outcomes:
        """Store items; for each None = on disk, or the kind of failure. ``count``: how many they
        are, where that is not their number. Raises OVERLOADED, UNAVAILABLE (stopping), and what
        ``append`` raises.
        """
        future: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        outcomes: Outcomes = await self._enqueue(
            _Call(future, items, len(items) if count is None else count)
        )
        return outcomes

    async def run(self, work: Callable[[], Any]) -> Any:  # whatever the work returns
        """Run ``work`` in the thread after everything that was submitted before."""
        return await self._enqueue(_Call(asyncio.get_running_loop().create_future(), [], 0, work))

    def _enqueue(self, call: _Call[Item]) -> asyncio.Future[Any]:
        count = call.count
        with self._wake:
            if self._stopping:
                raise ShoalError(Kind.UNAVAILABLE, "the service is stopping: try again")
            if self._items and self._items + count > self._queue_items:
                raise ShoalError(
                    Kind.OVERLOADED,
                    f"too many {self._what}s wait for the disk: try again later",
                    retry_after_s=LIMITS.retry_after_s,
                )
            self._items += count
            self._queued += count
            self._works += call.work is not None
            self._calls.append(call)
            # Waking the thread for every call would cost a switch each; it wakes by itself when its
            # time is over.
            if len(self._calls) == 1 or self._works or self._queued >= self._group_items:
                self._wake.notify()
        if not self._threads:
            self._start()
        return call.future

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        threads = {f"{self._what}-writer": self._run}
        if self._confirm is not None:
            threads[f"{self._what}-counter"] = self._count
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in threads.items()
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Commit what is queued, then end the threads. Later calls are UNAVAILABLE."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    # --- the first thread

    def _run(self) -> None:
        while True:
            calls = self._gather()
            if not calls:
                self._hand_over(None)
                return
            done = (calls, self._carry_out(calls))
            with self._wake:
                another = self._queued >= self._group_items
            if another and self._confirm is not None:
                self._hand_over(done)
            else:
                self._finish([done])

    def _gather(self) -> list[_Call[Item]]:
        """Wait for the first call, then up to ``wait_s`` for more; until a group is full. Empty:
        stop.
        """
        with self._wake:
            while not self._calls and not self._stopping:
                self._wake.wait()
            deadline = time.monotonic() + self._wait_s
            while not (self._stopping or self._works or self._queued >= self._group_items):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._wake.wait(left)
            calls: list[_Call[Item]] = []
            while self._calls and not (calls and self._calls[0].work):
                calls.append(self._calls.popleft())
                if calls[-1].work:
                    self._works -= 1
                    break
            self._queued -= sum(call.count for call in calls)
            return calls

    def _carry_out(self, calls: list[_Call[Item]]) -> list[_Result]:
        """(future, result or exception) per call. No exception leaves the thread: it would end all
        writing.
        """
        try:
            work = calls[0].work
            if work is not None:
                return [(calls[0].future, work())]
            outcomes = self._append([item for call in calls for item in call.items])
        except ShoalError as error:
            return [(call.future, error) for call in calls]
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            log.error("the writer failed", error=error)
            failure = ShoalError(
                Kind.INTERNAL, f"the {self._what} could not be stored: try again later"
            )
            return [(call.future, failure) for call in calls]
        results: list[_Result] = []
        at = 0
        for call in calls:
            results.append((call.future, outcomes[at : at + call.count]))
            at += call.count
        return results

    # --- the second thread, and the end of a group

    def _hand_over(self, done: _Done[Item] | None) -> None:
        with self._commit_done:
            self._done.append(done)
            self._commit_done.notify()

    def _count(self) -> None:
        """Count what is on disk, then answer."""
        while True:
            with self._commit_done:
                while not self._done:
                    self._commit_done.wait()
                groups = [outcome for outcome in self._done if outcome is not None]
                ended = len(groups) < len(self._done)
                self._done.clear()
            self._finish(groups)
            if ended:
                return

    def _finish(self, groups: list[_Done[Item]]) -> None:
        results = self._confirmed(groups)
        with self._wake:
            self._items -= sum(call.count for calls, _ in groups for call in calls)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for an answer
            assert self._loop is not None  # noqa: S101 - set before the threads start
            self._loop.call_soon_threadsafe(_answer, results)

    def _confirmed(self, groups: list[_Done[Item]]) -> list[_Result]:
        """The results, or a failure for every item of which it is not certain that its loss would
        be noticed.
        """
        results = [result for _, group in groups for result in group]
        if self._confirm is None or all(
            call.work is not None for calls, _ in groups for call in calls
        ):
            return results
        try:
            self._confirm()
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            kind = error.kind if isinstance(error, ShoalError) else Kind.INTERNAL
            log.error("reports could not be counted", kind=kind, error=error)
            return [
                (
                    future,
                    [refusal or kind for refusal in result]
                    if call.work is None and isinstance(result, list)
                    else result,
                )
                for calls, group in groups
                for call, (future, result) in zip(calls, group, strict=True)
            ]
        return results


def _answer(results: list[_Result]) -> None:
    for future, result in results:
        if future.done():  # cancelled by its caller; the write stands
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
