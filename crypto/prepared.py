"""The sender of HPKE in two halves, for load generators alone: the key agreement beforehand, the
AEAD when a report is there.

``shoal.crypto.hpke.seal`` is one call, and nearly all of it is two X25519 multiplications that
don't depend on the plaintext. Whoever plays a hundred thousand devices at once may do those before
the clock starts. The bytes are the same as that call's:

    enc, shared secret = Encap(pkR)
    RFC 9180 section 4.1; hybrid: the combiner that suites.py names
    key, base nonce    = KeySchedule(base mode, info)
    section 5.1, with the default PSK and PSK id
    sealed             = enc || Seal(key, base nonce, aad "", plaintext)
    sections 5.2 and 6.1, sequence number 0

A device never uses this: keys that lie about before there is a plaintext can be used twice, and two
plaintexts under one key and nonce give each other away. So every encapsulation here seals once and
is then gone; a second use raises. ``clients/fleet`` is the only package that may import this
module, and a test holds it to that.
"""

from __future__ import annotations

import hashlib
import threading
from typing import NoReturn

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from shoal.arrays import NDArray, np
from shoal.crypto.suites import (
    AEAD_CHACHA20_POLY1305,
    KEM_X25519,
    MLKEM768_PUBLIC_SIZE,
    TAG_SIZE,
    PublicKeyConfig,
    SuiteId,
)
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError

_NONCE_SIZE = 12  # bytes; Nn of both AEADs, RFC 9180 section 7.3
_SECRET_SIZE = 32  # bytes; Nsecret of both KEMs
_SHA256 = hashes.SHA256()
_COMBINER_LABEL = b"\\.//^\\"  # of MLKEM768-X25519


def _key_size(suite: SuiteId) -> int:
    """Nk, RFC 9180 section 7.3."""
    return 32 if suite.aead == AEAD_CHACHA20_POLY1305 else 16


def _aead(suite: SuiteId) -> type[AESGCM] | type[ChaCha20Poly1305]:
    return ChaCha20Poly1305 if suite.aead == AEAD_CHACHA20_POLY1305 else AESGCM


class Encapsulation:
    """One key agreement with ``config``, bound to ``info``: it seals one plaintext. Never shown,
    pickled or copied.
    """

    __slots__ = ("_left", "config", "enc", "info")

    config: PublicKeyConfig
    info: bytes
    enc: bytes

    def __init__(
        self, config: PublicKeyConfig, info: bytes, enc: bytes, key: bytes, nonce: bytes
    ) -> None:
        self.config, self.info, self.enc = config, info, enc
        self._left = [(key, nonce)]  # a list, because pop() gives its only entry to one thread

    def _take(self) -> tuple[bytes, bytes]:
        try:
            return self._left.pop()
        except IndexError:
            raise _used() from None

    def __repr__(self) -> str:
        return (
            f"<Encapsulation to key id {self.config.key_id.hex}, "
            f"{'unused' if self._left else 'used'}>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "encapsulations are not pickled or copied: a copy could seal a second time, which is "
            "never on purpose"
        )


def encapsulate(config: PublicKeyConfig, info: bytes, entropy: Entropy = SYSTEM) -> Encapsulation:
    """The half of sealing that needs no plaintext. ``entropy``: the ephemeral X25519 key (ML-KEM
    draws its own randomness).
    """
    enc, key, nonce = _Sender(config, info).agree(entropy)
    return Encapsulation(config, info, enc, key, nonce)


def seal_with(encapsulation: Encapsulation, plaintext: bytes) -> bytes:
    """enc || ciphertext || tag, what ``hpke.seal`` could have returned. Raises CONFLICT if the
    encapsulation was used before.
    """
    key, nonce = encapsulation._take()
    return encapsulation.enc + _aead(encapsulation.config.suite)(key).encrypt(
        nonce, plaintext, None
    )


class Encapsulations:
    """Many of them, for one ``config`` and one ``info``, as flat bytes: rows of enc || key ||
    nonce.

    ``take(n)`` moves the next n out, and ``seal_rows`` uses up all that it is given: what has left
    is overwritten with zeros, so nothing can be handed out twice. Safe to share between threads.
    Never shown, pickled or copied; ``move_raw`` carries them to another process, and leaves this
    object empty.
    """

    __slots__ = ("_first", "_lock", "_raw", "config", "info", "stride")

    config: PublicKeyConfig
    info: bytes
    stride: int  # bytes of one row

    def __init__(self, config: PublicKeyConfig, info: bytes, raw: bytes | bytearray) -> None:
        """``raw`` from ``move_raw``. Raises INVALID if it is no whole number of rows of the
        config's suite.
        """
        self.config, self.info = config, info
        self.stride = config.suite.enc_length + _key_size(config.suite) + _NONCE_SIZE
        if len(raw) % self.stride:
            raise ShoalError(
                Kind.INVALID,
                f"encapsulations of suite {config.suite.value} are {self.stride} bytes each: these "
                "are cut off",
            )
        self._raw = raw if isinstance(raw, bytearray) else bytearray(raw)
        self._first = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are left."""
        return len(self._raw) // self.stride - self._first

    def take(self, count: int) -> Encapsulations:
        """The next ``count``, which leave this object. Raises CONFLICT if fewer are left, INVALID
        below 0; unchanged then.
        """
        return Encapsulations(self.config, self.info, self._move(count))

    def move_raw(self) -> bytes:
        """All that are left, for ``Encapsulations(config, info, raw)`` in one other process. They
        are secrets: drop the bytes then.
        """
        return bytes(self._move(None))

    def _move(self, count: int | None) -> bytearray:
        with self._lock:
            left = len(self)
            wanted = left if count is None else count
            if wanted < 0:
                raise ShoalError(Kind.INVALID, "a number of encapsulations to take is 0 or more")
            if wanted > left:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"{wanted} encapsulations are wanted and {left} are left, each for one use: "
                    "prepare as many as are sealed",
                )
            begin, end = self._first * self.stride, (self._first + wanted) * self.stride
            if (begin, end) == (0, len(self._raw)):  # everything: no copy to leave behind
                moved, self._raw = self._raw, bytearray()
                return moved
            moved = self._raw[begin:end]
            self._raw[begin:end] = bytes(end - begin)
            self._first += wanted
            return moved

    def __repr__(self) -> str:
        return f"<{len(self)} Encapsulations to key id {self.config.key_id.hex}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("encapsulations are not pickled or copied: use move_raw() on purpose")


def encapsulate_many(
    config: PublicKeyConfig, info: bytes, count: int, entropy: Entropy = SYSTEM
) -> Encapsulations:
    """``count`` independent encapsulations. Each costs about as much as a whole seal does."""
    sender = _Sender(config, info)
    raw = bytearray()
    for _ in range(count):
        raw += b"".join(sender.agree(entropy))
    return Encapsulations(config, info, raw)


def seal_rows(
    encapsulations: Encapsulations, plaintexts: NDArray[np.uint8], prefix: bytes = b""
) -> NDArray[np.uint8]:
    """uint8[n, len(prefix) + overhead + length] from uint8[n, length], n = len(encapsulations):
    prefix || enc || ciphertext || tag.

    Uses all of them up. Raises CONFLICT if there are not as many as rows (none are left after a
    first use), INVALID for another dtype or number of dimensions; nothing is used then.
    """
    if plaintexts.ndim != 2 or plaintexts.dtype != np.uint8:
        raise ShoalError(Kind.INVALID, "plaintexts to seal are uint8[n, length], one per row")
    rows, length = plaintexts.shape
    if len(encapsulations) != rows:
        raise _used() if not len(encapsulations) else _unequal(rows, len(encapsulations))
    suite = encapsulations.config.suite
    aead, stride, key_at = _aead(suite), encapsulations.stride, suite.enc_length
    nonce_at = stride - _NONCE_SIZE
    enc_at, text_at = len(prefix), len(prefix) + suite.enc_length
    width = text_at + length + TAG_SIZE
    # a slice of bytes is a cheaper argument than one of a bytearray
    raw = bytes(encapsulations._move(rows))
    sealed = np.empty((rows, width), dtype=np.uint8)
    sealed[:, :enc_at] = np.frombuffer(prefix, dtype=np.uint8)
    sealed[:, enc_at:text_at] = np.frombuffer(raw, dtype=np.uint8).reshape(rows, stride)[:, :key_at]
    texts, out = np.ascontiguousarray(plaintexts).reshape(-1).data, sealed.reshape(-1).data
    for row in range(rows):
        at, text, end = row * stride, row * length, (row + 1) * width
        aead(raw[at + key_at : at + nonce_at]).encrypt_into(
            raw[at + nonce_at : at + stride],
            texts[text : text + length],
            None,
            out[end - width + text_at : end],
        )
    return sealed


def _used() -> ShoalError:
    return ShoalError(
        Kind.CONFLICT, "an encapsulation seals once and this one was used: prepare another"
    )


def _unequal(rows: int, encapsulations: int) -> ShoalError:
    return ShoalError(
        Kind.CONFLICT,
        f"{rows} plaintexts want as many encapsulations, not {encapsulations}: take as many as are "
        "sealed",
    )


# --- RFC 9180 -------------------------------------------------------------------------------------


class _Sender:
    """What is the same for every encapsulation to one config and info."""

    def __init__(self, config: PublicKeyConfig, info: bytes) -> None:
        suite = config.suite
        ids = (
            suite.kem.to_bytes(2, "big"),
            suite.kdf.to_bytes(2, "big"),
            suite.aead.to_bytes(2, "big"),
        )
        self._kem, self._hpke = b"KEM" + ids[0], b"HPKE" + b"".join(ids)
        self._public, self._key_size = config.public_key, _key_size(suite)
        self._point = X25519PublicKey.from_public_bytes(config.public_key[-32:])
        hybrid = suite.kem != KEM_X25519
        self._mlkem = (
            MLKEM768PublicKey.from_public_bytes(config.public_key[:MLKEM768_PUBLIC_SIZE])
            if hybrid
            else None
        )
        # KeySchedule, section 5.1: mode_base || psk_id_hash || info_hash.
        psk_id_hash = _labeled_extract(self._hpke, b"", b"psk_id_hash", b"")
        self._context = (
            b"\x00" + psk_id_hash + _labeled_extract(self._hpke, b"", b"info_hash", info)
        )

    def agree(self, entropy: Entropy) -> tuple[bytes, bytes, bytes]:
        """(enc, key, base nonce)."""
        enc, shared = self._encap(X25519PrivateKey.from_private_bytes(entropy.bytes(32)))
        secret = _labeled_extract(self._hpke, shared, b"secret", b"")
        key = _labeled_expand(self._hpke, secret, b"key", self._context, self._key_size)
        return (
            enc,
            key,
            _labeled_expand(self._hpke, secret, b"base_nonce", self._context, _NONCE_SIZE),
        )

    def _encap(self, ephemeral: X25519PrivateKey) -> tuple[bytes, bytes]:
        """(enc, shared secret): Encap of section 4.1, or that of MLKEM768-X25519
        (draft-connolly-cfrg-xwing-kem section 5.4).
        """
        share, agreed = ephemeral.public_key().public_bytes_raw(), ephemeral.exchange(self._point)
        if self._mlkem is None:
            extracted = _labeled_extract(self._kem, b"", b"eae_prk", agreed)
            return share, _labeled_expand(
                self._kem, extracted, b"shared_secret", share + self._public, _SECRET_SIZE
            )
        secret, ciphertext = self._mlkem.encapsulate()
        return ciphertext + share, hashlib.sha3_256(
            secret + agreed + share + self._public[-32:] + _COMBINER_LABEL
        ).digest()


def _labeled_extract(suite_id: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    """Section 4. An empty salt is HashLen zeros (RFC 5869 section 2.2), which HMAC pads to the same
    key.
    """
    return HKDF.extract(_SHA256, salt or bytes(32), b"HPKE-v1" + suite_id + label + ikm)


def _labeled_expand(suite_id: bytes, secret: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """Section 4."""
    return HKDFExpand(
        _SHA256, size, size.to_bytes(2, "big") + b"HPKE-v1" + suite_id + label + info
    ).derive(secret)
