"""From received bytes to a task and a key schedule that may be acted upon. Verification raises; it
never returns False.

The order is fixed and the same in every role: signature over the received bytes, by a key that is
trusted; then parse; then what the two documents must say of each other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from shoal import codec
from shoal.crypto.schedules import verify_keys
from shoal.crypto.signing import SigningContext, verify
from shoal.crypto.suites import PublicKeyConfig, parse_config
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.task import KeySchedule, Task

TASK_SUFFIX = ".task"
SCHEDULE_SUFFIX = ".keys"


@dataclass(frozen=True, slots=True)
class TrustedTask:
    """A task whose signature was verified, by whom, and its id."""

    task: Task
    task_id: TaskId
    authority: bytes


@dataclass(frozen=True, slots=True)
class TrustedSchedule:
    """A verified key schedule with its public keys parsed: index = window."""

    schedule: KeySchedule
    digest: Digest
    analyzer_keys: tuple[PublicKeyConfig, ...]
    hop_keys: tuple[PublicKeyConfig, ...]


@dataclass(frozen=True, slots=True)
class ServedTask:
    """A task together with the one key schedule that belongs to it. ``bundle``: the bytes that were
    verified, to pass on as they are.
    """

    task: Task
    task_id: TaskId
    keys: TrustedSchedule
    bundle: codec.TaskBundle = field(repr=False, compare=False)


def trust_task(signed_task: bytes, authorities: Collection[bytes]) -> TrustedTask:
    """Verify and parse a SignedTask.

    Raises FORBIDDEN if its authority is not one of ``authorities`` (Ed25519 public keys),
    BAD_SIGNATURE, INVALID.
    """
    signed = codec.decode_signed_task(signed_task)
    # Before the signature: a stranger may not make this machine verify whatever it likes to send.
    if signed.authority not in authorities:
        raise ShoalError(
            Kind.FORBIDDEN,
            "task: its authority is not among the trusted ones: add its public key, or refuse the "
            "task",
        )
    verify(signed.authority, SigningContext.TASK, signed.data, signed.signature)
    # The id is over the bytes as received: a re-serialization could differ, and one task have two
    # ids.
    return TrustedTask(codec.decode_task(signed.data), TaskId.of(signed.data), signed.authority)


def trust_schedule(signed_schedule: bytes, trusted: TrustedTask) -> TrustedSchedule:
    """Verify and parse the SignedKeySchedule of a trusted task.

    Raises FORBIDDEN if another authority than the task's key_authority signed it, BAD_SIGNATURE,
    MISMATCH, INVALID.
    """
    task = trusted.task
    signed = codec.decode_signed_schedule(signed_schedule)
    if signed.authority != task.key_authority:
        raise ShoalError(
            Kind.FORBIDDEN,
            f"key schedule of task {task.name}: not signed by the task's key authority",
        )
    verify(signed.authority, SigningContext.KEY_SCHEDULE, signed.data, signed.signature)
    schedule = codec.decode_schedule(signed.data)
    # One authority may sign for many tasks: with the keys of another one, batches of both could be
    # mixed.
    if schedule.task_id != trusted.task_id.raw:
        raise ShoalError(
            Kind.MISMATCH, f"key schedule: it belongs to another task than {task.name}"
        )
    # A window without a key could never be answered; one too many has no place in the task.
    if len(schedule.windows) != task.windows.count:
        raise ShoalError(
            Kind.MISMATCH,
            f"key schedule of task {task.name}: {len(schedule.windows)} windows, the task has "
            f"{task.windows.count}",
        )
    parsed: dict[bytes, PublicKeyConfig] = {}
    for raw in [
        key for window in schedule.windows for key in (window.analyzer_key, window.hop_key)
    ]:
        if raw not in parsed:
            parsed[raw] = parse_config(raw)
            # A weaker suite than the owner was shown, or sizes that tell this device from the
            # others.
            if parsed[raw].suite != task.suite:
                raise ShoalError(
                    Kind.MISMATCH,
                    f"key schedule of task {task.name}: a key is of another HPKE suite than the "
                    "task's",
                )
    # Each role vouches for its own keys: else the authority could hand out keys of its own, and
    # read.
    verify_keys(schedule, task)
    return TrustedSchedule(
        schedule,
        Digest.of(signed.data),
        tuple(parsed[window.analyzer_key] for window in schedule.windows),
        tuple(parsed[window.hop_key] for window in schedule.windows),
    )


def serve_task(
    signed_task: bytes, signed_schedule: bytes, authorities: Collection[bytes]
) -> ServedTask:
    """Both verifications at once."""
    trusted = trust_task(signed_task, authorities)
    keys = trust_schedule(signed_schedule, trusted)
    return ServedTask(
        trusted.task, trusted.task_id, keys, codec.TaskBundle(signed_task, signed_schedule)
    )


def read_file(path: Path, most: int) -> bytes:
    """A file of signed bytes: of one that is larger than ``most`` bytes one more, so that it is
    seen to be. Raises CONFIG.
    """
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except FileNotFoundError:
        what = "the key schedule of the task" if path.suffix == SCHEDULE_SUFFIX else "the file"
        raise ShoalError(
            Kind.CONFIG, f"cannot read {path.name}: it is not there: put {what} there"
        ) from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {path.name}: {error.strerror or 'unreadable'}"
        ) from None
