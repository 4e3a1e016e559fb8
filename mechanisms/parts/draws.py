"""A randomizer's draw, written once: for one device, or for the many of a fleet.

A mechanism's ``draw(value, draws)`` asks a ``Draws`` for coins and makes the bytes of a report of
them. ``OneDevice`` answers with numbers of Python, and never loads numpy, which would cost a device
more memory than everything else it keeps; ``ManyDevices`` answers with arrays, one entry per
device, so that the same operators work on both. ``reports`` runs a draw by either.

Both ask the entropy for the same bytes at n = 1, in the same order: ``randomize_one(v)`` and
``randomize([v])[0]`` are one report (the conformance suite compares them). Which words are drawn,
and how many, never depends on a private value: a draw makes all its choices, and then picks.

What a draw handles is typed ``Any``, because it is one thing or the other:

    Lane   int, or int64[n]: a cell, an index; a coin is a bool, or bool[n]
    Bits   list[bool], or bool[n, k]: a row of bits for each device
    Field  bytes, or uint8[n, size]: a part of a report
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from shoal.arrays import NDArray, np

Lane: TypeAlias = Any
Bits: TypeAlias = Any
Field: TypeAlias = Any


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
