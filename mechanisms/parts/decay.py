"""Tables whose weights decay by one integer, and the search for that integer.

``powers`` makes the weights in integers alone. ``least_noise_of_rows`` is
``thresholds.least_noise`` for tables of many rows: it searches in weights that are not yet rounded,
of the rows that decide epsilon0, and looks at the rounded ones where that ends, at last at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

from shoal.mechanisms.parts.tables import row
from shoal.mechanisms.parts.thresholds import least_noise
from shoal.privacy import FiniteLaw, PureLaw, epsilon0_upper

# of a weight after the point, where weights are rounded down: far below the 2^-64 that a table
# keeps
BITS = 192

RowWeights = Callable[[int, Sequence[int]], list[list[int]]]
"""weights(noise, cells): of every output, for each of these cells: integers >= 0, each list in a
unit of its own.
"""


def powers(decay: int, count: int) -> list[int]:
    """decay^0, decay^1, ... to ``count`` of them, out of 2^BITS, for a decay out of 2^64: rounded
    down, each within ``count`` of exact.
    """
    return list(
        accumulate(range(count - 1), lambda power, _: power * decay >> 64, initial=1 << BITS)
    )


def least_noise_of_rows(weights: RowWeights, cells: int, highest: int, epsilon0: float) -> int:
    """The smallest noise t in [1, highest] for which the table of ``tables.row`` of all weights
    keeps epsilon0.

    A table of some rows never has a larger epsilon0 than that of all. So the smallest t for a few
    rows is a lower bound, and the answer as soon as all rows keep epsilon0 there; until then the
    two rows that do not are added to the few. Raises INVALID as ``least_noise`` does.
    """
    few = [0, cells - 1]
    while True:
        noise = _least(weights, few, highest, epsilon0)
        whole = [row(each) for each in weights(noise, range(cells))]
        law = FiniteLaw(tuple(whole))
        if epsilon0_upper(law) <= epsilon0:
            return noise
        ratio = law.max_ratio
        column = next(each for each in zip(*whole, strict=True) if max(each) == ratio * min(each))
        few = sorted({*few, column.index(max(column)), column.index(min(column))})


def _least(weights: RowWeights, few: list[int], highest: int, epsilon0: float) -> int:
    """The smallest noise for which the rounded rows of a few cells keep epsilon0, and with one step
    less do not.
    """

    def holds(noise: int) -> bool:
        return (
            epsilon0_upper(FiniteLaw(tuple(row(each) for each in weights(noise, few)))) <= epsilon0
        )

    near = least_noise(lambda noise: PureLaw(_ratio(weights(noise, few))), highest, epsilon0)
    low, high, step = near - 1, near, 1
    while high < highest and not holds(high):
        low, high, step = high, min(high + step, highest), 2 * step
    while low > 0 and holds(low):
        low, high, step = max(low - step, 0), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _ratio(rows: list[list[int]]) -> Fraction:
    """The largest ratio in a column, of the rows' shares. A weight of 0 counts as the smallest that
    there is.
    """
    totals = [sum(each) for each in rows]
    most = (1, 1)
    for column in zip(*rows, strict=True):
        # The share of a larger total is the smaller one: compared and divided as fractions, in
        # integers.
        best, least = (column[0], totals[0]), (column[0], totals[0])
        for pair in zip(column[1:], totals[1:], strict=True):
            if pair[0] * best[1] > best[0] * pair[1]:
                best = pair
            if pair[0] * least[1] < least[0] * pair[1]:
                least = pair
        ratio = (best[0] * least[1], max(least[0], 1) * best[1])
        if ratio[0] * most[1] > most[0] * ratio[1]:
            most = ratio
    return Fraction(*most)
