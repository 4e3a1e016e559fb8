"""Steps that may wait for ever in a system call, as on a dead network disk: each in a thread of its
own, for which nobody waits beyond its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from shoal.clients.sources.problem import SourceError

T = TypeVar("T")
# whose last step has not come back, however long ago its time was over
_hanging: set[Hashable] = set()


async def in_own_thread(key: Hashable, timeout_s: float, step: Callable[[], T]) -> T:
    """What ``step`` returns or raises; SourceError if it takes longer than ``timeout_s`` seconds.

    The threads that asyncio keeps for the outbox must not be spent on that, nor may the process
    have to wait for it at its end. While a step hangs none of the same ``key`` begins
    (SourceError), so that there is never more than one such thread for each.
    """
    if key in _hanging:
        raise SourceError("the reading before has not come back")
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(done: Callable[[], None]) -> None:
        if not result.done():
            done()

    def work() -> None:
        try:
            done = partial(result.set_result, step())
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            done = partial(result.set_exception, error)
        _hanging.discard(key)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits
            loop.call_soon_threadsafe(settle, done)

    _hanging.add(key)
    threading.Thread(target=work, name="source", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await result
    except TimeoutError:
        raise SourceError("took too long") from None
