"""HPKE: the published answers, another implementation, another derivation, and every way to
fail.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.bindings._rust import openssl as rust_openssl
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from shoal.crypto.hpke import CANNOT_OPEN, HpkePrivateKey, generate, open_sealed, seal
from shoal.crypto.suites import PublicKeyConfig, SuiteId, parse_config, public_config
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId
from tests.cases import for_each

RFC = json.loads((Path(__file__).parents[2] / "vectors" / "rfc9180_base.json").read_text())
X25519_SUITES = [SuiteId.X25519_AES128, SuiteId.X25519_CHACHA20]
INFO = b"some context"


def unhex(entry: dict[str, Any], *names: str) -> list[bytes]:
    return [bytes.fromhex(entry[name]) for name in names]


@pytest.mark.parametrize("entry", RFC["rfc9180"], ids=lambda e: e["section"])
def test_rfc_9180_known_answers(entry: dict[str, Any]) -> None:
    """The suite numbers stand for the RFC's algorithms. Planted: the AEADs of suites 1 and 2
    exchanged -> this fails.
    """
    suite = SuiteId(entry["suite"])
    assert (suite.kem, suite.kdf, suite.aead) == (entry["kem"], entry["kdf"], entry["aead"])
    secret, public, info, enc, aad, pt, ct = unhex(
        entry, "skRm", "pkRm", "info", "enc", "aad", "pt", "ct"
    )
    key = HpkePrivateKey.from_raw_secret(suite, secret)
    assert key.config.public_key == public
    # The RFC's vectors have an AAD; the library's public interface has none, this entry exists for
    # known answers.
    opened = rust_openssl.hpke._decrypt_with_aad(
        suite.hpke, enc + ct, key._handle, info=info, aad=aad
    )
    assert opened == pt
    with pytest.raises(ShoalError):  # our own use never has an AAD, so it must not open these
        open_sealed(key, enc + ct, info)


@pytest.mark.parametrize("entry", RFC["expansion"], ids=lambda e: e["source"])
def test_hybrid_key_expansion_known_answers(entry: dict[str, Any]) -> None:
    """Planted: X25519 half taken before the ML-KEM half of the expanded seed -> this fails."""
    public = HpkePrivateKey.from_raw_secret(
        SuiteId.MLKEM768_X25519_AES128, bytes.fromhex(entry["secret"])
    ).config.public_key
    assert public[:32].hex() == entry["public_first"]
    assert entry["public_last"] in (None, public[-32:].hex())


def _pyhpke(suite: SuiteId) -> CipherSuite:
    aead = AEADId.AES128_GCM if suite is SuiteId.X25519_AES128 else AEADId.CHACHA20_POLY1305
    return CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, aead)


@for_each("suite", X25519_SUITES)
@for_each("size", [0, 1, 17, 500, 33_000])
def test_what_we_seal_another_implementation_opens(suite: SuiteId, size: int) -> None:
    """Planted: info left out of ``seal`` -> this fails."""
    key, text = generate(suite), os.urandom(size)
    sealed = seal(key.config, text, INFO)
    theirs = KEMKey.from_pyca_cryptography_key(
        X25519PrivateKey.from_private_bytes(key.to_raw_secret())
    )
    context = _pyhpke(suite).create_recipient_context(sealed[: suite.enc_length], theirs, info=INFO)
    assert context.open(sealed[suite.enc_length :]) == text


@pytest.mark.parametrize("suite", X25519_SUITES)
def test_what_another_implementation_seals_we_open(suite: SuiteId) -> None:
    key = generate(suite)
    theirs = KEMKey.from_pyca_cryptography_key(
        X25519PublicKey.from_public_bytes(key.config.public_key)
    )
    enc, sender = _pyhpke(suite).create_sender_context(theirs, info=INFO)
    assert open_sealed(key, enc + sender.seal(b"hello"), INFO) == b"hello"


def _labeled(suite_id: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite_id + label + ikm, "sha256")


def _expand(suite_id: bytes, prk: bytes, label: bytes, info: bytes, size: int) -> bytes:
    text = size.to_bytes(2, "big") + b"HPKE-v1" + suite_id + label + info
    return hmac.digest(prk, text + b"\x01", "sha256")[:size]


def test_hybrid_suite_by_an_independent_derivation() -> None:
    """Opened with nothing but ML-KEM, X25519, SHA-3, HMAC and AES-GCM, as the drafts and RFC 9180
    section 5.1 say.

    Shows that KEM id, combiner label, key order and key schedule are those that docs/WIRE.md names.
    Planted: HKDF-SHA384 in ``_HPKE`` of suite 3 -> this fails.
    """
    suite = SuiteId.MLKEM768_X25519_AES128
    key = generate(suite)
    sealed = seal(key.config, b"hello", INFO)
    enc, ciphertext = sealed[:1120], sealed[1120:]
    seed = hashlib.shake_256(key.to_raw_secret()).digest(96)
    mlkem, x25519 = (
        MLKEM768PrivateKey.from_seed_bytes(seed[:64]),
        X25519PrivateKey.from_private_bytes(seed[64:]),
    )
    ours = x25519.public_key().public_bytes_raw()
    secret_pq = mlkem.decapsulate(enc[:1088])
    secret_t = x25519.exchange(X25519PublicKey.from_public_bytes(enc[1088:]))
    shared = hashlib.sha3_256(secret_pq + secret_t + enc[1088:] + ours + b"\\.//^\\").digest()
    suite_id = b"HPKE" + bytes.fromhex("647a00010001")
    context = (
        b"\x00"
        + _labeled(suite_id, b"", b"psk_id_hash", b"")
        + _labeled(suite_id, b"", b"info_hash", INFO)
    )
    secret = _labeled(suite_id, shared, b"secret", b"")
    aead_key = _expand(suite_id, secret, b"key", context, 16)
    nonce = _expand(suite_id, secret, b"base_nonce", context, 12)
    assert AESGCM(aead_key).decrypt(nonce, ciphertext, None) == b"hello"


@pytest.mark.parametrize("suite", SuiteId)
def test_round_trip_lengths_and_freshness(suite: SuiteId) -> None:
    """Lengths are as announced, and two sealings of one text share nothing."""
    key = generate(suite)
    first, second = (seal(key.config, b"same", INFO) for _ in range(2))
    assert len(first) == 4 + suite.overhead == 4 + suite.enc_length + 16
    assert first[: suite.enc_length] != second[: suite.enc_length]
    assert first[suite.enc_length :] != second[suite.enc_length :]
    assert open_sealed(key, first, INFO) == open_sealed(key, second, INFO) == b"same"


@pytest.mark.parametrize("suite", SuiteId)
def test_opening_fails_in_one_way(suite: SuiteId) -> None:
    """Whatever is wrong, kind and text are the same and nothing is chained: no oracle, no trace of
    the library's error.

    Planted: InvalidTag not caught; ``from None`` left out -> this fails.
    """
    key, other = generate(suite), generate(suite)
    good = seal(key.config, b"text", INFO)
    cases = (
        [
            (other, good, INFO),
            (key, good, INFO + b"x"),
            (key, good, b""),
            (key, b"", INFO),
            (key, good[: suite.enc_length - 1], INFO),
            (key, good[: suite.enc_length + 15], INFO),
            (key, good[:-1], INFO),
            (key, good + b"\x00", INFO),
            (key, bytes(len(good)), INFO),  # a zero X25519 share: the shared secret would be zero
            (key, b"\xff" * len(good), INFO),
        ]
        + [
            (key, good[:i] + bytes((good[i] ^ 1,)) + good[i + 1 :], INFO)
            for i in range(0, len(good), max(1, len(good) // 40))
        ]
    )
    for which, sealed, info in cases:
        with pytest.raises(ShoalError) as caught:
            open_sealed(which, sealed, info)
        assert (caught.value.kind, str(caught.value)) == (Kind.INVALID, CANNOT_OPEN)
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("suite", SuiteId)
def test_configuration_round_trip(suite: SuiteId) -> None:
    """Planted: the key id taken of the raw key instead of the configuration -> this fails, and
    suites 1 and 2 share ids.
    """
    config = generate(suite).config
    assert config.raw == public_config(suite, config.public_key)
    assert config.raw[:6] == suite.kem.to_bytes(2, "big") + suite.kdf.to_bytes(
        2, "big"
    ) + suite.aead.to_bytes(2, "big")
    assert config.key_id == KeyId(hashlib.sha256(config.raw).digest()[:8])
    again = parse_config(config.raw)
    assert (again, again.suite, again.public_key, again.key_id) == (
        config,
        suite,
        config.public_key,
        config.key_id,
    )
    # our own bytes; configurations are public
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
    assert len(config.public_key) == suite.public_key_length


def test_one_point_in_two_suites_is_two_keys() -> None:
    point = generate(SuiteId.X25519_AES128).config.public_key
    first, second = (PublicKeyConfig(suite, point) for suite in X25519_SUITES)
    assert first != second
    assert first.key_id != second.key_id


def test_public_key_is_parsed_once() -> None:
    """Sealing reuses the parsed object: reports cost one parse per configuration, not one each.

    Planted: ``handle`` as a property that parses -> this fails.
    """
    config = generate(SuiteId.X25519_AES128).config
    assert config.handle is config.handle
    assert config.suite.hpke is config.suite.hpke


@for_each("size", [0, 31, 33, 64])
@for_each("suite", SuiteId)
def test_secret_of_wrong_length_is_refused(suite: SuiteId, size: int) -> None:
    with pytest.raises(ShoalError) as caught:
        HpkePrivateKey.from_raw_secret(suite, bytes(size))
    assert caught.value.kind is Kind.INVALID
    assert "32 bytes" in str(caught.value)


@for_each("number", [0, 4, 255, -1])
def test_unknown_suite_number_is_refused(number: int) -> None:
    with pytest.raises(ShoalError) as caught:
        SuiteId.of(number)
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("suite", SuiteId)
def test_raw_secret_round_trip(suite: SuiteId) -> None:
    key = generate(suite)
    again = HpkePrivateKey.from_raw_secret(suite, key.to_raw_secret())
    assert again.config == key.config
    assert open_sealed(again, seal(key.config, b"x", INFO), INFO) == b"x"
