"""Enrolment: who a device is, for tasks that admit enrolled devices alone, and the proof that a
frame carries.

An enrolment authority (whoever gives devices out, not the shuffler) signs one certificate per
device::

    Certificate        version, device_key (Ed25519), not_before_s, not_after_s
    SignedCertificate  certificate, Ed25519 by the task's enrolment_key over "shoal/v1/sign/enrolment" 0x00 certificate

A certificate names nothing but a key: no owner, no serial number, no place. With it a device
proves, inside the hop layer, that one report is its own::

    AdmissionProof     signed certificate, Ed25519 by the device over
                       "shoal/v1/sign/admission" 0x00 task_id u32be(window) SHA-256(sealed[0] || ... || sealed[m])

The proof is bound to task, window and the very bytes that are stored, so nobody can move it to
another report. All three messages have one encoding and one length (fields in order, times of five
varint bytes): two readers can't understand one of them differently, and a frame's size does not
tell devices apart. Layout and vectors: docs/WIRE.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from shoal.crypto.signing import PUBLIC_SIZE, SIGNATURE_SIZE, SigningContext, SigningKey, verify
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import pairwise_pb2

VERSION = 1
CERTIFICATE_SIZE = 48  # bytes of a Certificate
SIGNED_CERTIFICATE_SIZE = 116  # bytes of a SignedCertificate
ADMISSION_SIZE = 184  # bytes of an AdmissionProof
# Unix seconds, from 1978 to 3058: exactly those that take five bytes as a varint
_TIMES = range(1 << 28, 1 << 35)
# verified certificates, about 500 bytes each: four full rounds of secure aggregation
_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class Certificate:
    """A device's public key (Ed25519, 32 bytes) and when it holds: Unix seconds, both ends
    included. Public.

    Raises INVALID on construction.
    """

    device_key: bytes
    not_before_s: int
    not_after_s: int

    def __post_init__(self) -> None:
        _require(
            len(self.device_key) == PUBLIC_SIZE,
            f"a device's key is a {PUBLIC_SIZE}-byte Ed25519 public key",
        )
        _require(
            self.not_before_s in _TIMES and self.not_after_s in _TIMES,
            "a certificate holds from and to a Unix time in seconds, 1978 to 3058",
        )
        _require(
            self.not_before_s <= self.not_after_s, "a certificate's end is not before its beginning"
        )

    def encode(self) -> bytes:
        """``CERTIFICATE_SIZE`` bytes; the one encoding there is."""
        return pairwise_pb2.Certificate(
            version=VERSION,
            device_key=self.device_key,
            not_before_s=self.not_before_s,
            not_after_s=self.not_after_s,
        ).SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Certificate:
        """Raises INVALID for anything but the one encoding of a certificate of this version."""
        try:
            message = pairwise_pb2.Certificate.FromString(data)
        except DecodeError:
            raise _malformed("certificate") from None
        certificate = cls(message.device_key, message.not_before_s, message.not_after_s)
        # version, unknown and repeated fields too
        _require(certificate.encode() == data, _malformed("certificate").message)
        return certificate


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A device's private key and its signed certificate (``SIGNED_CERTIFICATE_SIZE`` bytes,
    public).

    Prints neither; can't be pickled, because the key can't. Raises INVALID on construction if the
    certificate is none, or is another key's. Whether its signature is the enrolment authority's is
    for those to verify who know the authority.
    """

    key: SigningKey
    certificate: bytes

    def __post_init__(self) -> None:
        signed = _split_certificate(self.certificate)
        _require(
            Certificate.decode(signed.certificate).device_key == self.key.public,
            "the certificate is that of another device key: use the key and the certificate that "
            "were made together",
        )

    def __repr__(self) -> str:
        return f"<DeviceIdentity of public key {self.key.public.hex()}>"


def issue(root: SigningKey, device_key: bytes, not_before_s: int, not_after_s: int) -> bytes:
    """A SignedCertificate for a device's public key, signed by the enrolment authority. Raises
    INVALID.
    """
    data = Certificate(device_key, not_before_s, not_after_s).encode()
    return _join_certificate(data, root.sign(SigningContext.ENROLMENT, data))


def enrol(root: SigningKey, not_before_s: int, not_after_s: int) -> DeviceIdentity:
    """A new device: its key, made here, and its certificate. For a fleet's factory, simulations and
    tests. Raises INVALID.
    """
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(root, key.public, not_before_s, not_after_s))


def verify_certificate(
    signed: bytes, enrolment_key: bytes, now: float, *, until: float = 0.0, remember: bool = False
) -> Certificate:
    """The certificate, if ``enrolment_key`` signed it and it holds from ``now`` to ``until`` (Unix
    seconds). Else raises UNAUTHENTICATED.

    ``remember`` True is for a device, which sees the same neighbours often: whether bytes are
    signed by a key never changes, so recent ones that verified are kept; whether they hold now is
    looked at each time. A shuffler never says it: a list of who came lately is what it must not
    have.
    """
    certificate = (_remembered if remember else _verified)(signed, enrolment_key)
    return _holding(_holding(certificate, now), max(now, until))


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
        raise _refused(
            "this task admits enrolled devices alone: enrol this device and send an admission proof"
        )
    try:
        message = pairwise_pb2.AdmissionProof.FromString(proof)
    except DecodeError:
        raise _refused("an admission proof is malformed: make it anew") from None
    if (
        len(message.signature) != SIGNATURE_SIZE
        or _join_proof(message.certificate, message.signature) != proof
    ):
        raise _refused("an admission proof is malformed: make it anew")
    certificate = _holding(_verified(message.certificate, enrolment_key), now)
    try:
        verify(
            certificate.device_key,
            SigningContext.ADMISSION,
            _statement(task_id, window, digest),
            message.signature,
        )
    except ShoalError:
        raise _refused(
            "an admission proof is not this device's signature over this report, task and window"
        ) from None
    return certificate.device_key


# --- parts ----------------------------------------------------------------------------------------


def _statement(task_id: TaskId, window: int, digest: bytes) -> bytes:
    """What a device signs. ``digest``: SHA-256 of all sealed messages; those of a task have one
    length and one number, so their concatenation can't be split anew.
    """
    _require(0 <= window < 1 << 32, "a window is a number from 0 to 2^32 - 1")
    return task_id.raw + window.to_bytes(4, "big") + digest


def _verified(signed: bytes, enrolment_key: bytes) -> Certificate:
    """The certificate that ``enrolment_key`` signed, whatever the time. Raises UNAUTHENTICATED."""
    try:
        message = _split_certificate(signed)
        verify(enrolment_key, SigningContext.ENROLMENT, message.certificate, message.signature)
        return Certificate.decode(message.certificate)
    except ShoalError as error:
        if error.kind is Kind.BAD_SIGNATURE:
            raise _refused(
                "a device certificate is not signed by the task's enrolment key: enrol the device "
                "with that authority"
            ) from None
        raise _refused(f"a device certificate is no good: {error}") from None


_remembered = lru_cache(maxsize=_REMEMBERED)(_verified)


def _holding(certificate: Certificate, now: float) -> Certificate:
    if now < certificate.not_before_s:
        raise _refused("a device certificate does not hold yet: check the clock")
    if now > certificate.not_after_s:
        raise _refused("a device certificate has expired: enrol this device again")
    return certificate


def _split_certificate(signed: bytes) -> pairwise_pb2.SignedCertificate:
    """Raises INVALID for anything but the one encoding. Nothing is verified yet."""
    try:
        message = pairwise_pb2.SignedCertificate.FromString(signed)
    except DecodeError:
        raise _malformed("signed certificate") from None
    _require(
        len(message.certificate) == CERTIFICATE_SIZE
        and len(message.signature) == SIGNATURE_SIZE
        and _join_certificate(message.certificate, message.signature) == signed,
        _malformed("signed certificate").message,
    )
    return message


def _join_certificate(certificate: bytes, signature: bytes) -> bytes:
    return pairwise_pb2.SignedCertificate(
        certificate=certificate, signature=signature
    ).SerializeToString(deterministic=True)


def _join_proof(certificate: bytes, signature: bytes) -> bytes:
    return pairwise_pb2.AdmissionProof(
        certificate=certificate, signature=signature
    ).SerializeToString(deterministic=True)


def _malformed(what: str) -> ShoalError:
    return ShoalError(
        Kind.INVALID,
        f"this is no {what} of version {VERSION}: name the right file, or make it anew",
    )


def _refused(message: str) -> ShoalError:
    return ShoalError(Kind.UNAUTHENTICATED, message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)
