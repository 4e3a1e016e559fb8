"""Counts of devices from a table with as many outputs as cells, by solving it: A with P A = 1.

A report y adds A(y, v) to the count of v, so over the coins counts are unbiased, with

    cov(v, w) = sum over devices of (sum over y of P(y | x) A(y, v) A(y, w) - [x = v][x = w]).

A mechanism that inherits ``SolvedResponse`` has ``labels``, one per cell, a ``response`` with its
table, and ``_solved``, an empty list that is no part of it when it is compared. A table whose
reports hardly tell cells apart is refused: its inverse would be rounding alone. ``design`` asks for
``scores`` and refuses it before anybody answers; a device never asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.parts.cells import check_counts
from shoal.mechanisms.parts.composed import SharedResponse
from shoal.mechanisms.parts.intervals import of_weights
from shoal.mechanisms.parts.simplex import norm_sub

if TYPE_CHECKING:
    from shoal.mechanisms.parts.tables import RowsResponse

_WORST = 1e10  # condition of a table whose inverse still has 5 digits in floats


class SolvedResponse(SharedResponse):
    """Estimates, their errors and intervals. Immutable dataclasses inherit it."""

    __slots__ = ()

    fewer: ClassVar[str] = "fewer categories"
    """What to ask for where cells are hardly told apart."""

    if TYPE_CHECKING:
        labels: tuple[str, ...]
        _solved: list[NDArray[np.float64]]

        @property
        def name(self) -> str: ...

        @property
        def response(self) -> RowsResponse: ...

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell. Their errors are those of the nearest counts that can
        be (``simplex.norm_sub``), or what the reports themselves say, if that is more. Their
        intervals are score intervals (``intervals.of_weights``): a cell far from all others, as "no
        answer" is, is known to within a few devices, where the projection may take all of them for
        noise of the others.

        Raises INVALID where the table cannot be solved in floats (``design`` refuses those).
        """
        counts, scores = self.response.counts(tally), self.scores()
        values, units = counts @ scores, np.diag(scores).copy()
        likely, seen = norm_sub(values, float(tally.rows)), counts @ scores**2 - values
        second, third = self._moments()
        variance = np.maximum(likely @ second, seen)
        return Estimate(
            self.labels,
            values,
            np.sqrt(variance),
            *of_weights(values, likely, second, third, units, seen),
        )

    def covariance(self, tally: Tally) -> NDArray[np.float64]:
        """float64[k, k]: of the estimated counts over the coins. For the error of a range, or of
        several cells together: the sum of its square in here.

        Without bias: the sum over reports y of A(y, v) A(y, w), less the count of v if w is v. So a
        variance may come out below 0.

        Raises INVALID as ``estimate``.
        """
        counts, scores = self.response.counts(tally), self.scores()
        covariances: NDArray[np.float64] = scores.T @ (counts[:, None] * scores) - np.diag(
            counts @ scores
        )
        return covariances

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        devices = check_counts(counts, len(self.labels)).astype(np.float64)
        deviations: NDArray[np.float64] = np.sqrt(devices @ self._moments()[0])
        return deviations

    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(float64[k, k], float64[k, k]): what one device that holds cell x adds to the variance of
        the count of v, and to its third cumulant. The mean, [x = v], is taken off before they are
        raised: no cancellation where a cell is hardly ever missed.
        """
        table, scores = self.response.table.probabilities(), self.scores()
        own = scores.T - 1.0  # [x, y]: what y adds to the count of x, less its mean under x
        squares = scores * scores
        second, third = table @ squares, table @ (squares * scores)
        np.fill_diagonal(second, (table * own**2).sum(axis=1))
        np.fill_diagonal(third, (table * own**2 * own).sum(axis=1))
        return second, third

    def scores(self) -> NDArray[np.float64]:
        """float64[k, k]: A(y, v), what a report of y adds to the count of v."""
        if not self._solved:
            table = self.response.table.probabilities()
            if not np.linalg.cond(table) < _WORST:
                raise invalid(
                    f"{self.name}: so many cells at so small an epsilon0 give reports that hardly "
                    "tell neighbours apart, and no counts: "
                    f"ask for {self.fewer} or more epsilon0, or use krr or unary"
                )
            self._solved.append(np.asarray(np.linalg.inv(table), dtype=np.float64))
        return self._solved[0]
