"""Which step of a window was the first, for all replicas: the table ``step``.

A row is entered once, never changed, and deleted when its task's retention is over. What several
enter at one instant is decided by its primary key. Whoever is told what a row says is told it by a
transaction that waits for the standby, as the one did that entered it: what a failover could take
back is told to nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.postgresql.database import WAIT, WHICH, Database
from shoal.shuffler.stores.steps import EnteredStep

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

_COLUMNS = "task_id, win, name, data"
# Names what a row is: another one is written by each change, and the database may be put back.
_VERSION = f"concat_ws(' ', ({WHICH}), xmin, ctid)"
_Key: TypeAlias = tuple[bytes, int, str]


class SharedSteps:
    """See ``StepBook``. ``database``: is somebody else's to close."""

    def __init__(self, database: Database) -> None:
        self._db = database
        # what was read last, and no failover takes back: by task, window, version of its row
        self._sure: dict[_Key, EnteredStep] = {}

    async def enter(self, step: EnteredStep) -> EnteredStep:
        """As ``StepBook.enter``."""
        window = step.window.task_id.raw, step.window.window
        async with self._db.transaction() as connection:
            await self._db.check_least(connection)
            await connection.execute(
                f"INSERT INTO step ({_COLUMNS}) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",  # noqa: S608 - constants
                *(*window, step.name, step.data),
            )
            failpoints.hit("postgresql.step")
            await connection.execute(WAIT)
            found = await self._read(connection, "task_id = $1 AND win = $2", *window)
        failpoints.hit("postgresql.step.done")
        if not found:
            raise ShoalError(Kind.INTERNAL, "a step that was just entered is gone: try again")
        return found[0]

    async def entered(self, task_ids: Collection[TaskId]) -> list[EnteredStep]:
        """As ``StepBook.entered``. Steps are long and this is asked every second: a row that was
        read before is not read again, and nothing of it is hashed, while it is the same one.
        """
        raw = {one.raw for one in task_ids}
        async with self._db.transaction() as connection:
            await self._db.check_least(connection)
            rows = await connection.fetch(
                f"SELECT task_id, win, {_VERSION} AS version FROM step"  # noqa: S608 - constants
                " WHERE task_id = ANY($1::bytea[])",
                sorted(raw),
            )
            there = {(bytes(row["task_id"]), row["win"], row["version"]) for row in rows}
            sure = {
                key: step for key, step in self._sure.items() if key in there or key[0] not in raw
            }
            fresh = sorted(there - sure.keys())
            if fresh:
                await connection.execute(WAIT)
                sure |= await self._versions(connection, fresh)
        self._sure = sure
        asked = (step for step in sure.values() if step.window.task_id.raw in raw)
        return sorted(asked, key=lambda step: step.window)

    async def forget(self, task_id: TaskId) -> None:
        """As ``StepBook.forget``."""
        await self._db.execute("DELETE FROM step WHERE task_id = $1", task_id.raw)
        self._sure = {key: step for key, step in self._sure.items() if key[0] != task_id.raw}

    async def _versions(
        self, connection: Connection, keys: Sequence[_Key]
    ) -> dict[_Key, EnteredStep]:
        """The rows at these places as they are now, each with its version."""
        rows = await connection.fetch(
            f"SELECT {_COLUMNS}, {_VERSION} AS version FROM step WHERE (task_id, win) IN"  # noqa: S608 - constants
            " (SELECT * FROM unnest($1::bytea[], $2::int[]))",
            [task for task, _, _ in keys],
            [window for _, window, _ in keys],
        )
        return {(bytes(row["task_id"]), row["win"], row["version"]): _parse(row) for row in rows}

    async def _read(
        self, connection: Connection, which: str, *arguments: object
    ) -> list[EnteredStep]:
        rows = await connection.fetch(
            f"SELECT {_COLUMNS} FROM step WHERE {which} ORDER BY task_id, win",  # noqa: S608 - constants
            *arguments,
        )
        return [_parse(row) for row in rows]


def _parse(row: Any) -> EnteredStep:
    """Raises INTERNAL for a row that no replica wrote."""
    try:
        window = WindowId(TaskId(bytes(row["task_id"])), row["win"])
    except (ShoalError, ValueError):
        raise ShoalError(
            Kind.INTERNAL, "the table step holds what no replica wrote: check the database"
        ) from None
    return EnteredStep(window, bytes(row["name"]), bytes(row["data"]))
