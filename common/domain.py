"""How a person's value becomes an integer: the domain of a task's question. ``questions.answers``
says what a value says.

``encode`` has a cell for every value, always: missing, unreadable and out-of-domain values go to a
cell of their own ("no answer"; for a yes/no question: "no"). A device that skipped would make the
number of reports depend on values, and the certificate would not hold.

``understands`` tells whether a value is an answer. What a person types is refused if it is none,
and ``accepted`` says what would be one; what a device reads by itself is never refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum, unique

from shoal.digests import sha256
from shoal.entropy import SYSTEM, Entropy, bernoulli
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value, number_of, text_of, yes_or_no
from shoal.questions.categories import NO_ANSWER, Categories, check_blanks
from shoal.questions.discovery import Discovery
from shoal.questions.layout import NamedShape, check_layout
from shoal.questions.places import Places
from shoal.questions.record import AnswerRecord

__all__ = [
    "NO_ANSWER",
    "AnswerRecord",
    "Categories",
    "Discovery",
    "Domain",
    "Norm",
    "Numeric",
    "Places",
    "Value",
    "Vector",
    "Words",
    "YesNo",
    "normal",
    "word_cell",
]

WORD_BITS = 62  # of the number that stands for a word
_NO_CELLS = "this question is answered by a vector, through secure aggregation: it has no cells"


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class YesNo:
    """Cell 0 = no (and every missing or unreadable value), cell 1 = yes."""

    @property
    def size(self) -> int:
        """Number of cells."""
        return 2

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell, in their order."""
        return ("no", "yes")

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label, in the labels' order: here all cells."""
        return tuple(range(self.size))

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """1 for yes, true and 1; 0 otherwise."""
        return int(yes_or_no(value) is True)

    def understands(self, value: Value) -> bool:
        """Whether the value is a yes or a no, and not counted as no for want of a meaning."""
        return yes_or_no(value) is not None

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return "yes or no (true or false, 1 or 0)"


@dataclass(frozen=True, slots=True)
class Numeric:
    """Cell i stands for low + i * (high - low) / (levels - 1); a last cell for "no answer".

    A value between two levels is rounded to one of them at random so that its mean is kept
    (unbiased, threshold out of 2^64). ``clip``: values outside [low, high] are moved to its ends;
    otherwise they are no answer.
    """

    low: float
    high: float
    levels: int
    clip: bool = True
    unit: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise _bad("a numeric domain wants finite low < high")
        if not 2 <= self.levels < LIMITS.cells:
            raise _bad(f"a numeric domain wants 2 to {LIMITS.cells - 1} levels")
        # Below two units in the last place neighbouring levels would be one float; an infinite
        # width has no levels at all.
        if not 2 * math.ulp(max(abs(self.low), abs(self.high))) <= self.step < math.inf:
            raise _bad(
                "low and high of a numeric domain are too close or too far apart for its levels: "
                "choose another unit"
            )
        if len(self.unit) > LIMITS.name_chars:
            raise _bad(f"a unit is at most {LIMITS.name_chars} characters long")

    @property
    def size(self) -> int:
        """Number of cells: the levels and "no answer"."""
        return self.levels + 1

    @property
    def step(self) -> float:
        """Distance of two neighbouring levels, in the domain's unit."""
        return (self.high - self.low) / (self.levels - 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels in as few digits as tell them apart."""
        for digits in (6, 9, 12):
            names = [f"{self.low + i * self.step:.{digits}g}" for i in range(self.levels)]
            if len(set(names)) == self.levels:
                return (*names, NO_ANSWER)
        return (*(repr(self.low + i * self.step) for i in range(self.levels)), NO_ANSWER)

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label, in the labels' order: here all cells."""
        return tuple(range(self.size))

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The level of the value, rounded at random between two levels; the last cell for missing,
        NaN, infinite, out of domain.

        One word is drawn whatever the value is, so that the time and randomness used don't tell
        whether there was an answer, or whether it stood on a level.
        """
        number = number_of(value)
        answered = self.understands(value)
        place = (
            (min(max(number, self.low), self.high) - self.low) / self.step
            if number is not None
            else 0.0
        )
        below = min(int(place), self.levels - 1)
        up = bernoulli(int((place - below) * 2**64), entropy)
        return min(below + int(up), self.levels - 1) if answered else self.levels

    def understands(self, value: Value) -> bool:
        """Whether the value is a number, and within low and high where the domain does not clip."""
        number = number_of(value)
        return number is not None and (self.clip or self.low <= number <= self.high)

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        unit = f" {self.unit}" if self.unit else ""
        beyond = "; beyond it the end of the range counts" if self.clip else ""
        return (
            f"a number from {text_of(self.low)} to {text_of(self.high)}{unit}, as 3 or 2.5{beyond}"
        )


@dataclass(frozen=True, slots=True)
class Words:
    """An open vocabulary: any text is an answer, and ``names`` are the texts that are looked for in
    the reports. Order tells nothing.

    A text's cell is the first 62 bits of SHA-256("shoal word 1" || its UTF-8), without the blanks
    around it, in Unicode's normal form NFC; that of a missing answer ("no answer") the same of
    "shoal no word 1", which no text can have, not even the text "no answer". A device that answers
    with a word that nobody looks for is one of the crowd, as any other. Names are as they are
    hashed, and have different cells: by accident two texts share one with probability 2^-62.
    """

    names: tuple[str, ...]
    label_cells: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The cell of each label, "no answer" last."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) < LIMITS.cells:
            raise _bad(f"an open vocabulary wants 1 to {LIMITS.cells - 1} words to look for")
        if len(set(self.names)) != len(self.names) or not all(
            0 < len(name) <= LIMITS.name_chars for name in self.names
        ):
            raise _bad(
                "words to look for are distinct, also in Unicode's normal form NFC, and 1 to "
                f"{LIMITS.name_chars} characters long"
            )
        if NO_ANSWER in self.names:
            raise _bad(
                f'"{NO_ANSWER}" stands for missing answers, which are counted by themselves: leave '
                "it out of the words"
            )
        if not all(normal(name) == name for name in self.names):
            raise _bad(
                "words to look for are in Unicode's normal form NFC, in which devices read their "
                "answers: normalize them"
            )
        check_blanks(self.names)
        cells = (*map(word_cell, self.names), _NO_WORD_CELL)
        if len(set(cells)) != len(cells):
            raise _bad(
                "two of the words to look for have the same 62 bits of SHA-256, by accident: leave "
                "one of them out"
            )
        object.__setattr__(self, "label_cells", cells)

    @property
    def size(self) -> int:
        """2^62: cells are never listed."""
        return 1 << WORD_BITS

    @property
    def labels(self) -> tuple[str, ...]:
        """One per name that is looked for, "no answer" last."""
        return (*self.names, NO_ANSWER)

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The cell of the value's text, however long. What has none, the empty text and what has no
        UTF-8 are no answer.
        """
        text = text_of(value)
        word = None if text is None else normal(text)
        return _NO_WORD_CELL if word is None else word_cell(word)

    def understands(self, value: Value) -> bool:
        """Whether the value has a text, which is some cell of its own."""
        return self.encode(value) != _NO_WORD_CELL

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return "any text"


def normal(text: str) -> str | None:
    """The text in Unicode's normal form NFC; None for the empty text, and for one with half of a
    surrogate pair, which has no UTF-8.
    """
    if text.isascii():
        return text or None
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return None
    from unicodedata import normalize  # a megabyte of tables: only where they are needed

    return normalize("NFC", text)


def word_cell(text: str) -> int:
    """The cell of a text that is in normal form: 0 to 2^62 - 1."""
    return _first_bits(b"shoal word 1" + text.encode())


def _first_bits(data: bytes) -> int:
    return int.from_bytes(sha256(data)[:8], "big") >> (64 - WORD_BITS)


_NO_WORD_CELL = 0x34E1C5A1BC939580  # the first 62 bits of SHA-256("shoal no word 1")


@unique
class Norm(IntEnum):
    """In which sense a vector is clipped. The numbers cross the wire."""

    L1 = 1  # the sum of the absolute values
    L2 = 2  # the Euclidean length
    COORDINATE = 3  # every absolute value by itself


@dataclass(frozen=True, slots=True)
class Vector:
    """``dimension`` real numbers, clipped to ``clip`` in ``norm``: the domain of sums by secure
    aggregation, and of nothing else.

    ``grid``: whole steps that ``clip`` is cut into; x is summed as the integer x * grid / clip,
    rounded at random so that its mean is kept (shoal.mechanisms.quantize). A missing vector is the
    zero vector. ``names``: one per coordinate, or none. ``layout``: of a vector that travels in
    segments, the named arrays that it is made of, or none.
    """

    dimension: int
    norm: Norm
    clip: float
    grid: int
    names: tuple[str, ...] = ()
    unit: str = ""
    layout: tuple[NamedShape, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= LIMITS.vector_words:
            raise _bad(f"a vector has 1 to {LIMITS.vector_words} coordinates")
        # Within these no total, and no square of one, leaves the range of a float.
        if not 1e-100 <= self.clip <= 1e100:
            raise _bad("the clip of a vector is a number above 0, from 1e-100 to 1e100")
        if not 1 <= self.grid < 1 << 48:
            raise _bad("the grid of a vector is 1 to 2^48 - 1 steps")
        if self.names and (
            len(self.names) != self.dimension or len(set(self.names)) != self.dimension
        ):
            raise _bad(
                "the names of a vector's coordinates are distinct, one per coordinate, or left out"
            )
        if (
            not all(0 < len(name) <= LIMITS.name_chars for name in self.names)
            or len(self.unit) > LIMITS.name_chars
        ):
            raise _bad(
                "the names of a vector's coordinates, and its unit, are at most "
                f"{LIMITS.name_chars} characters long"
            )
        check_layout(self.layout, self.dimension)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.dimension

    @property
    def labels(self) -> tuple[str, ...]:
        """One per coordinate: its name, or its number from 0."""
        return self.names or tuple(map(str, range(self.dimension)))

    @property
    def label_cells(self) -> tuple[int, ...]:
        """A vector has no cells. Raises INVALID."""
        raise _bad(_NO_CELLS)

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """A vector has no cell. Raises INVALID."""
        raise _bad(_NO_CELLS)

    def understands(self, value: Value) -> bool:
        """Raises INVALID, as ``encode``."""
        raise _bad(_NO_CELLS)

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return f"a list of {self.dimension:,} numbers, as [1.5, 0]"


Domain = YesNo | Categories | Numeric | Words | Vector | AnswerRecord | Discovery | Places
