"""A window's row in the database, as it is read: believed only where it makes sense; and the order
in which steps lock it, and what goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.store import WindowRecord

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

COLUMNS = (
    "id, task_id, win, state, outcome, epoch, seats, found, emptied, check_value, reports,"
    " row_count, row_size, acked, damaged, rows_hash, manifest, batch_fence, asked"
)
ASKED_SINCE = 6  # the version of the schema that has the column
BEFORE_ASKED = f"{COLUMNS.removesuffix('asked')}NULL::bytea AS asked"


@dataclass(frozen=True, slots=True)
class WindowRow:
    """``found``: distinct rows at the last count. ``emptied``: how often an open window's reports
    were deleted. ``batch_fence``: under which claim the batch was written; 0: none.
    """

    id: int
    window: WindowId
    record: WindowRecord
    epoch: int
    seats: int
    found: int
    emptied: int
    check_value: bytes
    batch_fence: int

    @property
    def is_open(self) -> bool:
        """Whether it takes reports."""
        return self.record.state is WindowState.OPEN

    def takes(self, asked: bytes) -> bool:
        """Whether reports that answer this question may be among its own."""
        return self.record.asked in (None, asked)

    @property
    def inbox(self) -> str:
        """The table of blocks."""
        return f"inbox_{self.id}"

    @property
    def tags(self) -> str:
        """The table of admitted devices."""
        return f"tag_{self.id}"

    def batch(self, fence: int | None = None) -> str:
        """The table of the sealed batch, as written under that claim."""
        return f"batch_{self.id}_{self.batch_fence if fence is None else fence}"

    @property
    def gate(self) -> int:
        """The advisory lock that appends share and whoever closes or counts has alone."""
        return _GATES + self.id


class GoneError(ShoalError):
    """The database does not have a window that it had: it was put back."""

    def __init__(self) -> None:
        super().__init__(
            Kind.UNAVAILABLE, "a window is gone from the database, which was put back: try again"
        )


class _Row(Protocol):
    """What a query answers, by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any: ...


_GATES = 0x53486F61 << 32  # "SHoa": apart from what other programs lock in the same database


def parse(row: _Row) -> WindowRow:
    """Raises INTERNAL for a row that no shuffler wrote."""
    try:
        outcome = row["outcome"]
        record = WindowRecord(
            state=WindowState(row["state"]),
            outcome=None if outcome is None else WindowState(outcome),
            reports=row["reports"],
            rows=row["row_count"],
            row_size=row["row_size"],
            manifest=bytes(row["manifest"]),
            acked=row["acked"],
            damaged=row["damaged"],
            rows_hash=None if row["rows_hash"] is None else Digest(bytes(row["rows_hash"])),
            asked=None if row["asked"] is None else bytes(row["asked"]),
        )
        return WindowRow(
            id=row["id"],
            window=WindowId(TaskId(bytes(row["task_id"])), row["win"]),
            record=record,
            epoch=row["epoch"],
            seats=row["seats"],
            found=row["found"],
            emptied=row["emptied"],
            check_value=bytes(row["check_value"]),
            batch_fence=row["batch_fence"],
        )
    except (ShoalError, ValueError, TypeError):
        raise ShoalError(
            Kind.INTERNAL, "the database holds a window that no shuffler wrote: check its tables"
        ) from None


# --- locks: claim, tables, gate, row, in this order. A statement that appends has locked its table
# before it runs; so whoever drops tables takes them first.


def tables_first(row: WindowRow) -> str:
    """Lock what is written to, before the gate and the window's row: a statement that appends has
    locked its table before it waits for the gate, and whoever drops the tables must not wait for
    it there while it waits for him here.
    """
    return f"LOCK TABLE {row.inbox}, {row.tags} IN ROW EXCLUSIVE MODE"


async def lock(connection: Connection, row: WindowRow, *, tables: bool = True) -> WindowRow:
    """The window's row as it is now, locked to the transaction's end, while nothing of the window
    is under way. ``tables``: not yet locked, and there.
    """
    if tables:
        await connection.execute(tables_first(row))
    await connection.execute("SELECT pg_advisory_xact_lock($1)", row.gate)
    found = await connection.fetchrow(
        f"SELECT {COLUMNS} FROM win WHERE id = $1 FOR UPDATE",  # noqa: S608 - constants
        row.id,
    )
    now = None if found is None else parse(found)
    if now is None or now.window != row.window:  # ids of lost rows are given again
        raise GoneError
    return now


async def drop(connection: Connection, names: Sequence[str]) -> None:
    """Tables that this transaction has locked: see ``seize``."""
    if names:
        await connection.execute(f"DROP TABLE {', '.join(names)}")


async def seize(connection: Connection, names: Sequence[str]) -> None:
    """Lock tables that are to be dropped, before anything that whoever writes there locks after
    them: the window's gate and row.
    """
    if names:
        await connection.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")


async def current(connection: Connection, window: WindowId) -> WindowRow:
    """The window's row as it is now, locked to the transaction's end. Raises INTERNAL."""
    found = await connection.fetchrow(
        f"SELECT {COLUMNS} FROM win WHERE task_id = $1 AND win = $2 FOR UPDATE",  # noqa: S608 - constants
        *(window.task_id.raw, window.window),
    )
    if found is None:
        raise not_in(window, WindowState.OPEN)
    return parse(found)


def expect(row: WindowRow, state: WindowState) -> None:
    """Raises INTERNAL."""
    if row.record.state is not state:
        raise not_in(row.window, state)


def not_in(window: WindowId, state: WindowState) -> ShoalError:
    """The error of a window that is not in this state."""
    return ShoalError(
        Kind.INTERNAL, f"window {window.window} of task {window.task_id.short} is not {state.name}"
    )
