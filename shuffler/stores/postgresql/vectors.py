"""The sealed vectors of helper mode, with the seeds of their pads, for several shufflers.

A row is encrypted in two parts, so that the set of rows can be looked at without the vectors: its
head is the seed and the SHA-256 of the vector, its body the vector. Vectors of a window are entered
one commit after the other, under the lock of its row: places have no gaps, and ``most`` is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from shoal import failpoints
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.postgresql.commits import AsyncCommits
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.failures import NO_TABLE, DatabaseError
from shoal.shuffler.stores.postgresql.sums import SumKeys, SumWindows, begin, named
from shoal.shuffler.stores.rounds import StoredVector, VerifiedVector

if TYPE_CHECKING:
    from asyncpg import Record

    from shoal.shuffler.stores.postgresql.database import Connection

log = get_log("shuffler")
_HEAD, _BODY = b"h", b"b"
_SEED = 32  # bytes
_GROUP = 32  # vectors of a commit, of up to 9 MB each
_CHANGED = "what is stored of a window is not what was delivered: it is delivered again"
_DECIDED = "the rows of this window's sum were decided before: no other set is ever summed"


class SharedVectors:
    """See ``SingleVectors``. For one event loop."""

    def __init__(
        self,
        database: Database,
        windows: SumWindows,
        entropy: Entropy = SYSTEM,
        *,
        commit_ms: float = LIMITS.commit_ms,
    ) -> None:
        self._db, self._windows, self._entropy = database, windows, entropy
        self._commits: AsyncCommits[VerifiedVector] = AsyncCommits(
            self._add, group_items=_GROUP, wait_s=commit_ms / 1000, at_once=1
        )
        self._damage: dict[WindowId, Condition] = {}

    # --- vectors come in

    async def add(self, vector: VerifiedVector) -> Kind | None:
        """As ``SingleVectors.add``."""
        (outcome,) = await self._commits.submit([vector], 1)
        return outcome

    async def _add(self, vectors: list[VerifiedVector]) -> list[Kind | None]:
        order = sorted(range(len(vectors)), key=lambda index: named(vectors[index].window))
        outcomes: list[Kind | None] = [None] * len(vectors)
        async with self._db.transaction() as connection:
            for window, indices in groupby(order, key=lambda index: vectors[index].window):
                try:
                    keys = self._windows.keys(window)
                except ShoalError as error:
                    log.error(
                        "a window's keys", task=window.task_id, window=window.window, error=error
                    )
                    for index in indices:
                        outcomes[index] = Kind.INTERNAL
                    continue
                table = await begin(connection, window)
                await self._db.check_least(connection)
                row = await connection.fetchrow(
                    "SELECT taken, closed, over FROM sums WHERE id = $1", table
                )
                assert row is not None  # noqa: S101 - locked by ``begin``
                taken = row["taken"]
                for index in indices:
                    outcome, stored = await self._add_one(
                        connection, keys, table, row, taken, vectors[index]
                    )
                    outcomes[index] = outcome
                    taken += stored
                await connection.execute("UPDATE sums SET taken = $2 WHERE id = $1", table, taken)
            failpoints.hit("vectors.commit")
        return outcomes

    async def _add_one(
        self,
        connection: Connection,
        keys: SumKeys,
        table: int,
        row: Record,
        taken: int,
        vector: VerifiedVector,
    ) -> tuple[Kind | None, int]:
        """Its outcome, and 1 if it was stored now."""
        if row["over"]:
            return Kind.WINDOW_CLOSED, 0
        device, digest = keys.device(vector.device_key), Digest.of(vector.sealed).raw
        held = await connection.fetchrow(
            f"SELECT place, head FROM vector_{table} WHERE device = $1",  # noqa: S608 - a number of ours
            device,
        )
        if held is not None:
            head = keys.open(_HEAD, device, held["place"], held["head"])
            if head is None:  # what it was is not known any more
                return Kind.INTERNAL, 0
            return (None if head[_SEED:] == digest else Kind.CONFLICT), 0
        if row["closed"]:
            return Kind.WINDOW_CLOSED, 0
        if taken >= vector.most:
            return Kind.WINDOW_FULL, 0
        await connection.execute(
            f"INSERT INTO vector_{table} (device, place, head, body) VALUES ($1, $2, $3, $4)",  # noqa: S608 - a number of ours
            device,
            taken,
            keys.seal(_HEAD, device, taken, vector.seed + digest),
            keys.seal(_BODY, device, taken, vector.sealed),
        )
        return None, 1

    # --- the set of rows

    async def take_no_more(self, claim: Claim) -> None:
        """As ``SingleVectors.take_no_more``. Waits for what other replicas are entering."""
        async with self._windows.step(claim) as connection:
            table = await begin(connection, claim.window)
            await connection.execute("UPDATE sums SET closed = true WHERE id = $1", table)
            failpoints.hit("vectors.close")

    async def rows(self, window: WindowId) -> list[StoredVector]:
        """As ``SingleVectors.rows``: in order of the devices' hashes."""
        found = await self._row(window)
        if found is None:
            return []
        whole = await self._whole(window, found["id"])
        if found["fixed"] is not None and found["fixed"] != len(whole):
            raise ShoalError(
                Kind.MISMATCH,
                "the rows of a decided sum are damaged in the database: see its log and its disk",
            )
        return whole

    async def _whole(self, window: WindowId, table: int) -> list[StoredVector]:
        heads = await self._fetch(
            f"SELECT device, place, head FROM vector_{table}"  # noqa: S608 - a number of ours
            " WHERE NOT left_out ORDER BY device"
        )
        return [one for row in heads if (one := self._stored(window, row)) is not None]

    def _stored(self, window: WindowId, row: Record) -> StoredVector | None:
        head = self._windows.keys(window).open(_HEAD, row["device"], row["place"], row["head"])
        if head is None:
            return None
        return StoredVector(row["place"], head[:_SEED], head[_SEED:])

    async def leave_out_damaged(self, claim: Claim, size: int) -> None:
        """As ``SingleVectors.leave_out_damaged``."""
        window = claim.window
        found = await self._row(window)
        before = await self.missing(window)
        whole = set[int]()
        for one in await self.rows(window):
            try:
                intact = Digest.of(await self.read(window, one.place, size)).raw == one.digest
            except ShoalError as error:
                if error.kind is not Kind.INTERNAL:
                    raise
                intact = False
            if intact:
                whole.add(one.place)
        async with self._windows.step(claim) as connection:
            if found is None:
                return
            gone = await connection.execute(
                f"DELETE FROM vector_{found['id']} WHERE place <> ALL($1::integer[])",  # noqa: S608 - a number of ours
                sorted(whole),
            )
        if gone != "DELETE 0":
            self._tell(window, max(await self.missing(window), before))

    async def is_fixed(self, window: WindowId) -> bool:
        """As ``SingleVectors.is_fixed``."""
        found = await self._row(window)
        return found is not None and found["fixed"] is not None

    async def fix(
        self, claim: Claim, shown: Sequence[StoredVector], left_out: Sequence[int]
    ) -> None:
        """As ``SingleVectors.fix``."""
        window = claim.window
        async with self._windows.step(claim) as connection:
            table = await begin(connection, window)
            done = await connection.execute(
                "UPDATE sums SET fixed = $2 WHERE id = $1 AND closed AND NOT over AND fixed IS"
                " NULL",
                table,
                len(shown) - len(set(left_out)),
            )
            if done != "UPDATE 1":
                raise ShoalError(Kind.CONFLICT, _DECIDED)
            heads = await connection.fetch(
                f"SELECT device, place, head FROM vector_{table} WHERE NOT left_out"  # noqa: S608 - a number of ours
            )
            if {self._stored(window, row) for row in heads} - {None} != set(shown):
                raise ShoalError(Kind.MISMATCH, _CHANGED)
            await connection.execute(
                f"UPDATE vector_{table} SET left_out = true WHERE place = ANY($1::integer[])",  # noqa: S608 - a number of ours
                list(left_out),
            )
            failpoints.hit("vectors.fix")

    # --- reading

    async def read(self, window: WindowId, place: int, size: int) -> bytes:
        """As ``SingleVectors.read``."""
        found = await self._row(window)
        rows = (
            []
            if found is None
            else await self._fetch(
                f"SELECT device, body FROM vector_{found['id']} WHERE place = $1",  # noqa: S608 - a number of ours
                place,
            )
        )
        keys = self._windows.keys(window)
        data = keys.open(_BODY, rows[0]["device"], place, rows[0]["body"]) if rows else None
        if data is None or len(data) != size:
            raise ShoalError(Kind.INTERNAL, "the database failed: a vector is not what was stored")
        return data

    async def missing(self, window: WindowId) -> int:
        """As ``SingleVectors.missing``."""
        found = await self._row(window)
        if found is None:
            return 0
        heads = await self._fetch(f"SELECT device, place, head FROM vector_{found['id']}")  # noqa: S608 - a number of ours
        whole = sum(self._stored(window, row) is not None for row in heads)
        return max(0, int(found["taken"]) - whole)

    async def forget(self, claim: Claim) -> None:
        """As ``SingleVectors.forget``. Every replica learns it from the window's row."""
        window = claim.window
        async with self._windows.step(claim) as connection:
            table = await begin(connection, window)
            # what is deleted on purpose is not missed
            await connection.execute(
                "UPDATE sums SET over = true, closed = true, taken = 0, fixed = NULL WHERE id = $1",
                table,
            )
            await connection.execute(f"DROP TABLE IF EXISTS vector_{table}")
            failpoints.hit("vectors.forget")
        self._windows.forget(window)
        self._damage.pop(window, None)

    def damage(self) -> Iterable[Condition]:
        """As ``SingleVectors.damage``."""
        return list(self._damage.values())

    async def close(self) -> None:
        """Commit what waits. The database is the store of reports' to close."""
        await self._commits.stop()

    async def _row(self, window: WindowId) -> Record | None:
        """None: nothing is kept of it, or not any more."""
        return await self._db.fetchrow(
            "SELECT id, taken, fixed FROM sums WHERE task_id = $1 AND win = $2 AND NOT over",
            *named(window),
        )

    async def _fetch(self, sql: str, *args: object) -> list[Record]:
        """None where the table is gone: the window was forgotten meanwhile."""
        try:
            return await self._db.fetch(sql, *args)
        except DatabaseError as error:
            if error.sqlstate != NO_TABLE:
                raise
            return []

    def _tell(self, window: WindowId, lost: int) -> None:
        log.error(
            "acknowledged vectors are lost", task=window.task_id, window=window.window, count=lost
        )
        self._damage[window] = Condition(
            "damage",
            f"{window.task_id.short}:{window.window}",
            f"window {window.window} of task {window.task_id.short}: {lost} acknowledged vectors "
            "are lost; check the database's disk",
            stops=False,
        )
