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
from shoal.errors import Kind, ShoalError


def results_of(keep: Path | None, work: Callable[[Path], Coroutine[None, None, Made]]) -> Made:
    """What ``work`` makes in a folder: a temporary one, unless ``keep`` names it."""
    folder = _work_folder(keep)
    try:
        return asyncio.run(_stopped_by_sigterm(work(folder)))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


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


def make_folder(folder: Path) -> None:
    """With those above it; it may be there. Raises CONFIG."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make the folder {folder}: {error.strerror or 'unwritable'}"
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """In the place of what was there. Raises CONFIG."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


async def _stopped_by_sigterm(work: Coroutine[None, None, Made]) -> Made:
    """SIGTERM ends it as Ctrl-C does: services stopped, folder removed."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
