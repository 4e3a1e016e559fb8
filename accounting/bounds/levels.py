"""From a local curve to the law of one report's evidence, on finitely many levels: the sharper form
of ``bounds.approximate``.

**Statement.** In the setting and words of ``bounds.approximate``, for every q = e^-b < 1,

    delta(epsilon) <= E[(L_1 + ... + L_n)_+] / n + (1 + e) (n - 1) q D(b), L_i = (2 r - 2 e (1 - r))
    / q with probability q, r drawn from a law nu on [0, 1];  0 with probability 1 - q,

if nu has mean 1/2 and dominates, in convex order, the law of P / (P + Q) under M = (P + Q) / 2 for
every pair of answers.

*Proof.* Step 2 there, with P* = P and Q* = Q: all reports of the others are within total variation
(n - 1) q D(b) in all of laws that contain q M. Given the number m of draws from M, the victim's
among them, the victim stands at a uniformly random place; the density with respect to m draws of M
is the mean of P/M = 2 r, respectively Q/M = 2 (1 - r), which is the formula with the true law of r
(as in ``bounds.blanket``). (L_1 + ...)_+ is convex in each L, and L is linear in r: a larger
law in convex order only raises it. (In the words of Blackwell: (P, Q) is a post-processing of the
pair with evidence nu, and M of that pair's mean. So the step also holds for randomizers chosen
adaptively.) No term is lost to the victim's rare outputs: they are levels near 0 and 1.

*The law nu.* Mean 1/2 and c(t) = E[(r - t)_+] say everything about convex order. With o = t / (1 -
t) >= 1,

    c(t) = (1 - t) / 2 * sum (P - o Q)_+ <= (1 - t) / 2 * D(ln o),
    c(1 - t) = t - 1/2 + E[((1 - r) - t)_+] <= t - 1/2 + (1 - t) / 2 * D(ln o),

and c(0) = 1/2, c(1) = 0. So let C be the lower convex hull of these bounds at finitely many t: a
convex function above c at every t (c is convex and below the points), and the second derivative of
C is nu. All in exact fractions; D errs upward. Merging evidence between levels h apart (in ln o)
adds about h^2 / 6 to its variance: with ``_LEVELS`` of them below 1 % of epsilon.

**Checked** in tests/unit/accounting/bounds/test_levels.py, and end to end against every dataset of
a finely cut Gaussian (test_approximate.py beside it).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

from shoal.accounting.numerics.cells import Cell, CellSum
from shoal.accounting.numerics.hull import lower_hull
from shoal.approximate import LocalCurve

# nu: (r, mass) in ascending order of r, with exact total 1 and mean 1/2.
Evidence = tuple[tuple[Fraction, Fraction], ...]

_LEVELS = 40
_SAFE = 1e-12
_HALF = Fraction(1, 2)


def evidence(local: LocalCurve, reach: float, levels: int = _LEVELS) -> Evidence:
    """nu for levels up to ln o = ``reach`` in (0, 40]; the rest of D goes to 0 and 1.

    Why it errs to the safe side: values of D are rounded up, D at a smaller exponent stands for a
    larger one, and odds are rounded up. Each moves points of the hull upward, and a higher hull is
    a larger law in convex order. ``levels`` >= 1 sets how fine it is, and nothing else.
    """
    points: list[tuple[Fraction, Fraction]] = [(Fraction(0), _HALF), (Fraction(1), Fraction(0))]
    for step in range(levels + 1):
        at = reach * step / levels
        # D falls: its value at a smaller exponent bounds the one at ln o.
        odds = Fraction(math.exp(at) * (1.0 + _SAFE)) if step else Fraction(1)
        t, rest = odds / (odds + 1), 1 / (odds + 1)
        excess = rest / 2 * Fraction(local.delta_at(at))
        points.append((t, excess))
        if step:
            points.append((rest, t - _HALF + excess))
    hull = lower_hull(sorted(points))
    slopes = [Fraction(-1)]
    slopes += [(high - low) / (right - left) for (left, low), (right, high) in pairwise(hull)]
    slopes.append(Fraction(0))
    masses = [after - before for before, after in pairwise(slopes)]
    return tuple((r, mass) for (r, _), mass in zip(hull, masses, strict=True) if mass > 0)


def level_sum(law: Evidence, clone: Fraction, n: int) -> CellSum:
    """The sum of the statement for ``n`` honest reports, clone probability q = ``clone`` < 1 and
    evidence ``law``.
    """
    cells = [Cell(clone * mass, 2 * r / clone, 2 * (1 - r) / clone) for r, mass in law]
    return CellSum(n, (*cells, Cell(1 - clone, Fraction(0), Fraction(0))))
