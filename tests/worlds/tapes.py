"""An entropy that plays a script: drives production randomizers through chosen random words,
without sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.entropy import Entropy


class DryError(Exception):
    """The code asked for more randomness than the script holds."""


class Tape:
    """Serves the given chunks in order; each request must ask for exactly the next chunk, or for
    several whole ones at once.
    """

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.asked: list[int] = []

    def bytes(self, count: int) -> bytes:
        self.asked.append(count)
        found = b""
        while len(found) < count:
            if not self._chunks:
                raise DryError
            found += self._chunks.pop(0)
        assert len(found) == count, f"asked for {count} bytes, the script holds {len(found)}"
        return found

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def done(self) -> bool:
        """Whether every chunk was used."""
        return not self._chunks


class Poured:
    """The bytes of another source, fetched a mebibyte at a time: many small draws in a row cost
    little.
    """

    def __init__(self, entropy: Entropy) -> None:
        self._entropy, self._held, self._at = entropy, b"", 0

    def bytes(self, count: int) -> bytes:
        if self._at + count > len(self._held):
            self._held, self._at = self._entropy.bytes(max(count, 1 << 20)), 0
        served = self._held[self._at : self._at + count]
        self._at += count
        return served

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


class Tapes:
    """As many scripts side by side as an array has devices. A request must ask for the next chunk
    of every script, or for several whole ones, and gets them device by device.
    """

    def __init__(self, chunks: Sequence[NDArray[np.uint8]]) -> None:
        """``chunks``: one uint8[devices, width] per draw, in the order of the draws."""
        self._chunks = list(chunks)

    def bytes(self, count: int) -> bytes:
        found: list[NDArray[np.uint8]] = []
        while sum(chunk.size for chunk in found) < count:
            if not self._chunks:
                raise DryError
            found.append(self._chunks.pop(0))
        served = np.concatenate(found, axis=1).tobytes() if found else b""
        assert len(served) == count, f"asked for {count} bytes, the scripts hold {len(served)}"
        return served

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def done(self) -> bool:
        """Whether every chunk was used."""
        return not self._chunks


class Constant:
    """Every word is the given one: 0 rounds everything up that can be, 2^64 - 1 nothing
    (independent rounding).
    """

    def __init__(self, word: int) -> None:
        self.word = word
        self.drawn = 0

    def bytes(self, count: int) -> bytes:
        raise AssertionError

    def words(self, count: int) -> NDArray[np.uint64]:
        self.drawn += count
        return np.full(count, self.word, dtype=np.uint64)
