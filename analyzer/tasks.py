"""The tasks that this analyzer serves, from a folder of signed tasks and key schedules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from shoal.accounting.memoized import check_memoized
from shoal.accounting.sum_task import check_sum
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, ServedTask, load_task_folder
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.log import get_log
from shoal.mechanisms import create

log = get_log("analyzer")
Stamp = frozenset[tuple[str, int, int]]


class TaskFolder:
    """``signing_key``: our Ed25519 public key; a task that names another analyzer is none of ours.

    ``check_keys`` raises KEY_FILE for a task whose keys are not all there. Raises on construction what ``load_task_folder`` and
    ``check_keys`` raise, and CONFIG for a task that this analyzer can't serve.
    """

    def __init__(
        self, folder: Path, authorities: Collection[bytes], signing_key: bytes, check_keys: Callable[[ServedTask], None] = lambda _: None
    ) -> None:
        self._folder, self._authorities, self._signing_key = folder, authorities, signing_key
        self._check_keys = check_keys
        self._lock = threading.Lock()  # a signal, a call and a sweep may ask at the same moment
        self._stamp = self._look()
        self._tasks = self._load()
        for served in self._tasks.values():
            check_keys(served)
        self._in_order = True  # whether what is served is what the folder held when it was last read
        self._complaint = ""  # why it is not: said once, not at every look

    def all(self) -> list[ServedTask]:
        return list(self._tasks.values())

    def get(self, task_id: TaskId) -> ServedTask:
        """Reads the folder again if the task is unknown and the folder has changed. Raises UNKNOWN_TASK."""
        if task_id not in self._tasks and self._look() != self._stamp:
            self.reload()
        served = self._tasks.get(task_id)
        if served is None:
            raise ShoalError(Kind.UNKNOWN_TASK, "this analyzer does not serve the task: put its signed files into the tasks folder")
        return served

    def refresh(self) -> bool:
        """Read the folder again if it changed, or was not in order; whether everything in it is known now."""
        with self._lock:
            if not self._in_order or self._look() != self._stamp:
                self._reload()
            return self._in_order

    def reload(self) -> None:
        """Read the folder again. Tasks are only ever added: one whose files went away is served until the next start.

        If the folder is not in order, everything stays as it was and the log says why. A new task with a missing key is served
        for its other windows, and the log names the file: to refuse it would lose them as well.
        """
        with self._lock:
            self._reload()

    def _reload(self) -> None:
        stamp = self._look()
        try:
            loaded = self._load()
            for task_id, known in self._tasks.items():
                if task_id in loaded and loaded[task_id].keys.digest != known.keys.digest:
                    raise ShoalError(
                        Kind.CONFLICT, f"task {known.task.name}: another key schedule than the one served so far: put that one back"
                    )
        except Exception as error:  # noqa: BLE001 - whatever a file does to its reader, the service goes on
            self._in_order = False
            if str(error) != self._complaint:
                log.error("tasks folder not taken: the tasks served before stay", error=error)
            self._complaint = str(error)
        else:
            new = [served for task_id, served in loaded.items() if task_id not in self._tasks]
            self._tasks = {**self._tasks, **loaded}
            for served in new:
                try:
                    self._check_keys(served)
                except ShoalError as error:
                    log.error("a new task lacks a key", task=served.task_id, error=error)
            self._in_order, self._complaint = True, ""
            log.info("tasks read", tasks=len(self._tasks))
        self._stamp = stamp

    def users_of(self, key_id: KeyId) -> set[tuple[TaskId, int]]:
        """Every (task, window) whose reports are sealed for that analyzer key."""
        return {
            (served.task_id, window)
            for served in self._tasks.values()
            for window, config in enumerate(served.keys.analyzer_keys)
            if config.key_id == key_id
        }

    def _look(self) -> Stamp:
        """Names, sizes and times of the folder's files: cheap to compare."""
        found = set()
        with contextlib.suppress(OSError):  # the folder can't be listed: who loads it says so
            for path in [path for suffix in (TASK_SUFFIX, SCHEDULE_SUFFIX) for path in self._folder.glob(f"*{suffix}")]:
                with contextlib.suppress(OSError):  # it went away meanwhile
                    status = path.stat()
                    found.add((path.name, status.st_size, status.st_mtime_ns))
        return frozenset(found)

    def _load(self) -> dict[TaskId, ServedTask]:
        loaded = load_task_folder(self._folder, self._authorities)
        for served in loaded.values():
            self._check(served)
        return loaded

    def _check(self, served: ServedTask) -> None:
        task = served.task
        if task.analyzer_key != self._signing_key:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name}: its analyzer_key is not the public key of our signing_key: remove the task, or mend the key",
            )
        if task.pairwise is not None:
            check_sum(task)
            return
        mechanism = create(task.mechanism, task.domain)
        if (mechanism.report_size, mechanism.messages) != (task.report_size, task.messages):
            raise ShoalError(Kind.CONFIG, f"task {task.name}: report_size or messages are not those of its mechanism {mechanism.name}")
        check_memoized(task, mechanism)
