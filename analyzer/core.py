"""The rules of a batch at the analyzer, without sockets, disk or clock.

A batch is RECEIVING until all its rows are on disk, PROCESSING until its release is, then DONE, for
ever. One (task, window) has one manifest: the same manifest again meets the same batch and in the
end the same acknowledgement, another one is refused. Everything here either returns or raises a
ShoalError and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from shoal.codec import Manifest
from shoal.crypto.envelope import sealed_size
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.task import Task

# Why a row did not count, in the order in which a row is judged.
UNOPENABLE = "unopenable"
WRONG_LENGTH = "wrong length"
INVALID_VALUE = "invalid value"
DUPLICATE = "duplicate"
REASONS = (UNOPENABLE, WRONG_LENGTH, INVALID_VALUE, DUPLICATE)

WITHHELD_TOO_FEW = "fewer valid, distinct reports than the task's min_batch"
WITHHELD_RETENTION = (
    "the retention ended before the batch could be opened: nothing of it was counted"
)
WITHHELD_GIVEN_UP = "the analyzer's operator gave the window up: nothing of it was counted"
WITHHELD_NOT_WHOLE = (
    "its sum of shares can't be read: a message of the batch is lost or was refused, or there are "
    "more reports than it holds"
)
WITHHELD_NOT_ASKED = "nothing was asked in this window of the discovery: nothing of it was counted"
WITHHELD_EPSILON = "the guaranteed epsilon is above the task's target_epsilon"


class BatchState(IntEnum):
    """The numbers cross the wire (protos/delivery.proto) and lie in the store: never reuse one."""

    RECEIVING = 1
    PROCESSING = 2
    DONE = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that this analyzer took on. ``manifest_hash``: SHA-256 of the manifest's bytes as
    received.
    """

    manifest: Manifest
    manifest_hash: Digest
    state: BatchState


def check_manifest(manifest: Manifest, served: ServedTask, now: float) -> None:
    """Return if this batch may be taken on; ``now`` in Unix seconds. The signature was verified
    before.

    Raises MISMATCH (a field is not what task and schedule say), TOO_FEW, TOO_EARLY.
    """
    task, keys = served.task, served.keys
    if manifest.task_id != served.task_id:
        raise ShoalError(
            Kind.MISMATCH,
            "manifest: it is of another task than the one that it was checked against",
        )
    if manifest.window >= task.windows.count:
        raise ShoalError(
            Kind.MISMATCH,
            f"manifest: window {manifest.window} does not exist, the task has {task.windows.count}",
        )
    if manifest.schedule_hash != keys.digest:
        raise ShoalError(
            Kind.MISMATCH,
            "manifest: made under another key schedule than ours: give both services the same one",
        )
    if manifest.analyzer_key_id != keys.analyzer_keys[manifest.window].key_id:
        raise ShoalError(
            Kind.MISMATCH,
            f"manifest: another analyzer key than the schedule's for window {manifest.window}",
        )
    if manifest.hop_key_id != keys.hop_keys[manifest.window].key_id:
        raise ShoalError(
            Kind.MISMATCH,
            f"manifest: another hop key than the schedule's for window {manifest.window}",
        )
    expected = sealed_size(SuiteId.of(task.suite), task.report_size)
    if manifest.row_size != expected:
        raise ShoalError(
            Kind.MISMATCH,
            f"manifest: rows of {manifest.row_size} bytes, this task's are {expected} bytes long",
        )
    if task.reports_are_rows != (manifest.reports == 0):
        raise ShoalError(
            Kind.MISMATCH,
            "manifest: reports are counted apart from rows where a report of the task has several "
            "messages or the shuffler adds noise, and only there",
        )
    if 0 < task.added_messages < manifest.rows - manifest.reports:
        raise ShoalError(
            Kind.MISMATCH,
            f"manifest: the shuffler of this task adds {task.added_messages} messages at most",
        )
    reports = manifest.counted(task)
    if reports < task.min_batch:
        raise ShoalError(
            Kind.TOO_FEW,
            f"manifest: {reports} reports are fewer than min_batch asks for "
            f"({task.min_batch}): not taken",
        )
    _check_time(manifest, task, now)


def _check_time(manifest: Manifest, task: Task, now: float) -> None:
    """A batch comes after its window, or, if the task has a max_batch and the batch is that full,
    after the window's start.

    An earlier one would be released at a time that a single report's arrival decides.
    """
    reports = manifest.counted(task)
    window, full = manifest.window, 0 < task.max_batch <= reports
    earliest = task.windows.start_of(window) if full else task.windows.end_of(window)
    if now < earliest - task.windows.skew_s:
        raise ShoalError(
            Kind.TOO_EARLY,
            f"manifest: window {window} is still open and its batch not full: offer it when it is "
            "over",
        )


def retention_over(task: Task, window: int, now: float) -> bool:
    """Whether no service may hold reports of the window any more; a clock's tolerated error is
    added, so that the shuffler is first.
    """
    return now >= task.windows.start_of(window) + task.retention_s + task.windows.skew_s


def check_retention(task: Task, window: int, now: float) -> None:
    """Raises WINDOW_CLOSED when the window's key is gone, or about to go."""
    if retention_over(task, window, now):
        raise ShoalError(
            Kind.WINDOW_CLOSED,
            f"manifest: the retention of window {window} is over, so nothing can open it any more: "
            "delete it",
        )


def check_same(known: Batch | None, manifest_hash: Digest) -> None:
    """``known``: what this analyzer holds for the manifest's (task, window). Raises CONFLICT if
    that is another batch.
    """
    if known is not None and known.manifest_hash != manifest_hash:
        raise ShoalError(
            Kind.CONFLICT,
            "another batch was already accepted for this window of the task: it stands, this one "
            "is refused",
        )


def supersedes(known: Batch | None, manifest: Manifest) -> bool:
    """Whether this manifest may take the place of the known one: the shuffler's disk lost rows of a
    batch before all had come.

    Only while RECEIVING: nothing was opened then, and a window is still opened once.
    """
    return (
        known is not None
        and known.state is BatchState.RECEIVING
        and manifest.rows < known.manifest.rows
        and manifest.damaged > known.manifest.damaged
    )


def check_chunk(manifest: Manifest, received: int, first_row: int, size: int) -> int:
    """The number of rows in a chunk of ``size`` bytes that begins at ``first_row``, when
    ``received`` rows are held.

    Raises INVALID (no whole rows, a gap, an overlap, beyond the manifest's end) or OVERSIZE.
    """
    if size > LIMITS.chunk_bytes:
        raise ShoalError(
            Kind.OVERSIZE, f"chunk: {size} bytes, at most {LIMITS.chunk_bytes} are taken"
        )
    if size == 0 or size % manifest.row_size:
        raise ShoalError(
            Kind.INVALID,
            f"chunk: {size} bytes are not one or more rows of {manifest.row_size} bytes",
        )
    if first_row != received:
        raise ShoalError(
            Kind.INVALID,
            f"chunk: begins at row {first_row}, but {received} rows are held: offer the batch and "
            "go on from there",
        )
    rows = size // manifest.row_size
    if received + rows > manifest.rows:
        raise ShoalError(
            Kind.INVALID,
            f"chunk: ends at row {received + rows}, but the manifest has {manifest.rows} rows",
        )
    return rows


def withheld(
    n: int, min_batch: int, guaranteed_epsilon: float, target_epsilon: float
) -> str | None:
    """Why nothing may be published of a batch with ``n`` valid, distinct reports; None: publish.

    ``guaranteed_epsilon``: the upper bound at floor(honest_fraction * min_batch), fixed before
    collection, so that nobody can buy a release by sending more reports.
    """
    if n < min_batch:
        return WITHHELD_TOO_FEW
    if not guaranteed_epsilon <= target_epsilon:  # NaN is refused too
        return WITHHELD_EPSILON
    return None
