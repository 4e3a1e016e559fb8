"""The three records of a round that shuffler and analyzer both sign: offer, start, commit. Bytes
and back, strictly.

Signatures and ids are over the bytes as received, never over a re-serialization.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum, IntEnum, unique

from google.protobuf.message import Message

from shoal import codec
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2

VERSION = 1
NONCE_SIZE = 32  # bytes


@unique
class Status(IntEnum):
    """Of one seat when the round is committed. The numbers cross the wire."""

    NEVER_SHARED = 0
    DROPPED = 1  # shared, but no usable vector came
    ALIVE = 2  # its vector is in the sum


@unique
class Reason(Enum):
    """Why a round ended without a sum: a fixed line each, on the wire and in logs, that names no
    device.
    """

    TOO_FEW_JOINED = "too few devices joined"
    TOO_FEW_SHARED = "too few devices shared their secrets"
    TOO_FEW_VECTORS = "too few vectors came"
    TOO_FEW_ENDORSED = "the devices do not agree about who is in the sum"
    TOO_FEW_SHARES = "too few shares came back"
    WRONG_SHARES = "shares came back that do not fit what was promised"
    WRONG_SUM = "the sum does not check"
    DISAGREE = "shuffler and analyzer do not agree about the round"
    UNREACHABLE = "the analyzer cannot be reached"
    RESTARTED = "a service restarted"
    WINDOW_OVER = "the window is over"
    OTHER = "the round was ended"

    @classmethod
    def of(cls, text: str) -> Reason:
        """The reason of that text; OTHER for one that this version does not know: a peer's text is
        never shown.
        """
        return next((reason for reason in cls if reason.value == text), cls.OTHER)

    @classmethod
    def behind(cls, error: ShoalError) -> Reason:
        """The reason whose ``error`` this is; OTHER for any other error."""
        return next((reason for reason in cls if reason.error.message == error.message), cls.OTHER)

    @property
    def error(self) -> ShoalError:
        """Kind ABORTED, to be raised."""
        return ShoalError(
            Kind.ABORTED, f"the round was aborted: {self.value}; nothing of it is counted"
        )


def _hash(label: str, *parts: bytes) -> bytes:
    return hashlib.sha256(b"".join((b"shoal/v1/secagg/", label.encode(), b"\x00", *parts))).digest()


def nonce_commitment(nonce: bytes) -> bytes:
    """SHA-256("shoal/v1/secagg/nonce" 0x00 nonce). Raises INVALID unless the nonce is 32 bytes."""
    if len(nonce) != NONCE_SIZE:
        raise ShoalError(Kind.INVALID, f"a round's nonce is {NONCE_SIZE} random bytes")
    return _hash("nonce", nonce)


def offer_id(offer: bytes) -> Digest:
    """SHA-256("shoal/v1/secagg/offer" 0x00 offer bytes)."""
    return Digest(_hash("offer", offer))


def round_id(start: bytes) -> Digest:
    """SHA-256("shoal/v1/secagg/round" 0x00 start bytes): binds offer, seats, ring and both
    nonces.
    """
    return Digest(_hash("round", start))


@dataclass(frozen=True, slots=True)
class Offer:
    """See protos/pairwise.proto. Commitments are 32 bytes."""

    task_id: TaskId
    window: int
    analyzer_key_id: KeyId
    schedule_hash: Digest
    shuffler_commitment: bytes
    analyzer_commitment: bytes

    def __post_init__(self) -> None:
        _require(0 <= self.window < LIMITS.windows, "offer: its window is out of range")
        _require(
            len(self.shuffler_commitment) == len(self.analyzer_commitment) == 32,
            "offer: commitments are 32 bytes long",
        )

    def encode(self) -> bytes:
        """The bytes that both parties sign: deterministic protobuf of shoal.v1.Offer."""
        return pairwise_pb2.Offer(
            version=VERSION,
            task_id=self.task_id.raw,
            window=self.window,
            analyzer_key_id=self.analyzer_key_id.raw,
            schedule_hash=self.schedule_hash.raw,
            shuffler_commitment=self.shuffler_commitment,
            analyzer_commitment=self.analyzer_commitment,
        ).SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Offer:
        """Raises INVALID."""
        message = codec.parse(pairwise_pb2.Offer, data, "offer")
        _strict(message, message.version, "offer")
        return cls(
            TaskId(message.task_id),
            message.window,
            KeyId(message.analyzer_key_id),
            Digest(message.schedule_hash),
            message.shuffler_commitment,
            message.analyzer_commitment,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """``devices``: seats of the ring, 2 to LIMITS.cohort. Nonces are 32 bytes."""

    offer_id: Digest
    devices: int
    ring_root: Digest
    shuffler_nonce: bytes
    analyzer_nonce: bytes
    list_hash: Digest

    def __post_init__(self) -> None:
        _require(
            2 <= self.devices <= LIMITS.cohort, f"start: a round has 2 to {LIMITS.cohort} devices"
        )
        _require(
            len(self.shuffler_nonce) == len(self.analyzer_nonce) == NONCE_SIZE,
            "start: nonces are 32 bytes long",
        )

    def encode(self) -> bytes:
        """The bytes that both parties sign: deterministic protobuf of shoal.v1.Start."""
        return pairwise_pb2.Start(
            version=VERSION,
            offer_id=self.offer_id.raw,
            devices=self.devices,
            ring_root=self.ring_root.raw,
            shuffler_nonce=self.shuffler_nonce,
            analyzer_nonce=self.analyzer_nonce,
            list_hash=self.list_hash.raw,
        ).SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Start:
        """Raises INVALID."""
        message = codec.parse(pairwise_pb2.Start, data, "start")
        _strict(message, message.version, "start")
        return cls(
            Digest(message.offer_id),
            message.devices,
            Digest(message.ring_root),
            message.shuffler_nonce,
            message.analyzer_nonce,
            Digest(message.list_hash),
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """``statuses``: one byte per position on the ring, each a ``Status``."""

    round_id: Digest
    statuses: bytes

    def __post_init__(self) -> None:
        _require(
            2 <= len(self.statuses) <= LIMITS.cohort,
            f"commit: a round has 2 to {LIMITS.cohort} devices",
        )
        _require(not self.statuses.translate(None, bytes(Status)), "commit: a status is 0, 1 or 2")

    @property
    def alive(self) -> int:
        """How many devices' vectors are in the sum."""
        return self.statuses.count(Status.ALIVE)

    def encode(self) -> bytes:
        """The bytes that both parties, and in strict mode devices, sign: deterministic protobuf."""
        return pairwise_pb2.Commit(
            version=VERSION, round_id=self.round_id.raw, statuses=self.statuses
        ).SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Commit:
        """Raises INVALID."""
        message = codec.parse(pairwise_pb2.Commit, data, "commit")
        _strict(message, message.version, "commit")
        return cls(Digest(message.round_id), message.statuses)


def verify_both(
    context: SigningContext,
    record: bytes,
    shuffler_key: bytes,
    shuffler: bytes,
    analyzer_key: bytes,
    analyzer: bytes,
) -> None:
    """Return if shuffler and analyzer both signed these bytes in this context; else raise
    BAD_SIGNATURE.
    """
    verify(shuffler_key, context, record, shuffler)
    verify(analyzer_key, context, record, analyzer)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)


def _strict(message: Message, version: int, what: str) -> None:
    """A version and fields that this program knows, all of them: two readers must not understand
    one record differently.
    """
    _require(
        version == VERSION,
        f"{what}: version {version} is not known here (this program reads version {VERSION})",
    )
    before = message.ByteSize()
    message.DiscardUnknownFields()
    _require(
        message.ByteSize() == before, f"{what}: it has fields that version {VERSION} does not know"
    )
