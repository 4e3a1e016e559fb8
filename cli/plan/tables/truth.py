"""How far a synthetic table is from rows that are known: only where a simulation has them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.fitted import FittedLaw
from shoal.analyzer.tables.fitting import Progress, fit, independent, single_tables
from shoal.analyzer.tables.marginals import Names, ReleasedTables
from shoal.arrays import NDArray, np
from shoal.cli.extras import PACKAGES


@dataclass(frozen=True, slots=True)
class TruthErrors:
    """Mean over tables of two (``pairs``) and of three attributes (``triples``) of half the sum of
    absolute differences from the true shares: of the fit, and of a table in which attributes have
    nothing to do with each other. nan where there are none.
    """

    pairs: float
    pairs_independent: float
    triples: float
    triples_independent: float
    form: str
    misfit: float


def synthetic_errors(
    released: ReleasedTables, answers: NDArray[np.int64], progress: Progress | None = None
) -> TruthErrors | None:
    """None without the extra ``tables``. ``answers``: int64[rows, attributes], cells."""
    if any(find_spec(name) is None for name in PACKAGES["tables"]):
        return None
    found = fit(released, progress=progress)
    tables = consistent(released, nonnegative=True).tables
    alone = independent(released, single_tables(released, tables))
    return TruthErrors(
        _mean(found.law, answers, released, 2),
        _mean(alone, answers, released, 2),
        _mean(found.law, answers, released, 3),
        _mean(alone, answers, released, 3),
        found.law.form,
        found.misfit,
    )


def _mean(law: FittedLaw, answers: NDArray[np.int64], released: ReleasedTables, size: int) -> float:
    far = [_distance(law, answers, released, names) for names in combinations(released.names, size)]
    return float(np.mean(far)) if far else float("nan")


def _distance(
    law: FittedLaw, answers: NDArray[np.int64], released: ReleasedTables, names: Names
) -> float:
    shape = tuple(released.sizes[name] for name in names)
    columns = tuple(answers[:, released.names.index(name)] for name in names)
    counts = np.bincount(np.ravel_multi_index(columns, shape), minlength=int(np.prod(shape)))
    true = counts.reshape(shape) / len(answers)
    return float(np.abs(law.marginal(names) - true).sum()) / 2.0
