"""Whether a task's shuffler takes answers now, known before one is drawn and charged: for tasks from a folder or a broker.

A shuffler's catalogue names windows that could not be released as things stand (``shoal.clients.feeds``). Who has the task from there
hears it anyway; everybody else reads the catalogue of the shuffler to which the answer goes, as a whole, so that nobody learns which
task is looked for. A command that sends at once reads it just before; the service at moments of its own, which say nothing about when it
measures. What was read lately is not read again, by other programs of this device neither: it lies beside the outbox.

Nobody is asked about a task that the owner does not stand behind, and nothing over gRPC where reports go through a broker: the shuffler
would learn this device's address. A shuffler that can't be reached keeps nobody from answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.clients.feeds.feed import jittered, waited
from shoal.digests import sha256
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.clients.config import AgentConfig
    from shoal.clients.core import Assignment
    from shoal.clients.feeds.grpc_feed import GrpcFeed
    from shoal.clients.memory import Memory
    from shoal.clients.sending import Permit
    from shoal.clients.taskbook import TaskBook
    from shoal.clock import Clock
    from shoal.entropy import Entropy

SUFFIX = ".pauses"
FRESH_S = 300.0  # what a shuffler said counts so long: it asks its analyzer every minute or two
_MOST_BYTES = 1 << 20
Tell = Callable[[str, Mapping[TaskId, frozenset[int]]], object]
"""(a shuffler's address; windows of its tasks that it can't take now, none named: all)."""
_Told = dict[str, tuple[float, dict[TaskId, frozenset[int]]]]  # by address: when it was read (Unix seconds), and what it said


class Pauses:
    """Of one agent, for its event loop. ``asks``: whether there is anybody to be asked over gRPC."""

    def __init__(self, config: AgentConfig, memory: Memory, tasks: TaskBook, permit: Permit, clock: Clock, *, asks: bool) -> None:
        self._config, self._memory, self._tasks, self._permit, self._clock, self._asks = config, memory, tasks, permit, clock, asks
        self._path = config.outbox.with_name(config.outbox.name + SUFFIX)
        self._feeds: dict[str, GrpcFeed] = {}
        self._said: dict[str, Mapping[TaskId, frozenset[int]]] = {}

    async def check(self, assignment: Assignment, window: int, answered: Callable[[TaskId, int], bool], *, ask: bool) -> None:
        """Raises UNAVAILABLE if an answer to that window could not be released, and it has none yet. ``ask``: unless that was done
        lately. Raises REFUSED where the owner does not stand behind the task: nobody is asked then."""

        async def known() -> bool:
            return await self._memory.run(partial(answered, assignment.task_id, window))

        if ask and self._concerns(assignment) and not await known():
            await self._memory.run(partial(self._permit.check, assignment))
            await self._look(assignment, self._config.deadline_s, self._tasks.pause)
        try:
            self._tasks.check_open(assignment, self._clock.now(), window)
        except ShoalError:
            if not await known():
                raise

    async def look(self, deadline_s: float, tell: Tell, but: Collection[str] = ()) -> None:
        """At all shufflers that matter, each unless that was done lately; never raises. ``but``: those whose catalogue is read anyway."""
        wanted = {one.task.shuffler_address: one for one in self._tasks.all() if self._concerns(one)}
        for address, one in wanted.items():
            if address not in but:
                with contextlib.suppress(ShoalError):
                    await self._memory.run(partial(self._permit.check, one))
                    await self._look(one, deadline_s, tell)

    async def run(self, stop: asyncio.Event, tell: Tell, but: Collection[str], entropy: Entropy) -> None:
        """As often as a feed would, until ``stop``: at moments that say nothing about when this device measures."""
        while True:
            await self.look(LIMITS.feed_pass_s, tell, but)
            if await waited(stop, jittered(self._config.feeds.every_s, entropy)):
                return

    def _concerns(self, assignment: Assignment) -> bool:
        """Rounds ask before they charge."""
        return self._asks and assignment.task.pairwise is None

    async def _look(self, assignment: Assignment, deadline_s: float, tell: Tell) -> None:
        """What can't be read changes nothing."""
        from shoal.clients.feeds.grpc_feed import GrpcFeed

        address, config = assignment.task.shuffler_address, self._config
        kept, now = await asyncio.to_thread(self._load), self._clock.now()
        if address in kept and 0.0 <= now - kept[address][0] < FRESH_S:
            tell(address, kept[address][1])
            return
        if address not in self._feeds:
            self._feeds[address] = GrpcFeed(
                address,
                assignment.task.shuffler_ca,
                lambda *_: None,  # tasks come from where the owner said
                every_s=config.feeds.every_s,
                insecure=config.insecure,
                pause=self._said.__setitem__,
            )
        with contextlib.suppress(ShoalError):
            await self._feeds[address].once(deadline_s)
            said = dict(self._said.get(address, {}))
            tell(address, said)
            await asyncio.to_thread(self._save, {**kept, address: (now, said)})

    def _load(self) -> _Told:
        """Nothing where it is missing, damaged or not ours."""
        try:
            with self._path.open("rb") as file:
                line, _, seal = file.read(_MOST_BYTES).partition(b"\n")
            if sha256(line).hex().encode() != seal.strip():
                return {}
            found: dict[str, Any] = json.loads(line)
            return {
                address: (float(at_s), {TaskId.parse(task): frozenset(windows) for task, windows in paused.items()})
                for address, (at_s, paused) in found.items()
            }
        except (OSError, ValueError, TypeError, AttributeError, ShoalError):
            return {}

    def _save(self, told: _Told) -> None:
        """A full disk, or no right to write, costs another look."""
        line = json.dumps(
            {address: (at_s, {task.hex: sorted(windows) for task, windows in paused.items()}) for address, (at_s, paused) in told.items()}
        ).encode()
        beside = Path(f"{self._path}.{os.getpid()}.new")
        with contextlib.suppress(OSError):
            try:
                with open(beside, "wb", opener=_private) as file:
                    file.write(line + b"\n" + sha256(line).hex().encode() + b"\n")
                beside.replace(self._path)
            finally:
                beside.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
