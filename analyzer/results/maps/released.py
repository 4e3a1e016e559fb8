"""The map of a release: where its cells lie, and any rectangle of them, asked at any time after it.

*In blocks* (mechanism ``blocks``) the cells are consistent: the best estimate of a rectangle is the
sum of its cells, and its standard error follows from the blocks (``mechanisms.maps``).

*Without blocks* the cells of a map are estimated one by one, and their true sum is known: the
number n of devices. Let a rectangle have m of the k cells ("elsewhere" among them), and let a true
message, or a report, count in its device's cell with probability p and in another given one with
probability q (p = 1, q = 0 where true messages are not randomized), beside independent noise of
standard deviation s in each cell. The estimate is

    sum of its cells + (m / k) (n - sum of all cells),

unbiased, since every cell is. Its error has two independent parts. Of the noise m (1 - m / k) s^2
is left. Of the draws the correction takes nothing, as every device counts in one cell: with h
devices in the rectangle h a (1 - a) + (n - h) b (1 - b), where a = p + (m - 1) q and b = m q. Both
are divided by (p - q)^2. h is the estimate, kept from 0 to n. (Checked against many batches:
tests/unit/analyzer/results/maps/test_released.py.)

Intervals are 1.96 standard errors: a rectangle adds up the noise of many counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.arrays import np
from shoal.domain import Domain, Places
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism
from shoal.mechanisms.base import Z
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.maps.block_squares import (
    BlockGrid,
    mean_rectangle_variance,
    rectangle_variance,
)
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.protocol import Several
from shoal.privacy import KaryLaw
from shoal.protos import release_pb2
from shoal.questions.coordinates import MICRO
from shoal.questions.domain_codec import encode_places

BOUNDS = "south", "west", "north", "east"
_NEAR = 0.01  # of a cell: an edge that is typed in fewer digits


@dataclass(frozen=True, slots=True)
class RectangleCount:
    """``value`` devices in a box of degrees, estimated, with its standard error and interval of
    95 %.
    """

    south: float
    west: float
    north: float
    east: float
    value: float
    stderr: float
    ci_low: float
    ci_high: float

    def to_json(self) -> dict[str, float]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RectangleLaw:
    """What the error of a rectangle follows from, as the module's text has it: ``noise`` s in
    devices, ``kept`` p (0: nothing is known of it), ``other`` q, ``side`` of blocks or 0.
    """

    noise: float
    kept: float
    other: float
    side: int = 0

    def stderr(
        self,
        places: Places,
        rows: tuple[int, int],
        columns: tuple[int, int],
        devices: int,
        holders: float,
    ) -> float:
        """In devices, of the cells in these rows and columns (first, end), of which ``holders`` of
        ``devices`` are.
        """
        if self.side:
            grid = BlockGrid(places.rows, places.columns, self.side)
            return math.sqrt(rectangle_variance(grid, rows, columns)) * self.noise
        cells = (rows[1] - rows[0]) * (columns[1] - columns[0])
        inside = self.kept + (cells - 1) * self.other
        outside = cells * self.other
        held = min(max(holders, 0.0), float(devices))
        noise = cells * (1.0 - cells / places.size) * self.noise**2
        draws = held * inside * (1.0 - inside) + (devices - held) * outside * (1.0 - outside)
        return math.sqrt(max(noise + draws, 0.0)) / (self.kept - self.other)

    def mean_stderr(self, places: Places, devices: int) -> float:
        """In devices: the root of the mean square over all rectangles of one cell or more, devices
        being spread evenly over all cells. Not a number where nothing is known.
        """
        if self.side:
            grid = BlockGrid(places.rows, places.columns, self.side)
            return math.sqrt(mean_rectangle_variance(grid)) * self.noise
        gap = self.kept - self.other
        if gap <= 0.0:
            return math.nan
        heights, widths = (np.arange(1, lines + 1) for lines in (places.rows, places.columns))
        cells = np.outer(heights, widths).astype(np.float64)
        often = np.outer(places.rows + 1 - heights, places.columns + 1 - widths)
        held, outside = devices * cells / places.size, cells * self.other
        inside = gap + outside
        noise = cells * (1.0 - cells / places.size) * self.noise**2
        draws = held * inside * (1.0 - inside) + (devices - held) * outside * (1.0 - outside)
        return math.sqrt(float(np.average(noise + draws, weights=often))) / gap


def law_of_rectangles(made: Mechanism | Several, reports: int) -> RectangleLaw:
    """Of a mechanism's estimates of so many reports."""
    if isinstance(made, MapBlocks):
        return RectangleLaw(made.node_stderr(reports), 1.0, 0.0, made.grid.side)
    if isinstance(made, BundledHistogram):
        kept, other = _chances(made.truth_law)
        return RectangleLaw(noise_of_batch.deviation(made.noise, reports), kept, other)
    if isinstance(made, KaryResponse):
        return RectangleLaw(0.0, *_chances(made.privacy()))
    return RectangleLaw(0.0, 0.0, 0.0)


def _chances(law: KaryLaw | None) -> tuple[float, float]:
    return (1.0, 0.0) if law is None else (law.same / law.total, law.other / law.total)


def map_message(
    made: Mechanism | Several, domain: Domain, reports: int
) -> release_pb2.ReleasedMap | None:
    """What a signed release says of its map; None of another question."""
    if not isinstance(domain, Places):
        return None
    law = law_of_rectangles(made, reports)
    return release_pb2.ReleasedMap(
        places=encode_places(domain),
        side=law.side,
        noise_stderr=law.noise,
        kept=law.kept,
        other=law.other,
    )


def map_shown(release: release_pb2.Release) -> dict[str, Any] | None:
    """The same in the JSON of a release, bounds in degrees; None of one that has none, or is
    withheld.
    """
    if release.withheld or not release.HasField("map"):
        return None
    stated, box = release.map, release.map.places
    return {
        **{name: getattr(box, name) / MICRO for name in BOUNDS},
        "rows": box.rows,
        "columns": box.columns,
        "side": stated.side,
        "noise_stderr": stated.noise_stderr,
        "kept": stated.kept,
        "other": stated.other,
    }


def places_of(shown: Mapping[str, Any]) -> Places:
    """The map of ``map_shown``. Raises INVALID for what is none."""
    south, west, north, east = (round(shown[name] * MICRO) for name in BOUNDS)
    return Places(south, west, north, east, shown["rows"], shown["columns"])


def law_shown(shown: Mapping[str, Any]) -> RectangleLaw:
    """What the errors of its rectangles follow from. Raises INVALID for blocks that don't fit."""
    if shown["side"]:
        BlockGrid(shown["rows"], shown["columns"], shown["side"])
    return RectangleLaw(shown["noise_stderr"], shown["kept"], shown["other"], shown["side"])


def rectangle_of(
    release: Mapping[str, Any],
    south: float | None = None,
    west: float | None = None,
    north: float | None = None,
    east: float | None = None,
) -> RectangleCount:
    """Of a release in its JSON shape; bounds in degrees, edges of cells; None: that of the map.
    Raises CONFIG, in a line that says how to mend it, for a release without a map, for one whose
    mechanism does not tell how much a rectangle errs, and for bounds that it does not have.
    """
    places, law = _asked(release)
    rows = _span("latitude", places.row_edges, south, north)
    columns = _span("longitude", places.column_edges, west, east)
    values = [float(row["value"]) for row in release["estimates"]]
    found = math.fsum(
        values[row * places.columns + column] for row in range(*rows) for column in range(*columns)
    )
    devices = int(release["n"])
    if not law.side:
        cells = (rows[1] - rows[0]) * (columns[1] - columns[0])
        found += cells / places.size * (devices - math.fsum(values))
    error = law.stderr(places, rows, columns, devices, found)
    return RectangleCount(
        *(places.row_edges[rows[0]] / MICRO, places.column_edges[columns[0]] / MICRO),
        *(places.row_edges[rows[1]] / MICRO, places.column_edges[columns[1]] / MICRO),
        found,
        error,
        found - Z * error,
        found + Z * error,
    )


def _asked(release: Mapping[str, Any]) -> tuple[Places, RectangleLaw]:
    shown = release.get("map")
    where = f"{release['name']}, window {release['window']}"
    if not shown:
        raise ShoalError(
            Kind.CONFIG,
            f"{where}: no rectangle can be asked of it: give a release of a question for places "
            "that was not withheld",
        )
    places, law = places_of(shown), law_shown(shown)
    if law.kept <= law.other:
        raise ShoalError(
            Kind.CONFIG,
            f"{where}: its mechanism does not tell how much a rectangle errs: add up its cells "
            "yourself, or ask by blocks, cancelling, dummies or krr next time",
        )
    if len(release["estimates"]) != places.size:
        raise ShoalError(Kind.INVALID, f"{where}: a map has an estimate for every cell")
    return places, law


def _span(
    what: str, edges: Sequence[int], low: float | None, high: float | None
) -> tuple[int, int]:
    """(first, end) of the lines between two edges. Raises CONFIG."""
    first = 0 if low is None else _edge(what, edges, low)
    end = len(edges) - 1 if high is None else _edge(what, edges, high)
    if first >= end:
        raise ShoalError(
            Kind.CONFIG,
            f"a rectangle ends above its beginning: give a larger {what} for its "
            f"{'northern' if what == 'latitude' else 'eastern'} edge",
        )
    return first, end


def _edge(what: str, edges: Sequence[int], given: float) -> int:
    """The edge that is meant. Raises CONFIG."""
    if math.isfinite(given):
        micro = given * MICRO
        near = min(range(len(edges)), key=lambda at: abs(edges[at] - micro))
        if abs(edges[near] - micro) <= _NEAR * (edges[-1] - edges[0]) / (len(edges) - 1) + 0.5:
            return near
        beside = sorted(range(len(edges)), key=lambda at: abs(edges[at] - micro))[:2]
        nearest = " or ".join(f"{edges[at] / MICRO:.6f}" for at in sorted(beside))
    else:
        nearest = f"{edges[0] / MICRO:.6f}"
    raise ShoalError(
        Kind.CONFIG,
        f"a rectangle begins and ends at the edges of cells, got {what} {given:g}: give {nearest}",
    )
