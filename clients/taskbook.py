"""The tasks that a device knows: read from a folder, verified, one key schedule per task for ever, found by name or id.

One bad file costs its own task and nothing else: what is wrong with it is kept and told to whoever asks for that task.
"""

from __future__ import annotations

from pathlib import Path

from shoal.clients.core import Assignment, assign
from shoal.clients.outbox import Outbox
from shoal.clients.policy import Policy
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS

_LEAST_ID = 8  # hex digits that may stand for a task id


class TaskBook:
    """Tasks of a folder, as of the last ``refresh``."""

    def __init__(self, folder: Path, policy: Policy, outbox: Outbox) -> None:
        self._folder, self._policy, self._outbox = folder, policy, outbox
        self._tasks: dict[TaskId, Assignment] = {}
        self.problems: dict[str, ShoalError] = {}  # by file name without suffix

    def refresh(self) -> None:
        """Read the folder anew. Raises CONFIG if there is none; problems of single files go to ``problems``."""
        if not self._folder.is_dir():
            raise ShoalError(Kind.CONFIG, f"tasks folder {self._folder} does not exist: make it and put signed tasks there")
        tasks: dict[TaskId, Assignment] = {}
        problems: dict[str, ShoalError] = {}
        for path in sorted(self._folder.glob(f"*{TASK_SUFFIX}")):
            try:
                one = self._load(path)
                if one.task_id in tasks:
                    raise ShoalError(Kind.CONFLICT, "the same task is in the folder twice: remove one of the two files")
                tasks[one.task_id] = one
            except ShoalError as error:
                problems[path.stem] = ShoalError(error.kind, f"{path.name}: {error}")
        self._tasks, self.problems = tasks, problems

    def _load(self, path: Path) -> Assignment:
        """Signature, then contents, then the schedule's signature, contents, and that it is the one seen before."""
        trusted = trust_task(_read(path, LIMITS.task_bytes + 1024), self._policy.authorities)
        keys = trust_schedule(_read(path.with_suffix(SCHEDULE_SUFFIX), LIMITS.schedule_bytes + 1024), trusted)
        self._outbox.pin(trusted.task_id, keys.digest)
        return assign(trusted, keys)

    def all(self) -> list[Assignment]:
        return sorted(self._tasks.values(), key=lambda one: (one.task.name, one.task_id))

    def get(self, task_id: TaskId) -> Assignment | None:
        return self._tasks.get(task_id)

    def find(self, name: str) -> Assignment:
        """By name, by id, or by the first 8 or more hex digits of the id.

        Raises UNKNOWN_TASK; CONFLICT if several tasks fit; what was wrong with the file NAME.task if that is why.
        """
        fitting = [one for one in self._tasks.values() if one.task.name == name]
        if not fitting and len(name) >= _LEAST_ID:
            fitting = [one for one in self._tasks.values() if one.task_id.hex.startswith(name)]
        if len(fitting) > 1:
            ids = ", ".join(sorted(one.task_id.short for one in fitting))
            raise ShoalError(Kind.CONFLICT, f"several tasks have that name: say which by its id, one of {ids}")
        if fitting:
            return fitting[0]
        if name in self.problems:
            raise self.problems[name]
        known = ", ".join(sorted({one.task.name for one in self._tasks.values()})) or "none"
        raise ShoalError(Kind.UNKNOWN_TASK, f'no task "{name[:64]}" in {self._folder}: known are {known}')


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise ShoalError(Kind.CONFIG, f"cannot read {path.name}: {error.strerror or 'unreadable'}") from None
