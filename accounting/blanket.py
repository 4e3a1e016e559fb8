"""Upper bounds from the privacy blanket (Balle, Bell, Gascon, Nissim, "The Privacy Blanket of the Shuffle Model", CRYPTO 2019).

Every randomizer with output law P(. | x) can be split: with probability gamma = sum_y min_x P(y | x) a report does not look
at its input and is drawn from the *blanket* omega(y) = min_x P(y | x) / gamma. Tell the adversary which of the others'
reports did look, and what they were: only the blanket reports and the victim's own remain mixed. Lemma 5.3 there:

    delta(epsilon) <= E[(L_1 + ... + L_M)_+] / (gamma n),   M ~ Bin(n, gamma),
    L_i = (P(Y_i | x) - e^epsilon P(Y_i | x')) / omega(Y_i),   Y_i ~ omega,

for non-adaptive users who all run the same randomizer. E[L_i] = 1 - e^epsilon, which is where ``Walk``'s threshold comes from.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.walk import Walk
from shoal.privacy import FiniteLaw, KaryLaw


def kary_blanket(law: KaryLaw, n: int) -> Walk:
    """The exact blanket expectation of k-ary randomized response, for every pair of answers at once (they are symmetric).

    The blanket is uniform: gamma = k other / total. c counts blanket reports on x or x', N those on x, R those elsewhere;
    L = -(e^epsilon - 1) gamma on every report, plus (1 - gamma) k on x, minus (1 - gamma) k e^epsilon on x'. Divided by gamma.
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


def binary_blanket(law: FiniteLaw, n: int) -> tuple[Walk, Walk]:
    """Both directions of the exact blanket expectation of a randomizer with two outputs, however asymmetric.

    With more than two inputs the two extreme rows are the worst pair: every other row is a mixture of them, and the
    divergence of the shuffled views is jointly convex in the victim's two rows. The blanket has mass
    gamma = 1 - (top - bottom), where top and bottom are the largest and smallest probability of output 0.
    """
    top = max(Fraction(row[0], law.total) for row in law.rows)
    bottom = min(Fraction(row[0], law.total) for row in law.rows)
    return _binary(top, bottom, n), _binary(1 - bottom, 1 - top, n)


def _binary(top: Fraction, bottom: Fraction, n: int) -> Walk:
    """x answers the first output with probability ``top``, x' with ``bottom`` < top; c counts all blanket reports."""
    gamma = 1 - (top - bottom)
    gap = top - bottom
    # alpha = (top - e bottom) / bottom + (e (1 - bottom) - (1 - top)) / (1 - top) = gap (1 / bottom + e / (1 - top)).
    return Walk(
        n=n,
        pair=gamma,
        rho=bottom / gamma,
        slope=gap / bottom + gap / (1 - top),
        slope_e=gap / (1 - top),
        per_pair=1 / gamma,
    )
