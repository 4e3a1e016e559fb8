"""The audit: what was done at a console, by whom and when. One JSON object a line, each with the
hash of the line before it; a line is on disk before what it tells of is done.

Whoever may write the file can write all of it anew. Against that, keep what ``shoal console audit``
prints as its head somewhere else: ``--head`` then shows whether that line is still there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.whole_files import open_staged

log = get_log("console")

_LOST = "lines before this were lost"
_START = "0" * 64  # stands for the line before the first
_LONGEST = 8 * 1024  # bytes of a line
_PRIVATE = 0o600


class Audit:
    """``path``: made if it is not there. Raises CONFIG, KEY_FILE, and CONFLICT while another
    console writes to it. ``now``: Unix seconds. Where the line of the kept head is gone, a line
    says so from then on.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now, self._lock = path, now, Lock()
        self._file = _opened(path)
        self._unknown_end, self._head_failed = False, False
        try:
            count, head = _kept_head(path)
            self._count, self._last, whole, there = _end_of(path, head)
            if not whole:  # a crash while it was written: the line stays, and counts for nothing
                os.write(self._file, b"\n")
                os.fsync(self._file)
            if not there:
                self.write(_LOST, "", "", "", head=head, lines=max(0, count - self._count))
        except BaseException:
            os.close(self._file)
            raise

    def write(self, what: str, who: str, way: str, role: str, **detail: str | int | float) -> None:
        """Raises UNAVAILABLE if it isn't on disk: then nothing may be done of it."""
        with self._lock:
            line = _line(
                {
                    "n": self._count,
                    "at": _stamp(self._now()),
                    "what": what,
                    "who": who,
                    "way": way,
                    "role": role,
                    **({"detail": detail} if detail else {}),
                    "before": self._last,
                }
            )
            self._append(line)
            self._count, self._last = self._count + 1, _hash(line)
            self._tell_head()

    def _append(self, line: bytes) -> None:
        """All of it on disk, or nothing of it in the file."""
        if self._unknown_end:
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"{self.path.name}: an earlier line could neither be written nor taken back: mend "
                "its disk, and start the console anew",
            )
        size = -1
        try:
            size = os.fstat(self._file).st_size
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            try:
                if size >= 0:
                    os.ftruncate(self._file, size)
            except OSError:
                self._unknown_end = True
            raise _unwritable(self.path, error) from None

    def _tell_head(self) -> None:
        """The line is on disk: without its head, nothing is refused."""
        try:
            _keep_head(self.path, self._count, self._last)
        except OSError as error:
            if not self._head_failed:
                why = error.strerror or "unwritable"
                log.error("the audit's head cannot be kept", name=self.path.name, error=why)
            self._head_failed = True
        else:
            self._head_failed = False

    def close(self) -> None:
        """And let another console write."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Checked:
    """An audit whose lines follow one another. ``head``: the hash of its last line. ``torn``: lines
    that a crash cut. ``lost``: entries before which a console, at its start, missed lines.
    """

    entries: tuple[Mapping[str, Any], ...]
    head: str
    torn: int
    lost: tuple[Mapping[str, Any], ...] = ()


def check(path: Path, head: str = "") -> Checked:
    """Read and verify all of it. ``head``: a line's hash that must be among them. Raises
    BAD_SIGNATURE where a line was changed, taken out or put in; CONFIG, KEY_FILE.
    """
    entries: list[Mapping[str, Any]] = []
    torn, before, hashes = 0, _START, {_START}
    lost: list[Mapping[str, Any]] = []
    for number, line in enumerate(_lines(path), 1):
        entry = _parsed(line)
        if entry is None:
            torn += 1
        elif entry.get("before") != before or entry.get("n") != len(entries):
            raise ShoalError(
                Kind.BAD_SIGNATURE,
                f"{path.name}: line {number} does not follow the line before it: something was "
                "changed, taken out or put in there",
            )
        else:
            entries.append(entry)
            lost += [entry] if entry.get("what") == _LOST else []
        before = _hash(line)
        hashes.add(before)
    _, kept = _kept_head(path)
    told = {_missed(entry) for entry in lost}
    for known, whose, also in (
        (kept, f"{_head_of(path).name} tells of", told),
        (head, "--head names", set()),
    ):
        if known and known not in hashes | also:
            raise ShoalError(
                Kind.BAD_SIGNATURE,
                f"{path.name}: the line that {whose} is not there: lines were taken off its "
                "end, or all of it was written anew",
            )
    return Checked(tuple(entries), before, torn, tuple(lost))


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"audit: cannot open {path}: {error.strerror or 'unwritable'}"
        ) from None
    try:
        if os.fstat(file).st_mode & 0o077:
            raise ShoalError(
                Kind.KEY_FILE, f"{path} can be read or written by others: run chmod 600 {path}"
            )
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise ShoalError(
            Kind.CONFLICT, f"audit: another console writes to {path}: give each its own"
        ) from None
    except ShoalError:
        os.close(file)
        raise
    return file


def _end_of(path: Path, head: str) -> tuple[int, str, bool, bool]:
    """(entries, hash of the last line, whether that line has its end, whether the line of ``head``
    is there or told to be lost).
    """
    count, last, line, there = 0, _START, b"\n", head in {"", _START}
    for line in _lines(path):
        entry = _parsed(line)
        count += entry is not None
        last = _hash(line)
        there = there or last == head or (entry is not None and _missed(entry) == head)
    return count, last, line.endswith(b"\n"), there


def _missed(entry: Mapping[str, Any]) -> str:
    """The head whose line was gone, if an entry tells of one."""
    detail = entry.get("detail")
    lost = entry.get("what") == _LOST and isinstance(detail, dict)
    return str(detail.get("head", "")) if lost and detail else ""


def _lines(path: Path) -> Iterator[bytes]:
    """With the end of each. A line that is too long is cut, and then none of ours."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST):
                yield line
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {path}: {error.strerror or 'unreadable'}"
        ) from None


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    """None for a line that a crash cut."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if line.endswith(b"\n") and isinstance(entry, dict) else None


def _line(entry: Mapping[str, Any]) -> bytes:
    line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
    if len(line) > _LONGEST:
        raise ShoalError(Kind.INVALID, "that is too long for the audit: nothing was done")
    return line


def _hash(line: bytes) -> str:
    """The same whether or not a crash took the end of the line, which is put there afterwards."""
    return sha256(line.rstrip(b"\n")).hexdigest()


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _head_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _keep_head(path: Path, count: int, head: str) -> None:
    """Beside it: lines that are lost from its end then show. A crash before this leaves an older
    head, which is among the lines all the same. Raises OSError.
    """
    new = path.with_name(f"{path.name}.head.new")
    file = open_staged(new)
    try:
        os.write(file, f"{count} {head}\n".encode())
    finally:
        os.close(file)
    new.replace(_head_of(path))


def _kept_head(path: Path) -> tuple[int, str]:
    """(entries, hash of the last of them); (0, "") where none is kept."""
    try:
        words = _head_of(path).read_bytes()[:200].split()
    except FileNotFoundError:
        return 0, ""
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {_head_of(path)}: {error.strerror or 'unreadable'}"
        ) from None
    if len(words) != 2 or not words[0].isdigit():
        return 0, ""
    return int(words[0]), words[1].decode("latin-1")


def _unwritable(path: Path, error: OSError) -> ShoalError:
    return ShoalError(
        Kind.UNAVAILABLE,
        f"the audit cannot be written ({path.name}: {error.strerror or 'unwritable'}), so nothing "
        "was done: make room on its disk, or mend its folder",
    )
