"""The tasks that feeds brought: verified before a byte is written, two files each, one key schedule
per task for ever.

A feed is anybody: a shuffler that asks nobody's leave, a broker whose owner is unknown. So nothing
of a bundle counts but its two signatures, by an authority that this device's owner trusts and by
the task's key authority. The folder holds ``<task id>.task`` and ``<task id>.keys`` and is read
like any folder of tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from shoal import codec
from shoal.clients.core import expiry
from shoal.clients.feeds.durable import replace_file, sync_folder, write_durable
from shoal.clocks.clock import DeviceClock
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import (
    SCHEDULE_SUFFIX,
    TASK_SUFFIX,
    TrustedTask,
    read_file,
    trust_schedule,
    trust_task,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.storage.disks import disk_error, names_its_cause
from shoal.task import Task

# What is wrong with a bundle for ever, under one policy: to look at the same bytes again would find
# the same.
FINAL = frozenset(
    {Kind.INVALID, Kind.OVERSIZE, Kind.FORBIDDEN, Kind.BAD_SIGNATURE, Kind.MISMATCH, Kind.CONFLICT}
)
# of our own files: they can go; one whose authority is not trusted now may stay
_DAMAGED = FINAL - {Kind.FORBIDDEN, Kind.CONFLICT}
_ENVELOPE = 1_024  # bytes around a task or a schedule: key, signature, lengths


@dataclass(frozen=True, slots=True)
class LearntTask:
    """What a bundle turned out to be. ``fresh``: it was not in the folder before, and is now."""

    task_id: TaskId
    name: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class _Known:
    schedule: Digest
    expires_s: float


class LearntTasks:
    """A folder of mode 0700 with files of mode 0600, for the tasks of ``authorities`` (Ed25519
    public keys). Thread-safe.

    ``most``: tasks that it holds. ``on_conflict``: told the id of a task for which a second
    schedule was seen, before CONFLICT is raised. Raises CONFIG if the folder can't be made.
    """

    def __init__(
        self,
        folder: Path,
        authorities: Collection[bytes],
        clock: DeviceClock,
        most: int = LIMITS.known_tasks,
        on_conflict: Callable[[TaskId], None] = lambda _: None,
    ) -> None:
        self._folder, self._authorities, self._clock, self._most = (
            folder,
            frozenset(authorities),
            clock,
            most,
        )
        self._on_conflict = on_conflict
        self._lock = threading.Lock()
        self._known: dict[TaskId, _Known] | None = None  # read when it is first needed
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        except OSError as error:
            if names_its_cause(error):
                raise disk_error(f"folder {folder.name} for tasks", error, folder.parent) from None
            raise ShoalError(
                Kind.CONFIG,
                f"folder {folder.name} for tasks can't be made: {error.strerror or 'unusable'}: "
                "make it, for this user alone",
            ) from None

    def offer(self, data: bytes) -> LearntTask:
        """Take a serialized TaskBundle, durably. The same task with the same schedule again changes
        nothing, and is not ``fresh``.

        Raises INVALID, OVERSIZE, FORBIDDEN, BAD_SIGNATURE, MISMATCH (it is not what it says, or
        nobody's we trust), WINDOW_CLOSED (its last window is over), CONFLICT (a second schedule for
        a task, which both stay as they are), OVERLOADED (folder or disk full).
        """
        bundle = codec.decode_bundle(data)
        trusted = trust_task(bundle.signed_task, self._authorities)
        schedule = trust_schedule(bundle.signed_schedule, trusted).digest
        task, task_id, now = trusted.task, trusted.task_id, self._clock.now()
        if now >= _closed_s(task):
            raise ShoalError(
                Kind.WINDOW_CLOSED, f"task {task.name} is over: it takes no more answers"
            )
        with self._lock:
            known = self._index()
            before = known.get(task_id)
            conflict = before is not None and before.schedule != schedule
            if before is None and len(known) >= self._most and not self._prune():
                raise ShoalError(
                    Kind.OVERLOADED,
                    f"{self._most} tasks are known already: no more are taken before some of them "
                    "are over",
                )
            fresh = not conflict and (before is None or not self._path(task_id).is_file())
            if fresh:
                self._write(trusted, bundle)
                known[task_id] = _Known(schedule, expiry(task, task.windows.count - 1))
        if conflict:
            self._on_conflict(task_id)
            raise ShoalError(
                Kind.CONFLICT,
                f"task {task.name}: a second key schedule was offered, made to tell devices apart: "
                "answer it no more",
            )
        return LearntTask(task_id, task.name, fresh)

    def _path(self, task_id: TaskId) -> Path:
        return self._folder / f"{task_id.hex}{TASK_SUFFIX}"

    def prune(self) -> list[TaskId]:
        """Delete the tasks of which no service can hold anything any more; return their ids. A
        queued report of one is no use either.
        """
        with self._lock:
            return self._prune()

    def _prune(self) -> list[TaskId]:
        known, now = self._index(), self._clock.over()
        gone = [task_id for task_id, task in known.items() if now >= task.expires_s]
        for task_id in gone:
            del known[task_id]
            self._delete(task_id.hex)
        return gone

    def _index(self) -> dict[TaskId, _Known]:
        """What lies in the folder, verified again when it is read for the first time; damaged files
        are deleted then, and learnt anew.
        """
        if self._known is None:
            verified: dict[TaskId, _Known] = {}
            for path in sorted(self._folder.glob(f"*{TASK_SUFFIX}")):
                try:
                    trusted = trust_task(
                        read_file(path, LIMITS.task_bytes + _ENVELOPE), self._authorities
                    )
                    keys = trust_schedule(
                        read_file(
                            path.with_suffix(SCHEDULE_SUFFIX), LIMITS.schedule_bytes + _ENVELOPE
                        ),
                        trusted,
                    )
                except ShoalError as error:
                    if error.kind in _DAMAGED:
                        self._delete(path.stem)
                    continue
                verified[trusted.task_id] = _Known(
                    keys.digest, expiry(trusted.task, trusted.task.windows.count - 1)
                )
            self._known = verified
        return self._known

    def _write(self, trusted: TrustedTask, bundle: codec.TaskBundle) -> None:
        """The schedule before the task: whoever reads the folder looks for tasks, and finds both.

        Signed bytes are written as they came, what lay around them is not: nobody can fill the disk
        with it.
        """
        signed_task = codec.encode_signed_task(codec.decode_signed_task(bundle.signed_task))
        signed_schedule = codec.encode_signed_schedule(
            codec.decode_signed_schedule(bundle.signed_schedule)
        )
        name = trusted.task_id.hex
        try:
            replace_file(self._folder / f"{name}{SCHEDULE_SUFFIX}", signed_schedule)
            replace_file(self._folder / f"{name}{TASK_SUFFIX}", signed_task)
            sync_folder(self._folder)
        except OSError as error:
            raise disk_error(f"task {trusted.task.name}", error, self._folder) from None

    def _delete(self, name: str) -> None:
        """The task before the schedule, so that no task stays without one; its steps last."""
        for suffix in (TASK_SUFFIX, SCHEDULE_SUFFIX):
            with contextlib.suppress(OSError):
                (self._folder / f"{name}{suffix}").unlink(missing_ok=True)
        StepFolder(self._folder, write_durable).forget(name)


def _closed_s(task: Task) -> float:
    """Unix seconds from which no device can answer the task, whatever its clock may be off."""
    return task.windows.deadline_of(task.windows.count - 1) + task.windows.skew_s
