"""A folder of signed tasks and key schedules that a service reads at its start and again later.

What is wrong with one file is a condition and stops no other task. Tasks are only ever added: a
file that goes away leaves its task served until the next start. What a service needs before it
serves a task is its own (``TaskFolder.take_up``).
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, ServedTask, read_file, serve_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.conditions import Condition

_LARGEST = LIMITS.schedule_bytes + LIMITS.task_bytes - 1  # bytes of a file that a service reads
# What a task that verifies is refused for by what it says itself: another look changes nothing.
_FINAL = frozenset({Kind.CONFIG, Kind.CONFLICT, Kind.INVALID})
_Stamp = frozenset[tuple[str, int, int, int]]


@dataclass(frozen=True, slots=True)
class Refused:
    """A ``NAME.task`` that is not served. ``served``: the task, if its files verify and something
    else is wrong with it.
    """

    name: str
    error: ShoalError
    served: ServedTask | None = None


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """What a folder of tasks holds. ``names``: the file of each served task."""

    served: dict[TaskId, ServedTask]
    names: dict[TaskId, str]
    refused: tuple[Refused, ...]


def load_task_folder(folder: Path, authorities: Collection[bytes]) -> TaskFiles:
    """Every ``NAME.task`` of a folder with its ``NAME.keys``. What is wrong with one of them is
    told in ``refused``, and stops no other.

    A copy of a task is refused; two files that give one task different schedules are both: nobody
    can tell which is meant. Raises CONFIG if there is no such folder, or it can't be listed.
    """
    if not folder.is_dir():
        raise ShoalError(
            Kind.CONFIG,
            f"tasks folder {folder} does not exist: make it and put signed tasks (*.task, *.keys) "
            "there",
        )
    by_task: dict[TaskId, list[tuple[str, ServedTask]]] = {}
    refused: list[Refused] = []
    try:
        listed = sorted(entry for entry in os.listdir(folder) if entry.endswith(TASK_SUFFIX))
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"tasks folder {folder} can't be read: {error.strerror or 'unreadable'}"
        ) from None
    for name in listed:
        path = folder / name
        # whatever a file does to its reader, the others are read
        try:
            served_task = serve_task(
                read_file(path, _LARGEST),
                read_file(path.with_suffix(SCHEDULE_SUFFIX), _LARGEST),
                authorities,
            )
        except ShoalError as error:
            refused.append(Refused(name, ShoalError(error.kind, f"{name}: {error}")))
        except Exception as error:  # noqa: BLE001
            refused.append(
                Refused(
                    name,
                    ShoalError(Kind.INVALID, f"{name}: it can't be read ({type(error).__name__})"),
                )
            )
        else:
            by_task.setdefault(served_task.task_id, []).append((name, served_task))
    served: dict[TaskId, ServedTask] = {}
    names: dict[TaskId, str] = {}
    for task_id, files in by_task.items():
        agree = len({served_task.keys.digest for _, served_task in files}) == 1
        if agree:
            names[task_id], served[task_id] = files[0]
        for name, served_task in files[agree:]:
            what = (
                "the same task is in the folder twice"
                if agree
                else "two files give this task different key schedules"
            )
            refused.append(
                Refused(
                    name,
                    ShoalError(Kind.CONFLICT, f"{name}: {what}: remove one of the two"),
                    served_task,
                )
            )
    return TaskFiles(served, names, tuple(refused))


class TaskFolder(ABC):
    """The tasks of a folder that a service serves. Methods may be called from several threads.

    Raises CONFIG on construction if there is no folder, or it can't be listed.
    """

    def __init__(
        self, folder: Path, authorities: Collection[bytes], service: str, key_word: str = "key"
    ) -> None:
        """``service``: its log; ``key_word``: what its keys are called in messages. A subclass
        sets what ``take_up`` needs before.
        """
        self._folder, self._authorities, self._key_word = folder, authorities, key_word
        self._reading_log = get_log(service)
        # A signal, a call and a sweep may ask at the same moment.
        self._reading = threading.Lock()
        self.served: dict[TaskId, ServedTask] = {}  # replaced, never changed
        self._refused: tuple[Refused, ...] = ()
        self._told: dict[str, str] = {}  # what was said of each file: once, not at every look
        self._unread = ""  # why the folder as a whole can't be read
        self._stamp: _Stamp | None = None
        self._read()

    @abstractmethod
    def take_up(self, served: ServedTask) -> None:
        """Prepare to serve a task that verifies and is not served yet. If it raises, nothing has
        changed, the task is refused, and tried again if that may help.

        Raises CONFIG or INVALID (it can never be served), CONFLICT, and what may pass.
        """

    def refresh(self) -> bool:
        """Read the folder again if it changed, or could not be read; try again what was refused
        and may be served by now. Never fails: what is wrong is a condition.

        Whether every key that a file in the folder names is known now.
        """
        with self._reading:
            return self._refresh(self._changed() or self._passing())

    def reload(self) -> bool:
        """The same, and the folder is read whether it changed or not."""
        with self._reading:
            return self._refresh(True)

    def changed(self) -> bool:
        """Whether the folder holds other files than when it was read."""
        with self._reading:
            return self._changed()

    def conditions(self) -> Iterator[Condition]:
        """What is not served, and why, for ``Conditions.watch``."""
        if self._unread:
            yield Condition(
                "task",
                "",
                f"{self._unread}: the tasks served before stay, and no {self._key_word} is deleted",
            )
        for refused in self._refused:
            code = "key" if refused.error.kind is Kind.KEY_FILE else "task"
            yield Condition(code, refused.name, f"{refused.error}; not served")

    def refused(self) -> list[ServedTask]:
        """Tasks that verify and are not served: they may be mended. Of one with two schedules
        both.
        """
        return [refused.served for refused in self._refused if refused.served is not None]

    def _refresh(self, read: bool) -> bool:
        # whatever a folder does to its reader, the service goes on
        try:
            if read:
                self._read()
                self._reading_log.info(
                    "tasks read", tasks=len(self.served), count=len(self._refused)
                )
            else:
                self._try_again()
        except Exception as error:  # noqa: BLE001
            what = (
                str(error)
                if isinstance(error, ShoalError)
                else f"the tasks folder can't be read ({type(error).__name__})"
            )
            if what != self._unread:
                self._reading_log.error(
                    f"tasks folder not taken: the tasks served before stay, and no "
                    f"{self._key_word} is deleted",
                    error=error,
                )
            self._unread = what
            return False
        return all(refused.served is not None for refused in self._refused)

    def _read(self) -> None:
        stamp = self._look()
        files = load_task_folder(self._folder, self._authorities)
        self._settle(
            ((files.names[task_id], task) for task_id, task in files.served.items()), files.refused
        )
        self._stamp, self._unread = stamp, ""

    def _try_again(self) -> None:
        again, rest = list[tuple[str, ServedTask]](), list[Refused]()
        for refused in self._refused:
            if refused.served is None or refused.error.kind in _FINAL:
                rest.append(refused)
            else:
                again.append((refused.name, refused.served))
        if again:
            self._settle(again, rest)

    def _settle(
        self, verified: Iterable[tuple[str, ServedTask]], refused: Iterable[Refused]
    ) -> None:
        """Serve what can be served of the tasks that verify, with the file of each; note what
        can't.
        """
        served, bad = dict(self.served), list(refused)
        for name, task in verified:
            known = served.get(task.task_id)
            # a task that can't be prepared for stops no other
            try:
                if known is None:
                    self.take_up(task)
                elif known.keys.digest != task.keys.digest:
                    raise ShoalError(
                        Kind.CONFLICT,
                        f"task {task.task.name}: a second key schedule: a task has one, put the "
                        "first one back",
                    )
            except Exception as error:  # noqa: BLE001
                why = (
                    error
                    if isinstance(error, ShoalError)
                    else ShoalError(Kind.INTERNAL, f"task {task.task.name} can't be used")
                )
                bad.append(Refused(name, ShoalError(why.kind, f"{name}: {why}"), task))
            else:
                served.setdefault(task.task_id, task)
        self.served, self._refused = served, tuple(bad)
        for file in bad:
            if self._told.get(file.name) != str(file.error):
                self._reading_log.error("a task is not served", error=file.error)
        self._told = {file.name: str(file.error) for file in bad}

    def _changed(self) -> bool:
        return self._stamp is None or self._look() != self._stamp

    def _passing(self) -> bool:
        """Whether the folder, or a file of it, could not be read: a disk may be back by now."""
        return bool(self._unread) or any(
            refused.served is None and refused.error.kind is Kind.CONFIG
            for refused in self._refused
        )

    def _look(self) -> _Stamp | None:
        """Names, sizes and times of the folder's files, cheap to compare. None if it can't be
        listed: whoever reads it next says so. A file that can't be looked at has size -1.
        """
        stamp = set()
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith((TASK_SUFFIX, SCHEDULE_SUFFIX)):
                        stamp.add((entry.name, *_size_and_times(entry)))
        except OSError:
            return None
        return frozenset(stamp)


def _size_and_times(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    try:
        status = entry.stat()
    except OSError:  # for example a link to nothing: it says nothing of the other files
        return -1, 0, 0
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
