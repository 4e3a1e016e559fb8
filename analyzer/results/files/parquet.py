"""Releases as a Parquet file, for data frames: the columns of the CSV, with types."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_TEXTS = frozenset({"task_id", "name", "withheld", "label", "manifest_hash"})
_COUNTS = frozenset({"window", "n", "rejected", "n_certified", "processed", "damaged"})


def parquet_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The file's bytes, with these columns; what a row does not have is null. Wants pyarrow (extra
    "parquet"), and raises ModuleNotFoundError without it.
    """
    import pyarrow
    import pyarrow.parquet

    types = {
        name: pyarrow.string()
        if name in _TEXTS
        else pyarrow.int64()
        if name in _COUNTS
        else pyarrow.float64()
        for name in columns
    }
    known = list(rows)
    arrays = [
        pyarrow.array([None if row.get(name) == "" else row.get(name) for row in known], type=kind)
        for name, kind in types.items()
    ]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays, names=list(types)), file)
    return file.getvalue()
