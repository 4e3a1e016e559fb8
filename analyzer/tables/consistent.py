"""Noisy marginals made to agree: the least change, weighted by what each is worth.

Two marginals of one release count the same devices, and their noise makes them differ wherever
they overlap. Here every attribute and set of attributes that several marginals tell of gets one
answer, and all add up to n, which is known.

**In closed form.** A table over the attributes m is the sum of one part for each subset S of m: sum
the others out, and take from it what smaller sets explain (along each axis of S, the mean). The
parts of different S are orthogonal. Marginals agree if and only if they have the same part for each
common S, up to the factor that spreads it over the other cells. So weighted least squares falls
apart: each part is the mean of what the marginals say of it, with weight 1 / (variance of a cell x
cells that were summed), the inverse of its own variance. (The parts are the residuals of Xiao, He,
Zhang and Kifer, "An Optimal and Scalable Matrix Mechanism for Noisy Marginals", NeurIPS 2023.)

Exact least squares where the cells of a marginal have one variance and independent noise. Where
they differ, as when each device answers one marginal, the mean variance is taken: still unbiased,
still consistent, and nearly the least.

**Not below 0** is an option: the nearest consistent tables without a negative cell, in the same
weights, by Dykstra's alternating projections. They are biased: small cells are raised.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from shoal.analyzer.tables.marginals import Names, NoisyMarginal, ReleasedTables, parts_of, summed
from shoal.arrays import NDArray, np

_ROUNDS = 2_000  # of alternating projections, at most
_CLOSE = 1e-5  # standard errors that a cell may be below 0 at the end of them


@dataclass(frozen=True, slots=True, eq=False)
class ConsistentTables:
    """``tables``: float64 in devices, one for each marginal of ``released``, in its order: they
    agree in all that two of them tell, and each adds up to n. ``stderr``: of a cell of each, as if
    the noise of its cells were independent and of their mean variance; for tables with cut cells it
    is an upper bound in the mean.
    """

    released: ReleasedTables
    tables: tuple[NDArray[np.float64], ...]
    stderr: tuple[float, ...]

    def marginal(self, names: Names) -> NDArray[np.float64] | None:
        """float64[shape], of attributes in the order of the record; None where no table has all of
        them.
        """
        for one, table in zip(self.released.marginals, self.tables, strict=True):
            if set(names) <= set(one.names):
                return summed(table, one.names, names)
        return None


def consistent(released: ReleasedTables, *, nonnegative: bool = False) -> ConsistentTables:
    """The consistent tables nearest to the marginals. ``nonnegative``: among those without a
    negative cell.
    """
    space = _Agreement(released)
    tables = space.project([one.values for one in released.marginals])
    if nonnegative:
        tables = _raised(space, tables)
    return ConsistentTables(released, tuple(tables), space.stderr())


class _Agreement:
    """The projection on tables that agree and add up to n; what does not depend on the values is
    worked out once.
    """

    def __init__(self, released: ReleasedTables) -> None:
        self._marginals, self._sizes = released.marginals, released.sizes
        self._n = float(released.n)
        weights: dict[Names, dict[int, float]] = defaultdict(dict)
        for at, one in enumerate(self._marginals):
            for part in parts_of(one.names):
                weights[part][at] = 1.0 / (one.variance * self._spread(one, part))
        self._total = {part: math.fsum(of.values()) for part, of in weights.items()}
        self._shares = {
            part: [(at, weight / self._total[part]) for at, weight in of.items()]
            for part, of in weights.items()
        }

    def project(self, values: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """The nearest tables that agree."""
        result = [np.zeros_like(table) for table in values]
        for part, shares in self._shares.items():
            if part:
                found = sum(
                    (share * self._residual(values[at], at, part) for at, share in shares),
                    start=np.zeros(()),
                )
            else:
                found = np.array(self._n)
            for at, _ in shares:
                one = self._marginals[at]
                shape = [self._sizes[name] if name in part else 1 for name in one.names]
                result[at] += found.reshape(shape) / self._spread(one, part)
        return result

    def stderr(self) -> tuple[float, ...]:
        """Of a cell of each table that agrees."""
        return tuple(
            math.sqrt(
                math.fsum(
                    math.prod(1.0 - 1.0 / self._sizes[name] for name in part)
                    / (self._total[part] * self._spread(one, part) ** 2)
                    for part in parts_of(one.names)
                    if part
                )
            )
            for one in self._marginals
        )

    def _residual(self, table: NDArray[np.float64], at: int, part: Names) -> NDArray[np.float64]:
        found = summed(table, self._marginals[at].names, part)
        for axis in range(found.ndim):
            found = found - found.mean(axis=axis, keepdims=True)
        return found

    def _spread(self, one: NoisyMarginal, part: Names) -> int:
        """Cells of a marginal that one cell of the part is summed over."""
        return math.prod(self._sizes[name] for name in one.names if name not in part)


def _raised(space: _Agreement, tables: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The nearest tables that agree, without a negative cell (Dykstra)."""
    close = _CLOSE * min(space.stderr())
    agreed = tables
    cut = [np.zeros_like(table) for table in tables]
    for _ in range(_ROUNDS):
        shifted = [table + change for table, change in zip(agreed, cut, strict=True)]
        raised = [np.maximum(table, 0.0) for table in shifted]
        cut = [table - above for table, above in zip(shifted, raised, strict=True)]
        agreed = space.project(raised)
        if min(float(table.min()) for table in agreed) >= -close:
            break
    return _above_zero(agreed)


def _above_zero(tables: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """What is left below 0 moved to 0: all tables mixed with the uniform one, which agrees too."""
    even = [np.full_like(table, float(table.sum()) / table.size) for table in tables]
    share = max(
        max(0.0, -float(table.min())) / (flat.flat[0] + max(0.0, -float(table.min())))
        for table, flat in zip(tables, even, strict=True)
    )
    return [
        np.maximum(table + share * (flat - table), 0.0)
        for table, flat in zip(tables, even, strict=True)
    ]
