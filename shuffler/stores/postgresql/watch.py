"""What the database's server says of itself, and what is wrong with that: for readiness, /status
and ``shoal doctor``.

A commit is worth what the server's settings make of it. With several replicas an acknowledgement
promises to survive the loss of any one machine: that takes a synchronous standby. No user without
special rights may see whether one is in step, and none need: with ``synchronous_standby_names``
set, a commit without it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shoal.clocks.timekeeper import Timekeeper
from shoal.clocks.timekeeping import TOLERANCE_S
from shoal.errors import ShoalError
from shoal.services.conditions import Condition
from shoal.shuffler.stores.postgresql.database import Database

_EVERY_S = 5.0  # between two looks
_APART_S = 10.0  # of clocks; more is told: windows begin and end by each replica's own
WITNESS = "database"  # what its clock is called beside those of peers
_LOOK = """
SELECT current_setting('server_version_num')::int AS version,
       current_setting('synchronous_standby_names') <> '' AS waited_for,
       (SELECT count(*) FROM pg_stat_replication) AS followers,
       current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' AS durable,
       current_setting('data_checksums') = 'on' AS checksums,
       current_setting('archive_mode') <> 'off' AS archived,
       extract(epoch FROM clock_timestamp())::float8 AS clock
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``version``: 150018 is 15.18. ``waited_for``: a standby is, at each commit. ``followers``:
    connections of standbys and of others that copy its log. ``durable``: a commit is on disk.
    ``archived``: its log is kept. ``apart_s``: seconds that its clock is ahead of ours, 0 where the
    way there explains it; ``slack_s``: how far that may be wrong.
    """

    version: int
    waited_for: bool
    followers: int
    durable: bool
    checksums: bool
    archived: bool
    apart_s: float
    slack_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerProblem:
    """``stops``: what is acknowledged would not be kept, or nothing can be."""

    subject: str
    message: str
    stops: bool


async def look(database: Database, wall: Callable[[], float] = time.time) -> ServerFacts:
    """Ask the server. Raises what ``Database.fetchrow`` raises."""
    # the first takes a connection, which takes time
    await database.fetchval("SELECT 1")
    before = wall()
    row = await database.fetchrow(_LOOK)
    after = wall()
    assert row is not None  # noqa: S101 - one row, always
    apart = row["clock"] - (before + after) / 2
    explained = abs(apart) <= (after - before) / 2
    return ServerFacts(
        row["version"],
        row["waited_for"],
        row["followers"],
        row["durable"],
        row["checksums"],
        row["archived"],
        0.0 if explained else apart,
        (after - before) / 2,
    )


def problems(
    facts: ServerFacts, *, replicas: int, without_standby: bool
) -> Iterator[ServerProblem]:
    """What is wrong with a server that ``replicas`` shufflers share."""
    if not facts.durable:
        yield ServerProblem(
            "fsync",
            "the database does not wait for its disk: set fsync and full_page_writes to on",
            stops=True,
        )
    if replicas > 1 and not facts.waited_for and not without_standby:
        yield ServerProblem(
            "standby",
            "several replicas share a database without a synchronous standby: set "
            "synchronous_standby_names, or store.without_standby if losing its machine may lose "
            "what was acknowledged",
            stops=True,
        )
    if facts.waited_for and not facts.followers:
        yield ServerProblem(
            "standby", "the database waits for a standby that is away: start it", stops=True
        )
    far = abs(facts.apart_s) > TOLERANCE_S + facts.slack_s
    if abs(facts.apart_s) > _APART_S:
        yield ServerProblem(
            "clock",
            f"the database's clock is {abs(facts.apart_s):.0f} s "
            f"{'ahead of' if facts.apart_s > 0 else 'behind'} this machine's: set the wrong one"
            + ("; until then nothing is taken or decided here" if far else ""),
            stops=far,
        )
    if not facts.checksums:
        yield ServerProblem(
            "checksums",
            "the database finds no damage of its disk: enable data checksums (pg_checksums)",
            stops=False,
        )
    if facts.archived:
        yield ServerProblem(
            "archive",
            "the database's log is archived: it shows when reports of open windows came; set "
            "archive_mode to off",
            stops=False,
        )


class DatabaseWatch:
    """Looks at the server while the service runs. For one event loop."""

    def __init__(self, database: Database, *, replicas: int, without_standby: bool) -> None:
        self._database, self._replicas = database, replicas
        self._without_standby = without_standby
        self._found: tuple[Condition, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._facts: ServerFacts | None = None
        self._keeper: Timekeeper | None = None

    def tell_clock(self, keeper: Timekeeper) -> None:
        """Let the server's clock speak against this machine's from now on, after each look."""
        self._keeper = keeper
        self._tell()

    def _tell(self) -> None:
        if self._keeper is not None and self._facts is not None:
            theirs = self._keeper.now() + self._facts.apart_s
            self._keeper.hear(WITNESS, theirs, self._facts.slack_s, vouched=True, witness=False)

    async def start(self) -> None:
        """Look once, then again and again."""
        await self.look()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """No more looks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``. That this program is too old is told before the next look."""
        if self._database.outdated is not None:
            return iter((Condition("database", "", str(self._database.outdated)),))
        return iter(self._found)

    async def look(self) -> None:
        """Once. Never raises: what it meets is a condition."""
        try:
            facts = await look(self._database)
        except ShoalError as error:
            self._found = (Condition("database", "", str(error)),)
            return
        self._facts = facts
        self._tell()
        self._found = tuple(
            Condition("database", one.subject, one.message, stops=one.stops)
            for one in problems(
                facts, replicas=self._replicas, without_standby=self._without_standby
            )
        )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look()
