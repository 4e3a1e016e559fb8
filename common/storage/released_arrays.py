"""The file of a release whose totals are one array (docs/SECAGG.md, *Long vectors*): its name, its
form, and whether it can be the array of a task.

Who writes releases and who follows them meet here. What the numbers are worth stands in the signed
release alone: the file is believed segment by segment, by the hashes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.arrays import NDArray
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos import release_pb2
from shoal.storage.array_files import HASH_SIZE, ArrayFile, ArrayForm

SUFFIX, DTYPE = ".npy", "<i8"  # whole grid steps


def array_name(task_id: TaskId, window: int) -> str:
    """The name of the file: in the analyzer's folder ``arrays``, and beside an exported release."""
    return f"{task_id.hex}-{window}{SUFFIX}"


def released_totals(
    path: Path, message: release_pb2.TotalsArray, domain: Vector
) -> Iterator[NDArray[Any]]:
    """The totals in the task's unit, float64, in order, at most ``LIMITS.array_segment`` of them at
    a time; each is what was signed.

    ``message``: of a release whose signature was verified. Raises MISMATCH for one that does not go
    with the domain, before anything is read, and, when it comes to it, for a file that is not
    there, or not what was signed.
    """
    form = ArrayForm(DTYPE, domain.dimension, max(1, message.segment), npy=True)
    fits = (
        message.dtype == DTYPE
        and message.length == domain.dimension
        and 1 <= message.segment <= LIMITS.array_segment
        and (message.clip, message.grid) == (domain.clip, domain.grid)
        and len(message.segments) == HASH_SIZE * form.count
    )
    if not fits:
        raise ShoalError(
            Kind.MISMATCH,
            "the array of this release has another length, clip or grid than the task: ask the "
            "analyzer's operator for the release of this task",
        )
    file = ArrayFile(path, form, message.segments)
    scale = message.clip / message.grid
    return (part * scale for part in file.segments())
