"""Several answers together in Python, from a release alone."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import shoal
from shoal.analyzer.results.files import exports
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.errors import ShoalError
from shoal.study import tables as study_tables
from tests.unit.analyzer.results.test_records import COUNTS, WORLD, finish, shown


@pytest.fixture
def releases(tmp_path: Path) -> list[dict[str, Any]]:
    store = AnalyzerStore(tmp_path / FILE_NAME)
    finish(store, WORLD, 0, COUNTS)
    finish(store, WORLD, 1, [1] + [0] * 32)
    store.close()
    return shown(str(tmp_path))


def read(tmp_path: Path, releases: list[dict[str, Any]]) -> shoal.ReleaseTable:
    file = tmp_path / "releases.json"
    file.write_text(json.dumps(releases))
    return shoal.read_release(file)


def test_tables_of_a_release_agree(tmp_path: Path, releases: list[dict[str, Any]]) -> None:
    """Planted: rows in another order than the cells -> sums over one attribute differ."""
    ages, health, _ = read(tmp_path, releases).tables("visits:0")
    assert ages.columns == ("age", "sex", "devices", "stderr")

    def young(table: shoal.Table) -> float:
        return sum(float(str(row["devices"])) for row in table if row["age"] == "young")

    assert np.isclose(young(ages), young(health))
    assert np.isclose(sum(map(float, map(str, ages["devices"]))), releases[0]["n"])


def test_rows_are_made_of_a_release(tmp_path: Path, releases: list[dict[str, Any]]) -> None:
    """Planted: cells in place of labels -> no such text."""
    made = read(tmp_path, releases).synthesize("visits:0", rows=50)
    assert isinstance(made, shoal.SyntheticTable)
    assert (len(made), made.columns) == (50, ("age", "sex", "health"))
    assert set(map(str, made["sex"])) <= {"f", "m", "no answer"}
    assert made.misfit < 1.5
    assert made.unanswered
    assert len(made.held_out) == 0  # three tables are too few
    assert "can't answer" in repr(made)
    assert made.to_pandas().shape == (50, 3)
    assert made.counts == []


def test_counts_of_the_law_have_intervals_when_asked_for(
    tmp_path: Path, releases: list[dict[str, Any]]
) -> None:
    """Planted: errors not handed on -> no tables."""
    made = read(tmp_path, releases).synthesize("visits:0", rows=9, test=False, errors=True)
    first = made.counts[0]
    assert first.columns == ("age", "sex", "devices", "error", "ci_low", "ci_high")
    assert len(made.counts) == 3
    for row in first:
        low, devices, high = (float(str(row[key])) for key in ("ci_low", "devices", "ci_high"))
        assert 0.0 <= low <= devices < high


def test_a_release_of_a_record_keeps_to_the_schema(releases: list[dict[str, Any]]) -> None:
    """Planted: "tables" a list in the schema -> fails."""
    schema = json.loads((Path(exports.__file__).parents[1] / "release.schema.json").read_text())
    jsonschema.validate(releases, schema)
    releases[0]["record"]["marginals"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(releases, schema)


def test_errors_name_the_argument(
    tmp_path: Path, releases: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read(tmp_path, releases)
    for changes, said in (
        ({"rows": 0}, "rows"),
        ({"rows": "many"}, "rows"),
        ({"test": 1}, "test"),
        ({"errors": 1}, "errors"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            table.synthesize("visits:0", **changes)
    for call in (table.synthesize, table.tables):
        with pytest.raises(ValueError, match="withheld"):
            call("visits:1")
        with pytest.raises(ValueError, match="several windows"):
            call("visits")
    monkeypatch.setattr(study_tables, "find_spec", lambda _: None)
    with pytest.raises(ShoalError, match=r"shoal\[tables\]"):
        table.synthesize("visits:0")
    assert util.find_spec("mbi") is not None
