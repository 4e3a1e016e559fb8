"""A window's row in the database, as it is read: believed only where it makes sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.store import WindowRecord

COLUMNS = (
    "id, task_id, win, state, outcome, epoch, seats, found, emptied, check_value, reports,"
    " row_count, row_size, acked, damaged, rows_hash, manifest, batch_fence"
)


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
