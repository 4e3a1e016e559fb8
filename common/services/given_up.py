"""Windows that an operator gave up: who, when, why, in a chain of lines beside the store.

The line is the decision; what follows from it a service does when it sees the line, at once if it
runs, else at its next start. So a crash leaves either no line and nothing done, or a line whose
work is done again. A line is never changed or taken back: each has the hash of all before it.

The chain finds what a disk or a slip changed, and ``given_up.head``, the number of lines, what was
cut at a line's end: it is written after a line, so it may be one behind and is never ahead. Neither
has a key: who may write to ``data_dir`` on purpose is kept away by its rights.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import MIB
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import read_count, replace_whole, write_count

log = get_log("given up")
FILE_NAME, HEAD_NAME = "given_up", "given_up.head"
_MOST_BYTES = 16 * MIB  # ten thousand lines and more
_REASON = 200  # characters
_BEGIN = hashlib.sha256(b"shoal/v1/given up").hexdigest()
TaskWindow = tuple[TaskId, int]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """One line. at: Unix seconds. by: the user of this machine who said so. was: the window's state
    then, in a word. reports: how many were lost with it, of a window that was decided by then;
    None: nobody counted.
    """

    task_id: str
    window: int
    at: int
    by: str
    reason: str
    was: str
    reports: int | None = None

    @property
    def key(self) -> TaskWindow:
        """Which window."""
        return TaskId.parse(self.task_id), self.window

    def json(self) -> dict[str, Any]:
        """The same, for programs."""
        return asdict(self)

    def to_text(self) -> str:
        """A line without the hash of those before it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> GivenUp | None:
        """What ``to_text`` made, read where nothing else proves it. None: it did not."""
        try:
            entry = cls(**json.loads(text))
            words = entry.by, entry.reason, entry.was
            numbers = (entry.window, entry.at, entry.reports or 0)
            sound = (
                entry.to_text() == text
                and all(type(one) is int and 0 <= one < 1 << 53 for one in numbers)
                and all(one.isprintable() and len(one) <= _REASON for one in words)
                and entry.key is not None
            )
        except (ShoalError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return entry if sound else None


def check_reason(text: str) -> str:
    """What an operator wrote, trimmed. Raises CONFIG for nothing, too much, or what is no line."""
    text = text.strip()
    if not text or len(text) > _REASON or not text.isprintable():
        raise ShoalError(
            Kind.CONFIG, f"--reason: say why in one line, of 1 to {_REASON} characters"
        )
    return text


def whoever_asks() -> str:
    """The user's name; of ``sudo`` both. Its variables are believed of root alone, and where they
    fit each other: anybody can set them.
    """
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = f"user {os.geteuid()}"
    real = _sudo_user() if os.geteuid() == 0 else ""
    return f"{name} (sudo by {real})" if real and real != name else name


def _sudo_user() -> str:
    try:
        real = pwd.getpwuid(int(os.environ.get("SUDO_UID", ""))).pw_name
    except (KeyError, ValueError, OverflowError):
        return ""
    return real if real == os.environ.get("SUDO_USER") else ""


def read(folder: Path) -> tuple[GivenUp, ...]:
    """All lines. Raises CONFIG if the file is not what was written, or can't be read."""
    lines, trouble = _read(folder)
    if trouble:
        raise ShoalError(Kind.CONFIG, trouble)
    return tuple(lines)


def add(folder: Path, entry: GivenUp, check: Callable[[], None] = lambda: None) -> GivenUp | None:
    """Write the line, durably; None. If the window was given up before, that line, and nothing is
    written. ``check`` runs while nobody else writes, just before, and may raise. Raises NOT_FOUND
    (no service ran here), CONFIG (damage, rights), OVERLOADED (disk).
    """
    path = folder / FILE_NAME
    with _alone(folder):
        lines = read(folder)
        for known in lines:
            if known.key == entry.key:
                _count(folder, len(lines))  # whoever wrote it may have been killed before
                return known
        check()
        before = path.read_bytes() if path.exists() else b""
        last = before.splitlines()[-1][:64].decode() if before else _BEGIN
        try:
            replace_whole(path, before + _line(last, entry), "given_up")
        except OSError as error:
            raise ShoalError(
                Kind.OVERLOADED,
                f"cannot write {path}: {error.strerror or 'unwritable'}: nothing was given up",
            ) from None
        _count(folder, len(lines) + 1)
    return None


def _count(folder: Path, lines: int) -> None:
    """Write down how many there are. A failure is made up for later: the lines are what counts."""
    try:
        if read_count(folder / HEAD_NAME) != lines:
            write_count(folder / HEAD_NAME, lines)
    except OSError as error:
        log.error("the number of windows given up could not be written", error=error)


def _catch_up(folder: Path) -> None:
    """After a command that was killed between its line and the count; nothing while one runs."""
    with suppress(ShoalError, BlockingIOError), _alone(folder, fcntl.LOCK_NB):
        _count(folder, len(read(folder)))


def _damaged(sound: int) -> str:
    return (
        f"{FILE_NAME}: it is not what was written, from line {sound + 1} on: put a copy back that "
        f"has all lines, or cut it before that line and remove {HEAD_NAME}; the lines before it "
        "hold"
    )


def _cut(there: int, written: int) -> str:
    return (
        f"{FILE_NAME}: it has {there} lines, and {written} were written: put a copy back that has "
        f"all, or remove {HEAD_NAME} and give those windows up again; the lines that are there hold"
    )


class GivenUpWindows:
    """What a service knows of the file, read again when it changed, and of what was said at other
    replicas (``hear``). For one thread.

    Lines before the first damaged one hold. A window whose line is gone goes on as if nobody had
    said anything, as far as that was not done yet.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._stamp: list[tuple[int, int, int]] = []
        self._entries: dict[TaskWindow, GivenUp] = {}
        self._heard: dict[TaskWindow, GivenUp] = {}
        self._trouble = ""
        self.look()

    def look(self) -> bool:
        """Read the file if it changed; whether there is a window that was not there before. A file
        that can't be read is a condition, and changes nothing.
        """
        try:
            stamp = [_stamp(path) for path in (self._path, self._path.with_name(HEAD_NAME))]
        except OSError as error:
            self._trouble = f"{FILE_NAME}: {error.strerror or 'cannot be read'}: mend its rights"
            return False
        if stamp == self._stamp:
            return False
        try:
            lines, trouble = _read(self._path.parent)
        except ShoalError as error:
            self._trouble = str(error)
            return False
        self._stamp, self._trouble = stamp, trouble
        if lines and not trouble:  # before anything is done about them
            _catch_up(self._path.parent)
        there = {line.key for line in lines}
        lost = len(self._entries.keys() - there)
        if not trouble and lost:  # cut or removed, with its head
            self._trouble = (
                f"{FILE_NAME}: {lost} lines are gone that were there: give those windows up again, "
                "or put a copy back that has all lines; here they hold until a restart"
            )
        fresh = {line.key: line for line in lines if line.key not in self._entries}
        # what was read once stays: the decision is made, whatever the disk does to its line
        self._entries = {**self._entries, **fresh}
        for task_id, window in fresh:
            log.warning("an operator gave a window up", task=task_id, window=window)
        return bool(fresh)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile nobody writes a line: what ``look`` finds within holds until the end. Waits for
        whoever writes one now. Raises CONFIG for a folder that can't be used.
        """
        with _alone(self._path.parent):
            yield

    def hear(self, entries: Iterable[GivenUp]) -> None:
        """Lines of other replicas, which hold here too, until this process ends."""
        for entry in entries:
            if entry.key not in self._heard and entry.key not in self._entries:
                log.warning(
                    "an operator gave a window up at another replica",
                    task=entry.key[0],
                    window=entry.window,
                )
                self._heard[entry.key] = entry

    def own(self) -> tuple[GivenUp, ...]:
        """The lines of this file."""
        return tuple(self._entries.values())

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, window: object) -> bool:
        return window in self._entries or window in self._heard

    def __iter__(self) -> Iterator[TaskWindow]:
        return iter(tuple(self._all))

    @property
    def _all(self) -> dict[TaskWindow, GivenUp]:
        return {**self._heard, **self._entries}

    def of(self, task_id: TaskId) -> list[GivenUp]:
        """The lines of a task, by window."""
        return sorted(
            (entry for key, entry in self._all.items() if key[0] == task_id),
            key=lambda entry: entry.window,
        )

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        if self._trouble:
            yield Condition("damage", FILE_NAME, self._trouble, stops=False)


def shown(entries: list[GivenUp]) -> dict[str, Any]:
    """For a task in /status: nothing where there are none."""
    rows = [
        {name: row[name] for name in ("window", "at", "by", "reason")}
        for row in map(asdict, entries)
    ]
    return {"given_up": rows} if rows else {}


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(folder: Path) -> tuple[list[GivenUp], str]:
    """The lines that hold together from the first on, and what is wrong if those are not all."""
    path, data = folder / FILE_NAME, b""
    try:
        # before the lines: whoever adds one counts it afterwards
        written = read_count(folder / HEAD_NAME) or 0
        with suppress(FileNotFoundError), path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG,
            f"{path}: {error.strerror or 'cannot be read'}: run this as the service's user",
        ) from None
    lines, last = list[GivenUp](), _BEGIN
    for line in data.splitlines(keepends=True):
        try:
            entry = GivenUp(**json.loads(line[65:]))
            whole = _line(last, entry) == line and entry.key[1] >= 0
        except (ShoalError, ValueError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            return lines, _damaged(len(lines))
        lines.append(entry)
        last = line[:64].decode()
    if len(data) > _MOST_BYTES:
        return lines, _damaged(len(lines))
    return lines, _cut(len(lines), written) if len(lines) < written else ""


def _line(before: str, entry: GivenUp) -> bytes:
    text = entry.to_text()
    digest = hashlib.sha256(f"{before} {text}".encode()).hexdigest()
    return f"{digest} {text}\n".encode()


@contextmanager
def _alone(folder: Path, flags: int = 0) -> Iterator[None]:
    """One writer at a time; a service that runs holds another lock."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ShoalError(
            Kind.NOT_FOUND,
            f"there is no data_dir {folder}: start the service once, or name its configuration",
        ) from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG,
            f"data_dir {folder}: {error.strerror or 'cannot be used'}: run this as the service's "
            "user",
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(handle)
