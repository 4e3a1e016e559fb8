"""How a device knows that nothing of a purpose is on its way any more: a file lock that attempts
share, and a withdrawal takes alone.

An attempt enters the gate of its purpose before it asks whether it is allowed, and leaves when its
last byte is out. Who takes a consent back writes that down first, then has the gate alone for a
moment: every attempt of every process that began before has ended then, and every later one sees
the answer. A process that dies gives its place up (flock(2)).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.storage.disks import disk_error, names_its_cause

_LOOK_S = 0.02  # between two looks at a lock that somebody else has
_NAME_BYTES = 8  # of a purpose's SHA-256: two purposes of one gate would only wait for one another


class Gates:
    """A folder of mode 0700 with one empty file per purpose. Raises CONFIG, OVERLOADED if it can't
    be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, str] = {}  # by purpose
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unusable(folder, error) from None

    def _open(self, purpose: str) -> int:
        path = self._paths.get(purpose)
        if path is None:
            name = sha256(purpose.encode())[:_NAME_BYTES].hex()
            path = self._paths[purpose] = os.fspath(self._folder / name)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(self._folder, error) from None

    @asynccontextmanager
    async def attempt(self, purpose: str) -> AsyncIterator[None]:
        """Shared by all attempts of all processes. Raises as the constructor does."""
        handle = self._open(purpose)
        try:
            await _lock(handle, fcntl.LOCK_SH)  # who has it alone gives it back at once
            yield
        finally:
            with contextlib.suppress(OSError):
                # of copies too: closing leaves it to whatever the host's program forked meanwhile
                fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    async def clear(self, purpose: str, timeout_s: float) -> bool:
        """Return when every attempt of the purpose that is under way now has ended; False if that
        took over ``timeout_s`` seconds.
        """
        handle = self._open(purpose)
        try:
            async with asyncio.timeout(timeout_s):
                await _lock(handle, fcntl.LOCK_EX)
        except TimeoutError:
            return False
        finally:
            os.close(handle)
        return True


async def _lock(handle: int, how: int) -> None:
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_LOOK_S)  # another process has it: no event of this one tells
        except OSError as error:
            why = error.strerror or "failed"
            raise ShoalError(
                Kind.OVERLOADED, f"a gate can't be locked: {why}: keep the outbox on a local disk"
            ) from None
        else:
            return


def _unusable(folder: Path, error: OSError) -> ShoalError:
    if names_its_cause(error):
        return disk_error(f"folder {folder.name}", error, folder.parent)
    kind = (
        Kind.CONFIG
        if isinstance(error, PermissionError | FileExistsError | FileNotFoundError)
        else Kind.OVERLOADED
    )
    return ShoalError(
        kind,
        f"folder {folder.name}: {error.strerror or 'cannot be used'}: it must be this user's own",
    )
