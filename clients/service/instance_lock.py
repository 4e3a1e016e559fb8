"""One ``shoal agent run`` per outbox: a file lock beside it, which the kernel takes back when the
process ends, however it ends.

Two would lose nothing, because every claim is one exclusive transaction. But both would read every
source and send whatever waits, and their owner would look into the wrong log. Commands that answer
once (report, flush, consent) don't ask for the lock.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shoal.errors import Kind, ShoalError
from shoal.storage.disks import disk_error, names_its_cause

RUN_SUFFIX = ".run"


class Hold:
    """The lock of OUTBOX.run, an empty file of mode 0600, until ``release``. ``real``: the outbox
    without links, however it is named.

    Raises CONFIG if another process has it, or the file can't be made here; OVERLOADED if the disk
    is full or failing.
    """

    def __init__(self, outbox: Path) -> None:
        self.real = outbox.resolve()
        path = self.real.with_name(self.real.name + RUN_SUFFIX)
        try:
            self._handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            if names_its_cause(error):
                raise disk_error(f"outbox {path}", error, path.parent) from None
            theirs = isinstance(
                error, PermissionError | FileNotFoundError | NotADirectoryError | IsADirectoryError
            )
            why = error.strerror or "cannot be made"
            raise ShoalError(
                Kind.CONFIG if theirs else Kind.OVERLOADED,
                f"outbox {path}: {why}: name a file in a folder of this user",
            ) from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            if isinstance(error, BlockingIOError):
                raise ShoalError(
                    Kind.CONFIG,
                    f"another agent runs on this outbox: {outbox}: stop it first, or name another "
                    "outbox "
                    "(shoal agent report, flush and consent work beside it)",
                ) from None
            raise ShoalError(
                Kind.OVERLOADED,
                f"outbox {path}: {error.strerror or 'cannot be locked'}: name a file on a local "
                "disk",
            ) from None

    def release(self) -> None:
        """The file stays: who deletes it would let two have it."""
        os.close(self._handle)
