"""Secrets from shares of which some may be wrong: Reed-Solomon decoding over the field of
``shamir``.

Shares of one secret are values of a polynomial of degree below t, so m of them are a Reed-Solomon
code word of distance m - t + 1: up to floor((m - t) / 2) wrong ones are found and outvoted,
whichever they are. Used only after t shares did not fit what their owner had committed to; numbers
are Python integers, so nothing here is constant time (secrets are of one round, at the one party
that may have them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from shoal.crypto.secagg.primitives.shamir import PRIME

Polynomial = list[int]  # coefficients, lowest first; no zero at the end; [] is zero


def interpolate(points: Sequence[int], values: Sequence[int]) -> Polynomial:
    """The polynomial of degree below len(points) through these points (distinct, modulo PRIME).
    O(len^2).
    """
    whole = _vanishing(points)
    result = [0] * len(points)
    weights = _inverses([_evaluate(_derivative(whole), point) for point in points])
    for point, value, weight in zip(points, values, weights, strict=True):
        scale, carry = value * weight % PRIME, 0
        # whole / (x - point), by Horner, highest coefficient first
        for degree in range(len(points) - 1, -1, -1):
            carry = (whole[degree + 1] + carry * point) % PRIME
            result[degree] += scale * carry
    return _trimmed([coefficient % PRIME for coefficient in result])


def decode(shares: Mapping[int, int], threshold: int) -> Polynomial | None:
    """The polynomial of degree below ``threshold`` on which all but at most floor((m - threshold) /
    2) of the m shares lie, or None.

    Gao, "A new algorithm for decoding Reed-Solomon codes" (2003): with g0 = prod (x - x_i) and g1
    through all shares, Euclid's algorithm is stopped at the first remainder g = u g0 + v g1 of
    degree below (m + threshold) / 2; then f = g / v, if that divides.
    """
    points = sorted(shares)
    before, last = _vanishing(points), interpolate(points, [shares[point] for point in points])
    v_before: Polynomial = []
    v_last: Polynomial = [1]
    while 2 * (len(last) - 1) >= len(points) + threshold:
        quotient, rest = _divide(before, last)
        before, last = last, rest
        v_before, v_last = v_last, _minus(v_before, _times(quotient, v_last))
    polynomial, rest = _divide(last, v_last)
    return polynomial if not rest and len(polynomial) <= threshold else None


def outliers(polynomial: Polynomial, shares: Mapping[int, int]) -> set[int]:
    """The points whose share does not lie on the polynomial."""
    return {point for point, value in shares.items() if _evaluate(polynomial, point) != value}


def at_zero(polynomial: Polynomial) -> int:
    """The secret, as a number."""
    return polynomial[0] if polynomial else 0


def _vanishing(points: Sequence[int]) -> Polynomial:
    """prod (x - point)."""
    result = [1]
    for point in points:
        result = [(a - point * b) % PRIME for a, b in zip([0, *result], [*result, 0], strict=True)]
    return result


def _derivative(polynomial: Polynomial) -> Polynomial:
    return [degree * coefficient % PRIME for degree, coefficient in enumerate(polynomial)][1:]


def _evaluate(polynomial: Polynomial, point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value


def _inverses(numbers: Sequence[int]) -> list[int]:
    """Of all, none of them zero, for the price of one inversion."""
    before = list(accumulate(numbers, lambda a, b: a * b % PRIME, initial=1))
    inverse, result = pow(before[-1], -1, PRIME), []
    for index in range(len(numbers) - 1, -1, -1):
        result.append(inverse * before[index] % PRIME)
        inverse = inverse * numbers[index] % PRIME
    return result[::-1]


def _divide(number: Polynomial, by: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder; ``by`` is not zero."""
    rest, inverse = list(number), pow(by[-1], -1, PRIME)
    quotient = [0] * max(0, len(number) - len(by) + 1)
    for shift in range(len(quotient) - 1, -1, -1):
        factor = rest[shift + len(by) - 1] * inverse % PRIME
        quotient[shift] = factor
        for index, coefficient in enumerate(by):
            rest[shift + index] = (rest[shift + index] - factor * coefficient) % PRIME
    return _trimmed(quotient), _trimmed(rest[: len(by) - 1])


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    result = [0] * (len(a) + len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            result[i + j] += x * y
    return _trimmed([coefficient % PRIME for coefficient in result])


def _minus(a: Polynomial, b: Polynomial) -> Polynomial:
    size = max(len(a), len(b))
    padded = zip(a + [0] * (size - len(a)), b + [0] * (size - len(b)), strict=True)
    return _trimmed([(x - y) % PRIME for x, y in padded])


def _trimmed(polynomial: Polynomial) -> Polynomial:
    while polynomial and polynomial[-1] == 0:
        polynomial.pop()
    return polynomial
