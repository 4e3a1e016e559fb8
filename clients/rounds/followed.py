"""A model that a running device follows by itself: moved by the signed releases in a folder.

The folder is the owner's to name, and anybody's to fill. What counts is the signature of the task's
analyzer: a file without it is as good as none, whoever put it there. The model is kept in memory
alone; after a restart it is computed again.

A window is asked at the model after the releases of all windows before. Where one of them is
missing, the device does not answer (docs/decisions/rounds/0128): at another model its answer would
be wrong, and whether a release is there does not depend on its row. The row is read after that.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from shoal import codec
from shoal.arrays import NDArray, np
from shoal.clients.rounds.learning import answer, follow
from shoal.clients.rounds.release_files import HandedRelease, another_release, read_release
from shoal.clients.rounds.trial import OwnerRow
from shoal.crypto.signing import SigningContext, verify
from shoal.digests import sha256
from shoal.domain import Value
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import release_pb2
from shoal.questions.learning import LearningPlan, LearningState, begin_learning
from shoal.questions.plan_words import plan_of
from shoal.task import Task

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found in a file while it had this ``stamp``. ``digest``: of its release, whose
    signature was verified; empty for a file of no use. ``trouble``: why, or "" for what is of
    another task.
    """

    stamp: _Stamp
    window: int = 0
    digest: bytes = b""
    trouble: str = ""


class ModelInFolder:
    """The model of one task. ``folder``: of release files, and of the arrays beside them. Not for
    several threads at once. Raises as ``plan_of`` does.
    """

    def __init__(self, task: Task, task_id: TaskId, folder: Path) -> None:
        self.plan: LearningPlan = plan_of(task)
        self._task, self._task_id, self._folder = task, task_id, folder
        self._known: dict[str, _Known] = {}
        self._state = begin_learning(self.plan)
        self._followed: list[bytes] = []  # digests, by window

    def at(self, window: int) -> LearningState:
        """The model at which ``window`` is asked. Blocks for the disk.

        Raises UNAVAILABLE, with a line that says what is missing, damaged, or there twice; what was
        followed until then stays, and the next call goes on from there.
        """
        ready = self._releases(window)
        if self._state.done > window:  # the clock was set back
            self._state, self._followed = begin_learning(self.plan), []
        while self._state.done < window:
            at = self._state.done
            self._state = self._moved(self._folder / ready[at][0], ready[at][1])
            self._followed.append(ready[at][1])
        return self._state

    def check(self, window: int) -> None:
        """Raises as ``at``, and follows nothing: whether all releases before ``window`` are
        there.
        """
        self._releases(window)

    def _moved(self, file: Path, digest: bytes) -> LearningState:
        try:
            one = read_release(file)
            if _digest(one) != digest:
                raise ShoalError(Kind.MISMATCH, f"{file} is being changed")
            return follow(
                self.plan, self._task, self._task_id, self._state, one.signed, self._folder
            )
        except ShoalError as error:
            raise self._waits(error.message) from None

    def _releases(self, window: int) -> list[tuple[str, bytes]]:
        """(file name, digest) of the releases of all windows before ``window``, in order."""
        self._look()
        found: dict[int, tuple[str, bytes]] = {}
        for at, digest in enumerate(self._followed):
            found[at] = "the one that was followed", digest
        for name, known in sorted(self._known.items()):
            if not known.digest or known.window >= window:
                continue
            before = found.setdefault(known.window, (name, known.digest))
            if before[1] != known.digest:
                raise self._waits(another_release(self._folder / name, known.window, before[0]))
            found[known.window] = name, known.digest
        for at in range(window):
            if at not in found:
                raise self._waits(f"the release of window {at} is not in {self._folder}")
        return [found[at] for at in range(window)]

    def _look(self) -> None:
        """Read what is new or changed in the folder."""
        known: dict[str, _Known] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        known[entry.name] = self._file(Path(entry.path))
        except OSError as error:
            self._known = {}
            raise self._waits(
                f"cannot read {self._folder}: {error.strerror or 'unreadable'}"
            ) from None
        self._known = known

    def _file(self, file: Path) -> _Known:
        try:
            status = file.stat()
        except OSError as error:
            return _Known((0, 0, 0, 0), trouble=error.strerror or "unreadable")
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        before = self._known.get(file.name)
        if before is not None and before.stamp == stamp:
            return before
        try:
            one = read_release(file)
            if one.task_id != self._task_id.raw:
                return _Known(stamp)
            message = codec.parse(release_pb2.SignedRelease, one.signed, "signed release")
            verify(
                self._task.analyzer_key,
                SigningContext.RELEASE,
                message.release,
                message.signature,
            )
        except ShoalError as error:
            return _Known(stamp, trouble=error.message)
        return _Known(stamp, one.window, _digest(one))

    def _waits(self, why: str) -> ShoalError:
        spoilt = sorted(name for name, known in self._known.items() if known.trouble)
        also = ""
        if spoilt:
            more = f" and {len(spoilt) - 1:,} more" if len(spoilt) > 1 else ""
            also = f" ({spoilt[0][:64]!a}{more} there: damaged, or not signed by the analyzer)"
        return ShoalError(
            Kind.UNAVAILABLE,
            f"task {self._task.name}: {why}{also}: no window is answered until this is mended",
        )


def row_answer(
    plan: LearningPlan, state: LearningState, value: Value
) -> NDArray[np.float64] | None:
    """What a device answers in window ``state.done`` whose source said ``value``: JSON as of
    ``OwnerRow``. None, which is the zero vector, for a row that is missing or that the model can't
    use: who takes part must not depend on it.

    Raises CONFIG on a device that lacks what the gradient takes, whatever the row is.
    """
    numbers, yes = np.zeros(plan.model.features), False
    usable = False
    with contextlib.suppress(ShoalError):
        row = OwnerRow.read(value if isinstance(value, str) else "")
        if row.numbers.shape == numbers.shape:
            numbers, yes, usable = row.numbers, row.yes, True
    try:
        vector = answer(plan, state, numbers, yes)
    except ShoalError as error:
        if error.kind is not Kind.INVALID:
            raise
        if usable:  # what the device lacks is said all the same
            row_answer(plan, state, None)
        return None
    return vector if usable else None


def _digest(one: HandedRelease) -> bytes:
    return sha256(one.signed)
