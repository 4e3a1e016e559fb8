"""Lower bounds: the exact divergence of real pairs of datasets, where everybody but the victim gives one same answer.

For others who all answer z, the histogram of the n reports has, with respect to n draws from R(z), the density
(1/n) sum_i R(y_i | x) / R(y_i | z): the victim stands at a uniformly random place. Hence the identity

    delta(epsilon) = E[(L_1 + ... + L_n)_+] / n,   L_i = (R(Y_i | x) - e^epsilon R(Y_i | x')) / R(Y_i | z),  Y_i ~ R(z).

No certificate, however clever, can be smaller than what one real dataset gives away.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np

from shoal.accounting.binomial import Floats
from shoal.accounting.walk import Walk
from shoal.privacy import FiniteLaw, KaryLaw

# At most this many merged views of a finite table are tried; each is a valid lower bound, more can only be tighter.
_MOST_VIEWS = 6
# Tables of at most this many inputs are searched over all pairs.
_SMALL_TABLE = 12


def kary_datasets(law: KaryLaw, n: int) -> tuple[Walk, ...]:
    """All cases up to symmetry: the others answer a third value (k >= 3), x, or x'.

    Exchanging x and x' turns the last two into each other with P and Q exchanged: both directions are among the cases.
    """
    same, other = law.same, law.other
    ratio = law.max_ratio
    steep = ratio - 1 / ratio
    # Others answer x: L = 1 - e/E on x, 1 - e E on x', 1 - e elsewhere; c counts the reports on x or x'.
    first = _near(law, n, rho=Fraction(same, same + other), slope=steep, slope_e=steep)
    # Others answer x': L = E - e on x, 1/E - e on x', 1 - e elsewhere.
    second = _near(law, n, rho=Fraction(other, same + other), slope=steep, slope_e=Fraction(0))
    return (_far(law, n), first, second) if law.k >= 3 else (first, second)


def _near(law: KaryLaw, n: int, rho: Fraction, slope: Fraction, slope_e: Fraction) -> Walk:
    """c says nothing (x and x' are equally likely to put the victim among x, x'), so Y = (e - 1) n is a constant."""
    pair = Fraction(law.same + law.other, law.total)
    return Walk(n=n, pair=pair, rho=rho, slope=slope, slope_e=slope_e, constant=Fraction(n))


def _far(law: KaryLaw, n: int) -> Walk:
    """Others answer z: L = E - e on x, 1 - e E on x', (1 - e)/E on z, 1 - e elsewhere; R counts the reports on z.

    With k = 3 every report outside x, x' is on z: R = n - c is no longer random.
    """
    ratio = law.max_ratio
    constant, per_pair, per_third = Fraction(n), (ratio - 1) / 2, 1 / ratio - 1
    third = Fraction(law.same, law.total - 2 * law.other)
    if third == 1:
        constant, per_pair, per_third, third = constant + per_third * n, per_pair - per_third, Fraction(0), Fraction(0)
    return Walk(
        n=n,
        pair=Fraction(2 * law.other, law.total),
        rho=Fraction(1, 2),
        slope=2 * (ratio - 1),
        slope_e=ratio - 1,
        third=third,
        constant=constant,
        per_pair=per_pair,
        per_third=per_third,
    )


def finite_datasets(law: FiniteLaw, n: int) -> tuple[Walk, ...]:
    """Lower bounds of a finite table: outputs are merged into three cells, which is post-processing and so only loses.

    For ordered pairs of inputs x, x' (all of a small table, the extremes of every output of a larger one) the cells are
    the outputs that speak most for x, those that speak most for x', and the rest; the others all answer one input z. The
    most promising ``_MOST_VIEWS``, by the information of one report, are kept: any choice is a valid lower bound.
    """
    rows = sorted(set(law.rows))
    table = np.array([[float(Fraction(weight, law.total)) for weight in row] for row in rows])
    scored: list[tuple[float, int, int, int, list[int]]] = []
    for one, two in _pairs(table):
        for cells in _views(rows[one], rows[two]):
            merged = table @ np.eye(3)[cells]
            difference = (merged[one] - merged[two]) ** 2
            information = np.divide(difference, merged, out=np.zeros_like(merged), where=merged > 0.0).sum(axis=1)
            scored.extend((float(score), one, two, z, cells) for z, score in enumerate(information))
    scored.sort(key=lambda item: -item[0])
    return tuple(
        _view(_gather(rows[one], cells), _gather(rows[two], cells), _gather(rows[z], cells), law.total, n)
        for _, one, two, z, cells in scored[:_MOST_VIEWS]
    )


def _pairs(table: Floats) -> list[tuple[int, int]]:
    """Ordered pairs of inputs worth trying."""
    if len(table) <= _SMALL_TABLE:
        return list(permutations(range(len(table)), 2))
    high, low = table.argmax(axis=0), table.argmin(axis=0)
    order = np.argsort(-(table.max(axis=0) / table.min(axis=0)), kind="stable")[:_SMALL_TABLE]
    pairs = [(int(high[y]), int(low[y])) for y in order]
    return list(dict.fromkeys([pair for pair in pairs if pair[0] != pair[1]] + [(b, a) for a, b in pairs if a != b]))


def _views(one: Sequence[int], two: Sequence[int]) -> list[list[int]]:
    """Ways of sending every output to cell 0 (speaks for x), 1 (speaks for x') or 2 (the rest)."""
    ratios = [Fraction(a, b) for a, b in zip(one, two, strict=True)]
    top, bottom = max(ratios), min(ratios)
    views = [[0 if r == top else 1 if r == bottom else 2 for r in ratios], [0 if r > 1 else 1 if r < 1 else 2 for r in ratios]]
    return views if views[0] != views[1] else views[:1]


def _gather(row: Sequence[int], cells: Sequence[int]) -> tuple[int, int, int]:
    totals = [0, 0, 0]
    for weight, cell in zip(row, cells, strict=True):
        totals[cell] += weight
    return totals[0], totals[1], totals[2]


def _view(one: tuple[int, int, int], two: tuple[int, int, int], third: tuple[int, int, int], total: int, n: int) -> Walk:
    """The identity for three cells. X = alpha (N - rho c) + c (A_pair - e B_pair) + (n - c) (A_rest - e B_rest), L's averaged."""
    a, b, z = one, two, third
    pair = z[0] + z[1]
    rho = Fraction(z[0], pair)
    # alpha = (a0 - e b0) / z0 - (a1 - e b1) / z1 = slope + (e - 1) slope_e.
    slope_e = Fraction(b[1], z[1]) - Fraction(b[0], z[0])
    slope = Fraction(a[0], z[0]) - Fraction(a[1], z[1]) + slope_e
    a_pair, b_pair = Fraction(a[0] + a[1], pair), Fraction(b[0] + b[1], pair)
    a_rest, b_rest = (Fraction(a[2], z[2]), Fraction(b[2], z[2])) if z[2] else (Fraction(0), Fraction(0))
    # Y = e (c B_pair + (n - c) B_rest) - (c A_pair + (n - c) A_rest).
    return Walk(
        n=n,
        pair=Fraction(pair, total),
        rho=rho,
        slope=slope,
        slope_e=slope_e,
        constant=n * b_rest,
        per_pair=b_pair - b_rest,
        shift=n * (b_rest - a_rest),
        shift_pair=(b_pair - b_rest) - (a_pair - a_rest),
    )
