"""Upper bounds by clones (Feldman, McMillan, Talwar, "Hiding Among the Clones", FOCS 2021; arXiv
2012.12803, Theorem 3.1).

For an epsilon0-LDP randomizer R and the victim's two answers x, x' there are distributions Q0, Q1
with, for E = e^epsilon0,

    R(x)  = E/(E+1) Q0 + 1/(E+1) Q1,    R(x') = 1/(E+1) Q0 + E/(E+1) Q1,
    R(z) >= q (Q0 + Q1) / 2 for every other z,

with q = e^-epsilon0. So each of the other n - 1 reports is, with probability q, a fair coin between
Q0 and Q1: a clone of the victim. With C ~ Bin(n - 1, q), A ~ Bin(C, 1/2) and a biased bit B ~
Bernoulli(E/(E+1)) the two views are post-processings of (A + B, C - A + 1 - B) and (A + 1 - B, C -
A + B); swapping the coordinates swaps the two, so both directions have one divergence. It holds for
adaptively chosen randomizers too.

Grouped by the number of symbols C + 1 that divergence is E[(X)_+] / n for a ``Walk`` with c ~
Bin(n, q): with q = 2/(E+1) it would be the blanket of binary randomized response. The theorem that
allows q = 2/(E+1) for *every* epsilon0-LDP randomizer ("stronger clones", Feldman, McMillan, Talwar
2022, arXiv 2208.04591) has a published erratum: it is not used. For one fixed randomizer, not
chosen adaptively, ``bounds.blanket`` has another proof of the same number: ``certify`` takes that,
and this module's ``clones`` stand beside it in ``compare``.

``table_clones`` is the same proof with the constants read off a finite output table instead of
bounded from epsilon0: the only properties used are the three displayed ones. Q0 + Q1 = R(x) +
R(x'), hence q = min_{z, y} 2 R(y | z) / (R(y | x) + R(y | x')).

**What is bounded.** delta(epsilon) from above, for every dataset of the others. It bounds from
above because the numbers of symbols tell more than the reports: the view is made from them by
post-processing. All honest devices have to run the same randomizer, which may be chosen adaptively,
by place, but never by device.

**Checked** by enumeration of both views of the theorem in exact fractions, pair by pair over all
datasets of finite tables at small n (tests/unit/accounting/bounds/test_exact.py). Planted there:
the withdrawn clone probability, which fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

from shoal.accounting.numerics.random_walk import Walk
from shoal.arrays import np
from shoal.privacy import FiniteLaw, KaryLaw, SymmetricLaw

# More different pairs than this are replaced by one that is worse than each of them.
_MOST_PAIRS = 6
# Larger tables (entries times inputs) are bounded by their largest ratio alone.
_LARGE_TABLE = 400_000
_FEW = 8  # inputs, whose pairs are all compared exactly
_MOST_FOR_FLOATS = 1 << 400
_DOUBT = 1e-12  # relative: a quotient of floats, of sums of two, is good to less than 1e-15


def clones(ratio: Fraction, n: int) -> Walk:
    """The clones bound for every randomizer with likelihood ratios of at most ``ratio`` (> 1) =
    e^epsilon0.

    Direction: upper bound on delta(epsilon). No other property of the randomizer is used. ``n`` >=
    1 honest reports.
    """
    return _clones(ratio, 1 / ratio, n)


def kary_clones(law: KaryLaw, n: int) -> Walk:
    """``table_clones`` of k-ary randomized response: q = 2 other / (same + other) = 2/(E+1),
    whatever k is.
    """
    return _clones(law.max_ratio, Fraction(2 * law.other, law.same + law.other), n)


def table_clones(law: FiniteLaw, n: int) -> tuple[Walk, ...]:
    """Clones bounds of a finite randomizer, one for each pair of inputs that no other pair
    dominates: take the worst.

    Where two numbers stand for a pair (ratio, clone probability), a pair with a larger ratio *and*
    fewer clones is the worse one, so only pairs that no other is worse than are kept. If more than
    six are left, one pair made of the largest ratio and the fewest clones replaces them; and so
    does e^-epsilon0 for tables too large to search. Both are sound, and looser.
    """
    return tuple(_clones(ratio, clone, n) for ratio, clone in _worst_pairs(law))


def symmetric_clones(law: SymmetricLaw, n: int) -> Walk:
    """``table_clones`` of a symmetric law: one pair stands for all, and its least weights bound
    every other input's from below.
    """
    clone = min(
        Fraction(2 * low, a + b) for low, a, b in zip(law.least, law.one, law.two, strict=True)
    )
    return _clones(law.max_ratio, clone, n)


def pair_constants(
    law: FiniteLaw, row_x: tuple[int, ...], row_x2: tuple[int, ...]
) -> tuple[Fraction, Fraction]:
    """(E, q) of the module's text for one pair of rows of ``law``: their largest ratio either way,
    and the clone probability.
    """
    return _constants(_least(law), row_x, row_x2)


def _least(law: FiniteLaw) -> list[int]:
    """Of each output, the least weight that any input gives it."""
    return [min(column) for column in zip(*law.rows, strict=True)]


def _constants(
    least: list[int], row_x: tuple[int, ...], row_x2: tuple[int, ...]
) -> tuple[Fraction, Fraction]:
    """``pair_constants``. Fractions are compared by cross-multiplying: reducing each of them takes
    ten times as long, and a planner asks for thousands of pairs a hundred times over.
    """
    # the largest ratio so far, over / under; the least clone probability, 2 low / both (none yet)
    over, under, low, both = (
        1,
        1,
        1,
        0,
    )
    for weight, a, b in zip(least, row_x, row_x2, strict=True):
        most, lesser = (a, b) if a >= b else (b, a)
        if most * under > over * lesser:
            over, under = most, lesser
        if weight * both < low * (a + b):
            low, both = weight, a + b
    return Fraction(over, under), Fraction(2 * low, both)


def _clones(ratio: Fraction, clone: Fraction, n: int) -> Walk:
    """The walk of the module's text with ratio E = ``ratio`` and clone probability q = ``clone``.
    Exact.
    """
    # L = 2 (E - e) / (E + 1) on Q0 and -2 (e E - 1) / (E + 1) on Q1; the sum of L's is divided by
    # the clone probability.
    slope = 2 * (ratio - 1) / (ratio + 1) / clone
    return Walk(
        n=n, pair=clone, rho=Fraction(1, 2), slope=2 * slope, slope_e=slope, per_pair=1 / clone
    )


def _worse_pairs(
    inputs: list[tuple[int, ...]], least: list[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs but those that floats show another one to be worse than, in both numbers and by far
    more than their rounding: the worst of all are among them.
    """
    if len(inputs) < _FEW or max(map(max, inputs)) > _MOST_FOR_FLOATS:
        yield from combinations(inputs, 2)
        return
    rows, low = np.array(inputs, dtype=np.float64), np.array(least, dtype=np.float64)
    ratios, clones_of = [], []
    for x, row in enumerate(rows[:-1]):
        quotients = row / rows[x + 1 :]
        ratios.append(np.maximum(quotients, 1.0 / quotients).max(axis=1))
        clones_of.append((low / (row + rows[x + 1 :])).min(axis=1))
    ratio, clone = np.concatenate(ratios), np.concatenate(clones_of)
    order = np.argsort(-ratio)
    fewest = np.minimum.accumulate(clone[order])
    # so many pairs have a larger ratio; and the fewest clones of these
    larger = np.searchsorted(-ratio[order], -ratio * (1.0 + _DOUBT))
    below = np.append(math.inf, fewest)[larger]
    kept = below >= clone * (1.0 - _DOUBT)
    for keep, pair in zip(kept.tolist(), combinations(inputs, 2), strict=True):
        if keep:
            yield pair


def _worst_pairs(law: FiniteLaw) -> list[tuple[Fraction, Fraction]]:
    """(ratio, clone probability) of the undominated pairs of inputs. A larger ratio and fewer
    clones are both worse.
    """
    inputs = sorted(set(law.rows))
    if len(inputs) ** 2 * len(inputs[0]) > _LARGE_TABLE:
        return [(law.max_ratio, 1 / law.max_ratio)]
    least = _least(law)
    constants = {_constants(least, row_x, row_x2) for row_x, row_x2 in _worse_pairs(inputs, least)}
    worst: list[tuple[Fraction, Fraction]] = []
    for ratio, clone in sorted(constants, key=lambda pair: (-pair[0], pair[1])):
        if not worst or clone < worst[-1][1]:
            worst.append((ratio, clone))
    if len(worst) > _MOST_PAIRS:
        return [(worst[0][0], worst[-1][1])]
    return worst
