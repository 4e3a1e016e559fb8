"""Which devices have answered a window of rounds, for several shufflers: whoever takes a window
over knows it too.

A device is remembered as a hash under a key of the window that is in no table (``sums``), and
forgotten with the window's table.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal import failpoints
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.failures import NO_TABLE, DatabaseError
from shoal.shuffler.stores.postgresql.sums import SumWindows, begin, named


class SharedAnswers:
    """See ``AnsweredDevices``. Further raises UNAVAILABLE where the database does."""

    def __init__(self, database: Database, windows: SumWindows) -> None:
        self._db, self._windows = database, windows

    async def answered(self, window: WindowId, device_key: bytes) -> bool:
        """As ``AnsweredDevices.answered``."""
        table = await self._db.fetchval(
            "SELECT id FROM sums WHERE task_id = $1 AND win = $2", *named(window)
        )
        if table is None:
            return False
        device = self._windows.keys(window).device(device_key)
        try:
            found = await self._db.fetchval(
                f"SELECT 1 FROM answered_{table} WHERE device = $1",  # noqa: S608 - a number of ours
                device,
            )
        except DatabaseError as error:
            if error.sqlstate != NO_TABLE:
                raise
            return False  # forgotten
        return found is not None

    async def remember(self, claim: Claim, device_key: bytes) -> None:
        """As ``AnsweredDevices.remember``."""
        device = self._windows.keys(claim.window).device(device_key)
        async with self._windows.step(claim) as connection:
            table = await begin(connection, claim.window)
            await connection.execute(
                f"CREATE TABLE IF NOT EXISTS answered_{table} (device bytea PRIMARY KEY)"
            )
            await connection.execute(
                f"INSERT INTO answered_{table} VALUES ($1) ON CONFLICT DO NOTHING",  # noqa: S608 - a number of ours
                device,
            )
            failpoints.hit("answered.commit")

    async def forget(self, claim: Claim) -> None:
        """As ``AnsweredDevices.forget``."""
        async with self._windows.step(claim) as connection:
            table = await begin(connection, claim.window)
            await connection.execute(f"DROP TABLE IF EXISTS answered_{table}")

    def damage(self) -> Iterable[Condition]:
        """The database tells of its own: a table is read whole or not at all."""
        return ()

    async def close(self) -> None:
        """The database is the store of reports' to close."""
