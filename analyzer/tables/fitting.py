"""A law of whole records fitted to noisy marginals, by the library mbi (the extra ``tables``).

Up to ``MOST_COMBINATIONS`` combinations of answers: the law of the largest entropy among those that
fit equally well (McKenna, Sheldon and Miklau, "Graphical-model based estimation and inference for
differential privacy", ICML 2019). Above: a mixture of products, fitted by gradients (Aydore et al.,
"Differentially private query release through adaptive projection", ICML 2021; the softmax form of
Liu, Vietri and Wu, 2021), whose memory does not grow with the combinations.

A fit ends as soon as the marginals lie about as far from it as their noise would put them from the
truth: what a longer one gains is noise. (Measured: docs/TABLES.md.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.tables.fitted import FittedLaw, ProductMixture, WholeTable
from shoal.analyzer.tables.marginals import ReleasedTables, summed
from shoal.arrays import NDArray, np

MOST_COMBINATIONS = 1 << 22  # 32 MiB of float64, some ten times in a fit
_COMPONENTS = 400
_STEPS = 50  # of the library, in one block
_BLOCKS = 60
_STALLED = 1e-4  # of the misfit, gained by a block
_RATE = 0.1  # of Adam
Progress = Callable[[float], None]
"""Told of the share of a fit that is done, 0 to 1: never too early, it may jump to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class TableFit:
    """``law``: what was fitted. ``misfit``: the squared distances of all released cells from it, in
    standard errors, added up and divided by the number of cells: near 1 where the law explains the
    marginals, as their noise alone would give.
    """

    law: FittedLaw
    misfit: float
    steps: int


def misfit(released: ReleasedTables, law: FittedLaw) -> float:
    """See ``TableFit``."""
    total = 0.0
    for one in released.marginals:
        gap = one.values - law.marginal(one.names) * released.n
        total += float(np.sum(gap * gap)) / one.variance
    return total / released.cells


def fit(
    released: ReleasedTables,
    *,
    progress: Progress | None = None,
    most_combinations: int = MOST_COMBINATIONS,
) -> TableFit:
    """The same marginals give the same law on one machine. Seconds for eight attributes and all
    their pairs. Raises ModuleNotFoundError without the extra ``tables``.
    """
    import jax

    # numbers of devices want float64; whoever calls may have JAX for something else
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mbi's about float32, at import
        if released.combinations <= most_combinations:
            return _fitted(released, _graphical(), _whole, progress)
        return _fitted(released, _mixture(), _products, progress)


def _fitted(
    released: ReleasedTables,
    estimator: Any,
    law_of: Callable[[ReleasedTables, Any], FittedLaw],
    progress: Progress | None,
) -> TableFit:
    """Blocks of steps until the misfit is that of noise, or hardly falls."""
    import mbi

    domain = mbi.Domain(released.names, tuple(released.sizes.values()))
    measured = [
        mbi.LinearMeasurement(one.values.reshape(-1), one.names, math.sqrt(one.variance))
        for one in released.marginals
    ]
    model, before, gained = None, math.inf, 0
    for block in range(1, _BLOCKS + 1):
        model = estimator.estimate(
            domain, measured, known_total=float(released.n), iters=_STEPS, warm_start=model
        )
        law = law_of(released, model)
        found = misfit(released, law)
        gained = gained + 1 if before - found <= _STALLED * found else 0
        before = found
        if found <= 1.0 or gained > 1 or block == _BLOCKS:
            break
        if progress is not None:
            progress(block / _BLOCKS)
    if progress is not None:
        progress(1.0)
    return TableFit(law, found, block * _STEPS)


def _graphical() -> Any:
    from mbi import estimation, marginal_oracles

    return estimation.MirrorDescent(marginal_oracle=marginal_oracles.message_passing_hugin)


def _mixture() -> Any:
    import optax
    from mbi.extensions import MixtureOfProductsEstimator

    return MixtureOfProductsEstimator(optimizer=optax.adam(_RATE), num_components=_COMPONENTS)


def _whole(released: ReleasedTables, model: Any) -> FittedLaw:
    table = np.asarray(model.project(released.names).datavector(flatten=False), dtype=np.float64)
    return WholeTable(released.names, _shares(table))


def _products(released: ReleasedTables, model: Any) -> FittedLaw:
    found = model.products
    return ProductMixture(
        released.names,
        tuple(_rows(np.asarray(found[name], dtype=np.float64)) for name in released.names),
    )


def _shares(table: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = np.maximum(table, 0.0)
    return np.asarray(kept / kept.sum())


def _rows(table: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def independent(released: ReleasedTables, single: dict[str, NDArray[np.float64]]) -> FittedLaw:
    """The law in which attributes have nothing to do with each other. ``single``: devices per cell
    of each attribute, 0 or more: what a fit is compared with.
    """
    shares = (single[name][None, :] / single[name].sum() for name in released.names)
    return ProductMixture(released.names, tuple(shares))


def single_tables(
    released: ReleasedTables, tables: tuple[NDArray[np.float64], ...]
) -> dict[str, NDArray[np.float64]]:
    """Of consistent tables without negative cells, those of one attribute each."""
    found: dict[str, NDArray[np.float64]] = {}
    for one, table in zip(released.marginals, tables, strict=True):
        for name in one.names:
            found.setdefault(name, summed(table, one.names, (name,)))
    return found
