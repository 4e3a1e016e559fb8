"""Walks of real datasets of k-ary responses: an oracle that shares no step with the sums of cells
that certify.

For others who all answer z the divergence is E[(L_1 + ... + L_n)_+] / n, L_i = (R(Y_i | x) - e
R(Y_i | x')) / R(Y_i | z), Y_i ~ R(z) (docs/ACCOUNTING.md, section 4), here written as one ``Walk``
each. Good to 1e-6 while epsilon0 is at most 8 or so.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.numerics.random_walk import Walk
from shoal.privacy import KaryLaw


def kary_datasets(law: KaryLaw, n: int) -> tuple[Walk, ...]:
    """All cases up to symmetry: the others answer a third value (k >= 3), x, or x'.

    Exchanging x and x' turns the last two into each other with P and Q exchanged: both directions
    are among the cases.
    """
    same, other = law.same, law.other
    ratio = law.max_ratio
    steep = ratio - 1 / ratio
    # Others answer x: L = 1 - e/E on x, 1 - e E on x', 1 - e elsewhere; c counts the reports on x
    # or x'.
    first = _near(law, n, rho=Fraction(same, same + other), slope=steep, slope_e=steep)
    # Others answer x': L = E - e on x, 1/E - e on x', 1 - e elsewhere.
    second = _near(law, n, rho=Fraction(other, same + other), slope=steep, slope_e=Fraction(0))
    return (_far(law, n), first, second) if law.k >= 3 else (first, second)


def _near(law: KaryLaw, n: int, rho: Fraction, slope: Fraction, slope_e: Fraction) -> Walk:
    """c says nothing (x and x' are equally likely to put the victim among x, x'), so Y = (e - 1) n
    is a constant.
    """
    pair = Fraction(law.same + law.other, law.total)
    return Walk(n=n, pair=pair, rho=rho, slope=slope, slope_e=slope_e, constant=Fraction(n))


def _far(law: KaryLaw, n: int) -> Walk:
    """Others answer z: L = E - e on x, 1 - e E on x', (1 - e)/E on z, 1 - e elsewhere; R counts the
    reports on z.

    With k = 3 every report outside x, x' is on z: R = n - c is no longer random.
    """
    ratio = law.max_ratio
    constant, per_pair, per_third = Fraction(n), (ratio - 1) / 2, 1 / ratio - 1
    third = Fraction(law.same, law.total - 2 * law.other)
    if third == 1:
        constant, per_pair, per_third, third = (
            constant + per_third * n,
            per_pair - per_third,
            Fraction(0),
            Fraction(0),
        )
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
