"""What the analyzer can take, as it says itself: asked all the time, so that nobody answers for
nothing.

Where it says that it could not take or open a window, submissions are refused (UNAVAILABLE: the
same bytes may come again until the window is over) and the directory tells devices to make no
answer. Its silence says nothing about a task: what is sealed is kept, and offered until retention
ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from shoal import codec
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import delivery_pb2
from shoal.rpc.channel import CallsPeer, call
from shoal.services.conditions import Condition
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.core import WindowId
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
_EVERY_S = 30.0  # between two questions while all is well ...
_SOON_S = 3.0  # ... and while it is not, or tasks are new
_STEP_S = 10.0  # ... and while a discovery is under way, whose next window may be known any time
_LOOK_S = 1.0  # between two looks at whether tasks are new
_TASKS = 1_000  # in one question
_STEPS = 2  # discoveries in one question: a step is at most 72 KiB, a reply 256
_FAILURES = 3  # questions in a row without an answer after which it is shown
# without an answer after which the shuffler is not ready: what it takes can't be brought away
_ABSENT_S = 600.0
_TEXT = 200  # characters that are shown of the analyzer's own words
_ALL: frozenset[int] = frozenset()

Ask = Callable[[bytes], Awaitable[bytes]]


def asking(channel: CallsPeer) -> Ask:
    """ServesRequest -> ServesReply over the link to the analyzer."""

    async def ask(request: bytes) -> bytes:
        return await call(
            channel, "/shoal.v1.Delivery/Serves", request, LIMITS.send_deadline_s, peer="analyzer"
        )

    return ask


class Serving:
    """``paused``: by task, the windows that the analyzer could not take; an empty set: all.
    ``monotonic``: seconds, for tests.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        ask: Ask,
        steps: AskedSteps,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.steps = steps
        self._tasks, self._ask, self._monotonic = tasks, ask, monotonic
        self.paused: dict[TaskId, frozenset[int]] = {}
        # questions in a row that got no answer, and when the last one did
        self._failures, self._since = 0, monotonic()
        self._trouble = self._why = ""

    def refuses(self, window: WindowId) -> bool:
        """Whether an answer to that window could not be released, as far as is known."""
        if not self.paused:
            return False
        windows = self.paused.get(window.task_id)
        return windows is not None and (not windows or window.window in windows)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until ``stop``; at once when tasks were added."""
        asked = 0
        while not stop.is_set():
            asked, since = len(self._tasks.served), self._monotonic()
            await self.look()
            while (
                not stop.is_set()
                and len(self._tasks.served) == asked
                and self._monotonic() < since + self._pause_s()
            ):
                try:
                    await asyncio.wait_for(stop.wait(), _LOOK_S)
                except TimeoutError:
                    continue

    def _pause_s(self) -> float:
        """Between two questions, as things stand now: a window of a discovery may have begun."""
        if self.paused or self._failures or self._trouble or self.steps.awaited:
            return _SOON_S
        return _STEP_S if self.steps.under_way else _EVERY_S

    async def look(self) -> None:
        """Ask once about every task. A failure changes nothing but the conditions."""
        served = sorted(self._tasks.served.items())
        paused: dict[TaskId, frozenset[int]] = {}
        trouble = ""
        # whatever the analyzer answers, the shuffler goes on
        try:
            for part in _questions(served):
                keys = [
                    delivery_pb2.TaskKeys(
                        task_id=task_id.raw, schedule_hash=asked_task.keys.digest.raw
                    )
                    for task_id, asked_task in part
                ]
                answer = await self._ask(delivery_pb2.ServesRequest(tasks=keys).SerializeToString())
                reply = codec.parse(delivery_pb2.ServesReply, answer, "the analyzer's answer")
                paused |= {
                    TaskId(asked_task.task_id): frozenset(asked_task.windows)
                    for asked_task in reply.unserved
                }
                trouble = trouble or reply.trouble
                await self.steps.hear(reply.steps)
        except Exception as error:  # noqa: BLE001
            self._failures += 1
            self._why = _shown(str(error)) if isinstance(error, ShoalError) else ""
            if self._failures == _FAILURES:
                log.warning("the analyzer does not answer", error=error)
            return
        for task_id in paused.keys() - self.paused.keys():
            log.warning(
                "the analyzer can't take a task: its submissions are refused until it can",
                task=task_id,
            )
        for task_id in self.paused.keys() - paused.keys():
            log.info("the analyzer takes a task again", task=task_id)
        self.paused, self._trouble = paused, trouble
        self._failures, self._since = 0, self._monotonic()

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        if self._failures >= _FAILURES:
            absent = self._monotonic() - self._since
            yield Condition(
                "analyzer",
                "",
                f"{self._why or 'see that the analyzer runs and can be reached'} (no answer for "
                f"{_span(absent)}; reports are taken, and kept until their retention ends)",
                stops=absent >= _ABSENT_S,
            )
        if self._trouble:
            yield Condition(
                "analyzer", "trouble", f"the analyzer takes no batches: {_shown(self._trouble)}"
            )
        yield from self.steps.conditions()
        for task_id, windows in self.paused.items():
            served = self._tasks.served.get(task_id)
            name = served.task.name if served is not None else task_id.short
            left = [w for w in windows if not self._tasks.is_over(WindowId(task_id, w))]
            if windows and not left:
                continue
            what = (
                "does not serve it, or with another key schedule"
                if not windows
                else f"has no readable key for {len(left)} windows, or gave them up"
            )
            yield Condition(
                "task",
                f"{task_id.short}/analyzer",
                f"task {name}: the analyzer {what}: mend it there, or give them up here too; "
                "submissions are refused meanwhile"
                if windows
                else f"task {name}: the analyzer {what}: mend it there; submissions are refused "
                "meanwhile",
                # a window that is given up must not keep balancers from all the others
                stops=not windows,
            )


def _questions(
    served: list[tuple[TaskId, ServedTask]],
) -> Iterator[list[tuple[TaskId, ServedTask]]]:
    """The tasks of each question: discoveries by twos, whose steps are long. One at least."""
    plain = [one for one in served if not isinstance(one[1].task.domain, Discovery)]
    asked = [one for one in served if isinstance(one[1].task.domain, Discovery)]
    for at in range(0, max(1, len(plain)), _TASKS):
        yield plain[at : at + _TASKS]
    for at in range(0, len(asked), _STEPS):
        yield asked[at : at + _STEPS]


def _shown(text: str) -> str:
    """The analyzer's own words, or why it was not reached, on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_TEXT])


def _span(seconds: float) -> str:
    return f"{int(seconds) // 60} min" if seconds >= 60.0 else "less than a minute"
