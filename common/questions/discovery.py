"""A question without a list of answers: which words do many devices hold? They are found letter by
letter, one level after another.

At level 0 a device answers with the ``first`` symbols of its word (``spelling``). Beginnings that
many devices have are followed: at each later level it answers with the one symbol that comes next,
if its word begins as one of these does, and with "another" if not. What an answer can be at a level
thus follows from the levels before; every device answers at every level that it is asked at,
whatever its word is.

A ``Discovery`` is what is asked; a ``DiscoveryLevel`` is one step of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value, text_of
from shoal.questions.spelling import END, SYMBOLS, is_spelling, shown, spell

ANOTHER = "another, or none"
"""The label of a level's last cell: words that are not followed, and no word at all."""

MOST_FIRST = 3
MOST_LENGTH = 32


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class Discovery:
    """``first``: symbols that level 0 asks for, 1 to 3. ``longest``: symbols of a word that are
    asked for in all, its end among them; ``first`` to 32. ``most``: beginnings that are followed
    from one level to the next, at most. ``known``: words that are not looked for, as ``spell``
    writes them; who holds one answers "another".

    Raises INVALID for anything else, and where a level would have more cells than a task may.
    """

    first: int
    longest: int
    most: int
    known: tuple[bytes, ...] = ()
    _known: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.first <= MOST_FIRST or not self.first <= self.longest <= MOST_LENGTH:
            raise _bad(
                f"a discovery asks for 1 to {MOST_FIRST} symbols first, and for as many to "
                f"{MOST_LENGTH} in all"
            )
        if self.most < 1 or self.size > LIMITS.cells:
            raise _bad(
                "a discovery follows one beginning or more, and a level has at most "
                f"{LIMITS.cells} cells: follow at most {(LIMITS.cells - 1) // SYMBOLS}, and ask "
                "for at most 3 symbols first"
            )
        if len(set(self.known)) != len(self.known) or not all(map(self._is_word, self.known)):
            raise _bad(
                "words that are left out of a discovery are distinct, and spelled in its symbols"
            )
        object.__setattr__(self, "_known", frozenset(self.known))

    def _is_word(self, symbols: bytes) -> bool:
        whole = symbols[-1:] == bytes((END,)) or len(symbols) == self.longest
        return whole and len(symbols) <= self.longest and is_spelling(symbols)

    @property
    def levels(self) -> int:
        """How many there are: one for each symbol after the first ones, and level 0."""
        return self.longest - self.first + 1

    @property
    def size(self) -> int:
        """Cells of the largest level."""
        # so many beginnings of the last level there are
        later = SYMBOLS * min(self.most, END ** (self.longest - 1)) if self.levels > 1 else 0
        return max(_first_cells(self.first), later) + 1

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
        """Whether a word is read in the value, be it one that is left out."""
        text = text_of(value)
        return text is not None and bool(spell(text, self.longest))

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return f"any text, of which the first {self.longest} letters count"

    def word(self, value: Value) -> bytes:
        """What is looked for of a device's value; empty for none, and for a known one."""
        text = text_of(value)
        symbols = b"" if text is None else spell(text, self.longest)
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
        followed = sorted(one for one in beginnings if one[-1] != END)
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
            raise _bad(
                f"a level of this discovery follows 1 to {self.discovery.most} beginnings of words"
            )
        if any(a >= b for a, b in zip(self.followed, self.followed[1:], strict=False)):
            raise _bad("beginnings that are followed are distinct and in order")
        if not all(
            len(one) == self.depth - 1 and END not in one and is_spelling(one)
            for one in self.followed
        ):
            raise _bad(f"level {self.number} follows beginnings of {self.depth - 1} symbols")

    @property
    def depth(self) -> int:
        """Symbols of a word that its cells tell."""
        return self.discovery.first + self.number

    @property
    def is_last(self) -> bool:
        """Whether no level comes after it, whatever is found."""
        return self.number == self.discovery.levels - 1

    @property
    def size(self) -> int:
        """Number of cells; the last one is ``ANOTHER``."""
        if self.number == 0:
            return _first_cells(self.discovery.first) + 1
        return SYMBOLS * len(self.followed) + 1

    def beginning(self, cell: int) -> bytes:
        """The ``depth`` symbols, or fewer and ``END``, that a cell but the last stands for. Level 0
        writes the number of a cell with 32 symbols as digits, short words padded with ``END``. Some
        cells stand for nothing that can be spelled: nobody has them (``is_spelled``).
        """
        if not 0 <= cell < self.size - 1:
            raise _bad(f"level {self.number} has no beginning of a word in that cell")
        if self.number:
            place, symbol = divmod(cell, SYMBOLS)
            return self.followed[place] + bytes((symbol,))
        symbols = bytes(
            cell // SYMBOLS**place % SYMBOLS for place in reversed(range(self.discovery.first))
        )
        return symbols[: symbols.find(END) + 1] if END in symbols else symbols

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The cell of a device's value: always one. Nothing is drawn."""
        return self.cell_of(self.discovery.word(value))

    def cell_of(self, word: bytes) -> int:
        """The cell of a word as ``spell`` writes it; empty: no word."""
        another = self.size - 1
        if self.number == 0:
            if not word:
                return another
            padded = word[: self.depth].ljust(self.depth, bytes((END,)))
            return sum(symbol * SYMBOLS**place for place, symbol in enumerate(reversed(padded)))
        before = word[: self.depth - 1]
        place = bisect_left(self.followed, before)
        if place == len(self.followed) or self.followed[place] != before:
            return another
        return SYMBOLS * place + word[self.depth - 1]

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell, as a person reads it."""
        return (*(shown(self.beginning(cell)) for cell in range(self.size - 1)), ANOTHER)

    def is_spelled(self, cell: int) -> bool:
        """Whether some word has that cell, and no other cell: of the last one false."""
        if cell == self.size - 1:
            return False
        found = self.beginning(cell)
        return is_spelling(found) and self.cell_of(found) == cell


def _first_cells(first: int) -> int:
    """Numbers of ``first`` digits whose highest is no ``END``."""
    return int(END * SYMBOLS ** (first - 1))
