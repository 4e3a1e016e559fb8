"""Evaluate a ``Walk`` as a function of epsilon, erring upward (``Direction.UPPER``) or downward
(``Direction.LOWER``).

Where nothing is rounded, nothing is lost: while c's window is small every c has a row of its own
and the result is exact up to floating point. Otherwise neighbouring values are merged, always in
the direction asked for:

* E[(X)_+] is convex in X. Moving the mass of a value to two others *without moving its mean* (a
  chord) can only raise it; replacing values by their mean (Jensen) can only lower it. So Y, which
  enters linearly, is merged by chords for an upper bound and by means for a lower bound. Both lose
  only to second order in the width of a bin.
* N - rho c and R - (n - c) third have mean zero given c, and adding an independent mean-zero term
  can only raise a convex expectation. So within a bin of c's the largest spread bounds from above
  and the smallest from below.

For one c, y -> E[(N - rho c - y)_+] is linear between neighbouring integers of N, and its values
there are double sums of P(N >= i): sums of positive numbers, then interpolation with positive
weights. Nothing cancels, at any delta.

Mass outside the windows is dropped from lower bounds and added to upper bounds (Bernstein tails).
Floating point: the pmf is good to 1e-11 relative, the running sums to 1e-11; every delta is moved
by ``MARGIN`` = 1e-9 of itself to the safe side, a hundred times the sum of these. Thresholds are
moved by 1e-14 of the sizes of their terms and by 1e-15 for their place in the table: alpha may be
1e17, and then that is what counts.

Checked: coarse curves against exact ones on either side, curves against plain sums, merged laws
against every convex test function that is tried (tests/unit/accounting/numerics/test_curve.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from shoal.accounting.numerics.binomial import Floats, Ints, half_width, pmf
from shoal.accounting.numerics.random_walk import Walk
from shoal.arrays import np

MARGIN = 1e-9
# Of the sizes of the terms that a threshold is made of; and of one, for the position in the table
# (an origin is at most 1).
_THRESHOLD_MARGIN = 1e-14
_POSITION_MARGIN = 1e-15
# The mass given up at each end of a window, relative to the delta that the curve is built for.
TAIL_SHARE = 1e-8


# Beyond this many reports the error budget of this module is not claimed: a larger batch gets the
# upper bound of this many (sound, since more reports never hurt) and the lower bound 0.
LARGEST_N = 100_000_000


class Direction(Enum):
    """On which side of the truth a value may err."""

    UPPER = 1
    LOWER = -1


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is computed exactly before merging begins. Soundness never depends on it; tightness
    and time do.

    ``cells``: entries of the table of tails (rows times width). ``third_cells``: entries computed
    for the laws of R. ``nodes``: the most values of R kept per row; fewer are kept where R hardly
    matters. Spreading R over nodes at a distance h adds h^2 / 6 to its variance; ``blur`` is what
    that may add to the variance of X, relative. ``every_pair``: whether tables of many inputs are
    bounded by their own pairs; else by the clones alone, in a fraction of the time.
    """

    cells: int = 2_000_000
    third_cells: int = 500_000
    nodes: int = 96
    blur: float = 4e-6
    every_pair: bool = True


DEFAULT_EFFORT = Effort()
# for whoever compares hundreds of designs: what it chooses is certified with the other
QUICK_EFFORT = Effort(every_pair=False)


class Curve:
    """delta as a function of epsilon for one walk, never below (UPPER) or never above (LOWER) the
    true value.

    Built once for a target delta (which sets the width of the windows), then cheap to evaluate at
    any epsilon in [0, epsilon_max]. Values far below the target delta are still on the safe side,
    only less tight.
    """

    def __init__(
        self,
        walk: Walk,
        direction: Direction,
        delta: float,
        epsilon_max: float,
        effort: Effort = DEFAULT_EFFORT,
    ) -> None:
        self._n = walk.n
        self._upper = direction is Direction.UPPER
        self._slope, self._slope_e = float(walk.slope), float(walk.slope_e)
        tail = delta * TAIL_SHARE
        self._rho, self._one_minus_rho = float(walk.rho), float(1 - walk.rho)
        # Windows are set once, for the steepest slope that any epsilon up to ``epsilon_max`` has.
        steepest = max(abs(self._slope + math.expm1(epsilon_max) * self._slope_e), abs(self._slope))
        # Truncating N or R costs at most (alpha / n) E[N; outside] <= alpha rho pair P(outside, one
        # report counted in).
        log_tail = math.log(tail) - max(
            0.0, math.log(steepest * self._rho * float(walk.pair) * 2.0 + 1.0)
        )
        counts, masses, lost = _pair_window(walk, math.log(tail))
        self._tail_constant = lost if self._upper else 0.0
        # A bin of c's gets the law of N of its largest c (upper) or smallest (lower): the spread
        # that errs to the side asked for.
        first, last = self._merge(counts, log_tail, effort)
        tops = last if self._upper else first
        self._table, self._origin, cut = self._tails(tops, walk.rho, log_tail)
        step = self._third_step(walk, epsilon_max, effort)
        terms, weights, cut_third = self._thresholds(
            walk, counts, masses, first, last, log_tail, step, effort
        )
        self._base, self._base_size = terms
        self._weights = weights
        # (alpha / n) sum of mass * rho * c * exp(log_tail), for N and for R: multiplied by alpha
        # when evaluated.
        truncated = (
            float(np.sum(weights.sum(axis=1) * tops)) * self._rho * math.exp(log_tail) / self._n
        )
        self._tail_slope = truncated * (int(cut) + 2 * int(cut_third)) if self._upper else 0.0

    def delta(self, epsilon: float) -> float:
        """The divergence at ``epsilon`` >= 0, moved to the safe side. May exceed 1 for an upper
        curve.

        The range is [0, ``epsilon_max``]; beyond it the windows are not wide enough for the error
        that is stated.
        """
        growth = math.expm1(epsilon)
        alpha = self._slope + growth * self._slope_e
        if alpha <= 0.0:
            # The two cells have changed roles: no walk of this package does that, but then 0 is a
            # lower bound.
            return math.inf if self._upper else 0.0
        y = growth * self._base / alpha
        doubt = growth * self._base_size * (_THRESHOLD_MARGIN / alpha) + _POSITION_MARGIN
        # E[(N - rho c - y)_+] falls with y: a smaller threshold errs up, a larger one down.
        y = y - doubt if self._upper else y + doubt
        # The table holds values at whole places; between them the function is linear, so
        # interpolation is exact.
        position = y - self._origin[:, None]
        last = self._table.shape[1] - 1
        index = np.clip(np.floor(position), 0, last - 1).astype(np.int64)
        along = position - index
        left = np.take_along_axis(self._table, index, axis=1)
        right = np.take_along_axis(self._table, index + 1, axis=1)
        # Left of the table the function is convex: its tangent, continued, and -y both stay below
        # it (lower curves only; upper thresholds are never negative). Right of the table it is 0 up
        # to the truncated mass.
        value = np.where(position >= last, 0.0, left + np.minimum(along, 1.0) * (right - left))
        value = np.where(position < 0.0, np.maximum(value, -y), value)
        total = float(np.sum(value * self._weights)) * alpha / self._n
        if self._upper:
            return total * (1.0 + MARGIN) + self._tail_constant + alpha * self._tail_slope
        return total * (1.0 - MARGIN)

    def _merge(self, counts: Ints, log_tail: float, effort: Effort) -> tuple[Ints, Ints]:
        """First and last value of c of every bin: all alone while the table stays small, else bins
        of one power of two.
        """
        width = float(half_width(float(counts[-1]), self._rho, self._one_minus_rho, log_tail)) + 4
        width = min(width, float(counts[-1]) + 2)
        size = 1
        while len(counts) / size * width > effort.cells:
            size *= 2
        # Bins begin at multiples of their size whatever the window is, so that results move
        # smoothly with n.
        starts = np.flatnonzero((counts % size == 0) | (np.arange(len(counts)) == 0))
        ends = np.append(starts[1:], len(counts)) - 1
        return counts[starts], counts[ends]

    def _tails(self, tops: Ints, rho: Fraction, log_tail: float) -> tuple[Floats, Floats, bool]:
        """Row r, column j: E[(N - (start_r + j))_+] for N ~ Bin(tops_r, rho) and start_r =
        floor(rho tops_r).

        Also start_r - rho tops_r, and whether a row was cut before its last value. Rows are padded
        with zeros.
        """
        start, origin = _origins(tops, rho)
        mean = tops * self._rho
        # One report is counted in for sure (size-biased law), hence the 1.
        reach = half_width(tops.astype(np.float64), self._rho, self._one_minus_rho, log_tail) + 1.0
        end = np.minimum(tops, np.ceil(mean + reach).astype(np.int64))
        width = int(np.max(end - start)) + 2
        table = np.empty((len(tops), width))
        chunk = max(1, 500_000 // width)
        columns = np.arange(width, dtype=np.int64)
        odds = self._rho / self._one_minus_rho
        anchor = pmf(start, tops, self._rho, self._one_minus_rho)
        for at in range(0, len(tops), chunk):
            rows = slice(at, at + chunk)
            values = start[rows, None] + columns
            # pmf(j + 1) / pmf(j) = (c - j) / (j + 1) odds, 0 from j = c on: a running product from
            # the mean outward, which costs 3 roundings a step (1e-11 relative after 2e4 steps).
            law = np.empty((len(values), width))
            law[:, 0] = anchor[rows]
            law[:, 1:] = (
                np.maximum(tops[rows, None] - values[:, :-1], 0) / (values[:, :-1] + 1.0) * odds
            )
            np.cumprod(law, axis=1, out=law)
            # Entry j: P(N > start + j) but for what the window cuts; then the sum of these from j
            # on.
            law[:, :-1] = np.cumsum(law[:, :0:-1], axis=1)[:, ::-1]
            law[:, -1] = 0.0
            table[rows] = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
        return table, origin, bool(np.any(start + width - 1 < tops))

    def _third_step(self, walk: Walk, epsilon_max: float, effort: Effort) -> int:
        """How far apart the kept values of R may lie: a power of two within ``effort.blur``. Only
        tightness depends on it.
        """
        growth = math.expm1(epsilon_max)
        alpha = self._slope + growth * self._slope_e
        # Variance of the walk in units of N, at the mean of c; and what one unit of R is worth
        # there.
        spread = walk.n * float(walk.pair) * self._rho * self._one_minus_rho
        unit = growth * abs(float(walk.per_third)) / alpha if alpha > 0.0 else 0.0
        step = 1
        while unit > 0.0 and (2 * step * unit) ** 2 / 6.0 <= effort.blur * spread and step < walk.n:
            step *= 2
        return step

    def _thresholds(
        self,
        walk: Walk,
        counts: Ints,
        masses: Floats,
        first: Ints,
        last: Ints,
        log_tail: float,
        step: int,
        effort: Effort,
    ) -> tuple[tuple[Floats, Floats], Floats, bool]:
        """Per row the values of Y / (e^epsilon - 1) with the sums of their terms' sizes, and their
        weights; whether R was cut.

        Terms of either sign are added, so what rounding does is relative to their sizes, not to Y.
        """
        nodes, weights = _count_nodes(counts, masses, first, last, self._upper)
        n, third = walk.n, walk.third
        constant, per_count = (
            float(walk.constant + walk.per_third * third * n),
            float(walk.per_pair - walk.per_third * third),
        )
        base, size = constant + per_count * nodes, abs(constant) + abs(per_count) * nodes
        if walk.per_third == 0 or third == 0:
            return (base, size), weights, False
        offsets, shares, cut = _third_nodes(
            n, first, last, third, log_tail, self._upper, step, effort
        )
        shape = (len(first), -1)
        base = base[:, :, None] + float(walk.per_third) * offsets[:, None, :]
        size = size[:, :, None] + abs(float(walk.per_third)) * np.abs(offsets)[:, None, :]
        weights = weights[:, :, None] * shares[:, None, :]
        return (base.reshape(shape), size.reshape(shape)), weights.reshape(shape), cut


def _origins(tops: Ints, rho: Fraction) -> tuple[Ints, Floats]:
    """floor(rho c) for every c, and floor(rho c) - rho c in (-1, 0], correctly rounded: c - rho c
    itself may be tiny.
    """
    if rho == Fraction(1, 2):
        return tops // 2, np.asarray((tops % 2) * -0.5, dtype=np.float64)
    over, under = rho.numerator, rho.denominator
    parts = [divmod(count * over, under) for count in tops.tolist()]
    return np.array([whole for whole, _ in parts], dtype=np.int64), np.array(
        [-(rest / under) for _, rest in parts]
    )


def _pair_window(walk: Walk, log_tail: float) -> tuple[Ints, Floats, float]:
    """The values of c kept, their probabilities, and a bound on what the others can add to delta.

    E[(X)_+; c outside] / n <= P(the first cell | first answer) * P(1 + Bin(n - 1, pair) outside):
    the size-biased law of c. c = 0 is left out: there X = -Y <= 0 in every upper bound.
    """
    n = walk.n
    if walk.pair == 1:
        return np.array([n], dtype=np.int64), np.ones(1), 0.0
    p, q = float(walk.pair), float(1 - walk.pair)
    center, reach = 1 + (n - 1) * p, float(half_width(n - 1, p, q, log_tail))
    # Bernstein's window around the mean of the size-biased law: one report is counted in for sure.
    low, high = max(1, math.floor(center - reach)), min(n, math.ceil(center + reach))
    counts = np.arange(low, high + 1, dtype=np.int64)
    lost = math.exp(log_tail) * (int(low > 1) + int(high < n))
    return counts, pmf(counts, n, p, q), lost


def _count_nodes(
    counts: Ints, masses: Floats, first: Ints, last: Ints, upper: bool
) -> tuple[Floats, Floats]:
    """Values of c that stand for each bin, and their weights: the bin's two ends (upper) or its
    mean (lower).
    """
    starts = first - counts[0]
    mass: Floats = np.asarray(np.add.reduceat(masses, starts), dtype=np.float64)
    if len(first) == len(counts):
        return first.astype(np.float64)[:, None], mass[:, None]
    # Moments about the bin's first value: small integers, so that nothing cancels.
    beyond = np.add.reduceat(masses * (counts - np.repeat(first, last - first + 1)), starts)
    if upper:
        high = np.divide(beyond, last - first, out=np.zeros_like(beyond), where=last > first)
        return np.stack([first, last], axis=1).astype(np.float64), np.stack(
            [mass - high, high], axis=1
        )
    offset = np.divide(beyond, mass, out=np.zeros_like(beyond), where=mass > 0.0)
    centers: Floats = first.astype(np.float64) + offset
    return centers[:, None], mass[:, None]


def _third_nodes(
    n: int,
    first: Ints,
    last: Ints,
    third: Fraction,
    log_tail: float,
    upper: bool,
    step: int,
    effort: Effort,
) -> tuple[Floats, Floats, bool]:
    """Per row: values of R - (n - c) third, and their probabilities. Rows of one group share one
    law (see the module).
    """
    p, q = float(third), float(1 - third)
    window = 2.0 * float(half_width(n, p, q, log_tail)) + 4.0
    per_group = max(1, math.ceil(len(first) * window / effort.third_cells))
    starts = np.arange(0, len(first), per_group)
    ends = np.minimum(starts + per_group, len(first)) - 1
    sizes = n - (first[starts] if upper else last[ends])
    laws = [
        _merged_binomial(int(size), p, q, log_tail, upper, step, effort.nodes) for size in sizes
    ]
    width = max(len(values) for values, _, _ in laws)
    offsets, shares = np.zeros((len(laws), width)), np.zeros((len(laws), width))
    for row, (values, probabilities, _) in enumerate(laws):
        offsets[row, : len(values)] = values
        shares[row, : len(values)] = probabilities
    group = np.arange(len(first)) // per_group
    return offsets[group], shares[group], any(cut for _, _, cut in laws)


def _merged_binomial(
    size: int, p: float, q: float, log_tail: float, upper: bool, step: int, nodes: int
) -> tuple[Floats, Floats, bool]:
    """Bin(size, p) minus its mean on values ``step`` apart (more if these are more than ``nodes``):
    spread by chords (upper) or gathered to means (lower).
    """
    if size <= 0:
        return np.zeros(1), np.ones(1), False
    mean, reach = size * p, float(half_width(size, p, q, log_tail))
    low, high = max(0, math.floor(mean - reach)), min(size, math.ceil(mean + reach))
    values = np.arange(low, high + 1, dtype=np.int64)
    masses = pmf(values, size, p, q)
    cut = low > 0 or high < size
    while (high - low + 1) / step > nodes:
        step *= 2
    if step == 1:
        return values.astype(np.float64) - mean, masses, cut
    if not upper:
        starts = np.flatnonzero((values % step == 0) | (values == low))
        first = values[starts]
        ends = np.append(starts[1:], len(values)) - 1
        centers, mass = _count_nodes(values, masses, first, values[ends], upper=False)
        return centers[:, 0] - mean, mass[:, 0], cut
    left = values // step
    along = (values - left * step) / step
    count = int(left[-1] - left[0]) + 2
    at = left - left[0]
    share: Floats = np.zeros(count)
    share += np.bincount(at, masses * (1.0 - along), minlength=count)
    share += np.bincount(at + 1, masses * along, minlength=count)
    grid = (float(left[0]) + np.arange(count, dtype=np.float64)) * step
    return grid - mean, share, cut
