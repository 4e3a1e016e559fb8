"""Tasks that admit enrolled devices alone: the proof that a frame carries, and who it is of.

With its certificate (``shoal.crypto.admission.enrolment``) a device proves, inside the hop layer,
that one report is its own::

    AdmissionProof     signed certificate, Ed25519 by the device over
                       "shoal/v1/sign/admission" 0x00 task_id u32be(window)
                       SHA-256(sealed[0] || ... || sealed[m])

The proof is bound to task, window and the very bytes that are stored, so nobody can move it to
another report. It has one encoding and one length, so a frame's size does not tell devices apart.
Layout and vectors: docs/WIRE.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from shoal.crypto.admission.enrolment import (
    DeviceIdentity,
    holding_at,
    not_admitted,
    verified_certificate,
)
from shoal.crypto.signing import SIGNATURE_SIZE, SigningContext, verify
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import pairwise_pb2

ADMISSION_SIZE = 184  # bytes of an AdmissionProof


@dataclass(frozen=True, slots=True)
class EnrolledProver:
    """A device that shows its certificate. Can't be pickled, because its key can't."""

    identity: DeviceIdentity

    def prove(self, task_id: TaskId, window: int, sealed: Sequence[bytes]) -> bytes:
        """The AdmissionProof of one report: ``ADMISSION_SIZE`` bytes, deterministic. Raises INVALID
        for a window that is no uint32.
        """
        return prove(self.identity, task_id, window, sealed)


@dataclass(frozen=True, slots=True)
class EnrolledVerifier:
    """``enrolment_key``: the Ed25519 public key of the task's enrolment authority."""

    enrolment_key: bytes

    @property
    def proof_size(self) -> int:
        """As ``Verifier.proof_size``: a certificate and a signature."""
        return ADMISSION_SIZE

    def verify(
        self, proof: bytes, task_id: TaskId, window: int, sealed: Sequence[bytes], now: float
    ) -> bytes:
        """The tag is the device's public key. Raises UNAUTHENTICATED as ``verify_proof``."""
        return verify_proof(proof, self.enrolment_key, now, task_id, window, sealed)


def prove(identity: DeviceIdentity, task_id: TaskId, window: int, sealed: Sequence[bytes]) -> bytes:
    """The AdmissionProof of one report: ``ADMISSION_SIZE`` bytes, deterministic. Raises INVALID for
    a window that is no uint32.
    """
    signature = identity.key.sign(
        SigningContext.ADMISSION, _statement(task_id, window, sha256(b"".join(sealed)))
    )
    return _join_proof(identity.certificate, signature)


def verify_proof(
    proof: bytes,
    enrolment_key: bytes,
    now: float,
    task_id: TaskId,
    window: int,
    sealed: Sequence[bytes],
) -> bytes:
    """The public key of the device whose report this is. Raises UNAUTHENTICATED if the proof is
    missing, malformed, of another authority, out of date, or for anything but exactly this task,
    window and these sealed messages.
    """
    return verify_proof_over(proof, enrolment_key, now, task_id, window, sha256(b"".join(sealed)))


def verify_proof_over(
    proof: bytes, enrolment_key: bytes, now: float, task_id: TaskId, window: int, digest: bytes
) -> bytes:
    """The same for sealed messages whose SHA-256 is ``digest``, before they are there: they must
    still be compared with it.

    Certificates are not remembered here. A device is seen once per task and window, so a memory
    would pay for small fleets alone; and a list of who came lately, in order, is what a shuffler
    must not have.
    """
    if not proof:
        raise not_admitted(
            "this task admits enrolled devices alone: enrol this device and send an admission proof"
        )
    try:
        message = pairwise_pb2.AdmissionProof.FromString(proof)
    except DecodeError:
        raise not_admitted("an admission proof is malformed: make it anew") from None
    if (
        len(message.signature) != SIGNATURE_SIZE
        or _join_proof(message.certificate, message.signature) != proof
    ):
        raise not_admitted("an admission proof is malformed: make it anew")
    certificate = holding_at(verified_certificate(message.certificate, enrolment_key), now)
    try:
        verify(
            certificate.device_key,
            SigningContext.ADMISSION,
            _statement(task_id, window, digest),
            message.signature,
        )
    except ShoalError:
        raise not_admitted(
            "an admission proof is not this device's signature over this report, task and window"
        ) from None
    return certificate.device_key


def _statement(task_id: TaskId, window: int, digest: bytes) -> bytes:
    """What a device signs. ``digest``: SHA-256 of all sealed messages; those of a task have one
    length and one number, so their concatenation can't be split anew.
    """
    if not 0 <= window < 1 << 32:
        raise ShoalError(Kind.INVALID, "a window is a number from 0 to 2^32 - 1")
    return task_id.raw + window.to_bytes(4, "big") + digest


def _join_proof(certificate: bytes, signature: bytes) -> bytes:
    return pairwise_pb2.AdmissionProof(
        certificate=certificate, signature=signature
    ).SerializeToString(deterministic=True)
