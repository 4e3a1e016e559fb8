"""What a member of ``MechanismSuite`` states: its cases, and the words at which
its draws decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from shoal.domain import Domain, Words
from shoal.mechanisms import Mechanism, create
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy
from shoal.task import MechanismSpec
from tests.cases import for_each

Suite = TypeVar("Suite")
Made = TypeVar("Made")
Arguments = ParamSpec("Arguments")


def once(
    method: Callable[Concatenate[Suite, Arguments], Made],
) -> Callable[Concatenate[Suite, Arguments], Made]:
    """For a method of a suite: made once for each member, which is a class, and its arguments.
    Every test has an instance of its own, so nothing can be kept there.
    """
    made: dict[object, Made] = {}

    @wraps(method)
    def of_member(self: Suite, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        key = type(self), args, tuple(kwargs.items())
        if key not in made:
            made[key] = method(self, *args, **kwargs)
        return made[key]

    return of_member


@dataclass(frozen=True)
class Case:
    name: str
    spec: MechanismSpec
    domain: Domain
    # cells to enumerate; all when empty, which of an open vocabulary nobody can
    inputs: tuple[int, ...] = ()

    @cached_property
    def mechanism(self) -> Mechanism:
        return create(self.spec, self.domain)

    @property
    def cells(self) -> tuple[int, ...]:
        return self.inputs or tuple(range(self.domain.size))

    @property
    def listed(self) -> tuple[int, ...]:
        """The cells that have a row in ``stated``: all, but of an open vocabulary ``inputs``
        alone.
        """
        return self.inputs if isinstance(self.domain, Words) else tuple(range(self.domain.size))

    def tiled(self, places: np.ndarray) -> np.ndarray:
        """int64[n]: the listed cells at these places, modulo their number."""
        return np.asarray(np.array(self.listed, dtype=np.int64)[places % len(self.listed)])


@dataclass(frozen=True)
class Draw:
    """One request of ``width`` bytes, read as a little-endian word, and the words at which the code
    may decide anew.

    ``refused``: half-open intervals of words that the code refuses; it then asks for another word
    before it draws anything else.
    """

    width: int
    edges: tuple[int, ...]
    refused: tuple[tuple[int, int], ...] = ()

    def intervals(self) -> list[tuple[int, int]]:
        """Half-open intervals that cover all words; a refused one is one of them."""
        points = sorted({0, *self.edges, *itertools.chain(*self.refused)} - {1 << (8 * self.width)})
        assert all(0 <= p < 1 << (8 * self.width) for p in points)
        return list(itertools.pairwise([*points, 1 << (8 * self.width)]))

    def kept(self) -> list[tuple[int, int]]:
        """The intervals of words that are not refused."""
        return [
            (low, high)
            for low, high in self.intervals()
            if not any(start <= low < end for start, end in self.refused)
        ]

    def word(self, value: int) -> bytes:
        return value.to_bytes(self.width, "little")


def uniform_draw(k: int) -> Draw:
    """A 32-bit word by multiply-and-shift: a new cell at ceil(cell * 2^32 / k), whose first word
    may be refused.
    """
    starts = [-(-(cell << 32) // k) for cell in range(k)]
    refused = tuple((start, start + 1) for start in starts if start * k % (1 << 32) < (1 << 32) % k)
    return Draw(4, tuple(starts), refused)


Table = tuple[tuple[int, ...], ...]


def table(law: LocalPrivacy) -> Table:
    """The integer weights P(y | x), rows are inputs."""
    match law:
        case KaryLaw():
            return tuple(
                tuple(law.same if x == y else law.other for y in range(law.k)) for x in range(law.k)
            )
        case FiniteLaw():
            return law.rows
        case _:
            raise AssertionError(
                "a law of classes lists no outputs: the member writes its table out in stated()"
            )


every_case = for_each("case", lambda suite: suite.CASES, ids=lambda case: case.name)
"""Stands above each test of a member that takes a ``case``: it runs for all of the class's."""
every_domain = for_each("domain", lambda suite: dict.fromkeys(case.domain for case in suite.CASES))
"""Likewise for a ``domain``: once for each that the class's cases are about."""
