"""Sources of conditions that every service has: its disk, and the ends of its certificates. Each
look is cheap.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from shoal.limits import LIMITS, MIB
from shoal.rpc.tls import read_certificates
from shoal.services.conditions import Condition

_DAY_S = 86_400
_SOON_S = 14 * _DAY_S  # before its end a certificate is shown


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


def watch_certificates(
    own: Mapping[str, bytes], authorities: Mapping[str, bytes], now: Callable[[], float] = time.time
) -> Callable[[], Iterator[Condition]]:
    """A source: PEM by the name of its configuration key. A chain ends with its first certificate,
    a bundle of authorities with its last.

    Shown 14 days before the end; from the end on it stops the service: nobody takes its word any
    more.
    """
    ends = {
        name: min(certificate.not_valid_after_utc for certificate in read_certificates(pem, name))
        for name, pem in own.items()
    }
    ends |= {
        name: max(certificate.not_valid_after_utc for certificate in read_certificates(pem, name))
        for name, pem in authorities.items()
    }

    def look() -> Iterator[Condition]:
        for name, end in ends.items():
            left = end.timestamp() - now()
            if left < _SOON_S:
                told = (
                    f"{name} {'ended' if left < 0 else 'ends'} on "
                    f"{datetime.fromtimestamp(end.timestamp(), UTC):%Y-%m-%d}"
                )
                yield Condition(
                    "certificate",
                    name,
                    f"{told}: have a new one issued, put it there and restart",
                    stops=left < 0,
                )

    return look
