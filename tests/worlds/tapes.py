"""An entropy that plays a script: drives production randomizers through chosen random words,
without sampling.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
