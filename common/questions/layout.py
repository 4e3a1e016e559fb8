"""The named arrays that a long vector is made of, one after the other: ``layer1.weight[256,64]``.

A model is asked for as one flat vector. Its layout says which run of coordinates is which array, in
which shape, so that a release of it can be read by its parts. It is public, and signed with the
task: who answers and who reads can't mean different orders.

Pure: no numpy, so that a device that only reads tasks loads none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

# Parts of a name are files and folders for whoever unpacks an .npz: none is hidden, or leads up.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"{_PART}(/{_PART})*")
_TEXT = re.compile(r"(?P<name>[^\[\]]*)\[(?P<shape>[0-9, ]*)\]")
_MOST_SIDES = 8


@dataclass(frozen=True, slots=True)
class NamedShape:
    """``name``: 1 to ``LIMITS.array_name_chars`` letters, digits and ``_ . -``, in parts divided by
    ``/``. ``shape``: up to 8 sides of 1 or more; none of them is a single number. Raises INVALID.
    """

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.name) > LIMITS.array_name_chars or not _NAME.fullmatch(self.name):
            raise _bad(
                f"the name of an array is 1 to {LIMITS.array_name_chars} letters, digits, _, . and "
                f"-, in parts divided by /, that begin with none of . and -, got {self.name[:80]!r}"
            )
        if len(self.shape) > _MOST_SIDES or not all(
            1 <= side <= LIMITS.vector_words for side in self.shape
        ):
            raise _bad(
                f"{self.name} has a shape of at most {_MOST_SIDES} sides, each 1 to "
                f"{LIMITS.vector_words}, got {list(self.shape)}"
            )

    @property
    def size(self) -> int:
        """Coordinates."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}[{','.join(map(str, self.shape))}]"


def named_shape(text: str) -> NamedShape:
    """Of ``layer1.weight[256,64]``, as ``str`` gives it. Raises INVALID."""
    found = _TEXT.fullmatch(text)
    sides = found["shape"].split(",") if found and found["shape"].strip() else []
    if found is None or not all(side.strip().isdecimal() for side in sides):
        raise _bad(f"an array is given as name[rows,columns], as weight[256,64], got {text[:80]!r}")
    return NamedShape(found["name"], tuple(map(int, sides)))


def check_layout(layout: Sequence[NamedShape], dimension: int) -> None:
    """Raises INVALID unless the arrays have distinct names and ``dimension`` coordinates together.
    No layout is in order too.
    """
    if not layout:
        return
    if len(layout) > LIMITS.arrays or len({one.name.lower() for one in layout}) != len(layout):
        raise _bad(
            f"a layout has at most {LIMITS.arrays} arrays, whose names differ in more than case"
        )
    held = sum(one.size for one in layout)
    if held != dimension:
        raise _bad(f"the arrays of a layout hold {held:,} numbers, and the vector {dimension:,}")


def spans(layout: Sequence[NamedShape]) -> dict[str, slice]:
    """Which coordinates each array has, by name, in order."""
    ends = list(accumulate(one.size for one in layout))
    return {one.name: slice(end - one.size, end) for one, end in zip(layout, ends, strict=True)}


def _bad(message: str) -> ShoalError:
    return ShoalError(Kind.INVALID, f"layout: {message}")
