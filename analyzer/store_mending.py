"""A damaged analyzer.db: set aside, and what can be read of it taken over into a new one. And the
count of releases beside it.

``releases.head`` says how many releases there are, under a checksum. It is written after the
transaction of a release, so it may be one behind and is never ahead: a store that has fewer lost
some, by whatever way (an older copy, a removed file), and what everything together gives away is
then not known any more.
"""

from __future__ import annotations

from pathlib import Path

from shoal.services.whole_files import read_count, write_count
from shoal.storage.checksums import Value, fits
from shoal.storage.salvage import SavedTable

HEAD_NAME = "releases.head"
# Parents before children. Sums come before releases, which close them.
TABLES = {
    "batches": SavedTable(
        "task_id, window, manifest, manifest_hash, state, digest", "task_id, window"
    ),
    "loss_laws": SavedTable("hash, law", "hash"),
    "sums": SavedTable(
        "task_id, window, round_id, survivors, vector, digest", "task_id, window, round_id"
    ),
    "aborted_rounds": SavedTable(
        "task_id, window, reason, count, digest", "task_id, window, reason"
    ),
    "releases": SavedTable(
        "task_id, window, release, signature, epsilon, delta, loss_law, lifetime, digest",
        "task_id, window",
    ),
    "tallies": SavedTable("task_id, window, tally, digest", "task_id, window"),
    "acks": SavedTable("task_id, window, ack, signature, digest", "task_id, window"),
    "signer": SavedTable("key, digest", "key"),
}


def read_head(folder: Path) -> int | None:
    """How many releases there were at least; None if nobody wrote it down, or not legibly. Raises
    OSError.
    """
    return read_count(folder / HEAD_NAME)


def write_head(folder: Path, count: int) -> None:
    """Durably, all or nothing. Raises OSError."""
    write_count(folder / HEAD_NAME, count)


def worth_keeping(table: str, row: tuple[Value, ...]) -> bool:
    """For ``salvage.rescue``: releases and sums also if something of them changed. That there was
    one must not be forgotten, and who reads them looks. (``loss_laws`` have no digest but their
    name.)
    """
    return table in ("releases", "loss_laws", "sums") or fits(row)
