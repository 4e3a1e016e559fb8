"""Privacy by distance: what a mechanism on a map promises of two places d kilometres apart, and
what a move of at most r metres gives away behind the shuffler.

**Per kilometre** (Chatzikokolakis, Andres, Bordenabe, Palamidessi, PETS 2013: a mechanism is
d-private if ln P(y | x) / P(y | x') <= e d(x, x') for all x, x', y). e is the largest of (the
largest log-ratio of two rows of the law's own integers) / (the distance of their cells), over all
pairs of cells of the map. Distances never exceed those on the ground (``questions.plane``).

**Between points, not cells.** A device is at a point, and all points of a cell answer alike. Two
points d apart lie in cells whose centres are at most d + g apart, g the diagonal of a cell. So a
report changes the odds between them by at most exp(e (d + g)); two points on both sides of a line
between cells are told apart as the cells are. (Cells of a map end at whole microdegrees: g and gaps
between cells allow for that.)

**Within r.** ``Move`` is about every two points of the map at most r apart: every pair of cells
whose nearest points are. Its local epsilon is the largest ratio of these rows. Behind the shuffler:
Lemma 5.3 of the blanket (Balle, Bell, Gascon, Nissim, CRYPTO 2019) bounds the divergence of *one*
pair of answers of one device, whatever all others answer; so its largest value over these pairs
holds for replacing an answer by one at most r away, with the others anywhere. The blanket is that
of all cells, elsewhere included. The clones' theorem at exp(e r) would be wrong: the others may be
far away, and their reports need not look like those of the two places but for exp(-epsilon0).

**Repeated.** Log-ratios of independent draws add up: of t windows, e t per kilometre.

**Rounding.** Up. Logarithms of ratios are of exact fractions (``log_upper``) but for the table of
all of them: there floats are good to 2e-14 (a logarithm below 45, of a correctly rounded integer),
five times of that is added. **Checked** against fractions over all x, x', y of small maps, and the
bound behind the shuffler against every dataset (tests/unit/accounting/test_metric.py).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from shoal.accounting.bounds.many_pairs import some_pairs
from shoal.accounting.certificate import check_delta
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.numerics.curve import LARGEST_N
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, log_upper
from shoal.questions.plane import MM_PER_KM, Plane

_LOGS = 1e-13  # added to every difference of two logarithms
_UP = 1.0 + 1e-14
# Edges of cells are whole microdegrees, 112 mm at most: a point may be so far outside of its cell
# on the plane, each way; two points together by the diagonal of twice that.
_EDGE, _BESIDE = 112.0, 320
# of epsilon0: where shuffling hides less of the whole map than that, moves are not looked at
_AMPLIFIED = 0.95
_MOVES = 4  # radii that are told of: half a cell, and its doubles


@runtime_checkable
class OnAMap(Protocol):
    """A mechanism whose cells lie on a plane, but for the last one, elsewhere."""

    @property
    def plane(self) -> Plane:
        """Where its cells lie."""
        ...

    def privacy(self) -> FiniteLaw:
        """Rows and outputs: the cells of the map, row by row from the south-west, and the last."""
        ...


@dataclass(frozen=True, slots=True)
class Move:
    """Two places at most ``radius_m`` metres apart. ``epsilon0``: seen alone, of one report.
    ``epsilon_upper``: behind the shuffler, at the task's delta. Direction: upper bounds.
    """

    radius_m: float
    epsilon0: float
    epsilon_upper: float


@dataclass(frozen=True, slots=True)
class MetricGuarantee:
    """``epsilon_per_km``: upper bound of one report, for cells' centres; ``diagonal_m``: of a cell,
    rounded up; ``epsilon0``: over the whole map and elsewhere; ``epsilon_elsewhere``: between any
    place of the map and elsewhere; ``moves``: by radius, growing.
    """

    epsilon_per_km: float
    diagonal_m: float
    across_m: float
    epsilon0: float
    epsilon_elsewhere: float
    delta: float
    n_honest: int
    moves: tuple[Move, ...]

    def between(self, metres: float) -> float:
        """The largest log-ratio of a report under two points so many metres apart. Direction: upper
        bound; never above epsilon0.
        """
        if not (math.isfinite(metres) and metres >= 0.0):
            raise ShoalError(
                Kind.CONFIG, "a distance is a finite number of metres, 0 or more: give one"
            )
        bound = self.epsilon_per_km * ((metres + self.diagonal_m) / 1000.0) * _UP
        return min(self.epsilon0, bound)

    def to_json(self) -> dict[str, Any]:
        """As a release has it (``privacy.metric``), but for the words."""
        return {
            "epsilon_per_km": self.epsilon_per_km,
            "cell_diagonal_m": self.diagonal_m,
            "across_m": self.across_m,
            "epsilon_elsewhere": self.epsilon_elsewhere,
            "moves": [asdict(move) for move in self.moves],
        }

    def repeated(self, windows: int) -> float:
        """Epsilon per kilometre of so many windows together, each drawn anew. Upper bound."""
        return math.nextafter(windows * self.epsilon_per_km, math.inf)


def epsilon_per_km(law: FiniteLaw, plane: Plane) -> float:
    """As the module says. Raises INVALID for a law of other cells. Direction: upper bound."""
    logs = _logs(law, plane)
    rows, columns = _places(plane)
    most = 0.0
    for cell in _images(law, plane).tolist():
        apart = np.hypot(
            (rows - rows[cell]) * float(plane.height),
            (columns - columns[cell]) * float(plane.width),
        )
        ratios = (logs[cell] - logs).max(axis=1) + _LOGS
        ratios[cell], apart[cell] = 0.0, 1.0
        most = max(most, float((ratios / apart).max()))
    return most * MM_PER_KM * _UP


def within(plane: Plane, radius_m: float) -> NDArray[np.bool_]:
    """bool[cells + 1, cells + 1]: which different cells of the map have points at most ``radius_m``
    metres apart; never elsewhere. Neighbours always.
    """
    rows, columns = _places(plane)
    down = _gaps(rows, plane.height)
    across = _gaps(columns, plane.width)
    asked = np.zeros((plane.cells + 1, plane.cells + 1), dtype=np.bool_)
    # a little more than the radius: what rounding could leave out
    asked[:-1, :-1] = np.hypot(down, across) <= radius_m * 1000.0 * (1.0 + 1e-12)
    np.fill_diagonal(asked, False)
    return asked


def _gaps(lines: NDArray[np.int64], side: int) -> NDArray[np.float64]:
    """float64[cells, cells]: millimetres between two cells along one axis, at least."""
    between = np.maximum(np.abs(lines[:, None] - lines) - 1, 0) * float(side)
    return np.asarray(np.maximum(between - _EDGE, 0.0))


def epsilon_within(law: FiniteLaw, asked: NDArray[np.bool_]) -> float:
    """The largest log-ratio of two rows that are ``asked`` for: of exact fractions, but for which
    of them is the largest. Direction: upper bound.
    """
    logs = _all_logs(law)
    most, pair = 0.0, None
    for cell in range(len(law.rows)):
        others = np.flatnonzero(asked[cell])
        if not len(others):
            continue
        ratios = logs[cell] - logs[others]
        at = int(ratios.argmax())
        if float(ratios.flat[at]) > most:
            most = float(ratios.flat[at])
            other, output = divmod(at, ratios.shape[1])
            pair = Fraction(law.rows[cell][output], law.rows[int(others[other])][output])
    if pair is None:
        return 0.0
    # another pair may be larger by what logarithms are rounded by
    return max(log_upper(max(pair, Fraction(1))), most) + _LOGS


def moves_upper(
    law: FiniteLaw,
    plane: Plane,
    asked: NDArray[np.bool_],
    n_honest: int,
    delta: float,
    ceiling: float,
) -> float:
    """The smallest epsilon proven at ``delta`` for changing one answer as ``asked``, among
    ``n_honest`` reports; ``ceiling``, which is proven otherwise, where this proves nothing smaller.
    ``asked`` is its own mirror image, as the map is. Direction: upper bound.
    """
    if n_honest < 2 or not asked.any():
        return ceiling
    from_images = np.zeros_like(asked)
    first = _images(law, plane)
    from_images[first] = asked[first]
    pairs = some_pairs(law, from_images)
    if pairs is None:
        return ceiling
    return min(ceiling, pairs.bound(min(n_honest, LARGEST_N), delta, ceiling))


def metric_guarantee(
    mechanism: OnAMap,
    n_honest: int,
    delta: float,
    epsilon_upper: float,
    radii_m: tuple[float, ...] = (),
) -> MetricGuarantee:
    """What a mechanism on a map promises by distance. ``n_honest``, ``delta``, ``epsilon_upper``:
    of the certificate over the whole map. ``radii_m``: metres, of moves that are told of; empty:
    half of a cell's shorter side, and its doubles up to half of the map. Raises CONFIG for bad
    numbers.
    """
    check_delta(delta)
    if any(not (math.isfinite(radius) and radius >= 0.0) for radius in radii_m):
        raise ShoalError(Kind.CONFIG, "a radius is a finite number of metres, 0 or more: give one")
    return _made(
        mechanism.privacy(), mechanism.plane, n_honest, delta, epsilon_upper, tuple(sorted(radii_m))
    )


def metric_of(mechanism: object, guarantee: Guarantee) -> MetricGuarantee | None:
    """What a task's mechanism promises by distance beside ``guarantee``; None where its cells do
    not lie on a map.
    """
    if not isinstance(mechanism, OnAMap):
        return None
    return metric_guarantee(mechanism, guarantee.n_honest, guarantee.delta, guarantee.epsilon_upper)


@lru_cache(maxsize=8)  # the same task is explained, linted, shown and released
def _made(
    law: FiniteLaw,
    plane: Plane,
    n_honest: int,
    delta: float,
    epsilon_upper: float,
    radii_m: tuple[float, ...],
) -> MetricGuarantee:
    ends = np.zeros((plane.cells + 1,) * 2, dtype=np.bool_)
    ends[-1, :-1] = ends[:-1, -1] = True
    moves, whole = [], log_upper(law.max_ratio)
    for radius in radii_m or _radii(plane):
        asked = within(plane, radius)
        local = epsilon_within(law, asked)
        central = min(local, epsilon_upper)
        if epsilon_upper < _AMPLIFIED * whole:
            central = moves_upper(law, plane, asked, n_honest, delta, central)
        moves.append(Move(radius, local, central))
    return MetricGuarantee(
        epsilon_per_km=epsilon_per_km(law, plane),
        diagonal_m=(math.ceil(math.hypot(plane.width, plane.height) * _UP) + _BESIDE) / 1000.0,
        across_m=plane.diameter / 1000.0,
        epsilon0=whole,
        epsilon_elsewhere=epsilon_within(law, ends),
        delta=delta,
        n_honest=n_honest,
        moves=tuple(moves),
    )


def _radii(plane: Plane) -> tuple[float, ...]:
    """Metres: two digits, from half of a cell's shorter side on."""
    first = min(
        side
        for side, count in ((plane.width, plane.columns), (plane.height, plane.rows))
        if count > 1
    )
    radii = [float(f"{first * 2**i / 2000.0:.2g}") for i in range(_MOVES)]
    return tuple(dict.fromkeys(r for r in radii if r <= plane.diameter / 2000.0)) or (radii[0],)


def _images(law: FiniteLaw, plane: Plane) -> NDArray[np.int64]:
    """The cells of the map that stand for all: those of its south-western quarter where the law is
    its own mirror image both ways, by its integers; else all of them.
    """
    rows, columns = _places(plane)
    table = np.array(law.rows, dtype=np.uint64)
    for at, across in ((plane.rows - 1 - rows, columns), (rows, plane.columns - 1 - columns)):
        mirror = np.append(at * plane.columns + across, plane.cells)
        if not np.array_equal(table[mirror][:, mirror], table):
            return np.arange(plane.cells)
    return np.flatnonzero((2 * rows < plane.rows) & (2 * columns < plane.columns))


def _places(plane: Plane) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = np.divmod(np.arange(plane.cells), plane.columns)
    return rows, columns


def _all_logs(law: FiniteLaw) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(np.array(law.rows, dtype=np.float64))
    return logs


def _logs(law: FiniteLaw, plane: Plane) -> NDArray[np.float64]:
    if len(law.rows) != plane.cells + 1:
        raise ShoalError(
            Kind.INVALID,
            "a law on a map has a row for every cell and one for elsewhere: give the task's own",
        )
    return _all_logs(law)[:-1]
