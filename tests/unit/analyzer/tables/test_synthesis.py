"""From a release to a table of made-up records: what is checked, said and written."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.marginals import (
    NoisyMarginal,
    ReleasedTables,
    TableAttribute,
    summed,
)
from shoal.analyzer.tables.of_release import tables_of
from shoal.analyzer.tables.quality import held_out, unanswered
from shoal.analyzer.tables.rows_file import csv_of, parquet_rows
from shoal.analyzer.tables.synthesis import MOST_ROWS, Synthesis, synthesize
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

NAMES = ("w", "x", "y", "z")
N = 20_000
ERROR = 40.0


def released(sets: tuple[tuple[str, ...], ...]) -> ReleasedTables:
    """A chain: each of four attributes says again what the one before it does, in four of five
    cases; with noise of a fixed seed.
    """
    step = np.array([[0.8, 0.2], [0.2, 0.8]])
    shares = np.einsum("a,ab,bc,cd->abcd", np.array([0.3, 0.7]), step, step, step)
    entropy = SeededEntropy("chain")
    marginals = []
    for names in sets:
        true = N * summed(shares, NAMES, names)
        words = entropy.words(12 * true.size).reshape(*true.shape, 12)
        noise = (words / 2.0**64).sum(axis=-1) - 6.0
        marginals.append(NoisyMarginal(names, true + ERROR * noise, np.full(true.shape, ERROR)))
    labels = ("=no", "yes")
    return ReleasedTables(
        tuple(TableAttribute(name, labels) for name in NAMES), tuple(marginals), N
    )


PAIRS = tuple(itertools.combinations(NAMES, 2))


def made(rows: int = 500) -> Synthesis:
    return synthesize(released(PAIRS), rows=rows, entropy=SeededEntropy("made"))


def test_held_out_tables_are_near_the_fit_and_far_from_independence() -> None:
    """One of six pairs is left out, w and z. From the others the fit knows it to 4 %, with a noise
    of 0.3 %; without connection between attributes it would be off by more. Planted: the
    left-out marginal fitted too -> the names of what the fit saw are wrong, fails.
    """
    (one,) = held_out(released(PAIRS))
    assert one.names == ("w", "z")
    assert one.noise == pytest.approx(4 * ERROR * 0.797885 / (2 * N), rel=1e-5)
    assert one.difference < 0.04 < one.independent


def test_what_is_held_out_is_not_seen() -> None:
    """Attributes w and z say the same, x and y have nothing to do with them: without the pair w, z
    nothing tells of it, and the second fit is as far off as independence. Planted: the second fit
    sees all marginals -> it is near, fails.
    """
    step = np.array([[0.9, 0.1], [0.1, 0.9]]) / 2.0
    shares = np.einsum("ad,b,c->abcd", step, np.array([0.5, 0.5]), np.array([0.4, 0.6]))
    tables = ReleasedTables(
        released(PAIRS).attributes,
        tuple(
            NoisyMarginal(names, N * summed(shares, NAMES, names), np.full((2, 2), 5.0))
            for names in PAIRS
        ),
        N,
    )
    (one,) = held_out(tables)
    assert one.names == ("w", "z")
    assert one.difference == pytest.approx(0.4, abs=0.02)
    assert one.independent == pytest.approx(0.4, abs=0.02)


@for_each(
    "sets",
    [
        PAIRS[:3],  # few
        (("w", "x"), ("w", "y"), ("w", "z"), ("y", "z")),  # y x z is out: few are left, all covered
        (("w",), ("x",), ("y",), ("z",)),  # nothing to hold out
    ],
)
def test_held_out_only_where_enough_are_left(sets: tuple[tuple[str, ...], ...]) -> None:
    """Planted: one attribute's only marginal held out -> INVALID is raised."""
    tables = released(sets)
    told = held_out(tables)
    left = {name for one in tables.marginals for name in one.names}
    assert all(set(one.names) <= left for one in told)
    assert len(told) == (1 if len([one for one in sets if len(one) > 1]) >= 4 else 0)


def test_what_is_not_answered_is_said() -> None:
    """Planted: pairs inside a released triple listed as missing -> fails."""
    told = unanswered(consistent(released(PAIRS)), 500)
    assert not any("whose tables were not released" in line for line in told)
    assert any("three attributes or more" in line and "but for" not in line for line in told)
    least = 1.959964 * max(consistent(released(PAIRS)).stderr)
    assert any(f"counts below {int(least) + 1:,} of 20,000" in line for line in told)
    assert any("16, and one that is expected less than once in 500 rows" in line for line in told)
    some = unanswered(consistent(released((("w", "x", "y"), ("z",)))), 500)
    assert "w x z, x x z, y x z" in some[0]
    assert "but for w x x x y" in some[1]
    assert len(unanswered(consistent(released((NAMES,))), 9)) == len(told) - 1


def test_a_synthesis_for_programs() -> None:
    """Planted: the tables of the estimates instead of the consistent ones -> they do not add up."""
    found = made()
    told = found.to_json()
    assert (told["n"], told["rows"]) == (N, 500)
    assert [one["names"] for one in told["tables"]] == [list(names) for names in PAIRS]
    assert all(np.isclose(np.sum(one["values"]), N) for one in told["tables"])
    assert told["misfit"] == found.fitted.misfit <= 1.0
    assert found.explains
    assert [set(one) for one in told["held_out"]] == [
        {"names", "difference", "noise", "independent"}
    ]
    assert told["unanswered"]


def test_rows_as_many_as_devices_unless_told_and_no_test_if_not_wanted() -> None:
    found = synthesize(released(PAIRS), test=False, entropy=SeededEntropy("all"))
    assert (len(found.rows), found.tested) == (N, ())
    for rows in (0, MOST_ROWS + 1):
        with pytest.raises(ShoalError, match="give another number") as refused:
            synthesize(released(PAIRS), rows=rows)
        assert refused.value.kind is Kind.INVALID


def test_how_far_the_counts_of_a_fit_are_is_said_when_asked_for() -> None:
    """Of each released table, in its shape; intervals are around the fit's counts and never begin
    below 0. Progress goes on to the end. Planted: intervals around the tables that agree, and
    progress of the plays that starts anew -> each fails.
    """
    shares: list[float] = []
    entropy = SeededEntropy("errors")
    found = synthesize(
        released(PAIRS), rows=9, errors=True, progress=shares.append, entropy=entropy
    )
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    told = found.to_json()
    assert [one["names"] for one in told["fit_counts"]] == [list(names) for names in PAIRS]
    for names, one in zip(PAIRS, told["fit_counts"], strict=True):
        values, low, high = (np.array(one[key]) for key in ("values", "ci_low", "ci_high"))
        assert np.allclose(values, N * found.fitted.law.marginal(names))
        assert np.allclose(high - values, 2.086 * np.array(one["error"]))
        assert np.allclose(low, np.maximum(2.0 * values - high, 0.0))
    assert 10.0 < told["fit_error"] < 60.0  # the released tables': 40 each
    assert "fit_counts" not in made().to_json()


def test_files_have_a_column_for_each_attribute() -> None:
    """A label that a spreadsheet would take for a formula is quoted in CSV alone. Planted: cells
    written for labels -> fails.
    """
    found = made()
    rows = list(csv.reader(io.StringIO(csv_of(found).decode())))
    assert rows[0] == list(NAMES)
    assert len(rows) == 501
    table = pyarrow.parquet.read_table(io.BytesIO(parquet_rows(found)))
    assert table.column_names == list(NAMES)
    for at, name in enumerate(NAMES):
        labels = table[name].to_pylist()
        assert labels == [("=no", "yes")[cell] for cell in found.rows[:, at].tolist()]
        assert [row[at] for row in rows[1:]] == [label.replace("=no", "'=no") for label in labels]


def release(**changes: Any) -> dict[str, Any]:
    """What is needed of a release of two attributes, as programs see it."""
    rows = [{"value": float(cell), "stderr": 2.0} for cell in range(4)]
    record = {
        "attributes": [{"name": name, "labels": ["no", "yes"]} for name in ("x", "y")],
        "marginals": [["x", "y"]],
    }
    return {"withheld": None, "record": record, "estimates": rows, "n": 6} | changes


def test_tables_of_a_release() -> None:
    found = tables_of(release())
    assert found.marginals[0].values.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert found.n == 6


_TWO = [["x", "y"], ["x"]]


@for_each(
    "changes, mends",
    [
        ({"withheld": "too few"}, "withheld"),
        ({"record": None}, 'kind "record"'),
        ({"estimates": release()["estimates"][:3]}, "3 estimates"),
        ({"estimates": [{"value": 1.0, "stderr": 0.0}] * 4}, "above 0"),
        ({"record": release()["record"] | {"marginals": _TWO}}, "4 estimates"),
        ({"record": release()["record"] | {"marginals": [["x", "u"]]}}, "does not have"),
        ({"record": release()["record"] | {"marginals": [["y", "x"]]}}, "order of the record"),
        ({"n": 0}, "one device or more"),
    ],
)
def test_releases_without_tables_are_refused(changes: dict[str, Any], mends: str) -> None:
    with pytest.raises(ShoalError, match=mends) as refused:
        tables_of(release(**changes))
    assert refused.value.kind is Kind.INVALID
