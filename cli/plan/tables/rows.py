"""A file with a row for each person as a record and its answers."""

from __future__ import annotations

import math
from pathlib import Path

from shoal.arrays import NDArray, np
from shoal.cli.load.table import TableColumn, read_columns
from shoal.domain import AnswerRecord, Categories
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import number_of
from shoal.questions.record import Attribute, all_pairs

MOST_ANSWERS = 64  # different ones of a column


def read_rows(
    path: Path, columns: str, tables: list[str]
) -> tuple[AnswerRecord, NDArray[np.int64]]:
    """``columns``: names between commas; ``tables``: of those that are asked for, "age,sex" each,
    none: all pairs. Returns the record and int64[rows, attributes], cells; an empty cell of the
    file is no answer. Raises CONFIG.
    """
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if len(names) < 2:
        raise ShoalError(Kind.CONFIG, "--columns: give two or more, as --columns age,sex,health")
    found, _ = read_columns(path, names)
    try:
        attributes = tuple(Attribute(one.name, _answers(one)) for one in found)
        record = AnswerRecord(attributes, _marginals(names, tables))
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"{path.name}: {error.message}") from None
    cells = [
        [one.answers.encode(cell) for cell in column.cells]
        for one, column in zip(attributes, found, strict=True)
    ]
    return record, np.array(cells, dtype=np.int64).T


def _answers(column: TableColumn) -> Categories:
    texts = {cell for cell in column.cells if cell is not None}
    if len(texts) > MOST_ANSWERS:
        raise ShoalError(
            Kind.CONFIG,
            f'column "{column.name}" has {len(texts):,} different values, and {MOST_ANSWERS} are '
            "the most: give groups, as 18-34",
        )

    def place(text: str) -> tuple[float, str]:
        number = number_of(text)
        return (math.inf if number is None else float(number)), text

    return Categories(tuple(sorted(texts, key=place)))


def _marginals(names: list[str], tables: list[str]) -> tuple[tuple[int, ...], ...]:
    if not tables:
        return all_pairs(len(names))
    found = set()
    for one in tables:
        wanted = [name.strip() for name in one.split(",")]
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ShoalError(
                Kind.CONFIG, f'--table {one}: "{unknown[0]}" is none of {", ".join(names)}'
            )
        found.add(tuple(sorted(map(names.index, wanted))))
    return tuple(sorted(found))
