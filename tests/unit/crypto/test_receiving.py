"""The receiver that reckons ahead says what the library says: to published answers, to honest bytes
and to hostile ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.hpke import CANNOT_OPEN, HpkePrivateKey, generate, seal
from shoal.crypto.receiving import Recipient
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from tests.sizes import size

RFC = json.loads((Path(__file__).parents[2] / "vectors" / "rfc9180_base.json").read_text())
SUITES = [SuiteId.X25519_AES128, SuiteId.X25519_CHACHA20]
INFO = b"some context"
# Points of small order, of Curve25519 and its twist, by their u: with any of them the agreed secret
# is zero (RFC 7748 section 7; the last are those before, not reduced modulo the prime).
_ORDER_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
_ORDER_8_TOO = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
_PRIME = (1 << 255) - 19
SMALL = [
    *(u.to_bytes(32, "little") for u in (0, 1, _PRIME - 1, _PRIME, _PRIME + 1)),
    bytes.fromhex(_ORDER_8),
    bytes.fromhex(_ORDER_8_TOO),
]


def recipient(key: HpkePrivateKey, info: bytes = INFO) -> Recipient:
    private = key._handle
    assert isinstance(private, X25519PrivateKey)
    return Recipient(key.config.suite, private, key.config.public_key, info)


def said(act: Any) -> bytes | None:
    """None: refused."""
    try:
        opened = act()
    except (InvalidTag, ValueError):
        return None
    assert isinstance(opened, bytes)
    return opened


@pytest.mark.parametrize("entry", RFC["rfc9180"], ids=lambda e: e["section"])
def test_rfc_9180_known_answers(entry: dict[str, Any]) -> None:
    """Planted: "shared_secret" expanded without pkR; psk_id_hash after info_hash; the nonce cut
    from the key's block -> this fails.
    """
    secret, info, enc, aad, pt, ct = (
        bytes.fromhex(entry[name]) for name in ("skRm", "info", "enc", "aad", "pt", "ct")
    )
    key = HpkePrivateKey.from_raw_secret(SuiteId(entry["suite"]), secret)
    assert recipient(key, info).open(enc + ct, aad) == pt
    assert said(lambda: recipient(key, info).open(enc + ct)) is None


def hostile(good: bytes) -> Iterator[bytes]:
    """Every place damaged, other lengths, both spellings of the point, points of small order."""
    for place in range(len(good)):
        for bit in (1, 0x80):
            yield good[:place] + bytes((good[place] ^ bit,)) + good[place + 1 :]
    for length in range(len(good)):
        yield good[:length]
    yield good + b"\x00"
    for point in SMALL:
        yield point + good[32:]
        yield point[:31] + bytes((point[31] | 0x80,)) + good[32:]


@pytest.mark.parametrize("suite", SUITES)
def test_it_opens_and_refuses_what_the_library_does(suite: SuiteId) -> None:
    """Planted: enc written back from the parsed point instead of taken as it came; the tag cut off
    before decrypting -> this fails.
    """
    key = generate(suite)
    ours = recipient(key)
    for length in (0, 1, 16, 500, size(2_000, 33_000)):
        text = os.urandom(length)
        assert ours.open(seal(key.config, text, INFO)) == text
    for sealed in hostile(seal(key.config, b"text", INFO)):
        theirs = said(lambda sealed=sealed: suite.hpke.decrypt(sealed, key._handle, info=INFO))
        assert said(lambda sealed=sealed: ours.open(sealed)) == theirs, sealed.hex()
        assert theirs is None


@pytest.mark.parametrize("point", SMALL, ids=lambda point: point.hex()[:8])
def test_an_agreed_secret_of_zero_is_refused(point: bytes) -> None:
    """Section 7.1.4: whoever sends such a point chooses the secret. Here he seals with the key that
    follows from a secret of zeros, so the tag would be right.

    Planted: an ``exchange`` that gives 32 zeros where the library refuses -> this fails.
    """
    key = generate(SuiteId.X25519_AES128)
    forger, sealing = recipient(key), list[tuple[bytes, bytes]]()

    class Listening:
        """An AEAD that tells with what it would open."""

        def __init__(self, secret: bytes) -> None:
            self.secret = secret

        def decrypt(self, nonce: bytes, data: bytes, aad: bytes | None) -> bytes:
            sealing.append((self.secret, nonce))
            return data

    forger._exchange = lambda peer_public_key: bytes(32 * bool(peer_public_key))
    aead, forger._aead = forger._aead, Listening  # type: ignore[assignment]  # a part of its shape
    forger.open(point + bytes(16))
    secret, nonce = sealing[0]
    forged = point + aead(secret).encrypt(nonce, b"text", None)
    forger._aead = aead
    assert forger.open(forged) == b"text"  # all is right, but for the zeros
    with pytest.raises(ValueError, match=r".*"):
        recipient(key).open(forged)
    for _ in range(3):  # the library first, then its substitute
        with pytest.raises(ShoalError) as refused:
            key.open(forged, INFO)
        assert (refused.value.kind, str(refused.value)) == (Kind.INVALID, CANNOT_OPEN)


@pytest.mark.parametrize("suite", SuiteId)
def test_infos_may_alternate(suite: SuiteId) -> None:
    """A key keeps what it made for one info; another info never opens with it.

    Planted: the info not compared in ``HpkePrivateKey.open`` -> this fails.
    """
    key = generate(suite)
    for info in (b"a", b"a", b"a", b"b", b"a", b"b", b"b", b"b", b"a", b"a"):
        assert key.open(seal(key.config, b"text", info), info) == b"text"
        with pytest.raises(ShoalError):
            key.open(seal(key.config, b"text", info + b"x"), info)
        with pytest.raises(ShoalError):
            key.open(seal(key.config, b"text", info), info + b"x")
    mine = key._recipient
    assert (mine is None) == (suite is SuiteId.MLKEM768_X25519_AES128)
