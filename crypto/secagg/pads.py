"""Pads: what hides a vector until the sum is made. Agreement, key derivation, and AES-256-CTR added
to words in place.

Two neighbours derive the same stream from X25519 (RFC 7748) and HKDF-SHA256 (RFC 5869); one adds
it, the other subtracts it, so it cancels in the sum. The round id is the salt: the same two keys in
another round give another stream. A stream key is ``key (32) || IV (16)``; the pad is AES-256-CTR
(NIST SP 800-38A section 6.5, IV = first counter block, counted as one big-endian number) of zeros,
read as little-endian words.

Streams run modulo 2^w for w = 16, 32, 64 and nothing else. All bits of a uniform pad word count, so
a masked word is uniform; any other modulus would need rejection, or would leave a bias that shows
the value.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId

PUBLIC_SIZE = 32  # bytes of an X25519 public key
SEED_SIZE = 32  # bytes of a self mask's or a single pad's seed
STREAM_KEY_SIZE = 48  # bytes: AES-256 key, then the first counter block

WORD: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {16: np.dtype("<u2"), 32: np.dtype("<u4"), 64: np.dtype("<u8")}
)
"""The dtype of a masked word of so many bits: unsigned, little-endian on every machine."""

_AES_KEY_SIZE = 32  # bytes
_HASH_SIZE = 32  # bytes of SHA-256
_FIELD_PRIME = (1 << 255) - 19  # of Curve25519
# Large, because every chunk costs about a microsecond of calls; small enough to stay in a core's
# second- or third-level cache between the cipher that writes it and the addition that reads it.
# Measured: the best of 32 to 512 KiB on cores with 2 MiB each.
_CHUNK = 256 * 1024  # bytes; a multiple of every word size
_AT_ONCE = 64  # ciphers that are kept going over one vector: about 1 KB each
_ZEROS = memoryview(bytes(_CHUNK))
_LINE = 64  # bytes of a cache line, and of the widest vector that numpy adds


def hkdf(salt: bytes, secret: bytes, info: bytes, size: int) -> bytes:
    """HKDF-SHA256 (RFC 5869): ``size`` bytes, 1 to 8160. Written with two or three HMAC calls,
    because it runs per neighbour.
    """
    return hkdf_expand(hmac.digest(salt, secret, "sha256"), info, size)


def hkdf_expand(extracted: bytes, info: bytes, size: int) -> bytes:
    """The second half of HKDF-SHA256, from ``hmac.digest(salt, secret, "sha256")``: for two outputs
    of one secret.
    """
    if not 1 <= size <= 255 * _HASH_SIZE:
        raise ShoalError(Kind.INVALID, f"HKDF-SHA256 gives 1 to {255 * _HASH_SIZE} bytes")
    block = output = hmac.digest(extracted, info + b"\x01", "sha256")
    counter = 2
    while len(output) < size:
        block = hmac.digest(extracted, block + info + bytes((counter,)), "sha256")
        output += block
        counter += 1
    return output[:size]


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """The X25519 shared secret, 32 bytes.

    Raises INVALID for a wrong length; for a point of small order, whose shared secret is zero for
    every private key (RFC 7748 section 6.1), so that everybody would know the pad; and for a second
    spelling of a point (a number of 2^255 - 19 or above, or the unused top bit set): keys that
    differ as bytes then differ as points, and no key is on a list twice.
    """
    _check_key(public, "an X25519 public key")
    if int.from_bytes(public, "little") >= _FIELD_PRIME:
        raise ShoalError(
            Kind.INVALID,
            "an X25519 public key is not in its one canonical form: its sender must make a new key",
        )
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ShoalError(
            Kind.INVALID,
            "an X25519 public key has small order: everybody would know the shared secret",
        ) from None


def sign_of(own: bytes, other: bytes) -> int:
    """+1 if this device adds the pad that it shares with ``other``, -1 if it subtracts it.

    The device with the bytewise smaller pad key adds. It depends on the two keys alone, never on
    arrival or position. Raises INVALID for a wrong length or equal keys.
    """
    _check_key(own, "a pad key")
    _check_key(other, "a pad key")
    if own == other:
        raise ShoalError(
            Kind.INVALID, "two devices of a round have the same pad key: their pad would not cancel"
        )
    return 1 if own < other else -1


def pair_stream_key(shared: bytes, round_id: Digest, a: bytes, b: bytes) -> bytes:
    """The stream key of the pad between the devices with pad keys ``a`` and ``b``, in any order. 48
    bytes, secret.

    HKDF-SHA256(salt = round id, ikm = shared, info = "shoal/v1/secagg/pad" 0x00 lo hi), lo the
    bytewise smaller key. ``shared`` from ``agree``. Raises INVALID for a wrong length or equal
    keys.
    """
    _check_secret(shared, "shared secret")
    low, high = (a, b) if sign_of(a, b) == 1 else (b, a)
    return hkdf(round_id.raw, shared, b"shoal/v1/secagg/pad\x00" + low + high, STREAM_KEY_SIZE)


def self_stream_key(seed: bytes, round_id: Digest, pad_key: bytes) -> bytes:
    """The stream key of a device's own mask, which stands between a late vector and whoever knows
    all its pair pads.

    HKDF-SHA256(salt = round id, ikm = seed (32), info = "shoal/v1/secagg/self-pad" 0x00 pad_key).
    Raises INVALID.
    """
    _check_secret(seed, "seed")
    _check_key(pad_key, "a pad key")
    return hkdf(round_id.raw, seed, b"shoal/v1/secagg/self-pad\x00" + pad_key, STREAM_KEY_SIZE)


def single_stream_key(seed: bytes, task_id: TaskId, window: int) -> bytes:
    """The stream key of the one pad of helper mode.

    HKDF-SHA256(salt = task id, ikm = seed (32), info = "shoal/v1/secagg/single-pad" 0x00
    u32be(window)). Raises INVALID.
    """
    _check_secret(seed, "seed")
    return hkdf(
        task_id.raw,
        seed,
        b"shoal/v1/secagg/single-pad\x00" + u32(window, "window"),
        STREAM_KEY_SIZE,
    )


def zeros(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A fresh array of so many zeros that begins at a multiple of ``_LINE`` bytes.

    Words that pads are added to want it: an addition whose vectors lie across cache lines takes a
    third longer, and an array of numpy's own begins 16 bytes after a line.
    """
    memory = np.zeros(count * dtype.itemsize + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + count * dtype.itemsize].view(dtype)


class _Scratch(threading.local):
    """One chunk of pad per thread: allocating it for every call would cost as much as a small
    pad.
    """

    def __init__(self) -> None:
        memory = zeros(_CHUNK, np.dtype(np.uint8))
        self.view = memory.data
        self.words = {dtype: memory.view(dtype) for dtype in WORD.values()}


_scratch = _Scratch()


def apply(words: NDArray[np.unsignedinteger[Any]], stream_key: bytes, sign: int) -> None:
    """``apply_all`` of one pad."""
    apply_all(words, [(stream_key, sign)])


def apply_all(
    words: NDArray[np.unsignedinteger[Any]], streams: Sequence[tuple[bytes, int]]
) -> None:
    """Add (sign +1) or subtract (-1) the pads of stream keys in place, modulo 2^w.

    ``words``: one dimension, C-contiguous, writeable, little-endian unsigned words of 16, 32 or 64
    bits (``WORD``), best from ``zeros``. Nothing is changed if INVALID is raised. Threads may work
    on different vectors at the same time; the cipher runs without the interpreter lock. The last
    chunk of pad stays in the thread's scratch memory until the next call.
    """
    pad, flags = _scratch.words.get(words.dtype), words.flags
    if pad is None or words.ndim != 1 or not flags.c_contiguous or not flags.writeable:
        raise ShoalError(
            Kind.INVALID,
            "a pad is added to one contiguous, writeable vector of unsigned 16, 32 or 64-bit "
            "little-endian words",
        )
    _check_streams(streams)
    for first in range(0, len(streams), _AT_ONCE):
        _apply(words, pad, _begin(streams[first : first + _AT_ONCE]))


class PadStreams:
    """The pads of stream keys, added to a vector that comes in parts: each part goes on where the
    one before ended.
    """

    def __init__(self, streams: Sequence[tuple[bytes, int]]) -> None:
        """Raises INVALID as ``apply_all``."""
        _check_streams(streams)
        self._begun = _begin(streams)

    def add_to(self, words: NDArray[np.unsignedinteger[Any]]) -> None:
        """As ``apply_all``, to the next words. ``words``: from ``zeros``."""
        _apply(words, _scratch.words[words.dtype], self._begun)


def _check_streams(streams: Sequence[tuple[bytes, int]]) -> None:
    for stream_key, sign in streams:
        if sign not in (1, -1):
            raise ShoalError(Kind.INVALID, "a pad is added (+1) or subtracted (-1)")
        if len(stream_key) != STREAM_KEY_SIZE:
            raise ShoalError(Kind.INVALID, f"a stream key is {STREAM_KEY_SIZE} bytes long")


def _begin(streams: Sequence[tuple[bytes, int]]) -> list[tuple[CipherContext, np.ufunc]]:
    return [
        (
            Cipher(algorithms.AES(key[:_AES_KEY_SIZE]), modes.CTR(key[_AES_KEY_SIZE:])).encryptor(),
            np.add if sign == 1 else np.subtract,
        )
        for key, sign in streams
    ]


def _apply(
    words: NDArray[np.unsignedinteger[Any]],
    pad: NDArray[Any],
    begun: Sequence[tuple[CipherContext, np.ufunc]],
) -> None:
    """All of these pads to one chunk of words, then to the next: a chunk stays in the core's cache
    meanwhile, where a long vector does not.
    """
    for start in range(0, len(words), len(pad)):
        part = words[start : start + len(pad)]
        pads, size = pad[: len(part)], part.nbytes
        zeros_in, out = _ZEROS[:size], _scratch.view[:size]
        for stream, combine in begun:
            stream.update_into(zeros_in, out)
            combine(part, pads, out=part)


def u32(value: int, what: str) -> bytes:
    """Four bytes, big-endian. Raises INVALID outside [0, 2^32)."""
    if not 0 <= value < 1 << 32:
        raise ShoalError(Kind.INVALID, f"a {what} is a number in [0, 2^32)")
    return value.to_bytes(4, "big")


def _check_key(key: bytes, what: str) -> None:
    if len(key) != PUBLIC_SIZE:
        raise ShoalError(Kind.INVALID, f"the length of {what} is {PUBLIC_SIZE} bytes")


def _check_secret(secret: bytes, what: str) -> None:
    if len(secret) != SEED_SIZE:
        raise ShoalError(Kind.INVALID, f"a {what} is {SEED_SIZE} bytes long")
