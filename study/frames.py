"""Tables for an analyst, and the one place that knows pandas, Polars and Arrow. None of them is
imported unless it is asked for, and none is needed.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from shoal.accounting.meaning import bound_text
from shoal.errors import Kind, ShoalError
from shoal.study.arguments import wrong_key

Cell = str | int | float | bool | None
_MOST_SHOWN = 60  # rows of a table on a screen


class Library(StrEnum):
    """Where a column came from, and so which data frame is wanted back."""

    PANDAS = "pandas"
    POLARS = "polars"
    NONE = ""

    @classmethod
    def of(cls, value: object) -> Library:
        """The library that this object is from. Nothing is imported."""
        top = type(value).__module__.partition(".")[0]
        return cls(top) if top in {cls.PANDAS.value, cls.POLARS.value} else cls.NONE


def package(name: str, extra: str = "dataframes") -> Any:
    """The module of an optional package. Raises CONFIG that says what to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise ShoalError(
            Kind.CONFIG,
            f"this wants {name}, which is not installed: pip install {name}"
            + ("" if name == "polars" else f", or Shoal's extra [{extra}]"),
        ) from None


class Table:
    """Rows under named columns: what Shoal's answers are in where no data frame library is at hand.

    It shows itself as text and in a notebook, gives its rows as dicts, and turns into a data frame
    of pandas or Polars, or a table of Arrow.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        library: Library = Library.NONE,
        caption: str = "",
        unseen: Sequence[str] = (),
    ) -> None:
        """``unseen``: columns that are too wide for a screen; frames have them."""
        self.columns = tuple(columns)
        self.rows = tuple(tuple(row) for row in rows)
        self.caption = caption
        self._seen = [at for at, name in enumerate(self.columns) if name not in unseen]
        self._library = library

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        """The values of a column, in the rows' order."""
        if column not in self.columns:
            raise wrong_key("column", f"give one of {', '.join(self.columns)}")
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def to_dict(self) -> dict[str, list[Cell]]:
        """Column name -> values: what every data frame library takes."""
        return {name: self[name] for name in self.columns}

    def to_pandas(self) -> Any:
        """As a ``pandas.DataFrame``. Raises CONFIG where pandas is not installed."""
        return package("pandas").DataFrame(self.to_dict(), columns=list(self.columns))

    def to_polars(self) -> Any:
        """As a ``polars.DataFrame``. Raises CONFIG where Polars is not installed."""
        return package("polars").DataFrame(self.to_dict(), strict=False)

    def to_arrow(self) -> Any:
        """As a ``pyarrow.Table``. Raises CONFIG where pyarrow is not installed."""
        return package("pyarrow").table(self.to_dict())

    def to_frame(self) -> Any:
        """As a data frame of the library that the data came from; else of pandas or of Polars,
        whichever is installed. Where neither is, this table itself.
        """
        if self._library is Library.POLARS:
            return self.to_polars()
        if self._library is Library.PANDAS or find_spec("pandas") is not None:
            return self.to_pandas()
        return self.to_polars() if find_spec("polars") is not None else self

    def __repr__(self) -> str:
        columns, rows, right = self._screen()
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in [columns, *rows]
        ]
        return "\n".join([*([self.caption] if self.caption else []), *lines, *self._more()])

    def _repr_html_(self) -> str:
        caption = "\n".join([*([self.caption] if self.caption else []), *self._more()])
        return html_table(*self._screen(), caption)

    def _screen(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """The columns and rows that a screen shows, and which columns hold numbers: those stand at
        the right.
        """
        names = [self.columns[at] for at in self._seen]
        rows = [
            [shown_cell(row[at], self.columns[at]) for at in self._seen]
            for row in self.rows[:_MOST_SHOWN]
        ]
        right = [all(not isinstance(row[at], str) for row in self.rows) for at in self._seen]
        return names, rows, right

    def _more(self) -> list[str]:
        hidden = len(self.rows) - _MOST_SHOWN
        return [f"... and {hidden:,} more rows"] if hidden > 0 else []


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], caption: str = ""
) -> str:
    """A plain table for a notebook; all text is escaped."""
    align = ["right" if is_right else "left" for is_right in right]

    def line(tag: str, cells: Sequence[str]) -> str:
        inside = "".join(
            f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
            for cell, side in zip(cells, align, strict=True)
        )
        return f"<tr>{inside}</tr>"

    head = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = "".join(line("td", row) for row in rows)
    return f"<table>{head}<thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"


def shown_cell(cell: Cell, column: str = "") -> str:
    """For people: thousands separated, four digits that matter; an epsilon rounded up."""
    if column.startswith("epsilon") and isinstance(cell, float):
        return bound_text(cell)
    if cell is None:
        return "-"
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    if not math.isfinite(cell):
        return str(cell)
    if cell == 0.0:
        return "0"
    if abs(cell) >= 1e15 or abs(cell) < 1e-4:
        return f"{cell:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{min(digits, 6)}f}"


def table_of(rows: Sequence[Mapping[str, Cell]], columns: Sequence[str], **more: Any) -> Table:
    """The table of dicts that have these columns, or some of them."""
    return Table(columns, [[row.get(name) for name in columns] for row in rows], **more)
