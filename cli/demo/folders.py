"""Where what runs on this machine works and leaves its results: a folder that goes with it, unless
somebody named one.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

from shoal.cli.demo.made import Made
from shoal.cli.output import stderr
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB


class _StoppedError(Exception):
    """A signal came: KeyboardInterrupt, where no task may raise that."""


_REPORT = 600  # bytes on the disk at most, in all places together


def results_of(
    keep: Path | None, work: Callable[[Path], Coroutine[None, None, Made]], reports: int = 0
) -> Made:
    """What ``work`` makes in a folder: a temporary one, unless ``keep`` names it. Raises CONFIG
    where there is no room for so many ``reports``.
    """
    folder = _work_folder(keep)
    try:
        _check_room(folder, LIMITS.disk_free + reports * _REPORT, keep is not None)
        return asyncio.run(_stopped_by_signals(work(folder)))
    except (KeyboardInterrupt, _StoppedError):
        left = "its temporary files are removed" if keep is None else f"{keep} has what was made"
        stderr.print(f"Stopped: nothing of it runs any more, {left}.", markup=False, soft_wrap=True)
        raise KeyboardInterrupt from None
    finally:
        if keep is None:
            _remove(folder)


def _remove(folder: Path) -> None:
    """To the end, whoever is impatient."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check_room(folder: Path, least: int, named: bool) -> None:
    """The services stop where less is free than they want: said before, and not after a minute."""
    free = shutil.disk_usage(folder).free
    if free < least:
        other = "name another folder by --keep" if named else "name another folder by TMPDIR"
        raise ShoalError(
            Kind.CONFIG,
            f"the disk of {folder.parent} has {free // MIB} MiB free, and {-(-least // MIB)} MiB "
            f"are wanted for a while: make room there, or {other}",
        )


def _work_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    try:
        keep.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise ShoalError(Kind.CONFIG, f"{keep} exists: --keep wants a new folder") from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make {keep}: {error.strerror or 'unwritable'}"
        ) from None
    return keep.resolve()


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """With those above it; it may be there, and keeps its mode then. Raises CONFIG."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG,
            f"cannot make the folder {folder}: {error.strerror or 'unwritable'}: name another",
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """In the place of what was there. Raises CONFIG."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


async def _stopped_by_signals(work: Coroutine[None, None, Made]) -> Made:
    """Ctrl-C, SIGTERM and a terminal that is closed end it: services stopped, folder removed. What
    comes while that is done changes nothing.
    """
    task, told = asyncio.ensure_future(work), False

    def stop() -> None:
        nonlocal told
        if not told:
            told = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
            asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:  # by something else, which has a word of its own: a closed pipe
            raise
        raise _StoppedError from None
