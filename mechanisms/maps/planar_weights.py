"""The weights of ``planar``: how likely each cell of a map is reported in the place of another, in
integers alone, a row at a time.

**A draw that may leave the map.** Around the map lie ``border`` more cells on every side. Of the
true cell x a cell z of this larger grid is drawn with P(z | x) = a^d(x, z) / Z(x), d the distance
of their centres in millimetres, rounded down, a = decay / 2^64; and what lies beside the map is
moved to the nearest row and column of it: that is post-processing. With border = 0 nothing leaves
the map.

Why a border. For a pair x, x' the triangle inequality gives, of every output y,

    P(y | x) / P(y | x') <= a^-d(x, x') Z(x') / Z(x),

and Z falls towards the edges of the grid that is drawn from: by up to a^-d(x, x') again, so that
what is drawn on the map alone promises up to twice as much per kilometre as the decay says. On an
endless grid Z is the same everywhere, and the promise is the decay's. A border of finite width is
between. None of this is believed: what is promised is read off the integers of all rows.

**Elsewhere** is the last cell. With B the table of the map, E the largest ratio in the column of
its corner, and M the sum over y of B(y | y),

    P(elsewhere | elsewhere) = q E,     P(y | elsewhere) = (1 - q E) B(y | y) / M,
    P(elsewhere | x) = q,               P(y | x) = (1 - q) B(y | x),        q = (E - M) / (E^2 - M).

Then P(elsewhere | .) has the ratio E, and so has every other column with this row in it: (1 - q) M
= E (1 - q E). So being elsewhere, or without an answer, is hidden as well as two opposite corners
of the map are from one another, and costs no more. M < E, as the largest entries of all columns are
at most E times those of one row.

**Sums.** The weight of an output is a sum over a rectangle of the larger grid, which differences of
sums from a corner give ("summed-area table": Crow, "Summed-area tables for texture mapping",
SIGGRAPH 1984), out of 2^192. A row is of integers out of 2^64: each share rounded down, or 1, and
what is left goes to the true cell. So the table is its own mirror image both ways, as the map is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from shoal.mechanisms.parts.decay import BITS
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.questions.plane import Plane

_ONE = 1 << BITS


@dataclass(frozen=True, slots=True)
class PlaneWeights:
    """``border`` >= 0 cells; 1 <= ``decay`` < 2^64. Made once, rows follow quickly."""

    plane: Plane
    border: int
    decay: int
    _sums: list[list[int]] = field(init=False, repr=False, compare=False)
    _elsewhere: list[tuple[int, int, list[int]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", self._summed())
        object.__setattr__(self, "_elsewhere", [])

    def row(self, cell: int) -> tuple[int, ...]:
        """int[cells], 1 or more each, of sum 2^64: how likely each is reported by a device in
        ``cell``. The last cell and output is elsewhere.
        """
        chance, stay, own = self._last()
        if cell == self.plane.cells:
            return _rounded(own, stay, cell)
        return _rounded(self.on_map(cell), chance, cell)

    def on_map(self, cell: int) -> list[int]:
        """Integers >= 0, one per cell of the map: of the draw that is moved to the map, in a unit
        of their own, for a cell of the map.
        """
        plane = self.plane
        row, column = plane.place(cell)
        up, across = self._parts(row, plane.rows), self._parts(column, plane.columns)
        sums = self._sums
        return [
            sums[top][right] - sums[bottom][right] - sums[top][left] + sums[bottom][left]
            for bottom, top in up
            for left, right in across
        ]

    def _parts(self, at: int, count: int) -> list[tuple[int, int]]:
        """For a true row ``at`` of ``count``, of each reported row the ends of its part of the
        larger grid, as places in the sums; columns likewise.
        """
        border = self.border
        first = count - 1 - at  # the southernmost cell of the larger grid, where it is in the sums
        inner = [(first + border + i, first + border + i + 1) for i in range(count)]
        inner[0] = (first, inner[0][1])
        inner[-1] = (inner[-1][0], first + count + 2 * border)
        return inner

    def _summed(self) -> list[list[int]]:
        """sums[i][j]: of a^d over the first i rows and j columns of all offsets that a draw can
        have, from the south-western one on.
        """
        plane, border = self.plane, self.border
        tall, wide = plane.rows - 1 + border, plane.columns - 1 + border
        power = _powers(self.decay)
        quarter = [[power(plane.apart(i, j)) for j in range(wide + 1)] for i in range(tall + 1)]
        sums = [[0] * (2 * wide + 2)]
        for i in range(-tall, tall + 1):
            near = quarter[abs(i)]
            line = accumulate((near[abs(j)] for j in range(-wide, wide + 1)), initial=0)
            sums.append([one + before for one, before in zip(line, sums[-1], strict=True)])
        return sums

    def _last(self) -> tuple[int, int, list[int]]:
        """(q, q E, B(y | y) of every y), out of 2^192, as the module says."""
        if not self._elsewhere:
            plane = self.plane
            corner, own = [], []
            for cell in range(plane.cells):
                first, same, total = self._ends(cell)
                corner.append((first << BITS) // total)
                own.append((same << BITS) // total)
            self._elsewhere.append((*_elsewhere(max(corner), min(corner), sum(own)), own))
        return self._elsewhere[0]

    def _ends(self, cell: int) -> tuple[int, int, int]:
        """Of ``on_map``, without the others: the first weight, the cell's own, and the sum."""
        plane, sums = self.plane, self._sums
        row, column = plane.place(cell)
        up, across = self._parts(row, plane.rows), self._parts(column, plane.columns)

        def part(rows: tuple[int, int], columns: tuple[int, int]) -> int:
            (bottom, top), (left, right) = rows, columns
            return sums[top][right] - sums[bottom][right] - sums[top][left] + sums[bottom][left]

        whole = part((up[0][0], up[-1][1]), (across[0][0], across[-1][1]))
        return part(up[0], across[0]), part(up[row], across[column]), whole


def _rounded(weights: Sequence[int], last: int, true: int) -> tuple[int, ...]:
    """Integers of sum 2^64: ``last`` out of 2^192 for the last output, the rest in proportion to
    ``weights``; rounded down, or 1, but for the output ``true``, which has what is left.
    """
    rest, total = _ONE - last, sum(weights) << (BITS - 64)
    shares = [max(1, each * rest // total) for each in weights]
    shares.append(max(1, last >> (BITS - 64)))
    shares[true] += WORDS - sum(shares)
    return tuple(shares)


def _elsewhere(most: int, least: int, kept: int) -> tuple[int, int]:
    """(q, q E) out of 2^192, for E = ``most`` / ``least`` and M = ``kept`` / 2^192; both are the
    same share of all cells where reports tell nothing.
    """
    above, below = most * _ONE - kept * least, most * most * _ONE - kept * least * least
    if above <= 0 or below <= 0 or least == 0:
        return (_ONE // 4,) * 2
    chance = _ONE * least * above // below
    return max(1, chance), min(_ONE - 1, max(1, chance * most // least))


def _powers(decay: int) -> Callable[[int], int]:
    """decay^exponent out of 2^BITS, for a decay out of 2^64 and exponents >= 0: by the squares
    behind the exponent's bits, from the lowest on, each product rounded down.
    """
    squares = [decay << (BITS - 64)]

    def power(exponent: int) -> int:
        value, at = _ONE, 0
        while exponent:
            if at == len(squares):
                squares.append(squares[-1] * squares[-1] >> BITS)
            if exponent & 1:
                value = value * squares[at] >> BITS
            exponent >>= 1
            at += 1
        return value

    return power
