"""Devices that an enrolment authority no longer vouches for: a list that it signs, for shufflers.

A text file, in lines::

    shoal revoked devices 1
    enrolment <the authority's Ed25519 public key, hex>
    number <larger than that of every list before>
    <a device's public key, hex>          ascending, each once; any number of them
    signature <Ed25519 over "shoal/v1/sign/revocation" 0x00 and all lines before>

A list is the whole of what is revoked: a later one replaces it. No device sees it, and no message
of the wire changes: whoever is on it is refused like one whose certificate has expired.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from google.protobuf.message import DecodeError

from shoal.crypto.admission.enrolment import (
    CERTIFICATE_SIZE,
    NO_MORE,
    DeviceCertificate,
    not_admitted,
)
from shoal.crypto.signing import PUBLIC_SIZE, SIGNATURE_SIZE, SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.limits import MIB
from shoal.protos import pairwise_pb2

SUFFIX = ".revoked"
LARGEST = 16 * MIB  # bytes of a list: about 250,000 devices
_TITLE = b"shoal revoked devices 1"
_NUMBERS = range(1, 1 << 53)
_END = b"signature "


@dataclass(frozen=True, slots=True)
class RevokedDevices:
    """A list that verified. Public. ``number``: larger than that of every list before."""

    enrolment_key: bytes
    number: int
    devices: frozenset[bytes]


def sign_list(root: SigningKey, number: int, devices: Iterable[bytes]) -> bytes:
    """The file. Raises INVALID for a number or a key that is none, or too many devices."""
    keys = sorted(set(devices))
    if number not in _NUMBERS or any(len(key) != PUBLIC_SIZE for key in keys):
        raise _malformed()
    lines = [_TITLE, b"enrolment " + root.public.hex().encode(), b"number %d" % number]
    body = b"".join(line + b"\n" for line in (*lines, *(key.hex().encode() for key in keys)))
    data = body + _END + root.sign(SigningContext.REVOCATION, body).hex().encode() + b"\n"
    if len(data) > LARGEST:
        raise ShoalError(
            Kind.INVALID,
            f"a list of revoked devices has at most {LARGEST // MIB} MiB: let certificates end, "
            "and name a new enrolment authority in the next version of the question",
        )
    return data


def verify_list(data: bytes) -> RevokedDevices:
    """What its authority says, whoever that is: whether it is a task's is for the caller to see.
    Raises INVALID, BAD_SIGNATURE.
    """
    if len(data) > LARGEST or not data.endswith(b"\n"):
        raise _malformed()
    lines = data[:-1].split(b"\n")
    try:
        title, enrolment, number, *keys, end = lines
        root = _hex(enrolment, b"enrolment ", PUBLIC_SIZE)
        devices = [_hex(key, b"", PUBLIC_SIZE) for key in keys]
        signature = _hex(end, _END, SIGNATURE_SIZE)
        count = int(number.removeprefix(b"number "))
    except ValueError:
        raise _malformed() from None
    # one encoding alone: nothing may be read in two ways
    if (
        title != _TITLE
        or count not in _NUMBERS
        or number != b"number %d" % count
        or any(one >= two for one, two in pairwise(devices))
    ):
        raise _malformed()
    verify(root, SigningContext.REVOCATION, data[: -len(end) - 1], signature)
    return RevokedDevices(root, count, frozenset(devices))


def revoked() -> ShoalError:
    """What a device is told whose certificate has expired, word for word. To be said after the
    device's own signature verified: nobody may ask about another's device.
    """
    return not_admitted(NO_MORE)


def claimed_device(certificate: bytes) -> bytes:
    """The device key that a SignedCertificate names; empty for what is none. Nothing is verified:
    good for making a list alone.
    """
    try:
        message = pairwise_pb2.SignedCertificate.FromString(certificate)
        if len(message.certificate) != CERTIFICATE_SIZE:
            return b""
        return DeviceCertificate.decode(message.certificate).device_key
    except (DecodeError, ShoalError):
        return b""


def _hex(line: bytes, before: bytes, size: int) -> bytes:
    text = line.removeprefix(before)
    found = bytes.fromhex(text.decode("ascii"))
    if not line.startswith(before) or len(found) != size or found.hex().encode() != text:
        raise ValueError("not one encoding")
    return found


def _malformed() -> ShoalError:
    return ShoalError(
        Kind.INVALID, "this is no list of revoked devices: make it with shoal keys revoke"
    )
