"""Reports in PostgreSQL: what several shufflers that serve one task share.

    win               a row for each window: its state, and how it is filled
    claim             who works on which window
    holder            which machines have which key files
    given_up          windows that an operator gave up, at whichever replica
    inbox_<id>        an open window: encrypted blocks, one for each commit group
    tag_<id>          devices that it admitted, as keyed hashes
    batch_<id>_<fence>  a sealed window: encrypted rows in storage key order, or with an object
                      store the names of objects that hold them

No report, key or secret gets there in the clear, so what its log, standbys and backups hold is
waste once the window's key files are gone. Contents are dropped with their tables, never deleted
row by row.

The order of durable steps is what makes a crash harmless: key files before a window's row; its row
and tables in one transaction; CLOSING before sealing; the batch, complete, before SEALED; SEALED
before the inbox goes; ACKNOWLEDGED before the batch goes; SHREDDED last. Whoever takes a window
over goes on from its row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from shoal import failpoints
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.joined import Admitted
from shoal.shuffler.stores.objects.sealed_objects import Sweeper, remove, shred
from shoal.shuffler.stores.postgresql import batches
from shoal.shuffler.stores.postgresql.batches import (
    Sealing,
    Written,
    check_written,
    enter_writers,
    exists,
    make_table,
    parts,
    tables_of,
)
from shoal.shuffler.stores.postgresql.blocks import BlockCipher
from shoal.shuffler.stores.postgresql.commits import AsyncCommits
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.inbox import MAKE, OpenWindow
from shoal.shuffler.stores.postgresql.intake import SharedIntake
from shoal.shuffler.stores.postgresql.replicas.fellows import replica_id
from shoal.shuffler.stores.postgresql.rows import (
    WindowRow,
    current,
    drop,
    expect,
    lock,
    not_in,
    seize,
)
from shoal.shuffler.stores.postgresql.watch import DatabaseWatch
from shoal.shuffler.stores.postgresql.window_keys import Purpose, WindowKey, WindowKeyFiles
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows, SealedRows
from shoal.shuffler.stores.threaded_claims import to_its_end
from shoal.shuffler.stores.told import ToldRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.objects.bucket import Bucket
    from shoal.shuffler.stores.postgresql.database import Connection

log = get_log("shuffler")
_DECIDED = frozenset({WindowState.ACKNOWLEDGED, WindowState.WITHHELD, WindowState.EXPIRED})


class PostgresStore(SharedIntake):
    """See ``Store``. Made by ``open_reports``; belongs to the event loop that makes it."""

    def __init__(
        self,
        database: Database,
        data_dir: Path,
        entropy: Entropy = SYSTEM,
        *,
        commit_ms: float = LIMITS.commit_ms,
        watch: DatabaseWatch | None = None,
        bucket: Bucket | None = None,
    ) -> None:
        """``data_dir``: key files, and temporary ones without names. ``watch``: of the server,
        which this closes. ``bucket``: where sealed batches go instead of the database. Raises
        KEY_FILE, CONFIG.
        """
        super().__init__(database, WindowKeyFiles(data_dir), replica_id(data_dir), entropy)
        self._begin_intake(ToldRows(data_dir))
        self._commits: AsyncCommits[Admitted] = AsyncCommits(self._append, wait_s=commit_ms / 1000)
        self._spill = data_dir
        self._wrote: dict[WindowId, Written] = {}  # batches that are not recorded yet
        self._gone: set[WindowId] = set()  # inboxes that are dropped
        self._intact: set[WindowId] = set()  # batches that were read whole
        self._watch, self._bucket = watch, bucket
        self._sweeper = Sweeper(database, bucket)

    def damage(self) -> Iterable[Condition]:
        """As ``Store.damage``; and what is wrong with the server."""
        yield from super().damage()
        yield from self._losses.conditions()
        yield from self._refused.conditions()
        if self._watch is not None:
            yield from self._watch.conditions()
        if self._sweeper.trouble is not None:
            yield self._sweeper.trouble

    async def append(self, submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        """As ``Store.append``."""
        return await self._commits.submit(submissions, len(submissions))

    async def append_rows(self, groups: Sequence[AdmittedRows]) -> list[list[Kind | None]]:
        """As ``Store.append_rows``."""
        left = iter(await self._commits.submit(groups, sum(group.count for group in groups)))
        return [list(islice(left, group.count)) for group in groups]

    # --- a window's end ---------------------------------------------------------------------------

    async def lapse(self, claims: Collection[Claim]) -> None:
        """As ``Store.lapse``."""
        await to_its_end(self._lapse(claims))

    async def _lapse(self, claims: Collection[Claim]) -> None:
        windows = {claim.window for claim in claims}
        async with self._step(*claims) as connection:
            await self._register(connection, *windows)
            for window in sorted(windows, key=lambda one: (one.task_id.raw, one.window)):
                await connection.execute(
                    "INSERT INTO win (task_id, win, state, outcome) VALUES ($1, $2, $3, $4)"
                    " ON CONFLICT DO NOTHING",
                    *(window.task_id.raw, window.window),
                    *(WindowState.SHREDDED.value, WindowState.WITHHELD.value),
                )
        for window in windows:
            await self._read(window)

    async def close_intake(self, claim: Claim) -> None:
        """As ``Store.close_intake``."""
        await to_its_end(self._close_intake(claim))

    async def _close_intake(self, claim: Claim) -> None:
        row = self._known(claim.window)
        capacity = self._tasks[claim.window.task_id].capacity
        await self._losses.compare(claim.window)
        box = self._boxes.get(claim.window)
        try:
            async with self._step(claim) as connection:
                now = await lock(connection, row)
                expect(now, WindowState.OPEN)
                found = await connection.fetchrow(
                    f"SELECT coalesce(sum(count), 0)::bigint AS rows FROM {row.inbox}"  # noqa: S608 - a name of ours
                )
                rows = distinct = 0 if found is None else found["rows"]
                if capacity.distinct:  # whether it was full is said by the exact number alone
                    distinct = await self._distinct(connection, box, now)
                failpoints.hit("postgresql.close")
                await connection.execute(
                    "UPDATE win SET state = $2, reports = $3, acked = $4, epoch = epoch + 1,"
                    " changed = now() WHERE id = $1",
                    *(row.id, WindowState.CLOSING.value),
                    *(distinct, rows),
                )
        except ShoalError:
            if box is not None:
                box.failed()  # what it read may be on one machine alone
            raise
        failpoints.hit("postgresql.closed")
        await self._read(claim.window)

    async def _distinct(
        self, connection: Connection, box: OpenWindow | None, now: WindowRow
    ) -> int:
        """Keys of a window that is locked. On this connection alone: who holds one and waits for
        another may wait for ever.
        """
        if box is None or box.row.emptied != now.emptied:
            box = OpenWindow(now, self._key(now, Purpose.INBOX), self._entropy, self._told)
        await box.read(connection)
        return len(box.keys)

    async def held(self, window: WindowId) -> int:
        """As ``Store.held``: rows, repeats over replicas among them."""
        row = self._rows.get(window)
        if row is None or not await exists(self._db, row.inbox):
            return 0
        found = await self._db.fetchrow(
            f"SELECT coalesce(sum(count), 0)::bigint AS rows FROM {row.inbox}"  # noqa: S608 - a name of ours
        )
        return 0 if found is None else int(found["rows"])

    async def seal(self, claim: Claim, added: Sequence[bytes] = ()) -> SealedRows:
        """As ``Store.seal``."""
        return await to_its_end(self._seal(claim, added))

    async def _seal(self, claim: Claim, added: Sequence[bytes]) -> SealedRows:
        task = self._tasks[claim.window.task_id]
        size, served = task.row_size, task.capacity
        await self._losses.compare(claim.window)
        async with self._step(claim) as connection:
            # what is remembered may lag behind: a batch that is the window's by now must stay
            row = await current(connection, claim.window)
            expect(row, WindowState.CLOSING)
            inbox, batch = (self._key(row, purpose) for purpose in Purpose)
            sealing = Sealing(self._db, claim, row, size, self._bucket, several=served.several)
            await make_table(connection, row, sealing.fence, objects=self._bucket is not None)
        if self._bucket is not None:
            await remove(self._bucket, row.window, sealing.fence)
        there = await exists(self._db, row.inbox)
        if there:
            found = await sealing.run(inbox, batch, self._spill, self._entropy, added)
            sealed = found.within_rows()
        else:  # it was shredded, and the word for it is still to come; or it is lost
            sealed = SealedRows(0, size, Digest.of(b""), 0, row.record.acked)
        if sealed.damaged:
            self._tell_damage(row.window, sealed.damaged)
        self._wrote[claim.window] = Written(sealing.fence, sealed, sealing.opened, there)
        return sealed

    async def advance(
        self,
        claim: Claim,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        """As ``Store.advance``."""
        await to_its_end(self._advance(claim, before, after, sealed, reports, manifest))

    async def _advance(
        self,
        claim: Claim,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None,
        reports: int,
        manifest: bytes,
    ) -> None:
        window = claim.window
        failpoints.hit(f"postgresql.{after.name.lower()}")
        async with self._step(claim) as connection:
            if before is WindowState.OPEN:
                raise not_in(window, before)
            row = await current(connection, window)
            expect(row, before)
            record = replace(row.record, state=after)
            fence = row.batch_fence
            if after in _DECIDED:
                record = replace(record, outcome=after)
            if sealed is not None:
                wrote = self._wrote.get(window)
                if wrote is None or wrote.sealed != sealed:
                    raise ShoalError(Kind.INTERNAL, "what is to be recorded is not what was sealed")
                fence = wrote.fence
                await check_written(connection, row, fence, sealed.rows, inbox=wrote.inbox)
                await enter_writers(connection, row, wrote.opened)
                record = replace(
                    record,
                    reports=reports,
                    rows=sealed.rows,
                    row_size=sealed.row_size,
                    rows_hash=sealed.rows_hash,
                    damaged=sealed.damaged,
                    manifest=manifest,
                    acked=0,
                )
            elif reports:
                record = replace(record, reports=reports)
            if after is WindowState.SHREDDED:
                record = replace(record, manifest=b"", acked=0)
                await connection.execute("DELETE FROM sealed_of WHERE id = $1", row.id)
            await connection.execute(
                "UPDATE win SET state = $2, outcome = $3, reports = $4, row_count = $5,"
                " row_size = $6, acked = $7, damaged = $8, rows_hash = $9, manifest = $10,"
                " batch_fence = $11, epoch = epoch + 1, changed = now() WHERE id = $1",
                *(row.id, after.value, record.outcome and record.outcome.value, record.reports),
                *(record.rows, record.row_size, record.acked, record.damaged),
                *(record.rows_hash and record.rows_hash.raw, record.manifest, fence),
            )
        failpoints.hit(f"postgresql.{after.name.lower()}.done")
        if sealed is not None:
            self._wrote.pop(window, None)
            self._intact.discard(window)
        await self._read(window)

    async def destroy_inbox(self, claim: Claim) -> None:
        """As ``Store.destroy_inbox``."""
        await to_its_end(self._destroy_inbox(claim))

    async def _destroy_inbox(self, claim: Claim) -> None:
        done = claim.window in self._gone
        known = self._known(claim.window)
        async with self._step(claim) as connection:
            names = (known.inbox, known.tags)
            there = [one for one in await tables_of(connection, known, *names) if one in names]
            await seize(connection, there)
            row = await current(connection, claim.window)
            if row.record.state in (WindowState.OPEN, WindowState.CLOSING):
                raise not_in(claim.window, WindowState.SEALED)
            if not done:
                failpoints.hit("postgresql.drop-inbox")
                await drop(connection, there)
        if not done:
            await self._drop_key(claim.window, Purpose.INBOX)
            self._gone.add(claim.window)

    async def shred(self, claim: Claim) -> None:
        """As ``Store.shred``. A window that is still open stays so, and is empty."""
        await to_its_end(self._shred(claim))

    async def _shred(self, claim: Claim) -> None:
        known = self._known(claim.window)
        async with self._step(claim) as connection:
            row = await current(connection, claim.window)
            held = await tables_of(connection, row)
        if not row.is_open:
            await shred(self._db, self._bucket, row.window, held)
        async with self._step(claim) as connection:
            names = await tables_of(connection, known, known.inbox, known.tags)
            await seize(connection, names)
            row = await lock(connection, known, tables=False)
            failpoints.hit("postgresql.shred")
            await drop(connection, names)
            if row.is_open:
                for statement in MAKE:
                    await connection.execute(statement.format(inbox=row.inbox, tags=row.tags))
                await connection.execute(
                    "UPDATE win SET seats = 0, found = 0, epoch = epoch + 1,"
                    " emptied = emptied + 1, changed = now() WHERE id = $1",
                    row.id,
                )
            else:  # what is gone by now is not missed
                await connection.execute(
                    "UPDATE win SET acked = 0, epoch = epoch + 1 WHERE id = $1", row.id
                )
        for purpose in Purpose:
            if not purpose.needed(row.record.state):
                await self._drop_key(claim.window, purpose)
        await self._read(claim.window)

    async def _looked(self) -> None:
        """As ``SharedIntake._looked``; and objects that belong to no batch."""
        await super()._looked()
        await self._sweeper.look()

    # --- batches ----------------------------------------------------------------------------------

    async def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        """As ``Store.read_rows``."""
        row = self._known(window)
        size, step = row.record.row_size, batches.rows_of_part(row.record.row_size or 1)
        last = min(first + count, row.record.rows)
        begin, end = first // step, -(-last // step)
        found: list[bytes] = []
        if first < last and await exists(self._db, row.batch()):
            closing = self._closing(row)
            async for part, _, rows in parts(self._db, row, closing, begin, end, self._bucket):
                if rows is not None and part == begin + len(found):
                    found.append(rows)
        data = b"".join(found)[(first - begin * step) * size : (last - begin * step) * size]
        if len(data) != max(0, last - first) * size:
            self._intact.discard(window)
            raise ShoalError(
                Kind.MISMATCH, "rows of the batch are damaged or missing in the database"
            )
        return data

    async def mend(self, claim: Claim) -> SealedRows | None:
        """As ``Store.mend``."""
        return await to_its_end(self._mend(claim))

    async def _mend(self, claim: Claim) -> SealedRows | None:
        async with self._step(claim) as connection:
            row = await current(connection, claim.window)
        before = row.record.sealed
        if claim.window in self._intact:
            return None
        if not await exists(self._db, row.batch()):
            raise ShoalError(Kind.MISMATCH, "the batch is gone from the database: restore it")
        closing, digest, size = self._closing(row), hashlib.sha256(), before.row_size
        whole = -(-before.rows // batches.rows_of_part(size))
        async for _, _, rows in parts(self._db, row, closing, 0, whole, self._bucket):
            digest.update(rows or b"")
        if digest.digest() == before.rows_hash.raw:
            self._intact.add(claim.window)
            return None
        fence, after = await self._rewrite(claim, row, closing, whole)
        lost = before.rows - after.rows
        reports = max(0, before.reports - lost)
        after = replace(after, damaged=before.damaged + lost, reports=reports)
        self._tell_damage(claim.window, after.damaged)
        self._wrote[claim.window] = Written(fence, after)
        return after

    async def _rewrite(
        self, claim: Claim, row: WindowRow, closing: BlockCipher, whole: int
    ) -> tuple[int, SealedRows]:
        """What is left of a batch, in a table of this claim, which bears that fence."""
        size = row.record.row_size
        bucket = self._bucket
        writing = Sealing(self._db, claim, row, size, bucket)
        async with self._step(claim) as connection:
            await make_table(
                connection, row, writing.fence, keep=row.batch(), objects=bucket is not None
            )
        if bucket is not None:
            await remove(bucket, row.window, writing.fence, keep=row.batch_fence)
        return writing.fence, await writing.rewrite(closing, whole)

    def _forget(self, window: WindowId) -> None:
        self._wrote.pop(window, None)
        self._gone.discard(window)
        self._intact.discard(window)
        super()._forget(window)

    # --- small things -----------------------------------------------------------------------------

    def _known(self, window: WindowId) -> WindowRow:
        row = self._rows.get(window)
        if row is None:
            raise not_in(window, WindowState.OPEN)
        return row

    def _key(self, row: WindowRow, purpose: Purpose) -> WindowKey:
        key = self._keys.get(row.window, purpose)
        if key is None or row.window in self._trouble:
            raise ShoalError(
                Kind.KEY_FILE,
                "the window's keys are not on this machine: a replica that has them goes on",
            )
        return key

    def _closing(self, row: WindowRow) -> BlockCipher:
        return BlockCipher(self._key(row, Purpose.BATCH).of("rows"), row.window, self._entropy)

    def _tell_damage(self, window: WindowId, rows: int) -> None:
        log.error(
            "reports of a window are damaged",
            task=window.task_id,
            window=window.window,
            count=rows,
        )
        subject = f"{window.task_id.short}:{window.window}"
        self._damage[window] = Condition(
            "damage",
            subject,
            f"window {window.window} of task {window.task_id.short}: {rows} acknowledged rows were "
            "lost in the database, its release says so; check its disks",
            stops=False,
        )

    async def settle(self) -> None:
        """Enter the tasks that were adopted. Otherwise the first window of each does. Raises
        CONFLICT.
        """
        async with self._db.transaction() as connection:
            await self._register(connection, *(WindowId(task_id, 0) for task_id in self._tasks))

    async def close(self) -> None:
        """As ``Store.close``."""
        await self._commits.stop()
        if self._watch is not None:
            await self._watch.close()
        await super().close()
        self._told.close()


async def open_reports(
    database: Database,
    data_dir: Path,
    entropy: Entropy = SYSTEM,
    *,
    commit_ms: float = LIMITS.commit_ms,
    watch: DatabaseWatch | None = None,
    bucket: Bucket | None = None,
) -> PostgresStore:
    """Read what is there. ``database`` and ``watch`` are the store's to close. Raises KEY_FILE,
    UNAVAILABLE.
    """
    store = PostgresStore(
        database, data_dir, entropy, commit_ms=commit_ms, watch=watch, bucket=bucket
    )
    await store.load()
    return store
