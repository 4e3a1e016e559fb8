"""Laws fitted by the library, against maximum entropy worked out by hand, and rows against laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.fitted import FittedLaw, ProductMixture, WholeTable
from shoal.analyzer.tables.fitting import TableFit, fit, independent, misfit, single_tables
from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables, TableAttribute, summed
from shoal.entropy import SeededEntropy
from tests.cases import for_each

Floats = NDArray[np.float64]
NAMES = ("a", "b", "c")
N = 10_000


def joint() -> Floats:
    """Shares over 2 x 3 x 2 cells, in which a tells of b, and b of c."""
    first = np.array([0.6, 0.4])
    second = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    third = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    return np.asarray(first[:, None, None] * second[:, :, None] * third[None, :, :])


def released(sets: tuple[tuple[str, ...], ...], error: float = 1e-3) -> ReleasedTables:
    """Exact marginals of the joint table, with a standard error as small as that."""
    marginals = []
    for names in sets:
        true = N * summed(joint(), NAMES, names)
        marginals.append(NoisyMarginal(names, true, np.full(true.shape, error)))
    attributes = tuple(
        TableAttribute(name, tuple(map(str, range(size))))
        for name, size in zip(NAMES, joint().shape, strict=True)
    )
    return ReleasedTables(attributes, tuple(marginals), N)


CHAIN = (("a", "b"), ("b", "c"))


def test_the_law_of_a_chain_is_the_one_that_assumes_least() -> None:
    """Of two pairs that overlap in b the largest entropy is p(a, b) p(b, c) / p(b), and the joint
    table here is of that form. Planted: the third attribute's axis elsewhere -> fails.
    """
    found = fit(released(CHAIN, 5.0))
    assert isinstance(found.law, WholeTable)
    assert np.max(np.abs(found.law.shares - joint())) < 1e-3
    assert found.misfit <= 1.0


def test_a_mixture_is_fitted_where_the_combinations_are_too_many() -> None:
    """The same marginals, the limit lower. Planted: the limit not looked at -> fails."""
    found = fit(released(CHAIN, 20.0), most_combinations=11)
    assert isinstance(found.law, ProductMixture)
    assert "mixture of 400 products" in found.law.form
    for names in CHAIN:
        assert np.max(np.abs(found.law.marginal(names) - summed(joint(), NAMES, names))) < 0.01


def test_a_fit_ends_where_more_steps_gain_noise_and_tells_its_progress() -> None:
    """Twice the same, as the noise of its copies has a fixed seed. Planted: all blocks run -> 120;
    progress that does not end at 1; noise of the machine's -> another law.
    """
    shares: list[float] = []
    found: TableFit = fit(released(CHAIN, 500.0), progress=shares.append)
    assert found.blocks < 30
    assert found.misfit <= 1.0
    assert np.array_equal(
        fit(released(CHAIN, 500.0)).law.marginal(NAMES), found.law.marginal(NAMES)
    )
    assert fit(released(CHAIN, 500.0), blocks=1).blocks == 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_fit_that_can_not_explain_the_marginals_ends_and_says_so() -> None:
    """Two marginals that contradict one another by 200 standard errors. Planted: no end where
    nothing is gained -> all 120 blocks.
    """
    tables = released((*CHAIN, ("a",)))
    a = tables.marginals[2]
    moved = NoisyMarginal(a.names, a.values[::-1].copy(), np.full(2, 10.0))
    others = tuple(NoisyMarginal(m.names, m.values, m.stderr * 1e4) for m in tables.marginals[:2])
    found = fit(ReleasedTables(tables.attributes, (*others, moved), N))
    assert found.misfit > 10.0
    assert found.blocks < 120


def test_jax_is_as_it_was_for_whoever_has_it_for_something_else() -> None:
    """Planted: x64 switched on for good -> fails."""
    import jax

    before = jax.numpy.ones(1).dtype
    fit(released(CHAIN, 50.0))
    assert jax.numpy.ones(1).dtype == before == np.float32


def laws() -> list[FittedLaw]:
    mixture = ProductMixture(
        NAMES,
        (
            np.array([[0.9, 0.1], [0.2, 0.8]]),
            np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7]]),
            np.array([[1.0, 0.0], [0.4, 0.6]]),
        ),
    )
    return [WholeTable(NAMES, joint()), mixture]


@for_each("law", laws)
def test_marginals_of_a_law_are_those_of_its_joint_table(law: FittedLaw) -> None:
    """Planted: components weighted twice; an axis of the mixture left out -> fails."""
    whole = law.marginal(NAMES)
    assert math.isclose(float(whole.sum()), 1.0)
    for size in (1, 2):
        for names in itertools.combinations(NAMES, size):
            assert np.allclose(law.marginal(names), summed(whole, NAMES, names))


@for_each("law", laws)
def test_rows_are_drawn_from_the_law(law: FittedLaw) -> None:
    """100,000 rows: each of 12 cells within 5 standard deviations: false in fewer than 1 of 10^5
    runs, and the seed is fixed. What can't be is never drawn. Planted: one uniform number for two
    attributes of the mixture -> fails.
    """
    rows = 100_000
    drawn = law.draw(rows, SeededEntropy("rows"))
    assert drawn.shape == (rows, 3)
    assert drawn.dtype == np.int64
    counts = np.zeros((2, 3, 2))
    np.add.at(counts, tuple(drawn.T), 1.0)
    expected = law.marginal(NAMES) * rows
    assert np.all(np.abs(counts - expected) <= 5.0 * np.sqrt(expected))


def test_the_independent_law_has_the_single_tables_and_no_more() -> None:
    """Planted: the mean over marginals of a table that is larger -> shares that do not add up."""
    tables = released(CHAIN)
    law = independent(tables, single_tables(tables, consistent(tables).tables))
    for at, name in enumerate(NAMES):
        axes = tuple(axis for axis in range(3) if axis != at)
        assert np.allclose(law.marginal((name,)), joint().sum(axis=axes))
    product = np.multiply.outer(law.marginal(("a",)), law.marginal(("b",)))
    assert np.allclose(law.marginal(("a", "b")), product)
    assert misfit(tables, law) > 1e6
