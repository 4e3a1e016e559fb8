"""Exact draws from a law on 0, 1, 2, ... by lazy inversion: what is sampled is the stated law, not
a rounding of it.

Let F be the law's distribution function and U uniform on [0, 1). Then X = min{k : U < F(k)} has
exactly the law, since X <= k if and only if U < F(k). U is a binary fraction 0.w1 w2 w3 ... of
64-bit words, each drawn only when it is needed.

*First word.* Let B(k) = floor(2^64 F(k)), exactly. U lies in [w1, w1 + 1) / 2^64, so
    w1 < B(k)  gives  U < (w1 + 1) / 2^64 <= B(k) / 2^64 <= F(k),
    w1 > B(k)  gives  U >= w1 / 2^64 >= (B(k) + 1) / 2^64 > F(k),
and only w1 = B(k) leaves the comparison open. If w1 equals no boundary, X is the number of
boundaries below w1 (plus the first k of the table): one search. A table that begins with a 0 and
ends with 2^64 - 1 holds every boundary that a word can pass or meet; what lies beyond it shares its
end words, which are therefore never decided by the table.

*More words.* Otherwise U is compared with enclosures of F(k), narrower each time, and one more word
is drawn until U lies on one side of every F(k) for certain. No decision is ever taken inside an
enclosure, so X is the stated function of U, and the law is exact for uniform words. A draw needs a
second word with probability (boundaries) / 2^64, which is 2^-57 for a table of a hundred and 2^-43
for the largest; each further word leaves the case open with probability below 2^-40, so the loop
ends.

*Enclosures* need no logarithm and no factorial. A law states integers that are at most a constant
times its pmf, and how much they fall short in total (``Weights``); the constant cancels in F.
Everything is integer arithmetic, rounded down with counted errors, so the table is the same on
every machine.

The table is found by a binary search without branches: each draw takes the same steps. The memory
cache may still see which entries are read, and a second word takes milliseconds; nothing depends on
anybody's value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Protocol

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.parts.sampling import BLOCK, blocks

WORD = 64
_TOP = (1 << WORD) - 1
_GUARD = 32  # bits of an enclosure beyond the words that it is compared with


@dataclass(frozen=True, slots=True)
class Weights:
    """Integers proportional to a pmf, from below.

    For one constant c > 0: values[i] <= c * pmf(first + i) for every i, and c minus the sum of the
    values is at most ``error``. Hence S(k) <= c F(k) <= S(k) + error, S(k) the sum of the values up
    to k, for every k >= 0.
    """

    first: int
    values: list[int]
    error: int


class Law(Protocol):
    """A law on the non-negative integers, of unbounded support, with F(k) 2^n an integer for no k
    and n.
    """

    def weights(self, bits: int) -> Weights:
        """Weights whose error is about 2^-bits of their sum, or less. What counts is the error that
        they state.
        """
        ...


class ExactSampler:
    """Draws from a law. Immutable after construction; safe to share between threads."""

    def __init__(self, law: Law) -> None:
        """Builds the table: once per law, as long as its weights take."""
        self._law = law
        self.first, self.boundaries = boundaries(law)
        self._steps = self.boundaries.size.bit_length()
        padded = np.full((1 << self._steps) - 1, _TOP, dtype=np.uint64)
        padded[: self.boundaries.size] = self.boundaries
        self._padded = padded

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """int64[count], independent. Draws ``count`` words, and more with probability (boundaries)
        / 2^64 per draw.
        """
        result = np.empty(count, dtype=np.int64)
        for part, drawn in self._blocks(count, entropy):
            result[part] = drawn
        return result

    def add_difference(self, vector: NDArray[np.int64], entropy: Entropy) -> None:
        """To each entry of int64[n] add one draw and subtract another, in place: as ``vector +
        draw(n) - draw(n)``, with the same words, and without a vector of draws in memory.
        """
        for part, drawn in self._blocks(vector.size, entropy):
            vector[part] += drawn
        for part, drawn in self._blocks(vector.size, entropy):
            vector[part] -= drawn

    def _blocks(self, count: int, entropy: Entropy) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """``count`` draws in order; each block's memory is used again for the next."""
        memory = np.empty(min(count, BLOCK), dtype=np.int64)
        for part in blocks(count, BLOCK):
            drawn = memory[: part.stop - part.start]
            self._draw_block(entropy.words(drawn.size), drawn, entropy)
            drawn += self.first
            yield part, drawn

    def _draw_block(
        self, words: NDArray[np.uint64], places: NDArray[np.int64], entropy: Entropy
    ) -> None:
        """Into ``places``: how many boundaries are at most the word; refined where the word equals
        one.
        """
        probe = np.empty(words.size, dtype=np.uint64)
        passed = np.empty(words.size, dtype=np.bool_)
        advance = np.empty(words.size, dtype=np.int64)
        places[:] = 0
        for step in (1 << s for s in reversed(range(self._steps))):
            # in range; "clip" spares numpy a copy
            np.take(self._padded[step - 1 :], places, out=probe, mode="clip")
            np.less_equal(probe, words, out=passed)
            np.multiply(passed, step, out=advance)
            places += advance
        # The last boundary passed; a word below all of them is not equal to the first.
        np.subtract(places, 1, out=advance)
        np.take(self._padded, advance, out=probe, mode="clip")
        np.equal(probe, words, out=passed)
        if passed.any():
            for i in np.flatnonzero(passed):
                places[i] = self._refine(int(words[i]), entropy) - self.first

    def _refine(self, word: int, entropy: Entropy) -> int:
        """min{k : U < F(k)} for a U that begins with ``word``."""
        fraction, bits = word, WORD
        while True:
            fraction, bits = fraction << WORD | int(entropy.words(1)[0]), bits + WORD
            decided = decide(self._law.weights(bits + _GUARD), fraction, bits)
            if decided is not None:
                return decided


class SmallSampler:
    """The same draws, one after the other, for one device, which loads no numpy: of laws of some
    ten thousand values at most. Immutable after construction; safe to share between threads.
    """

    __slots__ = ("_boundaries", "_first", "_law")

    def __init__(self, law: Law) -> None:
        """Builds the table: once per law, as long as its weights take."""
        self._law = law
        self._first, self._boundaries = small_boundaries(law)

    def draw(self, entropy: Entropy) -> int:
        """One number. Draws a word of 8 bytes, and more with probability (boundaries) / 2^64."""
        fraction, bits = int.from_bytes(entropy.bytes(WORD // 8), "little"), WORD
        passed = bisect_right(self._boundaries, fraction)
        if not passed or self._boundaries[passed - 1] != fraction:
            return self._first + passed
        while True:
            more = int.from_bytes(entropy.bytes(WORD // 8), "little")
            fraction, bits = fraction << WORD | more, bits + WORD
            decided = decide(self._law.weights(bits + _GUARD), fraction, bits)
            if decided is not None:
                return decided


def decide(weights: Weights, fraction: int, bits: int) -> int | None:
    """min{k : U < F(k)} if it is the same for every U in [fraction, fraction + 1) / 2^bits as far
    as the weights tell; else None.
    """
    sums = list(accumulate(weights.values))
    total, error = sums[-1], weights.error
    # U < F(k) for certain: (fraction + 1) / 2^bits <= S(k) / (total + error) <= F(k).
    enough = -(-(fraction + 1) * (total + error) >> bits)
    i = bisect_left(sums, enough)
    if i == len(sums):
        return None
    # U >= F(k - 1) for certain: fraction / 2^bits >= (S(k - 1) + error) / total >= F(k - 1); F(-1)
    # is 0.
    below = sums[i - 1] if i else 0
    certain = weights.first + i == 0 or fraction * total >= (below + error) << bits
    return weights.first + i if certain else None


def boundaries(law: Law) -> tuple[int, NDArray[np.uint64]]:
    """(first, uint64[n]): floor(2^64 F(k)) for k = first, first + 1, ..., exact, from the last 0
    (if any) to the first 2^64 - 1.
    """
    bits = WORD + _GUARD
    while True:
        weights = law.weights(bits)
        floors = _floors(weights)
        # Whole if nothing but the words 0 and 2^64 - 1 can lie outside.
        if floors is not None and (weights.first == 0 or floors[0] == 0):
            start = max(int(np.searchsorted(floors, 1)) - 1, 0)
            return weights.first + start, floors[start:].copy()
        bits += WORD


def small_boundaries(law: Law) -> tuple[int, list[int]]:
    """As ``boundaries``, for one device, which loads no numpy: of laws of a few thousand values at
    most.
    """
    bits = WORD + _GUARD
    while True:
        weights, floors = law.weights(bits), list[int]()
        for part in _floor_blocks(weights):
            if part is None:
                break
            floors += part
        else:
            if floors[-1] == _TOP and (weights.first == 0 or floors[0] == 0):
                start = max(bisect_left(floors, 1) - 1, 0)
                return weights.first + start, floors[start:]
        bits += WORD


def _floors(weights: Weights) -> NDArray[np.uint64] | None:
    """What ``_floor_blocks`` gives, as one array; None if it is not whole."""
    table, at = np.empty(len(weights.values), dtype=np.uint64), 0
    for floors in _floor_blocks(weights):
        if floors is None:
            return None
        table[at : at + len(floors)] = floors
        at += len(floors)
    return table[:at] if at and table[at - 1] == _TOP else None


def _floor_blocks(weights: Weights) -> Iterator[list[int] | None]:
    """floor(2^64 F(k)) for the k of the weights, to the first 2^64 - 1 if that is reached, in
    blocks. None, and then nothing more: an enclosure holds an integer.

    With T = sum of values, E = error, S = S(k): F(k) lies in [S / (T + E), (S + E) / T]. For r =
    floor(2^(64+s) / (T + E)), x = S r is at most 2^(64+s) F(k), and falls short by less than
    2^(64+s) ((S + E) / T - S / (T + E)) + S <= 2^(65+s) E / T + T < slack. So the floor is x >> s
    if adding slack doesn't change it. F(k) < 1, so that 2^64 - 1 is the floor of everything from
    there on. Blocks keep the large integers few.
    """
    total, error = sum(weights.values), weights.error
    shift = total.bit_length() + WORD
    reciprocal = (1 << WORD + shift) // (total + error)
    slack = (error << WORD + 1 + shift) // total + total + 1
    sums = accumulate(weights.values)
    for part in blocks(len(weights.values), BLOCK):
        scaled = [partial * reciprocal for partial in islice(sums, part.stop - part.start)]
        decisive = bisect_left(scaled, _TOP << shift)
        del scaled[decisive:]
        floors = [x >> shift for x in scaled]
        if floors != [x + slack >> shift for x in scaled]:
            yield None
            return
        if part.start + decisive < part.stop:
            yield [*floors, _TOP]
            return
        yield floors
