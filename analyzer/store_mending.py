"""A damaged analyzer.db: set aside, and what can be read of it taken over into a new one. And the
count of releases beside it.

``releases.head`` says how many releases there are, under a checksum. It is written after the
transaction of a release, so it may be one behind and is never ahead: a store that has fewer lost
some, by whatever way (an older copy, a removed file), and what everything together gives away is
then not known any more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from shoal.ids import Digest
from shoal.services.process import fsync_folder
from shoal.storage.checksums import Value, fits
from shoal.storage.salvage import SavedTable

HEAD_NAME = "releases.head"
_HEAD = re.compile(r"(\d{1,18}) ([0-9a-f]{64})\n")
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
    try:
        text = (folder / HEAD_NAME).read_bytes()
    except FileNotFoundError:
        return None
    match = _HEAD.fullmatch(text.decode("ascii", "replace"))
    return int(match[1]) if match and Digest.of(match[1].encode()).hex == match[2] else None


def write_head(folder: Path, count: int) -> None:
    """Durably, all or nothing. Raises OSError."""
    temporary = folder / f"{HEAD_NAME}.new"
    with open(temporary, "wb") as file:
        file.write(f"{count} {Digest.of(str(count).encode()).hex}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / HEAD_NAME)
    fsync_folder(folder)


def worth_keeping(table: str, row: tuple[Value, ...]) -> bool:
    """For ``salvage.rescue``: releases and sums also if something of them changed. That there was
    one must not be forgotten, and who reads them looks. (``loss_laws`` have no digest but their
    name.)
    """
    return table in ("releases", "loss_laws", "sums") or fits(row)
