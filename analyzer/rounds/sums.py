"""What the analyzer keeps of rounds of secure aggregation: finished sums, and how many rounds ended
without one.

A sum is on disk before anybody is told that its round is done; a window is released once, in one
transaction with everything that belongs to it. Methods block; the service calls them from threads.
They raise OVERLOADED when the store can't be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.store import AnalyzerStore
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.storage.checksums import fits, row_digest

_WORD = "<i8"
_SUM = "task_id, window, round_id, survivors, vector, digest"
DAMAGED = "damaged on the analyzer's disk"  # why a sum that was there is in no release


@dataclass(frozen=True, slots=True)
class StoredSum:
    """One finished round. ``vector``: int64[d], in grid steps, noise included; over ``survivors``
    devices.
    """

    round_id: Digest
    survivors: int
    vector: NDArray[np.int64]


# (sums, rounds that were aborted by reason, what every window and batch before this one cost,
# devices of sums that are damaged) -> what is published, and whether it is
Conclude = Callable[
    [Sequence[StoredSum], Mapping[str, int], list[Spending], int], tuple[WindowOutcome, bool]
]


class SumStore:
    """Rounds in the analyzer's store."""

    def __init__(self, store: AnalyzerStore) -> None:
        self._store = store

    def add(self, task_id: TaskId, window: int, finished: StoredSum) -> None:
        """Durable on return; the same round again changes nothing.

        Raises WINDOW_CLOSED if the window is released already, CONFLICT if another sum is stored
        under that round.
        """
        vector = np.ascontiguousarray(finished.vector, dtype=_WORD).tobytes()
        with self._store.transaction() as db:
            known = db.execute(
                "SELECT task_id, window, survivors, vector FROM sums WHERE round_id = ?",
                (finished.round_id.raw,),
            ).fetchone()
            if known is not None:
                if known != (task_id.raw, window, finished.survivors, vector):
                    raise ShoalError(
                        Kind.CONFLICT, "another sum was stored for this round: it stands"
                    )
                return
            row = (task_id.raw, window, finished.round_id.raw, int(finished.survivors), vector)
            if db.execute(
                "SELECT 1 FROM releases WHERE task_id = ? AND window = ?", (task_id.raw, window)
            ).fetchone():
                raise ShoalError(
                    Kind.WINDOW_CLOSED, "the window is released: no sum is added to it any more"
                )
            db.execute(
                "INSERT INTO sums (task_id, window, round_id, survivors, vector, digest, head) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*row, row_digest(*row), row_digest(*row[:4])),
            )
            hit("analyzer.sums.add")
        hit("analyzer.sums.add.done")

    def holds(self, round_id: Digest) -> bool:
        """Whether this round's sum is on disk."""
        with self._store.reading() as db:
            return (
                db.execute("SELECT 1 FROM sums WHERE round_id = ?", (round_id.raw,)).fetchone()
                is not None
            )

    def released(self, task_id: TaskId, window: int) -> bool:
        """Whether the window is published or withheld, for ever."""
        return self._store.released(task_id, window)

    def of(self, task_id: TaskId, window: int) -> list[StoredSum]:
        """Every sum of a window that is what was written, ordered by round id."""
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT {_SUM} FROM sums WHERE task_id = ? AND window = ? ORDER BY round_id",  # noqa: S608 - constant text
                (task_id.raw, window),
            ).fetchall()
        return [
            StoredSum(Digest(row[2]), row[3], np.frombuffer(row[4], dtype=_WORD))
            for row in rows
            if fits(row)
        ]

    def aborted(self, task_id: TaskId, window: int, reason: str) -> None:
        """Count a round that ended without a sum; not any more once the window is released."""
        with self._store.transaction() as db:
            db.execute(
                "INSERT INTO aborted_rounds (task_id, window, reason, count, digest) SELECT :task, "
                ":window, :reason, 1,"
                " row_digest(:task, :window, :reason, 1)"
                " WHERE NOT EXISTS (SELECT 1 FROM releases WHERE task_id = :task AND window = "
                ":window)"
                " ON CONFLICT DO UPDATE SET count = count + 1, digest = row_digest(task_id, "
                "window, reason, count + 1)",
                {"task": task_id.raw, "window": window, "reason": reason},
            )

    def reasons(self, task_id: TaskId, window: int) -> dict[str, int]:
        """How many rounds of a window ended without a sum, by reason; DAMAGED: sums, and counts of
        other reasons, that the disk changed.
        """
        key = (task_id.raw, window)
        with self._store.reading() as db:
            counts = db.execute(
                "SELECT * FROM aborted_rounds WHERE task_id = ? AND window = ?", key
            ).fetchall()
            sums = db.execute(
                f"SELECT {_SUM} FROM sums WHERE task_id = ? AND window = ?",  # noqa: S608
                key,
            ).fetchall()
        aborted = {row[2]: row[3] for row in counts if fits(row)}
        damaged = sum(not fits(row) for row in [*counts, *sums])
        return {**aborted, DAMAGED: damaged} if damaged else aborted

    def lost(self, task_id: TaskId, window: int, least: int) -> int:
        """Devices of a window's sums that the disk changed. ``least``: how many a sum has at least,
        where that is damaged too.
        """
        with self._store.reading() as db:
            # constant text
            query = f"SELECT {_SUM}, head FROM sums WHERE task_id = ? AND window = ?"  # noqa: S608
            rows = db.execute(query, (task_id.raw, window)).fetchall()
        bad = [row for row in rows if not fits(row[:-1])]
        return sum(row[3] if row[-1] == row_digest(*row[:4]) else least for row in bad)

    def unreleased(self) -> set[tuple[TaskId, int]]:
        """Windows that have a sum and no release."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT task_id, window FROM sums EXCEPT SELECT task_id, window FROM "
                "releases"
            ).fetchall()
        return {(TaskId(task_id), window) for task_id, window in rows}

    def finish(self, task_id: TaskId, window: int, conclude: Conclude, least: int = 0) -> bool:
        """Release a window, in one transaction; False, and nothing changes, if it is released
        already. ``least``: as for ``lost``.

        The sums of a window that is not published are deleted in the same transaction: none is kept
        of what is withheld.
        """
        with self._store.transaction() as db:
            if self._store.released(task_id, window):
                return False
            lost = self.lost(task_id, window, least)
            outcome, published = conclude(
                self.of(task_id, window),
                self.reasons(task_id, window),
                self._store.spendings(),
                lost,
            )
            self._store.write_release(task_id, window, outcome)
            if not published:
                db.execute(
                    "DELETE FROM sums WHERE task_id = ? AND window = ?", (task_id.raw, window)
                )
            hit("analyzer.sums.finish")
        self._store.write_release_count()
        hit("analyzer.sums.finish.done")
        return True
