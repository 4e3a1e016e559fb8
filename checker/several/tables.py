"""Mechanisms whose devices send one true message in each of several tables, among dummies.

Written from docs/MECHANISMS.md. Every device sends its true message in each of h tables and, to
each cell of all of them, a Poisson number of dummies of mean w = weight / 2^64, weight the least
integer that is not below 2^64 times the task's dummies over its shares; a device whose dummies
don't fit into ``slots`` messages beside the true ones sends none.

**What m honest devices show.** Take the messages of all others, and the true ones of all but the
device in question, away: they say nothing of its answer, and it makes no difference to whoever
knows them. Its answers x and x' differ, in each table, in a pair of cells at most; there are
answers that differ in all of them. A cell's dummies are A ~ Poisson(m w). Under P, x's cell of a
table shows A + 1 and that of x' shows A; under Q it is the other way round. So the loss is

    the sum, over h tables, of ln(a / (m w)) for x's cell, a = A + 1, and ln(m w / a) for that of
    x', a = A (infinite where a = 0),

all independent; P and Q exchanged are the same two laws. ``losses_sum`` bounds what that is.

**Where dummies don't fit.** With probability t at most some device sends no dummies, whatever the
answers. Both laws are within t of those above: delta(e) is within (1 + e) t of what follows from
them. Several releases: within (1 + e) times the sum of all t. Or, from above: with h the curve of
one release above, its true one is at most h(e) + (1 + e) t up to e^l, for any l, and beyond it at
most h(e^l) + (1 + e^l) t. So it is at most the curve of the law whose losses above l are taken down
to l, each with the share e^(l - loss) of its mass, with that much more at infinity, whatever
follows (``composition``). Losses taken down only lower what all add up to. So each release adds
h(e^l) + (1 + e^l) t to the delta of all.

**More devices.** Noise of more than m honest devices is further noise, that looks at no answer: it
shows no more. So for any m up to the number of honest devices the bound holds.

A window of A is kept. What is left out of P is at most 2 h times the chance beyond it, which is
added to delta; the lower side only loses by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from shoal.checker.composition import Curve
from shoal.checker.errors import UnreadableError
from shoal.checker.expectation import Between
from shoal.checker.exponential import exp_above
from shoal.checker.findings import Decision, Outcome
from shoal.checker.several.losses_sum import SMOOTHING, Floats, LossSummand, smoothed_divergence

_WORDS, _UNIT = 1 << 64, 1 << 32
_ROUND = 16 * 2.0**-53
_REACH, _MORE = 9.5, 40  # of a window: deviations, and how many more on either side
_LARGEST_MEAN = 4_000_000  # of a cell's dummies: more are not looked at
_LARGEST_EPSILON = 600.0
_MOST_LOSSES = 100_000
_SLACK = 1e-14  # what a logarithm may be off, of itself and beside
_CUTS = 12  # places of l: parts of epsilon
_HOW = "the losses of every cell, added up"


@dataclass(frozen=True, slots=True)
class TablesLaw:
    """``tables``: h, all that answers can differ in. ``cells``: of all of them. ``mean``: w,
    exactly. ``shares``: honest devices that the task wants. ``slots``: messages of a report.
    """

    tables: int
    cells: int
    mean: Fraction
    shares: int
    slots: int


Batch: TypeAlias = tuple[TablesLaw, int]  # with so many honest devices


@dataclass(frozen=True, slots=True)
class ShownLosses:
    """What releases show of one device: losses that are finite, the chance of one that is not, what
    windows leave out of P at most, and t, the chance that dummies did not fit, at most.
    """

    summands: tuple[LossSummand, ...]
    infinite: float
    lost: float
    unlike: float


def tables_law(mechanism: str, parameters: Mapping[str, int], messages: int) -> TablesLaw | None:
    """None for a mechanism that is not of this kind. ``messages``: that the task lets a report
    have. Raises UnreadableError for integers that a mechanism can't have.
    """
    if mechanism not in _SHAPES or "uniform" in parameters:
        return None
    try:
        tables, cells = cells_in_tables(mechanism, parameters)
        dummies, shares, slots = (parameters[name] for name in ("dummies", "shares", "slots"))
    except KeyError as missing:
        raise UnreadableError(f"the task's {mechanism} has no parameter {missing}") from None
    if not (cells >= 2 * tables >= 2 and slots >= tables and slots == messages):
        raise UnreadableError(f"{mechanism} wants two cells and a slot for each of its tables")
    if not (dummies > 0 and shares > 0):
        raise UnreadableError(f"{mechanism} wants dummies, and devices that send them")
    weight = -(-(dummies * _WORDS // _UNIT) // shares)
    return TablesLaw(tables, cells, Fraction(weight, _WORDS), shares, slots)


def _hierarchy(parameters: Mapping[str, int]) -> tuple[int, int]:
    """A table for each level: of k cells, then of blocks of ``base``, of blocks of those, ..."""
    base, levels = parameters["base"], parameters["levels"]
    if not (base >= 2 and 1 <= levels <= 64):
        raise UnreadableError("ranges wants a base of 2 or more, and levels")
    nodes = [parameters["k"]]
    while len(nodes) < levels:
        nodes.append(-(-nodes[-1] // base))
    if nodes[-1] < 2:
        raise UnreadableError("ranges wants two blocks or more in each level")
    return levels, sum(nodes)


def _tables(parameters: Mapping[str, int]) -> tuple[int, int]:
    return parameters["tables"], parameters["k"]


def _map(parameters: Mapping[str, int]) -> tuple[int, int]:
    """Cells of a map and elsewhere; and squares of ``side`` x ``side`` of them, and elsewhere."""
    rows, columns, side = (parameters[name] for name in ("rows", "columns", "side"))
    if not (rows >= 1 and columns >= 1 and side >= 2 and parameters["k"] == rows * columns + 1):
        raise UnreadableError("blocks wants the cells of its map, in blocks of 2 x 2 or more")
    return 2, rows * columns + 1 + -(-rows // side) * -(-columns // side) + 1


# (tables, cells of all of them) from a task's integers
_SHAPES: dict[str, Callable[[Mapping[str, int]], tuple[int, int]]] = {
    "blocks": _map,
    "marginals": _tables,
    "ranges": _hierarchy,
}


def cells_in_tables(mechanism: str, integers: Mapping[str, int]) -> tuple[int, int]:
    """(tables, cells of all of them), from a task's integers and those of its map. Raises
    UnreadableError for integers that a mechanism can't have, KeyError where one is missing.
    """
    return _SHAPES[mechanism](integers)


def decide_tables(law: TablesLaw, n: int, epsilon: float, delta: float) -> Decision:
    """Whether (epsilon, delta) holds among ``n`` honest devices: as ``epsilon.decide``."""
    return decide_together([(law, n)], epsilon, delta)


def curve_of_tables(law: TablesLaw, n: int) -> Curve | None:
    """The divergence among ``n`` honest devices as a function of e >= 1, from above: of answers
    that differ in every table, which look alike when the two are exchanged. None where so many
    dummies are not looked at. Devices beyond the shares that the task wants are left out.
    """
    shown = shown_by(((law, min(max(n, 1), law.shares)),))
    if shown is None:
        return None

    def above(e: Fraction) -> float:
        epsilon = math.log(e) * (1 - _SLACK) - _SLACK  # below ln e: a smaller one shows more
        return divergence(shown, max(0.0, epsilon), SMOOTHING[0]).high

    return above


def decide_together(releases: Sequence[Batch], epsilon: float, delta: float) -> Decision:
    """The same of several releases about the same devices, each of one law with so many honest
    devices.
    """
    if not 0 <= epsilon <= _LARGEST_EPSILON or not 0 <= delta < 1:
        raise UnreadableError("epsilon is from 0 to 600 here, delta from 0 to 1")
    if delta == 0:
        return Decision(Outcome.WRONG, "at delta 0 dummies promise nothing: there may be none")
    there = tuple((law, max(n, 1)) for law, n in releases)
    fewer = tuple((law, min(n, law.shares)) for law, n in there)
    decision = _decided(fewer, epsilon, delta)
    if fewer == there or decision.outcome is Outcome.HOLDS:
        return decision
    return _decided(there, epsilon, delta)


def _decided(releases: tuple[Batch, ...], epsilon: float, delta: float) -> Decision:
    shown = shown_by(releases)
    if shown is None:
        return Decision(Outcome.OPEN, "so many dummies are not looked at here")
    charge = _charge(releases, epsilon)
    for smoothing in SMOOTHING:
        found = divergence(shown, epsilon, smoothing, charge)
        if found.high <= delta:
            return Decision(Outcome.HOLDS, _HOW)
        if found.low > delta:
            return Decision(Outcome.WRONG, f"{_HOW}: answers that differ everywhere show more")
    return Decision(Outcome.OPEN, "too close to call for the bounds of this checker")


def divergence(
    shown: ShownLosses, epsilon: float, smoothing: float, charge: float = math.inf
) -> Between:
    """delta at ``epsilon``, of answers that differ in every table. ``smoothing`` as of
    ``smoothed_divergence``; ``charge``: what dummies that did not fit add at most, where that is
    known better.
    """
    far = (1 + float(exp_above(epsilon))) * shown.unlike * (1 + 1e-9)
    found = smoothed_divergence(shown.summands, epsilon, smoothing)
    above = found.high + shown.infinite * (1 + 1e-9) + shown.lost + min(far, charge)
    below = found.low + shown.infinite * (1 - 1e-9) - far
    return Between(max(0.0, below * (1 - 1e-12)), min(1.0, above * (1 + 1e-12)))


def _charge(releases: Sequence[Batch], epsilon: float) -> float:
    """What dummies that did not fit add to the delta of several releases, at most."""
    if len(releases) == 1:
        return math.inf
    total = 0.0
    for one in set(releases):
        alone = shown_by((one,))
        if alone is None:
            return math.inf
        total += releases.count(one) * _least(alone, epsilon)
    return total * (1 + 1e-9)


def _least(alone: ShownLosses, epsilon: float) -> float:
    """h(e^l) + (1 + e^l) t at a good place l below ``epsilon``; any is sound."""
    found = dict[float, float]()

    def at(place: float) -> float:
        if place not in found:
            found[place] = divergence(alone, place, SMOOTHING[0]).high
        return found[place]

    step = epsilon / _CUTS
    best = min((step * part for part in range(1, _CUTS)), key=at)
    for _ in range(3):
        step /= 2
        best = min((best - step, best, best + step), key=at)
    return at(best)


@lru_cache(maxsize=64)
def shown_by(releases: tuple[Batch, ...]) -> ShownLosses | None:
    """By all of them together, each a law with so many honest devices. None where there are too
    many dummies, or losses.
    """
    counts = dict[Batch, int]()
    for one in releases:
        counts[one] = counts.get(one, 0) + 1
    summands, log_finite, lost, unlike = list[LossSummand](), 0.0, 0.0, 0.0
    for (law, devices), times in counts.items():
        mean = devices * law.mean
        if mean > _LARGEST_MEAN:
            return None
        first, chances, outside, error = _poisson(mean)
        count, numbers = times * law.tables, first + np.arange(len(chances), dtype=np.float64)
        more = np.log((numbers + 1) / float(mean))
        some = numbers > 0
        fewer = np.log(float(mean) / numbers[some])
        summands.append(LossSummand(more, chances, error, count))
        summands.append(LossSummand(fewer, chances[some], error, count))
        if first == 0:
            log_finite += count * math.log1p(-float(chances[0]))
        lost += 2 * count * outside
        unlike += times * devices * _without_room(law)
    if sum(len(one.losses) for one in summands) > _MOST_LOSSES:
        return None
    return ShownLosses(tuple(summands), -math.expm1(log_finite), lost, min(1.0, unlike))


def _without_room(law: TablesLaw) -> float:
    """P(Poisson(cells w) > slots - tables), from above: the chances that matter, then a geometric
    series.
    """
    mean, first = float(law.cells * law.mean), law.slots - law.tables + 1
    if first <= mean:
        return 1.0
    log_first = first * math.log(mean) - mean - math.lgamma(first + 1)
    # each of the three terms is off by a few u of itself
    wrong = _ROUND * (first * (abs(math.log(mean)) + math.log(first + 1) + 1) + mean)
    total, term, at = 0.0, 1.0, first
    while term > 1e-12:
        total, at = total + term, at + 1
        term *= mean / at
    total += term / (1 - mean / (at + 1))
    return math.exp(log_first + wrong) * total * (1 + 1e-9)


def _poisson(mean: Fraction) -> tuple[int, Floats, float, float]:
    """The first number that is kept, chances from it on, what is left out at most, and how far off
    a chance may be, relative.
    """
    mode, middle = int(mean), float(mean)
    reach = math.ceil(_REACH * math.sqrt(middle)) + _MORE
    first, last = max(0, mode - reach), mode + reach
    steps = np.log(middle / np.arange(first + 1, last + 1, dtype=np.float64))
    at = mode - first
    logs = np.concatenate([-np.cumsum(steps[:at][::-1])[::-1], [0.0], np.cumsum(steps[at:])])
    wrong = _ROUND * (len(logs) + 1) * (8 + float(np.abs(logs).max()))
    chances = np.exp(logs)
    chances /= float(chances.sum())
    # Beyond either end they fall at least as fast as there.
    outside = float(chances[-1]) / (1 - middle / (last + 1))
    if first > 0:
        outside += float(chances[0]) / (1 - (first - 1) / middle)
    return first, chances, outside * (1 + 1e-6), 2 * wrong + outside
