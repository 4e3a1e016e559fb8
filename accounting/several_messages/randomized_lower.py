"""Lower curves where true messages are drawn: what the others draw hides a device too, so it is
counted, for datasets in which all others give one answer.

**A histogram of three cells or more**, the others in a cell that is neither x nor x'. Look at cells
x and x' alone (a projection, which only lowers). N = n_honest - 1 others come to each of them with
probability b: a multinomial pair. Compare with independent Poisson numbers of mean mu = N b: of a
pair that adds up to K the ratio of the two probabilities is

    rho(K) = N! / ((N - K)! N^K) (1 - 2 b)^(N - K) e^(2 b N).

Let rho lie between c and C for all K of a window, and t bound the mass of either law outside. Then
P >= c (P' - t) and Q <= C Q' + t on sets of views, P' and Q' being those with Poisson numbers:

    delta(epsilon) >= c delta'(e C / c) - (c + e) t.

With Poisson numbers the two cells are independent: the noise, and ``extra`` = mu further messages
of +. With ``one_more``'s classes, r = without / more in each cell, and a, b as in
``randomized_truth``,

    P' - e Q' = sum of without_i without_j ((a - e b) / r_i - (e a - b) / r_j - (e - 1)(k - 2) b),

over the pairs of classes where that is above 0: those of one i are the largest r_j.

**A signed count**, all others 0: N' ~ Bin(N, b) of them send + for -. The same with b for 2 b. With
f(d, s) the law of u - v and u + v of noise, N' moves d by 2 N': h(d, s) = sum over K of Pois(K)
f(d - 2 K, s), and P = a h(d - 1) + b h(d + 1), Q the other way round. Here only K of the window are
summed, so P >= c P'.

Full submissions of all devices are charged, as in ``noise``. In a histogram of two cells nobody is
in a third: no lower curve, 0. Where the window is wide (many others draw another cell) c and C are
far apart, and the curve may be 0 too: few would want such a task, whose draws err more than noise.

*Numbers.* Every sum is of chosen views, so a choice that rounding spoilt is sound too. What is
subtracted cancels: ``error`` times the sum of all magnitudes is taken off.

*Checked* against exact multinomial and binomial laws, and against everything that devices can send
(tests/unit/accounting/several_messages/test_randomized_lower.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import LARGEST_SUM, UNIT
from shoal.accounting.numerics.curve import MARGIN, TAIL_SHARE
from shoal.accounting.several_messages.charges import full_submissions
from shoal.accounting.several_messages.more_devices import cell_of, drawn_law
from shoal.accounting.several_messages.one_more import Shown, shown_dummies
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import MOST_SHARES, RATE_BITS, NoiseLaw, Truth
from shoal.privacy import KaryLaw

_MOST_MOVED = 1e4  # others that draw another cell, expected: beyond, the curve is 0
_TAIL = 1e-4  # of delta: of the window
_ROUNDING = 1e-9  # of c and C
_NEAR = 1e-14


@dataclass(frozen=True, slots=True)
class _Window:
    """K from ``low`` to ``high``, with c and C = ``least`` and ``most``; outside at most ``tail``
    of either law.
    """

    low: int
    high: int
    least: float
    most: float
    tail: float


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """Masses of views with the draw of x (``own``) and with that of x' (``other``): a count."""

    own: Floats
    other: Floats
    lost: float
    error: float


def lower_curve(
    law: NoiseLaw, truth: KaryLaw, n_honest: int, delta: float
) -> Callable[[float], float]:
    """delta(epsilon) of ``n_honest`` >= ``law.shares`` devices for epsilon in [0, 40]. Direction:
    LOWER; constant 0 where none is known.
    """
    found = _found(law, truth, n_honest, delta)
    if found is None:
        return _nothing
    shown, window = found
    full = full_submissions(law, n_honest, delta * TAIL_SHARE)

    def at(epsilon: float) -> float:
        e = math.exp(epsilon) * (1.0 + 1e-14)
        spread = e * window.most / window.least
        exact = (
            _three(shown, truth, spread)
            if isinstance(shown, Shown)
            else _two(shown, truth, e=spread)
        )
        charge = (window.least + e) * window.tail + (1.0 + e) * full
        return max(0.0, window.least * exact * (1.0 - MARGIN) - charge * (1.0 + MARGIN))

    return at


@lru_cache(maxsize=16)
def _found(
    law: NoiseLaw, truth: KaryLaw, n_honest: int, delta: float
) -> tuple[Shown | _Pair, _Window] | None:
    others, chance = n_honest - 1, truth.other / truth.total
    counts = law.truth is Truth.SIGN
    moved = chance * others * (1 if counts else 2)
    if n_honest > MOST_SHARES or moved > _MOST_MOVED or (truth.k == 2 and not counts):
        return None
    window = _window(others, chance if counts else 2.0 * chance, delta * _TAIL)
    if window is None:
        return None
    tail = delta * TAIL_SHARE
    if not law.signed:
        mean = Fraction(law.rates()[0].weight * n_honest, 1 << RATE_BITS)
        mean += Fraction(others * truth.other, truth.total)
        return (shown_dummies(mean, tail), window) if mean <= LARGEST_SUM // 4 else None
    if float(law.floods) * law.largest > LARGEST_SUM / 4:
        return None
    drawn = drawn_law(law, n_honest, tail, 0.0 if counts else others * chance)
    if drawn is None:
        return None
    if not counts:
        return cell_of(drawn), window
    return _of_count(drawn.plus, others * chance, window, drawn.lost, drawn.error), window


def _window(others: int, chance: float, tail: float) -> _Window | None:
    """For Bin(``others``, ``chance``) and the Poisson number of its mean; None where the window
    holds numbers that there can't be. Chernoff's bound is one for both.
    """
    mean, reach = others * chance, -math.log(tail)
    if mean == 0.0:
        return _Window(0, 0, 1.0, 1.0, 0.0)
    low = high = math.floor(mean)
    while low > 0 and _exponent(low - 1, mean) < reach:
        low -= 1
    low = max(0, low - 1)
    while _exponent(high + 1, mean) < reach:
        high += 1
    if high > others:
        return None
    steps = np.log1p(-np.arange(high, dtype=np.float64) / others)
    falling = np.concatenate([[0.0], np.cumsum(steps)])[low:]
    left = others - np.arange(low, high + 1, dtype=np.float64)
    logs = falling + left * math.log1p(-chance) + mean
    return _Window(
        low,
        high,
        math.exp(float(logs.min())) * (1.0 - _ROUNDING),
        math.exp(float(logs.max())) * (1.0 + _ROUNDING),
        2.0 * tail,
    )


def _exponent(k: int, mean: float) -> float:
    """-ln of Chernoff's bound of a Poisson number, or a binomial one, as far from its mean as k."""
    return k * math.log(k / mean) - k + mean if k > 0 else mean


def _of_count(table: Floats, mean: float, window: _Window, lost: float, error: float) -> _Pair:
    """h(d - 1, s) and h(d + 1, s) for all d and s, from F_|d|(m): s = 2 m + |d|."""
    reach, length = len(table) - 2, table.shape[1]
    noise = np.zeros((2 * reach + 1, 2 * length + reach))
    for d in range(reach + 1):
        for row in {reach + d, reach - d}:
            noise[row, d : d + 2 * length : 2] = table[d]
    ks = np.arange(window.low, window.high + 1)
    logs = [k * math.log(mean) - mean - math.lgamma(k + 1.0) if mean else 0.0 for k in ks.tolist()]
    moved = np.zeros((2 * reach + 1 + 2 * (window.high - window.low) + 4, noise.shape[1]))
    for index, log in enumerate(logs):
        at = 2 * index + 2
        moved[at : at + 2 * reach + 1] += math.exp(log) * noise
    # exp of a number of that size, and the sums
    error += (4.0 * (window.high * math.log(window.high + 2.0) + mean + 1.0) + len(logs)) * UNIT
    return _Pair(moved[:-2], moved[2:], lost, error)


def _two(pair: _Pair, truth: KaryLaw, e: float) -> float:
    """The larger of both directions. Direction: LOWER."""
    a, b = truth.same / truth.total, truth.other / truth.total
    one, two = a * pair.own + b * pair.other, b * pair.own + a * pair.other
    return max(_positive(one, two, e, pair), _positive(two, one, e, pair))


def _positive(p: Floats, q: Floats, e: float, pair: _Pair) -> float:
    chosen = p > e * q
    gained, taken = float(np.sum(p[chosen])), e * float(np.sum(q[chosen]))
    doubt = (gained + taken) * (2.0 * pair.error + (p.size + 16) * UNIT)
    return max(0.0, gained - taken - doubt - e * pair.lost)


def _three(cell: Shown, truth: KaryLaw, e: float) -> float:
    """delta' of the module's text. Direction: LOWER."""
    a, b = truth.same / truth.total, truth.other / truth.total
    # each a little to the side that lowers
    up, down = a - e * b - _NEAR, (e * a - b) * (1.0 + _NEAR)
    rest = (e - 1.0) * (truth.k - 2) * b * (1.0 + _NEAR)
    if up <= 0.0:
        return 0.0
    # by falling r: first where x' shows what a message more can't
    ratios = cell.ratios[::-1]
    without = np.concatenate([[cell.certain], cell.certain + np.cumsum(cell.without[::-1])])
    more = np.concatenate([[0.0], np.cumsum(cell.more[::-1])])
    gain = up / cell.ratios - rest
    kept = gain > 0.0
    # r_j above down / gain_i: so many of the largest
    count = np.searchsorted(-ratios, -(down / gain[kept]), side="left")
    own, off = cell.more[kept], cell.without[kept]
    gained = up * float(np.sum(own * without[count]))
    taken = rest * float(np.sum(off * without[count])) + down * float(np.sum(off * more[count]))
    doubt = (gained + taken) * (4.0 * cell.error + (4 * len(ratios) + 16) * UNIT)
    # of both cells, twice: what a class leaves out at the end of a sign's law is near its tail
    return max(0.0, gained - taken - doubt - 4.0 * e * cell.lost)


def _nothing(_: float) -> float:
    return 0.0
