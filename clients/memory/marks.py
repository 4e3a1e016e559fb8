"""Marks of rows: nothing that a device's SQLite files hold is trusted when it is read.

Every row of every table but the ledger's, which is a chain of hashes, ends with a mark: 16 bytes of
SHA-256 over the table's name and all other columns. A mark has no key: it finds what a disk, a copy
or a mistake changed, not who may write the file on purpose.

A row that is there is verified whenever it is read; what a transaction under way asks twice, with
nothing written in between, is answered by what it read and verified the first time. That a row is
*not* there is no answer either while some row of its table is damaged, because that may be the one,
under a key that changed: so ``absent`` looks at all of them, once in an hour. Where the damaged
row's task can be told, the other tasks go on; where it can't, all of them wait for the owner. A row
that vanished without a trace has no mark that could tell: charges and their sums miss each other,
and SQLite misses what an index or a page's order still shows. Of the other tables nothing else
does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager
    from pathlib import Path

    from shoal.storage import sqlite

_ROW = tuple[Any, ...]
_TASK_BYTES = 32
# a table that was found whole is looked through again after so long, by the monotonic clock
LOOK_S = 3600.0
_FEW = 64  # rows of one answer that are kept for the rest of a transaction
COMMAND = "`shoal agent memory` says what there is, and what can be done"


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """``columns``: all but the mark, in the schema's order. ``what``: one of its rows, in words."""

    what: str
    columns: tuple[str, ...]

    @property
    def task_at(self) -> int | None:
        """Index of the column with the task's id; None: the table has none."""
        return self.columns.index("task_id") if "task_id" in self.columns else None

    @property
    def window_at(self) -> int | None:
        """Index of the column with the window; None: the table has none."""
        return self.columns.index("window") if "window" in self.columns else None


def _table(what: str, columns: str) -> MarkedTable:
    return MarkedTable(what, tuple(columns.split()))


OUTBOX: Mapping[str, MarkedTable] = {
    "report": _table(
        "a report", "task_id window state kind attempts doubtful expires_s frame ack_key"
    ),
    "schedule": _table("which key schedule was seen", "task_id digest"),
    "struck": _table("that a task has two key schedules", "task_id"),
    "charge": _table("a charge", "number task_id window nano permanent"),
    "tally": _table("the sum of charges", "task_id windows nano"),
    "memo_key": _table("the key of the answers that are kept", "task_id secret"),
    "memo": _table("an answer that is kept", "task_id tag report used"),
    "seen": _table(
        "what is known of a task", "task_id name purpose authority epsilon0_nano verdict"
    ),
    "consent": _table("an answer of the owner for a purpose", "purpose answer"),
    "acceptance": _table("an answer of the owner for a task", "task_id epsilon0"),
    "problem": _table("that something was refused", "digest"),
    "choice": _table("what was chosen once", "task_id chosen"),
    "lost": _table("what was confirmed as lost", "number before_s nano"),
}
ROUNDS: Mapping[str, MarkedTable] = {
    "answer": _table("an answer in a round", "task_id window round_id sealed released outcome kind")
}


_INITIAL = {int: b"i", str: b"s", float: b"f", type(None): b"N"}  # of all that SQLite gives


def row_mark(*values: bytes | int | float | str | None) -> bytes:
    """16 bytes of SHA-256 over what a row must hold, each value with its type and length. The
    table's name comes first.
    """
    parts = [b"shoal/v1/row\x00"]
    for value in values:
        if type(value) is bytes:
            parts += b"b", len(value).to_bytes(8, "big"), value
        else:
            data = repr(value).encode()
            parts += _INITIAL[type(value)], len(data).to_bytes(8, "big"), data
    return sha256(b"".join(parts))[:16]


@dataclass(frozen=True, slots=True)
class Damage:
    """One row that is not as it was written. ``task_id``, ``window``: as they stand there; they may
    be what changed.

    ``row``: its columns. Empty where the table as a whole contradicts itself: its index, or how
    many rows it has.
    """

    file: str
    table: str
    task_id: TaskId | None = None
    window: int | None = None
    row: _ROW = ()

    def __str__(self) -> str:
        """One line, without anything that the row holds but public ids."""
        where = "" if self.task_id is None else f" of task {self.task_id.short}"
        where += "" if self.window is None else f", window {self.window}"
        what = {**OUTBOX, **ROUNDS}[self.table].what
        row = "a row" if self.row else "the whole table (rows are lost, or its index is damaged)"
        return f"{self.file}: table {self.table}, {row}: {what}{where}"


def damaged(damage: Damage) -> ShoalError:
    """MISMATCH: rows on the disk are not what was written; names the command that helps."""
    return ShoalError(
        Kind.MISMATCH,
        f"{damage} is damaged on this device's disk: it is not used; {COMMAND}. Look at the disk",
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """A table as a whole. ``tasks``: those of which a row may be missing; None: nobody knows
    which.
    """

    at: float
    # of the file as other connections have written it: one of them may have mended what is damaged
    version: int
    damages: tuple[Damage, ...]
    tasks: frozenset[bytes] | None


class ReadableFile(Protocol):
    """What is asked of a file with marked tables: ``sqlite_file.SqliteFile``."""

    # held through a transaction
    lock: threading.RLock

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def written(self) -> int | None:
        """Grows with every row that is written, while a transaction is under way; else None."""
        ...

    def read(self, query: str, values: _ROW = ()) -> list[_ROW]:
        """The rows of a query."""
        ...

    def each(self, query: str) -> Iterator[_ROW]:
        """The rows of a query, one after the other."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """What is read within is of one moment."""
        ...


class MarkedTables:
    """The marked tables of one file. Every method blocks for the disk, and is safe in any thread as
    the file's own are.
    """

    def __init__(self, file: ReadableFile, tables: Mapping[str, MarkedTable]) -> None:
        self._file, self._tables = file, tables
        self._looks: dict[str, _Look] = {}
        # by table, a row with its mark that fits: the same again fits too
        self._last: dict[str, _ROW] = {}
        # of the transaction under way: what was read, since so many rows were written
        self._read: dict[tuple[Any, ...], tuple[list[_ROW], list[_ROW]]] = {}
        self._read_at = -1
        self._queries: dict[tuple[str, str], str] = {}

    # --- rows -------------------------------------------------------------------------------------

    def read(self, table: str, where: str = "", values: Sequence[Any] = ()) -> list[_ROW]:
        """Rows without their marks. Raises MISMATCH if one of them is damaged."""
        whole, bad = self.sift(table, where, values)
        if bad:
            raise damaged(self.damage(table, bad[0]))
        return whole

    def sift(
        self, table: str, where: str = "", values: Sequence[Any] = ()
    ) -> tuple[list[_ROW], list[_ROW]]:
        """Rows without their marks: those that are as they were written, and those that are not.
        Nobody else's rows: read only.
        """
        with self._file.lock:
            written = self._file.written
            if written is None:
                return self._sifted(table, where, tuple(values))
            if written != self._read_at:
                self._read.clear()
                self._read_at = written
            asked = (table, where, *values)
            found = self._read.get(asked)
            if found is None:
                found = self._sifted(table, where, tuple(values))
                if len(found[0]) + len(found[1]) <= _FEW:
                    self._read[asked] = found
            return found

    def forget_rows(self) -> None:
        """The transaction is over, or a part of it was undone: what it read may be so no more."""
        self._read.clear()

    def _sifted(self, table: str, where: str, values: _ROW) -> tuple[list[_ROW], list[_ROW]]:
        query = self._queries.get((table, where))
        if query is None:
            columns = ", ".join(self._tables[table].columns)
            query = f"SELECT {columns}, mark FROM {table} {where}"  # noqa: S608 - constants
            self._queries[table, where] = query
        whole: list[_ROW] = []
        bad: list[_ROW] = []
        last = self._last.get(table)
        for row in self._file.read(query, values):
            if row == last or row[-1] == row_mark(table, *row[:-1]):
                self._last[table] = row
                whole.append(row[:-1])
            else:
                bad.append(row[:-1])
        return whole, bad

    def put(self, db: sqlite.Connection, table: str, *row: Any) -> None:
        """In the place of what has the same key, damaged or not."""
        self._insert(db, "INSERT OR REPLACE", table, row)

    def add(self, db: sqlite.Connection, table: str, *row: Any) -> None:
        """Where nothing has its key. Raises sqlite.IntegrityError."""
        self._insert(db, "INSERT", table, row)

    def _insert(self, db: sqlite.Connection, verb: str, table: str, row: _ROW) -> None:
        columns = (*self._tables[table].columns, "mark")
        holes = ", ".join("?" * len(columns))
        statement = f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({holes})"
        self._last[table] = marked = (*row, row_mark(table, *row))
        db.execute(statement, marked)

    def change(
        self,
        db: sqlite.Connection,
        table: str,
        key: Sequence[str],
        row: Sequence[Any],
        **values: Any,
    ) -> _ROW:
        """Give a row, which was read and verified in this transaction, new values. Returns it."""
        now = dict(zip(self._tables[table].columns, row, strict=True)) | values
        change = ", ".join(f"{name} = ?" for name in (*values, "mark"))
        where = " AND ".join(f"{name} = ?" for name in key)
        mark = row_mark(table, *now.values())
        self._last[table] = (*now.values(), mark)
        db.execute(
            f"UPDATE {table} SET {change} WHERE {where}",  # noqa: S608
            (*values.values(), mark, *(now[name] for name in key)),
        )
        return tuple(now.values())

    # --- tables -----------------------------------------------------------------------------------

    def absent(self, table: str, task_id: TaskId | None) -> None:
        """Return if a row of the task that was not found was never there. Raises MISMATCH if it may
        be a damaged one.
        """
        look = self._looks.get(table)
        if (
            look is None
            or time.monotonic() >= look.at + LOOK_S
            or (look.damages and look.version != self._version())
        ):
            with self._file.snapshot():
                look = self._looks[table] = self._look(table)
        if look.damages and (task_id is None or look.tasks is None or task_id.raw in look.tasks):
            raise damaged(look.damages[0])

    def damages(self) -> list[Damage]:
        """Everything that is damaged now, by table."""
        self._looks.clear()
        with self._file.snapshot():
            return list(
                dict.fromkeys(
                    damage for table in self._tables for damage in self._look(table).damages
                )
            )

    def rebuild(self, db: sqlite.Connection, table: str) -> list[_ROW]:
        """Keep the rows that are whole, in a tree that is made anew, and return the others.

        Never by key: the order of a damaged tree finds nothing, nor does a text that is none. No
        trigger may forbid it.
        """
        whole, bad = self.sift(table)
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
        self.forget_rows()  # a damaged tree may count its rows wrongly
        for row in whole:
            self.put(db, table, *row)
        return bad

    def shared_pages(self) -> bool:
        """Whether SQLite finds a page in two places, or its list of free pages out of order: what
        is written next damages more.
        """
        told = [str(row[0]) for row in self._file.read("PRAGMA integrity_check")]
        return any(sign in line.lower() for line in told for sign in ("2nd reference", "freelist"))

    def _version(self) -> int:
        version: int = self._file.read("PRAGMA data_version")[0][0]
        return version

    def forget_looks(self) -> None:
        """After damage was mended."""
        self._looks.clear()

    def _look(self, table: str) -> _Look:
        made, version = self._tables[table], self._version()
        counts: Counter[bytes] = Counter()
        bad: list[_ROW] = []
        for row in self._each(table):
            if row[-1] != row_mark(table, *row[:-1]):
                bad.append(row[:-1])
            elif table == "charge" and made.task_at is not None:
                counts[row[made.task_at]] += 1
        damages = [self.damage(table, row) for row in bad]
        if self.broken(table):
            return _Look(time.monotonic(), version, (*damages, Damage(self._name, table)), None)
        if table == "charge" and "tally" in self._tables:
            return self._charges(version, damages, counts)
        tasks: frozenset[bytes] | None = frozenset()
        if bad and made.task_at is not None:
            tasks = frozenset(row[made.task_at] for row in bad)
            tasks = tasks if tasks <= self._known(table) else None
        return _Look(
            time.monotonic(), version, tuple(damages), None if made.task_at is None else tasks
        )

    def _charges(self, version: int, damages: list[Damage], counts: Counter[bytes]) -> _Look:
        """Charges against their sums: of which tasks rows are missing, whatever stands in the
        damaged ones.
        """
        whole, bad = self.sift("tally")
        sums = {task: windows for task, windows, _ in whole}
        tasks = frozenset(task for task in {*sums, *counts} if sums.get(task, 0) != counts[task])
        short = sum(max(windows - counts[task], 0) for task, windows in sums.items())
        if tasks and not damages:
            lost = [
                Damage(
                    self._name,
                    "tally" if counts[task] > sums.get(task, 0) else "charge",
                    task_of(task),
                )
                for task in sorted(tasks)
            ]
            damages = [self.damage("tally", row) for row in bad] or lost
        return _Look(
            time.monotonic(),
            version,
            tuple(damages),
            tasks if len(damages) <= max(short, len(tasks)) else None,
        )

    def _known(self, table: str) -> frozenset[bytes]:
        """Tasks that intact rows elsewhere name: a flipped bit makes no other task's id of one."""
        beside = [name for name in ("seen", "tally") if name in self._tables and name != table]
        return frozenset(row[0] for name in beside for row in self.sift(name)[0])

    def broken(self, table: str) -> bool:
        """Whether an index and its table differ, or SQLite finds the table's pages out of order."""
        told = [str(row[0]) for row in self._file.read(f"PRAGMA integrity_check({table})")]
        return any(
            line != "ok" and not line.startswith("CHECK") and " value in " not in line
            for line in told
        )

    def _each(self, table: str) -> Iterator[_ROW]:
        columns = ", ".join(self._tables[table].columns)
        return self._file.each(f"SELECT {columns}, mark FROM {table}")  # noqa: S608 - constants

    @property
    def _name(self) -> str:
        return self._file.path.name

    def damage(self, table: str, row: _ROW) -> Damage:
        """What a damaged row is called."""
        made = self._tables[table]
        task = None if made.task_at is None else task_of(row[made.task_at])
        window = None if made.window_at is None else row[made.window_at]
        return Damage(self._name, table, task, window if isinstance(window, int) else None, row)


def task_of(raw: object) -> TaskId | None:
    """The task of a damaged row, if 32 bytes can be an id; else None, and all tasks must wait."""
    return TaskId(raw) if isinstance(raw, bytes) and len(raw) == _TASK_BYTES else None
