"""A copy of analyzer.db for a backup: all of the windows that are decided, and nothing of others.

What was delivered and not released yet is the shuffler's to deliver again. Sums of a window that
may yet be withheld are to be deleted then, so no copy may hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from shoal.analyzer.core import BatchState
from shoal.analyzer.release_signatures import ReleaseSignatures, signed_spending
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.codec import parse
from shoal.crypto.signing import SigningContext, is_signed
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import delivery_pb2, release_pb2
from shoal.storage import sqlite
from shoal.storage.checksums import row_digest

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


def copy_signed(source: Path, folder: Path, keys: Mapping[TaskId, bytes]) -> int:
    """Write FILE_NAME into ``folder``, with what the analyzer of each task (``keys``) signed in
    ``source``, a file that anybody may have made; how many releases of it were left out.

    Taken are releases with their batches and acknowledgements. What a release cost is read from its
    signed bytes, so laws of losses are left out, and tallies and sums, which nobody signed.
    """
    AnalyzerStore(folder / FILE_NAME).close()
    left_out, signers = 0, {task_id.raw: ReleaseSignatures([key]) for task_id, key in keys.items()}
    with (
        closing(sqlite.connect_read_only(source)) as old,
        closing(sqlite.connect(folder / FILE_NAME)) as new,
    ):
        new.execute("BEGIN IMMEDIATE")
        rows = old.execute("SELECT task_id, window, release, signature FROM releases").fetchall()
        for row in rows:
            signer = signers.get(row[0])
            if signer is None or not signer.hold(*row):
                left_out += 1
                continue
            release = parse(release_pb2.Release, row[2], "release")
            batch = _acknowledged(old, row[:2], keys[TaskId(row[0])], release.manifest_hash)
            if not batch and not release.HasField("rounds"):  # rounds have no batch
                left_out += 1
                continue
            cost = signed_spending(row[2])
            _insert(new, "releases", *row, cost.epsilon_upper, cost.delta, None, cost.lifetime)
            for table, values in batch.items():
                _insert(new, table, *values)
        for key in set(keys.values()):
            _insert(new, "signer", key)
        new.execute("COMMIT")
        new.execute("PRAGMA journal_mode = DELETE")
    return left_out


def _acknowledged(
    old: sqlite.Connection, which: tuple[bytes, int], key: bytes, manifest_hash: bytes
) -> dict[str, tuple[Any, ...]]:
    """The batch that the release is of, and its acknowledgement, by their tables; nothing unless
    all three are of one manifest.
    """
    where = "WHERE task_id = ? AND window = ?"
    batch = old.execute(f"SELECT manifest FROM batches {where}", which).fetchone()  # noqa: S608
    ack = old.execute(f"SELECT ack, signature FROM acks {where}", which).fetchone()  # noqa: S608
    if (
        batch is None
        or ack is None
        or not all(isinstance(value, bytes) for value in (*batch, *ack))
        or not is_signed(key, SigningContext.ACK, *ack)
        or parse(delivery_pb2.Ack, ack[0], "acknowledgement").manifest_hash != manifest_hash
        or Digest.of(batch[0]).raw != manifest_hash
    ):
        return {}
    return {
        "batches": (*which, batch[0], manifest_hash, int(BatchState.DONE)),
        "acks": (*which, *ack),
    }


def _insert(new: sqlite.Connection, table: str, *values: Any) -> None:
    row = (*values, row_digest(*values))
    columns = {
        "releases": "task_id, window, release, signature, epsilon, delta, loss_law, lifetime",
        "batches": "task_id, window, manifest, manifest_hash, state",
        "acks": "task_id, window, ack, signature",
        "signer": "key",
    }[table]
    places = ", ".join("?" * len(row))
    new.execute(f"INSERT INTO {table} ({columns}, digest) VALUES ({places})", row)  # noqa: S608
