"""A randomizer's draw, written once: for one device, or for the many of a fleet.

A mechanism's ``draw(value, draws)`` asks a ``Draws`` for coins and makes the bytes of a report of
them. ``OneDevice`` answers with numbers of Python, and never loads numpy, which would cost a device
more memory than everything else it keeps; ``ManyDevices`` answers with arrays, one entry per
device, so that the same operators work on both. ``one_report`` and ``many_reports`` are all of a
mechanism's ``randomize_one`` and ``randomize``.

Both ask the entropy for the same bytes at n = 1, in the same order: ``randomize_one(v)`` and
``randomize([v])[0]`` are one report (the conformance suite compares them). Which words are drawn,
and how many, never depends on a private value: a draw makes all its choices, and then picks.

What a draw handles is typed ``Any``, because it is one thing or the other:

    Lane   int, or int64[n]: a cell, an index; a coin is a bool, or bool[n]
    Bits   list[bool], or bool[n, k]: a row of bits for each device
    Field  bytes, or uint8[n, size]: a part of a report
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy, bernoulli, streamed
from shoal.mechanisms.base import invalid
from shoal.mechanisms.parts import bitmaps, cells, sampling

Lane: TypeAlias = Any
Bits: TypeAlias = Any
Field: TypeAlias = Any
_WORD = 32  # bits of the words that ``below`` takes
_MOST = 1 << _WORD


class NumberSet(Protocol):
    """A set of the numbers below k, for each device one. Empty at first."""

    def has(self, place: Lane) -> Lane:
        """Whether ``place`` is in the set: a coin."""
        ...

    def put(self, place: Lane, marked: Lane) -> None:
        """``place`` is in the set if ``marked``, a coin, and else it is not."""
        ...

    def bits(self) -> Bits:
        """k bits: those of the set are 1. May be the set itself, and is not to be written to."""
        ...

    def members(self) -> Lane:
        """The numbers in the set, rising: list[int], or int64[n, d] where all sets have d."""
        ...


class Hashing(Protocol):
    """Public hash functions of cells: ``sketches.Sketch``."""

    def hashed(self, index: int, cell: int) -> int:
        """The hash of ``cell`` by function ``index``."""
        ...

    def hash_many(self, index: NDArray[Any], cell: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n]: the same of each device's function and cell."""
        ...


class Filtering(Protocol):
    """Bloom filters of cells: ``bloom.Filters``."""

    def places(self, cohort: int, cell: int) -> tuple[int, ...]:
        """The bits that the filter of ``cell`` in ``cohort`` has, perhaps one twice."""
        ...

    def filters(self, cohorts: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[n, bits]: the filter of each device's cell in its cohort."""
        ...


class Draws(Protocol):
    """Where a draw's coins come from, and what else differs between one device and many.

    Thresholds are out of 2^64: an event with threshold T has probability T / 2^64, exactly.
    """

    # --- coins ------------------------------------------------------------------------------------

    def coin(self, threshold: int) -> Lane:
        """True with probability ``threshold`` / 2^64: one word of 8 bytes."""
        ...

    def coin_if(self, given: Lane, if_not: int, if_so: int) -> Lane:
        """A coin of threshold ``if_so`` where ``given`` is not 0, else of ``if_not`` < ``if_so``:
        one word.
        """
        ...

    def below(self, bound: int) -> Lane:
        """Exactly uniform on [0, bound), 1 <= bound <= 2^32, from 32-bit words with rejection
        (``sampling.uniform_below``). Raises INVALID for another bound.
        """
        ...

    def below_power(self, bound: int) -> Lane:
        """Uniform on [0, bound), a power of two up to 2^16: the upper bits of one 16-bit word."""
        ...

    def seed(self, size: int) -> Field:
        """``size`` random bytes."""
        ...

    def coins(self, k: int, threshold: int) -> Bits:
        """k coins: a word each."""
        ...

    def coins_but_one(self, k: int, threshold: int, at: Lane, there: int) -> Bits:
        """k coins, number ``at`` of threshold ``there``; all alike where ``at`` is k. The word for
        each is the same, whatever ``at`` is.
        """
        ...

    def coins_if(self, given: Bits, if_not: int, if_so: int) -> Bits:
        """A coin for each bit, as by ``coin_if``."""
        ...

    # --- choices and arithmetic -------------------------------------------------------------------

    def where(self, condition: Lane, if_so: Lane, if_not: Lane) -> Lane:
        """``if_so`` where the condition, a coin, is true, else ``if_not``."""
        ...

    def odd(self, number: Lane) -> Lane:
        """1 where an odd number of bits of ``number`` >= 0 are 1, else 0."""
        ...

    def flipped(self, bits: Bits, at: Lane) -> Bits:
        """``bits``, with bit ``at`` the opposite. Changes them."""
        ...

    def marked(self, k: int) -> NumberSet:
        """An empty set of the numbers below k."""
        ...

    def place_in(self, members: Lane, number: Lane) -> Lane:
        """The place of ``number`` among ``members``; their count if it is none of them."""
        ...

    def hashed(self, hashing: Hashing, index: Lane, cell: Lane) -> Lane:
        """The hash of ``cell`` by function ``index``."""
        ...

    def off_filter(self, bits: Bits, filtering: Filtering, cohort: Lane, cell: Lane) -> Bits:
        """The filter of ``cell`` in ``cohort``, the opposite where ``bits`` are 1. Changes them."""
        ...

    # --- reports ----------------------------------------------------------------------------------

    def number(self, number: Lane, size: int) -> Field:
        """``size`` <= 4 bytes, big-endian."""
        ...

    def numbers(self, members: Lane, size: int) -> Field:
        """As ``number``, of each member one after the other; 1, 2 or 4 bytes each."""
        ...

    def bitmap(self, bits: Bits) -> Field:
        """As in ``bitmaps``."""
        ...

    def read(self, field: Field, place: int) -> Lane:
        """Of a field that is 4-byte numbers, big-endian: the one at ``place``."""
        ...

    def joined(self, *fields: Field) -> Field:
        """One field after the other."""
        ...


Draw: TypeAlias = Callable[[Any, Draws], Field]
"""draw(cell, draws) -> the bytes of a report of one message."""


def one_report(draw: Draw, value: int, k: int, entropy: Entropy) -> tuple[bytes, ...]:
    """``randomize_one`` of a mechanism of k cells whose reports ``draw`` makes. Raises INVALID for
    what is no cell, before anything is drawn.
    """
    return (draw(cells.check_value(value, k), OneDevice(entropy)),)


def many_reports(
    draw: Draw,
    values: NDArray[np.int64],
    k: int,
    entropy: Entropy,
    size: int,
    most: int = sampling.BLOCK,
) -> NDArray[np.uint8]:
    """``randomize`` of the same mechanism: uint8[n, 1, size], ``most`` devices at a time, so that
    their words stay in cache. Raises INVALID for what are no cells.
    """
    reports = np.empty((cells.check_shape(values).shape[0], 1, size), dtype=np.uint8)
    if values.shape[0] > most:
        entropy = streamed(entropy)
    for part in sampling.blocks(values.shape[0], max(1, most)):
        checked = cells.check_values(values[part], k)
        reports[part, 0] = draw(checked, ManyDevices(checked.shape[0], entropy))
    return reports


class OneDevice:
    """``Draws`` of one device."""

    __slots__ = ("_entropy",)

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def coin(self, threshold: int) -> bool:
        return bernoulli(threshold, self._entropy)

    def coin_if(self, given: int, if_not: int, if_so: int) -> bool:
        return bernoulli(if_so if given else if_not, self._entropy)

    def below(self, bound: int) -> int:
        # Not ``shoal.entropy.uniform_below``, which draws words of 64 bits.
        if not 1 <= bound <= _MOST:
            raise invalid(f"a uniform draw wants a bound from 1 to 2^32, got {bound}")
        refused = _MOST % bound
        while True:
            product = int.from_bytes(self._entropy.bytes(_WORD // 8), "little") * bound
            if product % _MOST >= refused:
                return product >> _WORD

    def below_power(self, bound: int) -> int:
        return int.from_bytes(self._entropy.bytes(2), "little") * bound >> 16

    def seed(self, size: int) -> bytes:
        return self._entropy.bytes(size)

    def _words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self._entropy.bytes(8 * count))

    def coins(self, k: int, threshold: int) -> list[bool]:
        return [word < threshold for word in self._words(k)]

    def coins_but_one(self, k: int, threshold: int, at: int, there: int) -> list[bool]:
        thresholds = [threshold] * k
        if at < k:
            thresholds[at] = there
        return [word < limit for word, limit in zip(self._words(k), thresholds, strict=True)]

    def coins_if(self, given: list[bool], if_not: int, if_so: int) -> list[bool]:
        limits = (if_not, if_so)
        return [
            word < limits[bit] for word, bit in zip(self._words(len(given)), given, strict=True)
        ]

    def where(self, condition: int, if_so: int, if_not: int) -> int:
        return if_so if condition else if_not

    def odd(self, number: int) -> int:
        return number.bit_count() & 1

    def flipped(self, bits: list[bool], at: int) -> list[bool]:
        bits[at] = not bits[at]
        return bits

    def marked(self, k: int) -> NumberSet:
        return _OneSet(k)

    def place_in(self, members: list[int], number: int) -> int:
        return members.index(number) if number in members else len(members)

    def hashed(self, hashing: Hashing, index: int, cell: int) -> int:
        return hashing.hashed(index, cell)

    def off_filter(
        self, bits: list[bool], filtering: Filtering, cohort: int, cell: int
    ) -> list[bool]:
        for place in set(filtering.places(cohort, cell)):
            bits[place] = not bits[place]
        return bits

    def number(self, number: int, size: int) -> bytes:
        return number.to_bytes(size, "big")

    def numbers(self, members: list[int], size: int) -> bytes:
        return b"".join([number.to_bytes(size, "big") for number in members])

    def bitmap(self, bits: list[bool]) -> bytes:
        return bitmaps.pack(bits)

    def read(self, field: bytes, place: int) -> int:
        return int.from_bytes(field[4 * place : 4 * place + 4], "big")

    def joined(self, *fields: bytes) -> bytes:
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


class ManyDevices:
    """``Draws`` of n devices, n >= 1."""

    __slots__ = ("_entropy", "_n")

    def __init__(self, n: int, entropy: Entropy) -> None:
        self._n, self._entropy = n, entropy

    def coin(self, threshold: int) -> NDArray[np.bool_]:
        return np.less(self._entropy.words(self._n), np.uint64(threshold))

    def coin_if(self, given: NDArray[Any], if_not: int, if_so: int) -> NDArray[np.bool_]:
        return _less_if(self._entropy.words(self._n), given, if_not, if_so)

    def below(self, bound: int) -> NDArray[np.int64]:
        return sampling.uniform_below(bound, self._n, self._entropy)

    def below_power(self, bound: int) -> NDArray[np.int64]:
        words = np.frombuffer(self._entropy.bytes(2 * self._n), dtype="<u2")
        return words.astype(np.int64) * bound >> 16

    def seed(self, size: int) -> NDArray[np.uint8]:
        drawn = self._entropy.bytes(size * self._n)
        return np.frombuffer(drawn, dtype=np.uint8).reshape(self._n, size)

    def _words(self, k: int) -> NDArray[np.uint64]:
        return self._entropy.words(self._n * k).reshape(self._n, k)

    def coins(self, k: int, threshold: int) -> NDArray[np.bool_]:
        return np.less(self._words(k), np.uint64(threshold))

    def coins_but_one(
        self, k: int, threshold: int, at: NDArray[np.int64], there: int
    ) -> NDArray[np.bool_]:
        words = self._words(k)
        bits = np.less(words, np.uint64(threshold))
        rows = np.flatnonzero(at < k)
        mine = (rows, at[rows])
        bits[mine] = words[mine] < np.uint64(there)
        return bits

    def coins_if(self, given: NDArray[np.bool_], if_not: int, if_so: int) -> NDArray[np.bool_]:
        return _less_if(self._words(given.shape[1]), given, if_not, if_so)

    def where(self, condition: NDArray[Any], if_so: Lane, if_not: Lane) -> Lane:
        return np.where(condition, if_so, if_not)

    def odd(self, number: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.bitwise_count(number) & np.uint8(1)

    def flipped(self, bits: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        bits[np.arange(self._n), at] ^= True
        return bits

    def marked(self, k: int) -> NumberSet:
        return _ManySets(self._n, k)

    def place_in(self, members: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
        same = members == number[:, None]
        known = same.any(axis=1)
        places: NDArray[np.int64] = np.where(known, same.argmax(axis=1), members.shape[1])
        return places

    def hashed(
        self, hashing: Hashing, index: NDArray[np.int64], cell: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return hashing.hash_many(index, cell)

    def off_filter(
        self,
        bits: NDArray[np.bool_],
        filtering: Filtering,
        cohort: NDArray[np.int64],
        cell: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        bits ^= filtering.filters(cohort, cell)
        return bits

    def number(self, number: NDArray[Any], size: int) -> NDArray[np.uint8]:
        if number.dtype.itemsize == size == 1:
            return number.view(np.uint8)[:, None]
        width = 4 if size == 3 else size
        written = number.astype(f">u{width}").view(np.uint8).reshape(self._n, width)
        return written[:, width - size :]

    def numbers(self, members: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        written = np.ascontiguousarray(members.astype(f">u{size}"))
        return written.view(np.uint8).reshape(self._n, -1)

    def bitmap(self, bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
        return np.packbits(bits, axis=1)

    def read(self, field: NDArray[np.uint8], place: int) -> NDArray[np.int64]:
        return field.view(">u4")[:, place].astype(np.int64)

    def joined(self, *fields: NDArray[np.uint8]) -> NDArray[np.uint8]:
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
    found: NDArray[np.bool_] = np.less(words, np.uint64(if_so))
    found &= given if given.dtype == np.bool_ else np.not_equal(given, 0)
    found |= words < np.uint64(if_not)
    return found
