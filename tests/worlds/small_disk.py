"""A small disk that a test can fill, make read-only and give room again: a real file system of 1
MiB where this user may mount one, else the limits that any user has (RLIMIT_FSIZE, modes), which a
program meets as the same errors.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = 1 << 20


class SmallDisk:
    """Mounted at ``folder``. Every change lasts until ``restore``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
        self.real = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Not a byte more can be written."""
        if not self.real:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limit[1]))
            return
        with (self.folder / "filler").open("ab", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def read_only(self) -> None:
        if self.real:
            subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
            return
        for path in (*self.folder.iterdir(), self.folder):
            path.chmod(path.stat().st_mode & ~0o222)

    def restore(self) -> None:
        """Writable, with room."""
        if self.real:
            subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True)
            (self.folder / "filler").unlink(missing_ok=True)
            return
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
        for path in (self.folder, *self.folder.iterdir()):
            path.chmod(path.stat().st_mode | 0o200)

    def close(self) -> None:
        self.restore()
        if self.real:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder)
    try:
        yield disk
    finally:
        disk.close()
