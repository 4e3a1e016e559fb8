"""Tables of integers from real weights, apart from the code that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

WORDS = 1 << 64


def rounded(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Shares of 2^64: rounded down, and the words that are left go one each to the largest
    remainders. All shares are 1 or more.
    """
    total = sum(weights, Fraction(0))
    exact = [weight * WORDS / total for weight in weights]
    down = [share.numerator // share.denominator for share in exact]
    left = WORDS - sum(down)
    up = sorted(range(len(down)), key=lambda y: (down[y] - exact[y], y))[:left]
    assert min(down) >= 1
    return tuple(weight + (y in up) for y, weight in enumerate(down))


def middle(rows: Sequence[Sequence[Fraction]]) -> list[Fraction]:
    """Half of each of the middle rows; of the one there is where their number is odd."""
    lower, upper = rows[(len(rows) - 1) // 2], rows[len(rows) // 2]
    return [(one + two) / 2 for one, two in zip(lower, upper, strict=True)]
