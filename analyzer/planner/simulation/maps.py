"""A map played with made-up devices: every message of every device is drawn by the production
randomizer, tallied and estimated as an analyzer does it, beside the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from shoal.analyzer.planner.frontier.maps import MapWay
from shoal.analyzer.planner.question import wrong
from shoal.analyzer.results.maps.released import law_of_rectangles
from shoal.arrays import NDArray, np
from shoal.entropy import SYSTEM, Entropy
from shoal.mechanisms import Estimate
from shoal.mechanisms.base import Z
from shoal.mechanisms.several.protocol import Noisy
from shoal.questions.coordinates import MICRO

MOST_MESSAGES = 200_000_000
_BLOCK = 500  # devices
_MOST_RECTANGLES = 2_000
Cells: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True, eq=False)
class MapPlayed:
    """``truth``: int64[cells], devices; ``estimate``: as a release states it. ``rectangles``: the
    errors of rectangles spread over the map, ``said``: their stated standard errors, float64[m].
    """

    way: MapWay
    truth: Cells
    estimate: Estimate
    rectangles: NDArray[np.float64]
    said: NDArray[np.float64]

    @property
    def cell_error(self) -> float:
        """Root mean square over all cells, in devices."""
        return float(np.sqrt(np.mean((self.estimate.values - self.truth) ** 2)))

    @property
    def rectangle_error(self) -> float:
        """The same over the rectangles."""
        return float(np.sqrt(np.mean(self.rectangles**2)))

    @property
    def rectangle_said(self) -> float:
        """What was stated of them: root mean square of their standard errors."""
        return float(np.sqrt(np.mean(self.said**2)))

    @property
    def covered(self) -> float:
        """Share of the cells' intervals that hold the truth."""
        found = self.estimate
        return float(np.mean((found.ci_low <= self.truth) & (self.truth <= found.ci_high)))

    @property
    def rectangles_covered(self) -> float:
        """The same of the rectangles'."""
        return float(np.mean(np.abs(self.rectangles) <= Z * self.said))

    @property
    def release(self) -> dict[str, Any]:
        """The parts of a release that are drawn, in its JSON shape."""
        found, places = self.estimate, self.way.request.places
        law = law_of_rectangles(self.way.made, self.way.request.n)
        columns = found.values, found.stderr, found.ci_low, found.ci_high
        names = "value", "stderr", "ci_low", "ci_high"
        return {
            "n": self.way.request.n,
            "estimates": [
                {"label": label, **dict(zip(names, row, strict=True))}
                for label, row in zip(found.labels, np.stack(columns, axis=1).tolist(), strict=True)
            ],
            "map": {
                **{
                    name: getattr(places, name) / MICRO
                    for name in ("south", "west", "north", "east")
                },
                "rows": places.rows,
                "columns": places.columns,
                "side": law.side,
                "noise_stderr": law.noise,
                "kept": law.kept,
                "other": law.other,
            },
        }


def play_map(
    way: MapWay,
    cells: Cells,
    entropy: Entropy = SYSTEM,
    *,
    tell: Callable[[int], None] | None = None,
) -> MapPlayed:
    """One release of devices in these cells, int64[n], which ``way`` was planned for. ``tell``: how
    many devices were done since it was called last. Raises CONFIG for another number of devices,
    and for more messages than are drawn in half an hour.
    """
    n, made = len(cells), way.made
    if n != way.request.n:
        raise wrong("a map is played with as many devices as it was planned for")
    if n * way.messages > MOST_MESSAGES:
        raise wrong(
            f"{n:,} devices draw some {n * way.messages:.2g} messages one by one, and "
            f"{MOST_MESSAGES:,} are the most: give fewer places"
        )
    total = made.tally(np.zeros((0, made.report_size), dtype=np.uint8))
    for start in range(0, n, _BLOCK):
        block = cells[start : start + _BLOCK]
        reports = made.randomize(block, entropy)
        rows = reports if isinstance(reports, np.ndarray) else reports.rows
        total += made.tally(rows.reshape(-1, rows.shape[-1]))
        if tell is not None:
            tell(len(block))
    estimate = made.estimate(total, n) if isinstance(made, Noisy) else made.estimate(total)
    truth = np.bincount(cells, minlength=way.request.places.size)
    off, said = rectangle_errors(way, estimate, truth)
    return MapPlayed(way, truth, estimate, off, said)


def rectangle_errors(
    way: MapWay, estimate: Estimate, truth: Cells
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(errors, standard errors) of 2,000 rectangles, or of all where there are fewer: the same
    ones whatever came, spread over all that there are.
    """
    places, n = way.request.places, way.request.n
    law = law_of_rectangles(way.made, n)
    shape = places.rows, places.columns
    off = np.asarray(estimate.values - truth, dtype=np.float64)
    spread = 0.0 if law.side else -float(off.sum()) / places.size
    errors, held = _sums(off[:-1].reshape(shape)), _sums(truth[:-1].reshape(shape).astype(float))
    found, said = list[float](), list[float]()
    for rows, columns in _spread_over(*shape):
        cells = (rows[1] - rows[0]) * (columns[1] - columns[0])
        found.append(_within(errors, rows, columns) + spread * cells)
        holders = _within(held, rows, columns)
        said.append(law.stderr(places, rows, columns, n, holders))
    return np.array(found), np.array(said)


def _sums(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of all cells before a row and column."""
    out = np.zeros((table.shape[0] + 1, table.shape[1] + 1))
    out[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
    return out


def _within(sums: NDArray[np.float64], rows: tuple[int, int], columns: tuple[int, int]) -> float:
    (a, b), (c, d) = rows, columns
    return float(sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c])


def _spread_over(rows: int, columns: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rectangles (rows, columns), each (first, end): all, or 2,000 of them at equal steps."""
    down, across = rows * (rows + 1) // 2, columns * (columns + 1) // 2
    every = down * across
    step = max(1, every // _MOST_RECTANGLES)
    return [
        (_interval(at // across), _interval(at % across)) for at in range(step // 2, every, step)
    ]


def _interval(number: int) -> tuple[int, int]:
    """The interval of lines with that number, those that end first being the first."""
    end = int(np.sqrt(2 * number + 0.25) - 0.5)
    return number - end * (end + 1) // 2, end + 1
