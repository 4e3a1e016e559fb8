"""A law of whole records fitted to noisy marginals, by the library mbi (the extra ``tables``).

Up to ``MOST_COMBINATIONS`` combinations of answers: the law of the largest entropy among those that
fit equally well (McKenna, Sheldon and Miklau, "Graphical-model based estimation and inference for
differential privacy", ICML 2019). Above: a mixture of products, fitted by gradients (Aydore et al.,
"Differentially private query release through adaptive projection", ICML 2021; the softmax form of
Liu, Vietri and Wu, 2021), whose memory does not grow with the combinations.

A fit goes on by blocks of steps. Too few leave it near to independence, too many fit the noise. How
many are best is tried on two noisier copies of the release: normal noise of the stated standard
errors is added to one and taken from the other, which makes their errors independent where those of
the release are normal (Oliveira, Lei and Tibshirani, "Unbiased risk estimation in the normal means
problem via coupled bootstrap techniques", 2021). Each is fitted, block by block, and compared with
the other; the blocks after which both are nearest are taken. (Measured: docs/TABLES.md.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.tables.fitted import FittedLaw, ProductMixture, WholeTable
from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables, summed
from shoal.arrays import NDArray, np
from shoal.entropy import SeededEntropy

MOST_COMBINATIONS = 1 << 22  # 32 MiB of float64, some ten times in a fit
_COMPONENTS = 400
_STEPS = 25  # of the library, in one block
_BLOCKS = 120
_PATIENCE = 3  # blocks that bring the copies no nearer
_TRIED = 0.7  # of the time
_COPIES = "copies of a release"  # a fixed seed: the same release, the same law
_RATE = 0.1  # of Adam
Progress = Callable[[float], None]
"""Told of the share of a fit that is done, 0 to 1: never too early, it may jump to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class TableFit:
    """``law``: what was fitted. ``misfit``: the squared distances of all released cells from it, in
    standard errors, added up and divided by the number of cells: near 1 where the law explains the
    marginals, as their noise alone would give. ``blocks``: of steps that it took.
    """

    law: FittedLaw
    misfit: float
    blocks: int


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
    blocks: int | None = None,
    progress: Progress | None = None,
    most_combinations: int = MOST_COMBINATIONS,
) -> TableFit:
    """The same marginals give the same law on one machine. Seconds for eight attributes and all
    their pairs. ``blocks``: of steps; None: as many as are best, which takes some three times as
    long. Raises ModuleNotFoundError without the extra ``tables``.
    """
    import jax

    # numbers of devices want float64; whoever calls may have JAX for something else
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mbi's about float32, at import
        whole = released.combinations <= most_combinations
        way = _Way(*((_graphical(), _whole) if whole else (_mixture(), _products)))
        if blocks is None:
            blocks = _best_blocks(released, way, part_of_progress(progress, 0.0, _TRIED))
            progress = part_of_progress(progress, _TRIED, 1.0)
        laws = way.laws(released)
        for block in range(1, blocks + 1):
            law = next(laws)
            if progress is not None:
                progress(block / blocks)
    return TableFit(law, misfit(released, law), blocks)


@dataclass(frozen=True, slots=True)
class _Way:
    """An estimator of the library, and what makes a law of its model."""

    estimator: Any
    law_of: Callable[[ReleasedTables, Any], FittedLaw]

    def laws(self, released: ReleasedTables) -> Iterator[FittedLaw]:
        """After each block of steps, without an end."""
        import mbi

        domain = mbi.Domain(released.names, tuple(released.sizes.values()))
        measured = [
            mbi.LinearMeasurement(one.values.reshape(-1), one.names, math.sqrt(one.variance))
            for one in released.marginals
        ]
        model = None
        while True:
            model = self.estimator.estimate(
                domain, measured, known_total=float(released.n), iters=_STEPS, warm_start=model
            )
            yield self.law_of(released, model)


def _best_blocks(released: ReleasedTables, way: _Way, progress: Progress | None) -> int:
    more, less = _copies(released)
    best, nearest = 1, math.inf
    for block, (one, other) in enumerate(
        zip(way.laws(more), way.laws(less), strict=False), start=1
    ):
        far = misfit(less, one) + misfit(more, other)
        if far < nearest:
            best, nearest = block, far
        if block - best >= _PATIENCE or block == _BLOCKS:
            break
        if progress is not None:
            progress(block / _BLOCKS)
    return best


def _copies(released: ReleasedTables) -> tuple[ReleasedTables, ReleasedTables]:
    """With the same noise added and taken away: each has twice the variance."""
    entropy = SeededEntropy(_COPIES)
    made: tuple[list[NoisyMarginal], list[NoisyMarginal]] = [], []
    for one in released.marginals:
        noise = one.noise(entropy)
        for kept, values in zip(made, (one.values + noise, one.values - noise), strict=True):
            kept.append(NoisyMarginal(one.names, values, one.stderr * math.sqrt(2.0)))
    more, less = (ReleasedTables(released.attributes, tuple(kept), released.n) for kept in made)
    return more, less


def part_of_progress(progress: Progress | None, first: float, last: float) -> Progress | None:
    """A fit's progress as that of one step of several."""
    if progress is None:
        return None
    told: Progress = progress
    return lambda share: told(first + (last - first) * share)


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
