"""Lists of revoked devices: one encoding, one signer, and nothing else is a list."""

from __future__ import annotations

import pytest

from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.admission.revocation import (
    claimed_device,
    sign_list,
    verify_list,
)
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

ROOT = (
    SigningKey.from_seed(bytes(32)) if hasattr(SigningKey, "from_seed") else SigningKey.generate()
)
KEYS = [bytes([number]) * 32 for number in (3, 1, 2)]
LIST = sign_list(ROOT, 7, KEYS)


def test_a_list_says_what_was_signed() -> None:
    found = verify_list(LIST)
    assert (found.enrolment_key, found.number, found.devices) == (ROOT.public, 7, frozenset(KEYS))
    assert verify_list(sign_list(ROOT, 1, [])).devices == frozenset()
    assert sign_list(ROOT, 7, [*KEYS, *KEYS]) == LIST


def resigned(body: bytes, by: SigningKey = ROOT) -> bytes:
    return body + b"signature " + by.sign(SigningContext.REVOCATION, body).hex().encode() + b"\n"


BODY = LIST[: LIST.rindex(b"signature ")]


@for_each(
    "data",
    [
        b"",
        b"\n",
        LIST[:-1],
        LIST + b"\n",
        LIST.replace(b"number 7", b"number 8"),
        LIST.replace(KEYS[0].hex().encode() + b"\n", b""),
        LIST[:40] + b"\xff" + LIST[41:],
        LIST.upper(),
        LIST.replace(b"\n", b"\r\n"),
        resigned(BODY, SigningKey.generate()),
        BODY + b"signature " + ROOT.sign(SigningContext.ENROLMENT, BODY).hex().encode() + b"\n",
        # signed by the authority, and yet no list: what two readers might read in two ways
        resigned(BODY.replace(b"number 7", b"number 07")),
        resigned(BODY.replace(b"number 7", b"number 0")),
        resigned(BODY.replace(b"number 7", b"number -7")),
        resigned(BODY.replace(b"number 7", b"number 99999999999999999999")),
        resigned(BODY + KEYS[0].hex().encode() + b"\n"),
        resigned(BODY + b"ab" * 31 + b"\n"),
        resigned(BODY.replace(b"devices 1", b"devices 2")),
    ],
)
def test_anything_else_is_none(data: bytes) -> None:
    """Planted: the signature not looked at; the context of another; keys in any order -> fails."""
    with pytest.raises(ShoalError) as error:
        verify_list(data)
    assert error.value.kind in (Kind.INVALID, Kind.BAD_SIGNATURE)


def test_whose_certificate_it_claims_to_be() -> None:
    device = enrol(ROOT, 1_800_000_000, 1_900_000_000)
    assert claimed_device(device.certificate) == device.key.public
    for nothing in (b"", b"\xff" * 10, bytes(184), device.certificate[:-70]):
        assert claimed_device(nothing) == b""
