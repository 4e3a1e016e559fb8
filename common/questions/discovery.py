"""A question without a list of answers: which words do many devices hold, or at which places are
many of them? They are found symbol by symbol, one level after another.

A value is spelled in the symbols of an ``Alphabet``: a word in letters (``spelling``), a place in
the parts of a map that it lies in, each a part of the one before (``place_paths``). At level 0 a
device answers with the ``first`` symbols. Beginnings that many devices have are followed: at each
later level it answers with the one symbol that comes next, if its value begins as one of these
does, and with "another" if not. What an answer can be at a level thus follows from the levels
before; every device answers at every level that it is asked at, whatever its value is.

A ``Discovery`` is what is asked; a ``DiscoveryLevel`` is one step of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value
from shoal.questions.spelling import LETTERS


class Alphabet(Protocol):
    """What values are spelled in: the symbols 0 to ``symbols`` - 1, at most 256 of them. Equal ones
    spell alike.
    """

    @property
    def symbols(self) -> int:
        """How many there are."""

    @property
    def end(self) -> int | None:
        """The last symbol, where it ends spellings that are shorter than others. None: each has as
        many symbols as are asked for.
        """

    @property
    def most_first(self) -> int:
        """Symbols that a level 0 may ask for."""

    @property
    def most_length(self) -> int:
        """Symbols of a spelling, at most."""

    @property
    def another(self) -> str:
        """The label of a level's last cell: what is not followed, and no answer at all."""

    def spelled(self, value: Value, longest: int) -> bytes:
        """The first symbols of a value, one in a byte: ``longest``, or fewer and ``end``. Empty for
        a value that is no answer.
        """

    def is_spelling(self, symbols: bytes) -> bool:
        """Whether some value begins so, or is spelled so if ``end`` is the last one."""

    def shown(self, symbols: bytes) -> str:
        """As a person reads it; different for different spellings."""

    def accepted(self, longest: int) -> str:
        """What values it takes, in words for an owner."""


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class Discovery:
    """``first``: symbols that level 0 asks for, 1 to 3 of a word. ``longest``: symbols that are
    asked for in all, a word's end among them; ``first`` to 32 of a word. ``most``: beginnings that
    are followed from one level to the next, at most. ``known``: words that are not looked for, as
    ``alphabet`` spells them; who holds one answers "another". ``fresh``: each device answers in one
    window alone, drawn by itself, and not in every one that asks anything.

    Raises INVALID for anything else, and where a level would have more cells than a task may.
    """

    first: int
    longest: int
    most: int
    known: tuple[bytes, ...] = ()
    alphabet: Alphabet = LETTERS
    fresh: bool = False
    _known: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        letters = self.alphabet
        if (
            not 1 <= self.first <= letters.most_first
            or not self.first <= self.longest <= letters.most_length
        ):
            raise _bad(
                f"a discovery asks for 1 to {letters.most_first} symbols first, and for as many to "
                f"{letters.most_length} in all"
            )
        if self.most < 1 or self.size > LIMITS.cells:
            raise _bad(
                "a discovery follows one beginning or more, and a level has at most "
                f"{LIMITS.cells} cells: follow at most {(LIMITS.cells - 1) // letters.symbols}, "
                "and ask for fewer symbols first"
            )
        if self.known and letters.end is None:
            raise _bad("words alone can be left out of a discovery: leave nothing out")
        if len(set(self.known)) != len(self.known) or not all(map(self._is_word, self.known)):
            raise _bad(
                "words that are left out of a discovery are distinct, and spelled in its symbols"
            )
        object.__setattr__(self, "_known", frozenset(self.known))

    def _is_word(self, symbols: bytes) -> bool:
        whole = self.is_whole(symbols) or len(symbols) == self.longest
        return whole and len(symbols) <= self.longest and self.alphabet.is_spelling(symbols)

    def is_whole(self, symbols: bytes) -> bool:
        """Whether a beginning is no beginning, but has come to its end."""
        end = self.alphabet.end
        return end is not None and symbols[-1:] == bytes((end,))

    @property
    def levels(self) -> int:
        """How many there are: one for each symbol after the first ones, and level 0."""
        return self.longest - self.first + 1

    @property
    def size(self) -> int:
        """Cells of the largest level."""
        symbols = self.alphabet.symbols
        # so many beginnings of the last level there are
        going_on = symbols - (self.alphabet.end is not None)
        later = symbols * min(self.most, going_on ** (self.longest - 1)) if self.levels > 1 else 0
        return max(self.first_cells, later) + 1

    @property
    def first_cells(self) -> int:
        """Of level 0, the last one apart: numbers of ``first`` digits whose highest is no end."""
        symbols = self.alphabet.symbols
        return int((symbols - (self.alphabet.end is not None)) * symbols ** (self.first - 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the cells: what they stand for is said by a level alone."""
        return tuple(map(str, range(self.size)))

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label: all cells."""
        return tuple(range(self.size))

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """A value has a cell at a level (``DiscoveryLevel.encode``), and none without. Raises
        INVALID.
        """
        raise _bad("a discovery is answered level by level: say at which one")

    def understands(self, value: Value) -> bool:
        """Whether a word or a place is read in the value, be it one that is left out."""
        return bool(self.alphabet.spelled(value, self.longest))

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return self.alphabet.accepted(self.longest)

    def word(self, value: Value) -> bytes:
        """What is looked for of a device's value; empty for none, and for a known one."""
        symbols = self.alphabet.spelled(value, self.longest)
        return b"" if symbols in self._known else symbols

    def level(self, number: int, followed: Sequence[bytes] = ()) -> DiscoveryLevel:
        """Level ``number``, when these beginnings are followed. Raises INVALID unless they can be
        those of that level.
        """
        return DiscoveryLevel(self, number, tuple(followed))

    def after(self, number: int, beginnings: Iterable[bytes]) -> DiscoveryLevel | None:
        """The level that comes after level ``number`` when these were found there, whole words
        among them. None at the last, and where nothing is left to be followed. Raises INVALID as
        ``level``.
        """
        followed = sorted(one for one in beginnings if not self.is_whole(one))
        if number >= self.levels - 1 or not followed:
            return None
        return self.level(number + 1, followed)


@dataclass(frozen=True, slots=True)
class DiscoveryLevel:
    """One step. ``followed``: the beginnings that are, sorted and distinct, each as many symbols as
    level ``number`` - 1 has asked for and no whole word; none at level 0, one or more at others.

    Raises INVALID for anything else.
    """

    discovery: Discovery
    number: int
    followed: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.discovery.levels:
            raise _bad(f"a discovery of {self.discovery.levels} levels has no level {self.number}")
        if self.number == 0:
            if self.followed:
                raise _bad("level 0 of a discovery follows nothing yet")
            return
        if not 1 <= len(self.followed) <= self.discovery.most:
            raise _bad(f"a level of this discovery follows 1 to {self.discovery.most} beginnings")
        if any(a >= b for a, b in zip(self.followed, self.followed[1:], strict=False)):
            raise _bad("beginnings that are followed are distinct and in order")
        if not all(map(self._can_go_on, self.followed)):
            raise _bad(f"level {self.number} follows beginnings of {self.depth - 1} symbols")

    def _can_go_on(self, beginning: bytes) -> bool:
        letters = self.discovery.alphabet
        return (
            len(beginning) == self.depth - 1
            and (letters.end is None or letters.end not in beginning)
            and letters.is_spelling(beginning)
        )

    @property
    def depth(self) -> int:
        """Symbols of a value that its cells tell."""
        return self.discovery.first + self.number

    @property
    def is_last(self) -> bool:
        """Whether no level comes after it, whatever is found."""
        return self.number == self.discovery.levels - 1

    @property
    def size(self) -> int:
        """Number of cells; the last one is for "another"."""
        if self.number == 0:
            return self.discovery.first_cells + 1
        return self.discovery.alphabet.symbols * len(self.followed) + 1

    def beginning(self, cell: int) -> bytes:
        """The ``depth`` symbols, or fewer and the end, that a cell but the last stands for. Level 0
        writes the number of a cell with the symbols as digits, short words padded with ends. Some
        cells stand for nothing that can be spelled: nobody has them (``is_spelled``).
        """
        if not 0 <= cell < self.size - 1:
            raise _bad(f"level {self.number} has no beginning of a word in that cell")
        symbols, end = self.discovery.alphabet.symbols, self.discovery.alphabet.end
        if self.number:
            place, symbol = divmod(cell, symbols)
            return self.followed[place] + bytes((symbol,))
        digits = bytes(
            cell // symbols**place % symbols for place in reversed(range(self.discovery.first))
        )
        return digits if end is None or end not in digits else digits[: digits.find(end) + 1]

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The cell of a device's value: always one. Nothing is drawn."""
        return self.cell_of(self.discovery.word(value))

    def cell_of(self, word: bytes) -> int:
        """The cell of a value as its alphabet spells it; empty: none."""
        another = self.size - 1
        symbols, end = self.discovery.alphabet.symbols, self.discovery.alphabet.end
        if self.number == 0:
            if not word:
                return another
            padded = word[: self.depth]
            if end is not None:
                padded = padded.ljust(self.depth, bytes((end,)))
            return int(sum(one * symbols**place for place, one in enumerate(reversed(padded))))
        before = word[: self.depth - 1]
        place = bisect_left(self.followed, before)
        if place == len(self.followed) or self.followed[place] != before:
            return another
        return symbols * place + word[self.depth - 1]

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell, as a person reads it."""
        letters = self.discovery.alphabet
        told = (letters.shown(self.beginning(cell)) for cell in range(self.size - 1))
        return (*told, letters.another)

    def is_spelled(self, cell: int) -> bool:
        """Whether some value has that cell, and no other cell: of the last one false."""
        if cell == self.size - 1:
            return False
        found = self.beginning(cell)
        return self.discovery.alphabet.is_spelling(found) and self.cell_of(found) == cell
