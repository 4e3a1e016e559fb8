"""What this analyzer could not open or release: windows whose key is not there, tasks that left
work behind and are gone.

Each of them is a condition, and ``unserved`` tells the shuffler, which passes it on to devices
before they answer.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator

from shoal.analyzer.core import Batch, BatchState, retention_over
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.rounds.sums import SumStore
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import Clock
from shoal.crypto.trust import ServedTask
from shoal.errors import ShoalError
from shoal.ids import KeyId, TaskId
from shoal.services.conditions import Condition
from shoal.services.given_up import TaskWindow

_NAMED = 3  # windows that one condition lists
_Stamp = tuple[int, int, int, int]


class MissingKeys:
    """``look`` blocks for the disk; what it found last is what ``conditions`` and ``unserved``
    tell.
    """

    def __init__(
        self,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        clock: Clock,
        given_up: Container[TaskWindow] = (),
    ) -> None:
        self._given_up = given_up
        self._store, self._tasks, self._keys, self._clock = store, tasks, keys, clock
        self._lock = threading.Lock()
        # key files that were read and are the key's, as long as they are the same
        self._usable: dict[KeyId, _Stamp] = {}
        self._windows: dict[TaskId, tuple[int, ...]] = {}
        self._unserved: dict[TaskId, tuple[int, ...]] = {}
        self._orphans: frozenset[TaskId] = frozenset()

    def look(self) -> None:
        """See which keys can be read, of every window that is not over; which unfinished work has
        no task.
        """
        with self._lock:
            now, served = self._clock.now(), self._tasks.all()
            over = self._store.over()
            missing = {
                served_task.task_id: self._missing(served_task, over, now) for served_task in served
            }
            over = self._store.over()  # released meanwhile: its key went with it
            windows = {
                task_id: tuple(window for window in some if (task_id, window) not in over)
                for task_id, some in missing.items()
            }
            unfinished = {
                batch.manifest.task_id
                for batch in self._store.batches()
                if batch.state is not BatchState.DONE
                # of one that is given up and never came whole nothing is left
                and not (batch.state is BatchState.RECEIVING and _window(batch) in self._given_up)
            }
            unfinished |= {task_id for task_id, _ in SumStore(self._store).unreleased()}
            self._unserved = {task_id: some for task_id, some in windows.items() if some}
            # of those that are given up nobody misses a key
            needed = {
                task_id: tuple(w for w in some if (task_id, w) not in self._given_up)
                for task_id, some in windows.items()
            }
            self._windows = {task_id: some for task_id, some in needed.items() if some}
            self._orphans = frozenset(unfinished - windows.keys())

    def _missing(
        self, served: ServedTask, over: set[tuple[TaskId, int]], now: float
    ) -> tuple[int, ...]:
        return tuple(
            window
            for window, config in enumerate(served.keys.analyzer_keys)
            if (served.task_id, window) not in over
            and not retention_over(served.task, window, now)
            and ((served.task_id, window) in self._given_up or not self._readable(config.key_id))
        )

    def _readable(self, key_id: KeyId) -> bool:
        try:
            status = self._keys.path(key_id).stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if self._usable.get(key_id) != stamp:
                self._keys.load(key_id)
        except (OSError, ShoalError):
            self._usable.pop(key_id, None)
            return False
        self._usable[key_id] = stamp
        return True

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        for task_id, windows in self._windows.items():
            served = self._tasks.get(task_id)
            files = [
                self._keys.path(served.keys.analyzer_keys[window].key_id).name
                for window in windows[:_NAMED]
            ]
            more = f" and {len(windows) - _NAMED} more" if len(windows) > _NAMED else ""
            yield Condition(
                "key",
                task_id.short,
                f"task {served.task.name}: {len(windows)} windows from {windows[0]} on have no "
                f"readable key: put {', '.join(files)}{more}"
                " back into keys_dir; until then nothing of them can be released",
            )
        for task_id in self._orphans:
            yield Condition(
                "task",
                task_id.short,
                f"data_dir holds an unfinished batch or sum of task {task_id.short}, which is not "
                "served: put its .task and .keys files"
                " back into tasks_dir; until then it is neither released nor deleted",
            )

    def unserved(self, task_id: TaskId) -> tuple[int, ...]:
        """Windows of a served task that could not be opened, or are given up, as of the last
        look.
        """
        return self._unserved.get(task_id, ())


def _window(batch: Batch) -> TaskWindow:
    return batch.manifest.task_id, batch.manifest.window
