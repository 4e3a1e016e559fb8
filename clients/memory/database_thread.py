"""The thread of a device's file: steps that wait for the disk run there, one after the other, and
never in an event loop.

One thread is enough, because the file takes one transaction at a time. It is cheaper than a pool's
next free thread, of which each would also keep its own arena of memory and its own caches warm. It
is no pool of one either: that makes two futures, a lock and a condition for every step, and half of
what a report pays for its turns is those.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from shoal.errors import Kind, ShoalError

T = TypeVar("T")
# what to do, and where it is told: of None the thread ends
_Step = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_Steps = SimpleQueue[_Step | None]
# of objects that nobody has any more, while they have something to do
_ending: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class StoreThread:
    """Started with its first step. What it was given is done before the process ends, also where
    nobody closes it.
    """

    def __init__(self) -> None:
        self._steps: _Steps = SimpleQueue()
        self._lock = threading.Lock()  # around both of these: no step comes after the end
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, step: Callable[[], T]) -> T:
        """Run a step and return, or raise, what it does. A caller that is cancelled leaves the step
        to its end. UNAVAILABLE: closed; OVERLOADED: no thread can be started.

        A step must not wait for another one.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise ShoalError(Kind.UNAVAILABLE, "the device's memory is closed: open it again")
            if self._thread is None:
                self._thread = self._started()
            self._steps.put((step, loop, told))
        return await told

    def _started(self) -> threading.Thread:
        thread = threading.Thread(
            target=_work, args=(self._steps,), name="shoal-store", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            raise ShoalError(
                Kind.OVERLOADED,
                "no thread can be started for the device's memory: end other programs, then again",
            ) from None
        # one that is no daemon would keep a process that has not closed it from ending
        weakref.finalize(self, _end, self._steps, thread)
        return thread

    def close(self) -> None:
        """Take no more steps; those that were given are done. Returns at once, and may be called by
        a step.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._steps.put(None)


def _work(steps: _Steps) -> None:
    while (given := steps.get()) is not None:
        step, loop, told = given
        answer: Any = None
        failure: BaseException | None = None
        try:
            answer = step()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_tell, told, answer, failure)
        del given, step, loop, told, answer, failure  # not until the next step


def _tell(told: asyncio.Future[Any], answer: Any, failure: BaseException | None) -> None:
    if told.done():  # cancelled
        return
    if failure is None:
        told.set_result(answer)
    else:
        told.set_exception(failure)


def _end(steps: _Steps, thread: threading.Thread) -> None:
    """Nobody has the object any more, or the process ends: that waits for what was given."""
    steps.put(None)
    if threading.main_thread().is_alive():
        _ending.add(thread)
    elif thread is not threading.current_thread():
        thread.join()


@atexit.register
def _wait_for_all() -> None:
    for thread in list(_ending):
        thread.join()
