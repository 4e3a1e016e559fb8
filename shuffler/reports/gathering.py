"""Single calls that come within a few milliseconds of one another, taken together.

A report that comes alone costs the clock's judgement, a look at its task, an entry in the writer's
queue and several turns of the event loop; a few dozen together cost them once, and can be opened in
a worker. Each caller has a future of its own: one that goes away undoes nothing and keeps nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter

_GATHER_S = 0.004  # how long a call waits for company
_PATIENCE_S = 0.2  # and how much longer for the group before its own
_MOST = 64  # frames taken together: about 4 ms of opening


@dataclass(slots=True, eq=False)
class Single:
    """One call: its frame, when it came (``perf_counter``), and the mac of its receipt to be."""

    frame: bytes = field(repr=False)
    answer: asyncio.Future[bytes] = field(repr=False)
    began: float = field(default_factory=perf_counter)

    def accept(self, mac: bytes) -> bool:
        """The report is on disk. False: nobody waits for it any more."""
        if self.answer.done():
            return False
        self.answer.set_result(mac)
        return True

    def refuse(self, error: BaseException) -> None:
        """It is not."""
        if not self.answer.done():
            self.answer.set_exception(error)


Opened = Callable[[], None]  # called once by ``take``: it goes on without opener and event loop
Take = Callable[[list[Single], Opened], Awaitable[None]]


class Gathering:
    """``take`` answers every call that it is given; what it raises, those get that are not answered
    by then. At most ``openings`` groups are opened at a time.

    While a group is opened or on its way to the disk, the next one grows, until it is full or that
    one is done: else there are as many groups as calls allow, each with the price of one. Where the
    disk is slow, or hangs for one window, the next one goes after ``_PATIENCE_S`` all the same.
    """

    def __init__(self, take: Take, openings: int) -> None:
        self._take, self._openings = take, openings
        self._waiting: deque[Single] = deque()
        self._timed = False  # the first of those who wait has not waited long enough
        self._opening = self._under_way = 0
        self._patience: asyncio.TimerHandle | None = None
        self._groups: set[asyncio.Task[None]] = set()

    def add(self, frame: bytes) -> asyncio.Future[bytes]:
        """The mac of the frame's receipt, once it is on disk. Raises, when awaited, why not."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append(Single(frame, answer))
        if not self._timed:
            self._timed = True
            loop.call_later(_GATHER_S, self._due)
        return answer

    def _due(self) -> None:
        self._timed = False
        self._go()

    def _go(self) -> None:
        while self._waiting and self._opening < self._openings:
            if self._under_way and len(self._waiting) < _MOST:
                if self._patience is None:
                    loop = asyncio.get_running_loop()
                    self._patience = loop.call_later(_PATIENCE_S, self._waited)
                return
            self._begin()
        if self._patience is not None and not self._waiting:
            self._patience.cancel()
            self._patience = None

    def _waited(self) -> None:
        self._patience = None
        if self._waiting and self._opening < self._openings:
            self._begin()

    def _begin(self) -> None:
        count = min(_MOST, len(self._waiting))
        group = [self._waiting.popleft() for _ in range(count)]
        self._opening += 1
        self._under_way += 1
        task = asyncio.create_task(self._run(group))
        self._groups.add(task)
        task.add_done_callback(self._groups.discard)

    async def _run(self, group: list[Single]) -> None:
        opening = True

        def opened() -> None:
            nonlocal opening
            if opening:
                opening = False
                self._opening -= 1
                self._take_up()

        try:
            await self._take(group, opened)
        except asyncio.CancelledError:
            for one in group:
                one.answer.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where each is awaited
            for one in group:
                one.refuse(error)
        finally:
            self._under_way -= 1
            opened()
            self._take_up()

    def _take_up(self) -> None:
        if self._waiting and not self._timed:
            self._go()
