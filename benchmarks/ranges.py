"""Ranges and quantiles of 1,024 cells by a hierarchy, central (1, 1e-6): what they err by in many
batches, beside what is said beforehand, and how often their 95 % intervals hold the truth.

The true messages of 100,000 made-up devices are counted; the noise of all of them is drawn at once,
a Poisson number in each node, which is the law that the sum of what devices draw has. (That devices
draw that law, message by message, is the tests'.) Quantiles are those of bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, Outcome
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.of_domain import design_several
from shoal.arrays import NDArray, np
from shoal.domain import Categories
from shoal.entropy import SeededEntropy, streamed
from shoal.mechanisms import Tally
from shoal.mechanisms.base import Z
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.noise_law import RATE_BITS
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.tree import CellTree

TITLE = "ranges of 1,024 cells: measured error / predicted, and coverage"
_BINS = Categories(tuple(map(str, range(1_023))), tuple(range(1_023)))
_DELTA = 1e-6
_HIERARCHIES = ((4, 1), (32, 2), (8, 3), (4, 4), (4, 5), (2, 8))  # base, levels
_STEP = 7  # between ends of ranges that are looked at


def run(bench: Bench) -> Outcome:
    """200 batches at full size, of many devices and of few."""
    runs, figures, notes = bench.pick(2, 50, 200), list[Figure](), list[str]()
    for n in bench.pick((2_000,), (100_000,), (100_000, 5_000)):
        made = create(design_several("ranges", _BINS, n, 1.0, _DELTA, windows=1), _BINS)
        if not isinstance(made, Ranges):
            raise TypeError("ranges are made by Ranges")
        found = _Found.of(made, n, runs)
        figures += _figures(made, found, n, judged=runs >= 50)
        notes.append(
            f"{n:,} devices, {runs} batches of {found.ranges:,} ranges; base {made.tree.base}, "
            f"{made.tree.levels} levels, {float(made.mean_messages):.2f} messages a device, "
            f"{made.messages} at most; s.d. measured {found.measured:.2f} +- "
            f"{found.measured * found.uncertain:.2f}, predicted {found.expected:.2f} (over all "
            f"ranges {made.range_stderr(n):.2f}); intervals hold the truth in {found.inside:.2%}, "
            f"those of quantiles in {found.quantiles:.2%}"
        )
    hierarchies = bench.pick((_HIERARCHIES[0],), (), _HIERARCHIES)
    return Outcome(tuple(figures), (*notes, *map(_hierarchy, hierarchies)))


def _hierarchy(shape: tuple[int, int]) -> str:
    """What one would err by: predicted."""
    tree, n = CellTree(1_024, *shape), 100_000
    law = design_dummies(tree.nodes, n, 1.0, _DELTA, tables=tree.levels)
    made = Ranges(_BINS, tree, law)
    return (
        f"levels {', '.join(map(str, reversed(tree.sizes)))}: a range {made.range_stderr(n):.1f}, "
        f"a cell {made.expected_stderr(n):.1f}, {float(law.mean_messages):.2f} messages, "
        f"{law.slots} at most"
    )


def _figures(made: Ranges, found: _Found, n: int, *, judged: bool) -> list[Figure]:
    def goal(goal: Goal) -> Goal | None:
        return goal if judged else None

    apart = abs(found.ratio - 1.0)
    return [
        Figure(f"a range, {n:,} devices: s.d. / predicted", (found.ratio,)),
        Figure("  apart from 1", (apart,), goal=goal(Goal(at_most=0.03))),
        Figure("  predicted s.d., devices", (made.range_stderr(n),), goal=Goal(at_most=29.0)),
        Figure(
            "  intervals that hold the truth",
            (found.inside,),
            goal=goal(Goal(at_least=0.94, at_most=0.97)),
        ),
        Figure(
            "  quantiles: intervals that hold the truth",
            (found.quantiles,),
            goal=goal(Goal(at_least=0.94)),
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Found:
    measured: float
    expected: float
    uncertain: float
    inside: float
    quantiles: float
    ranges: int

    @property
    def ratio(self) -> float:
        return self.measured / self.expected

    @classmethod
    def of(cls, made: Ranges, n: int, runs: int) -> _Found:
        values = _values(n)
        truth = np.append(0.0, np.cumsum(np.bincount(values, minlength=made.tree.cells)))
        first, end = _ranges(made.tree.cells)
        said = made.stderr_of_ranges(n, first, end)
        answered = np.sort(values[values < made.tree.cells - 1])
        squares, inside, held = list[float](), list[float](), list[bool]()
        for tally in _tallies(made, values, runs):
            sums = np.append(0.0, np.cumsum(made.estimate(tally, n).values))
            errors = sums[end] - sums[first] - (truth[end] - truth[first])
            squares.append(float(np.mean(errors**2)))
            inside.append(float(np.mean(np.abs(errors) <= Z * said)))
            for each in made.quantiles(tally, n):
                true = answered[math.ceil(each.share * len(answered)) - 1]
                held.append(bool(each.low <= true <= each.high))
        mean = float(np.mean(squares))
        return cls(
            math.sqrt(mean),
            math.sqrt(float(np.mean(said**2))),
            float(np.std(squares)) / math.sqrt(runs) / mean / 2.0,
            float(np.mean(inside)),
            float(np.mean(held)),
            len(first),
        )


def _values(n: int) -> NDArray[np.int64]:
    """A hump to the left, and a fiftieth without an answer."""
    share = (np.arange(n) + 0.5) / n
    values = np.floor(1_022 * (1.0 - np.cbrt(1.0 - share))).astype(np.int64)
    values[::50] = 1_023
    return np.asarray(values)


def _ranges(cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = np.arange(0, cells + 1, _STEP, dtype=np.int64)
    first, end = (each.ravel() for each in np.meshgrid(ends, ends))
    kept = first < end
    return first[kept], end[kept]


def _tallies(made: Ranges, values: NDArray[np.int64], runs: int) -> Iterator[Tally]:
    counts = np.zeros(made.tree.nodes, dtype=np.int64)
    for cell, held in enumerate(np.bincount(values, minlength=made.tree.cells).tolist()):
        counts[list(made.tree.path(cell))] += held
    rate = Fraction(made.noise.rates()[0].weight * len(values), 1 << RATE_BITS)
    sampler, entropy = SmallSampler(Poisson(rate)), streamed(SeededEntropy("ranges"))
    for _ in range(runs):
        noisy = counts + np.array([sampler.draw(entropy) for _ in range(len(counts))])
        yield Tally(noisy, int(noisy.sum()))
