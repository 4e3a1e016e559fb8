"""What a restore writes, and what it must not undo.

A copy is of the past. What happened since is not in it: releases, deleted keys, closed windows. So
nothing is taken for undone: windows of which a shuffler lost its memory are closed, releases that
may have been made since are counted as lost, and a window's key is put back only if the window has
not begun.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.store import FILE_NAME
from shoal.analyzer.store_mending import read_head, write_head
from shoal.cli.operations import places
from shoal.cli.operations.archive import Backup
from shoal.crypto.admission.revocation import SUFFIX
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.services import given_up
from shoal.services.process import DataFolder, fsync_folder, make_folder
from shoal.services.settings import RoleSettings, load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.stores.closing import begun, close_for_good
from shoal.shuffler.stores.configured import open_store
from shoal.storage import sqlite

_STATES = "state.db"
_SETTLED_S = 3_600.0  # after which a service that runs has done what a line says


@dataclass(slots=True)
class Restored:
    """written, kept: names of the backup. missing: what the service needs and neither the backup
    nor the disk has; missing_keys: of those the private keys of windows to come. closed: windows of
    a shuffler closed for good. lost: windows of an analyzer that may have been released since.
    """

    service: str
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    missing_keys: int = 0
    closed: int = 0
    lost: int = 0

    def json(self) -> dict[str, Any]:
        """The same, for programs."""
        return asdict(self)

    def lines(self) -> list[str]:
        """What a person must know."""
        told = [f"still missing: {name}: put it there" for name in self.missing]
        if self.missing_keys:
            told.append(
                f"still missing: {self.missing_keys} private keys of windows that have not begun: "
                "put them into keys_dir, or sign the next version of the question"
            )
        if self.closed:
            told.append(
                f"{self.closed} windows that had begun are closed for good: what they held and "
                "was not delivered is lost"
            )
        if self.lost:
            told.append(
                f"{self.lost} windows may have been released since the backup: their releases are "
                "counted as lost, and nothing is promised of all together; restore a newer backup "
                "if there is one"
            )
        return told


def put_back(made: Backup, secrets: Mapping[str, bytes], path: Path) -> Restored:
    """Write what is missing. Raises CONFIG (another service's backup, a store that is there, a
    clock before the backup), CONFLICT (a file that is there and differs), KEY_FILE.
    """
    now = time.time()
    if now < made.made_at:
        raise ShoalError(
            Kind.CONFIG,
            "this machine's clock is before the backup was made: set it right, windows are closed "
            "by it",
        )
    kinds: dict[str, type[RoleSettings]] = {"shuffler": ShufflerConfig, "analyzer": AnalyzerConfig}
    done = Restored(made.service)
    _put(done, places.CONFIG, path, made.files[places.CONFIG], secret=False, changed=True)
    config = load_settings(kinds[made.service], path)
    with DataFolder(config.data_dir) as folder:
        store = _STATES if made.service == "shuffler" else FILE_NAME
        if (folder / store).exists():
            raise ShoalError(
                Kind.CONFIG,
                f"{folder / store} is there, and newer than any copy: start the service with it, "
                "or move it aside if it is damaged",
            )
        _put_files(done, config, made, secrets, now)
        if isinstance(config, ShufflerConfig):
            done.closed = asyncio.run(_close_begun(config, now))
        else:
            done.lost = _put_store(done, config, made, folder, now)
    return done


def _put_files(
    done: Restored, config: RoleSettings, made: Backup, secrets: Mapping[str, bytes], now: float
) -> None:
    make_folder(config.keys_dir)
    config.tasks_dir.mkdir(parents=True, exist_ok=True)
    for name, data in made.files.items():
        if name.startswith(places.TASKS):
            target = config.tasks_dir / Path(name).name
            # a list of revoked devices is replaced by newer ones
            _put(done, name, target, data, secret=False, changed=name.endswith(SUFFIX))
    for name, target in places.public(config).items():
        if name in made.files:
            _put(done, name, target, made.files[name], secret=False, changed=True)
    for name, target in places.secret(config).items():
        if name in secrets:
            _put(done, name, target, secrets[name], secret=True, changed=name != "signing_key")
        elif not target.exists():
            done.missing.append(str(target))
    if places.GIVEN_UP in made.files:
        name = places.GIVEN_UP
        _put(done, name, config.data_dir / name, made.files[name], secret=True, changed=True)
    wanted = places.not_begun(config, now)
    for key_id in sorted(wanted):
        name = f"{places.KEYS}{key_id.hex}.key"
        target = config.keys_dir / f"{key_id.hex}.key"
        if name in secrets:
            _put(done, name, target, secrets[name], secret=True)
        elif not target.exists():
            done.missing_keys += 1


def _put(
    done: Restored, name: str, path: Path, data: bytes, *, secret: bool, changed: bool = False
) -> None:
    """Write a file that is not there. One that is there stays: it must be the same, unless it may
    have ``changed`` since (a renewed certificate).
    """
    try:
        if path.exists():
            if not changed and path.read_bytes() != data:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"{path} is there and differs from the backup's: move one of them away",
                )
            done.kept.append(name)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, data, 0o600 if secret else 0o644)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None
    done.written.append(name)


def _write(path: Path, data: bytes, mode: int) -> None:
    staged = path.with_name(f".{path.name}.new")
    staged.unlink(missing_ok=True)
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    fsync_folder(path.parent)


async def _close_begun(config: ShufflerConfig, now: float) -> int:
    """A shuffler without its memory would open windows anew that were full, delivered or answered.
    Returns how many were closed.
    """
    storage = await open_store(config)
    try:
        return sum(
            [
                len(await close_for_good(storage.reports, one, begun(one, now)))
                for one in places.served(config)
            ]
        )
    finally:
        await storage.close()


def _put_store(done: Restored, config: RoleSettings, made: Backup, folder: Path, now: float) -> int:
    """The store, and before it the number of releases that there may have been. Returns how many
    of them it lacks.
    """
    known = read_head(folder) or 0
    staged = folder / f".{FILE_NAME}.restored"
    staged.write_bytes(made.files[places.STORE])
    staged.chmod(0o600)
    with closing(sqlite.connect_read_only(staged)) as store:
        rows = store.execute("SELECT task_id, window FROM releases").fetchall()
    released = {(TaskId(task_id), window) for task_id, window in rows}
    uses = Counter[KeyId]()
    for one in places.served(config):
        uses.update(places.window_keys(config, one))
    # given up long before the copy, and never whole: not opened, then or since
    never = {
        line.key
        for line in given_up.read(folder)
        if line.was != "processing" and line.at < made.made_at - _SETTLED_S
    }
    lost = 0
    for one in places.served(config):
        ids = places.window_keys(config, one)
        for window in begun(one, now):
            key_id = ids[window.window]
            kept = (config.keys_dir / f"{key_id.hex}.key").exists() and uses[key_id] == 1
            # A window's key goes with its release: where it is, there was none.
            known_end = released | never
            lost += not kept and (window.task_id, window.window) not in known_end
    write_head(folder, max(known, len(released) + lost))
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    staged.rename(folder / FILE_NAME)
    fsync_folder(folder)
    done.written.append(places.STORE)
    return max(known - len(released), lost)
