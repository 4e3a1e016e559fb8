"""A Gaussian's report cut into cells: a table that is a post-processing of it, for lower bounds.

Of the values 0 and m (in standard deviations) a report says which of some intervals it lies in.
The intervals are mirror images about m / 2, where the likelihood ratio is 1; around it lies one
that is dropped. To the right the report is likelier under m, the more so the further out.

*Rounding.* The probabilities (p, q) of a cell to the right, under 0 and under m, are not floats. In
the table p is rounded up and q down, and mirrored to the left; what is missing to 1, the same
under both, is one cell that says nothing. *Claim*: whoever holds the true report can draw one from
this table. Proof: of two pairs of laws the first is a post-processing of the second if and only
if sum (P' - t Q')_+ <= sum (P - t Q)_+ for all t >= 0 (Blackwell 1951). For t >= 1 only cells on
the left count in the table, those with P' > Q', and there P' - t Q' is at most that of the true
cell, since P' was rounded down and Q' up. For t < 1 write (P - t Q)_+ = P - t Q + (t Q - P)_+: the
first two sum to 1 - t for both pairs, and the last is the case above with the two values exchanged.
So what is refuted for the table's reports is refuted for the true ones.

**Checked** against the Gaussian's own divergence in 50 digits, cell by cell and all together
(tests/unit/accounting/bounds/test_gaussian_cells.py).
"""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.approximate import GaussianLaw, lower_phi, upper_phi
from shoal.privacy import FiniteLaw

_CELLS = 14  # on either side
_MIDDLE = 0.02  # half the width of the cell that is dropped
_FAR = 7.0  # beyond the further value, in standard deviations
_TELLING = 16.0  # largest logarithm of a ratio that cells are cut for, as in ``routes.STEEP``
_LARGEST_SHIFT = 4.0  # beyond, one threshold says nearly all
_WEIGHTS = 1 << 62
_ULP = 4.5e-16


def gaussian_table(law: GaussianLaw) -> FiniteLaw | None:
    """Rows under the values 0 and m, as in the module's text; None where m is too large for it, or
    so small that no cell is left. m is rounded down: two values at a smaller distance are real.
    """
    m = math.nextafter(law.sensitivity / law.sigma, 0.0)
    if m > _LARGEST_SHIFT:
        return None
    last = min(m / 2.0 + _FAR, _TELLING / m)
    edges = [_MIDDLE + (last - _MIDDLE) * at / _CELLS for at in range(_CELLS)]
    cells: list[tuple[int, int]] = []
    for near, far in zip(edges, [*edges[1:], math.inf], strict=True):
        p = math.ceil(Fraction(_above(near + m / 2.0, far + m / 2.0)) * _WEIGHTS)
        q = math.floor(Fraction(_below(near - m / 2.0, far - m / 2.0)) * _WEIGHTS)
        if 0 < p < q:
            cells.append((p, q))
    idle = _WEIGHTS - sum(p + q for p, q in cells)
    if not cells or idle < 1:
        return None
    right, left = [p for p, _ in cells], [q for _, q in cells]
    return FiniteLaw(((*right, *left, idle), (*left, *right, idle)))


def _slack(near: float) -> float:
    """Edges are sums of two floats: at most so far off."""
    return 4.0 * _ULP * (1.0 + abs(near))


def _above(near: float, far: float) -> float:
    """P(near < N(0, 1) < far), rounded up; near > 0."""
    return math.nextafter(
        upper_phi(-near, _slack(near)) - (lower_phi(-far, _slack(far)) if far < math.inf else 0.0),
        math.inf,
    )


def _below(near: float, far: float) -> float:
    """P(near < N(0, 1) < far), rounded down."""
    if far == math.inf:
        return lower_phi(-near, _slack(near))
    if near > 0.0:  # of two small tails the difference is exact enough
        return math.nextafter(
            lower_phi(-near, _slack(near)) - upper_phi(-far, _slack(far)), -math.inf
        )
    return math.nextafter(lower_phi(far, _slack(far)) - upper_phi(near, _slack(near)), -math.inf)
