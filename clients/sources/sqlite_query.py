"""A value out of a SQLite database of another program: opened for reading alone, with a limit on
time and size.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from shoal.clients.sources.problem import SourceError
from shoal.domain import Value
from shoal.limits import LIMITS

_STEPS = 5_000  # instructions of SQLite's machine between two looks at the clock


def query_sqlite(file: Path, query: str, timeout_s: float) -> Value:
    """First column of the first row. Raises SourceError: also for no row, and for bytes, which are
    no answer to anything.
    """
    end = time.monotonic() + timeout_s
    try:
        # mode=ro: never made, never written, whatever the query says; query_only besides, for what
        # it might attach.
        with closing(
            sqlite3.connect(
                f"file:{quote(str(file.resolve()))}?mode=ro", timeout=timeout_s, uri=True
            )
        ) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMITS.source_bytes)
            database.set_progress_handler(lambda: int(time.monotonic() > end), _STEPS)
            database.execute("PRAGMA query_only = ON")
            row = database.execute(query).fetchone()
    except sqlite3.Error as error:
        if time.monotonic() > end:
            raise SourceError("took too long") from None
        # The name of SQLite's code, never its text, which may quote what is in the database.
        raise SourceError(
            f"the query failed ({getattr(error, 'sqlite_errorname', None) or type(error).__name__})"
        ) from None
    except sqlite3.Warning:
        raise SourceError("one query, not several") from None
    if row is None:
        raise SourceError("the query gave no row")
    value = row[0]
    if value is not None and not isinstance(value, int | float | str):
        raise SourceError("the query gave bytes, not a text or a number")
    return value
