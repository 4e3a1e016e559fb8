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

**Any randomizer of one ratio** (``pure_blanket``). *Theorem.* If all honest devices run one
randomizer R, fixed beforehand, whose ratios are at most E, then its divergence is at most the
blanket's bound of binary randomized response of ratio E.

*Proof.* Fix the victim's answers and write p, q for the weights of an output y under them. Every
R(z)(y) is at least w = max(p, q) / E, so the lemma holds with w for omega (it asks for no more:
``numerics.cells``). By the ratio alpha = (E p - q) / (E^2 - 1) and beta = (E q - p) / (E^2 - 1) are
not negative, p = E alpha + beta, q = alpha + E beta, and either sums to 1 / (E + 1) over all y. In
these words w = alpha + beta / E if p >= q (that is, alpha >= beta), else beta + alpha / E. Binary
response has L = E - e with probability 1/(E+1), 1 - e E with 1/(E+1), else 0. It is enough that,
for 1 <= e <= E and every t, E[(L - t)_+] of R is at most that of binary response: increasing convex
order is kept by sums of independent terms. Output by output, with what w leaves of alpha + beta
added to the zeros, this is

    (p - e q - t w)_+ + (alpha + beta - w) (-t)_+  <=  alpha (E - e - t)_+ + beta (1 - e E - t)_+ .

t >= 0: if p < q the left side is 0. Else p - e q = alpha (E - e) + beta (1 - e E) <= alpha (E - e)
and w >= alpha. t = -s < 0: where p - e q + s w >= 0, the left side is alpha (E - e + s) + beta (1 -
e E + s). Elsewhere it is s min(alpha, beta) (1 - 1/E) <= alpha s <= alpha (E - e + s).

The number is that of "stronger clones" (see ``bounds.clones``), whose published proof is withdrawn
for general randomizers. Nothing of that proof is used here, and less is claimed: there a report of
the others is to be made of clones, which it need not be; here two expectations are compared, for
one fixed R. Randomizers chosen adaptively are not covered: for them ``bounds.clones`` is.

**Checked** by enumeration of the lemma's expectation in exact fractions, and against every dataset
at small n (tests/unit/accounting/bounds/test_exact.py). The theorem: its inequality for random
pairs of laws at every (e, t) that matters, in whole numbers; and against every dataset of tables
(tests/unit/accounting/bounds/test_pure_blanket.py).
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.numerics.random_walk import Walk
from shoal.privacy import KaryLaw


def pure_blanket(ratio: Fraction, n: int) -> Walk:
    """The theorem of the module's text: a bound for every randomizer with ratios of at most
    ``ratio`` (> 1) that all honest devices run, fixed beforehand.

    Direction: upper bound on delta(epsilon) for every dataset. ``n`` >= 1 honest reports.
    """
    return kary_blanket(KaryLaw(2, same=ratio.numerator, other=ratio.denominator), n)


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
