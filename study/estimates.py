"""What is estimated from the reports: a table with intervals, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.analyzer.results.processed import MEANS
from shoal.mechanisms.base import Estimate
from shoal.study.arguments import wrong_key
from shoal.study.frames import Cell, Library, Table
from shoal.study.pictures import Picture, intervals

COLUMNS = ("label", "value", "stderr", "ci_low", "ci_high")
"""As in a release."""


@dataclass(frozen=True, slots=True)
class Row:
    """One estimate: within [``ci_low``, ``ci_high``] with 95 %, in people or in the number's
    unit.
    """

    label: str
    value: float
    stderr: float
    ci_low: float
    ci_high: float


class EstimateTable(Table):
    """The estimates, one per label, unbiased and never clipped: one that is below 0 is right on
    average, and so are sums of them. ``n``: how many people answered.
    """

    def __init__(
        self, rows: Sequence[Row], n: int, *, unit: str = "", library: Library = Library.NONE
    ) -> None:
        cells: list[list[Cell]] = [
            [row.label, row.value, row.stderr, row.ci_low, row.ci_high] for row in rows
        ]
        super().__init__(COLUMNS, cells, library=library)
        self.n = n
        self.unit = unit
        self._by_label = {row.label: row for row in rows}

    @classmethod
    def of(cls, estimate: Estimate, n: int, unit: str, library: Library) -> EstimateTable:
        """The table of a mechanism's estimate from ``n`` reports."""
        columns = (estimate.values, estimate.stderr, estimate.ci_low, estimate.ci_high)
        rows = zip(estimate.labels, *(column.tolist() for column in columns), strict=True)
        return cls([Row(*row) for row in rows], n, unit=unit, library=library)

    def row(self, label: str) -> Row:
        """The estimate of one label. Raises a KeyError that lists the labels."""
        if label not in self._by_label:
            raise wrong_key("label", f"give one of {', '.join(self._by_label)}")
        return self._by_label[label]

    def shares(self) -> Table:
        """The same as shares of all who answered; what is no count (a mean) stays out."""
        people = self.n or 1
        rows: list[tuple[Cell, ...]] = []
        for row in self._by_label.values():
            if row.label not in MEANS:
                numbers = (row.value, row.stderr, row.ci_low, row.ci_high)
                rows.append((row.label, *(number / people for number in numbers)))
        return Table(COLUMNS, rows, library=self._library)

    def plot(self, title: str = "") -> Picture:
        """Each estimate with its 95 % interval, as an SVG picture. Means have a unit of their own
        and are drawn alone, without the counts beside them.
        """
        means = [row for row in self._by_label.values() if row.label in MEANS]
        rows = means or list(self._by_label.values())
        unit = self.unit or ("the number's unit" if means else "people")
        marks = [
            (row.label, {"low": row.ci_low, "value": row.value, "high": row.ci_high})
            for row in rows
        ]
        return intervals(title or f"Estimated from {self.n:,} reports", unit, marks)
