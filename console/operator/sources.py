"""A source of releases that is read again only when its files changed: twenty questions of a
thousand windows are seconds of work, and people look every few seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
_SETTLED_S = 2.0  # a file that changed just now may change again under the same time
_AT_LEAST_S = 300.0  # between two readings of files that say they are the same
_Stamp = tuple[tuple[int, ...], ...]


class Unchanged(Generic[T]):
    """``read``: see ``Watched``. ``files``: those that it reads, and folders of them. ``now``: Unix
    seconds.
    """

    def __init__(
        self,
        read: Callable[[], T],
        files: Callable[[], Iterable[Path]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read, self._files, self._now = read, files, now
        self._last: tuple[_Stamp, float, T] | None = None

    def __call__(self) -> T:
        """What was read last, the same object, or what is read now. Raises what ``read`` does."""
        stamp, now = tuple(_stat(path) for path in self._files()), self._now()
        if self._last is not None:
            before, at, value = self._last
            if before == stamp and 0 <= now - at < _AT_LEAST_S:
                return value
        value = self._read()
        changed = max((each[-1] for each in stamp if each), default=0) / 1e9
        self._last = (stamp, now, value) if now - changed > _SETTLED_S else None
        return value


def _stat(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced, its time last; nothing of one that is
    gone.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_ctime_ns, found.st_mtime_ns


def in_folder(path: Path | None, suffix: str) -> list[Path]:
    """A folder and its files that end so; or the file that it is."""
    if path is None:
        return []
    try:
        return [path, *sorted(each for each in path.iterdir() if each.name.endswith(suffix))]
    except OSError:
        return [path]
