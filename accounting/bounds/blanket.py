"""Upper bounds from the privacy blanket (Balle, Bell, Gascon, Nissim, "The Privacy Blanket of the
Shuffle Model", CRYPTO 2019).

Every randomizer with output law P(. | x) can be split: with probability gamma = sum_y min_x P(y |
x) a report does not look at its input and is drawn from the *blanket* omega(y) = min_x P(y | x) /
gamma. Tell the adversary which of the others' reports did look, and what they were: only the
blanket reports and the victim's own remain mixed. Lemma 5.3 there:

    delta(epsilon) <= E[(L_1 + ... + L_M)_+] / (gamma n),   M ~ Bin(n, gamma),
    L_i = (P(Y_i | x) - e^epsilon P(Y_i | x')) / omega(Y_i),   Y_i ~ omega,

for non-adaptive users who all run the same randomizer. E[L_i] = 1 - e^epsilon, which is where
``Walk``'s threshold comes from.

**What differs from the paper.** There the expectation is bounded further, by Hoeffding's or
Bennett's inequality. Here it is evaluated in full (``numerics.curve``), which is never larger;
``reference.published`` has the paper's forms beside it. The lemma bounds from above because it
gives the adversary more than the view: all reports of others that are not blanket.

**Direction.** One pair of answers stands for all of k-ary randomized response, and both directions:
exchanging x and x' maps the law onto itself.

**Checked** by enumeration of the lemma's expectation in exact fractions, and against every dataset
at small n (tests/unit/accounting/bounds/test_exact.py).
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.numerics.random_walk import Walk
from shoal.privacy import KaryLaw


def kary_blanket(law: KaryLaw, n: int) -> Walk:
    """The exact blanket expectation of k-ary randomized response, for every pair of answers at once
    (they are symmetric).

    The blanket is uniform: gamma = k other / total. c counts blanket reports on x or x', N those on
    x, R those elsewhere; L = -(e^epsilon - 1) gamma on every report, plus (1 - gamma) k on x, minus
    (1 - gamma) k e^epsilon on x'. Divided by gamma.

    Direction: the walk's expectation is an upper bound on delta(epsilon) for every dataset. The
    coefficients are exact fractions. ``law.k`` >= 2, ``n`` >= 1 honest reports.
    """
    ratio = law.max_ratio
    pair = Fraction(2 * law.other, law.total)
    rest = Fraction((law.k - 2) * law.other, law.total - 2 * law.other)
    return Walk(
        n=n,
        pair=pair,
        rho=Fraction(1, 2),
        slope=2 * (ratio - 1),
        slope_e=ratio - 1,
        third=rest,
        per_pair=(ratio + 1) / 2,
        per_third=Fraction(1),
    )
