"""How every service runs: one event loop (uvloop where installed), SIGTERM and SIGINT ask it to
stop, once, cleanly.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError

# in a data_dir that ``shoal restore`` has begun to fill, until it is done
HALF_RESTORED = "restoring"
_OBJECTS = 20_000  # that a service makes more than it drops, between two looks for cycles
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def run_service(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run ``main(stop)`` until it returns; ``stop`` is set by SIGTERM or SIGINT. Exceptions of
    ``main`` pass through.

    From the first of these signals on both are ignored until the process ends, so that nobody's
    impatience cuts off what follows the loop either (a store that is closed, a lock that is given
    back). Every file that the process makes from here on is its owner's alone.
    """
    os.umask(0o077)
    before = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        _run(_supervised(main))
    finally:
        # nobody asked: it returned by itself
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _supervised(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked(*_: object) -> None:
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers: it takes them down when it closes, and the next signal would
    # kill. It does wake up for every signal once it has any handler, so it gets one for a signal
    # that means nothing to a service.
    loop.add_signal_handler(signal.SIGWINCH, stop.is_set)
    for number in _STOPPING:
        signal.signal(number, asked)
    await main(stop)


def spare_collector() -> None:
    """Once a service stands: what it holds by now stays, so Python's collector of cycles need not
    walk through it again, and it looks for new ones after more objects. Calls make few cycles: a
    look after every 700 objects took a twentieth of a busy service's CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS)


class Reloading:
    """When a service looks at its tasks folder again: every ``every_s`` seconds, and at once on
    SIGHUP.

    Made in the event loop before the service starts, so that a SIGHUP that comes too early ends
    nothing: it is remembered.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s, self._asked = every_s, asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def run(self, reload: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
        """Until ``stop``. ``reload`` must not raise: what it can't read it reports."""
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                asked = asyncio.create_task(self._asked.wait())
                await asyncio.wait(
                    {stopped, asked}, timeout=self._every_s, return_when=asyncio.FIRST_COMPLETED
                )
                asked.cancel()
                self._asked.clear()
                if not stop.is_set():
                    await reload()
        finally:
            stopped.cancel()


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


class DataFolder:
    """A service's folder, mode 0700, held by a lock: two processes never share one.

    Raises CONFIG if it can't be made, if others may look into it, if another process has it, or if
    a restore of it was begun and did not end (unless ``restoring``): a service that started without
    its memory would open windows again that are over. Use as a context manager.
    """

    def __init__(self, path: Path, *, restoring: bool = False) -> None:
        self.path, self._restoring = path, restoring
        self._lock: int | None = None

    def __enter__(self) -> Path:
        try:
            make_folder(self.path)
            if self.path.stat().st_mode & 0o077:
                raise ShoalError(
                    Kind.CONFIG,
                    f"data_dir {self.path}: others may look into it: run chmod 700 {self.path}",
                )
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {self.path}: this user may not use it: run this as its owner, or chown "
                "it to the user that the service runs as",
            ) from None
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG, f"data_dir {self.path}: {error.strerror or 'cannot be used'}"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {self.path}: another process uses it: stop it, or give this one its own",
            ) from None
        if not self._restoring and (self.path / HALF_RESTORED).exists():
            self.__exit__()
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {self.path}: a restore did not end: run `shoal restore` with the same "
                "backup again",
            )
        return self.path

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def make_folder(path: Path) -> None:
    """Make a folder, mode 0700, and those above it, so that a power cut takes none of them. Raises
    OSError.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in missing or [path]:
        fsync_folder(folder.parent)


def fsync_folder(path: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
