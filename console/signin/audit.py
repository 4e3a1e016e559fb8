"""The audit: what was done at a console, by whom and when. One JSON object a line, each with the
hash of the line before it; a line is on disk before what it tells of is done.

Whoever may write the file can write all of it anew. Against that, keep what ``shoal console audit``
prints as its head somewhere else: ``--head`` then shows whether that line is still there.
"""

from __future__ import annotations

import contextlib
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

_START = "0" * 64  # stands for the line before the first
_LONGEST = 8 * 1024  # bytes of a line
_PRIVATE = 0o600


class Audit:
    """``path``: made if it is not there. Raises CONFIG, KEY_FILE, and CONFLICT while another
    console writes to it. ``now``: Unix seconds.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now, self._lock = path, now, Lock()
        self._file = _opened(path)
        try:
            self._count, self._last, whole = _end_of(path)
            if not whole:  # a crash while it was written: the line stays, and counts for nothing
                os.write(self._file, b"\n")
                os.fsync(self._file)
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
            try:
                written = os.write(self._file, line)
                os.fsync(self._file)
            except OSError as error:
                raise _unwritable(self.path, error) from None
            if written != len(line):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise ShoalError(
                    Kind.UNAVAILABLE, f"{self.path.name}: cannot be written: make room on its disk"
                )
            self._count, self._last = self._count + 1, _hash(line)
            _keep_head(self.path, self._count, self._last)

    def close(self) -> None:
        """And let another console write."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Checked:
    """A whole audit. ``head``: the hash of its last line. ``torn``: lines that a crash cut."""

    entries: tuple[Mapping[str, Any], ...]
    head: str
    torn: int


def check(path: Path, head: str = "") -> Checked:
    """Read and verify all of it. ``head``: a line's hash that must be among them. Raises
    BAD_SIGNATURE where a line was changed, taken out or put in; CONFIG, KEY_FILE.
    """
    entries: list[Mapping[str, Any]] = []
    torn, before, hashes = 0, _START, {_START}
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
        before = _hash(line)
        hashes.add(before)
    kept = _kept_head(path)
    for known, whose in ((kept, f"{_head_of(path).name} tells of"), (head, "--head names")):
        if known and known not in hashes:
            raise ShoalError(
                Kind.BAD_SIGNATURE,
                f"{path.name}: the line that {whose} is not there: lines were taken off its "
                "end, or all of it was written anew",
            )
    return Checked(tuple(entries), before, torn)


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


def _end_of(path: Path) -> tuple[int, str, bool]:
    """(entries, hash of the last line, whether that line has its end)."""
    count, last, line = 0, _START, b"\n"
    for line in _lines(path):
        count += _parsed(line) is not None
        last = _hash(line)
    return count, last, line.endswith(b"\n")


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
    head, which is among the lines all the same.
    """
    new = path.with_name(f"{path.name}.head.new")
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
        try:
            os.write(file, f"{count} {head}\n".encode())
        finally:
            os.close(file)
        new.replace(_head_of(path))
    except OSError as error:
        raise _unwritable(path, error) from None


def _kept_head(path: Path) -> str:
    try:
        words = _head_of(path).read_bytes()[:200].split()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {_head_of(path)}: {error.strerror or 'unreadable'}"
        ) from None
    return words[1].decode("latin-1") if len(words) == 2 else ""


def _unwritable(path: Path, error: OSError) -> ShoalError:
    return ShoalError(
        Kind.UNAVAILABLE,
        f"the audit cannot be written ({path.name}: {error.strerror or 'unwritable'}), so nothing "
        "was done: make room on its disk, or mend its folder",
    )
