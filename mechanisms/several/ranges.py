"""Ranges of ordered cells, by a hierarchy: every device sends one true message in each level of a
``CellTree``, its cell and the blocks around it, among a Poisson number of dummies in every node.

A range is a sum of few nodes, so its error grows with the number of levels and not with how many
cells it holds. The nodes are made consistent by least squares (``least_squares``), with the number
of devices as the known sum of all. What is stated is those cells: any range is a sum of them, and
its standard error follows from the tree and one number, the standard deviation of a node's noise.

Intervals of ranges are 1.96 standard errors: a range adds up the noise of many nodes, each a
Poisson number of (mostly) a hundred dummies or more. Quantiles are all numbers at which the counts
below don't contradict them, by the exact covariances of the counts (``numbers.quantiles``).

A hostile device moves any range by as many devices as it has messages, at most: a message in one
node moves the cells of this node up by less than 1 together, and others down by as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, Z, invalid
from shoal.mechanisms.numbers.distribution import Distribution, level_edges
from shoal.mechanisms.numbers.quantiles import (
    SHARES,
    Quantile,
    UnbiasedTotals,
    bin_edges,
    quantiles_of_totals,
)
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.in_tables import InTables
from shoal.mechanisms.several.least_squares import (
    covariance,
    fitted,
    mean_range_variance,
    range_variance,
)
from shoal.mechanisms.several.names import RANGES
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import out_of_unit
from shoal.mechanisms.several.tree import CellTree
from shoal.task import MechanismSpec

MONOTONE = "monotone"


def is_ordered(domain: Domain) -> bool:
    """Whether its cells are numbers in order: levels, or bins with lower bounds."""
    return isinstance(domain, Numeric) or (
        isinstance(domain, Categories) and bool(domain.lower_bounds)
    )


@dataclass(frozen=True, slots=True)
class Ranges(InTables):
    """``domain``: of ordered cells; ``tree``: over as many cells as it has, "no answer" the last;
    ``noise``: dummies in as many cells as there are nodes, with a true message in each level.
    Raises INVALID for anything else.
    """

    domain: Numeric | Categories
    tree: CellTree
    noise: NoiseLaw

    def __post_init__(self) -> None:
        if not is_ordered(self.domain):
            raise invalid(
                f"{RANGES} wants numbers, or categories with lower_bounds: cells in order"
            )
        if self.tree.cells != self.domain.size:
            raise invalid(f"{RANGES} has a hierarchy over as many cells as its domain")
        noise, tree = self.noise, self.tree
        fits = noise.cells == tree.nodes and noise.truths == tree.levels
        if noise.truth is not Truth.CELL or noise.signed or not fits:
            raise invalid(
                f"the noise of {RANGES} is dummies in all nodes, a true message per level"
            )

    @property
    def name(self) -> str:
        """The family's name."""
        return RANGES

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        return MechanismSpec.of(
            RANGES,
            k=self.tree.cells,
            base=self.tree.base,
            levels=self.tree.levels,
            shares=self.noise.shares,
            slots=self.noise.slots,
            dummies=out_of_unit(self.noise.dummies),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell, in the domain's order."""
        return self.domain.labels

    @property
    def law(self) -> NoiseLaw:
        """See ``InTables``."""
        return self.noise

    @property
    def answers(self) -> int:
        """Cells of the domain."""
        return self.tree.cells

    def _truths(self, value: int, _: Entropy) -> tuple[int, ...]:
        return self.tree.path(value)

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices in each cell, consistent: they sum to ``reports``, and any range is
        the sum of its cells.
        """
        values = self._cells(tally, reports)
        first = np.arange(self.tree.cells, dtype=np.int64)
        error = self.stderr_of_ranges(reports, first, first + 1)
        return Estimate(self.labels, values, error, values - Z * error, values + Z * error)

    def _cells(self, tally: Tally, reports: int) -> NDArray[np.float64]:
        return fitted(self.tree, self.without_noise(tally, reports), float(reports))

    def node_stderr(self, reports: int) -> float:
        """The standard deviation of the noise in one node, in devices."""
        return noise_of_batch.deviation(self.noise, reports)

    def stderr_of_ranges(
        self, reports: int, first: NDArray[np.int64], end: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """float64[len], in devices: of the ranges of cells ``first`` .. ``end`` - 1."""
        return np.sqrt(range_variance(self.tree, first, end)) * self.node_stderr(reports)

    def expected_stderr(self, reports: int) -> float:
        """In devices: of the cell that errs most, where blocks are uneven; whatever is answered."""
        first = np.arange(self.tree.cells, dtype=np.int64)
        return float(self.stderr_of_ranges(reports, first, first + 1).max())

    def stderr_of(self, reports: int, holders: float) -> float:
        """The same."""
        return self.expected_stderr(reports)

    def range_stderr(self, reports: int) -> float:
        """In devices: the root of the mean square over all ranges of cells."""
        return math.sqrt(mean_range_variance(self.tree)) * self.node_stderr(reports)

    def distribution(self, tally: Tally, reports: int) -> Distribution | None:
        """For readers: of numbers in levels; None of bins."""
        if not isinstance(self.domain, Numeric):
            return None
        return self.shape(self._cells(tally, reports))

    def shape(self, devices: NDArray[np.float64]) -> Distribution:
        """Of the devices that answered, from unbiased numbers per cell, float64[cells], "no answer"
        last: what quantiles are read from. Numbers of devices up to a level are made to rise (half
        way between the largest so far and the smallest from there on), which keeps quantiles where
        they are. (Cells made 0 or more one by one would add up to a shape of noise: there are
        hundreds of them, with few devices each.)
        """
        totals = np.cumsum(devices[:-1])
        rising = np.maximum.accumulate(totals)
        falling = np.minimum.accumulate(totals[::-1])[::-1]
        up = np.clip((rising + falling) / 2.0, 0.0, None)
        shares = np.diff(np.append(0.0, up))
        answered = float(up[-1])
        known = answered > 0.0
        shares = shares / answered if known else np.full(len(shares), 1.0 / len(shares))
        of_levels = isinstance(self.domain, Numeric)
        edges = (
            level_edges(self.domain)
            if isinstance(self.domain, Numeric)
            else bin_edges(self.domain.lower_bounds)
        )
        everybody = float(devices.sum())
        part = min(1.0, answered / everybody) if everybody > 0.0 else 0.0
        return Distribution(edges, shares / shares.sum(), MONOTONE, part, of_levels)

    def quantiles(
        self, tally: Tally, reports: int, shares: tuple[float, ...] = SHARES
    ) -> tuple[Quantile, ...]:
        """Of the answering devices, with intervals of 95 %, as ``numbers.quantiles`` has them."""
        devices = self._cells(tally, reports)
        totals = np.append(0.0, np.cumsum(devices[:-1]))
        variance = self.node_stderr(reports) ** 2

        def products(i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
            # what the devices themselves have in common, and the noise
            return np.asarray(totals[np.minimum(i, j)] + variance * covariance(self.tree, i, j))

        answers, shape = UnbiasedTotals(totals, products), self.shape(devices)
        return quantiles_of_totals(answers, shape, self.domain, shares)
