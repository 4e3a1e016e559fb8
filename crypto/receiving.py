"""The receiver of HPKE, with what does not depend on the message reckoned once.

``Suite.decrypt`` of ``cryptography`` begins at nothing for every message: it hashes the same info,
the same empty PSK and the same labels again, a third of the time that is not X25519. A service
opens millions of messages that one key and one info bind, so here the key schedule's context is
made once. The steps are RFC 9180's and the primitives the same library's:

    dh = X25519(skR, enc)                                                          section 4.1
    shared secret = ExtractAndExpand(dh, enc || pkR)                               section 4.1
    key, base nonce = KeySchedule(base mode, shared secret, info)                  section 5.1
    plaintext = Open(key, base nonce, aad "", ciphertext)                          sections 5.2, 6.1

For the KEM X25519 alone; the hybrid stays the library's. What this refuses is what the library
refuses: a test holds both against one another, over damaged and hostile bytes too.
"""

from __future__ import annotations

from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from shoal.crypto.suites import AEAD_CHACHA20_POLY1305, SuiteId

_ENC_SIZE = 32  # bytes; Nenc of DHKEM(X25519), section 7.1
_NONCE_SIZE = 12  # bytes; Nn of both AEADs, section 7.3
_SHA256 = SHA256()
_FROM_BYTES = X25519PublicKey.from_public_bytes


class Recipient:
    """Opens what was sealed to one X25519 key with one ``info``, and any ``aad``: none, in Shoal.

    It holds a private key: nothing prints, pickling or copying raises TypeError.
    """

    __slots__ = (
        "_aead",
        "_exchange",
        "_expand_key",
        "_expand_nonce",
        "_expand_shared",
        "_extract",
        "_extract_secret",
        "_key_size",
        "_public",
        "info",
    )

    def __init__(
        self, suite: SuiteId, private: X25519PrivateKey, public: bytes, info: bytes
    ) -> None:
        """``suite``: one with the KEM X25519; ``public``: the raw key of ``private``, 32 bytes."""
        kem = b"KEM" + suite.kem.to_bytes(2, "big")
        hpke = b"HPKE" + b"".join(i.to_bytes(2, "big") for i in (suite.kem, suite.kdf, suite.aead))
        chacha = suite.aead == AEAD_CHACHA20_POLY1305
        self.info = info
        self._exchange, self._public = private.exchange, public + b"\x01"
        self._aead: type[AESGCM | ChaCha20Poly1305] = ChaCha20Poly1305 if chacha else AESGCM
        self._key_size = 32 if chacha else 16  # Nk, section 7.3
        # LabeledExtract with an empty salt, which HMAC pads to as many zeros: its label is eaten.
        self._extract = HMAC(bytes(32), _SHA256)
        self._extract.update(_extract_label(kem, b"eae_prk"))
        self._expand_shared = _expand_label(kem, b"shared_secret", 32)
        context = b"\x00" + b"".join(
            _hmac(bytes(32), _extract_label(hpke, label) + ikm)
            for label, ikm in ((b"psk_id_hash", b""), (b"info_hash", info))
        )
        self._extract_secret = _extract_label(hpke, b"secret")
        self._expand_key = _expand_label(hpke, b"key", self._key_size) + context + b"\x01"
        self._expand_nonce = _expand_label(hpke, b"base_nonce", _NONCE_SIZE) + context + b"\x01"

    def open(self, sealed: bytes, aad: bytes | None = None) -> bytes:
        """The plaintext of enc || ciphertext || tag. Raises InvalidTag or ValueError for any other
        bytes; ValueError also where the agreed secret would be zero (section 7.1.4).
        """
        enc = sealed[:_ENC_SIZE]
        step = self._extract.copy()
        step.update(self._exchange(_FROM_BYTES(enc)))
        # every output is one block of SHA-256 or less, so each Expand is one HMAC (RFC 5869, 2.3)
        step = HMAC(step.finalize(), _SHA256)
        step.update(self._expand_shared + enc + self._public)
        step = HMAC(step.finalize(), _SHA256)
        step.update(self._extract_secret)
        step = HMAC(step.finalize(), _SHA256)
        other = step.copy()
        step.update(self._expand_key)
        other.update(self._expand_nonce)
        return self._aead(step.finalize()[: self._key_size]).decrypt(
            other.finalize()[:_NONCE_SIZE], sealed[_ENC_SIZE:], aad
        )

    def __repr__(self) -> str:
        return "<Recipient>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are not pickled or copied: make another on purpose")


def _extract_label(suite_id: bytes, label: bytes) -> bytes:
    """What stands before the input of LabeledExtract, section 4."""
    return b"HPKE-v1" + suite_id + label


def _expand_label(suite_id: bytes, label: bytes, size: int) -> bytes:
    """What stands before the info of LabeledExpand to ``size`` bytes, section 4."""
    return size.to_bytes(2, "big") + b"HPKE-v1" + suite_id + label


def _hmac(key: bytes, data: bytes) -> bytes:
    mac = HMAC(key, _SHA256)
    mac.update(data)
    return mac.finalize()
