"""A long vector sealed in segments, so that neither who seals it nor who opens it holds it twice.

    sealed row = row id (16) || segment 0 || segment 1 || ...
    segment i  = HPKE(analyzer's key, info = "shoal/v1/secagg/segment" 0x00 round id, key id,
                 row id, u32be i, u32be segments) of its masked words, little-endian

The row id is random. It binds the segments of one row together: a shuffler that put a row together
from segments of two would leave the pads of both in the sum, and the check words, which stand in
the last segment alone, would not show it. Such a row does not open.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any

from shoal.arrays import NDArray
from shoal.crypto.hpke import HpkePrivateKey, open_sealed, seal
from shoal.crypto.secagg.pads import WORD, PadStreams, u32, zeros
from shoal.crypto.secagg.words import WordArray, copy_words
from shoal.crypto.suites import PublicKeyConfig
from shoal.entropy import Entropy
from shoal.errors import ShoalError
from shoal.ids import Digest, KeyId
from shoal.secagg import PairwisePlan

ROW_ID_SIZE = 16  # random bytes


def segment_info(round_id: Digest, key_id: KeyId, row: bytes, index: int, count: int) -> bytes:
    """What a segment is bound to: its round, the analyzer's key of the window, its row, and its
    place there. Raises INVALID.
    """
    place = u32(index, "segment") + u32(count, "number of segments")
    return b"shoal/v1/secagg/segment\x00" + round_id.raw + key_id.raw + row + place


def sealed_row_bytes(plan: PairwisePlan, dimension: int, overhead: int) -> int:
    """Of a sealed row: ``overhead`` bytes of HPKE for each segment."""
    count = len(plan.segments(dimension))
    return ROW_ID_SIZE + plan.vector_bytes(dimension) + count * overhead


def seal_row(
    plan: PairwisePlan,
    config: PublicKeyConfig,
    round_id: Digest,
    vector: NDArray[Any],
    constants: WordArray,
    streams: Sequence[tuple[bytes, int]],
    entropy: Entropy,
) -> bytes:
    """The vector with its check words, masked and sealed, one segment after the other: beside the
    vector and the sealed row there is one segment in memory.

    ``vector``: int64[d], or its words modulo 2^w; left as it is. ``streams``: keys and signs of the
    pads (``pads.apply_all``).
    """
    sizes, pads = plan.segments(len(vector)), PadStreams(streams)
    row, start, last = entropy.bytes(ROW_ID_SIZE), 0, len(sizes) - 1
    sealed = io.BytesIO()
    # all of its memory at once: bytes that are joined, or a buffer that grows, are held twice
    sealed.seek(sealed_row_bytes(plan, len(vector), config.suite.overhead) - 1)
    sealed.write(b"\x00")
    sealed.seek(0)
    sealed.write(row)
    for index, size in enumerate(sizes):
        masked = zeros(size, WORD[plan.word_bits])
        own = size - len(constants) if index == last else size
        copy_words(vector[start : start + own], masked[:own])
        if index == last:
            masked[own:] = constants
        pads.add_to(masked)
        info = segment_info(round_id, config.key_id, row, index, len(sizes))
        sealed.write(seal(config, masked.data.cast("B"), info))
        start += own
    return sealed.getvalue()


class OpenedRow:
    """One sealed row that comes in pieces: opened as it comes, into one vector that is used again
    for the next row.
    """

    def __init__(
        self, plan: PairwisePlan, dimension: int, key: HpkePrivateKey, round_id: Digest
    ) -> None:
        self._key, self._round_id, self._sizes = key, round_id, plan.segments(dimension)
        self._word = plan.word_bits // 8
        self.size = sealed_row_bytes(plan, dimension, key.config.suite.overhead)
        self._words: WordArray = zeros(sum(self._sizes), WORD[plan.word_bits])
        self.begin(0)

    def begin(self, number: int, *, known: bool = False) -> None:
        """Another row, from its first byte on. ``known``: it is compared alone, not opened."""
        self.number, self.at, self.good = number, 0, not known
        self._hash, self._pending, self._row = hashlib.sha256(), bytearray(), b""
        self._segment, self._filled = 0, 0

    def feed(self, data: memoryview) -> int:
        """Take bytes, up to the end of the row; returns how many."""
        part = data[: self.size - self.at]
        self._hash.update(part)
        self.at += len(part)
        if self.good:
            self._pending += part
            while self.good and self._segment < len(self._sizes) and self._open():
                pass
        return len(part)

    @property
    def complete(self) -> bool:
        """Whether all of the row came."""
        return self.at == self.size

    @property
    def digest(self) -> bytes:
        """SHA-256 of what came of the row."""
        return self._hash.digest()

    @property
    def words(self) -> WordArray | None:
        """The masked words of a complete row; None if a segment did not open."""
        return self._words if self.complete and self.good else None

    def erase(self) -> None:
        """Forget the words."""
        self._words.fill(0)

    def _open(self) -> bool:
        """Open what is first of the pending bytes, if all of it is there."""
        if not self._row:
            if len(self._pending) < ROW_ID_SIZE:
                return False
            self._row = bytes(self._pending[:ROW_ID_SIZE])
            del self._pending[:ROW_ID_SIZE]
            return True
        config, words = self._key.config, self._sizes[self._segment]
        size = words * self._word + config.suite.overhead
        if len(self._pending) < size:
            return False
        info = segment_info(
            self._round_id, config.key_id, self._row, self._segment, len(self._sizes)
        )
        with memoryview(self._pending) as pending:
            sealed = bytes(pending[:size])
        try:
            plaintext = open_sealed(self._key, sealed, info)
        except ShoalError:
            self.good, self._pending = False, bytearray()
            return False
        del self._pending[:size]
        filled = self._words[self._filled : self._filled + words]
        filled.data.cast("B")[:] = plaintext
        self._segment, self._filled = self._segment + 1, self._filled + words
        return True
