"""Releases in a data frame, in Parquet, and against their JSON Schema."""

from __future__ import annotations

import copy
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pyarrow.parquet
import pytest

import shoal
from shoal.analyzer.results.files import exports
from shoal.analyzer.results.files.exports import COLUMNS, Format, file_of, render
from shoal.cli.main import main
from shoal.errors import ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.analyzer.results.test_release_files import RELEASES, WRONG, _places, write
from tests.unit.analyzer.results.test_report_page import ONE, TRUTHS
from tests.worlds.console import write_data

EVERY = size(3, 1)  # wrong values of a place: every third, another third at the next
SCHEMA = Path(exports.__file__).parents[1] / "release.schema.json"


def test_a_file_is_a_frame_of_all_its_estimates(tmp_path: Path) -> None:
    """Planted: quantiles left out; a withheld release left out -> fails."""
    table = shoal.read_release(write(tmp_path, RELEASES))
    frame = table.to_pandas()
    told = [
        (row["name"], row["label"] or None, row["value"] or None)
        for row in csv.DictReader(io.StringIO(render(list(table.releases), Format.csv)))
    ]
    ours = [(row["name"], row["label"] and str(row["label"]), row["value"]) for row in table]
    assert [row[0] for row in ours] == [row[0] for row in told]
    assert [row[2] for row in ours] == [row[2] and float(row[2]) for row in told]
    assert len(frame) == len(table) == len(told)
    assert table.to_polars().shape == frame.shape
    assert table["withheld"].count(None) == len(table) - 1
    quantiles = sum(len(release.get("quantiles", ())) for release in RELEASES)
    assert sum(str(label).startswith("quantile 0.") for label in table["label"]) == quantiles > 0
    for text in (repr(table), table._repr_html_()):
        assert ONE["task_id"] not in text


def test_an_analyzers_folder_is_read(tmp_path: Path) -> None:
    """Planted: the folder taken for one of *.json files -> fails."""
    data, _ = write_data(tmp_path)
    table = shoal.read_release(data)
    assert len(table.releases) == 6
    assert len(table.select("minutes").releases) == 2
    assert len(table.select("minutes:1").releases) == 1


def test_a_release_in_words_and_as_a_picture(tmp_path: Path) -> None:
    """Planted: the truth left out of the picture; epsilon of a table rounded down -> fails."""
    demo = {"tasks": [{"name": ONE["name"], "truth": TRUTHS[ONE["task_id"]], "release": ONE}]}
    table = shoal.read_release(write(tmp_path, demo))
    assert table.columns[-1] == "truth"
    promise = table.promise(ONE["name"])
    assert promise.epsilon == ONE["privacy"]["epsilon_upper"]
    assert float(repr(table).splitlines()[1].split()[-2]) >= promise.epsilon
    picture = table.plot(ONE["name"])
    ElementTree.fromstring(picture.svg)  # noqa: S314 - our own
    assert picture.svg.count('stroke="#b5472f"') == len(TRUTHS[ONE["task_id"]])
    assert picture.save(tmp_path / "p.svg").read_text() == picture.svg


@for_each(
    "argument, wrong",
    [
        ("path", lambda _: shoal.read_release(7)),  # type: ignore[arg-type]
        ("path", lambda at: shoal.read_release(at / "none.json")),
        ("path", lambda at: shoal.read_release(at / "all.parquet")),
        ("path", lambda at: shoal.read_release(write(at, [{"n": 1}], "wrong.json"))),
        ("task", lambda at: shoal.read_release(write(at, RELEASES)).select("nothing")),
        ("task", lambda at: shoal.read_release(write(at, RELEASES)).select("a:b")),
        ("task", lambda at: shoal.read_release(write(at, [ONE])).select(3)),  # type: ignore[arg-type]
        (
            "path",
            lambda at: shoal.read_release(write(at, [ONE])).plot(ONE["name"]).save("x"),
        ),
    ],
)
def test_what_is_no_release_is_refused(tmp_path: Path, argument: str, wrong: Any) -> None:
    with pytest.raises(ShoalError) as refused:
        wrong(tmp_path)
    assert str(refused.value).startswith(f"{argument}: ")
    assert "\n" not in str(refused.value)


def test_parquet_says_what_the_csv_says(tmp_path: Path) -> None:
    """Typed, a missing figure null, labels as they are. Planted: ``window`` as a text; a formula's
    quote in a label -> fails.
    """
    odd = copy.deepcopy(ONE)
    odd["estimates"][0]["label"] = "=1+1"
    releases = [odd, *RELEASES[1:]]
    table = pyarrow.parquet.read_table(io.BytesIO(file_of(releases, Format.parquet)))
    rows = list(csv.DictReader(io.StringIO(render(releases, Format.csv))))
    assert table.column_names == list(COLUMNS)
    for name in COLUMNS:
        found = table[name].to_pylist()
        told = [row[name].removeprefix("'") or None for row in rows]
        kind = next((type(each) for each in found if each is not None), str)
        assert found == [text and kind(text) for text in told], name
    assert {str(table.schema.field(name).type) for name in ("window", "value", "name")} == {
        "int64",
        "double",
        "string",
    }
    empty = pyarrow.parquet.read_table(io.BytesIO(file_of([], Format.parquet)))
    assert empty.schema == table.schema


def test_the_command_writes_parquet_where_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a file alone, and one line where pyarrow is missing. Planted: pyarrow
    in no extra of cli/extras.py -> "a bug of ours"; ``named`` left out -> fails.
    """
    data, _ = write_data(tmp_path)
    export = ["results", "export", "--format", "parquet", "--data", str(data), "--out"]
    assert main([*export, str(tmp_path / "all.parquet")]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "all.parquet").num_rows > 6
    assert main([*export, "-"]) == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main([*export, str(tmp_path / "more.parquet")]) == 2
    assert "[parquet]" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "more.parquet").exists()


def test_real_releases_are_what_the_schema_says(tmp_path: Path) -> None:
    """By the tool that others would use. Planted: ``damaged`` as a text in the schema -> fails."""
    data, _ = write_data(tmp_path)
    assert main(["results", "export", "--data", str(data), "--out", str(tmp_path / "a.json")]) == 0
    write(tmp_path, RELEASES, "b.json")
    write(tmp_path, ONE, "c.json")
    write(tmp_path, {"tasks": [{"name": "x", "truth": {"no": 1}, "release": ONE}]}, "d.json")
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--schemafile", str(SCHEMA)]
    done = subprocess.run(
        [*tool, *map(str, sorted(tmp_path.glob("*.json")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    done = subprocess.run(
        [*tool, str(write(tmp_path, {"n": 1}, "e.json"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1


def test_the_schema_refuses_what_our_reader_refuses(tmp_path: Path) -> None:
    """Each value of a release replaced or left out: what the schema lets pass, our reader lets
    pass too, but for what no schema can say (sums of figures, the order of edges, a certificate's
    bounds). Planted: "manifest_hash" not required; ``stderr`` without a type -> fails.
    """
    check = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    beyond = ("edges: one more", "counts: not what", "privacy: ", "shares", "quantiles: not what")
    for release in RELEASES:
        assert check.is_valid(release)
        for at in range(len(_places(release))):
            for wrong in WRONG[:-1][at % EVERY :: EVERY]:
                changed = copy.deepcopy(release)
                parent, key = _places(changed)[at]
                parent[key] = wrong
                if check.is_valid(changed):
                    try:
                        shoal.read_release(write(tmp_path, changed))
                    except ShoalError as error:
                        told = str(error).split("release 1: ")[1]
                        assert any(each in told for each in beyond), (key, wrong, told)
            missing = copy.deepcopy(release)
            parent, key = _places(missing)[at]
            if isinstance(parent, dict):
                del parent[key]
                valid = check.is_valid(missing)
                try:
                    shoal.read_release(write(tmp_path, missing))
                except ShoalError:
                    assert not valid, key
