"""The tasks that this analyzer serves, from a folder of signed tasks and key schedules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from shoal.accounting.lint.servable import check_servable
from shoal.crypto.trust import (
    SCHEDULE_SUFFIX,
    TASK_SUFFIX,
    Refused,
    ServedTask,
    TaskFiles,
    load_task_folder,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition

log = get_log("analyzer")
Stamp = frozenset[tuple[str, int, int, int]]


class TaskFolder:
    """``signing_key``: our Ed25519 public key; a task that names another analyzer is none of ours.

    A task that can't be served is named by ``conditions`` and stops no other. Raises CONFIG on
    construction if there is no folder.
    """

    def __init__(self, folder: Path, authorities: Collection[bytes], signing_key: bytes) -> None:
        self._folder, self._authorities, self._signing_key = folder, authorities, signing_key
        self._lock = threading.Lock()  # a signal, a call and a sweep may ask at the same moment
        self._tasks: dict[TaskId, ServedTask] = {}
        self._refused: tuple[Refused, ...] = ()
        self._told: dict[str, str] = {}  # what was said of each file: once, not at every look
        self._unread = ""  # why the folder as a whole can't be read
        self._stamp = self._look()
        self._take(load_task_folder(self._folder, self._authorities))

    def all(self) -> list[ServedTask]:
        return list(self._tasks.values())

    def serves(self, task_id: TaskId) -> bool:
        """Whether the task is served now, without another look at the folder."""
        return task_id in self._tasks

    def get(self, task_id: TaskId) -> ServedTask:
        """Reads the folder again if the task is unknown and the folder has changed. Raises
        UNKNOWN_TASK.
        """
        if task_id not in self._tasks and self._look() != self._stamp:
            self.reload()
        served = self._tasks.get(task_id)
        if served is None:
            raise ShoalError(
                Kind.UNKNOWN_TASK,
                "this analyzer does not serve the task: put its signed files into the tasks folder",
            )
        return served

    def conditions(self) -> Iterator[Condition]:
        """What is not served, and why, for ``Conditions.watch``."""
        if self._unread:
            yield Condition(
                "task", "", f"{self._unread}: the tasks served before stay, and no key is deleted"
            )
        for one in self._refused:
            yield Condition("task", one.name, f"{one.error}; not served")

    def refresh(self) -> bool:
        """Read the folder again if it changed, or could not be read; whether every key that a file
        in it names is known now.
        """
        with self._lock:
            again = self._unread or any(one.error.kind is Kind.CONFIG for one in self._refused)
            if again or self._look() != self._stamp:
                self._reload()
            return not self._unread and all(one.served is not None for one in self._refused)

    def reload(self) -> None:
        """Read the folder again. Tasks are only ever added: one whose files went away is served
        until the next start.

        What is wrong with a file is a condition, and leaves its task as it was. A task with a
        missing key is served for its other windows (``MissingKeys``): to refuse it would lose them
        as well.
        """
        with self._lock:
            self._reload()

    def _reload(self) -> None:
        stamp = self._look()
        # whatever a folder does to its reader, the service goes on
        try:
            files = load_task_folder(self._folder, self._authorities)
        except Exception as error:  # noqa: BLE001
            what = (
                str(error)
                if isinstance(error, ShoalError)
                else f"the tasks folder can't be read ({type(error).__name__})"
            )
            if what != self._unread:
                log.error("tasks folder not taken: the tasks served before stay", error=error)
            self._unread = what
        else:
            self._unread = ""
            self._take(files)
        self._stamp = stamp

    def _take(self, files: TaskFiles) -> None:
        """Serve what can be served, note what can't."""
        taken, refused = dict(self._tasks), list(files.refused)
        for task_id, one in files.served.items():
            name, known = files.names[task_id], self._tasks.get(task_id)
            # a task that its mechanism can't be made for stops no other
            try:
                if known is not None and known.keys.digest != one.keys.digest:
                    raise ShoalError(
                        Kind.CONFLICT,
                        f"task {one.task.name}: another key schedule than the one served so far: "
                        "put that one back",
                    )
                self._check(one)
            except Exception as error:  # noqa: BLE001
                why = (
                    error
                    if isinstance(error, ShoalError)
                    else ShoalError(Kind.INVALID, f"task {one.task.name} can't be used")
                )
                refused.append(Refused(name, ShoalError(why.kind, f"{name}: {why}"), one))
            else:
                taken[task_id] = known or one
        self._tasks, self._refused = taken, tuple(refused)
        for bad in refused:
            if self._told.get(bad.name) != str(bad.error):
                log.error("a task is not served", error=bad.error)
        self._told = {bad.name: str(bad.error) for bad in refused}
        log.info("tasks read", tasks=len(taken), count=len(refused))

    def users_of(self, key_id: KeyId) -> set[tuple[TaskId, int]]:
        """Every (task, window) whose reports are sealed for that analyzer key, of refused tasks
        too: they may be mended.
        """
        return {
            (served.task_id, window)
            for served in self.known()
            for window, config in enumerate(served.keys.analyzer_keys)
            if config.key_id == key_id
        }

    def known(self) -> list[ServedTask]:
        """Served tasks, and those that verify and are not served; of one with two schedules
        both.
        """
        return [
            *self._tasks.values(),
            *(one.served for one in self._refused if one.served is not None),
        ]

    def _look(self) -> Stamp:
        """Names, sizes and times of the folder's files: cheap to compare."""
        found = set()
        with contextlib.suppress(OSError):  # the folder can't be listed: who loads it says so
            for path in [
                path
                for suffix in (TASK_SUFFIX, SCHEDULE_SUFFIX)
                for path in self._folder.glob(f"*{suffix}")
            ]:
                with contextlib.suppress(OSError):  # it went away meanwhile
                    status = path.stat()
                    found.add((path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return frozenset(found)

    def _check(self, served: ServedTask) -> None:
        task = served.task
        if task.analyzer_key != self._signing_key:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name}: its analyzer_key is not the public key of our signing_key: "
                "remove the task, or mend the key",
            )
        check_servable(task)
