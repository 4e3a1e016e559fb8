"""Print the figures of docs/TABLES.md on tables that are chosen by what was released before, beside
all pairs at once with the same epsilon.

    PYTHONPATH=. .venv/bin/python tools/adaptive_tables.py [--devices 2000] [--epsilon 1] [--runs 3]

Two minutes of CPU. A window's tables are asked of all devices, by ``marginals``. With one epsilon
for all windows together, noise of variance lambda in each of h tables costs h / lambda of a budget,
to the precision of a normal law: a schedule gives each window a share of it. What a schedule really
costs is composed by the accountant and printed. Counts are drawn from their law: true counts and
one Poisson number of dummies in each cell.

- *all pairs*: every pair in one window.
- *single*: attributes alone, with all of the budget.
- *screened*: all pairs with a share of the budget; then, with the rest, those pairs whose table was
  farthest from no connection, beyond what noise makes of it. All that was released enters the fit.
- *known*: attributes alone with a share of the budget; then those pairs that are farthest from no
  connection beyond what noise will make of it, by the true counts, which nobody has. It says what
  the best of all first looks could be worth, were it free.

Pairs are rated as in AIM (McKenna, Mullins, Sheldon, Miklau, VLDB 2022): the sum of absolute
differences less what noise makes of it, sqrt(2 / pi) sigma a cell.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from table_errors import DELTA, survey

from shoal.accounting.composition.compose import compose
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.fitted import FittedLaw
from shoal.analyzer.tables.fitting import fit
from shoal.analyzer.tables.marginals import (
    Names,
    NoisyMarginal,
    ReleasedTables,
    TableAttribute,
)
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import UNIT

SHARES, KEPT = (0.3, 0.6), (3, 8, 16)
_NOISE = math.sqrt(2.0 / math.pi)  # E|Z|
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class World:
    """``truth``: devices in each cell of every set of one to three attributes. ``budget``: the sum
    of 1 / lambda over tables that (epsilon, delta) allows.
    """

    attributes: tuple[TableAttribute, ...]
    truth: dict[Names, Table]
    n: int
    budget: float

    def sets(self, size: int) -> list[Names]:
        return [names for names in self.truth if len(names) == size]

    def lam(self, tables: int, share: float) -> float:
        """Expected dummies in a cell of so many tables, with that share of the budget."""
        return tables / (share * self.budget)

    def measured(
        self, tables: Sequence[Names], share: float, rng: np.random.Generator
    ) -> dict[Names, tuple[Table, float]]:
        """Noisy counts, and their variance."""
        lam = self.lam(len(tables), share)
        return {
            names: (self.truth[names] + rng.poisson(lam, self.truth[names].shape) - lam, lam)
            for names in tables
        }


def world(devices: int, epsilon: float, rng: np.random.Generator) -> World:
    """The survey, or so many of its rows."""
    record, rows = survey()
    if devices < len(rows):
        rows = rows[rng.choice(len(rows), devices, replace=False)]
    attributes = tuple(TableAttribute(one.name, one.answers.labels) for one in record.attributes)
    sizes = [len(one.labels) for one in attributes]
    truth = dict[Names, Table]()
    for count in (1, 2, 3):
        for places in combinations(range(len(sizes)), count):
            shape = tuple(sizes[at] for at in places)
            cells = np.ravel_multi_index(tuple(rows[:, at] for at in places), shape)
            counted = np.bincount(cells, minlength=int(np.prod(shape)))
            names = tuple(attributes[at].name for at in places)
            truth[names] = counted.reshape(shape).astype(np.float64)
    pairs = len(sizes) * (len(sizes) - 1) // 2
    law = design_dummies(record.cells, len(rows), epsilon, DELTA, windows=1, tables=pairs)
    return World(attributes, truth, len(rows), pairs / float(law.dummies))


def fitted(one: World, *measured: dict[Names, tuple[Table, float]]) -> FittedLaw:
    """Of all that was released: tables that came twice by their weights."""
    marginals = []
    for names in dict.fromkeys(names for each in measured for names in each):
        found = [each[names] for each in measured if names in each]
        weight = sum(1.0 / variance for _, variance in found)
        values = sum((table / variance for table, variance in found), np.zeros(())) / weight
        marginals.append(NoisyMarginal(names, values, np.full(values.shape, weight**-0.5)))
    return fit(ReleasedTables(one.attributes, tuple(marginals), one.n)).law


def rated(
    one: World, tables: dict[Names, Table], single: dict[Names, Table], variance: float, kept: int
) -> list[Names]:
    """The pairs that are farthest from no connection, beyond noise."""

    def score(names: Names) -> float:
        alone = np.multiply.outer(single[names[:1]], single[names[1:]]) / one.n
        noise = _NOISE * float(np.sqrt(variance)) * alone.size
        return float(np.abs(tables[names] - alone).sum()) - noise

    return sorted(one.sets(2), key=score, reverse=True)[:kept]


def all_pairs(one: World, rng: np.random.Generator) -> FittedLaw:
    return fitted(one, one.measured(one.sets(2), 1.0, rng))


def single(one: World, rng: np.random.Generator) -> FittedLaw:
    return fitted(one, one.measured(one.sets(1), 1.0, rng))


def screened(share: float, kept: int) -> Callable[[World, np.random.Generator], FittedLaw]:
    def run(one: World, rng: np.random.Generator) -> FittedLaw:
        first = one.measured(one.sets(2), share, rng)
        agreed = consistent(
            ReleasedTables(
                one.attributes,
                tuple(
                    NoisyMarginal(names, table, np.full(table.shape, variance**0.5))
                    for names, (table, variance) in first.items()
                ),
                one.n,
            )
        )
        alone = {names: agreed.marginal(names) for names in one.sets(1)}
        known = {names: table for names, table in alone.items() if table is not None}
        seen = {names: table for names, (table, _) in first.items()}
        chosen = rated(one, seen, known, one.lam(len(seen), share), kept)
        return fitted(one, first, one.measured(chosen, 1.0 - share, rng))

    return run


def known(share: float, kept: int) -> Callable[[World, np.random.Generator], FittedLaw]:
    def run(one: World, rng: np.random.Generator) -> FittedLaw:
        first = one.measured(one.sets(1), share, rng)
        chosen = rated(one, one.truth, one.truth, one.lam(kept, 1.0 - share), kept)
        return fitted(one, first, one.measured(chosen, 1.0 - share, rng))

    return run


def far(one: World, law: FittedLaw, size: int) -> list[float]:
    """Half the sum of absolute differences from the true shares, of each table."""
    return [
        float(np.abs(law.marginal(names) - one.truth[names] / one.n).sum()) / 2.0
        for names in one.sets(size)
    ]


def cost(one: World, windows: Sequence[tuple[int, int, float]]) -> float:
    """Epsilon of windows of (tables, cells, share of the budget), composed."""
    losses = []
    for tables, cells, share in windows:
        lam = Fraction(int(one.lam(tables, share) * UNIT), UNIT)
        law = NoiseLaw(Truth.CELL, cells, one.n, 10**6, dummies=lam, truths=tables)
        found = noise_losses(law, one.n, DELTA)
        if found is None:
            raise SystemExit("no account")
        losses.append((found, 1))
    return compose(losses, DELTA).epsilon_upper


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=20_190)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    one = world(given.devices, given.epsilon, np.random.default_rng(1))
    pairs = one.sets(2)
    cells = sum(one.truth[names].size for names in pairs)
    few = sum(one.truth[names].size for names in one.sets(1))
    lam = one.lam(len(pairs), 1.0)
    print(
        f"{one.n:,} devices, epsilon {given.epsilon:g}: all {len(pairs)} pairs at once have noise "
        f"of {lam**0.5:.1f} and {len(pairs) + cells * lam / one.n:.0f} messages of a device"
    )
    half = cells // 2
    for share in SHARES:
        messages = len(pairs) + cells * one.lam(len(pairs), share) / one.n
        told = cost(one, [(len(pairs), cells, share), (14, half, 1.0 - share)])
        print(f"screened with {share:g}: {messages:.0f} messages first; epsilon {told:.4f} in all")
    told = cost(one, [(len(one.sets(1)), few, 0.3), (8, cells // 3, 0.7)])
    print(f"known: epsilon {told:.4f} in all; at once: {cost(one, [(28, cells, 1.0)]):.4f}")
    ways: dict[str, Callable[[World, np.random.Generator], FittedLaw]] = {
        "all pairs": all_pairs,
        "single": single,
    }
    for share in SHARES:
        for kept in KEPT:
            ways[f"screened {share:g}, {kept}"] = screened(share, kept)
            ways[f"known {share:g}, {kept}"] = known(share, kept)
    for name, way in ways.items():
        rng = np.random.default_rng(7)
        found = [way(one, rng) for _ in range(given.runs)]
        two = np.array([far(one, law, 2) for law in found])
        three = np.array([far(one, law, 3) for law in found])
        spread = two.mean(axis=1).std() if given.runs > 1 else 0.0
        print(
            f"{name}: pairs {two.mean():.2%} (+- {spread:.2%}; worst "
            f"{two.mean(axis=0).max():.1%}), triples {three.mean():.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
