"""Several answers of one device, asked for together: a record of attributes, of which a fleet is
asked how they go together.

The answer is a JSON object (RFC 8259), as a text: {"age": 34, "health": "good"}. Each attribute is
a list of answers with a last cell "no answer": there go a missing or null member, an object, a list
or a text that is none of its answers. A value that is no JSON object, or has a member twice, is no
answer to every attribute. So every value has a cell everywhere, and no device skips.

**Marginals.** Tables of some attributes each, all pairs or those that a task lists. A device either

- answers in *one* of them, drawn by itself, uniformly, before it looks at its value (``together``
  false): its cell is a cell of that table, and every randomizer that answers with one cell serves;
- or in *all* of them (``together``): its cell stands for the whole record, and its mechanism sends
  one true message for each table.

*Why one of them costs nothing more:* given the coin, which does not depend on the value, two values
are two cells, or one and the same. The report's law is the average over the coin, and a bound that
holds of every pair of cells (or of equal ones) holds of the average: exp(epsilon) and delta enter
linearly. A task of such records is never memoized: a coin that is drawn anew is another cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from shoal.entropy import SYSTEM, Entropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value, text_of
from shoal.questions.categories import Categories
from shoal.questions.json_object import members_of

MOST_ATTRIBUTES = 12
MOST_COMBINATIONS = 1 << 62
_RESERVED = frozenset("=,")  # what labels are put together with
Marginal = tuple[int, ...]
"""Places of attributes, increasing."""


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One member of a record: its name, and the answers that it may have. Raises INVALID for a
    name that is empty, too long, has blanks around it, or = or a comma in it.
    """

    name: str
    answers: Categories

    def __post_init__(self) -> None:
        if (
            not 0 < len(self.name) <= LIMITS.name_chars
            or self.name != text_of(self.name)
            or _RESERVED & set(self.name)
        ):
            raise _bad(
                f"the name of an attribute is 1 to {LIMITS.name_chars} characters, without blanks "
                "around them and without = and commas"
            )


def all_pairs(attributes: int) -> tuple[Marginal, ...]:
    """Every two of so many attributes, in order: the marginals unless a task lists others."""
    return tuple(combinations(range(attributes), 2))


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """``attributes``: 2 to 12, of different names. ``marginals``: 1 or more, in rising order, each
    once, every attribute in one of them. ``together``: whether a device answers in all of them.

    Raises INVALID for anything else, and where tables have more cells than a task may.
    """

    attributes: tuple[Attribute, ...]
    marginals: tuple[Marginal, ...]
    together: bool = False
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.attributes)
        if not 2 <= count <= MOST_ATTRIBUTES or len({a.name for a in self.attributes}) != count:
            raise _bad(f"a record has 2 to {MOST_ATTRIBUTES} attributes of different names")
        if not self.marginals or list(self.marginals) != sorted(set(self.marginals)):
            raise _bad("the marginals of a record are one or more, each once and in order")
        for one in self.marginals:
            rising = all(a < b for a, b in pairwise(one))
            if not one or not rising or not 0 <= one[0] <= one[-1] < count:
                raise _bad("a marginal names attributes of its record, each once and in order")
        unasked = set(range(count)).difference(*self.marginals)
        if unasked:
            raise _bad(
                f"no marginal asks for {self.attributes[min(unasked)].name}: leave the attribute "
                "out, or ask for it"
            )
        starts = [0]
        for one in self.marginals:
            starts.append(starts[-1] + math.prod(self.shape(one)))
        if starts[-1] > LIMITS.cells or self.combinations > MOST_COMBINATIONS:
            raise _bad(
                f"the marginals of this record have {starts[-1]:,} cells together, and "
                f"{LIMITS.cells:,} are the most: leave marginals or answers out"
            )
        object.__setattr__(self, "_starts", tuple(starts))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute, "no answer" among them."""
        return tuple(one.answers.size for one in self.attributes)

    def shape(self, marginal: Marginal) -> tuple[int, ...]:
        """Cells along each axis of a marginal."""
        return tuple(self.attributes[at].answers.size for at in marginal)

    @property
    def combinations(self) -> int:
        """Records that differ."""
        return math.prod(self.sizes)

    @property
    def cells(self) -> int:
        """Of all marginals, one after the other."""
        return self._starts[-1]

    @property
    def size(self) -> int:
        """Numbers that ``encode`` gives: those of records, or of cells."""
        return self.combinations if self.together else self.cells

    @property
    def starts(self) -> tuple[int, ...]:
        """The first cell of each marginal, and at the end the number of all cells."""
        return self._starts

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell of the marginals: "age=18-34, sex=female". The last axis runs fastest."""
        return tuple(
            ", ".join(parts) for marginal in self.marginals for parts in self._labels(marginal)
        )

    def _labels(self, marginal: Marginal) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [()]
        for at in marginal:
            one = self.attributes[at]
            rows = [(*row, f"{one.name}={label}") for row in rows for label in one.answers.labels]
        return rows

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label, in the labels' order. Raises INVALID where a cell stands for a
        whole record.
        """
        if self.together:
            raise _bad("a record that is answered in all marginals has no cell for a label")
        return tuple(range(self.cells))

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The number of the record (``together``); else its cell in a marginal that is drawn
        uniformly, before the value is looked at.
        """
        if self.together:
            return self.number_of(self.answers_of(value))
        drawn = uniform_below(len(self.marginals), entropy)
        return self.cell_of(drawn, self.answers_of(value))

    def answers_of(self, value: Value) -> tuple[int, ...]:
        """The cell of each attribute."""
        members = members_of(value)
        return tuple(
            one.answers.encode(_plain(members.get(one.name)), SYSTEM) for one in self.attributes
        )

    def cell_of(self, marginal: int, answers: tuple[int, ...]) -> int:
        """The cell of these answers in a marginal, among the cells of all."""
        cell = 0
        for at in self.marginals[marginal]:
            cell = cell * self.attributes[at].answers.size + answers[at]
        return self._starts[marginal] + cell

    def number_of(self, answers: tuple[int, ...]) -> int:
        """A record's number: its answers as digits, the last one fastest."""
        number = 0
        for size, answer in zip(self.sizes, answers, strict=True):
            number = number * size + answer
        return number

    def cells_of(self, number: int) -> tuple[int, ...]:
        """The cells of a record's number, one in each marginal, rising."""
        answers = list[int]()
        for size in reversed(self.sizes):
            number, answer = divmod(number, size)
            answers.append(answer)
        found = tuple(reversed(answers))
        return tuple(self.cell_of(at, found) for at in range(len(self.marginals)))

    def understands(self, value: Value) -> bool:
        """Whether the value is an object that answers one of the attributes, and has no member
        that is none of them.
        """
        members = members_of(value)
        known = {one.name: one.answers for one in self.attributes}
        return not set(members) - set(known) and any(
            known[name].understands(_plain(given)) for name, given in members.items()
        )

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        members = "; ".join(f"{one.name}: {one.answers.accepted}" for one in self.attributes)
        return f"a JSON object with these members, each of which may be left out: {members}"


def _plain(value: object) -> Value:
    """A member that may be an answer; None for what is none."""
    return value if isinstance(value, bool | int | float | str) else None
