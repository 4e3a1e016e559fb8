"""Tables as people have them: every way to write one is read, and what is wrong is one line that
names the file and the place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.cli.load.table import read_columns
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

ROWS = "name,größe\nAnn,1\n,2\n Bö ,\n"


def cells(path: Path, *names: str) -> list[list[str | None]]:
    return [list(column.cells) for column in read_columns(path, names)[0]]


@for_each(
    "data",
    [
        ROWS.encode(),
        ROWS.encode("utf-8-sig"),
        ROWS.encode("utf-16"),
        ROWS.encode("cp1252"),
        ROWS.replace("\n", "\r\n").encode(),
        ROWS.replace(",", ";").encode(),
        ROWS.replace(",", "\t").encode(),
        b'"name","gr\xc3\xb6\xc3\x9fe"\n"Ann","1"\n"","2"\n"B\xc3\xb6 ",""\n',
        ROWS.rstrip("\n").encode() + b"\n\n",
    ],
)
def test_one_table_in_many_forms(data: bytes, tmp_path: Path) -> None:
    """Planted: "utf-8" for "utf-8-sig" -> the first column has a mark in its name; latin-1 refused;
    blanks kept -> fails.
    """
    file = tmp_path / "a.csv"
    file.write_bytes(data)
    assert cells(file, "größe", "name") == [["1", "2", None], ["Ann", None, "Bö"]]


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    """Planted: rows numbered instead of lines -> the line after a cell of two lines is wrong."""
    file = tmp_path / "a.csv"
    file.write_text('a,b\n1,"x\ny"\n\n2,n/a\n')
    (column,), notes = read_columns(file, ["b"], ["n/a"])
    assert (column.cells, notes) == (["x\ny", None], [])
    assert [column.where(index) for index in (0, 1)] == ["a.csv, line 2", "a.csv, line 5"]


@for_each(
    "data, said",
    [
        (b"", "is empty: a header"),
        (b"a\n", "has a header and no rows"),
        (b"1\n2\n3\n", "has no header"),
        (b"b,c\n1,2\n", 'has no column "a": its columns are b, c'),
        (b"A ,c\n1,2\n", 'is it "A"?'),
        (b"a,a\n1,2\n", 'two columns "a"'),
        (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 cells, the header has 2"),
        (b"a,b\n1\n", "line 2 has 1 cells"),
        (b"a,b\n,1\n,2\n", 'column "a" is empty'),
        (b'a,b\n1,2\n"x,2\n3,4\n', "line 3: a quote is not closed"),
        (b"a,b\n\0,1\n", "is no text"),
        (b"\xff\xfea", "is no text"),
        (b"PAR1 and no more", "damaged Parquet"),
    ],
)
def test_what_is_wrong_is_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    """Planted: short rows filled up with empty cells -> the second mistake passes."""
    file = tmp_path / "a.csv"
    file.write_bytes(data)
    with pytest.raises(ShoalError) as caught:
        read_columns(file, ["a"])
    assert caught.value.kind is Kind.CONFIG
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith("a.csv")


def test_without_a_name_the_columns_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(",".join(f"c{i}" for i in range(30)) + "\n")
    with pytest.raises(ShoalError, match=r"which column\? a.csv has c0, c1, .* and 10 more"):
        read_columns(file, [])


def test_parquet_where_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: NaN as a text -> a number that is none; no look for the package -> a bug's line."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "a.parquet"
    table = {"x": [1.5, float("nan"), None, 2.0], "t": ["a", None, "", "b"], "b": [True] * 4}
    parquet.write_table(pyarrow.table({**table, "l": [[1]] * 4}), file)
    assert cells(file, "x", "t", "b") == [
        ["1.5", None, None, "2"],
        ["a", None, None, "b"],
        ["true"] * 4,
    ]
    assert read_columns(file, ["x"])[0][0].where(3) == "a.parquet, row 4"
    with pytest.raises(ShoalError, match="holds lists"):
        read_columns(file, ["l"])
    with pytest.raises(ShoalError, match="its columns are x, t, b, l"):
        read_columns(file, ["nothing"])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ShoalError, match=r"extra \[dataframes\]"):
        read_columns(file, ["x"])
