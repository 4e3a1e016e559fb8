"""What a task's certificate guarantees, computed in a process of its own: numpy and the accountant
would stay in an agent's memory, 19 MB of it.

The certificate is a function of the task's bytes and of the code that computes it.
``Guarantees.epsilon`` takes it from memory, or from a small file beside the device's memory, or has
a child compute it: ``python -m shoal.clients.owner.guarantees`` reads the task from standard input,
writes one line of JSON, and ends. Where no child can be started, or it fails, this process computes
it.

**The file** is a cache and may be deleted at any time: JSON, mode 0600, replaced as a whole. What
is in it holds for one ``revision``, the digest of the source files that the number comes from, so
that after an upgrade (or any edit) all of it is computed anew. A child states its revision, or none
if that changed meanwhile; what one of another Shoal says, that its Python found first, is not
believed. What this process computed is not written: its code may be older than the files by now.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import shoal
from shoal import accounting, codec, mechanisms, protos, questions
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.task import Task

CHILD_S = 60.0  # a certificate takes seconds of a small computer
_MOST_TASKS = 1_000  # in the file
_MOST_BYTES = 1 << 18  # of the file: more than that many tasks have

log = get_log("agent")


class Guarantees:
    """``epsilon_upper`` of tasks' certificates, each computed once. ``path``: the file. For several
    threads, and several processes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[TaskId, float | None] = {}
        self._computing = threading.Lock()  # one child at a time
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __contains__(self, task_id: TaskId) -> bool:
        """Whether ``epsilon`` returns at once."""
        return task_id in self._known

    def epsilon(self, assignment: Assignment) -> float | None:
        """What is guaranteed behind the shuffler, of one window; of a sum, of every round.
        Direction: upper bound.

        None: nothing can be certified. May take seconds: call it outside every transaction and off
        the event loop. Raises UNAVAILABLE after ``close``, for what is not known by then.
        """
        if assignment.epsilon_apart is not None:
            return assignment.epsilon_apart
        if assignment.task_id in self._known:  # without waiting for another task's
            return self._known[assignment.task_id]
        with self._computing:
            if assignment.task_id not in self._known:
                self._known[assignment.task_id] = self._found(assignment)
            return self._known[assignment.task_id]

    def _found(self, assignment: Assignment) -> float | None:
        task, key = assignment.task, assignment.task_id.hex
        kept = self._kept(revision())
        if key in kept:
            return kept[key]
        answer = None if self._closed else computed_apart(task, self._started)
        self._child = None
        if answer is None and self._closed:
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"task {task.name}: this program ends: its certificate is computed at the next "
                "start",
            )
        # An upgrade while the child ran is in ``revision`` too; any other number is of another
        # Shoal on this machine.
        if answer is not None and answer[1] in {"", revision()}:
            epsilon, of_revision = answer
            if of_revision:
                self._keep(of_revision, {**self._kept(of_revision), key: epsilon})
            return epsilon
        log.info("the certificate is computed in this process, which takes memory", task=task.name)
        return _epsilon(task)

    def _started(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        if self._closed:
            child.kill()

    def close(self) -> None:
        """Give up what is being computed, so that a program that is told to end does not wait for
        it. Returns at once; from any thread.
        """
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()

    def _kept(self, wanted: str) -> dict[str, float | None]:
        """What the file holds for a revision, by the task's id in hex; nothing if it is missing,
        damaged or of another one.
        """
        if not wanted:
            return {}
        try:
            stored = json.loads(_own(self._path))
            if stored["revision"] != wanted:
                return {}
            return {key: _checked(epsilon) for key, epsilon in stored["epsilons"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def _keep(self, of_revision: str, epsilons: dict[str, float | None]) -> None:
        """Best effort: a full disk costs a computation at the next start. The oldest go first."""
        stored = {"revision": of_revision, "epsilons": dict(list(epsilons.items())[-_MOST_TASKS:])}
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)  # of a process of the same number that died
            try:
                descriptor = os.open(
                    draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
                )
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    json.dump(stored, file)
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)


def _own(path: Path) -> bytes:
    """A file that nobody else can have written, as one in a folder of everybody's may be. Raises
    OSError for another, and never waits.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & 0o022
        ):
            raise PermissionError("somebody else's")
        return file.read(_MOST_BYTES)


def computed_apart(
    task: Task, started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None
) -> tuple[float | None, str] | None:
    """By a child: (epsilon or None as in ``Guarantees.epsilon``, the revision of the code that says
    so or ""). None: no child could.

    The child is this Python with this environment, without a shell, for ``CHILD_S`` at most.
    ``started``: is given it while it runs.
    """
    python = _interpreter()
    if python is None:
        return None
    command = [python, *_flags(), "-m", "shoal.clients.owner.guarantees"]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        # A session of its own: a signal to this process's group is this process's to answer.
        with subprocess.Popen(  # noqa: S603
            command, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True
        ) as child:
            try:
                started(child)
                said, _ = child.communicate(codec.encode_task(task), CHILD_S)
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            return None
        answer = json.loads(said)
        return _checked(answer["epsilon"]), str(answer["revision"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, RecursionError):
        return None


def revision() -> str:
    """SHA-256 in hex of the sources behind a certificate, and of Python's and numpy's versions; ""
    where there are none to read.

    Reads some 230 files.
    """
    parts = [sys.version.encode()]
    try:
        files = sources()
        if not files:
            return ""
        for file in (_version_of_numpy(), *files):
            data = file.read_bytes()
            parts.append(f"{file.name} {len(data)} ".encode() + sha256(data))
    except (OSError, ValueError):
        return ""
    return sha256(b"\n".join(parts)).hex()


def sources() -> list[Path]:
    """Every source file of ours that a certificate's number can come from; none where a folder of
    them has none to read.
    """
    # where this is installed as a wheel all other packages lie below the first: it is not searched
    packages = (accounting, mechanisms, protos, questions)
    folders = [(*shoal.__path__, "*.py"), *((*each.__path__, "**/*.py") for each in packages)]
    matches = [sorted(Path(folder).glob(pattern)) for folder, pattern in folders]
    if not all(matches):
        return []
    return [Path(__file__), *(file for files in matches for file in files)]


def _version_of_numpy() -> Path:
    """Its file, found without loading it. Raises OSError where there is none."""
    spec = PathFinder.find_spec("numpy")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("numpy")
    return Path(spec.origin).with_name("version.py")


def _interpreter() -> str | None:
    """The program to start; None where this one is no plain Python: within another program, or
    frozen into one.
    """
    plain = Path(sys.executable or "").name.startswith(("python", "pypy")) and not getattr(
        sys, "frozen", False
    )
    return sys.executable if plain else None


def _flags() -> list[str]:
    """The child looks for modules where this process does, and never in the folder that it happens
    to be in (-P).
    """
    if sys.flags.isolated:
        return ["-I"]
    return [
        "-P",
        *(["-E"] if sys.flags.ignore_environment else []),
        *(["-s"] if sys.flags.no_user_site else []),
    ]


def _epsilon(task: Task) -> float | None:
    """Computed here and now: loads the accountant and numpy."""
    from shoal.accounting.of_task import guarantee_of

    try:
        return guarantee_of(task).epsilon_upper
    except ShoalError:
        return None


def _checked(epsilon: object) -> float | None:
    """What a JSON number says. Raises ValueError for what is no epsilon."""
    if epsilon is None:
        return None
    if not isinstance(epsilon, float) or not 0.0 <= epsilon < math.inf:
        raise ValueError("not an epsilon")
    return epsilon


def main() -> None:
    """The child. It ends by itself too: whoever started it may have been killed."""
    signal.alarm(math.ceil(CHILD_S))
    before = revision()
    task = codec.decode_task(sys.stdin.buffer.read())
    epsilon = _epsilon(task)
    sys.stdout.write(
        json.dumps({"epsilon": epsilon, "revision": before if before == revision() else ""}) + "\n"
    )


if __name__ == "__main__":
    main()
