"""A map in two levels: every device sends one true message for its cell and one for the block of
cells around it, among a Poisson number of dummies in every cell and block.

A rectangle of cells is made of whole blocks and of cells at its edge, so it adds up the noise of
fewer counts than it has cells. Cells and blocks are made consistent by least squares
(``block_squares``), with the number of devices as the known sum of all. What is stated is those
cells: any rectangle is a sum of them, and its standard error follows from the blocks and one
number, the standard deviation of a count's noise. Intervals are 1.96 standard errors, as those of
``ranges``.

Two true messages cost as much privacy as in any two tables: the account is that of
``accounting.several_messages.tables`` for two levels. docs/PLACES.md has figures.

A hostile device moves any rectangle by as many devices as it has messages, at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Places
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, Z, invalid
from shoal.mechanisms.maps.block_squares import (
    BlockGrid,
    cell_variances,
    fitted,
    mean_rectangle_variance,
    rectangle_variance,
)
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.in_tables import InTables
from shoal.mechanisms.several.names import BLOCKS
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import out_of_unit
from shoal.task import MechanismSpec

LEVELS = 2
"""True messages of a device."""


@dataclass(frozen=True, slots=True)
class MapBlocks(InTables):
    """``places``: the map; ``grid``: its cells in blocks; ``noise``: dummies in as many cells as
    there are cells and blocks, with two true messages. Raises INVALID for anything else.
    """

    places: Places
    grid: BlockGrid
    noise: NoiseLaw

    def __post_init__(self) -> None:
        noise, grid = self.noise, self.grid
        if (grid.rows, grid.columns) != (self.places.rows, self.places.columns):
            raise invalid(f"{BLOCKS} has blocks of the cells of its map, and of no others")
        fits = noise.cells == grid.nodes and noise.truths == LEVELS
        if noise.truth is not Truth.CELL or noise.signed or not fits:
            raise invalid(
                f"the noise of {BLOCKS} is dummies in all cells and blocks, and a device has two "
                "true messages"
            )

    @property
    def name(self) -> str:
        """The family's name."""
        return BLOCKS

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        return MechanismSpec.of(
            BLOCKS,
            k=self.grid.cells,
            side=self.grid.side,
            shares=self.noise.shares,
            slots=self.noise.slots,
            dummies=out_of_unit(self.noise.dummies),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell of the map, "elsewhere" last."""
        return self.places.labels

    @property
    def law(self) -> NoiseLaw:
        """See ``InTables``."""
        return self.noise

    @property
    def answers(self) -> int:
        """Cells of the map, and "elsewhere"."""
        return self.grid.cells

    def _truths(self, value: int, _: Entropy) -> tuple[int, ...]:
        return self.grid.path(value)

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices in each cell, consistent: they sum to ``reports``, and any rectangle
        is the sum of its cells.
        """
        counts = self.without_noise(tally, reports)
        values = fitted(self.grid, counts, float(reports))
        error = self._stderrs(reports)
        return Estimate(self.labels, values, error, values - Z * error, values + Z * error)

    def _stderrs(self, reports: int) -> NDArray[np.float64]:
        return np.sqrt(cell_variances(self.grid)) * self.node_stderr(reports)

    def node_stderr(self, reports: int) -> float:
        """The standard deviation of the noise in one count, in devices."""
        return noise_of_batch.deviation(self.noise, reports)

    def expected_stderr(self, reports: int) -> float:
        """In devices: of the cell that errs most, where blocks are uneven; whatever is answered."""
        return float(self._stderrs(reports).max())

    def stderr_of(self, reports: int, holders: float) -> float:
        """The same."""
        return self.expected_stderr(reports)

    def stderr_of_rectangle(
        self, reports: int, rows: tuple[int, int], columns: tuple[int, int]
    ) -> float:
        """In devices: of the cells in rows ``rows[0]`` .. ``rows[1]`` - 1, and columns alike."""
        return math.sqrt(rectangle_variance(self.grid, rows, columns)) * self.node_stderr(reports)

    def rectangle_stderr(self, reports: int) -> float:
        """In devices: the root of the mean square over all rectangles of cells."""
        return math.sqrt(mean_rectangle_variance(self.grid)) * self.node_stderr(reports)
