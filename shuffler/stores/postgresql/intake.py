"""Reports come in: each commit group of a window becomes one block, stored in one round trip.

A group that needs more seats than this replica has is stored alone: in a transaction that waits for
all others of the window and keeps new ones out (the *gate*), takes a slice of seats or counts anew,
and stores its block, so that whoever counts gets on. Of enrolled devices a tag is entered in the
transaction of the block: of two replicas that admit one device at a time the second waits for the
first, finds the tag, and looks whether it is the same report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey
from shoal.shuffler import core
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.distinct import JoinedPlacement
from shoal.shuffler.stores.joined import Admitted, join, reports_of, rows_of, spread
from shoal.shuffler.stores.postgresql.database import WAIT
from shoal.shuffler.stores.postgresql.failures import NO_TABLE, DatabaseError, Refusals
from shoal.shuffler.stores.postgresql.group import Group, group_of, placed_in
from shoal.shuffler.stores.postgresql.inbox import (
    AFTER_OPEN,
    MAKE,
    STILL_OPEN,
    KeysRead,
    OpenWindow,
    Place,
    end_writers,
    insert,
    still_open,
)
from shoal.shuffler.stores.postgresql.replicas.losses import MissingRows
from shoal.shuffler.stores.postgresql.rows import (
    COLUMNS,
    GoneError,
    WindowRow,
    lock,
    parse,
    tables_first,
)
from shoal.shuffler.stores.postgresql.window_keys import Purpose, derive
from shoal.shuffler.stores.postgresql.windows import ServedWindows, SharedWindows
from shoal.shuffler.stores.seats import grant
from shoal.shuffler.stores.store import AdmittedRows
from shoal.shuffler.stores.told import ToldRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

_TRIES = 50  # each is lost to a count that somebody else ended
_REFUSALS = frozenset({Kind.OVERLOADED, Kind.UNAVAILABLE, Kind.INTERNAL})
_FULL = frozenset({Kind.WINDOW_FULL, Kind.OVERLOADED})


class SharedIntake(SharedWindows):
    """Open windows."""

    def _begin_intake(self, told: ToldRows) -> None:
        self._told = told
        self._losses = MissingRows(self._db, told, self._keys, self._entropy)
        self._over: set[WindowId] = set()  # windows of ``told`` that were compared when sealed
        self._boxes: dict[WindowId, OpenWindow] = {}
        self._refused = Refusals()
        self._turns: WeakValueDictionary[WindowId, asyncio.Lock] = WeakValueDictionary()

    async def load(self) -> None:
        """As ``SharedWindows.load``; and the keys of open windows that are known here, so that
        their counts are exact from the start. First what was promised is looked for.
        """
        await super().load()
        await self._miss()
        for window, row in list(self._rows.items()):
            if row.is_open and self._keys.get(window, Purpose.INBOX) is not None:
                try:
                    await self._box(row)
                except DatabaseError as error:  # another replica may have sealed it this moment
                    now = await self._read(window)
                    if error.sqlstate != NO_TABLE or (now is not None and now.is_open):
                        raise

    def distinct(self, window: WindowId) -> int:
        """As ``Store.distinct``: what this replica stored or read, or what was last counted."""
        box, row = self._boxes.get(window), self._rows.get(window)
        return max(len(box.keys) if box else 0, row.found if row else 0)

    async def _append(self, items: list[Admitted]) -> list[Kind | None]:
        """One commit group. An outcome for every report."""
        groups: dict[WindowId, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(item.window, []).append(index)
        found = await asyncio.gather(
            *(
                self._append_to(window, [items[index] for index in indices])
                for window, indices in groups.items()
            )
        )
        if len(found) == 1:
            return found[0]
        outcomes: dict[int, list[Kind | None]] = {}
        for indices, kinds in zip(groups.values(), found, strict=True):
            left = iter(kinds)
            for index in indices:
                outcomes[index] = list(islice(left, reports_of(items[index])))
        return list(chain.from_iterable(outcomes[index] for index in range(len(items))))

    async def _append_to(self, window: WindowId, items: Sequence[Admitted]) -> list[Kind | None]:
        served = self._tasks[window.task_id]
        rows, fits = join(window, items, served.capacity, served.row_size)
        try:
            kinds = await self._store(rows, served) if rows.count else []
        except ShoalError as failure:
            error = await self._judged(window, failure)
            kind = error.kind if error.kind in _REFUSALS else Kind.UNAVAILABLE
            self._refused.failed(window, error, task=window.task_id, window=window.window)
            kinds = [kind] * rows.count
        else:
            if _REFUSALS.isdisjoint(kinds):  # of those that were stored before one is none
                self._refused.ended(window, task=window.task_id, window=window.window)
        return spread(items, fits, kinds)

    async def _judged(self, window: WindowId, error: ShoalError) -> ShoalError:
        """Where a window's table or row is gone, whether the window is: then it is forgotten, and
        the next report opens it anew.
        """
        lost = isinstance(error, DatabaseError) and error.sqlstate == NO_TABLE
        if lost or isinstance(error, GoneError):
            with suppress(ShoalError):
                if await self._read(window) is None:
                    return GoneError()
        return error

    async def _store(self, rows: AdmittedRows, served: ServedWindows) -> list[Kind | None]:
        """Raises OVERLOADED, UNAVAILABLE, INTERNAL: which of them are stored is not known then."""
        window, capacity, group = rows.window, served.capacity, None
        for _ in range(_TRIES):
            row = self._rows.get(window) or await self._open_window(window, rows.asked)
            if not row.is_open:
                full = core.was_full(capacity.distinct, row.record.reports)
                return [Kind.WINDOW_FULL if full else Kind.WINDOW_CLOSED] * rows.count
            if not row.takes(rows.asked):
                return [Kind.UNKNOWN_TASK] * rows.count
            box = await self._box(row)
            group = group or group_of(box, rows)
            kinds = await self._try(box, group, capacity)
            if kinds is not None:
                return kinds
            await self._read(window)
        raise ShoalError(Kind.UNAVAILABLE, "the window is counted again and again: try again")

    async def _try(
        self, box: OpenWindow, group: Group, capacity: Capacity
    ) -> list[Kind | None] | None:
        """None: the window was closed or counted meanwhile, look at it again."""
        known: list[bool] = []
        try:
            if box.ended:
                await end_writers(box, self._db)
            # full, of what others stored
            if box.unread or box.row.found >= capacity.reports > len(box.keys):
                await self._learn(box)
            placed = placed_in(box, group, capacity)
            if not len(placed.places):
                if box.reading:  # others read what is known, and it may not be on the standby
                    async with self._db.transaction() as connection:
                        await connection.execute(WAIT)
                return placed.outcomes
            if group.tags and not _FULL.isdisjoint(placed.outcomes):
                # who is admitted elsewhere must not take one of the last places
                await self._learn(box, group.tags)
                placed = placed_in(box, group, capacity)
            if len(placed.places) < group.reports and not box.reading:
                known = box.keys.known(rows_of(group.keys, StorageKey.SIZE))
            if box.seats.spend(len(placed.places)):
                return await self._store_block(box, group, placed)
            return await self._store_alone(box, group, capacity)
        except ShoalError as error:
            box.failed()  # nobody knows whether the last block is there
            if error.kind not in _REFUSALS or not any(known):
                raise
            self._refused.failed(box.row.window, error, window=box.row.window.window)
            return [None if stored else error.kind for stored in known]

    async def _learn(self, box: OpenWindow, tags: Collection[bytes] = ()) -> None:
        """What the database has of the window, and of these tags, in a transaction of its own."""
        async with self._db.transaction() as connection:
            if tags:  # two tables, in the order of everybody who takes both
                await connection.execute(tables_first(box.row))
            reading = await box.read(connection, tags)
        box.sure(reading)

    # --- blocks -----------------------------------------------------------------------------------

    async def _store_block(
        self, box: OpenWindow, group: Group, placed: JoinedPlacement
    ) -> list[Kind | None] | None:
        # the seats that were just spent are of this epoch
        row, epoch = box.row, box.seats.epoch
        place_of: Place | None
        failpoints.hit("postgresql.append")
        if group.tags:
            async with self._db.transaction() as connection:
                await connection.execute(tables_first(row))
                found = await connection.fetchrow(STILL_OPEN, *still_open(row, epoch, group.asked))
                if found is None:
                    return None
                (kinds, places, tags), reading = await self._enter(connection, box, group, placed)
                keys, sealed = group.taken(places)
                place_of = await self._insert(connection, box, keys, sealed)
            failpoints.hit("postgresql.appended")
            box.sure(reading)
        else:
            place_of = box.next_place()
            kinds, places, tags = placed
            keys, sealed = group.taken(places)
            done = await self._db.execute(
                insert(row.inbox, STILL_OPEN, AFTER_OPEN),
                *still_open(row, epoch, group.asked),
                *place_of.columns,
                *box.sealed(place_of, keys, sealed),
            )
            failpoints.hit("postgresql.appended")
            if done != "INSERT 0 1":
                box.not_stored(place_of)
                return None
        box.stored(place_of, keys, tags)
        return kinds

    async def _store_alone(
        self, box: OpenWindow, group: Group, capacity: Capacity
    ) -> list[Kind | None] | None:
        """With the window's row locked and nothing under way: take seats, or count; then store."""
        limit, stored = capacity.reports, 0
        read: KeysRead | None = None
        place_of = None
        async with self._db.transaction() as connection:
            row = await lock(connection, box.row)
            await self._db.check_least(connection)
            if (
                not row.is_open
                or (row.epoch, row.emptied) != (box.seats.epoch, box.row.emptied)
                or not row.takes(group.asked)
            ):
                return None
            placed = placed_in(box, group, capacity)
            had = box.seats.take_all()
            given = grant(row.seats, limit, max(1, len(placed.places) - had))
            counted = had + given < len(placed.places)
            failpoints.hit("postgresql.alone")
            if counted:
                read = await box.read(connection, group.tags)
                stored, placed = len(box.keys), placed_in(box, group, capacity)
            (kinds, places, tags), reading = await self._enter(connection, box, group, placed)
            keys, sealed = group.taken(places)
            if counted:
                found = stored + len(places)
                spare = grant(found, limit, 1)
                changed = replace(row, epoch=row.epoch + 1, seats=found + spare, found=found)
            else:
                spare = had + given - len(placed.places)
                changed = replace(row, seats=row.seats + given)
            await connection.execute(
                "UPDATE win SET seats = $2, epoch = $3, found = $4,"  # all look when none is left
                " changed = CASE WHEN epoch = $3 AND NOT $5 THEN changed ELSE now() END"
                " WHERE id = $1",
                *(row.id, changed.seats, changed.epoch, changed.found, changed.seats == limit),
            )
            place_of = await self._insert(connection, box, keys, sealed)
            failpoints.hit("postgresql.alone-commit")
        failpoints.hit("postgresql.alone-committed")
        if read is not None:
            box.settle(read)
        for one in (read, reading):
            box.sure(one)
        box.stored(place_of, keys, tags)
        await self._take(changed)
        box.seats.add(changed.epoch, spare)
        return kinds

    async def _enter(
        self, connection: Connection, box: OpenWindow, group: Group, placed: JoinedPlacement
    ) -> tuple[JoinedPlacement, KeysRead | None]:
        """Admit the devices of what is to be stored. The outcomes, the places that are stored, and
        the tags that were entered: fewer where a device was admitted by another replica. And what
        had to be read for it.
        """
        if not placed.tags:
            return placed, None
        entered = {
            bytes(tag)
            for (tag,) in await connection.fetch(
                f"INSERT INTO {box.row.tags} SELECT unnest($1::bytea[])"
                " ON CONFLICT DO NOTHING RETURNING tag",
                sorted(placed.tags),
            )
        }
        if entered == placed.tags:
            return placed, None
        reading = await box.read(connection, placed.tags - entered)
        known = box.keys.known(rows_of(group.keys, StorageKey.SIZE))
        return group.admitted(placed, entered, known), reading

    async def _insert(
        self,
        connection: Connection,
        box: OpenWindow,
        keys: bytes,
        sealed: bytes,
    ) -> Place | None:
        """A block, in a transaction that keeps counts out: whoever counted before knows of no
        number as large as its own, which is drawn here. Where it is; None: there are no rows.
        """
        if not keys:
            return None
        place_of = box.next_place()
        await connection.execute(
            insert(box.row.inbox, "SELECT 1", 1),
            *place_of.columns,
            *box.sealed(place_of, keys, sealed),
        )
        return place_of

    async def _miss(self) -> None:
        """Compare what was promised with the database, where it may have lost some of it: see
        ``MissingRows``. What was noted meanwhile is made durable.
        """
        which = await self._losses.which()
        other = self._losses.is_other(which)
        if other:
            await self._step_back()
            for box in self._boxes.values():
                box.forget()
        for window in self._told.windows():
            row = self._rows.get(window)
            over = row is not None and row.record.state > WindowState.CLOSING
            if over and row is not None and row.record.state is WindowState.SHREDDED:
                self._over.discard(window)
            if other or (over and window not in self._over):
                await self._losses.compare(window)
                if over:
                    self._over.add(window)
        self._losses.compared(which)
        await asyncio.to_thread(self._told.sync)

    # --- counting ---------------------------------------------------------------------------------

    async def _looked(self) -> None:
        """As ``SharedWindows._looked``; look for what is missing, and count windows that may be
        full of what several stored.
        """
        await self._miss()
        for window, row in list(self._rows.items()):
            served, box = self._tasks.get(window.task_id), self._boxes.get(window)
            if served is None or window in self._trouble or (box is not None and box.seats.left):
                continue
            if served.capacity.distinct and _given_out(row, served.capacity.reports):
                await self._count(row, served.capacity.reports)

    async def _count(self, known: WindowRow, limit: int) -> None:
        """What is really there, with the window's row locked. No seat is given to anybody: whoever
        looks after this finds nothing to count until reports have taken all seats again.
        """
        box = await self._box(known)
        try:
            async with self._db.transaction() as connection:
                row = await lock(connection, known)
                await self._db.check_least(connection)  # what follows takes a new epoch up
                if row.emptied != box.row.emptied or not _given_out(row, limit):
                    return
                read = await box.read(connection)
                found = len(box.keys)
                await connection.execute(
                    "UPDATE win SET seats = $2, epoch = epoch + 1, found = $2, changed = now()"
                    " WHERE id = $1",
                    *(row.id, found),
                )
        except ShoalError:
            box.failed()
            raise
        box.settle(read)
        box.sure(read)
        await self._take(replace(row, epoch=row.epoch + 1, seats=found, found=found))

    # --- windows ----------------------------------------------------------------------------------

    async def _box(self, row: WindowRow) -> OpenWindow:
        """What is known of an open window, read when it is first asked for. Raises UNAVAILABLE
        where its keys are not here.
        """
        async with self._turns.setdefault(row.window, asyncio.Lock()):
            box = self._boxes.get(row.window)
            if box is None:
                key = self._keys.get(row.window, Purpose.INBOX)
                if key is None or key.check_value != row.check_value:
                    raise ShoalError(
                        Kind.UNAVAILABLE, "the window's keys are not on this machine: try another"
                    )
                box = OpenWindow(row, key, self._entropy, self._told)
                await self._learn(box)
                current = self._rows.get(row.window, row)
                if current.is_open and current.emptied == row.emptied:
                    self._boxes[row.window] = box
                    box.follow(current)
            return box

    async def _open_window(self, window: WindowId, asked: bytes) -> WindowRow:
        """Its row, made if nobody did before, with the tables of its reports. Its keys come
        first. ``asked``: what its reports answer from then on, if the database has that question.
        """
        async with self._turns.setdefault(window, asyncio.Lock()):
            row = self._rows.get(window)
            if row is not None:
                return row
            served = self._tasks[window.task_id]
            hop_key = served.hop_key(window.window)
            if hop_key is None:
                raise ShoalError(Kind.UNAVAILABLE, "the window's hop key is not here: try another")
            for purpose in Purpose:
                key = derive(hop_key, window, purpose)
                await asyncio.to_thread(self._keys.keep, window, purpose, key)
            inbox = self._keys.get(window, Purpose.INBOX)
            assert inbox is not None  # noqa: S101 - it was just kept
            failpoints.hit("postgresql.open")
            async with self._db.transaction() as connection:
                await self._register(connection, window)
                found = await connection.fetchrow(
                    "INSERT INTO win (task_id, win, state, check_value, asked)"  # noqa: S608 - constants
                    " SELECT $1::bytea, $2::int, $3::smallint, $4::bytea, $5::bytea"
                    " WHERE $5 = '' OR EXISTS"
                    " (SELECT 1 FROM step WHERE task_id = $1 AND win = $2 AND name = $5)"
                    f" ON CONFLICT DO NOTHING RETURNING {COLUMNS}",
                    *(window.task_id.raw, window.window, WindowState.OPEN.value),
                    *(inbox.check_value, asked),
                )
                await self._db.check_least(connection)
                if found is not None:
                    made = parse(found)
                    for statement in MAKE:
                        await connection.execute(statement.format(inbox=made.inbox, tags=made.tags))
            failpoints.hit("postgresql.opened")
            await self._tell_held(window, Purpose)
            row = await self._read(window)
            if row is None and asked:  # it was put back: what was told is entered again, or is not
                raise ShoalError(
                    Kind.UNAVAILABLE, "the database does not have what the window asks: try again"
                )
            if row is None:
                raise ShoalError(Kind.INTERNAL, "a window that was just opened is gone")
            return row

    async def _register(self, connection: Connection, *windows: WindowId) -> None:
        """That their tasks are served, and with which schedules. Raises CONFLICT."""
        for task_id in sorted({window.task_id for window in windows}, key=lambda one: one.raw):
            ours = self._tasks[task_id].schedule_hash
            await connection.execute(
                "INSERT INTO task VALUES ($1, $2) ON CONFLICT DO NOTHING", task_id.raw, ours.raw
            )
            found = await connection.fetchrow(
                "SELECT schedule_hash FROM task WHERE task_id = $1", task_id.raw
            )
            if found is None or bytes(found["schedule_hash"]) != ours.raw:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"task {task_id.short} is served by another replica with another key schedule: "
                    "give all of them the same files",
                )

    def _publish(self, row: WindowRow) -> None:
        box = self._boxes.get(row.window)
        if box is not None and box.row.emptied != row.emptied:
            del self._boxes[row.window]
        elif box is not None:
            box.follow(row)
        super()._publish(row)

    def _closed(self, window: WindowId) -> None:
        self._boxes.pop(window, None)
        self._refused.ended(window, task=window.task_id, window=window.window)

    def _forget(self, window: WindowId) -> None:
        self._boxes.pop(window, None)
        self._over.discard(window)
        self._refused.ended(window, task=window.task_id, window=window.window)
        super()._forget(window)


def _given_out(row: WindowRow, limit: int) -> bool:
    """Whether nobody can take seats of an open window, and it is not known to be full."""
    return row.is_open and row.found < limit <= row.seats
