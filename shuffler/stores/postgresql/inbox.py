"""An open window, as one replica knows it, and the blocks of its table.

The replica reads the keys of what others stored when it has to know: after a start, when seats are
gone, and when a device that was admitted elsewhere comes again. Which blocks it has read it knows
by the writer and the number that each of them bears. Numbers grow, but commits are not made in
their order, so they are remembered one by one; only where nothing is under way (see ``seats``: then
a new epoch begins, and nothing of the one before comes later) all up to the largest are settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.postgresql.blocks import BlockCipher, Part, inbox_place
from shoal.shuffler.stores.postgresql.database import WAIT
from shoal.shuffler.stores.postgresql.rows import WindowRow
from shoal.shuffler.stores.postgresql.window_keys import WindowKey
from shoal.shuffler.stores.seats import SeatSlice
from shoal.shuffler.stores.storage_keys import WindowHashes
from shoal.shuffler.stores.told import ToldRows, WriterWord

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection, Database

_WRITER = 16  # bytes
_LAST = 0  # the number of a writer's last word; blocks have theirs from 1
_COLUMNS = "writer, number, acked, count, keys, body"
_PAGE = 256  # blocks that are read together
_TURNS = 8  # in which a read begins, at most
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

# The gate is a condition of the scan, so it is passed before the row is locked: the other way round
# two could wait for each other. FOR SHARE looks again at a row that was changed meanwhile. A
# database that was put back gives numbers again: the row must be of this window, and this filling,
# and its reports must answer what those of the block do.
STILL_OPEN = (
    "SELECT 1 FROM win WHERE id = $1 AND state = 1 AND epoch = $2"
    " AND check_value = $4 AND emptied = $5 AND (asked IS NULL OR asked = $6)"
    " AND pg_advisory_xact_lock_shared($3) IS NOT NULL FOR SHARE"
)
AFTER_OPEN = 7  # the first parameter after those of ``still_open``


def still_open(row: WindowRow, epoch: int, asked: bytes) -> tuple[int, int, int, bytes, int, bytes]:
    """The parameters of ``STILL_OPEN``. ``asked``: the question that the reports answer."""
    return row.id, epoch, row.gate, row.check_value, row.emptied, asked


def ciphers(
    window: WindowId, emptied: int, key: WindowKey, entropy: Entropy
) -> tuple[WindowHashes, BlockCipher]:
    """What the window's inbox key is used for. ``emptied``: of its row."""
    cipher = BlockCipher(key.of("rows"), window, entropy, emptied)
    return WindowHashes(key.of("names")), cipher


@dataclass(slots=True)
class Writer:
    """Who numbers blocks: a process, until the end of one of its steps is not known. ``newest``:
    its last number. ``acked``: reports that it was told of. ``waiting``: numbers of blocks whose
    end it does not know.
    """

    id: bytes
    newest: int = 0
    acked: int = 0
    waiting: set[int] = field(default_factory=set)

    def last_word(self, cipher: BlockCipher) -> tuple[bytes, int, int, int, bytes, bytes]:
        """The columns of an empty block that says what it was told of."""
        return *(self.id, _LAST), *_sealed(cipher, (self.id, _LAST), b"", b"", self.acked)


@dataclass(frozen=True, slots=True)
class Place:
    """Of a block that is about to be stored."""

    writer: Writer
    number: int

    @property
    def columns(self) -> tuple[bytes, int]:
        """As the table has it."""
        return self.writer.id, self.number


@dataclass(frozen=True, slots=True)
class KeysRead:
    """What ``OpenWindow.read`` found out: by writer the largest number that is known. ``turn``: of
    the window's memory, which begins anew where it may be wrong.
    """

    turn: int
    newest: dict[bytes, int]


class OpenWindow:
    """What this replica knows of an open window. ``keys``: those that it knows to be stored;
    ``admitted``: tags that it entered, or found entered. ``ended``: writers whose last word is to
    be entered.
    """

    def __init__(self, row: WindowRow, key: WindowKey, entropy: Entropy, told: ToldRows) -> None:
        """``key``: its INBOX key. ``told``: where acknowledgements are noted."""
        self.row, self.keys, self.admitted, self.seats = row, KeySet(), KeySet(), SeatSlice()
        self.hashes, self.cipher = ciphers(row.window, row.emptied, key, entropy)
        self._entropy, self._told = entropy, told
        self._settled: dict[bytes, int] = {}  # by writer: all numbers up to this are known
        self._beyond: dict[bytes, set[int]] = {}  # and these
        self.unread = False  # whether what was read before is to be read again
        self._turn = 0  # how often all was forgotten
        self._reads = 0  # transactions of this turn that have read and are not committed
        self.ended = {  # of processes before
            word.writer: Writer(word.writer, word.newest, word.acked, set(word.waiting))
            for word in told.of(row.window)
            if word.emptied == row.emptied
        }
        self._writer = Writer(entropy.bytes(_WRITER))
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
        if self._writer.acked:
            self.ended[self._writer.id] = self._writer
        self._writer = Writer(self._entropy.bytes(_WRITER))

    def next_place(self) -> Place:
        """Of a block that is about to be stored."""
        writer = self._writer
        writer.newest += 1
        writer.waiting.add(writer.newest)
        return Place(writer, writer.newest)

    def not_stored(self, place: Place) -> None:
        """The database said that it did not take this block."""
        place.writer.waiting.discard(place.number)

    def stored(self, place: Place | None, keys: bytes, tags: Iterable[bytes]) -> None:
        """This block of this replica is there, for certain, with the tags of its devices: it may be
        acknowledged once this returns. None: there was nothing to store. ``keys``: joined.
        """
        self.admitted.load(list(tags))
        if place is None:
            return
        writer = place.writer
        self._beyond.setdefault(writer.id, set()).add(place.number)
        self.keys.load_joined(keys)
        writer.acked += len(keys) // StorageKey.SIZE
        writer.waiting.discard(place.number)
        waiting = tuple(sorted(writer.waiting))
        # a box is of one filling: see ``_publish``, which drops it when its window is emptied
        window, emptied = self.row.window, self.row.emptied
        self._told.note(
            WriterWord(window, emptied, writer.id, writer.acked, writer.newest, waiting)
        )
        if writer is not self._writer:
            self.ended[writer.id] = writer

    def sealed(self, place: Place, keys: bytes, messages: bytes) -> tuple[int, int, bytes, bytes]:
        """``acked``, ``count``, ``keys`` and ``body`` of a block. ``keys``, ``messages``: of its
        reports, joined, in the order of the keys.
        """
        return _sealed(self.cipher, place.columns, keys, messages, place.writer.acked)

    @property
    def reading(self) -> bool:
        """Whether keys may be known that are on one machine alone: whoever acknowledges a report by
        them has to wait for the standby.
        """
        return self._reads > 0

    async def read(self, connection: Connection, tags: Collection[bytes] = ()) -> KeysRead:
        """The keys of all blocks that are not known yet, and which of these ``tags`` are entered,
        in a transaction whose commit waits for the standby as those of the blocks did: see
        ``sure``, ``settle``. Several groups and a count share this memory. Where one of them failed
        meanwhile, so that all was forgotten, all is read once more; UNAVAILABLE if again and again.
        """
        await connection.execute(WAIT)
        for _ in range(_TURNS):
            found = await self._read_once(connection, tags)
            if found is not None:
                return found
        raise ShoalError(Kind.UNAVAILABLE, "a window is read again and again: try again")

    async def _read_once(self, connection: Connection, tags: Collection[bytes]) -> KeysRead | None:
        """None: the turn ended meanwhile."""
        turn, entered = self._turn, list[bytes]()
        self._reads += 1
        if tags:  # before the keys: what came with a tag is among them
            found = await connection.fetch(
                f"SELECT tag FROM {self.row.tags} WHERE tag = ANY($1::bytea[])",  # noqa: S608 - a name of ours
                sorted({*tags}),
            )
            entered = [bytes(tag) for (tag,) in found]
        for (writer,) in await connection.fetch(_WRITERS.format(table=self.row.inbox)):
            if not await self._read_writer(connection, bytes(writer), turn):
                return None
        if turn != self._turn:
            return None
        self.admitted.load(entered)  # not sooner: a device's report is known with its tag
        newest = {writer: max(numbers, default=0) for writer, numbers in self._beyond.items()}
        return KeysRead(turn, newest)

    def sure(self, reading: KeysRead | None) -> None:
        """What was read is committed, wherever commits go. None: nothing was."""
        if reading is not None and reading.turn == self._turn:
            self._reads -= 1
            self.unread = False

    def settle(self, reading: KeysRead) -> None:
        """That was read while nothing was under way, and a new epoch has begun, for certain:
        nothing with such a number comes later. What was forgotten since is read again.
        """
        if reading.turn != self._turn:
            return
        for writer, largest in reading.newest.items():
            self._settled[writer] = max(self._settled.get(writer, 0), largest)
            left = {number for number in self._beyond.pop(writer, ()) if number > largest}
            if left:
                self._beyond[writer] = left

    def forget(self) -> None:
        """The database may have lost what it had: all of it is read again."""
        self.begin_writer()
        self.seats.left = 0
        self._forget()

    def failed(self) -> None:
        """A transaction failed, or its end is not known: seats are lost, another writer begins,
        and what was read and may be on one machine alone is not known any more.
        """
        self.begin_writer()
        self.seats.left = 0
        if self._reads:
            self._forget()

    def _forget(self) -> None:
        self.keys, self.admitted, self.unread = KeySet(), KeySet(), True
        self._turn, self._reads = self._turn + 1, 0
        self._settled.clear()
        self._beyond.clear()

    async def _read_writer(self, connection: Connection, writer: bytes, turn: int) -> bool:
        """False: the turn ended, and nothing of what came then is remembered in the next."""
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
            if turn != self._turn:
                return False
            if not page:
                return True
            for number, acked, count, block in page:
                where = block_place(writer, number, acked)
                keys = self.cipher.open(Part.KEYS, where, count, bytes(block))
                self._beyond.setdefault(writer, set()).add(number)
                if keys is not None:  # what is damaged is counted at sealing
                    self.keys.load_joined(keys)
            at = page[-1][0]


async def end_writers(box: OpenWindow, database: Database) -> None:
    """An empty block for each writer that ended, with the number of rows that it was told of:
    sealing finds by it what a database that stepped back has lost.
    """
    for writer in list(box.ended.values()):
        acked = writer.acked
        done = await database.execute(
            last_word(box.row.inbox, STILL_OPEN, AFTER_OPEN),
            *still_open(box.row, box.seats.epoch, box.row.record.asked or b""),
            *writer.last_word(box.cipher),
        )
        if done == "INSERT 0 1" and writer.acked == acked:
            box.ended.pop(writer.id, None)


def block_place(writer: bytes, number: int, acked: int) -> bytes:
    """What a block of an inbox is bound to. ``acked``: reports that its writer had been told to be
    stored before: who seals finds by it that some are missing.
    """
    return inbox_place(writer, number) + acked.to_bytes(8, "big")


def _sealed(
    cipher: BlockCipher, place: tuple[bytes, int], keys: bytes, messages: bytes, acked: int
) -> tuple[int, int, bytes, bytes]:
    where, count = block_place(*place, acked), len(keys) // StorageKey.SIZE
    return (
        acked,
        count,
        cipher.seal(Part.KEYS, where, count, keys),
        cipher.seal(Part.ROWS, where, count, messages),
    )


def insert(table: str, guard: str, first: int) -> str:
    """Store a block if ``guard``, a query with the parameters before ``first``, finds a row. From
    there on: the block's place, and what ``OpenWindow.sealed`` gives.
    """
    values = ", ".join(f"${first + at}" for at in range(6))
    return f"WITH w AS ({guard}) INSERT INTO {table} ({_COLUMNS}) SELECT {values} FROM w"  # noqa: S608 - names of ours


def last_word(table: str, guard: str, first: int) -> str:
    """The same for a writer's last word, which may be said again."""
    return (
        f"{insert(table, guard, first)} ON CONFLICT (writer, number) DO UPDATE"
        " SET acked = EXCLUDED.acked, keys = EXCLUDED.keys, body = EXCLUDED.body"
    )
