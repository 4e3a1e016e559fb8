"""The embedded store: SQLite files in one folder, for one shuffler process.

    state.db
    windows and their states; tiny, one row per window (``records``)
    acknowledged
    how many rows of every open window were acknowledged (``acknowledged``)
    inbox-<task>-<window>.db
    an open window: reports in arrival groups, its secret, tags of admitted devices (``inbox``)
    batch-<task>-<window>.rows       a sealed window's reports in storage key order (``batch``)

The order of durable steps is what makes a crash harmless: the entry in ``acknowledged`` before the
state row OPEN; that before the first inbox row; inbox rows before they are counted, and the count
before anybody hears of it; CLOSING, with the count, before sealing; the batch file, complete and
synced, before SEALED; SEALED before the inbox is unlinked; ACKNOWLEDGED before the batch is
unlinked; SHREDDED last. Sealing again from the same inbox writes the same bytes.

Whatever is damaged, the store opens. An inbox that lost rows goes on with those that are left, and
the loss is counted; a window of which state.db knows nothing any more goes on from its batch, or
its inbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shoal import failpoints
from shoal.errors import ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.sqlite import batch, inbox
from shoal.shuffler.stores.sqlite.intake import Intake
from shoal.shuffler.stores.sqlite.window_states import typed
from shoal.shuffler.stores.store import SealedRows
from shoal.storage import sqlite
from shoal.storage.sqlite import is_damaged

log = get_log("shuffler")


class SqliteStore(Intake):
    """See ``BlockingStore``. The folder belongs to this process alone
    (``shoal.services.process.DataFolder`` holds the lock).
    """

    def __init__(self, folder: Path) -> None:
        """See ``WindowStates``."""
        super().__init__(folder)
        self._checked: set[WindowId] = set()  # batches that were read whole and found intact

    def adopt(
        self, task_id: TaskId, schedule_hash: Digest, capacity: Capacity, row_size: int
    ) -> None:
        """As ``BlockingStore.adopt``."""
        with self._lock, typed(self._folder):
            if not self._state.schedule(task_id, schedule_hash):
                self._tell(
                    "state.db",
                    f"state.db: the row of task {task_id.short} was damaged: its key schedule was "
                    "entered anew",
                )
        self._tasks[task_id] = (capacity, row_size)
        for window in [
            w
            for w, record in self.records().items()
            if w.task_id == task_id and record.state is WindowState.OPEN
        ]:
            try:
                self._held(window)
            except (OSError, sqlite.Error) as error:  # tried again with its next report
                log.error("an inbox can't be read", task=task_id, window=window.window, error=error)
                self._tell_window(window, f"{self._inbox_path(window).name} can't be read")

    # --- batches ----------------------------------------------------------------------------------

    def held(self, window: WindowId) -> int:
        """As ``BlockingStore.held``."""
        with typed(self._folder):
            path, (capacity, row_size) = self._inbox_path(window), self._tasks[window.task_id]
            if not path.exists():
                return 0
            count = inbox.count_reports if capacity.several else inbox.count_rows
            return count(path, row_size)

    def seal(self, window: WindowId, added: Sequence[bytes] = ()) -> SealedRows:
        """Streams the sorted inbox into the batch file; memory flat in the number of reports."""
        with typed(self._folder):
            path, record = self._inbox_path(window), self._records[window]
            failpoints.hit("seal.read")
            finished = None if path.exists() else self._finished(window)
            if finished is not None:
                return finished
            sealed, tally = self._seal(window, added)
        # Distinct ones, as they were counted: what a damaged disk shows twice counts once.
        lost = max(0, record.acked - record.damaged - sealed.reports)
        if not record.acked:  # nobody knows how many there were
            lost = tally.damaged
        if lost:
            log.error(
                "reports of a window are damaged",
                task=window.task_id,
                window=window.window,
                count=lost,
            )
            there = min(tally.damaged, lost)
            self._tell_window(
                window, f"{path.name}: {lost - there} reports are missing, {there} damaged"
            )
        return replace(sealed, damaged=record.damaged + lost).within_rows()

    def _seal(self, window: WindowId, added: Sequence[bytes]) -> tuple[SealedRows, inbox.RowsRead]:
        path, (capacity, row_size) = self._inbox_path(window), self._tasks[window.task_id]
        for last in (False, True):
            tally = inbox.RowsRead(reports=KeySet() if capacity.several else None)
            messages = (
                inbox.distinct_sorted(path, self._folder, row_size, tally, added)
                if path.exists()
                else iter(())
            )
            try:
                sealed = batch.write(self._batch_path(window), messages, row_size)
                if tally.reports is not None:
                    return replace(sealed, reports=len(tally.reports)), tally
                return replace(sealed, reports=sealed.rows - tally.added), tally
            except sqlite.Error as error:
                if last or not is_damaged(error):
                    raise
                self._salvage(window)
        raise AssertionError  # the second time returns or raises

    def _finished(self, window: WindowId) -> SealedRows | None:
        """A complete batch without an inbox: it was sealed, and state.db forgot."""
        path = self._batch_path(window)
        survey = batch.survey(path) if path.exists() else None
        capacity, row_size = self._tasks[window.task_id]
        if survey is None or survey.row_size != row_size or not batch.intact(path, survey):
            return None
        if not capacity.several and not capacity.added:
            return survey
        # what is known for certain: as many as were counted when it was closed, or as few as it can
        # be
        if counted := self._records[window].reports:
            return replace(survey, reports=counted).within_rows()
        # Whether any are missing is forgotten as well: told as one, so that nobody takes it for a
        # batch that is sure to be whole.
        reports = max(0, -(-(survey.rows - capacity.added) // capacity.messages))
        return replace(survey, reports=reports, damaged=max(1, survey.damaged)).within_rows()

    def destroy_inbox(self, window: WindowId) -> None:
        """As ``BlockingStore.destroy_inbox``."""
        if window not in self._gone:
            with typed(self._folder):
                inbox.destroy(self._inbox_path(window))
            self._gone.add(window)

    def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        """As ``BlockingStore.read_rows``."""
        record, path = self._records[window], self._batch_path(window)
        try:
            with typed(self._folder):
                return batch.read(
                    path, record.rows, record.row_size, first, min(count, record.rows - first)
                )
        except ShoalError:
            self._checked.discard(window)
            self._tell_window(
                window,
                f"{path.name} is damaged or missing: restore it from a copy, or what is left of it "
                "is delivered",
            )
            raise

    def mend(self, window: WindowId) -> SealedRows | None:
        """As ``BlockingStore.mend``."""
        path, before = self._batch_path(window), self._records[window].sealed
        with typed(self._folder):
            if window in self._checked or not path.exists():
                return None
            if batch.intact(path, before):
                self._checked.add(window)
                return None
            # a crash may have come between the mended file and its record
            after = batch.survey(path)
            if after is None or after.rows >= before.rows or not batch.intact(path, after):
                after = batch.mend(path, before)
        lost = before.rows - after.rows
        after = replace(after, damaged=before.damaged + lost, reports=max(0, before.reports - lost))
        log.error(
            "rows of a batch are damaged",
            task=window.task_id,
            window=window.window,
            count=before.rows - after.rows,
        )
        self._tell_window(
            window,
            f"{path.name}: {before.rows - after.rows} rows were damaged after sealing and are left "
            "out",
        )
        return after

    def shred(self, window: WindowId) -> None:
        """As ``BlockingStore.shred``."""
        self._forget(window)
        record = self._records.get(window)
        if record is not None:
            # what is deleted on purpose is not missed
            self._records[window] = replace(record, acked=0)
        with typed(self._folder):
            for suffix in ("", ".tmp"):
                inbox.destroy(self._inbox_path(window, suffix))
            batch.destroy(self._batch_path(window))

    def close(self) -> None:
        """As ``BlockingStore.close``."""
        for window in list(self._inboxes):
            self._forget(window)
        self._acknowledged.close()
        self._state.close()
