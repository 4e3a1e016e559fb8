"""Marginals that are none are refused where they are made, and parts of tables are sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from shoal.analyzer.tables.marginals import (
    NoisyMarginal,
    ReleasedTables,
    TableAttribute,
    parts_of,
    summed,
)
from shoal.analyzer.tables.of_record import released_of
from shoal.domain import AnswerRecord
from shoal.errors import Kind, ShoalError
from shoal.questions.record import all_pairs
from tests.cases import for_each
from tests.worlds.tasks import ATTRIBUTES

A, B = TableAttribute("a", ("no", "yes")), TableAttribute("b", ("x", "y", "z"))


def marginal(*names: str, shape: tuple[int, ...] = (2, 3), error: float = 1.0) -> NoisyMarginal:
    return NoisyMarginal(names, np.zeros(shape), np.full(shape, error))


BOTH = marginal("a", "b")
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: TableAttribute("", ("no", "yes")), "a name and two"),
    (lambda: TableAttribute("a", ("no",)), "a name and two"),
    (lambda: TableAttribute("a", ("no", "no")), "distinct labels"),
    (lambda: marginal("a"), "one axis for each"),
    (lambda: marginal("a", "a"), "each of them once"),
    (lambda: marginal("a", "b", error=0.0), "above 0 in every cell"),
    (lambda: marginal("a", "b", error=np.inf), "above 0 in every cell"),
    (lambda: NoisyMarginal(("a",), np.array([np.nan, 1.0]), np.ones(2)), "a finite estimate"),
    (lambda: ReleasedTables((A, A), (BOTH,), 9), "different names"),
    (lambda: ReleasedTables((A, B), (), 9), "one marginal or more"),
    (lambda: ReleasedTables((A, B), (BOTH,), 0), "one device or more"),
    (lambda: ReleasedTables((A, B), (BOTH, BOTH), 9), "two marginals"),
    (lambda: ReleasedTables((A, B), (marginal("a", "c"),), 9), "do not have"),
    (lambda: ReleasedTables((B, A), (BOTH,), 9), "order of the record"),
    (lambda: ReleasedTables((A, B), (marginal("a", "b", shape=(2, 2)),), 9), "as many cells"),
    (lambda: ReleasedTables((A, B), (marginal("a", shape=(2,)),), 9), "no marginal tells of b"),
    (lambda: ReleasedTables((A, B), (BOTH,), 9).without([("a", "b")]), "one marginal or more"),
]


@for_each("make, mends", BAD)
def test_what_is_none_is_refused(make: Callable[[], object], mends: str) -> None:
    """Planted: each check left out -> its case fails."""
    with pytest.raises(ShoalError, match=mends) as refused:
        make()
    assert refused.value.kind is Kind.INVALID


def test_parts_and_sums() -> None:
    """Planted: the axes that are kept summed out -> another shape."""
    assert list(parts_of(("a", "b"))) == [(), ("a",), ("b",), ("a", "b")]
    table = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(summed(table, ("a", "b", "c"), ("a", "c")), table.sum(axis=1))
    assert summed(table, ("a", "b", "c"), ()) == 276.0
    tables = ReleasedTables((A, B), (BOTH,), 9)
    assert (tables.cells, tables.combinations, tables.ordered(("b", "a"))) == (6, 6, ("a", "b"))


def test_estimates_of_a_record_fall_into_its_marginals() -> None:
    """Planted: all marginals from the first cell on -> fails."""
    record = AnswerRecord(ATTRIBUTES, all_pairs(3))
    values = np.arange(33.0)
    found = released_of(record, values, np.ones(33), 100)
    assert [one.names for one in found.marginals] == [
        ("age", "sex"),
        ("age", "health"),
        ("sex", "health"),
    ]
    assert np.array_equal(np.concatenate([m.values.reshape(-1) for m in found.marginals]), values)
    assert found.marginals[1].values[2, 1] == record.cell_of(1, (2, 0, 1))
