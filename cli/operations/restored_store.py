"""The analyzer's store out of a backup, and how many releases it may lack."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from shoal.analyzer.keys import RELEASING, SUFFIX
from shoal.analyzer.store import FILE_NAME
from shoal.analyzer.store_copy import copy_signed
from shoal.analyzer.store_mending import read_head, write_head
from shoal.cli.operations import places
from shoal.cli.operations.archive import Backup
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.services import given_up
from shoal.services.process import fsync_folder
from shoal.services.settings import RoleSettings
from shoal.shuffler.stores.closing import begun
from shoal.storage import sqlite

_SETTLED_S = 3_600.0  # after which a service that runs has done what a line says
_Window = tuple[TaskId, int]


def put_store(
    config: RoleSettings, made: Backup, folder: Path, now: float, *, authenticated: bool
) -> tuple[int, int]:
    """The store, and before it the number of releases that there may have been. Of a backup that
    anybody may have made, it is what the analyzer signed. Returns how many releases it lacks, and
    how many were left out. Raises CONFIG.
    """
    known = read_head(folder) or 0
    for left in folder.glob(".restore-*"):  # of one that was cut off
        shutil.rmtree(left, ignore_errors=True)
    staged, left_out = folder / f".{FILE_NAME}.restored", 0
    try:
        if authenticated:
            staged.write_bytes(made.files[places.STORE])
        else:
            left_out = _put_signed(config, made, staged)
        staged.chmod(0o600)
        with closing(sqlite.connect_read_only(staged)) as store:
            rows = store.execute("SELECT task_id, window FROM releases").fetchall()
        released = {(TaskId(one), window) for one, window in rows}
        lost = _lost(config, made, released, folder, now, authenticated=authenticated)
        write_head(folder, max(known, len(rows) + lost))
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        staged.replace(folder / FILE_NAME)
        fsync_folder(folder)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {staged}: {error.strerror or 'unwritable'}"
        ) from None
    except sqlite.Error:
        raise ShoalError(
            Kind.CONFIG, "the backup's store can't be read: name another backup"
        ) from None
    return max(known - len(rows), lost), left_out


def _put_signed(config: RoleSettings, made: Backup, staged: Path) -> int:
    keys = {one.task_id: one.task.analyzer_key for one in places.served(config)}
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=staged.parent) as folder:
        source = Path(folder) / "backup.db"
        source.write_bytes(made.files[places.STORE])
        left_out = copy_signed(source, Path(folder), keys)
        (Path(folder) / FILE_NAME).replace(staged)
    return left_out


def _lost(
    config: RoleSettings,
    made: Backup,
    released: set[_Window],
    folder: Path,
    now: float,
    *,
    authenticated: bool,
) -> int:
    """Windows that may have been released since the backup."""
    uses = Counter[KeyId]()
    for one in places.served(config):
        uses.update(places.window_keys(config, one))
    # given up long before the copy, and never whole: not opened, then or since; lines that
    # anybody may have written prove nothing
    never = (
        {
            line.key
            for line in given_up.read(folder)
            if line.was != "processing" and line.at < made.made_at - _SETTLED_S
        }
        if authenticated
        else set[_Window]()
    )
    lost, known = 0, released | never
    for one in places.served(config):
        ids = places.window_keys(config, one)
        for window in begun(one, now):
            key_id = ids[window.window]
            # A window's key goes after its release, and a note beside it is there before: where
            # the key is alone, there was none.
            key = config.keys_dir / f"{key_id.hex}{SUFFIX}"
            kept = key.exists() and not key.with_suffix(RELEASING).exists() and uses[key_id] == 1
            lost += not kept and (window.task_id, window.window) not in known
    return lost
