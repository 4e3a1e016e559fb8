"""The one place where bytes become domain objects and back.

Handlers receive bytes and call these functions, so malformed input is INVALID_ARGUMENT and never
UNKNOWN. Signed things keep the received bytes beside what was parsed from them: signatures and ids
are over those bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2, directory_pb2, keys_pb2, task_pb2
from shoal.questions.domain_codec import decode_domain, encode_domain
from shoal.secagg import Mode, PairwisePlan
from shoal.task import (
    Admission,
    Aggregator,
    KeySchedule,
    MechanismSpec,
    Task,
    WindowKeys,
    WindowPlan,
)

VERSION = 1
M = TypeVar("M", bound=Message)


def parse(message: type[M], data: bytes, what: str) -> M:
    """The protobuf message, or ShoalError(INVALID). ``what`` names it in the error."""
    parsed = message()
    try:
        parsed.ParseFromString(data)
    except (DecodeError, RecursionError):
        raise ShoalError(Kind.INVALID, f"{what}: not a well-formed protobuf message") from None
    return parsed


def _version(version: int, what: str) -> None:
    if version != VERSION:
        raise ShoalError(
            Kind.INVALID,
            f"{what}: version {version} is not known here (this program reads version {VERSION})",
        )


def _known(message: Message, what: str) -> None:
    """Raise INVALID if a part of a signed message, however deep, means nothing to this program.

    Ignored, it would be signed by the authority and obeyed by newer programs only: two devices
    would answer two questions under one task id.
    """
    before = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != before:
        raise ShoalError(
            Kind.INVALID,
            f"{what}: it has fields that version {VERSION} does not know, made by a newer version: "
            "use that one",
        )


def _limit(data: bytes, most: int, what: str) -> None:
    if len(data) > most:
        raise ShoalError(Kind.OVERSIZE, f"{what}: {len(data)} bytes, at most {most} are read")


# --- signed envelopes -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signed:
    """Received bytes, who says they signed them, and the signature (not yet verified)."""

    data: bytes
    authority: bytes
    signature: bytes


def decode_signed_task(data: bytes) -> Signed:
    """Raises INVALID for what is too long or no SignedTask. Nothing is verified here."""
    _limit(data, LIMITS.task_bytes + 1024, "signed task")
    message = parse(task_pb2.SignedTask, data, "signed task")
    return Signed(message.task, message.authority, message.signature)


def encode_signed_task(signed: Signed) -> bytes:
    """Serialize shoal.v1.SignedTask; the signed bytes are passed on as they are."""
    return task_pb2.SignedTask(
        task=signed.data, authority=signed.authority, signature=signed.signature
    ).SerializeToString()


def decode_signed_schedule(data: bytes) -> Signed:
    """Raises INVALID for what is too long or no SignedKeySchedule. Nothing is verified here."""
    _limit(data, LIMITS.schedule_bytes + 1024, "signed key schedule")
    message = parse(keys_pb2.SignedKeySchedule, data, "signed key schedule")
    return Signed(message.schedule, message.authority, message.signature)


def encode_signed_schedule(signed: Signed) -> bytes:
    """Serialize shoal.v1.SignedKeySchedule; the signed bytes are passed on as they are."""
    return keys_pb2.SignedKeySchedule(
        schedule=signed.data, authority=signed.authority, signature=signed.signature
    ).SerializeToString()


# --- bundles --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskBundle:
    """A SignedTask and its SignedKeySchedule, as serialized; nothing of them is verified."""

    signed_task: bytes
    signed_schedule: bytes


def decode_bundle(data: bytes) -> TaskBundle:
    """Raises INVALID, OVERSIZE."""
    _limit(data, LIMITS.bundle_bytes, "task bundle")
    message = parse(directory_pb2.TaskBundle, data, "task bundle")
    return TaskBundle(message.signed_task, message.signed_schedule)


def encode_bundle(bundle: TaskBundle) -> bytes:
    """Serialize shoal.v1.TaskBundle: a signed task and its signed schedule."""
    return directory_pb2.TaskBundle(
        signed_task=bundle.signed_task, signed_schedule=bundle.signed_schedule
    ).SerializeToString()


# --- task -----------------------------------------------------------------------------------------


def encode_pairwise(plan: PairwisePlan | None) -> task_pb2.Pairwise | None:
    """The plan of rounds as shoal.v1.Pairwise; None: the task has none."""
    if plan is None:
        return None
    return task_pb2.Pairwise(
        mode=task_pb2.PairwiseMode.ValueType(plan.mode),
        cohort_min=plan.cohort_min,
        cohort_max=plan.cohort_max,
        survivors_min=plan.survivors_min,
        dropout_ppm=plan.dropout_ppm,
        word_bits=plan.word_bits,
        join_s=plan.join_s,
        share_s=plan.share_s,
        mask_s=plan.mask_s,
        unmask_s=plan.unmask_s,
        segment_words=plan.segment_words,
    )


def decode_pairwise(message: task_pb2.Pairwise) -> PairwisePlan:
    """The plan of rounds of a message. Raises INVALID for an unknown mode, and what its class
    refuses.
    """
    try:
        mode = Mode(message.mode)
    except ValueError:
        raise ShoalError(
            Kind.INVALID, "task: its mode of secure aggregation is of no known kind"
        ) from None
    return PairwisePlan(
        mode,
        message.cohort_min,
        message.cohort_max,
        message.survivors_min,
        message.dropout_ppm,
        message.word_bits,
        message.join_s,
        message.share_s,
        message.mask_s,
        message.unmask_s,
        message.segment_words,
    )


def encode_task(task: Task) -> bytes:
    """Bytes of a new task. Deterministic, but ids and signatures are always over the bytes once
    made.
    """
    return task_pb2.Task(
        version=VERSION,
        salt=task.salt,
        name=task.name,
        purpose=task.purpose,
        question=task.question,
        domain=encode_domain(task.domain),
        mechanism=task_pb2.Mechanism(
            name=task.mechanism.name,
            parameters=[
                task_pb2.Parameter(name=name, value=value)
                for name, value in task.mechanism.parameters
            ],
        ),
        windows=task_pb2.Windows(
            start_s=task.windows.start_s,
            length_s=task.windows.length_s,
            count=task.windows.count,
            grace_s=task.windows.grace_s,
            skew_s=task.windows.skew_s,
        ),
        min_batch=task.min_batch,
        max_batch=task.max_batch,
        honest_fraction_ppm=task.honest_fraction_ppm,
        delta=task.delta,
        target_epsilon=task.target_epsilon,
        reports_per_device=task.reports_per_device,
        admission=task_pb2.Admission.ValueType(task.admission),
        suite=task.suite,
        aggregator=task_pb2.Aggregator.ValueType(task.aggregator),
        key_authority=task.key_authority,
        shuffler_key=task.shuffler_key,
        analyzer_key=task.analyzer_key,
        shuffler_address=task.shuffler_address,
        shuffler_ca=task.shuffler_ca,
        retention_s=task.retention_s,
        report_size=task.report_size,
        messages=task.messages,
        pairwise=encode_pairwise(task.pairwise),
        enrolment_key=task.enrolment_key,
        memoized=task.memoized,
        fewest_messages=task.fewest_messages,
    ).SerializeToString(deterministic=True)


@lru_cache(maxsize=32)
def decode_task(data: bytes) -> Task:
    """Raises INVALID for anything that is not a task of this version, OVERSIZE beyond
    LIMITS.task_bytes.

    A pure function of bytes that a service or a simulator reads again and again: recent tasks are
    remembered. Whether the bytes may be trusted is never remembered: signatures are verified each
    time (crypto.trust).
    """
    _limit(data, LIMITS.task_bytes, "task")
    message = parse(task_pb2.Task, data, "task")
    _version(message.version, "task")
    _known(message, "task")
    try:
        admission, aggregator = Admission(message.admission), Aggregator(message.aggregator)
    except ValueError:
        raise ShoalError(
            Kind.INVALID, "task: its admission or aggregator is of no known kind"
        ) from None
    windows = message.windows
    if math.isnan(message.delta) or math.isnan(message.target_epsilon):
        raise ShoalError(Kind.INVALID, "task: delta and target_epsilon are numbers")
    return Task(
        salt=message.salt,
        name=message.name,
        purpose=message.purpose,
        question=message.question,
        domain=decode_domain(message.domain),
        mechanism=MechanismSpec(
            message.mechanism.name, tuple((p.name, p.value) for p in message.mechanism.parameters)
        ),
        windows=WindowPlan(
            windows.start_s, windows.length_s, windows.count, windows.grace_s, windows.skew_s
        ),
        min_batch=message.min_batch,
        max_batch=message.max_batch,
        honest_fraction_ppm=message.honest_fraction_ppm,
        delta=message.delta,
        target_epsilon=message.target_epsilon,
        reports_per_device=message.reports_per_device,
        admission=admission,
        suite=message.suite,
        aggregator=aggregator,
        key_authority=message.key_authority,
        shuffler_key=message.shuffler_key,
        analyzer_key=message.analyzer_key,
        shuffler_address=message.shuffler_address,
        shuffler_ca=message.shuffler_ca,
        retention_s=message.retention_s,
        report_size=message.report_size,
        messages=message.messages,
        pairwise=decode_pairwise(message.pairwise) if message.HasField("pairwise") else None,
        enrolment_key=message.enrolment_key,
        memoized=message.memoized,
        fewest_messages=message.fewest_messages,
    )


# --- key schedule ---------------------------------------------------------------------------------


def encode_schedule(schedule: KeySchedule) -> bytes:
    """Serialize shoal.v1.KeySchedule: the bytes that its authority signs."""
    return keys_pb2.KeySchedule(
        version=VERSION,
        task_id=schedule.task_id,
        windows=[
            keys_pb2.WindowKeys(window=w.window, analyzer_key=w.analyzer_key, hop_key=w.hop_key)
            for w in schedule.windows
        ],
        analyzer_signature=schedule.analyzer_signature,
        hop_signature=schedule.hop_signature,
    ).SerializeToString(deterministic=True)


@lru_cache(maxsize=32)
def decode_schedule(data: bytes) -> KeySchedule:
    """Raises INVALID, OVERSIZE. Recent schedules are remembered, as tasks are."""
    _limit(data, LIMITS.schedule_bytes, "key schedule")
    message = parse(keys_pb2.KeySchedule, data, "key schedule")
    _version(message.version, "key schedule")
    _known(message, "key schedule")
    windows = tuple(WindowKeys(w.window, w.analyzer_key, w.hop_key) for w in message.windows)
    return KeySchedule(message.task_id, windows, message.analyzer_signature, message.hop_signature)


# --- delivery -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the shuffler says of a sealed batch: counts of rows (sealed messages), and ``reports``:
    distinct reports that they are messages of, one less for each damaged row; 0 where every row is
    a report. ``asked``: of a discovery, the 32 bytes that name what its reports answer; else none.
    """

    task_id: TaskId
    window: int
    rows: int
    row_size: int
    analyzer_key_id: KeyId
    hop_key_id: KeyId
    schedule_hash: Digest
    rows_hash: Digest
    damaged: int = 0
    reports: int = 0
    asked: bytes = b""

    def __post_init__(self) -> None:
        if len(self.asked) not in (0, 32):
            raise ShoalError(Kind.INVALID, "manifest: asked names a question in 32 bytes")
        if not 0 < self.rows <= LIMITS.batch_rows:
            raise ShoalError(Kind.INVALID, f"manifest: a batch has 1 to {LIMITS.batch_rows} rows")
        if not 0 <= self.damaged <= LIMITS.batch_rows:
            raise ShoalError(Kind.INVALID, "manifest: damaged is out of range")
        if not 0 <= self.reports <= self.rows:
            raise ShoalError(Kind.INVALID, "manifest: no more reports than rows")
        if not 0 < self.row_size <= LIMITS.report_bytes + 2 * 1024:
            raise ShoalError(Kind.INVALID, "manifest: row_size is out of range")
        if not 0 <= self.window < LIMITS.windows:
            raise ShoalError(Kind.INVALID, "manifest: window is out of range")

    def counted(self, task: Task) -> int:
        """Reports of a batch of this task."""
        return self.rows if task.reports_are_rows else self.reports


def encode_manifest(manifest: Manifest) -> bytes:
    """Serialize shoal.v1.Manifest: the bytes that the shuffler signs."""
    return delivery_pb2.Manifest(
        version=VERSION,
        task_id=manifest.task_id.raw,
        window=manifest.window,
        rows=manifest.rows,
        row_size=manifest.row_size,
        analyzer_key_id=manifest.analyzer_key_id.raw,
        hop_key_id=manifest.hop_key_id.raw,
        schedule_hash=manifest.schedule_hash.raw,
        rows_hash=manifest.rows_hash.raw,
        damaged=manifest.damaged,
        reports=manifest.reports,
        asked=manifest.asked,
    ).SerializeToString(deterministic=True)


def decode_manifest(data: bytes) -> Manifest:
    """The bytes that the shuffler signed. Raises INVALID for another version or a field out of
    range.
    """
    message = parse(delivery_pb2.Manifest, data, "manifest")
    _version(message.version, "manifest")
    return Manifest(
        TaskId(message.task_id),
        message.window,
        message.rows,
        message.row_size,
        KeyId(message.analyzer_key_id),
        KeyId(message.hop_key_id),
        Digest(message.schedule_hash),
        Digest(message.rows_hash),
        message.damaged,
        message.reports,
        message.asked,
    )
