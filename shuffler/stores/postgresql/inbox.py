"""An open window, as one replica knows it, and the blocks of its table.

The replica reads the keys of what others stored when it has to know: after a start, when seats are
gone, and when a device that was admitted elsewhere comes again. Which blocks it has read it knows
by the writer and the number that each of them bears. Numbers grow, but commits are not made in
their order, so they are remembered one by one; only where nothing is under way (see ``seats``: then
a new epoch begins, and nothing of the one before comes later) all up to the largest are settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.entropy import Entropy
from shoal.ids import StorageKey
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.postgresql.blocks import BlockCipher, Part, inbox_place
from shoal.shuffler.stores.postgresql.database import WAIT
from shoal.shuffler.stores.postgresql.rows import WindowRow
from shoal.shuffler.stores.postgresql.seats import SeatSlice
from shoal.shuffler.stores.postgresql.window_keys import WindowKey
from shoal.shuffler.stores.storage_keys import WindowHashes

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

_WRITER = 16  # bytes
_PAGE = 256  # blocks that are read together
_WRITERS = """
    WITH RECURSIVE found AS (
        (SELECT writer FROM {table} ORDER BY writer LIMIT 1)
        UNION ALL
        SELECT (SELECT writer FROM {table} WHERE writer > found.writer ORDER BY writer LIMIT 1)
        FROM found WHERE found.writer IS NOT NULL
    ) SELECT writer FROM found WHERE writer IS NOT NULL"""
MAKE = (
    "CREATE TABLE {inbox} (writer bytea NOT NULL, number bigint NOT NULL, acked bigint NOT NULL,"
    " count int NOT NULL, keys bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (writer, number))"
    " WITH (autovacuum_enabled = off)",
    "ALTER TABLE {inbox} ALTER keys SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE {tags} (tag bytea PRIMARY KEY) WITH (autovacuum_enabled = off)",
)


def ciphers(window: WindowId, key: WindowKey, entropy: Entropy) -> tuple[WindowHashes, BlockCipher]:
    """What the window's inbox key is used for."""
    return WindowHashes(key.of("names")), BlockCipher(key.of("rows"), window, entropy)


class OpenWindow:
    """What this replica knows of an open window. ``keys``: those that it knows to be stored;
    ``admitted``: tags that it entered itself. ``acked``: rows that this writer was told of.
    """

    def __init__(self, row: WindowRow, key: WindowKey, entropy: Entropy) -> None:
        """``key``: its INBOX key."""
        self.row, self.keys, self.admitted, self.seats = row, KeySet(), KeySet(), SeatSlice()
        self.hashes, self.cipher = ciphers(row.window, key, entropy)
        self._entropy = entropy
        self._settled: dict[bytes, int] = {}  # by writer: all numbers up to this are known
        self._beyond: dict[bytes, set[int]] = {}  # and these
        self.unread = False  # whether what was read before is to be read again
        self._unsure = False  # whether something was read of what may not be on the standby yet
        # writers that ended before the window did: the number of their last word, and rows that
        # they were told of
        self.ended: dict[bytes, tuple[int, int]] = {}
        self.writer, self._number, self.acked = b"", 0, 0
        self.begin_writer()
        self.follow(row)

    def __repr__(self) -> str:
        return f"<OpenWindow of {len(self.keys)} keys>"

    def follow(self, row: WindowRow) -> None:
        """The window's row was read anew."""
        self.row = row
        self.seats.follow(row.epoch)

    def begin_writer(self) -> None:
        """Blocks bear another writer's id from now on: of the one before not everything is known,
        and what it left is read like anybody's.
        """
        if self.acked:
            self.ended[self.writer] = self._number + 1, self.acked
        self.writer, self._number, self.acked = self._entropy.bytes(_WRITER), 0, 0

    def next_place(self) -> tuple[bytes, int]:
        """Writer and number of a block that is about to be stored."""
        self._number += 1
        return self.writer, self._number

    def stored(self, place: tuple[bytes, int] | None, keys: bytes, tags: Iterable[bytes]) -> None:
        """This block of this replica is there, for certain, with the tags of its devices. None:
        there was nothing to store. ``keys``: joined.
        """
        self.admitted.load(list(tags))
        if place is None:
            return
        writer, number = place
        self._beyond.setdefault(writer, set()).add(number)
        rows = len(keys) // StorageKey.SIZE
        self.keys.load_joined(keys)
        if writer == self.writer:
            self.acked += rows
        elif writer in self.ended:
            last, acked = self.ended[writer]
            self.ended[writer] = last, acked + rows

    def sealed(
        self, place: tuple[bytes, int], keys: bytes, messages: bytes, acked: int | None = None
    ) -> tuple[int, int, bytes, bytes]:
        """``acked``, ``count``, ``keys`` and ``body`` of a block. ``keys``, ``messages``: of its
        rows, joined, in the order of the keys. ``acked``: rows that its writer was told of; None:
        this writer.
        """
        told = self.acked if acked is None else acked
        where, count = block_place(*place, told), len(keys) // StorageKey.SIZE
        seal = self.cipher.seal
        return (
            told,
            count,
            seal(Part.KEYS, where, count, keys),
            seal(Part.ROWS, where, count, messages),
        )

    async def read(self, connection: Connection) -> dict[bytes, int]:
        """The keys of all blocks that are not known yet, in a transaction whose commit waits for
        the standby as those of the blocks did: see ``sure``. By writer the largest number that is
        known: see ``settle``.
        """
        self._unsure = True
        await connection.execute(WAIT)
        for (found,) in await connection.fetch(_WRITERS.format(table=self.row.inbox)):
            await self._read_writer(connection, bytes(found))
        return {writer: max(numbers, default=0) for writer, numbers in self._beyond.items()}

    def sure(self) -> None:
        """What was read is committed, wherever commits go."""
        self.unread = self._unsure = False

    def settle(self, read: dict[bytes, int]) -> None:
        """That was read while nothing was under way, and a new epoch has begun, for certain:
        nothing with such a number comes later.
        """
        for writer, largest in read.items():
            self._settled[writer] = max(self._settled.get(writer, 0), largest)
            left = {number for number in self._beyond.pop(writer, ()) if number > largest}
            if left:
                self._beyond[writer] = left

    def failed(self) -> None:
        """A transaction failed, or its end is not known: seats are lost, another writer begins,
        and what was read and may be on one machine alone is not known any more.
        """
        self.begin_writer()
        self.seats.left = 0
        if self._unsure:
            self.keys, self.admitted, self.unread = KeySet(), KeySet(), True
            self._settled.clear()
            self._beyond.clear()

    async def _read_writer(self, connection: Connection, writer: bytes) -> None:
        at = self._settled.get(writer, 0)
        known = sorted(self._beyond.get(writer, ()))
        while True:
            page = await connection.fetch(
                f"SELECT number, acked, count, keys FROM {self.row.inbox} WHERE writer = $1"  # noqa: S608 - a name of ours
                " AND number > $2 AND number <> ALL($3::bigint[]) ORDER BY number LIMIT $4",
                writer,
                at,
                known,
                _PAGE,
            )
            if not page:
                break
            for number, acked, count, block in page:
                where = block_place(writer, number, acked)
                keys = self.cipher.open(Part.KEYS, where, count, bytes(block))
                self._beyond.setdefault(writer, set()).add(number)
                if keys is not None:  # what is damaged is counted at sealing
                    self.keys.load_joined(keys)
            at = page[-1][0]


def block_place(writer: bytes, number: int, acked: int) -> bytes:
    """What a block of an inbox is bound to. ``acked``: rows that its writer had been told to be
    stored before: who seals finds by it that some are missing.
    """
    return inbox_place(writer, number) + acked.to_bytes(8, "big")
