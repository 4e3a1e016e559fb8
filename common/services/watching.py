"""A source of conditions that every service has: its disk. Each look is cheap."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.limits import LIMITS, MIB
from shoal.services.conditions import Condition


def watch_disk(
    folder: Path,
    least: int = LIMITS.disk_free,
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
) -> Callable[[], Iterator[Condition]]:
    """A source: the file system of ``folder`` has ``least`` bytes free for this user, and can be
    written.
    """

    def look() -> Iterator[Condition]:
        try:
            filesystem = statvfs(folder)
        except OSError as error:
            yield Condition(
                "disk_read_only",
                "data_dir",
                f"data_dir can't be looked at ({error.strerror}): mount its disk again",
            )
            return
        if filesystem.f_flag & os.ST_RDONLY:
            yield Condition(
                "disk_read_only",
                "data_dir",
                "the disk of data_dir is read-only: nothing can be kept; mend it, or remount it",
            )
        elif filesystem.f_bavail * filesystem.f_frsize < least or (
            filesystem.f_files and not filesystem.f_favail
        ):
            yield Condition(
                "disk_full",
                "data_dir",
                f"the disk of data_dir has less than {least // MIB} MiB free, or takes no more "
                "files: make room",
            )

    return look
