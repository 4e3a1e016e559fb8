"""Columns of a Parquet file, by pyarrow where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.questions.answers import text_of
from shoal.study.frames import package

MAGIC = b"PAR1"


def parquet_columns(
    path: Path, most: int, places: Callable[[Sequence[str]], Sequence[int]]
) -> list[list[str | None]]:
    """The cells, as texts, of the columns that ``places`` chooses among the file's names. Raises
    CONFIG.
    """
    parquet, broken = package("pyarrow.parquet"), package("pyarrow").ArrowException
    try:
        file = parquet.ParquetFile(path)
        known = file.schema_arrow.names
        names = [known[place] for place in places(known)]
        if file.metadata.num_rows > most:
            raise ShoalError(
                Kind.CONFIG, f"{path.name} has more than {most:,} rows: give fewer of them"
            )
        table = file.read(columns=names)
        return [[_text(path, name, cell) for cell in table[name].to_pylist()] for name in names]
    except (broken, OSError):
        raise ShoalError(
            Kind.CONFIG, f"{path.name} is a damaged Parquet file: write it again, or give CSV"
        ) from None


def _text(path: Path, name: str, cell: Any) -> str | None:
    if isinstance(cell, datetime | date):
        return cell.isoformat()
    if isinstance(cell, float) and cell != cell:  # noqa: PLR0124 - NaN, as data frames write it
        return None
    if cell is None or isinstance(cell, bool | int | float | str):
        text = text_of(cell)
        return "inf" if text is None and cell is not None else text
    raise ShoalError(
        Kind.CONFIG,
        f'{path.name}: column "{name}" holds {type(cell).__name__}s: texts, numbers or truth '
        "values are wanted",
    )
