"""A synthetic table as a file: CSV or Parquet, one column for each attribute, labels as texts."""

from __future__ import annotations

import csv
import io

from shoal.analyzer.results.files.exports import quoted
from shoal.analyzer.tables.synthesis import Synthesis


def csv_of(made: Synthesis) -> bytes:
    """UTF-8, a header line. Texts that a spreadsheet would take for a formula are quoted, as in
    every CSV of ours.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([quoted(name) for name in made.columns])
    columns = ([quoted(label) for label in made.labelled(at)] for at in range(len(made.columns)))
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def parquet_rows(made: Synthesis) -> bytes:
    """Dictionary-encoded texts: a column's labels stand once. Wants pyarrow (extra "parquet"), and
    raises ModuleNotFoundError without it.
    """
    import pyarrow
    import pyarrow.parquet

    columns = [
        pyarrow.DictionaryArray.from_arrays(
            pyarrow.array(made.rows[:, at], type=pyarrow.int32()), pyarrow.array(one.labels)
        )
        for at, one in enumerate(made.tables.released.attributes)
    ]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns, names=list(made.columns)), file)
    return file.getvalue()
