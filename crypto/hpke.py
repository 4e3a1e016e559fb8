"""HPKE, RFC 9180 base mode, single-shot: seal to a public key configuration, open with its private
key.

Everything that a ciphertext is bound to goes through ``info`` (RFC 9180 section 8.1 allows it for
single-shot use); the AAD is empty. The primitive is ``cryptography``'s; nothing here computes
anything by itself except the expansion of the hybrid's 32-byte seed. Whoever opens many messages
with one key and one info gets ``receiving``, which makes what they share once. Sealing and opening
hold the interpreter lock: parallelism means processes, and a private key enters one only through
``to_raw_secret``, explicitly.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey

from shoal.crypto.suites import KEM_X25519, PublicKeyConfig, SuiteId
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.crypto.receiving import Recipient

# One message for every way in which opening fails: a text that told them apart would be an oracle.
CANNOT_OPEN = "sealed bytes do not open: other key, other context, or damaged"

_MLKEM_SEED = 64  # bytes: d || z of FIPS 203 algorithm 16


class HpkePrivateKey:
    """A private key that opens what was sealed to ``config``.

    It never shows itself: repr, str, format and vars hold no secret, and pickling or copying raises
    TypeError. The raw secret leaves only through ``to_raw_secret``.
    """

    __slots__ = ("_handle", "_hpke", "_info", "_recipient", "_secret", "config")

    config: PublicKeyConfig

    def __init__(self, suite: SuiteId, secret: bytes) -> None:
        """From the raw secret: the X25519 private key (RFC 9180 section 7.1.2), or the hybrid's
        32-byte seed. Raises INVALID.
        """
        if len(secret) != suite.secret_length:
            raise ShoalError(
                Kind.INVALID,
                f"a private key of suite {suite.value} is {suite.secret_length} bytes long",
            )
        self._secret = bytes(secret)
        self._handle, public = _expand(suite, self._secret)
        self._hpke = suite.hpke
        self._info: bytes | None = None  # of the message before, where a recipient might pay
        self._recipient: Recipient | None = None
        self.config = PublicKeyConfig(suite, public)

    @classmethod
    def from_raw_secret(cls, suite: SuiteId, secret: bytes) -> HpkePrivateKey:
        """The key of a raw secret of ``suite.secret_length`` bytes. Raises INVALID for another
        length.
        """
        return cls(suite, secret)

    def to_raw_secret(self) -> bytes:
        """The secret itself, ``suite.secret_length`` bytes: for a key file or a worker process,
        nothing else.
        """
        return self._secret

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """See ``open_sealed``."""
        recipient = self._recipient
        try:
            if recipient is not None and recipient.info == info:
                return recipient.open(sealed)
            self._expect(info)
            return self._hpke.decrypt(sealed, self._handle, info=info)
        except (InvalidTag, ValueError):
            raise ShoalError(Kind.INVALID, CANNOT_OPEN) from None

    def _expect(self, info: bytes) -> None:
        """Make ready for more with an info that comes the second time running: what that costs, two
        messages give back.
        """
        if info == self._info and isinstance(self._handle, X25519PrivateKey):
            from shoal.crypto.receiving import Recipient  # a device opens nothing in bulk

            suite, public = self.config.suite, self.config.public_key
            self._recipient = Recipient(suite, self._handle, public, info)
        self._info = info

    def __repr__(self) -> str:
        return f"<HpkePrivateKey of key id {self.config.key_id.hex}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are not pickled or copied: pass to_raw_secret() on purpose")


def _expand(
    suite: SuiteId, secret: bytes
) -> tuple[X25519PrivateKey | MLKEM768X25519PrivateKey, bytes]:
    """The library's private key object and the raw public key.

    Hybrid: SHAKE256(seed, 96 bytes) = ML-KEM seed (64) || X25519 private key (32); public key =
    ML-KEM || X25519 (draft-irtf-cfrg-concrete-hybrid-kems; draft-connolly-cfrg-xwing-kem section
    5.2).
    """
    if suite.kem == KEM_X25519:
        x25519 = X25519PrivateKey.from_private_bytes(secret)
        return x25519, x25519.public_key().public_bytes_raw()
    import hashlib  # a second OpenSSL: for those who open hybrid frames alone

    expanded = hashlib.shake_256(secret).digest(_MLKEM_SEED + 32)
    mlkem = MLKEM768PrivateKey.from_seed_bytes(expanded[:_MLKEM_SEED])
    x25519 = X25519PrivateKey.from_private_bytes(expanded[_MLKEM_SEED:])
    public = mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
    return MLKEM768X25519PrivateKey(mlkem, x25519), public


def generate(suite: SuiteId) -> HpkePrivateKey:
    """A fresh key from the operating system's CSPRNG. Both KEMs take any 32 random bytes as a
    private key.
    """
    return HpkePrivateKey(suite, os.urandom(suite.secret_length))


def seal(config: PublicKeyConfig, plaintext: bytes | memoryview, info: bytes) -> bytes:
    """enc || ciphertext || tag: ``len(plaintext) + config.suite.overhead`` bytes, different at
    every call.
    """
    return config.suite.hpke.encrypt(plaintext, config.handle, info=info)


def open_sealed(key: HpkePrivateKey, sealed: bytes, info: bytes) -> bytes:
    """The plaintext. Raises INVALID, with one fixed message, for any failure: wrong key or info,
    damaged, too short.
    """
    return key.open(sealed, info)
