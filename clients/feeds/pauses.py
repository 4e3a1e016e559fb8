"""Whether a task's shuffler takes answers now, known before one is drawn and charged: for tasks
from a folder or a broker.

A shuffler's catalogue names windows that could not be released as things stand
(``shoal.clients.feeds``). Who has the task from there hears it anyway; everybody else reads the
catalogue of the shuffler to which the answer goes, as a whole, so that nobody learns which task is
looked for. A command that sends at once reads it just before; the service at moments of its own,
which say nothing about when it measures. What was read lately is not read again, by other programs
of this device neither: it lies beside the outbox.

Nobody is asked about a task that the owner does not stand behind, or that the budget does not pay
for: a look without a submission would tell so. That depends on no value that is about to be
answered (``answering.check_affordable``). Nothing is asked over gRPC where reports go through a
broker: the shuffler would learn this device's address. A shuffler that can't be reached keeps
nobody from answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.clients.feeds.feed import jittered, waited
from shoal.clients.memory.sealed_line import read_line, write_line
from shoal.clients.reports.answering import is_answered
from shoal.digests import sha256
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.clients.core import Assignment

    # gRPC: with the first look, if there is one
    from shoal.clients.feeds.grpc_feed import GrpcFeed
    from shoal.clients.feeds.known_tasks import KnownTasks
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.reports.permit import Permit
    from shoal.clients.settings.config import AgentConfig
    from shoal.clocks.clock import DeviceClock
    from shoal.entropy import Entropy

SUFFIX = ".pauses"
FRESH_S = 300.0  # what a shuffler said counts so long: it asks its analyzer every minute or two
SOON_S = 30.0  # and so long while it is waited for what a window of a discovery asks
_MOST_BYTES = 1 << 20
PauseListener = Callable[[str, Mapping[TaskId, frozenset[int]], bytes], object]
"""(a shuffler's address; windows of its tasks that it can't take now, none named: all; the CA that
vouched for who said so).
"""
# address and CA of a shuffler: under another CA somebody else may answer there
_Place = tuple[str, bytes]
# by ``_label``: when it was read (Unix seconds), and what it said
_Told = dict[str, tuple[float, dict[TaskId, frozenset[int]]]]


class Pauses:
    """Of one agent, for its event loop. ``asks``: whether there is anybody to be asked over
    gRPC.
    """

    def __init__(
        self,
        config: AgentConfig,
        memory: Memory,
        tasks: KnownTasks,
        permit: Permit,
        clock: DeviceClock,
        *,
        asks: bool,
    ) -> None:
        self._config, self._memory, self._tasks = config, memory, tasks
        self._permit, self._clock, self._asks = permit, clock, asks
        self._path = config.outbox.with_name(config.outbox.name + SUFFIX)
        self._feeds: dict[_Place, GrpcFeed] = {}
        self._said: dict[_Place, Mapping[TaskId, frozenset[int]]] = {}  # what each feed read last
        # what is known, by whichever program of this device
        self._known: dict[_Place, Mapping[TaskId, frozenset[int]]] = {}

    async def check(self, assignment: Assignment, window: int, *, ask: bool) -> None:
        """Raises UNAVAILABLE if an answer to that window could not be released, and it has none
        yet. ``ask``: unless that was done lately. Raises REFUSED where the owner or the budget does
        not stand behind an answer: nobody is asked then, since no submission would follow.
        """
        if ask and self._concerns(assignment) and not await self._answered(assignment, window):
            await self._permit.ask_affordable(assignment)
            await self._look(assignment, self._config.deadline_s, self._tasks.pause)
        try:
            self._tasks.check_open(assignment, self._clock.now(), window)
        except ShoalError:
            if not await self._answered(assignment, window):
                raise

    async def _answered(self, assignment: Assignment, window: int) -> bool:
        memory, task_id = self._memory, assignment.task_id
        return await memory.run(
            partial(is_answered, task_id, window, assignment, memory.outbox, memory.commitments)
        )

    async def look(self, deadline_s: float, tell: PauseListener, but: Collection[str] = ()) -> None:
        """At all shufflers that matter, each unless that was done lately; never raises. ``but``:
        those whose catalogue is read anyway.
        """
        for ones in self._places(but).values():
            if await self._wanted(ones):
                await self._look(ones[0], deadline_s, tell)

    async def run(
        self, stop: asyncio.Event, tell: PauseListener, but: Collection[str], entropy: Entropy
    ) -> None:
        """As often as a feed would, until ``stop``, and soon again where anything is paused,
        whosever task it is: at moments that say nothing about when this device measures, what it
        answers, or what another shuffler said.
        """
        due: dict[_Place, float] = {}
        while True:
            places = self._places(but)
            due = {place: due.get(place, -math.inf) for place in places}
            for place, ones in places.items():
                if due[place] <= self._clock.steady():
                    if await self._wanted(ones):
                        await self._look(ones[0], LIMITS.feed_pass_s, tell)
                    due[place] = self._clock.steady() + self._again_s(place, entropy)
            now = self._clock.steady()
            if await waited(
                stop,
                min(
                    [
                        jittered(self._config.feeds.every_s, entropy),
                        *(max(at - now, 0.0) for at in due.values()),
                    ]
                ),
            ):
                return

    def _again_s(self, place: _Place, entropy: Entropy) -> float:
        """Seconds until the next look. What is paused may be so for minutes, and windows are short:
        not before what was said is old.
        """
        every_s = jittered(self._config.feeds.every_s, entropy)
        return (
            min(every_s, FRESH_S / 2.0 + jittered(FRESH_S, entropy))
            if self._known.get(place) or self._tasks.awaits(self._clock.now())
            else every_s
        )

    def _places(self, but: Collection[str]) -> dict[_Place, list[Assignment]]:
        """Whom answers of this device may go to, with their tasks."""
        by_place: dict[_Place, list[Assignment]] = {}
        for assignment in self._tasks.all():
            if self._concerns(assignment) and assignment.task.shuffler_address not in but:
                by_place.setdefault(_place(assignment), []).append(assignment)
        return by_place

    async def _wanted(self, assignments: Collection[Assignment]) -> bool:
        """Whether any of them would be answered: one that would not must not hide the others."""
        for assignment in assignments:
            with contextlib.suppress(ShoalError):
                await self._permit.ask_affordable(assignment)
                return True
        return False

    def _concerns(self, assignment: Assignment) -> bool:
        """Rounds ask before they charge."""
        return self._asks and assignment.task.pairwise is None

    async def _look(self, assignment: Assignment, deadline_s: float, tell: PauseListener) -> None:
        """What can't be read changes nothing."""
        from shoal.clients.feeds.grpc_feed import GrpcFeed

        place, config = _place(assignment), self._config
        (address, ca), label = place, _label(place)
        kept, now = await asyncio.to_thread(self._load), self._clock.now()
        fresh_s = SOON_S if self._tasks.awaits(now) else FRESH_S
        if label in kept and 0.0 <= now - kept[label][0] < fresh_s:
            self._known[place] = kept[label][1]
            tell(address, kept[label][1], ca)
            return
        if place not in self._feeds:
            self._feeds[place] = GrpcFeed(
                address,
                ca,
                lambda *_: None,  # tasks come from where the owner said
                every_s=config.feeds.every_s,
                insecure=config.insecure,
                pause=lambda _, paused: self._said.__setitem__(place, paused),
                step=self._tasks.step,
            )
        with contextlib.suppress(ShoalError):
            await self._feeds[place].once(deadline_s)
            self._known[place] = said = dict(self._said.get(place, {}))
            tell(address, said, ca)
            await asyncio.to_thread(self._save, {**kept, label: (now, said)})

    def _load(self) -> _Told:
        """Nothing where it is missing, damaged or not ours."""
        line = read_line(self._path, _MOST_BYTES)
        if line is None:
            return {}
        try:
            stored: dict[str, Any] = json.loads(line)
            return {
                address: (
                    float(at_s),
                    {TaskId.parse(task): frozenset(windows) for task, windows in paused.items()},
                )
                for address, (at_s, paused) in stored.items()
            }
        except (ValueError, TypeError, AttributeError, ShoalError):
            return {}

    def _save(self, told: _Told) -> None:
        """A full disk, or no right to write, costs another look."""
        line = json.dumps(
            {
                address: (at_s, {task.hex: sorted(windows) for task, windows in paused.items()})
                for address, (at_s, paused) in told.items()
            }
        ).encode()
        with contextlib.suppress(OSError):
            write_line(self._path, line, sync=False)


def _place(assignment: Assignment) -> _Place:
    return assignment.task.shuffler_address, assignment.task.shuffler_ca


def _label(place: _Place) -> str:
    """Of a place, in the file."""
    return f"{place[0]} {sha256(place[1]).hex()}"
