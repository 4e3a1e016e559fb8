"""Columns of a table that people have: CSV as spreadsheets and programs write it, or Parquet. Every
cell is a text, None where it is empty.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.cli.load.parquet import MAGIC, parquet_columns
from shoal.cli.output import read_bytes
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import BLANKS

MOST_ROWS = 5_000_000
_MOST_BYTES = 1 << 30
_CLOSE = 0.75  # of 1: from here on a name is a misspelling of another
_MOST_NAMES = 20  # columns named in one line
_DELIMITERS = ",;\t|"
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Bytes at the beginning of texts that say how they are encoded.
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``lines[i]``: where cell i stands in the file; of Parquet, the number of its row."""

    file: str
    name: str
    cells: Sequence[str | None]
    lines: Sequence[int]
    row: str = "line"
    # of the file, where it is not a comma: numbers may have decimal commas then
    delimiter: str = ","

    def where(self, index: int) -> str:
        """ "answers.csv, line 17": the place of a cell, for people."""
        return f"{self.file}, {self.row} {self.lines[index]:,}"

    def first(self, text: str) -> str:
        """The place of the first cell with a text."""
        return self.where(next(i for i, cell in enumerate(self.cells) if cell == text))

    def among(self, rows: Sequence[int]) -> TableColumn:
        """Of these rows alone, in their order."""
        return TableColumn(
            self.file,
            self.name,
            [self.cells[row] for row in rows],
            array("Q", [self.lines[row] for row in rows]),
            self.row,
            self.delimiter,
        )


def read_columns(
    path: Path, names: Sequence[str], missing: Iterable[str] = ()
) -> tuple[list[TableColumn], list[str]]:
    """The columns of these names, all equally long, and what to say of how the file was read.

    ``missing``: texts that stand for an empty cell. Raises CONFIG naming file and line.
    """
    data = read_bytes(path, _MOST_BYTES)
    if not data.strip():
        raise _wrong(f"{path.name} is empty: a header with the columns' names is wanted, then rows")
    empty = {"", *(text.strip(BLANKS) for text in missing)}
    if data.startswith(MAGIC):
        found = parquet_columns(path, MOST_ROWS, lambda known: _places(path, known, names))
        columns = [
            TableColumn(path.name, name, _cleaned(cells, empty), range(1, len(cells) + 1), "row")
            for name, cells in zip(names, found, strict=True)
        ]
        notes: list[str] = []
    else:
        columns, notes = _csv_columns(path, data, names, empty)
    for column in columns:
        if not column.cells:
            raise _wrong(f"{path.name} has a header and no rows: give it one row per person")
        if all(cell is None for cell in column.cells):
            raise _wrong(f'{path.name}: column "{column.name}" is empty: choose another one')
    return columns, notes


def _cleaned(cells: Iterable[str | None], empty: set[str]) -> list[str | None]:
    plain = (None if cell is None else cell.strip(BLANKS) for cell in cells)
    return [None if cell is None or cell in empty else cell for cell in plain]


def _csv_columns(
    path: Path, data: bytes, names: Sequence[str], empty: set[str]
) -> tuple[list[TableColumn], list[str]]:
    text, notes = _decoded(path, data)
    delimiter = _delimiter(text)
    if delimiter != ",":
        notes.append(f"cells are separated by {_NAMES[delimiter]}")
    rows = _rows(path, text, delimiter)
    _, header = next(rows)
    places = _places(path, header, names)
    cells: list[list[str]] = [[] for _ in names]
    lines = array("Q")
    for line, row in rows:
        if len(row) != len(header):
            raise _wrong(
                f"{path.name}, line {line:,} has {len(row)} cells, the header has {len(header)}: "
                "mend that line; a cell that holds the separator wants quotes"
            )
        if len(lines) == MOST_ROWS:
            raise _wrong(f"{path.name} has more than {MOST_ROWS:,} rows: give fewer of them")
        lines.append(line)
        for column, place in zip(cells, places, strict=True):
            column.append(row[place])
    return [
        TableColumn(path.name, name, _cleaned(column, empty), lines, delimiter=delimiter)
        for name, column in zip(names, cells, strict=True)
    ], notes


def _decoded(path: Path, data: bytes) -> tuple[str, list[str]]:
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise _wrong(f"{path.name} is no text: save the table as CSV in UTF-8") from None
        # never fails but for five bytes, which are no letters there
        text = data.decode("cp1252", "replace")
        return _plain(path, text), ["its letters are not UTF-8: read as Windows-1252 (Latin-1)"]
    return _plain(path, text), []


def _plain(path: Path, text: str) -> str:
    if "\0" in text:
        raise _wrong(f"{path.name} is no text: save the table as CSV in UTF-8, or as Parquet")
    return text


def _delimiter(text: str) -> str:
    """The one that is oftenest in the header, outside of quotes."""
    header = re.sub(r'"[^"]*"', "", text.lstrip().partition("\n")[0])
    return max(_DELIMITERS, key=header.count)


def _rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line that a row begins at, its cells), without blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield line, row
            elif len(row) > 1 or (row and row[0]):
                yield line, row  # cells that are all empty: somebody who answered nothing
            line = reader.line_num + 1
    except csv.Error:
        raise _wrong(
            f"{path.name}, line {line:,}: a quote is not closed, or not doubled within quotes"
        ) from None


def _places(path: Path, header: Sequence[str], names: Sequence[str]) -> list[int]:
    known = [name.strip() for name in header]
    if not names:
        raise _wrong(f"which column? {path.name} has {_shown(known)}: --column NAME")
    for name in names:
        if known.count(name) > 1:
            raise _wrong(f'{path.name} has two columns "{name}": give them different names')
        if name not in known:
            raise _unknown(path, names, known)
    return [known.index(name) for name in names]


def _unknown(path: Path, names: Sequence[str], known: Sequence[str]) -> ShoalError:
    """For a name that is no column's."""
    name = next(name for name in names if name not in known)
    if all(re.fullmatch(r"[-+0-9.,eE]*", cell) for cell in known):
        return _wrong(
            f"{path.name} has no header: its first line holds numbers. Put a line with the "
            "columns' names above it"
        )
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in known], 1, _CLOSE)
    likely = next((each for each in known if each.lower() in close), None)
    if likely is not None:
        return _wrong(f'{path.name} has no column "{name}": is it "{likely}"?')
    return _wrong(f'{path.name} has no column "{name}": its columns are {_shown(known)}')


def _shown(known: Sequence[str]) -> str:
    shown = ", ".join(each or '""' for each in known[:_MOST_NAMES])
    return f"{shown} and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else shown
