"""The tasks that a device knows: read from folders, verified, one key schedule per task for ever,
found by name or id.

Two folders: the owner's, and the one of what feeds brought. One bad file costs its own task and
nothing else: what is wrong with it is kept and told to whoever asks for that task. A task for which
a second key schedule was seen is struck: this device has none of it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.clients.core import Assignment, assign
from shoal.clients.feeds.durable import write_durable
from shoal.clients.memory.outbox import Outbox, two_schedules
from shoal.clients.owner.policy import Policy
from shoal.crypto.discovery_steps import task_of_step
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import (
    SCHEDULE_SUFFIX,
    TASK_SUFFIX,
    TrustedTask,
    read_file,
    trust_schedule,
    trust_task,
)
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

_LEAST_ID = 8  # hex digits that may stand for a task id
# of a file that can't be read now, or of this device's disk
_PASSING = frozenset({Kind.CONFIG, Kind.OVERLOADED, Kind.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class Unusable:
    """A task file that gives no task. ``trusted``: the task, if its own signature holds.
    ``digest``: SHA-256 of both files' bytes.
    """

    file: str
    error: ShoalError
    digest: Digest
    trusted: TrustedTask | None


@dataclass(frozen=True, slots=True)
class _Read:
    """What a pair of files was found to be, as long as ``stamp`` says that they are the same."""

    stamp: tuple[object, ...]
    outcome: Assignment | Unusable


class KnownTasks:
    """Tasks of the folders, as of the last ``refresh``. ``learnt_folder`` need not exist."""

    def __init__(
        self, folder: Path, policy: Policy, outbox: Outbox, learnt_folder: Path | None = None
    ) -> None:
        self._folder, self._learnt_folder, self._policy, self._outbox = (
            folder,
            learnt_folder,
            policy,
            outbox,
        )
        self._steps = StepFolder(learnt_folder, write_durable)
        self._tasks: dict[TaskId, Assignment] = {}
        # signatures are checked once per file, not at every look
        self._read: dict[Path, _Read] = {}
        # by the shuffler that said so
        self._paused: dict[tuple[str, bytes | None], dict[TaskId, frozenset[int]]] = {}
        self.problems: dict[str, ShoalError] = {}  # by file name without suffix
        self.unusable: list[Unusable] = []

    def refresh(self) -> None:
        """Read the folders anew. Raises CONFIG if the owner's is missing; problems of single files
        go to ``problems`` and ``unusable``.
        """
        if not self._folder.is_dir():
            raise ShoalError(
                Kind.CONFIG,
                f"tasks folder {self._folder} does not exist: make it and put signed tasks there",
            )
        paths = sorted(self._folder.glob(f"*{TASK_SUFFIX}"))
        learnt = (
            sorted(self._learnt_folder.glob(f"*{TASK_SUFFIX}"))
            if self._learnt_folder is not None
            else []
        )
        read = {path: self._look(path) for path in (*paths, *learnt)}
        tasks: dict[TaskId, Assignment] = {}
        unusable: list[Unusable] = []
        for path, entry in read.items():
            outcome = entry.outcome
            if isinstance(outcome, Unusable):
                unusable.append(outcome)
            elif (error := self._stopped(outcome)) is not None:
                unusable.append(
                    Unusable(path.name, _named(path, error), outcome.keys.digest, outcome.trusted)
                )
            elif outcome.task_id not in tasks:
                tasks[outcome.task_id] = outcome
            elif path in paths:  # a feed may well bring what the owner put there
                twice = ShoalError(
                    Kind.CONFLICT,
                    "the same task is in the folder twice: remove one of the two files",
                )
                unusable.append(Unusable(path.name, _named(path, twice), outcome.keys.digest, None))
        self._tasks, self._read, self.unusable = tasks, read, unusable
        self.problems = {Path(problem.file).stem: problem.error for problem in unusable}

    def _stopped(self, assignment: Assignment) -> ShoalError | None:
        """Why nothing of a task is sent any more: it has two schedules, or whether it has can't be
        read.
        """
        try:
            return two_schedules() if self._outbox.struck(assignment.task_id) else None
        except ShoalError as error:
            if error.kind is not Kind.MISMATCH:
                raise
            return error

    def _look(self, path: Path) -> _Read:
        stamp = (_stamp(path), _stamp(path.with_suffix(SCHEDULE_SUFFIX)))
        known = self._read.get(path)
        if known is not None and known.stamp == stamp and not _may_pass(known.outcome):
            return known
        return _Read(stamp, self._load(path))

    def _load(self, path: Path) -> Assignment | Unusable:
        """Signature, then contents, then the schedule's signature, contents, and that it is the one
        seen before.
        """
        trusted: TrustedTask | None = None
        data = b""
        try:
            data = read_file(path, LIMITS.task_bytes + 1024)
            trusted = trust_task(data, self._policy.authorities)
            schedule = read_file(path.with_suffix(SCHEDULE_SUFFIX), LIMITS.schedule_bytes + 1024)
            data += schedule
            keys = trust_schedule(schedule, trusted)
            self._outbox.pin(trusted.task_id, keys.digest)
            assignment = assign(trusted, keys)
            self._tell_steps(assignment)
            return assignment
        except ShoalError as error:
            return Unusable(path.name, _named(path, error), Digest.of(data), trusted)

    def pause(
        self, address: str, paused: Mapping[TaskId, frozenset[int]], ca: bytes | None = None
    ) -> bool:
        """What a shuffler says that it can't take now: windows by task, none of them named: all.
        Whether anything changed.

        It counts for the tasks that name this very address, and ``ca`` (None: whom the owner's feed
        asks): for those alone it could refuse every answer as well.
        """
        before = self._paused.get((address, ca), {})
        self._paused[address, ca] = dict(paused)
        return before != self._paused[address, ca]

    def step(self, data: bytes) -> bool:
        """Take what a window of a discovery asks, a serialized SignedDiscoveryStep, for good.
        Whether it is new; of a task that is not known here nothing is taken. Blocks for the disk.

        Raises INVALID, OVERSIZE, BAD_SIGNATURE, MISMATCH; OVERLOADED (disk); CONFLICT: two steps
        that can't both be, for which the task is struck.
        """
        task_id = task_of_step(data)
        if task_id not in self._tasks:
            self.refresh()
        assignment = self._tasks.get(task_id)
        if assignment is None:
            return False
        try:
            fresh = self._steps.take(assignment.task, task_id, data)
        except ShoalError as error:
            if error.kind is Kind.CONFLICT:
                self._outbox.strike(task_id)
                self._tasks.pop(task_id, None)
            raise
        self._tell_steps(assignment)
        return fresh

    def _tell_steps(self, assignment: Assignment) -> None:
        """What the windows of a discovery ask, as far as that is known."""
        for window, signed in self._steps.of(assignment.task, assignment.task_id).items():
            assignment.steps[window] = signed

    def awaits(self, now: float) -> bool:
        """Whether what the current window of some discovery asks is not known yet."""
        for assignment in self._tasks.values():
            window = assignment.task.windows.current(now)
            if window is not None and isinstance(assignment.task.domain, Discovery):
                try:
                    assignment.level(window)
                except ShoalError as error:
                    if error.kind is Kind.UNAVAILABLE:
                        return True
        return False

    def check_open(self, assignment: Assignment, now: float, window: int | None = None) -> None:
        """Raises UNAVAILABLE while the task's shuffler says that an answer to the window (None: the
        current one) could not be released, or what it asks is not known; WINDOW_CLOSED: nothing.
        """
        task = assignment.task
        asked = task.windows.current(now) if window is None else window
        if asked is not None:
            assignment.level(asked)
        for ca in (None, task.shuffler_ca):
            windows = self._paused.get((task.shuffler_address, ca), {}).get(assignment.task_id)
            if windows is not None and (not windows or asked in windows):
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    f"task {task.name}: its services can't take this window now: nothing is "
                    "answered or charged",
                )

    def all(self) -> list[Assignment]:
        """Every task that is known, by name and id."""
        return sorted(
            self._tasks.values(), key=lambda assignment: (assignment.task.name, assignment.task_id)
        )

    def get(self, task_id: TaskId) -> Assignment | None:
        """The task of that id, or None if it is not known."""
        return self._tasks.get(task_id)

    def find(self, name: str, now: float | None = None) -> Assignment:
        """By name, by id, or by the first 8 or more hex digits of the id. ``now``: of several
        versions of a question, which have one name, that whose windows run at this time.

        Raises UNKNOWN_TASK; CONFLICT if several tasks fit; what was wrong with the file NAME.task
        if that is why.
        """
        fitting = [
            assignment for assignment in self._tasks.values() if assignment.task.name == name
        ]
        if not fitting and len(name) >= _LEAST_ID:
            fitting = [
                assignment
                for assignment in self._tasks.values()
                if assignment.task_id.hex.startswith(name)
            ]
        if len(fitting) > 1 and now is not None:
            running = [one for one in fitting if one.task.windows.current(now) is not None]
            fitting = running if len(running) == 1 else fitting
        if len(fitting) > 1:
            ids = ", ".join(sorted(assignment.task_id.short for assignment in fitting))
            raise ShoalError(
                Kind.CONFLICT, f"several tasks have that name: say which by its id, one of {ids}"
            )
        if fitting:
            return fitting[0]
        if name in self.problems:
            raise self.problems[name]
        struck = next(
            (
                problem.error
                for problem in self.unusable
                if problem.trusted is not None and problem.trusted.task.name == name
            ),
            None,
        )
        if struck is not None:
            raise struck
        known = (
            ", ".join(sorted({assignment.task.name for assignment in self._tasks.values()}))
            or "none"
        )
        raise ShoalError(
            Kind.UNKNOWN_TASK, f'no task "{name[:64]}" in {self._folder}: known are {known}'
        )


def _named(path: Path, error: ShoalError) -> ShoalError:
    return ShoalError(error.kind, f"{path.name}: {error}")


def _may_pass(outcome: Assignment | Unusable) -> bool:
    return isinstance(outcome, Unusable) and outcome.error.kind in _PASSING


def _stamp(path: Path) -> object:
    """Changes whenever the file's contents do, short of somebody who sets clocks."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
