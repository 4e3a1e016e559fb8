"""Places on a map, each reported as another one the less likely, the further off: geo-
indistinguishability in one message.

Andres, Bordenabe, Chatzikokolakis, Palamidessi, "Geo-indistinguishability: differential privacy for
location-based systems", CCS 2013, sections 3 and 4: a planar Laplace mechanism, on a grid,
truncated to a region. Chatzikokolakis, Andres, Bordenabe, Palamidessi, "Broadening the scope of
differential privacy using metrics", PETS 2013: privacy as a distance. A cell y is drawn for the
true cell x with

    P(y | x) proportional to a^d(x, y),   a = decay / 2^64,

d the distance of their centres in millimetres. ``maps.planar_weights`` has the draw that may leave
the map, the last cell (elsewhere, or no answer), and the integers.

**What is promised**, beside epsilon0 over the whole map: for all cells x, x' of the map and all
reports y, ln P(y | x) / P(y | x') <= e d(x, x'), e the epsilon per kilometre that
``accounting.metric`` reads off the integers. So nearby places hide one another well, and distant
ones badly: that is the point of it, and no mistake. It is *not* promised that nobody learns in
which town a device is.

**Which border.** By the sums of ``maps.planar_weights`` a draw on the map alone (``cut``) promises
up to twice the decay per kilometre, one with a border as wide as the map (``clamped``) nearly the
decay itself, and so may use less noise for the same promise. At equal *epsilon0* it is the other
way around: what is moved to the edges of the map tells nothing apart there. docs/MECHANISMS.md has
figures. Both are settings.

**When.** If the single report should be near the truth, as for a service that answers it, or if the
promise per kilometre is what owners were told. *Not* to count behind a shuffler: at equal central
epsilon ``krr`` errs less in every cell, and mostly in blocks of cells as well.

Counts are unbiased: the table is solved (``parts.solved``).

**Limits.** At most 1,024 cells on the map (32 x 32): the law that accountants look at has the
square of that. A device makes one row of it, without numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import ClassVar

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.mechanisms.base import Family, Parameter, Setting, invalid
from shoal.mechanisms.maps.planar_weights import PlaneWeights
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.decay import least_noise_of_rows
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.solved import SolvedResponse
from shoal.mechanisms.parts.tables import RowsResponse
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import FiniteLaw
from shoal.questions.places import Places
from shoal.questions.plane import LARGEST_CELL_MM, Plane, cell_size
from shoal.task import MechanismSpec

NAME = "planar"
MOST_CELLS = 1024
_MOST_BORDER = 1024
PARAMETERS = (
    Parameter(
        "border", 0, _MOST_BORDER, "cells around the map that a draw may fall on and is moved from"
    ),
    Parameter("columns", 1, MOST_CELLS, "columns of the map"),
    Parameter(
        "decay",
        1,
        WORDS - 1,
        "by how much, out of 2^64, a cell one millimetre further off is less likely",
    ),
    Parameter("height", 1, LARGEST_CELL_MM, "millimetres of a cell from south to north, at most"),
    Parameter("rows", 1, MOST_CELLS, "rows of the map"),
    Parameter("width", 1, LARGEST_CELL_MM, "millimetres of a cell from west to east, at most"),
)


@dataclass(frozen=True, slots=True)
class PlanarTable:
    """The rows of a ``PlaneWeights``, made when they are asked for."""

    weights: PlaneWeights
    _made: dict[int, tuple[int, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @property
    def cells(self) -> int:
        """Cells of the map, and the last one."""
        return self.weights.plane.cells + 1

    @property
    def outputs(self) -> int:
        """As many as cells."""
        return self.cells

    def row(self, cell: int) -> tuple[int, ...]:
        """``PlaneWeights.row``, made of the cell's image in the south-western quarter of the map,
        turned back: four rows for the work and the memory of one.
        """
        plane = self.weights.plane
        if cell == plane.cells:
            return self._of(cell)
        at, across = plane.place(cell)
        image = (min(at, plane.rows - 1 - at), min(across, plane.columns - 1 - across))
        made = self._of(image[0] * plane.columns + image[1])
        columns = plane.columns
        lines = [made[start : start + columns] for start in range(0, plane.cells, columns)]
        if image[0] != at:
            lines.reverse()
        if image[1] != across:
            lines = [line[::-1] for line in lines]
        return (*(each for line in lines for each in line), made[-1])

    def _of(self, image: int) -> tuple[int, ...]:
        if image not in self._made:
            self._made[image] = self.weights.row(image)
        return self._made[image]

    def thresholds(self, cell: int) -> tuple[int, ...]:
        """As ``tables.RowTable``."""
        return tuple(accumulate(self.row(cell)[:-1]))

    def draw(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """As ``tables.RowTable``. Rows of the cells that occur are made, no others."""
        cells.check_values(values, self.cells)
        drawn = np.empty(values.size, dtype=np.int64)
        ends = {
            cell: np.array(self.thresholds(cell), dtype=np.uint64)
            for cell in np.unique(values).tolist()
        }
        for part in blocks(values.size):
            here, words = values[part], entropy.words(part.stop - part.start)
            order = np.argsort(here, kind="stable")
            found, starts = np.unique(here[order], return_index=True)
            outputs = drawn[part]
            for cell, members in zip(
                found.tolist(), np.split(order, starts[1:].tolist()), strict=True
            ):
                outputs[members] = np.searchsorted(ends[cell], words[members], side="right")
        return drawn

    def law(self) -> FiniteLaw:
        """All rows."""
        return FiniteLaw(tuple(self.row(cell) for cell in range(self.cells)))

    def probabilities(self) -> NDArray[np.float64]:
        """float64[cells, outputs], each within a relative 1e-15."""
        return np.array(
            [np.array(self.row(cell), np.uint64) for cell in range(self.cells)]
        ) / float(WORDS)


@dataclass(frozen=True, slots=True)
class PlanarResponse(SolvedResponse):
    """``labels``: one per cell of the map, row by row from the south-west, and the last. ``border``
    >= 0 cells; 1 <= ``decay`` < 2^64.
    """

    labels: tuple[str, ...]
    plane: Plane
    border: int
    decay: int
    response: RowsResponse = field(init=False, repr=False, compare=False)
    _solved: list[NDArray[np.float64]] = field(init=False, repr=False, compare=False)
    fewer: ClassVar[str] = "fewer rows and columns"

    def __post_init__(self) -> None:
        table = PlanarTable(PlaneWeights(self.plane, self.border, self.decay))
        object.__setattr__(self, "response", RowsResponse(table))
        object.__setattr__(self, "_solved", [])

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    def privacy(self) -> FiniteLaw:
        """The table's own law: cells and outputs are those of the map, and the last."""
        return self.response.privacy()

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries."""
        plane = self.plane
        return MechanismSpec.of(
            NAME,
            border=self.border,
            columns=plane.columns,
            decay=self.decay,
            height=plane.height,
            rows=plane.rows,
            width=plane.width,
        )


def plane_of(domain: Domain) -> Plane:
    """The map of a question about places. Raises INVALID for another domain, or too many cells."""
    if not isinstance(domain, Places):
        raise invalid(f"{NAME} wants places on a map: use krr for categories, kmean for numbers")
    check_size(domain.rows, domain.columns)
    width, height = cell_size(
        domain.south, domain.west, domain.north, domain.east, domain.rows, domain.columns
    )
    return Plane(domain.rows, domain.columns, width, height)


def check_size(rows: int, columns: int) -> None:
    """Raises INVALID for a map of one cell, or of more than the accountant looks at."""
    if not 2 <= rows * columns <= MOST_CELLS:
        raise invalid(
            f"{NAME} wants a map of 2 to {MOST_CELLS:,} cells, such as 32 x 32: choose other rows "
            "and columns, or krr"
        )


def _create(spec: MechanismSpec, domain: Domain) -> PlanarResponse:
    largest = plane_of(domain)
    plane = Plane(spec.get("rows"), spec.get("columns"), spec.get("width"), spec.get("height"))
    if (plane.rows, plane.columns) != (largest.rows, largest.columns):
        raise invalid(
            f"{NAME}: rows and columns are those of the question's map: set rows = {largest.rows}, "
            f"columns = {largest.columns}"
        )
    for stated, most, what in (
        (plane.width, largest.width, "width"),
        (plane.height, largest.height, "height"),
    ):
        if stated > most:
            raise invalid(
                f"{NAME}: the cells of this map are less than {what} = {stated} millimetres: set "
                f"{what} = {most}, or less"
            )
    border, longest = spec.get("border"), max(plane.rows, plane.columns)
    if border > longest:  # it would take a device's memory and time, and change next to nothing
        raise invalid(f"{NAME}: a border is at most as wide as the map: set border = {longest}")
    return PlanarResponse(domain.labels, plane, border, spec.get("decay"))


def _stated(domain: Domain) -> Plane:
    """As a task states it: a millimetre below, since the cosines of two machines may round apart,
    and a device refuses cells that are larger than those of its own map.
    """
    plane = plane_of(domain)
    return Plane(plane.rows, plane.columns, max(1, plane.width - 1), max(1, plane.height - 1))


def _design(wide: bool, domain: Domain, epsilon0: float) -> MechanismSpec:
    """Raises INVALID where no counts could be made of the reports."""
    response = designed(domain.labels, _stated(domain), epsilon0, wide=wide)
    response.scores()
    return response.spec


def designed(
    labels: tuple[str, ...], plane: Plane, epsilon0: float, *, wide: bool = True
) -> PlanarResponse:
    """The one of the least noise with at most this epsilon0 over the whole map; ``wide``: with a
    border as wide as the map. Raises INVALID for an epsilon0 that is not above 0.
    """
    border = max(plane.rows, plane.columns) if wide else 0

    def rows_at(decay: int, few: Sequence[int]) -> list[list[int]]:
        weights = PlaneWeights(plane, border, decay)
        return [list(weights.row(cell)) for cell in few]

    decay = least_noise_of_rows(rows_at, plane.cells + 1, WORDS - 1, epsilon0)
    return PlanarResponse(labels, plane, border, decay)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    plane_of(domain)
    return (
        Setting("cut", "drawn among the cells of the map alone", partial(_design, False)),
        Setting(
            "clamped",
            "drawn on a larger map, and moved to the nearest cell: more per kilometre at the edges",
            partial(_design, True),
        ),
    )


FAMILY = Family(
    NAME,
    "places on a map, told to within a distance: geo-indistinguishability",
    PARAMETERS,
    _create,
    _settings,
)
