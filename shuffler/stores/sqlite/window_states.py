"""The states of windows in the embedded store, what was found damaged, and how a folder is made to
hold together after a crash.

Whatever is damaged, the store opens: a window of which state.db knows nothing any more goes on from
its batch, or its inbox.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.sqlite import batch, disk, inbox
from shoal.shuffler.stores.sqlite.acknowledged import Acknowledged
from shoal.shuffler.stores.sqlite.records import Records
from shoal.shuffler.stores.store import SealedRows, WindowRecord
from shoal.storage import sqlite

log = get_log("shuffler")
_DECIDED = frozenset({WindowState.ACKNOWLEDGED, WindowState.WITHHELD, WindowState.EXPIRED})
_HOLDING = frozenset({WindowState.SEALED, WindowState.DELIVERING})
_FILE = re.compile(r"(inbox|batch)-([0-9a-f]{64})-(\d+)\.(db|rows)(\.tmp)?(-wal|-shm|-journal)?")


class WindowStates:
    """Records of windows, in memory and in state.db. The folder belongs to this process alone
    (``shoal.services.process.DataFolder`` holds the lock).
    """

    def __init__(self, folder: Path) -> None:
        """Open, and finish what a crash interrupted. Raises CONFIG if the folder can't be used or
        doesn't hold together.
        """
        self._folder = folder
        self._lock = threading.Lock()  # around the state connection and the records
        # nobody knows how many of their reports were acknowledged
        self._uncounted: set[WindowId] = set()
        self._damage: dict[str, Condition] = {}
        self._damage_texts: dict[
            str, list[str]
        ] = {}  # of windows: all that was found wrong with them
        try:
            with ExitStack() as opened:  # what does not hold together is closed again
                self._state = Records(folder)
                opened.callback(self._state.close)
                self._records, suspect = self._state.load()
                self._acknowledged = Acknowledged(folder)
                opened.callback(self._acknowledged.close)
                self._recover(suspect)
                opened.pop_all()
        except (OSError, sqlite.Error) as error:
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {folder}: its files can't be opened ({disk.reason_of(error, folder)}): "
                "check rights, or restore them",
            ) from None

    def records(self) -> dict[WindowId, WindowRecord]:
        """As ``BlockingStore.records``."""
        with self._lock:
            return dict(self._records)

    def record(self, window: WindowId) -> WindowRecord | None:
        """One of ``records``, without copying them."""
        return self._records.get(window)

    # --- states -----------------------------------------------------------------------------------

    def advance(
        self,
        window: WindowId,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        """As ``BlockingStore.advance``."""
        with self._lock, typed(self._folder):
            record = self._records.get(window)
            if record is None or record.state is not before:
                raise ShoalError(
                    Kind.INTERNAL,
                    f"window {window.window} of task {window.task_id.short} is not {before.name}",
                )
            record = replace(
                record, state=after, outcome=after if after in _DECIDED else record.outcome
            )
            if sealed is not None:
                record = replace(
                    record,
                    reports=reports,
                    rows=sealed.rows,
                    row_size=sealed.row_size,
                    manifest=manifest,
                    rows_hash=sealed.rows_hash,
                )
                record = replace(record, acked=0, damaged=sealed.damaged)
            elif reports:
                record = replace(record, reports=reports)
            if after is WindowState.SHREDDED:
                record = replace(record, manifest=b"", acked=0)
            failpoints.hit(f"state.{after.name.lower()}")
            self._state.write(window, record)
            self._records[window] = record
        if before is WindowState.OPEN:
            self._acknowledged.forget(window)
        failpoints.hit(f"state.{after.name.lower()}.done")

    def lapse(self, windows: Iterable[WindowId]) -> None:
        """As ``BlockingStore.lapse``."""
        record = WindowRecord(WindowState.SHREDDED, WindowState.WITHHELD)
        with self._lock, typed(self._folder):
            fresh = {window: record for window in windows if window not in self._records}
            self._state.write_all(fresh, "state.lapse")
            self._records.update(fresh)

    def _put(self, window: WindowId, record: WindowRecord) -> None:
        with self._lock:
            self._state.write(window, record)
            self._records[window] = record

    # --- damage -----------------------------------------------------------------------------------

    def _lost(self, window: WindowId, rows: int, what: str) -> None:
        """Count acknowledged rows that are gone, durably: they are not looked for any more."""
        record = self._records[window]
        self._put(window, replace(record, damaged=record.damaged + rows))
        log.error(
            "acknowledged reports are lost", task=window.task_id, window=window.window, count=rows
        )
        self._tell_window(window, what)

    def _tell_window(self, window: WindowId, what: str) -> None:
        subject = f"{window.task_id.short}:{window.window}"
        said, lost = self._damage_texts.setdefault(subject, []), self._records[window].damaged
        if what not in said:
            said.append(what)
        lost_text = (
            f"unknown, its release says {lost}"
            if window in self._uncounted
            else f"{lost}, its release says so"
        )
        text = (
            f"window {window.window} of task {window.task_id.short}: {'; '.join(said)}; "
            f"acknowledged rows lost: {lost_text}"
        )
        self._tell(subject, f"{text}; check the disk")

    def _tell(self, subject: str, text: str) -> None:
        self._damage[subject] = Condition("damage", subject, text, stops=False)

    def damage(self) -> list[Condition]:
        """As ``BlockingStore.damage``."""
        over = {
            f"{window.task_id.short}:{window.window}"
            for window, record in self.records().items()
            if record.state is WindowState.SHREDDED
        }
        return [
            condition for subject, condition in list(self._damage.items()) if subject not in over
        ]

    # --- files ------------------------------------------------------------------------------------

    def _inbox_path(self, window: WindowId, suffix: str = "") -> Path:
        return self._folder / f"inbox-{window.task_id.hex}-{window.window}.db{suffix}"

    def _batch_path(self, window: WindowId) -> Path:
        return self._folder / f"batch-{window.task_id.hex}-{window.window}.rows"

    def _recover(self, suspect: set[WindowId]) -> None:
        """Make files and states fit. ``suspect``: windows whose row in state.db was damaged.

        What a crash left of windows whose inbox or batch is no longer wanted is unlinked, durably.
        """
        if self._state.aside is not None:
            self._tell(
                "state.db",
                f"state.db was damaged and is now {self._state.aside.name}: what could be read of "
                "it was taken over",
            )
        if self._acknowledged.aside is not None:
            self._tell(
                "acknowledged",
                f"acknowledged could not be read and is now {self._acknowledged.aside.name}: check "
                "the disk",
            )
        files = self._files()
        acknowledged = self._acknowledged.all()
        self._recover_unknown(files, acknowledged)
        for window in suspect - self._records.keys():
            self._put(window, WindowRecord(WindowState.SHREDDED, WindowState.EXPIRED))
            log.error(
                "a window's state is lost and it has no files: it is closed",
                task=window.task_id,
                window=window.window,
            )
            self._tell(
                "state.db",
                f"state.db: the row of window {window.window} of task {window.task_id.short} was "
                "damaged: it is closed",
            )
        for window, record in self._records.items():
            if "inbox.tmp" in files.get(window, ()):
                inbox.destroy(self._inbox_path(window, ".tmp"))
            if record.state in _HOLDING or (
                record.state is WindowState.SHREDDED and window in files
            ):
                inbox.destroy(self._inbox_path(window))
            if record.state is WindowState.SHREDDED and window in files:
                batch.destroy(self._batch_path(window))
            if record.state in _HOLDING and not self._batch_path(window).exists():
                self._tell_window(
                    window, f"{self._batch_path(window).name} is missing: restore it from a copy"
                )
            elif (
                record.state is WindowState.OPEN
                and "batch" in files.get(window, ())
                and "inbox" not in files[window]
            ):
                self._put(window, replace(record, state=WindowState.CLOSING))
            if record.damaged and record.state is not WindowState.SHREDDED:
                self._tell_window(window, "its files were damaged")
        self._recover_counts(acknowledged)

    def _recover_unknown(
        self, files: dict[WindowId, set[str]], acknowledged: dict[WindowId, int]
    ) -> None:
        """Windows that have files and no row in state.db."""
        for window in files.keys() - self._records.keys():
            kinds = files[window]
            # A batch gets its name when it is complete; an inbox beside it may have lost its log
            # already.
            self._put(
                window, WindowRecord(WindowState.CLOSING if "batch" in kinds else WindowState.OPEN)
            )
            if "batch" in kinds:
                inbox.destroy(self._inbox_path(window))
            if "batch" in kinds or window not in acknowledged:
                self._uncounted.add(window)
            self._tell_window(window, "state.db lost it: it goes on from its files")

    def _recover_counts(self, acknowledged: dict[WindowId, int]) -> None:
        """Take up what was acknowledged of every open window, and forget the others.

        A count of an open window in state.db is of the version before, which kept them there: it is
        taken once, and removed there.
        """
        for window, record in self._records.items():
            if record.state is not WindowState.OPEN:
                self._acknowledged.forget(window)
                continue
            if window not in acknowledged:
                self._acknowledged.begin(window, record.acked)
                if not record.acked:
                    log.error(
                        "how many reports were acknowledged is lost",
                        task=window.task_id,
                        window=window.window,
                    )
                    self._uncounted.add(window)
                    self._tell_window(
                        window,
                        "its count of acknowledged reports is lost: nobody knows whether its inbox "
                        "lost any",
                    )
            if record.acked:
                self._put(window, record)
            self._records[window] = replace(record, acked=acknowledged.get(window, record.acked))
        for window in acknowledged.keys() - self._records.keys():
            self._acknowledged.forget(window)

    def _files(self) -> dict[WindowId, set[str]]:
        """Windows that have files, and of which kinds."""
        files: dict[WindowId, set[str]] = {}
        for path in self._folder.iterdir():
            parts = _FILE.fullmatch(path.name)
            if parts is not None:
                files.setdefault(WindowId(TaskId.parse(parts[2]), int(parts[3])), set()).add(
                    parts[1] + (parts[5] or "")
                )
        return files


@contextmanager
def typed(folder: Path) -> Iterator[None]:
    """Turns failures of disk and SQLite into OVERLOADED or INTERNAL, without their text."""
    try:
        yield
    except (OSError, sqlite.Error) as error:
        raise ShoalError(disk.kind_of(error, folder), disk.reason_of(error, folder)) from None
