"""Compound Poisson sums: of every size a Poisson number of events, and S the sum of their sizes.

``rates[j]`` is the expected number of events of size j (``rates[0]`` is not read). From the
generating function exp(sum_j rates[j] (z^j - 1)) follows Panjer's recursion (1981),

    p(0) = exp(-sum_j rates[j]),    p(s) = (1/s) sum_j j rates[j] p(s - j):

positive terms only. So the relative error of p(s) grows by at most (largest + 4) units of rounding
u = 2^-53 with each of s steps, a sum of m positive terms being good to m u in any order of adding.
Rates that are rounded by u each change p(s) by at most (s + sum of rates) u, relative. The start
is taken as 1 and the scale brought in at the end; it costs 4 u of the size of its logarithm.
``masses`` returns the sum of all this with the probabilities. Values below 1e-300 may come out as
0: callers that need an upper bound add ``NEGLIGIBLE``.

Tails are Chernoff's: for every t > 0, P(S >= x) <= exp(K(t) - t x) and P(S <= x) <= exp(K(-t) +
t x), K(t) = sum_j rates[j] (e^(t j) - 1). Any t is sound; a grid of them is tried. Direction:
windows err outward, by 1e-9 of K and by one.
"""

from __future__ import annotations

import math

from shoal.accounting.numerics.binomial import Floats
from shoal.arrays import np

NEGLIGIBLE = 1e-280
UNIT = 2.0**-53
# Sums up to here are computed one by one; a second or so.
LARGEST_SUM = 500_000
_SLACK = 1e-9
_GRID = 64
_LARGEST_EXPONENT = 600.0
_FEW = 8  # sizes that are added up faster one by one
_SHIFT = 600  # powers of two by which a recursion is scaled down where it has grown by as many


def masses(rates: Floats, last: int) -> tuple[Floats, float]:
    """(P(S = s) for s = 0 .. last, a bound of their relative errors).

    ``rates``: float64[largest + 1], >= 0, each within a unit of rounding of the true one.
    """
    largest = len(rates) - 1
    few = np.count_nonzero(rates[1:]) <= _FEW
    grown, shifts = (_of_few if few else _of_many)(rates, last)
    total = float(np.sum(rates[1:]))
    up = shifts * _SHIFT * math.log(2.0)
    # In two steps: neither may fall below the floats by itself.
    half = math.exp((up - total) / 2.0)
    error = (last * (largest + 5) + total + 4.0 * (up + total) + 2 * largest + 16) * UNIT
    return grown * half * half, error * (1.0 + 1e-3)


def _of_few(rates: Floats, last: int) -> tuple[Floats, int]:
    """``_of_many``, in less time where few sizes have a rate: an array for each sum takes longer
    than its terms. What came before is scaled at the end, once.
    """
    sizes = [int(size) + 1 for size in np.flatnonzero(rates[1:])]
    weights = [(size, float(size * rates[size])) for size in sizes]
    longest, limit, pieces = max(sizes, default=1), 2.0**_SHIFT, list[Floats]()
    # of each piece first the values before it that are still looked at
    values, begun = [0.0] * (longest - 1) + [1.0], longest - 1
    for at in range(1, last + 1):
        value = 0.0
        for size, weight in weights:
            value += weight * values[-size]
        value /= at
        values.append(value)
        if value > limit:
            pieces.append(np.array(values[begun:]))
            values, begun = [each / limit for each in values[-longest:]], longest
    pieces.append(np.array(values[begun:]))
    shifts = len(pieces) - 1
    scaled = [np.ldexp(piece, _SHIFT * (at - shifts)) for at, piece in enumerate(pieces)]
    return np.concatenate(scaled), shifts


def _of_many(rates: Floats, last: int) -> tuple[Floats, int]:
    """(values, shifts): the recursion from 1 on, scaled down by 2^``_SHIFT`` so many times."""
    largest = len(rates) - 1
    weights = (np.arange(1, largest + 1) * rates[1:])[::-1]
    values = np.zeros(largest + last + 1)  # ``largest`` zeros before P(S = 0)
    values[largest] = 1.0
    limit, shifts = 2.0**_SHIFT, 0
    for at in range(1, last + 1):
        value = float(weights.dot(values[at : at + largest])) / at
        values[at + largest] = value
        if value > limit:
            values[: at + largest + 1] /= limit
            shifts += 1
    return values[largest:], shifts


def at_least(rates: Floats, first: int, log_tail: float) -> float:
    """P(S >= first), exp(log_tail) and a rounding too large at most while sums of up to
    ``LARGEST_SUM`` decide it, and Chernoff's bound beyond. Direction: UPPER.
    """
    if highest(rates, log_tail) > LARGEST_SUM:
        points, cumulants = _cumulants(rates, log_tail, 1.0)
        exponents = cumulants * (1.0 + _SLACK) - points * first * (1.0 - _SLACK)
        return math.exp(min(0.0, float(np.min(exponents)) + 1e-6)) + NEGLIGIBLE
    return float(tails(rates, first, log_tail)[0])


def tails(rates: Floats, first: int, log_tail: float) -> Floats:
    """Upper bounds of P(S >= x) for x = first, first + 1, ... up to where Chernoff's bound alone is
    exp(log_tail); at least one. Direction: UPPER. Takes as long as that is far.
    """
    end = highest(rates, log_tail)
    beyond = math.exp(log_tail) * (1.0 + _SLACK) + NEGLIGIBLE
    if first > end:
        return np.full(1, beyond)
    values, error = masses(rates, end)
    sums = np.cumsum(values[first:][::-1])[::-1]
    return np.append(sums * (1.0 + error + (end + 4) * UNIT) + beyond, beyond)


def highest(rates: Floats, log_tail: float) -> int:
    """An x with P(S > x) <= exp(log_tail), ``log_tail`` < 0. Errs upward."""
    points, cumulants = _cumulants(rates, log_tail, 1.0)
    bounds = (cumulants * (1.0 + _SLACK) - log_tail) / points
    return math.ceil(float(np.min(bounds)) * (1.0 + _SLACK)) + 1


def lowest(rates: Floats, log_tail: float) -> int:
    """An x >= 0 with P(S < x) <= exp(log_tail), ``log_tail`` < 0. Errs downward."""
    points, cumulants = _cumulants(rates, log_tail, -1.0)
    bounds = (-cumulants * (1.0 - _SLACK) + log_tail) / points
    return max(0, math.floor(float(np.max(bounds)) * (1.0 - _SLACK)) - 1)


def _cumulants(rates: Floats, log_tail: float, sign: float) -> tuple[Floats, Floats]:
    """(t, K(sign t)) for a grid of t > 0 around the best for a tail like that."""
    sizes = np.arange(1, len(rates))
    spread = float(np.sum(rates[1:] * sizes * sizes.astype(np.float64)))
    top = min(
        4.0 * math.sqrt(-2.0 * log_tail / max(spread, 1e-300)), _LARGEST_EXPONENT / len(rates)
    )
    points = top * np.exp(np.linspace(-9.0, 0.0, _GRID))
    growth = np.expm1(sign * points[:, None] * sizes[None, :])
    return points, np.asarray(growth @ rates[1:], dtype=np.float64)
