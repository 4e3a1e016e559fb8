"""A copy of analyzer.db for a backup: all of the windows that are decided, and nothing of others.

What was delivered and not released yet is the shuffler's to deliver again. Sums of a window that
may yet be withheld are to be deleted then, so no copy may hold them.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.errors import Kind, ShoalError
from shoal.storage import sqlite

# Parents before children; sums before the releases that close them.
_OF_WINDOWS = ("batches", "sums", "aborted_rounds", "releases", "tallies", "acks")
_WHOLE = ("loss_laws", "signer")


def copy_decided(data_dir: Path, folder: Path) -> int:
    """Write FILE_NAME into ``folder``, from the store of ``data_dir``, beside a running service;
    how many releases it holds. All of it is of one moment.

    Raises CONFIG for a store that can't be read, is damaged or lost releases: such a one is no
    copy to go back to.
    """
    source = AnalyzerStore(data_dir / FILE_NAME, read_only=True)
    if source.lost or not _whole(source):
        raise ShoalError(
            Kind.CONFIG,
            f"{data_dir / FILE_NAME} is damaged or lost releases: keep the last backup, and see "
            "`shoal doctor`",
        )
    AnalyzerStore(folder / FILE_NAME).close()  # the schema of this version
    with source.reading() as old, closing(sqlite.connect(folder / FILE_NAME)) as new:
        old.execute("BEGIN")
        new.execute("BEGIN IMMEDIATE")
        for table in (_WHOLE[0], *_OF_WINDOWS, *_WHOLE[1:]):
            decided = (
                " WHERE (task_id, window) IN (SELECT task_id, window FROM releases)"
                if table in _OF_WINDOWS
                else ""
            )
            rows = old.execute(f"SELECT * FROM {table}{decided}").fetchall()  # noqa: S608 - constants
            if rows:
                places = ", ".join("?" * len(rows[0]))
                new.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608
        new.execute("COMMIT")
        old.execute("ROLLBACK")
        (count,) = new.execute("SELECT count(*) FROM releases").fetchone()
        new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    source.close()
    return int(count)


def _whole(store: AnalyzerStore) -> bool:
    with store.reading() as db:
        whole = sqlite.is_whole(db)
    store.releases()  # each is verified
    return whole and not store.damage()
