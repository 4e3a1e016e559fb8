"""Maps at equal central (1, 1e-8), in three ways: a flat grid, cells in blocks, and parts of parts
that are followed where many devices are (a tree). What rectangles and crowded cells err by, where
devices crowd and where they are even, beside the messages of a device.

Devices are made up; the noise of all of them is drawn at once, a Poisson number in each count,
which is the law that the sum of what devices draw has. Devices of a part of the map that is not
followed are taken to be spread evenly over it: where they are not, that is an error too, and
counted here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome
from shoal.accounting.several_messages.noise_design import design_cancelling, design_dummies
from shoal.analyzer.discovery.place_plan import plan_places
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy, SeededEntropy, streamed
from shoal.limits import LIMITS
from shoal.mechanisms.maps.block_squares import fitted, usual_grid
from shoal.mechanisms.several.events import below
from shoal.mechanisms.several.levels import histogram_of, threshold
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places

TITLE = "maps: a flat grid, blocks and a tree at equal epsilon"
_EPSILON, _DELTA = 1.0, 1e-8
_BOX = Places(48_060_000, 11_360_000, 48_250_000, 11_720_000, 1, 1)
_CLUSTERS = 60
_RECTANGLES = 400
_CROWDED = 20  # cells
if TYPE_CHECKING:
    Grid = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Way:
    """``draw``: from the true counts of the cells to estimates of them."""

    name: str
    messages: float
    draw: Callable[[Grid, Entropy], Grid]


def run(bench: Bench) -> Outcome:
    """Populations of several sizes on grids of several sizes."""
    figures = list[Figure]()
    runs = bench.pick(1, 2, 3)
    cases = bench.pick(((20_000, 128),), ((200_000, 128),), _CASES)
    for n, rows in cases:
        ways = list(_ways(n, rows))
        for crowds in (True, False):
            truth = _population(n, rows, SeededEntropy("population"), crowds=crowds)
            kind = "crowds" if crowds else "even"
            for way in ways:
                found = _errors(truth, way, runs)
                head = f"{kind}, {n:,} devices, {rows} x {rows}, {way.name}"
                figures += [
                    Figure(f"{head}: any rectangle errs by, devices", (found[0],)),
                    Figure("  a cell of those with most devices", (found[1],)),
                    Figure("  messages of a device", (way.messages,)),
                ]
    return Outcome(tuple(figures), (f"{runs} batches each, central ({_EPSILON:g}, {_DELTA:g})",))


_TOO_FINE = 256  # rows: with blocks, or "elsewhere", more cells than a task may have
_CASES = (
    (20_000, 128),
    (200_000, 128),
    (1_000_000, 128),
    (200_000, 256),
    (1_000_000, 256),
    (200_000, 1_024),
    (1_000_000, 1_024),
)


def _population(n: int, rows: int, entropy: Entropy, *, crowds: bool) -> Grid:
    """Seven of ten devices near one of 60 places, the i-th with 1 / i as many as the first, and
    within a 500th of the map; the others anywhere.
    """
    counts = np.zeros((rows, rows))
    weights = [1.0 / rank for rank in range(1, _CLUSTERS + 1)]
    near = 0.7 * n / sum(weights) if crowds else 0.0
    left = n
    for weight in weights:
        middle = np.array([below(1 << 20, entropy) for _ in range(2)]) / (1 << 20)
        count = int(near * weight)
        left -= count
        normal = np.sqrt(-2 * np.log(1 - _uniform(count, entropy)))
        angle = 2 * math.pi * _uniform(count, entropy)
        around = np.stack([normal * np.cos(angle), normal * np.sin(angle)]) / 500
        _add(counts, np.clip(middle[:, None] + around, 0.0, 1.0 - 1e-9))
    _add(counts, np.stack([_uniform(left, entropy), _uniform(left, entropy)]))
    return counts


def _uniform(count: int, entropy: Entropy) -> Grid:
    """float64[count] in [0, 1)."""
    words = np.frombuffer(entropy.bytes(8 * count), dtype="<u8")
    return np.asarray((words >> np.uint64(11)) / float(1 << 53), dtype=np.float64)


def _add(counts: Grid, places: Grid) -> None:
    row, column = (places * len(counts)).astype(np.int64)
    np.add.at(counts, (row, column), 1.0)


def _noise(shape: tuple[int, ...], mean: float, entropy: Entropy) -> Grid:
    """Poisson numbers less their mean: the next uniform numbers through the inverse of the law."""
    most = math.ceil(mean + 12 * math.sqrt(mean) + 30)
    log = np.arange(most) * math.log(mean) - mean
    log -= np.array([math.lgamma(at + 1.0) for at in range(most)])
    drawn = np.searchsorted(np.cumsum(np.exp(log)), _uniform(math.prod(shape), entropy))
    return np.asarray(drawn.reshape(shape) - mean, dtype=np.float64)


def _ways(n: int, rows: int) -> Iterator[_Way]:
    cells = rows * rows  # "elsewhere" apart
    if cells <= LIMITS.cells:
        law = design_dummies(cells, n, _EPSILON, _DELTA, windows=1)
        yield _Way("flat grid, dummies", float(law.mean_messages), _flat(float(law.dummies)))
        signed = design_cancelling(Truth.CELL, cells, n, _EPSILON, _DELTA, windows=1)
        if signed.slots <= LIMITS.messages:
            yield _Way("flat grid, cancelling", float(signed.mean_messages), _signed(signed))
    if rows < _TOO_FINE:
        grid = usual_grid(rows, rows)  # with a cell for "elsewhere"
        blocks = design_dummies(grid.nodes, n, _EPSILON, _DELTA, windows=1, tables=2)

        def in_blocks(truth: Grid, entropy: Entropy) -> Grid:
            own = np.append(truth.reshape(-1), 0.0)
            up = np.array([grid.path(cell)[1] - grid.cells for cell in range(grid.cells)])
            nodes = np.append(own, np.bincount(up, own, grid.blocks))
            nodes = nodes + _noise(nodes.shape, float(blocks.dummies), entropy)
            return fitted(grid, nodes, float(truth.sum()))[:-1].reshape(truth.shape)

        yield _Way("blocks", float(blocks.mean_messages), in_blocks)
    cell_m = max(_BOX.cell_height_m, _BOX.cell_width_m) / rows * 1.0001
    request = DiscoveryRequest(n, _EPSILON, _DELTA)
    plan = plan_places(request, _BOX, cell_m, across=2 if rows < _TOO_FINE else 4).plan
    yield _Way("tree", plan.messages(plan.discovery.size), _tree(plan))


def _flat(dummies: float) -> Callable[[Grid, Entropy], Grid]:
    return lambda truth, entropy: truth + _noise(truth.shape, dummies, entropy)


def _signed(law: NoiseLaw) -> Callable[[Grid, Entropy], Grid]:
    """The difference of two geometric numbers, each uniform through the inverse of its law."""
    ratio = float(law.singles)

    def draw(truth: Grid, entropy: Entropy) -> Grid:
        size = truth.size
        one, other = (
            np.floor(np.log(1 - _uniform(size, entropy)) / math.log(ratio)) for _ in range(2)
        )
        return np.asarray(truth + (one - other).reshape(truth.shape), dtype=np.float64)

    return draw


def _tree(plan: DiscoveryPlan) -> Callable[[Grid, Entropy], Grid]:
    """Level after level; each part that is not followed is spread evenly over its cells."""
    discovery, n = plan.discovery, plan.request.n
    paths = discovery.alphabet
    if not isinstance(paths, PlacePaths):
        raise TypeError("a plan of places")
    across, dummies = paths.across, plan.dummies

    def draw(truth: Grid, entropy: Entropy) -> Grid:
        rows, found = len(truth), np.zeros_like(truth)
        parents: list[bytes] = []
        for number in range(discovery.levels):
            lines = across ** (discovery.first + number)
            side = rows // lines
            counts = truth.reshape(lines, side, lines, side).sum(axis=(1, 3))
            level = discovery.level(number, parents)
            told = counts + _noise(counts.shape, dummies, entropy)
            asked = np.ones((lines, lines), dtype=bool)
            if number:
                asked[:] = False
                for parent in parents:
                    row, column, _ = paths.place_of(parent)
                    asked[
                        row * across : (row + 1) * across, column * across : (column + 1) * across
                    ] = True
            wide = np.kron(asked, np.ones((side, side))) > 0
            # for sums: cells of a part are moved alike, to what the part was found to have
            half = lines // across
            parts = found.reshape(half, rows // half, half, rows // half).sum(axis=(1, 3))
            inside = told.reshape(half, across, half, across).sum(axis=(1, 3))
            moved = np.kron((parts - inside) / across**2, np.ones((across, across)))
            fitted = told + moved if number else told
            found[wide] = np.kron(fitted / side**2, np.ones((side, side)))[wide]
            least = threshold(histogram_of(plan.made, level), discovery.levels, n)
            reached = np.argwhere(asked & (told >= least))
            order = np.argsort([-told[row, column] for row, column in reached], kind="stable")
            parents = sorted(
                _path(int(row), int(column), across, discovery.first + number)
                for row, column in reached[order[: discovery.most]]
            )
            if not parents:
                break
        return found

    return draw


def _path(row: int, column: int, across: int, depth: int) -> bytes:
    return bytes(
        row // across**at % across * across + column // across**at % across
        for at in reversed(range(depth))
    )


def _errors(truth: Grid, way: _Way, runs: int) -> tuple[float, float]:
    """Root mean squares: of rectangles with ends drawn evenly, and of the cells with most."""
    rows = len(truth)
    entropy = SeededEntropy("rectangles")
    ends = np.sort(
        np.array([below(rows + 1, entropy) for _ in range(4 * _RECTANGLES)]).reshape(-1, 2, 2)
    )
    most = np.argsort(-truth.reshape(-1))[:_CROWDED]
    rectangles, cells = list[float](), list[float]()
    for number in range(runs):
        apart = way.draw(truth, streamed(SeededEntropy(f"run {number}"))) - truth
        sums = np.pad(np.cumsum(np.cumsum(apart, axis=0), axis=1), ((1, 0), (1, 0)))
        (low, high), (left, right) = ends[:, 0].T, ends[:, 1].T
        errors = sums[high, right] - sums[low, right] - sums[high, left] + sums[low, left]
        rectangles.append(float(np.mean(errors**2)))
        cells.append(float(np.mean(apart.reshape(-1)[most] ** 2)))
    return math.sqrt(np.mean(rectangles)), math.sqrt(np.mean(cells))
