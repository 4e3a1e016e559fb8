"""Shuffled binary randomized response: the exact epsilon over all datasets, between two ends that
nearly meet.

A report is one with probability a = ``top`` if the answer is 1 and b = ``bottom`` < a if it is 0.
Of the n - 1 others m answer 1; the view is the number of ones. delta(epsilon; n, m) is evaluated by
``tilted`` for any (n, m), and

    delta(epsilon) = max over m = 0 .. n - 1 and both directions.

The other direction is the same problem with outputs relabelled: a' = 1 - b, b' = 1 - a, m' = n - 1
- m. For a = 1 - b it is the first direction at n - 1 - m, so that one direction over all m is
everything.

Inputs whose rows lie between the two extreme ones, the victim's or anybody's, are mixtures of these
two; the divergence is jointly convex, so the extreme answers are the worst. All others run this
randomizer, chosen beforehand, independently of one another.

**Lower end.** Any m is a real pair of datasets: the largest lower value over the m tried, with m
refined around the best.

**Upper end.** All m at once, in blocks m = start .. start + size - 1. In every dataset of the block
at least ``start`` of the others answer 1 and at least n - start - size answer 0: these are *known*;
the size - 1 *unknown* rest depends on m.

*Deletion lemma.* delta(epsilon; n, m) <= delta(epsilon; n - size + 1, start). Proof: the view of n
reports is made from the view of the victim and the known ones by adding the reports of the unknown,
whose answers are fixed and independent of the victim's: post-processing, which never raises a
divergence.

*Sharper.* A report is, with probability gamma = 1 - (a - b), a *blanket* report: one with
probability b / gamma whatever the answer. Otherwise it repeats the answer (so it is one with
probability b + (a - b) = a if the answer is 1, and b if it is 0). Let J ~ Bin(size - 1, gamma) of
the unknown reports be blanket. J does not depend on any answer, and given J the view is made from
the view of victim, known ones and J blanket reports by adding the size - 1 - J answers that were
repeated. Given J >= L it is also made from the one with L blanket reports, by adding more of them.
Divergence is jointly convex, so for every L

    delta(epsilon; n, m) <= delta(epsilon; start ones, n - start - size zeros, L blanket reports) +
    P(J < L).

L is a Bernstein quantile with P(J < L) <= a small share of delta. A block of size 1 has no unknown:
it is exact.

**Branch and bound.** An epsilon is proven when every block's bound is at most delta; blocks that
fail are split in four. The upper end is tried just above the lower one, 1e-8 of it (n <= 8192),
0.01 %, 0.03 %, ... until it is proven within a budget of evaluations; if it never is, ``ceiling``
is returned, which the caller has proven already. A block of size 1 that fails is a dataset worse
than those known: the lower end is raised to it. Soundness does not depend on how blocks are chosen.

Epsilons are moved by 1e-15 of e^epsilon - 1 to the safe side; see ``tilted`` for all other errors.

**Checked**: one divergence against exact rationals for all mixtures of three kinds of bits, against
50 digits at large n and against convolution at n = 3000; blocks against every m of theirs in exact
rationals; intervals against every dataset and both directions
(tests/unit/accounting/bounds/test_binary.py, test_binary_curves.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.numerics.binomial import Floats, Ints, half_width
from shoal.accounting.numerics.search import crossing
from shoal.accounting.numerics.tilted import Tilts, divergences, tilts
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.privacy import log_upper

# Up to here every m is evaluated at once; up to here blocks may shrink to single datasets
# everywhere within the budget.
_ALL, _SINGLE = 256, 8192
# How far above the lower end the upper end is tried first (up to _SINGLE, and beyond), and by how
# much the next step is larger.
_FINEST, _FIRST, _GROWTH = 1e-8, 1e-4, 3.0
# How often the lower end may be raised before steps grow all the same.
_RAISES = 6
# Blocks evaluated per attempt (about 5 microseconds each), and blocks to begin with.
_BUDGET, _BLOCKS = 32_000, 64
_SPLIT = 4
# Datasets tried at once by the search for the worst one.
_TRIED = 128
# P(J < L) as a share of delta: for one epsilon, and for curves (which matter far below the target,
# too).
_SHARE, _CURVE_SHARE = 1e-4, 1e-9
# Blocks of a curve per direction, at first and at most about; how far a block may exceed real
# datasets, and where that is looked at (shares of the epsilon at delta).
_CURVE_FIRST, _CURVE_BLOCKS, _CURVE_SLACK = 24, 384, 0.01
_PILOTS = (0.0625, 0.25, 0.5, 0.75, 1.0, 1.25)
_TINY = 1e-290
_SAFE = 1e-15
# e^epsilon stays within floats.
_LARGEST = 700.0


@dataclass(frozen=True, slots=True)
class Interval:
    """The true epsilon lies in [lower, upper]; 0 <= lower <= upper, both finite. ShoalError INVALID
    otherwise.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lower <= self.upper < math.inf:
            raise ShoalError(
                Kind.INVALID,
                f"an interval wants 0 <= lower <= upper, both finite, got {self.lower} and "
                f"{self.upper}",
            )


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction: victims answer 1 (``top``) against 0 (``bottom``), at most e^epsilon times."""

    top: Fraction
    bottom: Fraction

    @property
    def gamma(self) -> Fraction:
        """The probability that a report does not look at its answer: 1 - (top - bottom),
        exactly.
        """
        return 1 - self.top + self.bottom

    def tilts(self, excess: Sequence[float]) -> Tilts:
        """Kinds of the others' bits: answer 1, answer 0, blanket."""
        return tilts(
            self.top, self.bottom, (self.top, self.bottom, self.bottom / self.gamma), excess
        )

    def real(self, excess: float, n: int, ones: Ints) -> Floats:
        """Lower values of delta for the datasets with ``ones`` answers 1 among the others."""
        counts = np.stack([ones, n - 1 - ones, np.zeros_like(ones)], axis=1)
        return divergences(self.tilts([excess]), np.zeros(len(ones), np.int64), counts)[0]

    def kept(self, sizes: Ints, eta: float) -> Ints:
        """L of each block: P(Bin(size - 1, gamma) < L) <= eta, by Bernstein's inequality.
        Direction: errs down.
        """
        gamma, unknown = float(self.gamma), (sizes - 1).astype(np.float64)
        sure = np.floor(unknown * gamma - half_width(unknown, gamma, 1.0 - gamma, math.log(eta)))
        return np.clip(sure, 0.0, unknown).astype(np.int64)

    def blocks(
        self, tilt: Tilts, which: Ints, n: int, starts: Ints, sizes: Ints, eta: float
    ) -> Floats:
        """Upper values of delta over all m in each block [start, start + size), at epsilon number
        ``which`` each.
        """
        kept = self.kept(sizes, eta)
        counts = np.stack([starts, n - starts - sizes, kept], axis=1)
        return divergences(tilt, which, counts)[1] + np.where(kept > 0, eta * (1.0 + _SAFE), 0.0)


def _sides(top: Fraction, bottom: Fraction) -> tuple[_Side, ...]:
    """Both directions; one where top + bottom = 1, since the other is then the same over all m.
    Raises INVALID unless 0 < bottom < top < 1.
    """
    if not 0 < bottom < top < 1:
        raise ShoalError(
            Kind.INVALID,
            f"binary randomized response wants 0 < bottom < top < 1, got {bottom} and {top}",
        )
    return (
        (_Side(top, bottom),)
        if top + bottom == 1
        else (_Side(top, bottom), _Side(1 - bottom, 1 - top))
    )


def _checked(epsilon: float) -> float:
    """The same epsilon. Raises INVALID beyond 700, where e^epsilon would leave the floats."""
    if not 0.0 <= epsilon <= _LARGEST:
        raise ShoalError(
            Kind.INVALID, f"an epsilon of binary responses lies in [0, {_LARGEST:g}], got {epsilon}"
        )
    return epsilon


def _less(epsilon: float) -> float:
    """e^epsilon - 1, rounded down: for upper values of delta."""
    return math.expm1(epsilon) * (1.0 - _SAFE)


def _more(epsilon: float) -> float:
    """e^epsilon - 1, rounded up: for lower values of delta."""
    return math.expm1(epsilon) * (1.0 + _SAFE)


def binary_interval(
    top: Fraction, bottom: Fraction, n: int, delta: float, ceiling: float
) -> Interval:
    """Both ends of the epsilon at ``delta`` over all datasets of n answers, for report
    probabilities ``top`` > ``bottom``.

    ``ceiling`` is an epsilon already proven (epsilon0 or another upper bound). lower <= truth,
    truth <= upper <= ceiling. n in 1..1e8, delta in [1e-100, 1), ceiling in [0, 700]. ShoalError
    CONFIG for n and delta, INVALID for the rest.
    """
    check_n(n)
    check_delta(delta)
    sides = _sides(top, bottom)
    lower = _lower(sides, n, delta, _checked(ceiling))
    step, raises = (_FINEST if n <= _SINGLE else _FIRST), 0
    # Where even epsilon = 0 is not refuted: 0, and then steps from far below anything that matters.
    tried = lower * (1.0 + step) if lower > 0.0 else 0.0
    while tried < ceiling:
        proven, worse = _attempt(sides, n, delta, tried)
        if proven:
            return Interval(lower, tried)
        raised = max(
            [lower, *(_refuted(sides[i : i + 1], [m], n, delta, ceiling) for i, m in worse)]
        )
        raises += raised > lower
        if raised == lower or raises > _RAISES:
            step = max(step * _GROWTH, _FIRST)
        lower = raised
        tried = lower * (1.0 + step) if lower > 0.0 else max(tried * 8.0, ceiling * 1e-12)
    return Interval(min(lower, ceiling), ceiling)


def binary_proves(top: Fraction, bottom: Fraction, n: int, delta: float, epsilon: float) -> bool:
    """Whether (epsilon, delta) is proven for all datasets of n answers. False says nothing: it may
    be true nevertheless.

    Why True may be believed: blocks cover every m and both directions, each block's bound errs
    upward, and what is left to chance (J < L) is added in full. ``top``, ``bottom``: exact
    probabilities of one output, 0 < bottom < top < 1. Raises as ``binary_interval``.
    """
    check_n(n)
    check_delta(delta)
    return _attempt(_sides(top, bottom), n, delta, _checked(epsilon))[0]


def _lower(sides: tuple[_Side, ...], n: int, delta: float, ceiling: float) -> float:
    """The largest epsilon refuted by a dataset that the search found; 0 if none is."""
    pools = [_spread(0, n - 1, n if n <= _ALL else _TRIED) for _ in sides]
    refuted = _refuted(sides, pools, n, delta, ceiling)
    if n <= _ALL:
        return refuted
    # Worst datasets move little with epsilon: refine at the value found, then solve again with the
    # best ones.
    best = [_worst(side, n, _more(refuted), pool) for side, pool in zip(sides, pools, strict=True)]
    return max(refuted, _refuted(sides, best, n, delta, ceiling))


def _refuted(
    sides: tuple[_Side, ...], pools: list[Ints], n: int, delta: float, ceiling: float
) -> float:
    """The largest epsilon up to ``ceiling`` that a dataset of ``pools`` (numbers of answers 1, per
    side) exceeds at ``delta``; 0 if none does. Direction: lower bound, the low end of the bracket
    of a lower curve.
    """

    def curve(epsilon: float) -> float:
        excess = _more(epsilon)
        return max(
            float(side.real(excess, n, pool).max()) for side, pool in zip(sides, pools, strict=True)
        )

    return crossing(curve, delta, ceiling)[0]


def _worst(side: _Side, n: int, excess: float, pool: Ints) -> Ints:
    """Two good m from the pool, each refined until its neighbourhood has been tried one by one."""
    order = np.argsort(-side.real(excess, n, pool), kind="stable")
    kept = [int(pool[order[0]]), int(pool[order[1]])]
    refined = []
    for start in kept:
        m, reach = start, -(-n // _TRIED)
        while reach > 1:
            near = _spread(max(0, m - reach), min(n - 1, m + reach), _TRIED)
            m = int(near[side.real(excess, n, near).argmax()])
            reach = max(1, 4 * reach // _TRIED)
        refined.append(m)
    return np.array(sorted({*kept, *refined}), dtype=np.int64)


def _spread(low: int, high: int, count: int) -> Ints:
    """At most ``count`` (at least 2) whole numbers from low to high, both among them, evenly
    spread.
    """
    spread: Ints = np.linspace(low, high, max(count, 2)).round().astype(np.int64)
    # rising already; ``np.unique`` would load the masked arrays of numpy for it
    return np.asarray(spread[np.append(True, spread[1:] != spread[:-1])], dtype=np.int64)


def _attempt(
    sides: tuple[_Side, ...], n: int, delta: float, epsilon: float
) -> tuple[bool, list[tuple[int, Ints]]]:
    """Branch and bound: True only if every block of every side is bounded by delta at this epsilon.

    With False come the single datasets that failed, as (number of the side, m's); none if the
    budget was spent.
    """
    budget = _BUDGET
    eta = delta * _SHARE
    for number, side in enumerate(sides):
        tilt = side.tilts([_less(epsilon)])
        starts, sizes = _cut(
            np.zeros(1, np.int64), np.full(1, n, np.int64), n if n <= _ALL else _BLOCKS
        )
        while len(starts):
            budget -= len(starts)
            if budget < 0:
                return False, []
            bound = side.blocks(tilt, np.zeros(len(starts), np.int64), n, starts, sizes, eta)
            failed = bound > delta
            single = failed & (sizes == 1)
            if single.any():
                return False, [
                    (number, starts[single][np.argsort(-bound[single], kind="stable")][:_TRIED])
                ]
            starts, sizes = _cut(starts[failed], sizes[failed], _SPLIT)
    return True, []


def _cut(starts: Ints, sizes: Ints, parts: int) -> tuple[Ints, Ints]:
    """Every block cut into at most ``parts`` consecutive ones of nearly one size; together they are
    the same blocks.
    """
    edges = starts[:, None] + sizes[:, None] * np.arange(parts + 1) // parts
    heads, lengths = edges[:, :-1].ravel(), np.diff(edges, axis=1).ravel()
    return heads[lengths > 0], lengths[lengths > 0]


class BinaryEnvelope:
    """delta(epsilon) over all datasets and both directions, bounded from above: a curve to compose
    with.

    ``delta`` names the region of interest: blocks are cut finely where a dataset comes near the
    worst one at epsilons around the one of ``delta``, and a share of 1e-9 of delta may be added
    everywhere. The bound is sound at every epsilon >= 0 and 0 from epsilon0 on. The blocks are the
    same for every epsilon, so that the curve is a maximum of true divergences, each convex in
    e^epsilon, but for a constant and for rounding (1e-9 of its value); where it meets the
    divergence of the victim's bit alone it is cut off by that line.
    """

    def __init__(self, top: Fraction, bottom: Fraction, n: int, delta: float) -> None:
        """n in 1..1e8, delta in [1e-100, 1); ShoalError CONFIG for n and delta, INVALID for the
        probabilities.
        """
        self._n = check_n(n)
        self._eta = max(check_delta(delta) * _CURVE_SHARE, 1e-300)
        self._sides = _sides(top, bottom)
        self._blocks = self._partition(delta)

    def _partition(self, delta: float) -> list[tuple[Ints, Ints]]:
        """(starts, sizes) per side: fine where a block's bound exceeds what real datasets show at
        any of a few epsilons.
        """
        n, sides = self._n, self._sides
        reach = log_upper(max(side.top / side.bottom for side in sides))
        target = _refuted(
            sides, [_spread(0, n - 1, _CURVE_FIRST) for _ in sides], n, delta, min(reach, _LARGEST)
        )
        pilots = [_less(min(target * share, _LARGEST)) for share in _PILOTS]
        tilt = [side.tilts(pilots) for side in sides]
        blocks = [
            _cut(np.zeros(1, np.int64), np.full(1, n, np.int64), min(n, _CURVE_FIRST))
            for _ in sides
        ]
        shown = np.full(len(pilots), _TINY)
        for number, (starts, _) in enumerate(blocks):
            shown = np.maximum(
                shown, self._over(number, tilt[number], starts, np.ones_like(starts)).max(axis=1)
            )
        for number in range(len(sides)):
            starts, sizes = blocks[number]
            done: list[tuple[Ints, Ints]] = []
            while len(starts):
                bound = self._over(number, tilt[number], starts, sizes)
                split = (bound > shown[:, None] * (1.0 + _CURVE_SLACK)).any(axis=0) & (
                    sizes > -(-n // _CURVE_BLOCKS)
                )
                done.append((starts[~split], sizes[~split]))
                starts, sizes = _cut(starts[split], sizes[split], _SPLIT)
            blocks[number] = (
                np.concatenate([part[0] for part in done]),
                np.concatenate([part[1] for part in done]),
            )
        return blocks

    def _over(self, number: int, tilt: Tilts, starts: Ints, sizes: Ints) -> Floats:
        """Upper values of every block at every epsilon of ``tilt``: shape (epsilons, blocks)."""
        epsilons = len(tilt.gap)
        which = np.repeat(np.arange(epsilons, dtype=np.int64), len(starts))
        starts, sizes = np.tile(starts, epsilons), np.tile(sizes, epsilons)
        return (
            self._sides[number]
            .blocks(tilt, which, self._n, starts, sizes, self._eta)
            .reshape(epsilons, -1)
        )

    def deltas(self, epsilons: Floats) -> Floats:
        """float64 (k,) of epsilons >= 0 -> float64 (k,) in [0, 1]. Direction: upper bounds of the
        divergence at each.

        Each value is the largest over all blocks and both directions. ``epsilons`` may be of any
        size: beyond 700 the value at 700 stands in, which is larger.
        """
        if not (np.asarray(epsilons) >= 0.0).all():
            raise ShoalError(Kind.INVALID, "a curve is asked at epsilons of at least 0")
        if len(epsilons) == 0:
            return np.zeros(0)
        excess = [_less(min(float(epsilon), _LARGEST)) for epsilon in epsilons]
        result = np.zeros(len(excess))
        for number, (starts, sizes) in enumerate(self._blocks):
            tilt = self._sides[number].tilts(excess)
            bound = self._over(number, tilt, starts, sizes).max(axis=1, initial=0.0)
            # The victim's bit alone: at most d, and so 0 from this direction's share of epsilon0
            # on.
            result = np.maximum(result, np.minimum(bound, tilt.gap * (1.0 + _SAFE)))
        return np.minimum(result, 1.0)
