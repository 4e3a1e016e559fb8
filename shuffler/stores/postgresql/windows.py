"""What a replica knows of windows: their rows, as they were last read, the key files that go with
them, and who works on which (claims).

Records are answered from memory. A look at what changed, once a second, keeps it up to date;
whoever claims a window or takes a step reads its row anew. A window is published only when its keys
are safe on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal import failpoints
from shoal.crypto.hpke import HpkePrivateKey
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.services.complaints import Complaints
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import Claim, OwnerId, StaleClaimError
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.database import WAIT, Database
from shoal.shuffler.stores.postgresql.rows import (
    ASKED_SINCE,
    BEFORE_ASKED,
    COLUMNS,
    WindowRow,
    parse,
)
from shoal.shuffler.stores.postgresql.window_keys import Purpose, WindowKeyFiles, derive
from shoal.shuffler.stores.store import HopKeys, WindowRecord, no_hop_key
from shoal.shuffler.stores.threaded_claims import to_its_end

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

log = get_log("shuffler")
_LOOK_S = 1.0  # between two looks at what changed
_SLACK = "1 minute"  # a change may become visible so long after its time
_WHOLE_EVERY = 600  # looks at changes between two at everything


@dataclass(frozen=True, slots=True)
class ServedWindows:
    """What a task's windows take, and how to come by their hop keys."""

    schedule_hash: Digest
    capacity: Capacity
    row_size: int
    hop_key: HopKeys


class SharedWindows:
    """Belongs to the event loop of its first call. ``replica``: this machine's id in the table of
    those who hold keys; 16 bytes, public.
    """

    def __init__(
        self,
        database: Database,
        keys: WindowKeyFiles,
        replica: bytes,
        entropy: Entropy = SYSTEM,
    ) -> None:
        """Nothing is known yet: see ``load``."""
        self._db, self._keys, self._replica, self._entropy = database, keys, replica, entropy
        self._rows: dict[WindowId, WindowRow] = {}
        self._published: dict[WindowId, WindowRecord] = {}
        self._tasks: dict[TaskId, ServedWindows] = {}
        self._schedules: dict[TaskId, Digest] = {}  # as the database has them
        self._damage: dict[WindowId, Condition] = {}
        self._trouble: dict[WindowId, Condition] = {}  # that mending a key file ends
        self._behind: dict[WindowId, Condition] = {}  # that the database has less far than it was
        self._unwritten: set[WindowId] = set()  # their hop keys are here, their key files are not
        self._claimed: dict[WindowId, Claim] = {}  # by this process, as far as it knows
        self._looking: asyncio.Task[None] | None = None
        self._looks = 0

    # --- what this process knows ------------------------------------------------------------------

    async def load(self) -> None:
        """Everything that the database has, and key files that nobody needs any more deleted."""
        await self._look(everything=True)

    @property
    def replica(self) -> bytes:
        """This machine's id, which is public: 16 bytes."""
        return self._replica

    def records(self) -> dict[WindowId, WindowRecord]:
        """As ``Store.records``."""
        return dict(self._published)

    def record(self, window: WindowId) -> WindowRecord | None:
        """As ``Store.record``."""
        return self._published.get(window)

    def adopt(
        self,
        task_id: TaskId,
        schedule_hash: Digest,
        capacity: Capacity,
        row_size: int,
        hop_key: HopKeys = no_hop_key,
    ) -> None:
        """As ``Store.adopt``."""
        known = self._schedules.setdefault(task_id, schedule_hash)
        if known != schedule_hash:
            raise ShoalError(
                Kind.CONFLICT,
                f"task {task_id.short} was served with another key schedule before: a task has one",
            )
        self._tasks[task_id] = ServedWindows(schedule_hash, capacity, row_size, hop_key)
        for row in [row for window, row in self._rows.items() if window.task_id == task_id]:
            self._secure(row)  # before anybody may delete the hop key
            self._publish(row)
        if self._looking is None:
            with contextlib.suppress(RuntimeError):  # no loop: a test of what needs none
                self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    def damage(self) -> Iterable[Condition]:
        """As ``Store.damage``."""
        for window, condition in [*self._damage.items(), *self._trouble.items()]:
            record = self._published.get(window)
            if record is None or record.state is not WindowState.SHREDDED:
                yield condition
        yield from self._behind.values()

    # --- looking ----------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        complaints = Complaints(log, "the database could not be asked for windows")
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._looks += 1
                await self._look(everything=self._looks % _WHOLE_EVERY == 0)
                await self._looked()
                complaints.ended("look")
            except ShoalError as error:
                complaints.failed("look", error)
            except Exception as error:  # noqa: BLE001 - looking must go on
                log.error("looking at windows failed unexpectedly", error=error)

    async def _look(self, *, everything: bool = False) -> None:
        """Take up what changed. Keys of windows that are over here are deleted."""
        for task in await self._db.fetch("SELECT task_id, schedule_hash FROM task"):
            self._schedules[TaskId(bytes(task["task_id"]))] = Digest(bytes(task["schedule_hash"]))
        since = "" if everything else f" WHERE changed > now() - interval '{_SLACK}'"
        rows = await self._db.fetch(f"SELECT {COLUMNS} FROM win{since}")  # noqa: S608 - constants
        await self._db.check_least()  # after the rows: a new epoch may be another program's
        for found in rows:
            await self._take(parse(found))
        for window in list(self._unwritten):
            await self._read(window)
        if everything:
            await self._correct_held()
        over = [
            (window, purpose)
            for window, purpose in await asyncio.to_thread(self._keys.held)
            if (row := self._rows.get(window)) is not None and not purpose.needed(row.record.state)
        ]
        if over:  # only on the word of what no failover takes back: this commit waits for it
            async with self._db.transaction() as connection:
                await connection.execute(WAIT)
        for window, purpose in over:
            await to_its_end(self._drop_key(window, purpose))

    async def _looked(self) -> None:
        """After each look: what a replica does with what it saw."""

    async def _read(self, window: WindowId) -> WindowRow | None:
        """The window's row as it is now, taken up. An open one without is not known any more."""
        row, known = await self._row(window), self._rows.get(window)
        if row is None:
            if known is not None and known.is_open:
                self._forget(window)
            return None
        return await self._take(row)

    async def _row(self, window: WindowId) -> WindowRow | None:
        try:
            found = await self._db.fetchrow(
                f"SELECT {COLUMNS} FROM win WHERE task_id = $1 AND win = $2",  # noqa: S608 - constants
                window.task_id.raw,
                window.window,
            )
        finally:  # a new epoch may be another program's: see ``schema``
            await self._db.check_least()
        return None if found is None else parse(found)

    async def _step_back(self) -> None:
        """The database may be an older copy of itself. Of open windows that it does not have, or
        has in an earlier state, is known what a start would know. What was decided stays so here.
        """
        there = {row.window: row for row in await self._all_rows()}
        self._behind.clear()
        for window, known in list(self._rows.items()):
            if not _is_before(there.get(window), known):
                continue
            row = await self._row(window)  # it may have gone on since all were read
            if not _is_before(row, known) or self._rows.get(window) is not known:
                continue
            name = f"window {window.window} of task {window.task_id.short}"
            log.error(
                "the database has an earlier state of a window than it had",
                task=window.task_id,
                window=window.window,
                state=known.record.state,
            )
            if known.is_open:
                self._forget(window)
                if row is not None:
                    await self._take(row)
            else:
                self._behind[window] = Condition(
                    "database",
                    f"{window.task_id.short}:{window.window}",
                    f"{name} was decided, and the database, which was put back, does not know it: "
                    "it takes no reports here; start this replica again, and it goes on from what "
                    "the database has",
                    stops=False,
                )
        await self._correct_held()

    async def _all_rows(self) -> list[WindowRow]:
        return [parse(row) for row in await self._db.fetch(f"SELECT {COLUMNS} FROM win")]  # noqa: S608 - constants

    def _forget(self, window: WindowId) -> None:
        """Its row, and all that stands on it."""
        self._rows.pop(window, None)
        self._published.pop(window, None)

    async def _take(self, row: WindowRow) -> WindowRow:
        """Take up a row: its keys first, in a thread where they have to be written. While they
        can't be, the program does not hear of it: it would delete the hop key of a window that is
        decided, and nobody here could ever finish that window. Every look tries again.
        """
        before = self._rows.get(row.window)
        if before is not None and _progress(before) > _progress(row):
            return before  # of two looks that cross the later one stays
        if before != row:
            if row.window.task_id in self._tasks:
                await self._make_safe(row)
                before = self._rows.get(row.window)  # it took time
                if before is not None and _progress(before) > _progress(row):
                    return before
                if row.window in self._unwritten:
                    return row
            self._publish(row)
        return row

    def _publish(self, row: WindowRow) -> None:
        before = self._rows.get(row.window)
        self._rows[row.window] = row
        self._published[row.window] = row.record
        if before is not None and before.is_open and not row.is_open:
            self._closed(row.window)

    def _closed(self, window: WindowId) -> None:
        """The window takes nothing more, whoever decided it."""

    # --- keys -------------------------------------------------------------------------------------

    async def _make_safe(self, row: WindowRow) -> None:
        """What ``_secure`` does, and what is told of it in the database."""
        missing = [one for one in Purpose if not self._has(row, one)]
        if missing:
            await asyncio.to_thread(self._secure, row)
            if row.window not in self._unwritten:
                await self._tell_held(row.window, missing)

    def _has(self, row: WindowRow, purpose: Purpose) -> bool:
        if row.window in self._unwritten:
            return False
        if not purpose.needed(row.record.state) or row.window in self._trouble:
            return True
        key = self._keys.get(row.window, purpose)
        return key is not None and (
            purpose is not Purpose.INBOX or row.check_value in (b"", key.check_value)
        )

    def _secure(self, row: WindowRow) -> None:
        """Every key that the window still needs is in a file, durably; or what keeps it from that
        is told.
        """
        self._trouble.pop(row.window, None)
        self._unwritten.discard(row.window)
        wanted = [one for one in Purpose if one.needed(row.record.state)]
        try:
            if any(self._keys.get(row.window, one) is None for one in wanted):
                self._derive(row.window, wanted)
            inbox = self._keys.get(row.window, Purpose.INBOX) if wanted else None
            if inbox is not None and row.check_value not in (b"", inbox.check_value):
                raise ShoalError(
                    Kind.KEY_FILE,
                    "the window was opened by a shuffler with another hop key: give all replicas "
                    "the same keys_dir",
                )
        except ShoalError as error:
            window = row.window
            if window not in self._trouble:
                log.error("a window's keys", task=window.task_id, window=window.window, error=error)
            self._trouble[window] = Condition(
                "key", f"{window.task_id.short}:{window.window}", str(error), stops=False
            )

    def _derive(self, window: WindowId, wanted: Iterable[Purpose]) -> None:
        """Raises KEY_FILE."""
        served = self._tasks.get(window.task_id)
        hop_key = None if served is None else served.hop_key(window.window)
        if hop_key is None:
            raise ShoalError(
                Kind.KEY_FILE,
                f"window {window.window} of task {window.task_id.short}: neither its keys nor its "
                "hop key are on this machine, so another replica has to bring it to its end",
            )
        self._unwritten.add(window)
        for purpose in wanted:
            failpoints.hit("window-keys.keep")
            self._keys.keep(window, purpose, derive(hop_key, window, purpose))
        self._unwritten.discard(window)

    async def _tell_held(self, window: WindowId, purposes: Iterable[Purpose]) -> None:
        await self._db.execute(
            "INSERT INTO holder SELECT $1, $2, $3, unnest($4::text[]) ON CONFLICT DO NOTHING",
            self._replica,
            window.task_id.raw,
            window.window,
            [purpose.value for purpose in purposes],
        )

    async def _correct_held(self) -> None:
        """The database is told of the key files that are here, and of no other: whoever died
        between a file and the word of it left one without the other.
        """
        told = {
            (WindowId(TaskId(bytes(task)), window), Purpose(purpose))
            for task, window, purpose in await self._db.fetch(
                "SELECT task_id, win, purpose FROM holder WHERE replica = $1", self._replica
            )
        }
        for window, purpose in set(await asyncio.to_thread(self._keys.held)) - told:
            await self._tell_held(window, [purpose])
            told.add((window, purpose))
        # a file goes before its word does, so one that is not here now has no word to come
        for window, purpose in told - set(await asyncio.to_thread(self._keys.held)):
            await self._untell_held(window, purpose)

    async def _drop_key(self, window: WindowId, purpose: Purpose) -> None:
        """The file, and then the word that it is there."""
        failpoints.hit("window-keys.delete")
        await asyncio.to_thread(self._keys.delete, window, purpose)
        failpoints.hit("window-keys.deleted")
        await self._untell_held(window, purpose)

    async def _untell_held(self, window: WindowId, purpose: Purpose) -> None:
        await self._db.execute(
            "DELETE FROM holder WHERE replica = $1 AND task_id = $2 AND win = $3 AND purpose = $4",
            self._replica,
            window.task_id.raw,
            window.window,
            purpose.value,
        )

    # --- claims -----------------------------------------------------------------------------------

    async def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        """As ``WindowClaims.claim``. By the database's clock."""
        found = await self._db.fetchrow(
            "INSERT INTO claim VALUES ($1, $2, $3, 1,"
            " clock_timestamp() + make_interval(secs => $4))"
            " ON CONFLICT (task_id, win) DO UPDATE SET owner = $3, fence = claim.fence + 1,"
            " lease_until = clock_timestamp() + make_interval(secs => $4)"
            " WHERE claim.owner = $3 OR claim.lease_until <= clock_timestamp() RETURNING fence",
            window.task_id.raw,
            window.window,
            owner.raw,
            seconds,
        )
        if found is None:
            return None
        await self._read(window)  # what the owner before has done
        self._claimed[window] = claim = Claim(window, owner, found["fence"])
        return claim

    async def renew(self, claim: Claim, seconds: float) -> None:
        """As ``WindowClaims.renew``."""
        await self._change_claim(
            "UPDATE claim SET lease_until = clock_timestamp() + make_interval(secs => $5)",
            claim,
            seconds,
        )

    async def release(self, claim: Claim) -> None:
        """As ``WindowClaims.release``."""
        if self._claimed.get(claim.window) == claim:
            del self._claimed[claim.window]
        with contextlib.suppress(StaleClaimError):
            await self._change_claim(
                "UPDATE claim SET owner = '', lease_until = '-infinity'", claim
            )

    async def _change_claim(self, change: str, claim: Claim, *arguments: float) -> None:
        found = await self._db.fetchrow(
            f"{change} WHERE task_id = $1 AND win = $2 AND owner = $3 AND fence = $4 RETURNING 1",
            *_named(claim),
            *arguments,
        )
        if found is None:
            raise StaleClaimError

    @contextlib.asynccontextmanager
    async def _step(self, *claims: Claim) -> AsyncIterator[Connection]:
        """A transaction in which the claims hold to its end. Raises StaleClaimError."""
        async with self._db.transaction() as connection:
            for claim in sorted(set(claims), key=lambda one: (_named(one)[:2], one.fence)):
                found = await connection.fetchrow(
                    "SELECT 1 FROM claim WHERE task_id = $1 AND win = $2 AND owner = $3"
                    " AND fence = $4 FOR SHARE",
                    *_named(claim),
                )
                if found is None:
                    raise StaleClaimError
            await self._db.check_least(connection)
            yield connection

    def step(self, claim: Claim) -> contextlib.AbstractAsyncContextManager[Connection]:
        """For what else is kept of a window: see ``_step``."""
        return self._step(claim)

    def hop_key(self, window: WindowId) -> HpkePrivateKey | None:
        """None: it is not here, or not any more. Raises KEY_FILE."""
        served = self._tasks.get(window.task_id)
        return None if served is None else served.hop_key(window.window)

    async def close(self) -> None:
        """Stop looking, leave claimed windows to others, and then the database."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None
        with contextlib.suppress(ShoalError):  # they run out
            for claim in list(self._claimed.values()):
                await self.release(claim)
        await self._db.close()


def _named(claim: Claim) -> tuple[bytes, int, bytes, int]:
    return claim.window.task_id.raw, claim.window.window, claim.owner.raw, claim.fence


def _is_before(row: WindowRow | None, known: WindowRow) -> bool:
    """Whether the window has stepped back: its row is gone, another one, or less far."""
    return row is None or row.id != known.id or _progress(row) < _progress(known)


def _progress(row: WindowRow) -> tuple[int, int, int, int]:
    """Never steps back: windows go through their states in the order of the states' numbers. Every
    change of a row raises it, so of two looks that cross the later one is known.
    """
    return row.record.state.value, row.epoch, row.emptied, row.seats


async def stored_window(
    database: Database, identity: bytes, window: WindowId
) -> WindowRecord | None:
    """For somebody who serves nothing: the window as it is now, read beside replicas that run,
    whichever worked on it, in a transaction that may change nothing; None: no row, or no tables
    yet.
    ``identity``: the shuffler's public signing key. Raises CONFIG (another shuffler's tables, a
    newer version), UNAVAILABLE, INTERNAL.
    """
    async with database.transaction() as connection:
        await connection.execute("SET TRANSACTION READ ONLY")
        schema.check_server(connection)
        known = await schema.version(connection, database.schema, identity)
        if not known:
            return None
        columns = COLUMNS if known >= ASKED_SINCE else BEFORE_ASKED
        found = await connection.fetchrow(
            f"SELECT {columns} FROM win WHERE task_id = $1 AND win = $2",  # noqa: S608 - constants
            *(window.task_id.raw, window.window),
        )
    return None if found is None else parse(found).record
