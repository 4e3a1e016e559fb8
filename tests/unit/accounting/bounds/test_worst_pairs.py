"""Which pairs of inputs the clones of a table are made of: by floats first, and as exact as without
them.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest

from shoal.accounting.bounds import clones
from shoal.accounting.bounds.clones import pair_constants, table_clones
from shoal.domain import Numeric
from shoal.mechanisms import create, design
from shoal.privacy import FiniteLaw
from tests.cases import for_each
from tests.unit.accounting.numerics.test_convex_order import tables

LAWS = [*tables("worst pairs", 4, 9, 4, 30), *tables("large weights", 4, 12, 5, 1 << 31)]


def _noisy(name: str) -> FiniteLaw:
    domain = Numeric(0.0, 1.0, 20)
    law = create(design(name, domain, 5.0), domain).privacy()
    assert isinstance(law, FiniteLaw)
    return law


def _of_all(law: FiniteLaw) -> set[tuple[Fraction, Fraction]]:
    """The pairs' (ratio, clone probability) that no other pair's are as bad as, in both numbers."""
    every = {pair_constants(law, *rows) for rows in combinations(sorted(set(law.rows)), 2)}
    return {
        (ratio, clone)
        for ratio, clone in every
        if not any(
            other >= ratio and fewer <= clone and (other, fewer) != (ratio, clone)
            for other, fewer in every
        )
    }


@for_each("law", [*LAWS, _noisy("laplace"), _noisy("piecewise")])
def test_floats_leave_the_worst_pairs(law: FiniteLaw) -> None:
    """Planted: kept what another is worse than, in place of the others; half of a larger ratio
    taken for a larger one -> each leaves out a worst pair.
    """
    found = clones._worst_pairs(law)
    worst = _of_all(law)
    if len(worst) > clones._MOST_PAIRS:
        assert found == [(max(ratio for ratio, _ in worst), min(clone for _, clone in worst))]
    else:
        assert set(found) == worst
    assert len(table_clones(law, 10)) == len(found)


def test_floats_spare_most_of_the_exact_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no pair left out by floats -> 210 are compared exactly; the most clones of the pairs
    of a larger ratio in place of the fewest -> 201.
    """
    law, asked, exact = _noisy("laplace"), [], clones._constants

    def counted(
        least: list[int], row_x: tuple[int, ...], row_x2: tuple[int, ...]
    ) -> tuple[Fraction, Fraction]:
        asked.append(row_x)
        return exact(least, row_x, row_x2)

    monkeypatch.setattr(clones, "_constants", counted)
    clones._worst_pairs(law)
    assert 0 < len(asked) <= 60
