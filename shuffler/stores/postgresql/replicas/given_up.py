"""Windows that an operator gave up at one replica, for the others to keep to and to show.

The decision is the line in that replica's data_dir (``services.given_up``). The table ``given_up``
tells it: each replica enters its own lines, again where a database that was put back lost them, and
keeps to those of the others. Otherwise the window's owner would go on with it. Whoever may write to
the table may end windows: so may whoever writes to ``win``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shoal.ids import TaskId
from shoal.services.conditions import Condition
from shoal.services.given_up import GivenUp
from shoal.shuffler.stores.postgresql import schema

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection, Database

_SINCE = 4  # the version of the schema that has the table


class SharedLines:
    """The table as it was read. ``lines``: with the id of the replica where each was said;
    ``damaged``: rows that no replica wrote.
    """

    def __init__(self, lines: Iterable[tuple[GivenUp, bytes]] = (), damaged: int = 0) -> None:
        self.lines, self.damaged = tuple(lines), damaged

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        if self.damaged:
            yield Condition(
                "damage",
                "given_up",
                f"the table given_up has {self.damaged} rows that no replica wrote, which are "
                "passed over: delete them; replicas enter their own lines again",
                stops=False,
            )


async def enter(connection: Connection, replica: bytes, own: Iterable[GivenUp]) -> None:
    """This replica's lines. The first word on a window stands."""
    for line in sorted(own, key=lambda one: (one.key[0].raw, one.window)):  # one order for all
        await connection.execute(
            "INSERT INTO given_up VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            *(line.key[0].raw, line.window, replica, line.to_text()),
        )


async def read(connection: Connection) -> SharedLines:
    """All lines of all replicas."""
    lines, damaged = list[tuple[GivenUp, bytes]](), 0
    for row in await connection.fetch(
        "SELECT task_id, win, replica, line FROM given_up ORDER BY task_id, win"
    ):
        line = GivenUp.parse(row["line"])
        task_id = bytes(row["task_id"])
        if line is None or len(task_id) != 32 or line.key != (TaskId(task_id), row["win"]):
            damaged += 1
        else:
            lines.append((line, bytes(row["replica"])))
    return SharedLines(lines, damaged)


async def stored_lines(database: Database, identity: bytes) -> SharedLines:
    """For somebody who serves nothing: read in a transaction that may change nothing. None where
    the tables are of an older version. ``identity``, and raises: as ``windows.stored_window``.
    """
    async with database.transaction() as connection:
        await connection.execute("SET TRANSACTION READ ONLY")
        schema.check_server(connection)
        if await schema.version(connection, database.schema, identity) < _SINCE:
            return SharedLines()
        return await read(connection)
