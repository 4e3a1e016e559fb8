"""Reports come in: what the embedded store holds of open windows, and how it grows.

An inbox that lost rows goes on with those that are left, and the loss is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey, TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.shuffler import core
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.distinct import KeySet, place_joined
from shoal.shuffler.stores.joined import DIGEST, Admitted, by_window, join, rows_of, spread
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.sqlite.inbox import Inbox
from shoal.shuffler.stores.sqlite.inbox_salvage import most_rows, salvage_inbox
from shoal.shuffler.stores.sqlite.window_states import WindowStates, typed
from shoal.shuffler.stores.store import AdmittedRows, WindowRecord
from shoal.storage import sqlite
from shoal.storage.sqlite import is_damaged

log = get_log("shuffler")


class Intake(WindowStates):
    """Open windows. All but ``distinct`` and ``confirm`` is for the thread that writes."""

    def __init__(self, folder: Path) -> None:
        """See ``WindowStates``."""
        super().__init__(folder)
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
        self._gone: set[WindowId] = set()  # inboxes that are unlinked, durably

    def distinct(self, window: WindowId) -> int:
        """As ``BlockingStore.distinct``."""
        keys = self._keys.get(window)
        return 0 if keys is None else len(keys)

    def append(self, submissions: Sequence[Admitted]) -> list[Kind | None]:
        """As ``BlockingStore.append``."""
        return by_window(submissions, self._append)

    def _append(self, window: WindowId, items: Sequence[Admitted]) -> list[Kind | None]:
        capacity, row_size = self._tasks[window.task_id]
        rows, fits = join(window, items, capacity, row_size)
        try:
            kinds = self._append_rows(rows, capacity, row_size) if rows.count else []
        except (OSError, sqlite.Error) as error:
            self._forget(window)  # what is on disk is uncertain: read it anew
            kinds = [self._refused(window, error, rows.count)] * rows.count
        return spread(items, fits, kinds)

    def _append_rows(
        self, rows: AdmittedRows, capacity: Capacity, row_size: int
    ) -> list[Kind | None]:
        window = rows.window
        record = self._records.get(window)
        if record is None:
            self._acknowledged.begin(window)
            failpoints.hit("state.open")
            self._put(window, WindowRecord(WindowState.OPEN))
        elif record.state is not WindowState.OPEN:
            full = core.was_full(capacity.distinct, record.reports)
            return [Kind.WINDOW_FULL if full else Kind.WINDOW_CLOSED] * rows.count
        box = self._inbox(window)
        keys = box.joined_keys_of(rows_of(rows.digests, DIGEST))
        held, admitted = self._held(window), self._admitted[window]
        tags = [box.tag(device) for device in rows.devices]
        if tags and window in self._unsure:
            known = held.known(rows_of(keys, StorageKey.SIZE))
            return [None if old else Kind.OVERLOADED for old in known]
        kinds, places, entering = place_joined(keys, held, capacity, tags, admitted)
        if len(places):
            try:
                added = box.append(keys, rows.sealed, places, entering, rows.sizes)
            except sqlite.Error as error:
                if not sqlite.is_full(error):
                    raise
                # Rolled back for certain, so what was held before is still known, and a repeat of
                # it needs no room. But a device that would have been admitted was not: another
                # report of it in this group is no conflict. Nor is the window full.
                self._refused(window, error, len(places))
                flat = rows_of(keys, StorageKey.SIZE)
                fresh = {flat[place] for place in places.tolist()}
                return [
                    Kind.OVERLOADED
                    if key in fresh
                    or kind is Kind.WINDOW_FULL
                    or (kind is Kind.CONFLICT and tags[index] in entering)
                    else kind
                    for index, (key, kind) in enumerate(zip(flat, kinds, strict=True))
                ]
            held.add_joined(added)  # only what is on disk counts
            admitted.add(entering)
            with self._counting:
                self._unconfirmed[window] = len(held) + self._records[window].damaged
        return kinds

    def confirm(self) -> None:
        """As ``BlockingStore.confirm``."""
        with self._confirming, typed(self._folder):
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
        """As ``BlockingStore.close_intake``."""
        self.confirm()
        self.advance(window, WindowState.OPEN, WindowState.CLOSING, reports=self.distinct(window))
        self._forget(window)

    # --- inboxes ----------------------------------------------------------------------------------

    def _inbox(self, window: WindowId) -> Inbox:
        box = self._inboxes.get(window)
        if box is None:
            self._gone.discard(window)
            box = self._inboxes[window] = Inbox(
                self._inbox_path(window), self._tasks[window.task_id][1]
            )
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
        if 0 < len(tags) < len(keys):
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
        most = max(record.acked, self._unconfirmed.get(window, 0)) + LIMITS.writer_queue_rows
        row_size = self._tasks[window.task_id][1]
        some = salvage_inbox(path, max(most, most_rows(path, row_size)), row_size)
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
