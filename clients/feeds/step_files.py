"""What the windows of discoveries ask, beside the tasks that feeds brought: a file for each step,
``<task id>.<window>.step``.

A feed is anybody. So nothing of a step counts but the signature of the task's analyzer, and that it
follows from the steps that were seen before. The first one of a window is the one: a second that
differs is CONFLICT, also after a restart.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.clients.feeds.durable import replace_file, sync_folder
from shoal.crypto.discovery_steps import check_step, most_bytes, trust_step
from shoal.crypto.trust import read_file
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.storage.disks import disk_error

if TYPE_CHECKING:
    from shoal.clients.core import Assignment

STEP_SUFFIX = ".step"


def take_step(folder: Path, assignment: Assignment, data: bytes) -> bool:
    """Verify and keep a SignedDiscoveryStep, durably, and tell the assignment. Whether it is new.

    Raises what ``trust_step`` raises; CONFLICT where it can't stand beside those that were seen:
    nothing has changed then; OVERLOADED: the disk.
    """
    discovery, known = assignment.task.domain, assignment.steps
    signed = trust_step(data, assignment.task, assignment.task_id)
    step = signed.step
    read_steps(folder, assignment)  # another program of this device may have been faster
    if not isinstance(discovery, Discovery) or known.get(step.window) == step:
        return False
    check_step(step, known.values(), discovery)
    path = folder / f"{assignment.task_id.hex}.{step.window}{STEP_SUFFIX}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, signed.data)
        sync_folder(folder)
    except OSError as error:
        raise disk_error(f"a step of task {assignment.task.name}", error, folder) from None
    known[step.window] = step
    return True


def read_steps(folder: Path | None, assignment: Assignment) -> None:
    """Tell the assignment of a discovery every step that the folder has. A file that is damaged is
    deleted: it comes again. Raises CONFLICT as ``take_step`` does.
    """
    discovery, known = assignment.task.domain, assignment.steps
    if folder is None or not isinstance(discovery, Discovery):
        return
    for path in sorted(folder.glob(f"{assignment.task_id.hex}.*{STEP_SUFFIX}")):
        if path.name.split(".")[1] in map(str, known):
            continue
        try:
            data = read_file(path, most_bytes(discovery))
            step = trust_step(data, assignment.task, assignment.task_id).step
        except ShoalError as error:
            if error.kind is not Kind.CONFIG:  # it can't be read now
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            continue
        check_step(step, known.values(), discovery)
        known[step.window] = step


def forget_steps(folder: Path, name: str) -> None:
    """Delete those of the task whose files have that ``name``."""
    for path in folder.glob(f"{name}.*{STEP_SUFFIX}"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
