"""What singles and floods of any number of devices show, by the integers that are drawn: for lower
curves where more devices are honest than the law is made for.

With ``devices`` of them each rate is its integer times ``devices``: the singles of one sign have
the law g, the floods' total p, both compound Poisson (``compound``), with no size too long and no
surplus. There is no closed form any more, but with m = min(u, v) and d = |u - v|

    P(u, v) = F_d(m),    F_d(m) = sum over c of p(c) g(m - c) g(m - c + d),

one convolution for every d. Outcomes of a cell with one message of + more (``more``) and without:

- u - v = d >= 1: more = F_(d-1)(v), without = F_d(v);
- v - u = d >= 0: more = F_(d+1)(u - 1), without = F_d(u).

A signed count, u - v = d >= 1: P = F_(d-1)(v), Q = F_(d+1)(v - 1); what the other outcomes add to
the divergence is left out.

With further messages of + in a cell, a Poisson number of them (``extra``: others' true messages),
the two signs have laws of their own: F_d(m) is then one table for u - v = d, with g of + at m - c +
d, and one for v - u = d, with g of - there.

*For lower curves only.* Outcomes of nearly one ratio are put together, which is post-processing:
it can only lower the divergence. So can leaving outcomes out, but for what ``lost`` says of both
laws. Direction: LOWER.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import UNIT, highest, lowest, masses
from shoal.accounting.several_messages.one_more import Shown
from shoal.accounting.several_messages.signed_count import CountShown
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw, Truth

# Multiplications of the convolutions; beyond, no law is computed.
_MOST_WORK = 5e8
# Ratios are put together that differ by less than this share of themselves.
_BIN = 2.0**-11
# Outcomes below this are left out: nearer to the end of the floats sums lose their digits.
_SMALLEST = 1e-250


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """``plus``, ``minus``: float64[d, m], F_d(m) for u - v = d and for v - u = d, and a row of
    zeros. ``lost``: mass that is not in them, at most. ``error``: of the masses, relative, at most.
    """

    plus: Floats
    minus: Floats
    lost: float
    error: float


def shown_many(law: NoiseLaw, devices: int, tail: float) -> Shown | CountShown | None:
    """The classes of one cell, or of a count, with the noise of ``devices``, but for ``tail`` at
    the ends of g and p; None where that takes too long. Direction: LOWER.
    """
    drawn = drawn_law(law, devices, tail)
    if drawn is None:
        return None
    if law.truth is Truth.CELL:
        return cell_of(drawn)
    return _count(drawn.plus, drawn.lost, drawn.error)


def drawn_law(law: NoiseLaw, devices: int, tail: float, extra: float = 0.0) -> Drawn | None:
    """The law of one cell with the noise of ``devices``, and ``extra`` further messages of +
    expected, but for ``tail`` at the ends of g and p; None where that takes too long.
    """
    log_tail = math.log(tail)
    singles, floods = (
        drawn_rates(law, event, devices) for event in (NoiseKind.PLUS, NoiseKind.FLOOD)
    )
    more = singles.copy()
    more[1] += extra
    reach, low, high = (
        highest(more, log_tail),
        lowest(floods, log_tail),
        highest(floods, log_tail),
    )
    if float(reach + 1) ** 2 * (high + 1) > _MOST_WORK:
        return None
    g, error_g = masses(singles, reach)
    g_more, error_more = masses(more, reach)
    p, error_p = masses(floods, high)
    p[:low] = 0.0
    error = error_p + error_g + error_more + (high + reach + 16) * UNIT
    plus = _table(p, g, g_more)
    minus = plus if extra == 0.0 else _table(p, g_more, g)
    # Either end of the floods, and the upper end of the singles of both signs.
    return Drawn(plus, minus, 4.0 * tail, error)


def drawn_rates(law: NoiseLaw, event: NoiseKind, devices: int) -> Floats:
    """float64[largest size + 1]: events of this kind in one cell that ``devices`` draw, expected;
    from the integers.
    """
    kept = [rate for rate in law.rates() if rate.kind is event]
    out = np.zeros(max(rate.size for rate in kept) + 1)
    for rate in kept:
        out[rate.size] = rate.weight * devices / (1 << RATE_BITS)
    return out


def _table(p: Floats, g: Floats, ahead: Floats) -> Floats:
    """float64[d, m]: F_d(m) for d up to where g ends, and a row of zeros; ``ahead``: the law of the
    sign with d more.
    """
    reach = len(g) - 1
    rows = np.zeros((reach + 2, len(p) + reach))
    for d in range(reach + 1):
        rows[d, : len(p) + reach - d] = np.convolve(p, g[: reach + 1 - d] * ahead[d:])
    return rows


def _below(rows: Floats) -> Floats:
    """F_d(m - 1) in place of F_d(m)."""
    return np.concatenate([np.zeros((len(rows), 1)), rows[:, :-1]], axis=1)


def cell_of(drawn: Drawn) -> Shown:
    """The classes of a cell. Direction: LOWER."""
    plus, minus = drawn.plus, drawn.minus
    more = np.concatenate([plus[:-1].ravel(), _below(minus[1:]).ravel()])
    without = np.concatenate([plus[1:].ravel(), minus[:-1].ravel()])
    certain = float(np.sum(without[(more == 0.0) & (without > _SMALLEST)]))
    ratios, more, without = _together(more, without)
    rounding = (len(more) + plus.size) * UNIT
    return Shown(ratios, more, without, certain, drawn.lost, drawn.error + rounding)


def _count(table: Floats, lost: float, error: float) -> CountShown:
    p = table[:-2].ravel()
    q = _below(table[2:]).ravel()
    alone = float(np.sum(p[(q == 0.0) & (p > _SMALLEST)]))
    ratios, kept, _ = _together(p, q)
    return CountShown(
        np.concatenate([[0.0], ratios]),
        np.concatenate([[alone], kept]),
        0.0,
        lost,
        error + table.size * UNIT,
    )


def _together(more: Floats, without: Floats) -> tuple[Floats, Floats, Floats]:
    """(ratios, more, without), by increasing ratio, of bins of outcomes; those of one law alone
    are left out.
    """
    present = (more > _SMALLEST) & (without > _SMALLEST)
    more, without = more[present], without[present]
    _, bins = np.unique(np.floor(np.log(without / more) / _BIN), return_inverse=True)
    masses_more: Floats = np.bincount(bins, more).astype(np.float64)
    masses_without: Floats = np.bincount(bins, without).astype(np.float64)
    ratios = masses_without / masses_more
    order = np.argsort(ratios)
    return ratios[order], masses_more[order], masses_without[order]
