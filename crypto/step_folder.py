"""What the windows of discoveries ask, in a folder: a file for each step,
``<task id>.<window>.step``.

Device, shuffler and analyzer keep what they were told or made in the same way. Nothing of a file
counts but the signature of the task's analyzer: one that is damaged is deleted, and comes again.
The first step of a window is the one, also after a restart.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.crypto.discovery_steps import SignedStep, check_step, most_bytes, trust_step
from shoal.crypto.trust import read_file
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.storage.disks import disk_error

if TYPE_CHECKING:
    from shoal.ids import TaskId
    from shoal.task import Task

STEPS_FOLDER, STEP_SUFFIX = "steps", ".step"
Write = Callable[[Path, bytes], None]
"""(path, data): there whole or not at all, and durable when it returns. Raises OSError."""


def read_steps(folder: Path, task: Task, task_id: TaskId) -> dict[int, SignedStep]:
    """By window, as far as they can be read: for who looks at the folder of another program.
    Nothing is changed.
    """
    found = dict[int, SignedStep]()
    if isinstance(task.domain, Discovery):
        for path in _files(folder, task_id.hex):
            with contextlib.suppress(ShoalError):
                signed = trust_step(read_file(path, most_bytes(task.domain)), task, task_id)
                found[signed.step.window] = signed
    return found


def _files(folder: Path, task_id_hex: str) -> list[Path]:
    return sorted(folder.glob(f"{task_id_hex}.*{STEP_SUFFIX}"))


def _path(folder: Path, task_id: TaskId, window: int) -> Path:
    return folder / f"{task_id.hex}.{window}{STEP_SUFFIX}"


class StepFolder:
    """``folder``: made with the first step, for this user alone; None: steps are in memory alone,
    for tests. ``write``: how a file is written. Thread-safe.
    """

    def __init__(self, folder: Path | None, write: Write) -> None:
        self._folder, self._write = folder, write
        self._lock = threading.Lock()
        self._known: dict[TaskId, dict[int, SignedStep]] = {}
        self._dropped: set[Path] = set()  # files that are not read again

    def of(self, task: Task, task_id: TaskId) -> Mapping[int, SignedStep]:
        """The steps of a task by window, read when they are first asked for; none of a task that is
        no discovery.
        """
        with self._lock:
            return dict(self._of(task, task_id))

    def take(self, task: Task, task_id: TaskId, data: bytes) -> bool:
        """Verify and keep a SignedDiscoveryStep, durably. Whether it is new.

        Raises what ``trust_step`` raises; CONFLICT as ``check_step`` does; OVERLOADED: the disk.
        Nothing has changed then.
        """
        return self.keep(trust_step(data, task, task_id), task, task_id)

    def keep(self, signed: SignedStep, task: Task, task_id: TaskId, *, stored: bool = True) -> bool:
        """As ``take``, of a step that was verified. ``stored``: whether the next start is to know
        it too.
        """
        window = signed.step.window
        with self._lock:
            known = self._of(task, task_id)
            # another program on this folder may have been faster
            self._read(task, task_id, known)
            assert isinstance(task.domain, Discovery)  # noqa: S101 - it has a step
            check_step(signed.step, [one.step for one in known.values()], task.domain)
            if window in known:
                return False
            if self._folder is not None and stored:
                path = _path(self._folder, task_id, window)
                try:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._write(path, signed.data)
                except OSError as error:
                    raise disk_error(
                        f"a step of task {task.name}", error, self._folder.parent
                    ) from None
                self._dropped.discard(path)
            known[window] = signed
        return True

    def drop(self, task: Task, task_id: TaskId, window: int) -> None:
        """Forget the step of a window: another one is the first. Raises OVERLOADED: the disk; then
        it is forgotten until the next start alone.
        """
        with self._lock:
            self._of(task, task_id).pop(window, None)
            if self._folder is None:
                return
            path = _path(self._folder, task_id, window)
            self._dropped.add(path)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise disk_error(
                    f"a step of task {task.name}", error, self._folder.parent
                ) from None

    def forget(self, task_id_hex: str) -> None:
        """Delete the files of a task."""
        for path in self._files(task_id_hex):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _of(self, task: Task, task_id: TaskId) -> dict[int, SignedStep]:
        known = self._known.get(task_id)
        if known is None:
            known = self._known[task_id] = {}
            self._read(task, task_id, known)
        return known

    def _read(self, task: Task, task_id: TaskId, known: dict[int, SignedStep]) -> None:
        """Add what the folder has and was not read before."""
        if not isinstance(task.domain, Discovery):
            return
        for path in self._files(task_id.hex):
            if path in self._dropped or path.name.split(".")[1] in map(str, known):
                continue
            try:
                data = read_file(path, most_bytes(task.domain))
                signed = trust_step(data, task, task_id)
            except ShoalError as error:
                if error.kind is not Kind.CONFIG:  # else it can't be read now
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)
                continue
            known[signed.step.window] = signed

    def _files(self, task_id_hex: str) -> list[Path]:
        return [] if self._folder is None else _files(self._folder, task_id_hex)
