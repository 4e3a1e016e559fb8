"""Enrolment: who a device is, for tasks that admit enrolled devices alone.

An enrolment authority (whoever gives devices out, not the shuffler) signs one certificate per
device::

    Certificate        version, device_key (Ed25519), not_before_s, not_after_s
    SignedCertificate  certificate, Ed25519 by the task's enrolment_key over
                       "shoal/v1/sign/enrolment" 0x00 certificate

A certificate names nothing but a key: no owner, no serial number, no place. What a device proves
with it is in ``shoal.crypto.admission.enrolled`` (one report is its own) and in
``shoal.crypto.secagg`` (it takes a seat in a round). Both messages have one encoding and one length
(fields in order, times of five varint bytes): two readers can't understand one of them differently.
Layout and vectors: docs/WIRE.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shoal.crypto.signing import PUBLIC_SIZE, SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2

VERSION = 1
CERTIFICATE_SIZE = 48  # bytes of a Certificate
SIGNED_CERTIFICATE_SIZE = 116  # bytes of a SignedCertificate
# Unix seconds, from 1978 to 3058: exactly those that take five bytes as a varint
_TIMES = range(1 << 28, 1 << 35)
# Tags and lengths as protobuf writes them, of a SignedCertificate and of a Certificate
_CERTIFICATE_FOLLOWS, _SIGNATURE_FOLLOWS = b"\x0a\x30", b"\x12\x40"
_KEY_FOLLOWS, _FROM_FOLLOWS, _TO_FOLLOWS = b"\x08\x01\x12\x20", 0x18, 0x20
# verified certificates, about 500 bytes each: four full rounds of secure aggregation
_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class DeviceCertificate:
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
    def decode(cls, data: bytes) -> DeviceCertificate:
        """Raises INVALID for anything but the one encoding of a certificate of this version."""
        # Its one layout is read from its places, without protobuf: a device of a round and a
        # shuffler read very many. Whatever else protobuf would understand has other bytes in them.
        if (
            len(data) != CERTIFICATE_SIZE
            or data[:4] != _KEY_FOLLOWS
            or data[36] != _FROM_FOLLOWS
            or data[42] != _TO_FOLLOWS
        ):
            raise _malformed("certificate")
        return cls(data[4:36], _time(data[37:42]), _time(data[43:]))


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
        certificate, _ = _split_certificate(self.certificate)
        _require(
            DeviceCertificate.decode(certificate).device_key == self.key.public,
            "the certificate is that of another device key: use the key and the certificate that "
            "were made together",
        )

    @property
    def not_after_s(self) -> int:
        """The last Unix second at which its certificate says that it holds."""
        certificate, _ = _split_certificate(self.certificate)
        return DeviceCertificate.decode(certificate).not_after_s

    def __repr__(self) -> str:
        return f"<DeviceIdentity of public key {self.key.public.hex()}>"


def issue(root: SigningKey, device_key: bytes, not_before_s: int, not_after_s: int) -> bytes:
    """A SignedCertificate for a device's public key, signed by the enrolment authority. Raises
    INVALID.
    """
    data = DeviceCertificate(device_key, not_before_s, not_after_s).encode()
    return _join_certificate(data, root.sign(SigningContext.ENROLMENT, data))


def enrol(root: SigningKey, not_before_s: int, not_after_s: int) -> DeviceIdentity:
    """A new device: its key, made here, and its certificate. For a fleet's factory, simulations and
    tests. Raises INVALID.
    """
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(root, key.public, not_before_s, not_after_s))


def verify_certificate(
    signed: bytes, enrolment_key: bytes, now: float, *, until: float = 0.0, remember: bool = False
) -> DeviceCertificate:
    """The certificate, if ``enrolment_key`` signed it and it holds from ``now`` to ``until`` (Unix
    seconds). Else raises UNAUTHENTICATED.

    ``remember`` True is for a device, which sees the same neighbours often: whether bytes are
    signed by a key never changes, so recent ones that verified are kept; whether they hold now is
    looked at each time. A shuffler never says it: a list of who came lately is what it must not
    have.
    """
    certificate = (_remembered if remember else verified_certificate)(signed, enrolment_key)
    return holding_at(holding_at(certificate, now), max(now, until))


# --- parts ----------------------------------------------------------------------------------------


def verified_certificate(signed: bytes, enrolment_key: bytes) -> DeviceCertificate:
    """The certificate that ``enrolment_key`` signed, whatever the time. Raises UNAUTHENTICATED."""
    try:
        certificate, signature = _split_certificate(signed)
        verify(enrolment_key, SigningContext.ENROLMENT, certificate, signature)
        return DeviceCertificate.decode(certificate)
    except ShoalError as error:
        if error.kind is Kind.BAD_SIGNATURE:
            raise not_admitted(
                "a device certificate is not signed by the task's enrolment key: enrol the device "
                "with that authority"
            ) from None
        raise not_admitted(f"a device certificate is no good: {error}") from None


_remembered = lru_cache(maxsize=_REMEMBERED)(verified_certificate)


# one text for both: who is told must not learn which
NO_MORE = "a device certificate has expired or is revoked: ask whoever enrolled this device"


def holding_at(certificate: DeviceCertificate, now: float) -> DeviceCertificate:
    """The certificate, if it holds ``now`` (Unix seconds). Raises UNAUTHENTICATED."""
    if now < certificate.not_before_s:
        raise not_admitted("a device certificate does not hold yet: check the clock")
    if now > certificate.not_after_s:
        raise not_admitted(NO_MORE)
    return certificate


def _split_certificate(signed: bytes) -> tuple[bytes, bytes]:
    """(certificate, signature). Raises INVALID for anything but the one encoding. Nothing is
    verified yet.
    """
    if (
        len(signed) != SIGNED_CERTIFICATE_SIZE
        or signed[:2] != _CERTIFICATE_FOLLOWS
        or signed[50:52] != _SIGNATURE_FOLLOWS
    ):
        raise _malformed("signed certificate")
    return signed[2:50], signed[52:]


def _time(varint: bytes) -> int:
    """A number of exactly five bytes as protobuf writes it: four with the high bit, one without."""
    value = 0
    for place, byte in enumerate(varint):
        value |= (byte & 0x7F) << 7 * place
        if (byte < 0x80) != (place == 4):
            raise _malformed("certificate")
    return value


def _join_certificate(certificate: bytes, signature: bytes) -> bytes:
    return pairwise_pb2.SignedCertificate(
        certificate=certificate, signature=signature
    ).SerializeToString(deterministic=True)


def _malformed(what: str) -> ShoalError:
    return ShoalError(
        Kind.INVALID,
        f"this is no {what} of version {VERSION}: name the right file, or make it anew",
    )


def not_admitted(message: str) -> ShoalError:
    """UNAUTHENTICATED."""
    return ShoalError(Kind.UNAUTHENTICATED, message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)
