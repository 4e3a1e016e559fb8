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

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler import core
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.sqlite import batch, disk, inbox
from shoal.shuffler.stores.sqlite.acknowledged import Acknowledged
from shoal.shuffler.stores.sqlite.distinct import KeySet, place
from shoal.shuffler.stores.sqlite.inbox import Inbox
from shoal.shuffler.stores.sqlite.records import Records
from shoal.shuffler.stores.store import SealedRows, Submission, WindowRecord
from shoal.storage import sqlite
from shoal.storage.sqlite import is_damaged

log = get_log("shuffler")
_DECIDED = frozenset({WindowState.ACKNOWLEDGED, WindowState.WITHHELD, WindowState.EXPIRED})
_HOLDING = frozenset({WindowState.SEALED, WindowState.DELIVERING})
_FILE = re.compile(r"(inbox|batch)-([0-9a-f]{64})-(\d+)\.(db|rows)(\.tmp)?(-wal|-shm|-journal)?")


class SqliteStore:
    """See ``Store``. The folder belongs to this process alone
    (``shoal.services.process.DataFolder`` holds the lock).
    """

    def __init__(self, folder: Path) -> None:
        """Open, and finish what a crash interrupted. Raises CONFIG if the folder can't be used or
        doesn't hold together.
        """
        self._folder = folder
        self._lock = threading.Lock()  # around the state connection and the records
        self._tasks: dict[TaskId, tuple[Capacity, int]] = {}
        self._inboxes: dict[WindowId, Inbox] = {}
        # what open windows hold; changed by the writer's thread alone
        self._keys: dict[WindowId, KeySet] = {}
        # tags of the devices that they admitted, likewise
        self._admitted: dict[WindowId, KeySet] = {}
        # one at a time: who comes second knows that the first one's counts are durable
        self._confirming = threading.Lock()
        self._counting = threading.Lock()
        # rows of windows that are not counted durably yet
        self._unconfirmed: dict[WindowId, int] = {}
        self._unsure: set[WindowId] = set()  # their tags are lost: nobody new is admitted
        self._checked: set[WindowId] = set()  # batches that were read whole and found intact
        self._gone: set[WindowId] = set()  # inboxes that are unlinked, durably
        # nobody knows how many of their reports were acknowledged
        self._uncounted: set[WindowId] = set()
        self._damage: dict[str, Condition] = {}
        self._said: dict[str, list[str]] = {}  # of windows: all that was found wrong with them
        try:
            self._state = Records(folder)
            self._records, suspect = self._state.load()
            self._acknowledged = Acknowledged(folder)
            self._recover(suspect)
        except (OSError, sqlite.Error) as error:
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {folder}: its files can't be opened ({disk.reason_of(error, folder)}): "
                "check rights, or restore them",
            ) from None

    # --- tasks and records ------------------------------------------------------------------------

    def adopt(
        self, task_id: TaskId, schedule_hash: Digest, capacity: Capacity, row_size: int
    ) -> None:
        with self._lock, _typed(self._folder):
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

    def records(self) -> dict[WindowId, WindowRecord]:
        with self._lock:
            return dict(self._records)

    def record(self, window: WindowId) -> WindowRecord | None:
        """One of ``records``, without copying them."""
        return self._records.get(window)

    def distinct(self, window: WindowId) -> int:
        keys = self._keys.get(window)
        return (
            0
            if keys is None
            else core.distinct_reports(len(keys), self._tasks[window.task_id][0].messages)
        )

    # --- intake: the writer's thread alone --------------------------------------------------------

    def append(self, submissions: Sequence[Submission]) -> list[Kind | None]:
        outcome: list[Kind | None] = [None] * len(submissions)
        groups: dict[WindowId, list[int]] = {}
        last, group = None, list[int]()
        for index, submission in enumerate(submissions):
            # hashing an id costs more than the whole rest of this loop
            if submission.window is not last:
                last = submission.window
                group = groups.setdefault(last, [])
            group.append(index)
        for window, indices in groups.items():
            try:
                kinds = self._append(
                    window,
                    submissions if len(groups) == 1 else [submissions[index] for index in indices],
                )
            except (OSError, sqlite.Error) as error:
                self._forget(window)  # what is on disk is uncertain: read it anew
                kinds = [self._refused(window, error, len(indices))] * len(indices)
            if len(groups) == 1:
                return kinds
            for index, one in zip(indices, kinds, strict=True):
                outcome[index] = one
        return outcome

    def _append(self, window: WindowId, reports: Sequence[Submission]) -> list[Kind | None]:
        record = self._records.get(window)
        if record is None:
            self._acknowledged.begin(window)
            failpoints.hit("state.open")
            self._put(window, WindowRecord(WindowState.OPEN))
        elif record.state is not WindowState.OPEN:
            full = core.was_full(self._tasks[window.task_id][0].distinct, record.reports)
            return [Kind.WINDOW_FULL if full else Kind.WINDOW_CLOSED] * len(reports)
        box = self._inbox(window)
        capacity = self._tasks[window.task_id][0]
        sealed = [message for report in reports for message in report.sealed]
        keys = box.keys_of(sealed)
        left, several = iter(keys), capacity.messages > 1 or len(keys) != len(reports)
        keyed = (
            [tuple(islice(left, len(report.sealed))) for report in reports]
            if several
            else list(zip(keys, strict=True))
        )
        held, admitted = self._held(window), self._admitted[window]
        tags = [box.tag(report.device) for report in reports] if reports[0].device else []
        if tags and window in self._unsure:
            return [None if all(held.known(report)) else Kind.OVERLOADED for report in keyed]
        kinds, fresh, entering = place(keyed, held, capacity, tags, admitted)
        if fresh:
            try:
                rows = zip(keys, sealed, strict=True)
                box.append(
                    rows
                    if len(fresh) == len(keys)
                    else {key: one for key, one in rows if key in fresh}.items(),
                    entering,
                )
            except sqlite.Error as error:
                if not sqlite.is_full(error):
                    raise
                # Rolled back for certain, so what was held before is still known, and a repeat of
                # it needs no room. But a device that would have been admitted was not: another
                # report of it in this group is no conflict.
                self._refused(window, error, len(fresh))
                return [
                    Kind.OVERLOADED
                    if any(key in fresh for key in report)
                    or (kind is Kind.CONFLICT and tags[index] in entering)
                    else kind
                    for index, (report, kind) in enumerate(zip(keyed, kinds, strict=True))
                ]
            held.add(fresh)  # only what is on disk counts
            admitted.add(entering)
            with self._counting:
                self._unconfirmed[window] = len(held) + self._records[window].damaged
        return kinds

    def confirm(self) -> None:
        with self._confirming, _typed(self._folder):
            with self._counting:
                counts, self._unconfirmed = self._unconfirmed, {}
            if not counts:
                return
            try:
                self._acknowledged.put(counts)
            except OSError:
                with self._counting:
                    self._unconfirmed = {**counts, **self._unconfirmed}
                raise
            with self._lock:
                for window, rows in counts.items():
                    self._records[window] = replace(self._records[window], acked=rows)

    def _refused(self, window: WindowId, error: OSError | sqlite.Error, count: int) -> Kind:
        failure = ShoalError(disk.kind_of(error, self._folder), disk.reason_of(error, self._folder))
        log.error(
            "reports could not be stored",
            task=window.task_id,
            window=window.window,
            count=count,
            kind=failure.kind,
            error=failure,
        )
        return failure.kind

    def close_intake(self, window: WindowId) -> None:
        self.confirm()
        self.advance(window, WindowState.OPEN, WindowState.CLOSING, reports=self.distinct(window))
        self._forget(window)

    def _inbox(self, window: WindowId) -> Inbox:
        box = self._inboxes.get(window)
        if box is None:
            self._gone.discard(window)
            box = self._inboxes[window] = Inbox(self._inbox_path(window))
        return box

    def _held(self, window: WindowId) -> KeySet:
        keys = self._keys.get(window)
        if keys is None:
            try:
                keys = self._read_inbox(window)
            except sqlite.Error as error:
                if not is_damaged(error):
                    raise
                self._salvage(window)
                keys = self._read_inbox(window)
            self._keys[window] = keys
        return keys

    def _read_inbox(self, window: WindowId) -> KeySet:
        """What the inbox holds, compared with what was acknowledged of it: what is missing is
        counted before anything else happens.
        """
        box = self._inbox(window)
        keys, tags = box.keys(), box.tags()
        record = self._records[window]
        missing = record.acked - record.damaged - box.rows
        if missing > 0:
            self._lost(window, missing, f"{self._inbox_path(window).name} lost rows")
        if len(tags) and len(tags) * self._tasks[window.task_id][0].messages < len(keys):
            self._unsure.add(window)
            self._tell_window(
                window,
                "the devices that reported are not all known any more: it takes no new report",
            )
        self._admitted[window] = tags
        # also what came before a crash and was not counted any more, and all of it where the count
        # was lost
        with self._counting:
            self._unconfirmed[window] = len(keys) + self._records[window].damaged
        return keys

    def _salvage(self, window: WindowId) -> None:
        """Go on with what can be read of a damaged inbox: what it lost is counted when it is read
        again.
        """
        self._forget(window)
        path, record = self._inbox_path(window), self._records[window]
        counted = max(record.acked, self._unconfirmed.get(window, 0)) + LIMITS.writer_queue_rows
        some = inbox.salvage(
            path, max(counted, inbox.most_rows(path, self._tasks[window.task_id][1]))
        )
        log.error(
            "an inbox is damaged",
            task=window.task_id,
            window=window.window,
            reason="salvaged" if some else "lost",
        )
        self._tell_window(
            window,
            f"{path.name} is damaged: "
            f"{'what can be read of it is kept' if some else 'nothing of it can be read'}",
        )

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
        said, lost = self._said.setdefault(subject, []), self._records[window].damaged
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
        over = {
            f"{window.task_id.short}:{window.window}"
            for window, one in self.records().items()
            if one.state is WindowState.SHREDDED
        }
        return [one for subject, one in list(self._damage.items()) if subject not in over]

    def _forget(self, window: WindowId) -> None:
        """Close the inbox and drop its keys and tags; all are made anew from the file when
        needed.
        """
        self._keys.pop(window, None)
        self._admitted.pop(window, None)
        box = self._inboxes.pop(window, None)
        if box is not None:
            try:
                box.close()
            except sqlite.Error as error:
                log.warning(
                    "an inbox did not close cleanly",
                    task=window.task_id,
                    window=window.window,
                    error=error,
                )

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
        with self._lock, _typed(self._folder):
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
        record = WindowRecord(WindowState.SHREDDED, WindowState.WITHHELD)
        with self._lock, _typed(self._folder):
            fresh = {window: record for window in windows if window not in self._records}
            self._state.write_all(fresh, "state.lapse")
            self._records.update(fresh)

    def _put(self, window: WindowId, record: WindowRecord) -> None:
        with self._lock:
            self._state.write(window, record)
            self._records[window] = record

    # --- batches ----------------------------------------------------------------------------------

    def held(self, window: WindowId) -> int:
        with _typed(self._folder):
            path = self._inbox_path(window)
            return inbox.count_rows(path) if path.exists() else 0

    def seal(self, window: WindowId) -> SealedRows:
        """Streams the sorted inbox into the batch file; memory flat in the number of reports."""
        with _typed(self._folder):
            path, record = self._inbox_path(window), self._records[window]
            failpoints.hit("seal.read")
            finished = None if path.exists() else self._finished(window)
            if finished is not None:
                return finished
            sealed, tally = self._seal(window)
        missing = max(0, record.acked - record.damaged - tally.rows)
        if missing or tally.damaged:
            log.error(
                "reports of a window are damaged",
                task=window.task_id,
                window=window.window,
                count=missing + tally.damaged,
            )
            self._tell_window(
                window, f"{path.name}: {missing} rows are missing, {tally.damaged} damaged"
            )
        return replace(sealed, damaged=record.damaged + missing + tally.damaged)

    def _seal(self, window: WindowId) -> tuple[SealedRows, inbox.Tally]:
        path, tally, row_size = (
            self._inbox_path(window),
            inbox.Tally(),
            self._tasks[window.task_id][1],
        )
        for last in (False, True):
            messages = (
                inbox.distinct_sorted(path, self._folder, row_size, tally)
                if path.exists()
                else iter(())
            )
            try:
                return batch.write(self._batch_path(window), messages, row_size), tally
            except sqlite.Error as error:
                if last or not is_damaged(error):
                    raise
                self._salvage(window)
        raise AssertionError  # the second time returns or raises

    def _finished(self, window: WindowId) -> SealedRows | None:
        """A complete batch without an inbox: it was sealed, and state.db forgot."""
        path = self._batch_path(window)
        found = batch.survey(path) if path.exists() else None
        return (
            found
            if found is not None
            and found.row_size == self._tasks[window.task_id][1]
            and batch.intact(path, found)
            else None
        )

    def destroy_inbox(self, window: WindowId) -> None:
        if window not in self._gone:
            with _typed(self._folder):
                inbox.destroy(self._inbox_path(window))
            self._gone.add(window)

    def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        record, path = self._records[window], self._batch_path(window)
        try:
            with _typed(self._folder):
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
        path, before = self._batch_path(window), self._records[window].sealed
        with _typed(self._folder):
            if window in self._checked or not path.exists():
                return None
            if batch.intact(path, before):
                self._checked.add(window)
                return None
            # a crash may have come between the mended file and its record
            after = batch.survey(path)
            if after is None or after.rows >= before.rows or not batch.intact(path, after):
                after = batch.mend(path, before)
        after = replace(after, damaged=before.damaged + before.rows - after.rows)
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
        self._forget(window)
        record = self._records.get(window)
        if record is not None:
            # what is deleted on purpose is not missed
            self._records[window] = replace(record, acked=0)
        with _typed(self._folder):
            for suffix in ("", ".tmp"):
                inbox.destroy(self._inbox_path(window, suffix))
            batch.destroy(self._batch_path(window))

    def close(self) -> None:
        for window in list(self._inboxes):
            self._forget(window)
        self._acknowledged.close()
        self._state.close()

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
        counted = self._acknowledged.all()
        self._recover_unknown(files, counted)
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
        self._recover_counts(counted)

    def _recover_unknown(
        self, files: dict[WindowId, set[str]], counted: dict[WindowId, int]
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
            if "batch" in kinds or window not in counted:
                self._uncounted.add(window)
            self._tell_window(window, "state.db lost it: it goes on from its files")

    def _recover_counts(self, counted: dict[WindowId, int]) -> None:
        """Take up what was acknowledged of every open window, and forget the others.

        A count of an open window in state.db is of the version before, which kept them there: it is
        taken once, and removed there.
        """
        for window, record in self._records.items():
            if record.state is not WindowState.OPEN:
                self._acknowledged.forget(window)
                continue
            if window not in counted:
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
            self._records[window] = replace(record, acked=counted.get(window, record.acked))
        for window in counted.keys() - self._records.keys():
            self._acknowledged.forget(window)

    def _files(self) -> dict[WindowId, set[str]]:
        """Windows that have files, and of which kinds."""
        found: dict[WindowId, set[str]] = {}
        for path in self._folder.iterdir():
            parts = _FILE.fullmatch(path.name)
            if parts is not None:
                found.setdefault(WindowId(TaskId.parse(parts[2]), int(parts[3])), set()).add(
                    parts[1] + (parts[5] or "")
                )
        return found


@contextmanager
def _typed(folder: Path) -> Iterator[None]:
    """Turns failures of disk and SQLite into OVERLOADED or INTERNAL, without their text."""
    try:
        yield
    except (OSError, sqlite.Error) as error:
        raise ShoalError(disk.kind_of(error, folder), disk.reason_of(error, folder)) from None
