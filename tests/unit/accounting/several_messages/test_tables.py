"""True messages in several tables at once: against everything that devices can send, at small
sizes, and against one table composed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.charges import full_submissions, long_singles
from shoal.accounting.several_messages.messages import certify_messages, epsilon_interval
from shoal.accounting.several_messages.noise import NoiseProtocol, exact_delta, in_tables, shown
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.one_more import Shown
from shoal.accounting.several_messages.tables import TablesShown, tables_divergence
from shoal.arrays import np
from shoal.errors import ShoalError
from shoal.mechanisms.maps.block_squares import BlockGrid
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw, Truth
from tests.cases import for_each
from tests.unit.accounting.several_messages.devices import (
    Answers,
    divergence_of,
    pairs_of_views,
)

DELTA = 1e-6
EPSILONS = (0.0, 0.2, 0.7, 1.5, 3.0)

# every combination of two attributes with two answers each, and of three
PAIRS: Answers = [(a, 2 + b) for a in range(2) for b in range(2)]
THREE: Answers = [(a, 2 + b, 4 + c) for a in range(2) for b in range(2) for c in range(2)]
# four leaves, and the two blocks that they are in
TREE: Answers = [(leaf, 4 + leaf // 2) for leaf in range(4)]

# a row of three cells and "elsewhere" (0 to 3), in blocks of two, one, and "elsewhere" (4 to 6)
MAP: Answers = [BlockGrid(1, 3, 2).path(cell) for cell in range(4)]

MARGINALS = NoiseLaw(Truth.CELL, 4, 2, 7, dummies=Fraction(3, 4), truths=2)
HIERARCHY = NoiseLaw(Truth.CELL, 6, 2, 6, dummies=Fraction(1, 2), truths=2)
CANCELLING = NoiseLaw(Truth.CELL, 4, 1, 12, Fraction(1, 8), 2, Fraction(1, 9), 1, truths=2)
CASES: dict[str, tuple[NoiseLaw, Answers, int, int]] = {
    "two marginals": (MARGINALS, PAIRS, 2, 0),
    "of three devices": (replace(MARGINALS, shares=3, slots=5), PAIRS, 3, 0),
    "somebody else": (replace(MARGINALS, slots=6), PAIRS, 2, 1),
    "three marginals": (
        NoiseLaw(Truth.CELL, 6, 1, 9, dummies=Fraction(1, 2), truths=3),
        THREE,
        1,
        1,
    ),
    "a hierarchy": (HIERARCHY, TREE, 2, 0),
    "a map in blocks": (replace(HIERARCHY, cells=7), MAP, 2, 0),
    "a cap that is often met": (replace(MARGINALS, slots=3), PAIRS, 2, 0),
    "cancelling": (CANCELLING, PAIRS, 1, 0),
}


def curves(law: NoiseLaw, honest: int, epsilon: float) -> tuple[float, float]:
    """(lower, upper) at ``epsilon``."""
    protocol = NoiseProtocol(law)
    lower, upper = (
        protocol.curve(honest, direction, DELTA)(epsilon)
        for direction in (Direction.LOWER, Direction.UPPER)
    )
    return lower, upper


@pytest.mark.parametrize("name", CASES)
def test_the_curves_hold_what_devices_send(name: str) -> None:
    """Every multiset, device by device, with the cap and the integers; every dataset of the others,
    every pair of answers, both directions. Some pair has the lower curve or more: the bound is not
    loose.

    Planted: ``_powered`` with one table fewer -> fails; the mass at infinity left out of the
    divergence -> fails; ``certain`` = 0 -> fails; half of the odd points lost in ``_coarser`` ->
    fails; another step after it -> fails.
    """
    law, answers, honest, known = CASES[name]
    pairs = list(pairs_of_views(law, honest, known, answers))
    for epsilon in EPSILONS:
        truth = max(divergence_of(p, q, math.exp(epsilon)) for p, q in pairs)
        lower, upper = curves(law, honest, epsilon)
        assert lower <= truth * (1 + 1e-12)
        assert truth <= upper * (1 + 1e-12)
        charge = (1 + math.exp(epsilon)) * (
            long_singles(law) + full_submissions(law, law.shares, DELTA)
        )
        assert upper - lower <= 2 * charge + 0.01 * upper


@for_each("dummies, tables", [(0.75, 2), (3.0, 2), (0.75, 3)])
def test_both_sides_hold_the_product_of_the_pairs(dummies: float, tables: int) -> None:
    """Summed over all counts of all cells, without any charge. Planted: ``_placed_below`` rounding
    up -> fails; one cell's loss twice -> fails.
    """
    law = NoiseLaw(Truth.CELL, 2 * tables, 2, 9, dummies=Fraction(dummies), truths=tables)
    last = 24 if tables == 2 else 12
    counts = np.arange(last + 1)
    f = np.array([math.exp(-dummies) * dummies**c / math.factorial(c) for c in range(last + 1)])
    before = np.append(0.0, f[:-1])  # of one more
    p, q = np.outer(before, f).ravel(), np.outer(f, before).ravel()
    all_p, all_q = p, q
    for _ in range(tables - 1):
        all_p, all_q = np.outer(all_p, p).ravel(), np.outer(all_q, q).ravel()
    beyond = 2 * tables * float(1.0 - f[: len(counts) - 1].sum())
    for epsilon in EPSILONS:
        exact = float(np.maximum(all_p - math.exp(epsilon) * all_q, 0.0).sum())
        upper = exact_delta(law, epsilon, DELTA)
        lower = exact_delta(law, epsilon, DELTA, Direction.LOWER)
        assert lower <= exact + beyond
        assert exact <= upper + 1e-12
        assert lower > 0.99 * upper - beyond


def test_a_submission_is_full_beside_its_true_messages() -> None:
    """So many messages of noise as leave no room for two true ones. Planted: ``slots`` for
    ``slots`` - ``truths`` + 1 in ``full_submissions`` -> fails.
    """
    mean = float(Fraction(4 * MARGINALS.rates()[0].weight, 1 << RATE_BITS))
    fits = math.fsum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(6))
    assert full_submissions(MARGINALS, 5, 1e-15) == pytest.approx(5 * (1 - fits), rel=1e-8)


def test_answers_that_share_a_cell_show_less() -> None:
    """Two leaves of one block differ in one table of two: less than two leaves of different blocks,
    and as much as a histogram of the leaves alone. Planted: a block of one leaf in ``TREE`` ->
    fails.
    """
    views = list(pairs_of_views(HIERARCHY, 2, 0, TREE))
    number = len(TREE) * (len(TREE) - 1)
    first = [divergence_of(p, q, math.e) for p, q in views[:number]]
    ordered = [(x, y) for x in range(4) for y in range(4) if x != y]
    by_pair = dict(zip(ordered, first, strict=True))
    assert by_pair[0, 1] == pytest.approx(by_pair[1, 0]) == pytest.approx(by_pair[2, 3])
    assert by_pair[0, 2] == pytest.approx(by_pair[3, 1]) == pytest.approx(max(first))
    assert by_pair[0, 1] < 0.9 * by_pair[0, 2]


def test_several_tables_are_one_table_composed() -> None:
    """The same number by another way: the law of losses of a histogram, composed by the transform
    of ``compose``. Planted: a lattice eight times as coarse at the end of ``_powered`` -> fails.
    """
    one = NoiseLaw(Truth.CELL, 16, 10**5, 60, dummies=Fraction(180))
    losses = noise_losses(one, 10**5, DELTA)
    assert losses is not None
    for tables in (2, 5, 12):
        law = replace(one, cells=16 * tables, truths=tables, slots=60)
        together = noise_losses(law, 10**5, DELTA)
        assert together is not None
        here, there = (
            compose([(each, count)], DELTA).epsilon_upper
            for each, count in ((together, 1), (losses, tables))
        )
        assert here == pytest.approx(there, rel=2e-4)
        interval = epsilon_interval(NoiseProtocol(law), 10**5, DELTA)
        assert interval is not None
        assert interval[1] == pytest.approx(there, rel=2e-4)
        assert interval[0] > 0.99 * interval[1]


@for_each("tables", [2, 3, 7, 66])
def test_the_two_sides_of_a_lattice_hold_the_gaussian_limit(tables: int) -> None:
    """Many dummies: a loss is nearly normal, of variance 2 h / lam, and delta is the Gaussian
    one to a few parts in a hundred. Planted: ``one`` and ``one`` in place of ``one`` and ``other``
    in ``_powered`` -> fails.
    """
    dummies = 1_500.0 * tables
    law = NoiseLaw(Truth.CELL, 2 * tables, 10, 10**6, dummies=Fraction(dummies), truths=tables)
    mu = math.sqrt(2.0 * tables / dummies)
    epsilon = 2.0 * mu

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2.0)) / 2.0

    gaussian = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)
    upper = exact_delta(law, epsilon, DELTA)
    lower = exact_delta(law, epsilon, DELTA, Direction.LOWER)
    assert lower <= upper <= lower * 1.15
    assert upper == pytest.approx(gaussian, rel=0.05)


def test_what_windows_leave_out_is_counted() -> None:
    """Mass that a cell's window lost is added for every cell of every table, and e times as much
    taken off below. Planted: ``lost`` of one cell alone -> fails.
    """
    found = shown(MARGINALS, 1e-12)
    assert isinstance(found, TablesShown)
    cut = replace(found, cell=replace(found.cell, lost=found.cell.lost + 0.01))
    for direction, most in ((Direction.UPPER, 0.04), (Direction.LOWER, -0.04 * math.e)):
        change = tables_divergence(cut, 1.0, direction) - tables_divergence(found, 1.0, direction)
        least = -tables_divergence(found, 1.0, direction)
        assert change == pytest.approx(max(most, least), rel=1e-6)
    alone = shown(replace(MARGINALS, truths=1), 1e-12)
    assert isinstance(alone, Shown)
    assert in_tables(alone, replace(MARGINALS, truths=1), 1e-12) is alone


@for_each(
    "tables, cells, dummies, messages",
    [(2, 1056, 75.0, 2.8), (3, 1160, 110.0, 4.3), (5, 1364, 180.0, 7.5), (10, 2046, 359.0, 17.3)],
)
def test_designs_reach_their_target(
    tables: int, cells: int, dummies: float, messages: float
) -> None:
    """The certificate is at the target, with the numbers of dummies that another program found.
    Planted: the design of ``tables`` = 1 -> fails; ``slots`` one fewer -> fails.
    """
    law = design_dummies(cells, 90_000, 1.0, DELTA, tables=tables)
    bound = certify_messages(NoiseProtocol(law), 100_000, DELTA, honest_fraction=Fraction(9, 10))
    assert bound is not None
    assert bound.method == "poisson-dummies-in-tables"
    assert 0.99 < bound.epsilon_lower <= bound.epsilon_upper <= 1.0
    assert any(f"in each of {tables} tables" in text for text in bound.assumptions)
    assert float(law.dummies) == pytest.approx(dummies, rel=0.005)
    assert float(law.mean_messages) == pytest.approx(messages + (messages - tables) / 9, rel=0.02)
    factor = (1 + math.e) * 1e6
    assert factor * full_submissions(law, law.shares, 1e-14) <= 0.03
    assert factor * full_submissions(replace(law, slots=law.slots - 1), law.shares, 1e-14) > 0.029


def test_tables_that_are_none_are_refused() -> None:
    """Planted: each condition left out -> its line fails."""
    with pytest.raises(ShoalError, match="two cells or more in each table"):
        NoiseLaw(Truth.CELL, 3, 2, 6, dummies=Fraction(1), truths=2)
    with pytest.raises(ShoalError, match="a slot for each true message"):
        NoiseLaw(Truth.CELL, 4, 2, 1, dummies=Fraction(1), truths=2)
    with pytest.raises(ShoalError, match="two cells or more in each table"):
        NoiseLaw(Truth.CELL, 4, 2, 1, dummies=Fraction(1), truths=0)
    with pytest.raises(ShoalError, match="4 cells are not 3 tables of two or more"):
        design_dummies(4, 1_000, 1.0, DELTA, tables=3)
