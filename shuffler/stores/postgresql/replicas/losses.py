"""What this replica promised and the database does not have: after a failover to a standby without
the last commits, after a dump or a disk was put back, after its disk lost what it had synced.

``told`` says what was promised. It is compared with the blocks at a start, whenever the database is
not the one that it was (another server, timeline, start or table), before a window is closed or
sealed, and, with what was sealed of each writer, once a window is sealed. What is missing of an
open window is entered there as its writer's last word, so that whoever seals counts it as damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from shoal.entropy import Entropy
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.postgresql.database import WHICH, Database
from shoal.shuffler.stores.postgresql.failures import NO_TABLE, DatabaseError
from shoal.shuffler.stores.postgresql.inbox import Writer, ciphers, last_word
from shoal.shuffler.stores.postgresql.rows import COLUMNS, WindowRow, parse
from shoal.shuffler.stores.postgresql.window_keys import Purpose, WindowKeyFiles
from shoal.shuffler.stores.told import ToldRows, WriterWord

log = get_log("shuffler")
_TAKES = frozenset({WindowState.OPEN, WindowState.CLOSING})
_SEALED = frozenset({WindowState.SEALED, WindowState.DELIVERING, WindowState.ACKNOWLEDGED})
_LOOKS = 5  # at a window that changes meanwhile


class MissingRows:
    """For one event loop. ``keys``: of windows, for last words."""

    def __init__(
        self, database: Database, told: ToldRows, keys: WindowKeyFiles, entropy: Entropy
    ) -> None:
        self._db, self._told, self._keys, self._entropy = database, told, keys, entropy
        self._which = ""  # the database with which everything was compared

    async def which(self) -> str:
        """Names the database as it is now: server, timeline, start of the server, tables."""
        return str(await self._db.fetchval(WHICH))

    def is_other(self, which: str) -> bool:
        """Whether anything may be gone since everything was compared."""
        return which != self._which

    def compared(self, which: str) -> None:
        """Everything was, with this database."""
        self._which = which

    async def compare(self, window: WindowId) -> None:
        """Find what is missing of a window. Raises what the database raises."""
        words = self._told.of(window)  # read first: what is acknowledged meanwhile is there too
        if not words:
            return
        row, missing = await self._missing(window, words)
        for word, count in zip(words, missing, strict=True):
            if count > word.lost:
                self._tell(word, count)
        if row is not None and row.record.state in _TAKES:
            for word, count in zip(words, missing, strict=True):
                if count:
                    await self._say(row, word)
        # a window that is gone may come back: with its row, or made anew
        elif row is not None and (
            row.record.state is WindowState.SHREDDED
            or not any(word.lost for word in self._told.of(window))
        ):
            self._told.drop(window)

    def conditions(self) -> Iterator[Condition]:
        """What was found, of windows that are not shredded."""
        if self._told.failing:
            yield Condition(
                "disk_read_only",
                "acknowledged",
                "what is acknowledged can't be noted in data_dir: give its disk room; until then "
                "what the database loses may go unnoticed",
                stops=False,
            )
        if self._told.damaged:
            yield Condition(
                "damage",
                "acknowledged",
                f"{self._told.damaged} counts of what was acknowledged were damaged in data_dir at "
                "the start: check the disk; what the database lost of those may go unnoticed",
                stops=False,
            )
        for window in self._told.windows():
            lost = sum(word.lost for word in self._told.of(window))
            if lost:
                name = f"window {window.window} of task {window.task_id.short}"
                yield Condition(
                    "damage",
                    f"{window.task_id.short}:{window.window} acknowledged",
                    f"{name}: at least {lost} rows that this replica acknowledged are missing in "
                    "the database, which was put back or promoted without its last commits; "
                    "compare with `damaged` of its release",
                    stops=False,
                )

    # --- looking

    async def _missing(
        self, window: WindowId, words: Iterable[WriterWord]
    ) -> tuple[WindowRow | None, list[int]]:
        """The window's row, and of each word how many rows are not there."""
        for _ in range(_LOOKS):
            row = await self._row(window)
            if row is None:
                return None, [word.acked for word in words]
            there = [await self._there(row, word) for word in words]
            now = await self._row(window)
            if now is not None and _same(row, now):
                return row, [
                    0 if rows is None else max(0, word.acked - rows)
                    for word, rows in zip(words, there, strict=True)
                ]
        return None, [word.lost for word in words]  # it is looked at again

    async def _row(self, window: WindowId) -> WindowRow | None:
        found = await self._db.fetchrow(
            f"SELECT {COLUMNS} FROM win WHERE task_id = $1 AND win = $2",  # noqa: S608 - constants
            *(window.task_id.raw, window.window),
        )
        return None if found is None else parse(found)

    async def _there(self, row: WindowRow, word: WriterWord) -> int | None:
        """Rows that the writer was told of and that are there; None: they are not missed."""
        if row.emptied > word.emptied:
            return None
        if row.record.state in _SEALED:
            return await self._sealed_of(row, word)
        if row.record.state not in _TAKES:
            return None
        with _if_there():
            return await self._count(
                f"SELECT coalesce(sum(count), 0)::bigint FROM {row.inbox}"  # noqa: S608 - a name of ours
                " WHERE writer = $1 AND number <= $2 AND number <> ALL($3::bigint[])",
                *(word.writer, word.newest, list(word.waiting)),
            )
        return 0

    async def _sealed_of(self, row: WindowRow, word: WriterWord) -> int | None:
        """None also where a program sealed that counted no writers."""
        if row.record.rows and not await self._count(
            "SELECT count(*) FROM sealed_of WHERE id = $1", row.id
        ):
            return None
        return await self._count(
            "SELECT coalesce(sum(rows), 0)::bigint FROM sealed_of WHERE id = $1 AND writer = $2",
            *(row.id, word.writer),
        )

    async def _count(self, sql: str, *args: Any) -> int:
        return int(await self._db.fetchval(sql, *args))

    # --- telling

    def _tell(self, word: WriterWord, count: int) -> None:
        window = word.window
        log.error(
            "acknowledged rows are missing in the database",
            task=window.task_id,
            window=window.window,
            count=count,
        )
        self._told.lose(word, count)

    async def _say(self, row: WindowRow, word: WriterWord) -> None:
        """Enter a writer's last word, if this machine can and nobody sealed meanwhile."""
        key = self._keys.get(row.window, Purpose.INBOX)
        if key is None or key.check_value != row.check_value:
            return
        _, cipher = ciphers(row.window, row.emptied, key, self._entropy)
        writer = Writer(word.writer, word.newest, word.acked)
        with _if_there():  # all of it is gone, which its row's count tells
            await self._db.execute(
                last_word(row.inbox, "SELECT 1 FROM win WHERE id = $1 AND state <= 2 FOR SHARE", 2),
                *(row.id, *writer.last_word(cipher)),
            )


@contextmanager
def _if_there() -> Iterator[None]:
    """What is done to a table that is gone."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate != NO_TABLE:
            raise


def _same(row: WindowRow, now: WindowRow) -> bool:
    return (row.id, row.emptied, row.record.state) == (now.id, now.emptied, now.record.state)
