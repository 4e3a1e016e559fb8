"""Questions with a list of answers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value, number_of, text_of

NO_ANSWER = "no answer"
_MOST_SHOWN = 20  # labels in one line


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class Categories:
    """One cell per label and a last cell for "no answer".

    With ``lower_bounds`` (as many as labels, increasing) a number falls into the last label whose
    bound is <= it, and below the first bound is no answer; integers of any size are compared
    exactly. Without them the text of a value is matched with a label, code point by code point.
    """

    names: tuple[str, ...]
    lower_bounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) < LIMITS.cells:
            raise _bad(f"categories want 2 to {LIMITS.cells - 1} labels")
        if len(set(self.names)) != len(self.names) or not all(
            0 < len(name) <= LIMITS.name_chars for name in self.names
        ):
            raise _bad(f"category labels are distinct and 1 to {LIMITS.name_chars} characters long")
        if NO_ANSWER in self.names:
            raise _bad(f'"{NO_ANSWER}" is added to the categories by itself: leave it out')
        check_blanks(self.names)
        if self.lower_bounds and (
            len(self.lower_bounds) != len(self.names)
            or any(b <= a for a, b in zip(self.lower_bounds, self.lower_bounds[1:], strict=False))
        ):
            raise _bad("lower_bounds of categories are strictly increasing, one per label")
        if not all(-(1 << 63) <= bound < 1 << 63 for bound in self.lower_bounds):
            raise _bad("lower_bounds of categories are integers of 64 bits")

    @property
    def size(self) -> int:
        """Number of cells: the labels and "no answer"."""
        return len(self.names) + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell, "no answer" last."""
        return (*self.names, NO_ANSWER)

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label, in the labels' order: here all cells."""
        return tuple(range(self.size))

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The value's cell; the last cell for anything that fits no label."""
        if self.lower_bounds:
            number = number_of(value)
            if number is None or number < self.lower_bounds[0]:
                return len(self.names)
            return bisect_right(self.lower_bounds, number) - 1
        text = text_of(value)
        return self.names.index(text) if text in self.names else len(self.names)

    def understands(self, value: Value) -> bool:
        """Whether the value falls into a label's cell, and not into "no answer"."""
        return self.encode(value) < len(self.names)

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        if self.lower_bounds:
            return f"a number of at least {self.lower_bounds[0]}"
        shown = ", ".join(f'"{name}"' for name in self.names[:_MOST_SHOWN])
        more = len(self.names) - _MOST_SHOWN
        return (
            f"one of {shown}"
            + (f" and {more:,} more (shoal agent explain)" if more > 0 else "")
            + ", letter by letter"
        )


def check_blanks(names: tuple[str, ...]) -> None:
    """Raises INVALID for a name with blanks around it."""
    if any(name != text_of(name) for name in names):
        raise _bad(
            "labels have no blanks around them: nobody could answer with one, since those of an "
            "answer are taken away"
        )
