"""How far the counts of a fitted law are from the truth, as far as a release alone tells.

No formula tells: a fit has no cell below 0, and how much of the noise that takes away depends on
how many cells are near 0. So releases are played (a parametric bootstrap; Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, chapter 6): the law stands for the truth, normal noise of the
released standard errors goes on its tables, and they are fitted again, by as many steps. It looks
at the release alone, so it costs no privacy.

A cell's squared error is the mean over the plays, and over ``_BORROWED`` plays more in which it
erred as its table does on average: cells at 0 would else get intervals of almost no width.

A bootstrap is known to be off where the truth lies at a bound (Andrews, "Inconsistency of the
bootstrap when a parameter is on the boundary of the parameter space", 2000): how often these
intervals hold the truth was measured (docs/TABLES.md). The law that stands for the truth is a
little smoother than the truth, so that its plays err a little less, by up to 6 % where that was
measured: errors are taken to be ``_SHORT`` times as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.analyzer.tables.fitted import FittedLaw
from shoal.analyzer.tables.fitting import Progress, TableFit, fit
from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables
from shoal.arrays import NDArray, np
from shoal.entropy import SYSTEM, Entropy

PLAYS = 20
_BORROWED = 2  # plays
_SHORT = 1.04  # errors are so many times what the plays say: see above
_LIKELY = 2.086  # Student's 97.5 % point for 20 plays


@dataclass(frozen=True, slots=True, eq=False)
class CountsOfFit:
    """A released table as a fitted law has it. ``values``: float64[shape], in devices, 0 or more;
    ``error``: float64[shape], the expected root mean square distance from the true counts, in
    devices, above 0.
    """

    values: NDArray[np.float64]
    error: NDArray[np.float64]

    @property
    def low(self) -> NDArray[np.float64]:
        """float64[shape], 0 or more: where the 95 % intervals begin."""
        return np.asarray(np.maximum(self.values - _LIKELY * self.error, 0.0))

    @property
    def high(self) -> NDArray[np.float64]:
        """float64[shape]: where they end."""
        return np.asarray(self.values + _LIKELY * self.error)


@dataclass(frozen=True, slots=True, eq=False)
class FitErrors:
    """``tables``: one for each released marginal, in their order."""

    tables: tuple[CountsOfFit, ...]

    @property
    def error(self) -> float:
        """The root mean square over all cells of all tables, in devices."""
        squares = np.concatenate([np.ravel(one.error**2) for one in self.tables])
        return math.sqrt(float(np.mean(squares)))


def fit_errors(
    released: ReleasedTables,
    fitted: TableFit,
    *,
    progress: Progress | None = None,
    entropy: Entropy = SYSTEM,
) -> FitErrors:
    """``PLAYS`` fits more: some seconds each for eight attributes and all their pairs. ``fitted``:
    ``fit(released)``. Raises ModuleNotFoundError without the extra ``tables``.
    """
    told = _counts(released, fitted.law)
    squares = [np.zeros_like(table) for table in told]
    for play in range(PLAYS):
        played = _played(released, told, entropy)
        again = _counts(played, fit(played, blocks=fitted.blocks).law)
        for at, found in enumerate(again):
            squares[at] += (found - told[at]) ** 2
        if progress is not None:
            progress((play + 1) / PLAYS)
    return FitErrors(
        tuple(
            CountsOfFit(table, _SHORT * np.sqrt(_shared(total / PLAYS)))
            for table, total in zip(told, squares, strict=True)
        )
    )


def _counts(released: ReleasedTables, law: FittedLaw) -> list[NDArray[np.float64]]:
    return [law.marginal(one.names) * released.n for one in released.marginals]


def _shared(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    borrowed = _BORROWED * np.mean(squares)
    return np.asarray((PLAYS * squares + borrowed) / (PLAYS + _BORROWED))


def _played(
    released: ReleasedTables, told: list[NDArray[np.float64]], entropy: Entropy
) -> ReleasedTables:
    """A release as this one would be, if ``told`` were the true counts."""
    marginals = tuple(
        NoisyMarginal(one.names, table + one.noise(entropy), one.stderr)
        for one, table in zip(released.marginals, told, strict=True)
    )
    return ReleasedTables(released.attributes, marginals, released.n)
