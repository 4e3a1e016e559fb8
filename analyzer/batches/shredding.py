"""Deleting what could open reports: the rows and the key of a window that is over.

A window is over when it is released, or when the task's retention has ended before its batch was
complete: then the shuffler has deleted its reports too, and nothing will ever be opened. So it is
when an operator gave it up. A key goes when the last window that uses it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from shoal.analyzer.batches.spool import Spools
from shoal.analyzer.core import Batch, BatchState, retention_over
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.failpoints import hit
from shoal.ids import Digest, KeyId, TaskId
from shoal.log import get_log

log = get_log("analyzer")
TaskWindow = tuple[TaskId, int]


class Shredder:
    """Methods block and may be repeated. They raise KEY_FILE or OSError if something can't be
    deleted.
    """

    def __init__(
        self,
        *,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        spools: Spools,
        clock: SureClock,
        given_up: Collection[TaskWindow] = (),
    ) -> None:
        self._given_up = given_up
        self._store, self._tasks, self._keys, self._spools, self._clock = (
            store,
            tasks,
            keys,
            spools,
            clock,
        )
        # a batch's end and the next offer of it may come at the same moment
        self._lock = threading.Lock()
        self._released: set[Digest] = set()
        self._summed: set[TaskWindow] = set()
        self._expired: set[TaskWindow] = set()
        # keys that may go as soon as the tasks folder can be read again
        self._postponed: set[KeyId] = set()

    def released(self, batch: Batch) -> None:
        """Delete the rows of a DONE batch, and its key unless another window still wants it."""
        with self._lock:
            if batch.manifest_hash not in self._released:
                hit("analyzer.spool.delete")
                self._spools.delete(batch.manifest_hash)
                self._drop_key(batch.manifest.analyzer_key_id)
                self._released.add(batch.manifest_hash)

    def summed(self, task_id: TaskId, window: int) -> None:
        """Delete the key of a released window of rounds, unless another window still wants it."""
        with self._lock:
            if (task_id, window) not in self._summed:
                self._drop_key(self._tasks.get(task_id).keys.analyzer_keys[window].key_id)
                self._summed.add((task_id, window))

    def expired(self, batch: Batch) -> bool:
        """Whether the task's retention forbids to hold this batch any longer, or an operator gave
        it up. False while its task is not served, and while the clock is disputed.
        """
        if not self._tasks.serves(batch.manifest.task_id):
            return False
        if self.is_given_up(batch):
            return True
        now = self._clock.decide()
        return now is not None and retention_over(
            self._tasks.get(batch.manifest.task_id).task, batch.manifest.window, now
        )

    def is_given_up(self, batch: Batch) -> bool:
        """Whether an operator said that nothing of it is to be counted."""
        return _window(batch) in self._given_up

    def nothing_over(self, now: float) -> bool:
        """Whether by that time no key would be deleted that is there: a clock that says so leads to
        nothing that can't be undone.
        """
        over = self._store.over()
        return not any(
            retention_over(served.task, window, now)
            and (served.task_id, window) not in over
            and self._keys.path(config.key_id).exists()
            for served in self._tasks.all()
            for window, config in enumerate(served.keys.analyzer_keys)
        )

    def sweep(self) -> None:
        """The same for windows whose retention is over and whose batch never came, or never
        whole.
        """
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        for key_id in tuple(self._postponed):
            self._drop_key(key_id)
        shreddable = {
            window: batch
            for window, batch in self._expired_windows().items()
            if window not in self._expired
        }
        schedules = {served.task_id: served.keys for served in reversed(self._tasks.known())}
        for (task_id, number), batch in shreddable.items():
            if batch is not None:
                self._spools.delete(batch.manifest_hash)
            self._drop_key(schedules[task_id].analyzer_keys[number].key_id)
            self._expired.add((task_id, number))
        if shreddable:
            log.info(
                "keys of windows that were not released are deleted: retention is over, or an "
                "operator gave them up",
                windows=len(shreddable),
            )

    def _drop_key(self, key_id: KeyId) -> None:
        """Delete the key unless a task wants it, also one that came into the folder since; if the
        folder can't be read, later.
        """
        if not self._tasks.refresh():
            self._postponed.add(key_id)
            log.warning("a window's key is kept until the tasks folder is in order", key_id=key_id)
            return
        over = self._store.over() | self._expired_windows().keys()
        if not self._tasks.users_of(key_id) - over:
            self._keys.delete(key_id)
        self._postponed.discard(key_id)  # not before: what can't be deleted now is tried again

    def _expired_windows(self) -> dict[TaskWindow, Batch | None]:
        """Windows beyond their retention, or given up, with their batch if one was offered; not
        those that are complete: they are finished.
        """
        now = self._clock.decide()
        if now is None and not self._given_up:
            return {}
        batches = {_window(batch): batch for batch in self._store.batches()}
        held = {
            (served.task_id, window): batches.get((served.task_id, window))
            for served in self._tasks.known()
            for window in range(served.task.windows.count)
            if (served.task_id, window) in self._given_up
            or (now is not None and retention_over(served.task, window, now))
        }
        return {
            window: batch
            for window, batch in held.items()
            if batch is None or batch.state is BatchState.RECEIVING
        }


def _window(batch: Batch) -> TaskWindow:
    return batch.manifest.task_id, batch.manifest.window
