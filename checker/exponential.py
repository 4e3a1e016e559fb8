"""e^epsilon and logarithms as exact fractions with a stated side: the only numbers of a certificate
that are no fractions by themselves.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

_DIGITS = 50
# Decimal's exp and ln are correctly rounded to the nearest (General Decimal Arithmetic): one unit
# in the last of 50 digits is more than they can be off.
_UNIT = Fraction(1, 10 ** (_DIGITS - 2))


def exp_below(epsilon: float) -> Fraction:
    """A fraction at or below e^epsilon, closer than 1e-47 of it. ``epsilon`` in [0, 700]."""
    return _exp(epsilon) * (1 - _UNIT)


def exp_above(epsilon: float) -> Fraction:
    """A fraction at or above e^epsilon, closer than 1e-47 of it. ``epsilon`` in [0, 700]."""
    return _exp(epsilon) * (1 + _UNIT)


def log_above(ratio: Fraction) -> Fraction:
    """A fraction at or above ln(ratio), for a ratio of at least 1."""
    up, down = (Context(prec=_DIGITS, rounding=side) for side in (ROUND_CEILING, ROUND_FLOOR))
    quotient = up.divide(up.create_decimal(ratio.numerator), down.create_decimal(ratio.denominator))
    return Fraction(up.ln(quotient)) + _UNIT * (1 + ratio.numerator.bit_length())


def _exp(epsilon: float) -> Fraction:
    context = Context(prec=_DIGITS)
    return Fraction(context.exp(context.create_decimal(epsilon)))
