"""Ed25519 with contexts: what verifies, and that everything else raises."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from shoal.crypto import signing
from shoal.crypto.signing import (
    SIGNATURE_SIZE,
    SigningContext,
    SigningKey,
    hasten,
    is_signed,
    signed_input,
    verify,
)
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size

DATA = b"the bytes as they came"


def refused(public: bytes, context: SigningContext, data: bytes, signature: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        verify(public, context, data, signature)
    assert caught.value.kind is Kind.BAD_SIGNATURE
    assert "\n" not in str(caught.value)


def test_rfc_8032_key() -> None:
    """RFC 8032 section 7.1, test 1: the public key of a known secret."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert SigningKey(Ed25519PrivateKey.from_private_bytes(secret)).public.hex() == public


@for_each("context", SigningContext)
def test_signs_and_verifies(context: SigningContext) -> None:
    key = SigningKey.generate()
    signature = key.sign(context, DATA)
    assert len(signature) == SIGNATURE_SIZE
    verify(key.public, context, DATA, signature)  # returns None, raises otherwise
    assert signature == key.sign(context, DATA)


@for_each("signed, claimed", list(itertools.permutations(SigningContext, 2)))
def test_no_context_stands_for_another(signed: SigningContext, claimed: SigningContext) -> None:
    """Planted: the context left out of ``signed_input`` -> every pair fails."""
    key = SigningKey.generate()
    refused(key.public, claimed, DATA, key.sign(signed, DATA))


def test_context_names_are_prefix_free() -> None:
    """No context with data can be read as another context with other data: the zero byte ends the
    name.
    """
    names = [context.value for context in SigningContext]
    assert not any("\x00" in name for name in names)
    assert len(set(names)) == len(names)
    assert signed_input(SigningContext.TASK, b"x") == b"shoal/v1/sign/task\x00x"


def test_every_flipped_bit_is_refused() -> None:
    """All 512 bits of a signature, all 256 of a key, some of the data. Planted: verify catches and
    returns -> this fails.
    """
    key = SigningKey.generate()
    signature = key.sign(SigningContext.ACK, DATA)
    for bit in range(8 * len(signature)):
        changed = (int.from_bytes(signature, "big") ^ 1 << bit).to_bytes(len(signature), "big")
        refused(key.public, SigningContext.ACK, DATA, changed)
    for bit in range(256):
        refused(
            (int.from_bytes(key.public, "big") ^ 1 << bit).to_bytes(32, "big"),
            SigningContext.ACK,
            DATA,
            signature,
        )
    for changed in (b"", DATA[:-1], DATA + b"\x00", DATA.upper()):
        refused(key.public, SigningContext.ACK, changed, signature)


def test_wrong_lengths_are_refused() -> None:
    """Planted: ValueError not caught in ``verify`` -> this fails."""
    key = SigningKey.generate()
    signature = key.sign(SigningContext.TASK, DATA)
    for public in (b"", key.public[:-1], key.public + b"\x00"):
        refused(public, SigningContext.TASK, DATA, signature)
    for changed in (b"", signature[:-1], signature + b"\x00", signature * 2):
        refused(key.public, SigningContext.TASK, DATA, changed)


def test_pem_round_trip() -> None:
    key = SigningKey.generate()
    again = SigningKey.from_pem(key.to_pem())
    assert again.public == key.public
    assert again.sign(SigningContext.TASK, DATA) == key.sign(SigningContext.TASK, DATA)


def _other_pem(kind: str) -> bytes:
    private = Ed25519PrivateKey.generate()
    if kind == "encrypted":
        return private.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    if kind == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    return {"empty": b"", "text": b"hello", "cut": SigningKey.generate().to_pem()[:60]}[kind]


@for_each("kind", ["encrypted", "ecdsa", "empty", "text", "cut"])
def test_other_pem_is_refused(kind: str) -> None:
    with pytest.raises(ShoalError) as caught:
        SigningKey.from_pem(_other_pem(kind))
    assert caught.value.kind is Kind.INVALID


# --- libsodium first ------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody in this process has called ``hasten``."""
    monkeypatch.setattr(signing._Second, "open", None)
    monkeypatch.setattr(signing._Second, "refused", ())


def _hostile() -> Iterator[tuple[bytes, bytes]]:
    """(public key, signature) over DATA: right ones, changed ones, wrong lengths, and points of
    small order, whose signatures OpenSSL accepts and libsodium refuses.
    """
    key, entropy = SigningKey.generate(), SeededEntropy(7)
    right = key.sign(SigningContext.ROUND_KEYS, DATA)
    order = (2**252 + 27742317777372353535851937790883648493).to_bytes(32, "little")
    yield from ((key.public, right), (key.public, right[:63]), (key.public, right + b"\x00"))
    # of other bytes, whose first one is passed off as the signature's last
    other = key._handle.sign(b"x" + signed_input(SigningContext.ROUND_KEYS, DATA))
    yield key.public, other + b"x"
    yield from ((key.public[:31], right), (b"", b""), (key.public, bytes(64)))
    # S + L is another spelling of S
    s = (int.from_bytes(right[32:], "little") + int.from_bytes(order, "little")) % 2**256
    yield key.public, right[:32] + s.to_bytes(32, "little")
    for _ in range(size(50, 1_000)):
        place, changed = entropy.bytes(2), bytearray(key.public + right)
        changed[place[0] % 96] ^= 1 << place[1] % 8
        yield bytes(changed[:32]), bytes(changed[32:])
    neutral = b"\x01" + bytes(31)
    yield neutral, neutral + bytes(32)


@pytest.mark.usefixtures("alone")
def test_the_second_library_changes_no_answer() -> None:
    """Planted: what libsodium does not accept refused without asking OpenSSL -> the last one
    differs, fails; the signature's length not looked at -> a byte of it counts as the message's,
    fails.
    """
    cases = list(_hostile())
    before = [is_signed(key, SigningContext.ROUND_KEYS, DATA, sign) for key, sign in cases]
    assert (before[0], before[-1]) == (True, True)
    assert sum(before) == 2
    assert hasten()
    assert signing._Second.open is not None
    after = [is_signed(key, SigningContext.ROUND_KEYS, DATA, sign) for key, sign in cases]
    assert after == before


@pytest.mark.usefixtures("alone")
def test_the_second_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: ``hasten`` without effect -> fails."""
    key = SigningKey.generate()
    assert hasten()
    monkeypatch.setattr(signing, "Ed25519PublicKey", None)  # OpenSSL is not
    verify(key.public, SigningContext.TASK, DATA, key.sign(SigningContext.TASK, DATA))


@pytest.mark.usefixtures("alone")
def test_without_the_second_library_everything_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base install. Planted: the import outside of ``try`` -> raises, fails."""
    monkeypatch.setitem(sys.modules, "nacl.bindings", None)
    key = SigningKey.generate()
    assert not hasten()
    verify(key.public, SigningContext.TASK, DATA, key.sign(SigningContext.TASK, DATA))
    refused(key.public, SigningContext.TASK, DATA, bytes(64))
