"""The three HPKE suites of Shoal, and the public key configurations that name one.

A suite is a triple of RFC 9180 algorithm ids (section 7). A *public key configuration* is what
schedules and devices carry: ``u16be kem || u16be kdf || u16be aead || raw public key``. It is
unambiguous on its own, and its hash is the key id, so a key id also fixes the suite: the same
X25519 point offered under another AEAD is another key.

KEM ids: 0x0020 is DHKEM(X25519, HKDF-SHA256), RFC 9180 section 7.1. 0x647a is MLKEM768-X25519, the
hybrid that is also known as X-Wing: it stands in the IANA registry "HPKE KEM Identifiers", its
mapping to HPKE in draft-ietf-hpke-pq section 4, its construction in
draft-irtf-cfrg-concrete-hybrid-kems (the same bytes as draft-connolly-cfrg-xwing-kem). These drafts
are not RFCs yet; the post-quantum suite is a task's choice, never the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite

from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId

TAG_SIZE = 16  # bytes; both AEADs of RFC 9180 section 7.3 that are offered here
CONFIG_HEADER_SIZE = 6  # bytes: kem, kdf, aead
MLKEM768_PUBLIC_SIZE = 1184  # bytes; FIPS 203 table 3

KEM_X25519 = 0x0020
KEM_MLKEM768_X25519 = 0x647A
KDF_HKDF_SHA256 = 0x0001
AEAD_AES_128_GCM = 0x0001
AEAD_CHACHA20_POLY1305 = 0x0003

PublicKey = X25519PublicKey | MLKEM768X25519PublicKey


@dataclass(frozen=True, slots=True)
class _Parameters:
    kem: int
    kdf: int
    aead: int
    enc_length: int  # bytes of the encapsulated key
    public_key_length: int  # bytes
    secret_length: int  # bytes of the serialized private key
    words: str


class SuiteId(IntEnum):
    """The number that tasks and frames carry. Never reuse one."""

    X25519_AES128 = 1
    X25519_CHACHA20 = 2
    MLKEM768_X25519_AES128 = 3

    @property
    def kem(self) -> int:
        """Its key encapsulation: a KEM id of RFC 9180, section 7.1, or of the IANA registry for
        HPKE.
        """
        return _PARAMETERS[self].kem

    @property
    def kdf(self) -> int:
        """Its key derivation: a KDF id of RFC 9180, section 7.2."""
        return _PARAMETERS[self].kdf

    @property
    def aead(self) -> int:
        """Its encryption: an AEAD id of RFC 9180, section 7.3."""
        return _PARAMETERS[self].aead

    @property
    def enc_length(self) -> int:
        """Bytes of the encapsulated key (Nenc) in front of every ciphertext."""
        return _PARAMETERS[self].enc_length

    @property
    def overhead(self) -> int:
        """Bytes that sealing adds: encapsulated key and tag."""
        return _PARAMETERS[self].enc_length + TAG_SIZE

    @property
    def public_key_length(self) -> int:
        """Bytes of a raw public key (Npk)."""
        return _PARAMETERS[self].public_key_length

    @property
    def secret_length(self) -> int:
        """Bytes of a raw private key (Nsk): the X25519 scalar, or the 32-byte seed of the
        hybrid.
        """
        return _PARAMETERS[self].secret_length

    @property
    def words(self) -> str:
        """The suite's name for people."""
        return _PARAMETERS[self].words

    @property
    def hpke(self) -> Suite:
        """The library's suite object; made once, free of state."""
        return _HPKE[self]

    @classmethod
    def of(cls, number: int) -> SuiteId:
        """The suite of that number. Raises INVALID."""
        try:
            return cls(number)
        except ValueError:
            raise ShoalError(
                Kind.INVALID, f"HPKE suite {number} is unknown: this version offers 1, 2 and 3"
            ) from None


_PARAMETERS: dict[SuiteId, _Parameters] = {
    SuiteId.X25519_AES128: _Parameters(
        KEM_X25519,
        KDF_HKDF_SHA256,
        AEAD_AES_128_GCM,
        32,
        32,
        32,
        "X25519, HKDF-SHA256, AES-128-GCM",
    ),
    SuiteId.X25519_CHACHA20: _Parameters(
        KEM_X25519,
        KDF_HKDF_SHA256,
        AEAD_CHACHA20_POLY1305,
        32,
        32,
        32,
        "X25519, HKDF-SHA256, ChaCha20-Poly1305",
    ),
    SuiteId.MLKEM768_X25519_AES128: _Parameters(
        KEM_MLKEM768_X25519,
        KDF_HKDF_SHA256,
        AEAD_AES_128_GCM,
        1120,
        1216,
        32,
        "MLKEM768-X25519, HKDF-SHA256, AES-128-GCM",
    ),
}

_HPKE: dict[SuiteId, Suite] = {
    SuiteId.X25519_AES128: Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM),
    SuiteId.X25519_CHACHA20: Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305),
    SuiteId.MLKEM768_X25519_AES128: Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM),
}

_BY_IDS: dict[tuple[int, int, int], SuiteId] = {
    (p.kem, p.kdf, p.aead): suite for suite, p in _PARAMETERS.items()
}


def config_header(suite: SuiteId) -> bytes:
    """u16be kem || u16be kdf || u16be aead."""
    return (
        suite.kem.to_bytes(2, "big") + suite.kdf.to_bytes(2, "big") + suite.aead.to_bytes(2, "big")
    )


def public_config(suite: SuiteId, public_key: bytes) -> bytes:
    """The configuration of a raw public key: u16be kem || u16be kdf || u16be aead || public_key."""
    return config_header(suite) + public_key


def suite_of_header(header: bytes) -> SuiteId:
    """The suite named by the six bytes of ``config_header``. Raises INVALID for any other triple of
    ids.
    """
    ids = tuple(int.from_bytes(header[i : i + 2], "big") for i in (0, 2, 4))
    suite = _BY_IDS.get((ids[0], ids[1], ids[2])) if len(header) == CONFIG_HEADER_SIZE else None
    if suite is None:
        raise ShoalError(
            Kind.INVALID, "a key configuration names algorithms that this version does not offer"
        )
    return suite


@dataclass(frozen=True, slots=True)
class PublicKeyConfig:
    """A public key with its suite, checked and parsed once: sealing to it costs no further set-up.

    ``public_key`` is raw (32 bytes, or 1184 bytes of ML-KEM followed by 32 of X25519); ``raw`` is
    the configuration that schedules carry; ``key_id`` its hash. Made by ``parse_config`` or by a
    private key. Raises INVALID for a wrong length, for an X25519 point of small order (every shared
    secret would be zero, RFC 7748 section 6.1) or in a second spelling (2^255 - 19 or more), and
    for an ML-KEM key that fails the modulus check (FIPS 203 section 7.2). Equality and hash are
    those of ``raw``.
    """

    suite: SuiteId = field(compare=False)
    public_key: bytes = field(repr=False, compare=False)
    raw: bytes = field(init=False, repr=False)
    key_id: KeyId = field(init=False, compare=False)
    handle: PublicKey = field(init=False, repr=False, compare=False)  # the library's object

    def __post_init__(self) -> None:
        if len(self.public_key) != self.suite.public_key_length:
            raise ShoalError(
                Kind.INVALID,
                f"a public key of suite {self.suite.value} is {self.suite.public_key_length} bytes "
                f"long, not {len(self.public_key)}",
            )
        raw = public_config(self.suite, self.public_key)
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "key_id", KeyId.of(raw))
        object.__setattr__(self, "handle", _parse_public(self.suite, self.public_key))

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_config, (self.raw,)


# Whether a point has small order does not depend on the scalar (RFC 7748 clamps scalars to
# multiples of 8), so a fixed one serves to ask; it protects nothing.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(32)))


_FIELD_PRIME = (1 << 255) - 19  # of Curve25519


def _parse_public(suite: SuiteId, raw: bytes) -> PublicKey:
    # X25519 ignores the highest bit and reduces modulo the prime (RFC 7748 section 5): one point
    # would have several key ids.
    if int.from_bytes(raw[-32:], "little") >= _FIELD_PRIME:
        raise ShoalError(
            Kind.INVALID,
            f"these bytes are no public key of suite {suite.value} in its one canonical form: make "
            "a new key",
        )
    try:
        point = X25519PublicKey.from_public_bytes(raw[-32:])
        _PROBE.exchange(point)
        if suite.kem == KEM_X25519:
            return point
        return MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(raw[:MLKEM768_PUBLIC_SIZE]), point
        )
    except ValueError:
        raise ShoalError(
            Kind.INVALID,
            f"these bytes are no usable public key of suite {suite.value}: make a new key",
        ) from None


@lru_cache(maxsize=1024)
def parse_config(raw: bytes) -> PublicKeyConfig:
    """The key of a configuration. Raises INVALID for unknown algorithm ids, a wrong length or an
    unusable key.

    Public keys are few and immutable, and checking one costs as much as a seal: recent ones are
    remembered.
    """
    if len(raw) < CONFIG_HEADER_SIZE:
        raise ShoalError(
            Kind.INVALID, "a key configuration is at least 6 bytes long: kem, kdf, aead, public key"
        )
    return PublicKeyConfig(
        suite_of_header(raw[:CONFIG_HEADER_SIZE]), bytes(raw[CONFIG_HEADER_SIZE:])
    )
