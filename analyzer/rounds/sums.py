"""What the analyzer keeps of rounds of secure aggregation: finished sums, and how many rounds ended
without one.

A sum of long vectors stands in a file of its own, in the folder ``sums``, in words of the task's
width; its row holds the hashes of the file's segments in the vector's place. A call about such a
task brings the file's form. The file goes when its window is released.

A sum is on disk before anybody is told that its round is done; a window is released once, in one
transaction with everything that belongs to it. Methods block; the service calls them from threads.
They raise OVERLOADED when the store can't be written.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.store import AnalyzerStore
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.storage.array_files import HASH_SIZE, ArrayFile, ArrayForm, write_array
from shoal.storage.checksums import fits, row_digest
from shoal.task import Task

_WORD = "<i8"
_SUM = "task_id, window, round_id, survivors, vector, digest"
_FOLDER, _SUFFIX = "sums", ".words"
DAMAGED = "damaged on the analyzer's disk"  # why a sum that was there is in no release


@dataclass(frozen=True, slots=True)
class StoredSum:
    """One finished round. ``vector``: int64[d], in grid steps, noise included; over ``survivors``
    devices.
    """

    round_id: Digest
    survivors: int
    vector: NDArray[np.signedinteger[Any]]

    def segments(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """The vector, ``LIMITS.array_segment`` coordinates at a time."""
        step = LIMITS.array_segment
        return (self.vector[at : at + step] for at in range(0, len(self.vector), step))


@dataclass(frozen=True, slots=True)
class SumFile:
    """One finished round of long vectors: as ``StoredSum``, read when it is wanted."""

    round_id: Digest
    survivors: int
    file: ArrayFile

    @property
    def vector(self) -> NDArray[np.signedinteger[Any]]:
        """All of it, in memory. Raises MISMATCH: damaged meanwhile."""
        return np.concatenate(list(self.segments()))

    def segments(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """As of ``StoredSum``. Raises MISMATCH: damaged meanwhile."""
        return self.file.segments()


AnySum = StoredSum | SumFile


def sum_form(task: Task) -> ArrayForm | None:
    """The form of the files of a task's sums; None: they stand in their rows."""
    plan = task.pairwise
    if plan is None or not plan.segmented:
        return None
    size = task.domain.size
    return ArrayForm(f"<i{plan.word_bits // 8}", size, min(size, LIMITS.array_segment))


# (sums, rounds that were aborted by reason, what every window and batch before this one cost,
# devices of sums that are damaged) -> what is published, and whether it is
Conclude = Callable[
    [Sequence[AnySum], Mapping[str, int], list[Spending], int], tuple[WindowOutcome, bool]
]


class SumStore:
    """Rounds in the analyzer's store."""

    def __init__(self, store: AnalyzerStore) -> None:
        self._store = store
        self._folder = store.folder / _FOLDER

    def add(
        self,
        task_id: TaskId,
        window: int,
        finished: StoredSum,
        form: ArrayForm | None = None,
    ) -> None:
        """Durable on return; the same round again changes nothing. Raises OVERLOADED (disk),
        WINDOW_CLOSED if the window is released already, CONFLICT if another sum is stored
        under that round.
        """
        if form is None:
            vector = np.ascontiguousarray(finished.vector, dtype=_WORD).tobytes()
        else:
            vector = hashes_of(finished, form)
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
            if form is not None:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                write_array(
                    self._path(finished.round_id), form, finished.segments(), "analyzer.sum_file"
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

    def of(self, task_id: TaskId, window: int, form: ArrayForm | None = None) -> Sequence[AnySum]:
        """Every sum of a window that is what was written, ordered by round id."""
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT {_SUM} FROM sums WHERE task_id = ? AND window = ? ORDER BY round_id",  # noqa: S608 - constant text
                (task_id.raw, window),
            ).fetchall()
        if form is not None:
            return [
                SumFile(Digest(row[2]), row[3], self._file(row, form))
                for row in rows
                if self._sound(row, form)
            ]
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

    def reasons(
        self, task_id: TaskId, window: int, form: ArrayForm | None = None
    ) -> dict[str, int]:
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
        damaged = sum(not fits(row) for row in counts)
        damaged += sum(not self._sound(row, form) for row in sums)
        return {**aborted, DAMAGED: damaged} if damaged else aborted

    def lost(self, task_id: TaskId, window: int, least: int, form: ArrayForm | None = None) -> int:
        """Devices of a window's sums that the disk changed. ``least``: how many a sum has at least,
        where that is damaged too.
        """
        with self._store.reading() as db:
            # constant text
            query = f"SELECT {_SUM}, head FROM sums WHERE task_id = ? AND window = ?"  # noqa: S608
            rows = db.execute(query, (task_id.raw, window)).fetchall()
        bad = [row for row in rows if not self._sound(row[:-1], form)]
        return sum(row[3] if row[-1] == row_digest(*row[:4]) else least for row in bad)

    def unreleased(self) -> set[tuple[TaskId, int]]:
        """Windows that have a sum and no release."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT task_id, window FROM sums EXCEPT SELECT task_id, window FROM "
                "releases"
            ).fetchall()
        return {(TaskId(task_id), window) for task_id, window in rows}

    def finish(
        self,
        task_id: TaskId,
        window: int,
        conclude: Conclude,
        least: int = 0,
        form: ArrayForm | None = None,
    ) -> bool:
        """Release a window, in one transaction; False, and nothing changes, if it is released
        already. ``least``: as for ``lost``.

        The sums of a window that is not published are deleted in the same transaction: none is kept
        of what is withheld.
        """
        with self._store.transaction() as db:
            if self._store.released(task_id, window):
                return False
            lost = self.lost(task_id, window, least, form)
            outcome, published = conclude(
                self.of(task_id, window, form),
                self.reasons(task_id, window, form),
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
        if form is not None:
            self.drop_files()
        return True

    # --- files ------------------------------------------------------------------------------------

    def drop_files(self) -> None:
        """Delete the files of sums whose window is released, and those that no row names: of a
        round whose end was not written down. What can't be deleted stays until the next time.
        """
        if not self._folder.is_dir():
            return
        with contextlib.suppress(OSError), self._store.reading() as db:
            rows = db.execute(
                "SELECT round_id FROM sums WHERE NOT EXISTS (SELECT 1 FROM releases WHERE "
                "releases.task_id = sums.task_id AND releases.window = sums.window)"
            ).fetchall()
            wanted = {self._path(Digest(row[0])).name for row in rows if len(row[0]) == HASH_SIZE}
            for path in self._folder.iterdir():  # as long as nobody else writes to the store
                if path.name not in wanted:
                    path.unlink(missing_ok=True)

    def _path(self, round_id: Digest) -> Path:
        return self._folder / f"{round_id.hex}{_SUFFIX}"

    def _file(self, row: Sequence[Any], form: ArrayForm) -> ArrayFile:
        return ArrayFile(self._path(Digest(row[2])), form, row[4])

    def _sound(self, row: Sequence[Any], form: ArrayForm | None) -> bool:
        """Whether a sum is what was written, row and file."""
        if not fits(row) or form is None:
            return fits(row)
        try:
            self._file(row, form).check()
        except ShoalError:
            return False
        return True


def hashes_of(finished: StoredSum, form: ArrayForm) -> bytes:
    """What the file of a sum would be known by."""
    parts = (np.ascontiguousarray(part, dtype=form.dtype) for part in finished.segments())
    return b"".join(hashlib.sha256(part.data).digest() for part in parts)
