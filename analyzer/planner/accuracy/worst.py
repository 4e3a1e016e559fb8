"""The count that errs most, wherever the devices are: nothing is drawn.

The variance of a cell's count is linear in the numbers of devices per cell, or a concave parabola
in the number of its own (where devices look at a few cells each, and the estimate divides by how
many did). So it is largest where none or as many as there may be are in the cell that is counted,
or at the parabola's top. The others are then in whichever other cell adds most to it.
"""

from __future__ import annotations

import math

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism

ALL_TRIED = 32  # cells: of more only a few are tried, where a mechanism treats them alike
_FEW = 6
_SAME = 1e-6  # cells whose errors differ by less are alike


def worst_count(mechanism: Mechanism, cells: int, n: int, most: float = 1.0) -> float:
    """The largest standard error of any cell's count, in devices, over all ways in which ``n``
    devices can answer, at most the share ``most`` of them in one cell. Where cells differ, an upper
    bound of it. Raises INVALID where it is not known: for a mechanism that treats cells
    differently, if there are more than 32.
    """
    tried = list(range(cells)) if cells <= ALL_TRIED else _few(cells)
    # squares[i, j]: of the count of cell j, with all devices in the cell tried[i]
    squares = np.array([_squares(mechanism, _placed(cells, n, at)) for at in tried])
    places = np.arange(len(tried))
    own = squares[places, tried]
    away = squares.copy()
    away[places, tried] = -math.inf
    if cells > ALL_TRIED and not (_alike(own) and _alike(away[away >= 0.0])):
        raise ShoalError(
            Kind.INVALID,
            f"its counts err differently in different cells: with more than {ALL_TRIED} of them "
            "the worst is not looked for",
        )
    others = away.max(axis=0)[tried]
    ends = np.maximum(others, most * own + (1.0 - most) * others)
    return math.sqrt(max(float(ends.max()), _top(mechanism, cells, n, most)))


def _few(cells: int) -> list[int]:
    return sorted({round(i * (cells - 1) / (_FEW - 1)) for i in range(_FEW)} | {1, 2})


def _placed(cells: int, n: int, at: int) -> NDArray[np.int64]:
    counts = np.zeros(cells, dtype=np.int64)
    counts[at] = n
    return counts


def _squares(mechanism: Mechanism, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(mechanism.expected_stderr(counts) ** 2)


def _alike(values: NDArray[np.float64]) -> bool:
    return float(values.max()) <= float(values.min()) * (1.0 + _SAME)


def _top(mechanism: Mechanism, cells: int, n: int, most: float) -> float:
    """The largest square of the first cell's count at a share of 0 to ``most`` in it, the rest in
    the last one: of the parabola through both ends and the middle.
    """
    half = _placed(cells, n - n // 2, cells - 1)
    half[0] += n // 2
    none, every = _placed(cells, n, cells - 1), _placed(cells, n, 0)
    low, high, middle = (float(_squares(mechanism, each)[0]) for each in (none, every, half))
    # square(s) = low + slope s - bend s^2, through the share that the half really is
    at = (n // 2) / n
    bend = (middle - low - at * (high - low)) / (at * (1.0 - at))
    slope = high - low + bend
    best = most if bend <= 0.0 else min(max(slope / (2.0 * bend), 0.0), most)
    return max(low, low + slope * best - bend * best**2)
