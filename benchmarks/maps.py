"""Rectangles of a 32 x 32 map, central (1, 1e-6): what they err by in many batches, flat and in
blocks, beside what is said beforehand, and how often their 95 % intervals hold the truth.

The true messages of 100,000 made-up devices are counted; the noise of all of them is drawn at once
from its exact law in a cell (``noise_of_batch``), which is the law that the sum of what devices
draw has. (That devices draw that law, message by message, is the tests'.) The rectangles are 2,000
spread over all that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, Outcome
from shoal.accounting.several_messages.of_domain import design_blocks
from shoal.analyzer.planner.frontier.maps import MapRequest, MapWay, plan_map
from shoal.analyzer.planner.simulation.maps import rectangle_errors
from shoal.analyzer.results.maps.released import law_of_rectangles
from shoal.arrays import NDArray, np
from shoal.domain import Places
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import Tally
from shoal.mechanisms.base import Z
from shoal.mechanisms.maps.block_squares import mean_length
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw
from shoal.mechanisms.several.noise_of_batch import noise_pmf
from shoal.mechanisms.several.registry import create

TITLE = "rectangles of a 32 x 32 map: measured error / predicted, and coverage"
_MAP = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 32, 32)
_N = 100_000


def run(bench: Bench) -> Outcome:
    """200 batches at full size."""
    runs, figures, notes = bench.pick(2, 50, 200), list[Figure](), list[str]()
    held = _town()
    for way in plan_map(MapRequest(_MAP, _N, 1.0, 1e-6)).ways:
        if not isinstance(way.made, MapBlocks | BundledHistogram):
            continue  # of one message: its draws are not noise, and tests have them
        found = _Found.of(way, held, runs)
        figures += _figures(way, found, judged=runs >= 50)
        notes.append(
            f"{way.name}, {runs} batches of {found.rectangles:,} rectangles: s.d. measured "
            f"{found.measured:.2f} +- {found.measured * found.uncertain:.2f}, predicted "
            f"{found.expected:.2f} (over all rectangles {way.rectangle:.2f}"
            f"{_plain(way)}); a cell {way.cell:.2f}; {way.messages:.2f} messages a device, "
            f"{way.slots} at most; intervals hold the truth in {found.inside:.2%}"
        )
    sides = bench.pick((4,), (), (2, 3, 4, 5, 8))
    return Outcome(tuple(figures), (*notes, *map(_side, sides)))


def _plain(way: MapWay) -> str:
    """Of a flat grid the cells added up, without the known sum."""
    law = law_of_rectangles(way.made, _N)
    if law.side:
        return ""
    cells = mean_length(_MAP.rows) * mean_length(_MAP.columns)
    return f", {law.noise * math.sqrt(cells):.2f} as the sum of its cells alone"


def _side(side: int) -> str:
    made = create(design_blocks(_MAP, _N, 1.0, 1e-6, windows=1, side=side), _MAP)
    if not isinstance(made, MapBlocks):
        raise TypeError("blocks are made by MapBlocks")
    return (
        f"blocks of {side} x {side}: a rectangle {made.rectangle_stderr(_N):.1f}, a cell "
        f"{made.expected_stderr(_N):.1f}, {float(made.mean_messages):.2f} messages"
    )


def _figures(way: MapWay, found: _Found, *, judged: bool) -> list[Figure]:
    def goal(goal: Goal) -> Goal | None:
        return goal if judged else None

    apart = abs(found.measured / found.expected - 1.0)
    return [
        Figure(f"{way.name}: s.d. / predicted", (found.measured / found.expected,)),
        Figure("  apart from 1", (apart,), goal=goal(Goal(at_most=0.03))),
        Figure("  predicted s.d., devices", (way.rectangle,)),
        Figure(
            "  intervals that hold the truth",
            (found.inside,),
            goal=goal(Goal(at_least=0.94, at_most=0.97)),
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Found:
    measured: float
    expected: float
    uncertain: float
    inside: float
    rectangles: int

    @classmethod
    def of(cls, way: MapWay, held: NDArray[np.int64], runs: int) -> _Found:
        if not isinstance(way.made, MapBlocks | BundledHistogram):
            raise TypeError("a mechanism of several messages")
        entropy = SeededEntropy(f"maps {way.name}")
        squares, inside, expected, count = list[float](), list[float](), 0.0, 0
        for _ in range(runs):
            estimate = way.made.estimate(_tally(way.made, held, entropy), _N)
            off, said = rectangle_errors(way, estimate, held)
            squares.append(float(np.mean(off**2)))
            inside.append(float(np.mean(np.abs(off) <= Z * said)))
            expected, count = math.sqrt(float(np.mean(said**2))), len(off)
        mean = float(np.mean(squares))
        uncertain = float(np.std(squares)) / math.sqrt(runs) / mean / 2.0
        return cls(math.sqrt(mean), expected, uncertain, float(np.mean(inside)), count)


def _town() -> NDArray[np.int64]:
    """Two heaps, nobody at the edges, a 20th elsewhere."""
    rows, columns = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32), indexing="ij")
    heaps = np.exp(-((rows - 0.2) ** 2 + (columns + 0.3) ** 2) * 12.0)
    heaps += 0.5 * np.exp(-((rows + 0.6) ** 2 + (columns - 0.5) ** 2) * 30.0)
    weights = np.append(np.where(heaps > 0.02, heaps, 0.0).reshape(-1), 0.0)
    weights[-1] = weights.sum() / 19.0
    held = np.floor(weights / weights.sum() * _N).astype(np.int64)
    held[-1] += _N - held.sum()
    return np.asarray(held)


def _tally(made: MapBlocks | BundledHistogram, held: NDArray[np.int64], entropy: Entropy) -> Tally:
    drawn = noise_of(made.noise, _N, made.noise.cells, entropy)
    if isinstance(made, MapBlocks):
        counts = np.zeros(made.grid.nodes, dtype=np.int64)
        for cell, devices in enumerate(held.tolist()):
            counts[list(made.grid.path(cell))] += devices
        counts += drawn
    elif made.noise.signed:
        counts = np.stack([held + np.maximum(drawn, 0), np.maximum(-drawn, 0)], axis=1).reshape(-1)
        counts = np.append(counts, [0] * made.noise.hidden)  # empty messages, of no cell
    else:
        counts = held + drawn
    return Tally(counts.astype(np.int64), int(counts.sum()))


def noise_of(law: NoiseLaw, n: int, cells: int, entropy: Entropy) -> NDArray[np.int64]:
    """int64[cells]: what ``n`` devices add to each, drawn at once from the law of their sum."""
    pmf, first, _ = noise_pmf(law, n)
    words = entropy.words(cells).astype(np.float64) / 2.0**64
    drawn = np.searchsorted(np.cumsum(pmf), words * float(pmf.sum()), side="right") + first
    return np.asarray(drawn, dtype=np.int64)
