"""A sealed batch in an object store: parts of a batch, encrypted as in a table, many to an object.

    batch_<id>_<fence>      in the database: a row for each object that is there, or may be
    CLUSTER/TASK ID/WINDOW/FENCE/NUMBER      an object's name; CLUSTER: see ``Bucket``
    object = part || part || ...     all of one length but the batch's last; 64, the last one fewer

An object's row is written under the claim *before* the object, and the claim is looked at *after*
it: so whoever is no owner any more deletes what it put, and what a process left that died between
belongs to no table any more and is swept. Nothing is deleted on the word of a claim alone: only
what lies under an older fence, or of a window that is decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import StaleClaimError
from shoal.shuffler.stores.postgresql.blocks import OVERHEAD, BlockCipher, Part, batch_place
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.rows import WindowRow

if TYPE_CHECKING:
    from shoal.shuffler.stores.objects.bucket import Bucket

log = get_log("shuffler")
_SWEEP_EVERY = 600  # looks at windows between two for objects of no batch; one soon after a start
PARTS = 64  # of an object: 16 MiB
MENDS = 1 << 32
TABLE = "CREATE TABLE {batch} (number bigint PRIMARY KEY, count int NOT NULL, place text NOT NULL)"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """An object of a sealed batch. ``fence``: of the claim that wrote it, as in its table."""

    window: WindowId
    fence: int
    number: int

    def __str__(self) -> str:
        return f"{folder(self.window)}{self.fence}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None: it is not the name of such an object."""
        try:
            task, window, fence, number = text.split("/")
            name = cls(WindowId(TaskId.parse(task), int(window)), int(fence), int(number))
        except (ShoalError, ValueError):
            return None
        return name if str(name) == text else None


def folder(window: WindowId) -> str:
    """What the names of all objects of a window begin with."""
    return f"{window.task_id.hex}/{window.window}/"


@dataclass(slots=True)
class ObjectWriter:
    """Writes the objects of one batch, one after another. ``insert``: a row of the batch's table,
    under the claim; ``held``: raises StaleClaimError where the claim is another's.
    """

    bucket: Bucket
    window: WindowId
    fence: int
    insert: Callable[[int, int, str], Awaitable[None]]
    held: Callable[[], Awaitable[None]]
    _waiting: list[bytes] = field(default_factory=list)
    _rows: int = 0
    _number: int = 0

    async def add(self, part: bytes, count: int) -> None:
        """The next part, which has so many rows. Raises StaleClaimError, UNAVAILABLE, CONFIG."""
        self._waiting.append(part)
        self._rows += count
        if len(self._waiting) == PARTS:
            await self.flush()

    async def flush(self) -> None:
        """What waits, as an object. Raises as ``add``."""
        if not self._waiting:
            return
        name = str(ObjectName(self.window, self.fence, self._number))
        try:
            await self.insert(self._number, self._rows, self.bucket.place)
            failpoints.hit("postgresql.object-put")
            await self.bucket.create(name, b"".join(self._waiting))
            failpoints.hit("postgresql.object-put.done")
            await self.held()
        except StaleClaimError:  # it never was, and never will be, the window's batch
            await self.bucket.delete(await self.bucket.names(f"{folder(self.window)}{self.fence}/"))
            raise
        self._waiting, self._rows, self._number = [], 0, self._number + 1


async def in_objects(database: Database, table: str) -> bool:
    """Whether this is the table of a batch that lies in objects."""
    found = await database.fetchval(
        "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1)"
        " AND attname = 'place' AND NOT attisdropped)",
        table,
    )
    return bool(found)


async def object_parts(
    database: Database,
    bucket: Bucket | None,
    row: WindowRow,
    fence: int,
    closing: BlockCipher,
    widths: tuple[int, int],
    span: tuple[int, int],
) -> AsyncIterator[tuple[int, int, bytes | None]]:
    """Parts [first, last) = ``span`` as ``batches.parts`` gives them. ``widths``: bytes of a row,
    rows of a whole part. Raises CONFIG where they lie elsewhere than in ``bucket``, UNAVAILABLE,
    and MISMATCH for an object that is gone: it may come back from its store's versions.
    """
    (size, step), (first, last) = widths, span
    whole = step * size + OVERHEAD
    for number, count, place in await database.fetch(
        f"SELECT number, count, place FROM {row.batch(fence)}"  # noqa: S608 - a name of ours
        " WHERE number >= $1 AND number < $2 ORDER BY number",
        *(first // PARTS, -(-last // PARTS)),
    ):
        begin = number * PARTS
        here = range(max(first, begin), min(last, begin + -(-count // step)))
        if not here:
            continue
        start, end = ((at - begin) * whole for at in (here.start, here.stop))
        end = min(end, count * size + -(-count // step) * OVERHEAD)
        name = str(ObjectName(row.window, fence, number))
        data = await checked(bucket, place).read(name, start, end - start)
        if data is None:
            raise ShoalError(
                Kind.MISMATCH, f"the object {name} is gone from {place}: restore it there"
            )
        for at in here:
            rows = min(step, count - (at - begin) * step)
            part = data[(at - here.start) * whole :][: rows * size + OVERHEAD]
            yield at, rows, closing.open(Part.BATCH, batch_place(fence, at), rows, part)


def checked(bucket: Bucket | None, place: str) -> Bucket:
    """The bucket, if it is that place. Raises CONFIG."""
    if bucket is None or bucket.place != place:
        raise ShoalError(
            Kind.CONFIG,
            f"a batch lies in {place}: name that as store.batches.url until it is delivered",
        )
    return bucket


async def remove(bucket: Bucket, window: WindowId, fence: int | None = None, keep: int = 0) -> None:
    """All objects of a window that is decided; with ``fence``: those up to it but ``keep``'s, for
    whoever begins to write under that. Raises UNAVAILABLE, CONFIG.
    """
    waste: list[str] = []
    for text in await bucket.names(folder(window)):
        name = ObjectName.parse(text)
        if fence is None or (
            name is not None and name.fence != keep and _order(name.fence) <= _order(fence)
        ):
            waste.append(text)
    failpoints.hit("postgresql.object-delete")
    await bucket.delete(waste)


def _order(fence: int) -> tuple[int, int]:
    """Claims in their order; within one, how often it mended."""
    return fence % MENDS, fence


async def sweep(database: Database, bucket: Bucket) -> int:
    """Delete objects that belong to no batch's table; how many. An object's table is there before
    it, so that of one that is listed first was dropped. Raises UNAVAILABLE, CONFIG.
    """
    listed = await bucket.names()
    if not listed:
        return 0
    tables = {
        (bytes(found["task_id"]), found["win"], found["relname"].rpartition("_")[2])
        for found in await database.fetch(
            "SELECT task_id, win, relname::text FROM win JOIN pg_class"
            " ON starts_with(relname::text, 'batch_' || win.id || '_')"
            " AND relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        )
    }
    waste = [
        text
        for text in listed
        if (name := ObjectName.parse(text)) is not None
        and (name.window.task_id.raw, name.window.window, str(name.fence)) not in tables
    ]
    await bucket.delete(waste)
    return len(waste)


async def shred(
    database: Database, bucket: Bucket | None, window: WindowId, tables: Iterable[str]
) -> None:
    """All objects of a window that is decided, while its ``tables`` still say where they lie.
    Raises UNAVAILABLE, CONFIG.
    """
    for table in tables:
        if await in_objects(database, table):
            for (place,) in await database.fetch(f"SELECT DISTINCT place FROM {table}"):  # noqa: S608 - a name of ours
                checked(bucket, place)
    if bucket is not None:
        await remove(bucket, window)


class Sweeper:
    """Sweeps now and then. ``trouble``: what kept the last sweep from it."""

    def __init__(self, database: Database, bucket: Bucket | None) -> None:
        self._db, self._bucket, self._looks = database, bucket, 0
        self.trouble: Condition | None = None

    async def look(self) -> None:
        """To be called after each look at windows."""
        self._looks += 1
        if self._bucket is None or self._looks % _SWEEP_EVERY != 1:
            return
        try:
            count = await sweep(self._db, self._bucket)
        except ShoalError as error:
            log.error("the object store can't be used", error=error)
            self.trouble = Condition("database", "batches", error.message, stops=False)
            return
        self.trouble = None
        if count:
            log.warning("objects of no batch were deleted", count=count)
