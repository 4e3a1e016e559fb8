"""HPKE sealing with a chosen ephemeral key, for vectors that are the same at every run. RFC 9180
sections 4.1 and 5, written out.

Choosing the ephemeral key is for test vectors alone: two messages under one ephemeral key open each
other.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.crypto.suites import PublicKeyConfig, SuiteId


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    """LabeledExtract."""
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """LabeledExpand, for at most 32 bytes."""
    return hmac.digest(
        key, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\x01", "sha256"
    )[:size]


def seal_fixed(config: PublicKeyConfig, ephemeral: bytes, plaintext: bytes, info: bytes) -> bytes:
    """enc || ciphertext of SealBase, suite 1 (X25519, HKDF-SHA256, AES-128-GCM), empty AAD, message
    0.
    """
    assert config.suite is SuiteId.X25519_AES128
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = private.public_key().public_bytes_raw()
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    agreed = private.exchange(X25519PublicKey.from_public_bytes(config.public_key))
    shared = _expand(
        kem, _extract(kem, b"", b"eae_prk", agreed), b"shared_secret", enc + config.public_key, 32
    )
    context = (
        b"\x00"
        + _extract(suite, b"", b"psk_id_hash", b"")
        + _extract(suite, b"", b"info_hash", info)
    )
    secret = _extract(suite, shared, b"secret", b"")
    key, nonce = (
        _expand(suite, secret, b"key", context, 16),
        _expand(suite, secret, b"base_nonce", context, 12),
    )
    return enc + AESGCM(key).encrypt(nonce, plaintext, b"")
