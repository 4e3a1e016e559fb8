"""The points of a projective space over the numbers modulo a prime, and the hyperplane of each.

A point is a vector of t numbers modulo q whose first one that is not 0 is 1: one of each line
through 0. As a *vector* it is here the number that it spells in base q, its first entry the most
significant digit. Points are numbered from 0 as these rise: point 0 is (0, ..., 0, 1), points 1 to
q are (0, ..., 0, 1, a). Lanes as in ``draws``: numbers of Python, or int64 arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import invalid
from shoal.mechanisms.parts.draws import Draws, Lane

# An estimate transforms one float for every vector: 128 MiB, and as much again for the transform.
MOST_VECTORS = 1 << 24


@dataclass(frozen=True, slots=True)
class Space:
    """``field``: q, a prime; ``width``: t, entries of a vector, at least 2; q^t is at most
    ``MOST_VECTORS``.
    """

    field: int
    width: int

    def __post_init__(self) -> None:
        if not _prime(self.field):
            raise invalid(f"the field has {self.field} elements: give a prime, such as 7")
        if self.width < 2 or self.field**self.width > MOST_VECTORS:
            raise invalid(
                f"a space over {self.field} numbers has at most 2^24 vectors: choose a smaller "
                "field, or one with q^2 + q + 1 cells or more"
            )

    @staticmethod
    def of(field: int, k: int) -> Space:
        """The smallest space that has k points. Raises INVALID for another field than a prime, and
        for too many vectors.
        """
        return Space(field, _width(field, k) if _prime(field) else 2)

    @staticmethod
    def fits(field: int, k: int) -> bool:
        """Whether ``of`` has such a space."""
        return _prime(field) and field ** _width(field, k) <= MOST_VECTORS

    @property
    def vectors(self) -> int:
        """q^t."""
        return math.prod([self.field] * self.width)

    @property
    def points(self) -> int:
        """K = (q^t - 1) / (q - 1)."""
        return _points(self.field, self.width)

    @property
    def support(self) -> int:
        """Points of a hyperplane."""
        return _points(self.field, self.width - 1)

    @property
    def shared(self) -> int:
        """Points that two different hyperplanes share."""
        return _points(self.field, self.width - 2)

    def common(self, count: int) -> int:
        """Points that the hyperplanes of ``count`` points share, whose vectors are independent, or
        as many as there can be.
        """
        return _points(self.field, max(self.width - count, 0))

    @property
    def others(self) -> int:
        """Points outside a hyperplane: q^(t - 1)."""
        return math.prod([self.field] * (self.width - 1))

    def vector(self, point: Lane) -> Lane:
        """The vector of a point, by its number."""
        return point + 1 + (self.field - 2) * self._before(point)

    def _before(self, point: Lane) -> Lane:
        """How many points have their 1 further back than this one, by its number."""
        q = self.field
        return sum(
            (point >= _points(q, place)) * q ** (place - 1) for place in range(1, self.width)
        )

    def _leading(self, vector: Lane) -> Lane:
        """q^m, m the place of the first entry that is not 0."""
        return 1 + sum(
            (vector >= self.field**place) * (self.field - 1) * self.field ** (place - 1)
            for place in range(1, self.width)
        )

    def point(self, vector: Lane) -> Lane:
        """The number of the point on the line through 0 and a vector that is not 0."""
        q, unit = self.field, self._leading(vector)
        inverse = _power(vector // unit, q - 2, q)
        scaled = sum(vector // q**place % q * inverse % q * q**place for place in range(self.width))
        return scaled - 1 - (q - 2) * ((unit - 1) // (q - 1))

    def product(self, one: Lane, two: Lane) -> Lane:
        """<one, two> modulo q, of vectors."""
        q = self.field
        return sum((one // q**place % q) * (two // q**place % q) for place in range(self.width)) % q

    def solution(
        self, draws: Draws, cell: Lane, included: Lane, inside: Lane, outside: Lane
    ) -> Lane:
        """The number of a point in the hyperplane of point ``cell`` where ``included``, a coin, and
        else of one outside. ``inside`` < ``support`` and ``outside`` < ``others`` say which: each
        point has exactly one.

        The first entry of the cell's vector that is not 0, at place m, is 1. So t - 1 entries are
        free, and the one at m follows from <cell, y> = 0, or 1: of each line outside exactly one
        vector has the product 1. Inside the free entries are those of a point of one entry less.
        """
        q, of_cell = self.field, self.vector(cell)
        unit = self._leading(of_cell)
        free = draws.where(included, self.vector(inside), outside)
        low = free % unit  # the entries behind place m; before it the cell's are 0
        solved = ((included ^ True) * 1 - self.product(of_cell - unit, low)) % q
        return self.point(low + solved * unit + (free - low) * q)

    def sums(self, reported: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
        """float64[points], whole numbers: for every point the sum of ``reported``, float64[points]
        of whole numbers that add up to ``rows``, over its hyperplane.
        """
        q, every = self.field, np.arange(self.points, dtype=np.int64)
        spelt = self.vector(every)
        table = np.zeros(self.vectors)
        for factor in range(1, q):
            table[self._times(spelt, factor)] = reported
        transformed = np.fft.rfftn(table.reshape((q,) * self.width)).real
        # The transform is even, and only half of its last axis is made.
        last = spelt % q
        mirrored = np.where(last <= q // 2, spelt, self._times(spelt, q - 1))
        places = mirrored // q * (q // 2 + 1) + mirrored % q
        sums: NDArray[np.float64] = np.rint((transformed.reshape(-1)[places] + rows) / q)
        return sums

    def _times(self, vectors: NDArray[np.int64], factor: int) -> NDArray[np.int64]:
        q, scaled = self.field, np.zeros_like(vectors)
        for place in range(self.width):
            scaled += vectors // q**place % q * factor % q * q**place
        return scaled


def _points(field: int, width: int) -> int:
    return sum(math.prod([field] * place) for place in range(width))


def _width(field: int, k: int) -> int:
    width = 2
    while _points(field, width) < k:
        width += 1
    return width


def _prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, int(number**0.5) + 1))


def _power(base: Lane, exponent: int, modulus: int) -> Lane:
    """base^exponent modulo a number below 2^31, exponent >= 0."""
    result = base * 0 + 1
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base, exponent = base * base % modulus, exponent >> 1
    return result
