"""Ranges of a release: how many devices have a value from here to there, asked at any time after
it.

The estimates of the cells are consistent: the best estimate of any range is the sum of its cells.
Their errors are not independent, so its standard error is not theirs added up: it follows, exactly,
from the hierarchy that the cells were made over and the noise of one of its nodes
(``mechanisms.several.least_squares``), which a release states.

*Over bins* a range has the bins from the one that begins at ``low`` to the one that ends at
``high``. *Over levels* it has the levels from ``low`` to ``high``, both of them. A number between
two levels was rounded to one of them at random, so at either end of the range it counts by how near
it is to the level that is in it; what these draws add to the variance, a quarter for each device on
the two levels beside an end at most, is in the standard error.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from shoal.arrays import np
from shoal.domain import Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Z
from shoal.mechanisms.several.least_squares import mean_range_variance, range_variance
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.tree import CellTree
from shoal.protos import release_pb2

_NEAR = 0.01  # of the distance to the next one: an end that is typed in fewer digits


@dataclass(frozen=True, slots=True)
class RangeCount:
    """``value`` devices from ``low`` to ``high``, estimated, with its standard error and interval
    of 95 %. ``high``: None in a last bin, which has no upper end.
    """

    low: float
    high: float | None
    value: float
    stderr: float
    ci_low: float
    ci_high: float

    def to_json(self) -> dict[str, float | None]:
        """Plain JSON values."""
        return asdict(self)


def ranges_message(made: Ranges, reports: int) -> release_pb2.Ranges:
    """What a signed release says of them."""
    domain = made.domain
    if isinstance(domain, Numeric):
        starts = [domain.low + at * domain.step for at in range(domain.levels)]
    else:
        starts = [float(bound) for bound in domain.lower_bounds]
    return release_pb2.Ranges(
        base=made.tree.base,
        levels=made.tree.levels,
        node_stderr=made.node_stderr(reports),
        starts=starts,
        rounded=isinstance(domain, Numeric),
    )


def ranges_shown(release: release_pb2.Release) -> dict[str, Any] | None:
    """The same in the JSON of a release; None of one that has none, or is withheld."""
    if release.withheld or not release.HasField("ranges"):
        return None
    stated = release.ranges
    return {
        "base": stated.base,
        "levels": stated.levels,
        "node_stderr": stated.node_stderr,
        "starts": list(stated.starts),
        "rounded": stated.rounded,
    }


def mean_stderr(shown: Mapping[str, Any]) -> float:
    """The root of the mean square over all ranges of cells, in devices. ``shown``: of
    ``ranges_shown``.
    """
    return math.sqrt(mean_range_variance(_tree(shown))) * float(shown["node_stderr"])


def range_of(release: Mapping[str, Any], low: float, high: float | None) -> RangeCount:
    """Of a release in its JSON shape; ``high`` None: to the end. Raises CONFIG, in a line that says
    how to mend it, for a release without ranges and for ends that it does not have.
    """
    shown = release.get("ranges")
    if not shown:
        raise ShoalError(
            Kind.CONFIG,
            f"{release['name']}, window {release['window']}: no ranges can be asked of it: give a "
            "release of the mechanism ranges that was not withheld",
        )
    rows, starts, tree = release["estimates"], shown["starts"], _tree(shown)
    if len(rows) != tree.cells:
        raise ShoalError(Kind.INVALID, "a release with ranges has an estimate for every cell")
    labels = [row["label"] for row in rows]
    rounded, last = bool(shown["rounded"]), len(starts)
    first = _place("a range begins", starts, labels, low)
    end = last if high is None else _place("a range ends", starts, labels, high) + rounded
    if not first < end:
        raise ShoalError(Kind.CONFIG, f"a range ends above its beginning, got {low:g} to {high:g}")
    values = [float(row["value"]) for row in rows]
    at, to = (np.array([each], dtype=np.int64) for each in (first, end))
    variance = float(range_variance(tree, at, to)[0]) * float(shown["node_stderr"]) ** 2
    if rounded:
        variance += sum(_rounding(values, edge) for edge in (first, end) if 0 < edge < last)
    value, error = math.fsum(values[first:end]), math.sqrt(variance)
    stop = starts[end - 1] if rounded else None if end == last else starts[end]
    return RangeCount(starts[first], stop, value, error, value - Z * error, value + Z * error)


def _rounding(values: Sequence[float], edge: int) -> float:
    """What rounding adds at an end that lies between the cells ``edge`` - 1 and ``edge``."""
    return max(0.0, values[edge - 1] + values[edge]) / 4.0


def _tree(shown: Mapping[str, Any]) -> CellTree:
    return CellTree(len(shown["starts"]) + 1, shown["base"], shown["levels"])


def _place(what: str, starts: Sequence[float], labels: Sequence[str], end: float) -> int:
    """The cell whose beginning is meant. Raises CONFIG."""
    if math.isnan(end):
        raise ShoalError(Kind.CONFIG, f"{what} at a number, got none: give one of the release")
    above = min(bisect_left(starts, end), len(starts) - 1)
    near = min((max(above - 1, 0), above), key=lambda at: abs(starts[at] - end))
    distance = min(high - low for low, high in pairwise(starts[max(near - 1, 0) : near + 2]))
    if abs(starts[near] - end) <= _NEAR * distance or _is_label(labels[near], end):
        return near
    below = max(above - 1, 0)
    beside = sorted({f"{starts[at]:.12g}" for at in (below, above)}, key=float)
    raise ShoalError(
        Kind.CONFIG,
        f"{what} at one of the {len(starts):,} cells of the release, got {end:g}: give "
        f"{' or '.join(beside)}",
    )


def _is_label(label: str, end: float) -> bool:
    try:
        return float(label) == end
    except ValueError:
        return False
