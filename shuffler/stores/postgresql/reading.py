"""What the database says of windows to somebody who serves nothing: read beside replicas that run,
in a transaction that may change nothing.
"""

from __future__ import annotations

from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.rows import COLUMNS, parse
from shoal.shuffler.stores.store import WindowRecord


async def stored_window(
    database: Database, identity: bytes, window: WindowId
) -> WindowRecord | None:
    """The window as it is now, whichever replica worked on it; None: no row, or no tables yet.
    ``identity``: the shuffler's public signing key. Raises CONFIG (another shuffler's tables, a
    newer version), UNAVAILABLE, INTERNAL.
    """
    async with database.transaction() as connection:
        await connection.execute("SET TRANSACTION READ ONLY")
        schema.check_server(connection)
        if not await schema.version(connection, database.schema, identity):
            return None
        found = await connection.fetchrow(
            f"SELECT {COLUMNS} FROM win WHERE task_id = $1 AND win = $2",  # noqa: S608 - constants
            *(window.task_id.raw, window.window),
        )
    return None if found is None else parse(found).record
