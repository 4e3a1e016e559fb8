"""Which of several sums can never be the largest: those below another one in convex order, whatever
epsilon and n are.

For an ordered pair of inputs (x, x') and positive w <= every P(. | z), one report adds L_e = a / w
- e b / w with probability w, for every output with weights a = P(y | x), b = P(y | x'), w
(``cells``). The divergence of n reports is E[(L_1 + ... + L_n)_+] / n. All L_e of one table have
the same mean, 1 - e. If E[(L - t)_+] <= E[(M - t)_+] for all t, then E[g(L)] <= E[g(M)] for every
convex g (L is below M in convex order: Shaked, Shanthikumar, "Stochastic Orders", 2007, section
3.A). Given all other terms, the positive part of the sum is a convex function of one of them; so
replacing the L_i by M_i one after the other never makes the expectation smaller. So a pair whose

    h(e, t) = sum_y (a - e b - t w)_+

is nowhere above that of another pair, for e in [1, r] (r the largest ratio; beyond it every
divergence is 0) and all t, need not be looked at: neither now nor at any other n or delta.

Both h are linear between the lines a = e b + t w in the plane of (e, t), and equal (to 0, or to 1 -
e - t) above and below all lines. So the difference is smallest where two lines meet, or where a
line meets an end of [1, r]. These points are as many as pairs of lines, and there everything is an
integer: with e = u2 / u1 and t = u3 / u1, the sum of (a u1 - b u2 - w u3)_+ at the cross product u
of two lines. No rounding, no tolerance: what is left out is proven to be below.

Direction: leaving a pair out is exact, and errs to no side. Tests compare with every hinge
function, and with the expectation itself at small sizes, in fractions
(tests/unit/accounting/numerics/test_convex_order.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from shoal.arrays import NDArray, np

Floats: TypeAlias = "NDArray[np.float64]"
# One output, or several with the same proportions: integer weights (a, b, w) of one scale, w > 0.
Line = tuple[int, int, int]
# Pairs with more lines are kept unlooked at: a comparison takes time with the third power of their
# number, 10 ms at 32.
_MOST_LINES = 32
# products of two such numbers, and sums of many, are floats
_MOST_FOR_FLOATS = 1 << 400
# where sums are looked at before they are compared: e = ratio^share, and of all t at which a line
# meets 0 there, those above such a share of them
_SHARES = tuple(i / 12 for i in range(13))


def undominated(sums: Sequence[tuple[Line, ...]], ratio: Fraction) -> list[int]:
    """Places of the sums that are left: each of the others is at or below one of these. In rising
    order.

    ``sums``: for each pair of inputs its lines, all of one total: the sums of all a, of all b and
    of all w are the same for all pairs, a line (0, 0, rest) making up for what w leaves out.
    ``ratio``: the largest a / b of any pair, above 1.
    """
    if max(map(len, sums)) > _MOST_LINES:
        return list(range(len(sums)))
    # A pair that is below another has the smaller variance at e = 1, so the largest are looked at
    # first.
    order = sorted(range(len(sums)), key=lambda at: -sum((a - b) ** 2 / w for a, b, w in sums[at]))
    kept: list[int] = []
    heights, error = _sampled(sums, ratio)
    least, most = heights - error, heights + error
    for at in order:
        candidates = np.flatnonzero((least[at] <= most[kept]).all(axis=1)) if kept else ()
        if not any(below(sums[at], sums[kept[other]], ratio) for other in candidates):
            kept.append(at)
    return sorted(kept)


def _sampled(sums: Sequence[tuple[Line, ...]], ratio: Fraction) -> tuple[Floats, Floats]:
    """h of every sum at some places, and the most that it may be wrong by: float64[sums, places]
    each. A sum that is above another one at one of them is not below it, which saves most of the
    exact comparisons; where no place tells, they are made.

    Places are floats, so exact ones. An end of [1, ratio] that is rounded outward is left out.
    """
    most = max(map(len, sums))
    if max(abs(number) for lines in sums for line in lines for number in line) > _MOST_FOR_FLOATS:
        return np.zeros((len(sums), 1)), np.zeros((len(sums), 1))
    every = np.zeros((len(sums), most, 3))  # a line of zeros adds nothing
    for at, lines in enumerate(sums):
        every[at, : len(lines)] = lines
    a, b, w = every[:, :, 0], every[:, :, 1], every[:, :, 2]
    heights, sizes = [], []
    for share in _SHARES:
        e = max(1.0, min(float(ratio) ** share, math.nextafter(float(ratio), 0.0)))
        ends = ((a - e * b) / np.where(w > 0.0, w, 1.0))[w > 0.0]
        for t in np.quantile(ends, _SHARES):
            heights.append(np.maximum(a - e * b - t * w, 0.0).sum(axis=1))
            sizes.append((a + e * b + abs(t) * w).sum(axis=1))
    # Each term is wrong by less than 6 roundings of its size, 2^-53 each, the sum by less than one
    # more for each line. Twice that is allowed.
    return np.stack(heights, axis=1), (8 + most) * 2.0**-52 * np.stack(sizes, axis=1)


def below(lines: tuple[Line, ...], other_lines: tuple[Line, ...], ratio: Fraction) -> bool:
    """Whether h of ``lines`` is at most h of ``other_lines`` for every e in [1, ratio] and every t.
    Exact.
    """
    high, low = ratio.numerator, ratio.denominator
    # What both have adds the same to both, everywhere: of the rest, too, all sums are the same. As
    # often as both have it: a line that one has twice and the other once is left once.
    own_count, other_count = Counter(lines), Counter(other_lines)
    lines, other_lines = (
        tuple((own_count - other_count).elements()),
        tuple((other_count - own_count).elements()),
    )
    all_lines = list(dict.fromkeys([*lines, *other_lines]))
    ends = [
        point
        for a, b, w in all_lines
        for point in ((w, w, a - b), (low * w, high * w, low * a - high * b))
    ]
    if _above(lines, other_lines, ends):
        return False
    meetings = _meetings(all_lines, low, high)
    return not _above(lines, other_lines, meetings)


def _above(lines: Sequence[Line], other_lines: Sequence[Line], points: Sequence[Line]) -> bool:
    """Whether h of ``lines`` is above h of ``other_lines`` at one of the points. Exact.

    Floats say so first, with what they may be wrong by: integers are asked where that leaves it
    open.
    """
    if not points:
        return False
    try:
        at = np.array(points, dtype=np.float64)
        large = float(np.abs(at).max()) > _MOST_FOR_FLOATS
    except OverflowError:
        large = True
    if (
        large
        or max(number for line in (*lines, *other_lines) for number in line) > _MOST_FOR_FLOATS
    ):
        return any(_height(lines, point) > _height(other_lines, point) for point in points)
    (own, own_size), (other, other_size) = _heights(lines, at), _heights(other_lines, at)
    # Each line's value is wrong by less than 6 roundings of its terms' size, 2^-53 each, a sum by
    # less than one more for each line. Twice that is allowed.
    roundings = 8 + len(lines) + len(other_lines)
    error, above = roundings * 2.0**-52 * (own_size + other_size), own - other
    if (above > error).any():
        return True
    return any(
        _height(lines, points[place]) > _height(other_lines, points[place])
        for place in np.flatnonzero(above >= -error).tolist()
    )


def _heights(lines: Sequence[Line], at: Floats) -> tuple[Floats, Floats]:
    """Per point: ``_height`` in floats, and the sum of the sizes of the terms it is made of."""
    signed = np.array(lines, dtype=np.float64).reshape(-1, 3) * (1.0, -1.0, -1.0)
    values = at @ signed.T
    sizes = np.abs(at) @ np.abs(signed).T
    return np.maximum(values, 0.0).sum(axis=1), sizes.sum(axis=1)


def _meetings(lines: Sequence[Line], low: int, high: int) -> list[Line]:
    """(u1, u2, u3), u1 > 0, with a u1 = b u2 + w u3 on both of two lines, for all two that meet at
    an e = u2 / u1 from 1 to high / low. One loop: a planner asks for a quarter of a million.
    """
    found: list[Line] = []
    for (a, b, w), (c, d, v) in combinations(lines, 2):
        # (a, -b, -w) x (c, -d, -v)
        u1, u2 = b * v - w * d, a * v - w * c
        if u1 < 0:
            if u2 <= u1 and low * u2 >= high * u1:
                found.append((-u1, -u2, a * d - b * c))
        elif u1 and u1 <= u2 and low * u2 <= high * u1:
            found.append((u1, u2, b * c - a * d))
    return found


def _height(lines: Sequence[Line], point: Line) -> int:
    """h at the point, times u1 > 0 and the weights' scale."""
    u1, u2, u3 = point
    return sum([value for a, b, w in lines if (value := a * u1 - b * u2 - w * u3) > 0])
