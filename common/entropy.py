"""Where every random choice comes from: a CSPRNG behind one seam.

``SystemEntropy`` reads os.urandom for small draws and an AES-256-CTR stream keyed by os.urandom for
large ones (a fresh key per draw: nothing to fork, pickle or reseed). ``SeededEntropy`` is for tests
alone and must be asked for by its name. No numpy or ``random`` generator ever touches a private
value.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from shoal.arrays import NDArray, np
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    # only for who draws: the accountant alone draws nothing
    from cryptography.hazmat.primitives.ciphers import CipherContext

T = TypeVar("T")
_SMALL = 4096  # bytes: below this one system call is cheaper than setting up a cipher
_BLOCK = 16  # bytes of AES
# Of a seeded source: setting up a cipher for every word would take most of a simulation's time.
_AHEAD, _EACH = 256, 2 * _BLOCK  # the draws that are enciphered at once, and what is kept of each


class Entropy(Protocol):
    """A source of independent, uniform random bytes."""

    def bytes(self, count: int) -> bytes:
        """``count`` random bytes."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """uint64[count], uniform on [0, 2^64): the little-endian words of one ``bytes(8 * count)``.
        Loads numpy.
        """
        ...


class SystemEntropy:
    """The operating system's CSPRNG, stretched by AES-256-CTR for large draws."""

    def bytes(self, count: int) -> bytes:
        """As ``Entropy.bytes``."""
        if count <= _SMALL:
            return os.urandom(count)
        return _ctr_stream(os.urandom(32), os.urandom(16), count)

    def words(self, count: int) -> NDArray[np.uint64]:
        """As ``Entropy.words``."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64, copy=False)


class SeededEntropy:
    """A reproducible stream for tests: SHA-256(seed) keys AES-256-CTR. Never use it for a person's
    data.
    """

    def __init__(self, seed: int | str) -> None:
        self._key = sha256(f"shoal test entropy {seed}".encode())
        self._draws = 0
        self._ahead = 0, b""  # a draw, and the first ``_EACH`` bytes of it and of those after it

    @property
    def key(self) -> bytes:
        """32 bytes, of which ``keyed`` makes the same stream."""
        return self._key

    @classmethod
    def keyed(cls, key: bytes) -> SeededEntropy:
        """The stream of a ``key``, from its beginning."""
        made = cls("")
        made._key = key
        return made

    def bytes(self, count: int) -> bytes:
        """As ``Entropy.bytes``, the same in every run with this seed: for tests alone."""
        self._draws += 1
        draw = self._draws
        if count > _EACH:
            return _ctr_stream(self._key, (draw << 64).to_bytes(16, "big"), count)
        first, ahead = self._ahead
        at = (draw - first) * _EACH
        if at >= len(ahead):
            at, ahead = 0, _beginnings(self._key, draw, min(draw, _AHEAD))
            self._ahead = draw, ahead
        return ahead[at : at + count]

    def words(self, count: int) -> NDArray[np.uint64]:
        """As ``Entropy.words``, the same in every run with this seed: for tests alone."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64, copy=False)


def part_of(entropy: Entropy, name: str) -> Entropy:
    """Of a seeded source another one, independent of it and of every part of another name: whoever
    draws from parts draws the same in any order. Any other source is returned as it is.
    """
    if not isinstance(entropy, SeededEntropy):
        return entropy
    return SeededEntropy.keyed(sha256(b"part of " + entropy.key + name.encode()))


def streamed(entropy: Entropy) -> Entropy:
    """The same source, for many large draws one after the other; what ``words`` returns is good
    only until they are asked for again.

    The system's come from one stream, and its words in one buffer: a cipher and a buffer for every
    array take half as long again. Any other source is returned as it is.
    """
    return _SystemStream() if isinstance(entropy, SystemEntropy) else entropy


class _SystemStream:
    """One AES-256-CTR stream with a fresh key."""

    def __init__(self) -> None:
        self._stream = _ctr(os.urandom(32), os.urandom(16))
        self._zeros, self._buffer = memoryview(b""), bytearray()

    def bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        if 8 * count > len(self._zeros):
            self._zeros = memoryview(bytes(8 * count))
            self._buffer = bytearray(8 * count + 16)  # the cipher wants room for one block more
        self._stream.update_into(self._zeros[: 8 * count], self._buffer)
        return np.frombuffer(self._buffer, "<u8", count).astype(np.uint64, copy=False)


def _beginnings(key: bytes, first: int, draws: int) -> bytes:
    """The first ``_EACH`` bytes of ``_ctr_stream`` from draw << 64 on, of so many draws. What CTR
    mode adds to zeros are the counters, enciphered.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    counters = array("Q", bytes(_EACH * draws))
    each = array("Q", range(first, first + draws))
    for block in range(_EACH // _BLOCK):
        counters[2 * block :: _EACH // 8] = each
        counters[2 * block + 1 :: _EACH // 8] = array("Q", [block]) * draws
    if sys.byteorder == "little":
        counters.byteswap()
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305 - each block is another counter
    return cipher.encryptor().update(counters.tobytes())


def _ctr_stream(key: bytes, start: bytes, count: int) -> bytes:
    return _ctr(key, start).update(bytes(count))


def _ctr(key: bytes, start: bytes) -> CipherContext:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()


def uniform_below(bound: int, entropy: Entropy) -> int:
    """An exactly uniform integer in [0, bound), 1 <= bound <= 2^64, by rejection: no modulo bias.
    Raises INVALID otherwise.
    """
    if not 1 <= bound <= 1 << 64:
        raise ShoalError(Kind.INVALID, "a uniform draw wants a bound from 1 to 2^64")
    if bound == 1:
        return 0
    limit = (1 << 64) // bound * bound
    while True:
        word = int.from_bytes(entropy.bytes(8), "little")
        if word < limit:
            return word % bound


def uniform(entropy: Entropy) -> float:
    """Uniform on [0, 1), in steps of 2^-53: for pauses and moments, never for a private value."""
    return (int.from_bytes(entropy.bytes(8), "little") >> 11) / 2.0**53


def shuffled(items: Sequence[T], entropy: Entropy) -> list[T]:
    """The items in a uniformly random order (Fisher, Yates)."""
    result = list(items)
    for last in range(len(result) - 1, 0, -1):
        pick = uniform_below(last + 1, entropy)
        result[last], result[pick] = result[pick], result[last]
    return result


def bernoulli(threshold: int, entropy: Entropy) -> bool:
    """True with probability exactly threshold / 2^64. Draws one word of 8 bytes, as ``words(1)``
    does.
    """
    return int.from_bytes(entropy.bytes(8), "little") < threshold


SYSTEM = SystemEntropy()
