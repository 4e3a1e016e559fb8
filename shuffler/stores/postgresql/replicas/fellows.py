"""Who else serves this schema now: what a replica says of itself every few seconds, and what it
sees wrong between itself and the others.

A replica that lacks a task, or has another key schedule for one, refuses or misjudges reports that
the others take: it is not ready until it is given the files. One that is away may have key files of
windows that are over, which then are not waste yet: that is told, and stops nobody. So are windows
that an operator gave up at one of them, which holds at all.

What is said here is no report, and no decision that is nowhere else: a commit of it waits for no
standby.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.given_up import GivenUpWindows
from shoal.shuffler.core import WindowState
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas import given_up as lines
from shoal.shuffler.stores.postgresql.replicas.given_up import SharedLines
from shoal.shuffler.stores.postgresql.window_keys import Purpose

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

log = get_log("shuffler")
_EVERY_S = 5.0  # between two words
_LIVE_S = 20.0  # who said something so long ago serves
_AWAY_S = 300.0  # a restart of a machine takes less
_ID_SIZE = 32  # bytes of a task's id, and of its schedule's hash
Tasks = Mapping[TaskId, Digest]  # with the hash of each key schedule


@dataclass(frozen=True, slots=True)
class OtherReplica:
    """One that serves. ``replica``: its public id, as in ``data_dir/replica-id``. ``tasks``: whose
    windows it still waits for.
    """

    replica: bytes
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class Fellows:
    """``live``: the others that serve now. ``keeping``: of those that are away how many windows
    that are over they may have key files of. ``twin``: another process says that it is this
    replica.
    """

    live: tuple[OtherReplica, ...] = ()
    keeping: Mapping[bytes, int] = field(default_factory=dict)
    twin: bool = False


def replica_id(data_dir: Path) -> bytes:
    """This machine's, drawn at its first start. Public. Raises CONFIG."""
    path = data_dir / "replica-id"
    try:
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            file.write(secrets.token_hex(16))
        return bytes.fromhex(path.read_text())
    except (OSError, ValueError):
        raise ShoalError(
            Kind.CONFIG, f"{path} can't be used: delete it, a new id is drawn"
        ) from None


def name_of(replica: bytes) -> str:
    """As operators see it: the beginning of its id."""
    return replica.hex()[:8]


def judged(seen: Fellows, served: Tasks, waiting: Tasks, *, replicas: int) -> Iterator[Condition]:
    """What is wrong between this replica and the others. ``served``: its tasks; ``waiting``: those
    of them that have windows to come or to end. ``replicas``: as configured.
    """
    if seen.twin:
        yield Condition(
            "replica",
            "replica-id",
            "another process has this replica's id: data_dir was copied; stop one of them, give it "
            "an empty data_dir",
        )
    count = len(seen.live) + 1
    if count > replicas:
        yield Condition(
            "replica",
            "replicas",
            f"{count} replicas serve this schema, store.replicas says {replicas}: set it to their "
            "number in each of them, or stop those that should not be there",
            stops=replicas == 1,  # then no standby was asked for
        )
    for other in seen.live:
        for task_id, schedule in other.tasks.items():
            if task_id not in served:
                yield Condition(
                    "replica",
                    task_id.short,
                    f"task {task_id.short} is served by replica {name_of(other.replica)} and not "
                    "here: put its .task and .keys files into tasks_dir, or take them away there "
                    "and restart that one",
                )
            elif waiting.get(task_id, schedule) != schedule:
                yield Condition(
                    "replica",
                    task_id.short,
                    f"task {task_id.short} is served by replica {name_of(other.replica)} with "
                    "another key schedule: give all of them the same .keys file",
                )
    yield from keeping(seen)


def keeping(seen: Fellows) -> Iterator[Condition]:
    """Of replicas that are away and may have keys."""
    for replica, windows in sorted(seen.keeping.items()):
        yield Condition(
            "replica",
            name_of(replica),
            f"replica {name_of(replica)} is away and may have key files of {windows} windows that "
            "are over: start it, they are deleted then; or destroy its disk, and take its rows out "
            "of the table holder",
            stops=False,
        )


async def look_around(connection: Connection, replica: bytes) -> Fellows:
    """The others, as their last words say. ``replica``: this one's id; b"": somebody else looks."""
    rows = await connection.fetch(
        "SELECT replica, tasks FROM replica WHERE replica <> $1"
        " AND seen > clock_timestamp() - make_interval(secs => $2)",
        *(replica, _LIVE_S),
    )
    live = (OtherReplica(bytes(row["replica"]), _parse(row["tasks"])) for row in rows)
    over = {
        purpose: [state.value for state in WindowState if not purpose.needed(state)]
        for purpose in Purpose
    }
    kept = await connection.fetch(
        "SELECT h.replica, count(DISTINCT (h.task_id, h.win)) AS windows"
        " FROM holder h JOIN win w USING (task_id, win)"
        " LEFT JOIN replica r ON r.replica = h.replica"
        " AND r.seen > clock_timestamp() - make_interval(secs => $2)"
        " WHERE h.replica <> $1 AND r.replica IS NULL AND ("
        " h.purpose = $3 AND w.state = ANY($4::smallint[])"
        " OR h.purpose = $5 AND w.state = ANY($6::smallint[])) GROUP BY h.replica",
        *(replica, _AWAY_S),
        *(Purpose.INBOX.value, over[Purpose.INBOX], Purpose.BATCH.value, over[Purpose.BATCH]),
    )
    return Fellows(tuple(live), {bytes(row["replica"]): row["windows"] for row in kept})


class FellowWatch:
    """Says that this replica serves, and looks at the others. For one event loop."""

    def __init__(self, database: Database, replica: bytes, *, replicas: int) -> None:
        """``replica``: this machine's id. ``replicas``: as configured."""
        self._database, self._replica, self._replicas = database, replica, replicas
        self._owner = b""
        self._served: Callable[[], Tasks] = dict
        self._waiting: Callable[[], Tasks] = dict
        self._seen = Fellows()
        self._given_up: GivenUpWindows | None = None
        self._lines = SharedLines()
        self._written = False
        self._task: asyncio.Task[None] | None = None

    async def start(
        self,
        owner: bytes,
        served: Callable[[], Tasks],
        waiting: Callable[[], Tasks],
        given_up: GivenUpWindows | None = None,
    ) -> None:
        """Say it once, then again and again. ``owner``: this process; ``served`` and ``waiting``:
        see ``judged``; ``given_up``: told to the others, and what they say is told to it.
        """
        self._owner, self._served, self._waiting = owner, served, waiting
        self._given_up = given_up
        await self.look()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Say that it serves no more."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with self._database.transaction() as connection:
                await connection.execute("SET LOCAL synchronous_commit TO off")
                await connection.execute(
                    "UPDATE replica SET seen = clock_timestamp() - make_interval(secs => $3)"
                    " WHERE replica = $1 AND owner = $2",
                    *(self._replica, self._owner, _LIVE_S),
                )
        except ShoalError as error:  # its word runs out
            log.debug("that it serves no more could not be said", error=error)

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        yield from judged(self._seen, self._served(), self._waiting(), replicas=self._replicas)
        yield from self._lines.conditions()

    async def look(self) -> None:
        """Once. While the database is away what was seen last stands."""
        try:
            async with self._database.transaction() as connection:
                await connection.execute("SET LOCAL synchronous_commit TO off")
                twin = await self._say(connection)
                seen = await look_around(connection, self._replica)
                if self._given_up is not None:
                    self._lines = await self._exchange(connection, self._given_up)
        except ShoalError as error:
            log.debug("the other replicas could not be looked at", error=error)
            return
        self._seen = Fellows(seen.live, seen.keeping, twin)

    async def _exchange(self, connection: Connection, given_up: GivenUpWindows) -> SharedLines:
        """Windows that were given up: what is said there is heard, what is said here is told."""
        there = await lines.read(connection)
        known = {line.key for line, _ in there.lines}
        await lines.enter(
            connection, self._replica, (one for one in given_up.own() if one.key not in known)
        )
        given_up.hear(line for line, _ in there.lines)
        return there

    async def _say(self, connection: Connection) -> bool:
        """Whether somebody else said it in between."""
        before = await connection.fetchval(
            "SELECT owner FROM replica WHERE replica = $1 FOR UPDATE", self._replica
        )
        await connection.execute(
            "INSERT INTO replica VALUES ($1, $2, clock_timestamp(), $3) ON CONFLICT (replica)"
            " DO UPDATE SET owner = $2, seen = clock_timestamp(), tasks = $3",
            *(self._replica, self._owner),
            sorted(task_id.raw + schedule.raw for task_id, schedule in self._waiting().items()),
        )
        twin = self._written and before is not None and bytes(before) != self._owner
        self._written = True
        return twin

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look()


def _parse(tasks: list[bytes]) -> Tasks:
    """Raises INTERNAL for what no replica wrote."""
    if any(len(one) != 2 * _ID_SIZE for one in tasks):
        raise ShoalError(
            Kind.INTERNAL, "the table replica holds what no replica wrote: check the database"
        )
    return {TaskId(bytes(one[:_ID_SIZE])): Digest(bytes(one[_ID_SIZE:])) for one in tasks}
