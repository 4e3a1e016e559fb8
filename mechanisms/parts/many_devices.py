"""The draws of the many devices of a fleet: arrays, one entry per device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.parts import sampling

if TYPE_CHECKING:
    from shoal.mechanisms.parts.draws import Filtering, Hashing, Lane, NumberSet


class ManyDevices:
    """``Draws`` of n devices, n >= 1."""

    __slots__ = ("_entropy", "_n")

    def __init__(self, n: int, entropy: Entropy) -> None:
        self._n, self._entropy = n, entropy

    def coin(self, threshold: int) -> NDArray[np.bool_]:
        """bool[n]: one word of 8 bytes per device."""
        return np.less(self._entropy.words(self._n), np.uint64(threshold))

    def coin_if(self, given: NDArray[Any], if_not: int, if_so: int) -> NDArray[np.bool_]:
        """bool[n]: one word of 8 bytes per device."""
        return _less_if(self._entropy.words(self._n), given, if_not, if_so)

    def below(self, bound: int) -> NDArray[np.int64]:
        """int64[n], exactly uniform; words that are refused are drawn again."""
        return sampling.uniform_below(bound, self._n, self._entropy)

    def below_power(self, bound: int) -> NDArray[np.int64]:
        """int64[n], from one 16-bit word per device."""
        words = np.frombuffer(self._entropy.bytes(2 * self._n), dtype="<u2")
        return words.astype(np.int64) * bound >> 16

    def seed(self, size: int) -> NDArray[np.uint8]:
        """uint8[n, size]."""
        drawn = self._entropy.bytes(size * self._n)
        return np.frombuffer(drawn, dtype=np.uint8).reshape(self._n, size)

    def _words(self, k: int) -> NDArray[np.uint64]:
        return self._entropy.words(self._n * k).reshape(self._n, k)

    def coins(self, k: int, threshold: int) -> NDArray[np.bool_]:
        """bool[n, k]: a word of 8 bytes each."""
        return np.less(self._words(k), np.uint64(threshold))

    def coins_but_one(
        self, k: int, threshold: int, at: NDArray[np.int64], there: int
    ) -> NDArray[np.bool_]:
        """bool[n, k]; ``at`` is int64[n], k for no other place."""
        words = self._words(k)
        bits = np.less(words, np.uint64(threshold))
        rows = np.flatnonzero(at < k)
        places = (rows, at[rows])
        bits[places] = words[places] < np.uint64(there)
        return bits

    def coins_if(self, given: NDArray[np.bool_], if_not: int, if_so: int) -> NDArray[np.bool_]:
        """bool[n, k] from bool[n, k]: a word of 8 bytes each."""
        return _less_if(self._words(given.shape[1]), given, if_not, if_so)

    def where(self, condition: NDArray[Any], if_so: Lane, if_not: Lane) -> Lane:
        """Elementwise; both sides were made for every device."""
        return np.where(condition, if_so, if_not)

    def odd(self, number: NDArray[np.int64]) -> NDArray[np.uint8]:
        """uint8[n]: parities."""
        return np.bitwise_count(number) & np.uint8(1)

    def flipped(self, bits: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The same bool[n, k], one bit of each row changed."""
        bits[np.arange(self._n), at] ^= True
        return bits

    def marked(self, k: int) -> NumberSet:
        """n empty sets of the numbers below k."""
        return _ManySets(self._n, k)

    def place_in(self, members: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n] from members int64[n, d]."""
        same = members == number[:, None]
        known = same.any(axis=1)
        places: NDArray[np.int64] = np.where(known, same.argmax(axis=1), members.shape[1])
        return places

    def hashed(
        self, hashing: Hashing, index: NDArray[np.int64], cell: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64[n], by each device's own function."""
        return hashing.hash_many(index, cell)

    def off_filter(
        self,
        bits: NDArray[np.bool_],
        filtering: Filtering,
        cohort: NDArray[np.int64],
        cell: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """The same bool[n, bits], inverted where each device's filter is 1."""
        bits ^= filtering.filters(cohort, cell)
        return bits

    def number(self, number: NDArray[Any], size: int) -> NDArray[np.uint8]:
        """uint8[n, size], big-endian."""
        if number.dtype.itemsize == size == 1:
            return number.view(np.uint8)[:, None]
        width = 4 if size == 3 else size
        written = number.astype(f">u{width}").view(np.uint8).reshape(self._n, width)
        return written[:, width - size :]

    def numbers(self, members: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """uint8[n, d size] from members int64[n, d], big-endian."""
        written = np.ascontiguousarray(members.astype(f">u{size}"))
        return written.view(np.uint8).reshape(self._n, -1)

    def bitmap(self, bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """uint8[n, ceil(k / 8)], padding bits 0."""
        return np.packbits(bits, axis=1)

    def read(self, field: NDArray[np.uint8], place: int) -> NDArray[np.int64]:
        """int64[n] from 4-byte numbers, big-endian."""
        return field.view(">u4")[:, place].astype(np.int64)

    def joined(self, *fields: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8[n, sum of the widths]: the fields of each device one after the other."""
        # Item by item: a row of a few bytes at a time takes several times as long.
        parts = np.empty(self._n, [(f"{at}", f"V{f.shape[1]}") for at, f in enumerate(fields)])
        for at, field in enumerate(fields):
            parts[f"{at}"] = np.ascontiguousarray(field).view(f"V{field.shape[1]}")[:, 0]
        return parts.view(np.uint8).reshape(self._n, -1)


class _ManySets:
    """``NumberSet`` of n devices: bool[n, k]."""

    __slots__ = ("_flat", "_marks", "_rows")

    def __init__(self, n: int, k: int) -> None:
        self._marks = np.zeros((n, k), dtype=np.bool_)
        self._flat, self._rows = self._marks.reshape(-1), np.arange(n, dtype=np.int64) * k

    def has(self, place: NDArray[np.int64]) -> Lane:
        return self._flat[self._rows + place]

    def put(self, place: NDArray[np.int64], marked: Lane) -> None:
        self._flat[self._rows + place] = marked

    def bits(self) -> NDArray[np.bool_]:
        return self._marks

    def members(self) -> NDArray[np.int64]:
        return np.nonzero(self._marks)[1].reshape(self._marks.shape[0], -1)


def _less_if(
    words: NDArray[np.uint64], given: NDArray[Any], if_not: int, if_so: int
) -> NDArray[np.bool_]:
    """words < (if_so where given else if_not), if_not < if_so. Both are compared with every word:
    half the time of looking up which counts.
    """
    bits: NDArray[np.bool_] = np.less(words, np.uint64(if_so))
    bits &= given if given.dtype == np.bool_ else np.not_equal(given, 0)
    bits |= words < np.uint64(if_not)
    return bits
