"""The draws of one device: numbers of Python, without numpy."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from shoal.entropy import Entropy, bernoulli
from shoal.mechanisms.base import invalid

if TYPE_CHECKING:
    from shoal.mechanisms.parts.draws import Filtering, Hashing, NumberSet

_WORD = 32  # bits of the words that ``below`` takes
_MOST = 1 << _WORD


class OneDevice:
    """``Draws`` of one device."""

    __slots__ = ("_entropy",)

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def coin(self, threshold: int) -> bool:
        """One word of 8 bytes, compared once."""
        return bernoulli(threshold, self._entropy)

    def coin_if(self, given: int, if_not: int, if_so: int) -> bool:
        """One word of 8 bytes, whichever threshold it is compared with."""
        return bernoulli(if_so if given else if_not, self._entropy)

    def below(self, bound: int) -> int:
        """Words of 4 bytes until one is not refused (Lemire's multiplication with rejection); their
        number depends on the words alone.
        """
        # Not ``shoal.entropy.uniform_below``, which draws words of 64 bits.
        if not 1 <= bound <= _MOST:
            raise invalid(f"a uniform draw wants a bound from 1 to 2^32, got {bound}")
        refused = _MOST % bound
        while True:
            product = int.from_bytes(self._entropy.bytes(_WORD // 8), "little") * bound
            if product % _MOST >= refused:
                return product >> _WORD

    def below_power(self, bound: int) -> int:
        """The upper bits of one 16-bit word."""
        return int.from_bytes(self._entropy.bytes(2), "little") * bound >> 16

    def seed(self, size: int) -> bytes:
        """``size`` random bytes."""
        return self._entropy.bytes(size)

    def _words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self._entropy.bytes(8 * count))

    def coins(self, k: int, threshold: int) -> list[bool]:
        """k coins, a word of 8 bytes each."""
        return [word < threshold for word in self._words(k)]

    def coins_but_one(self, k: int, threshold: int, at: int, there: int) -> list[bool]:
        """k coins; the word for each place is the same, whatever ``at`` is."""
        thresholds = [threshold] * k
        if at < k:
            thresholds[at] = there
        return [word < limit for word, limit in zip(self._words(k), thresholds, strict=True)]

    def coins_if(self, given: list[bool], if_not: int, if_so: int) -> list[bool]:
        """A coin for each bit; both thresholds use the same word."""
        limits = (if_not, if_so)
        return [
            word < limits[bit] for word, bit in zip(self._words(len(given)), given, strict=True)
        ]

    def where(self, condition: int, if_so: int, if_not: int) -> int:
        """One of the two, both of which were made."""
        return if_so if condition else if_not

    def odd(self, number: int) -> int:
        """The parity of the number's bits."""
        return number.bit_count() & 1

    def flipped(self, bits: list[bool], at: int) -> list[bool]:
        """The same list, with one bit changed."""
        bits[at] = not bits[at]
        return bits

    def marked(self, k: int) -> NumberSet:
        """An empty set of the numbers below k."""
        return _OneSet(k)

    def place_in(self, members: list[int], number: int) -> int:
        """The first place at which ``number`` stands, or the count of ``members``."""
        return members.index(number) if number in members else len(members)

    def hashed(self, hashing: Hashing, index: int, cell: int) -> int:
        """By the public function ``index``."""
        return hashing.hashed(index, cell)

    def off_filter(
        self, bits: list[bool], filtering: Filtering, cohort: int, cell: int
    ) -> list[bool]:
        """The same list, with the filter's bits inverted; a place named twice counts once."""
        for place in set(filtering.places(cohort, cell)):
            bits[place] = not bits[place]
        return bits

    def number(self, number: int, size: int) -> bytes:
        """``size`` bytes, big-endian."""
        return number.to_bytes(size, "big")

    def numbers(self, members: list[int], size: int) -> bytes:
        """Each member in ``size`` bytes, big-endian."""
        return b"".join([number.to_bytes(size, "big") for number in members])

    def bitmap(self, bits: list[bool]) -> bytes:
        """Packed as in ``bitmaps``, padding bits 0."""
        from shoal.mechanisms.parts.bitmaps import pack  # most reports have none

        return pack(bits)

    def read(self, field: bytes, place: int) -> int:
        """The 4-byte number at ``place``, big-endian."""
        return int.from_bytes(field[4 * place : 4 * place + 4], "big")

    def joined(self, *fields: bytes) -> bytes:
        """The fields one after the other."""
        return b"".join(fields)


class _OneSet:
    """``NumberSet`` of one device."""

    __slots__ = ("_k", "_set")

    def __init__(self, k: int) -> None:
        self._k, self._set = k, set[int]()

    def has(self, place: int) -> bool:
        return place in self._set

    def put(self, place: int, marked: int) -> None:
        (self._set.add if marked else self._set.discard)(place)

    def bits(self) -> list[bool]:
        return [number in self._set for number in range(self._k)]

    def members(self) -> list[int]:
        return sorted(self._set)
