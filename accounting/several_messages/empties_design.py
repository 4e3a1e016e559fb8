"""The fewest empty messages that hide the numbers of singles and floods from a shuffler which reads
the release (``onlooker``). Whatever comes out, the certificate is that of the law.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from shoal.accounting.several_messages.onlooker import onlooker, onlooker_delta
from shoal.mechanisms.several.noise_law import NoiseLaw

# of delta, for what the shuffler sees: the cap and a few floods fewer have the rest
_SHARE = 0.9
_LEAST = 16
_MOST = 1 << 20  # at epsilon 1 some 2^14 are enough, at a tenth of it a hundred times that
_NEAR = 1.02
# Of the longest single, in percent. Longer ones are too rare to tell much, and wide empties want
# slots: at (1, 1e-6) and 16 cells 98 of them at 60 %, 111 at 70 %, 147 at 100 %.
_WIDEST = 65


def with_empties(law: NoiseLaw, epsilon: float, delta: float) -> NoiseLaw | None:
    """``law``, which has none, with the empties with which the shuffler's view is proven at
    (``epsilon``, ``delta``): a whole number of them, to 2 % of the least; None where 2^20 are too
    few.
    """
    widest = -(-law.longest * _WIDEST // 100)

    def among(scale: int) -> NoiseLaw:
        return replace(law, empties=Fraction(scale), widest=widest)

    def enough(scale: int) -> bool:
        return onlooker_delta(onlooker(among(scale), delta), epsilon) <= _SHARE * delta

    high = _LEAST
    while not enough(high):
        high *= 4
        if high > _MOST:
            return None
    low = high // 4
    while high > low * _NEAR + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return among(high)
