"""What a restore writes, and what it must not undo.

A copy is of the past. What happened since is not in it: releases, deleted keys, closed windows. So
nothing is taken for undone: windows of which a shuffler lost its memory are closed, releases that
may have been made since are counted as lost, and a window's key is put back only if the window has
not begun.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal import failpoints
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.store import FILE_NAME
from shoal.cli.operations import places
from shoal.cli.operations.archive import Backup
from shoal.cli.operations.restored_store import put_store
from shoal.cli.output import read_bytes
from shoal.clocks import timekeeper
from shoal.crypto.admission.revocation import SUFFIX
from shoal.crypto.discovery_steps import task_of_step
from shoal.crypto.step_folder import STEP_SUFFIX, STEPS_FOLDER, StepFolder
from shoal.crypto.task_folder import load_task_folder
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX
from shoal.errors import Kind, ShoalError
from shoal.services.process import HALF_RESTORED, DataFolder, fsync_folder, make_folder
from shoal.services.settings import RoleSettings, load_settings
from shoal.services.whole_files import replace_whole
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.stores.closing import begun, close_for_good
from shoal.shuffler.stores.configured import open_store

_STATES = "state.db"
# in the file that says that a restore is not done: what the database was found to have
_MEMORY, _NOTHING = b"its memory\n", b"nothing\n"
_KINDS: dict[str, type[RoleSettings]] = {"shuffler": ShufflerConfig, "analyzer": AnalyzerConfig}
UNKNOWN_MAKER = "nobody can tell who made this backup: it has no passphrase, or none was given"


@dataclass(slots=True)
class Restored:
    """written, kept: names of the backup. missing: what the service needs and neither the backup
    nor the disk has; missing_keys: of those the private keys of windows to come. closed: windows of
    a shuffler closed for good. lost: windows of an analyzer that may have been released since.
    left_out: releases of a backup that anybody may have made, which the analyzer did not sign.
    steps_left_out: the same of what discoveries ask. discoveries: of an analyzer, that go on: what
    they asked since the backup is not in it; steps: the folder for it.
    authenticated: who made the backup knew the passphrase. made_at: of the backup, Unix seconds.
    """

    service: str
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    missing_keys: int = 0
    closed: int = 0
    lost: int = 0
    left_out: int = 0
    steps_left_out: int = 0
    discoveries: int = 0
    steps: str = ""
    authenticated: bool = False
    made_at: int = 0

    def json(self) -> dict[str, Any]:
        """The same, for programs."""
        return asdict(self)

    def lines(self) -> list[str]:
        """What a person must know."""
        told = [f"still missing: {name}: put it there" for name in self.missing]
        told.append(
            f"windows given up and devices revoked since {_utc(self.made_at)} are not in it: do it "
            "again"
        )
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
        if self.left_out:
            told.append(
                f"{self.left_out} releases of the backup are not what the analyzer of their task "
                "signed: they were left out"
            )
        if self.steps_left_out:
            told.append(
                f"{self.steps_left_out} steps of discoveries in the backup are not what the "
                "analyzer of a task here signed, or do not follow from those that are here: they "
                "were left out"
            )
        if self.discoveries:
            told.append(
                f"{self.discoveries} discoveries go on, and what they asked since "
                f"{_utc(self.made_at)} is not in it: before the service starts, put the shuffler's "
                f"files steps/*.step into {self.steps}, in place of those there "
                "(docs/DISCOVERY.md)"
            )
        if self.lost:
            told.append(
                f"{self.lost} windows may have been released since the backup: their releases are "
                "counted as lost, and nothing is promised of all together; restore a newer backup "
                "if there is one"
            )
        return told


def put_back(
    made: Backup,
    secrets: Mapping[str, bytes] | None,
    path: Path,
    agree: Callable[[list[str], str], None],
) -> Restored:
    """Write what is missing. secrets: None if nobody can tell who made the backup. agree is given
    what can't be undone, in lines, and today's date, and raises if it is not to be. Raises CONFIG
    (another service's backup, a store that is there, a clock before the backup, before anything is
    written), CONFLICT (a file that is there and differs), KEY_FILE.
    """
    now = time.time()
    if now < made.made_at:
        raise ShoalError(
            Kind.CONFIG,
            "this machine's clock is before the backup was made: set it right, windows are closed "
            "by it",
        )
    _check_names(made)
    config = _configured(made, path, authenticated=secrets is not None)
    store = config.data_dir / (_STATES if made.service == "shuffler" else FILE_NAME)
    half = config.data_dir / HALF_RESTORED
    again = half.exists()
    if store.exists() and not again:
        raise ShoalError(
            Kind.CONFIG,
            f"{store} is there, and newer than any copy: start the service with it, or move it "
            "aside if it is damaged",
        )
    seen = timekeeper.load(config.data_dir)
    if seen is not None and now < seen.last.wall:
        raise ShoalError(
            Kind.CONFIG,
            f"this machine's clock is before {_utc(seen.last.wall)}, when the service last looked "
            "at it: set it right, windows are closed by it",
        )
    unknown = [UNKNOWN_MAKER] if secrets is None else []
    agree(unknown + _settled(made, config, now), _utc(now)[:10])
    done = Restored(made.service, authenticated=secrets is not None, made_at=made.made_at)
    with DataFolder(config.data_dir, restoring=True) as folder:
        # until all is there no service starts here, and a restore may be done again
        if not again:
            _begin(half)
        _put(done, places.CONFIG, path, made.files[places.CONFIG], secret=False, changed=True)
        _put_files(done, config, made, secrets or {}, now)
        if isinstance(config, ShufflerConfig):
            done.closed = asyncio.run(_close_begun(config, now, half, again=again))
        else:
            done.lost, done.left_out = put_store(
                config, made, folder, now, authenticated=done.authenticated
            )
            done.written.append(places.STORE)
            done.discoveries = places.discoveries(config, now)
            done.steps = str(config.data_dir / STEPS_FOLDER)
        failpoints.hit("restore.filled")
        half.unlink()
        fsync_folder(folder)
    return done


def _begin(half: Path, word: bytes = b"") -> None:
    try:
        replace_whole(half, word, "restore.begin")
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {half}: {error.strerror or 'unwritable'}"
        ) from None


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _settled(made: Backup, config: RoleSettings, now: float) -> list[str]:
    """What the clock decides for good, before anything is written."""
    with tempfile.TemporaryDirectory() as folder:
        there = places.task_files(config.tasks_dir) if config.tasks_dir.is_dir() else {}
        named = {name: data for name, data in made.files.items() if name.startswith(places.TASKS)}
        for name, data in {**named, **{one: read_bytes(at) for one, at in there.items()}}.items():
            (Path(folder) / Path(name).name).write_bytes(data)
        tasks = load_task_folder(Path(folder), config.authority_keys).served.values()
        count = sum(len(list(begun(one, now))) for one in tasks)
    shared = isinstance(config, ShufflerConfig) and config.store.kind == "postgresql"
    ends = {
        "shuffler": "they go on if the database still has this shuffler's tables, else they are "
        "closed for good"
        if shared
        else "they are closed for good, and what they held and was not delivered is lost",
        "analyzer": "those that have no release in the backup and whose private key is gone are "
        "counted as lost releases",
    }
    return [
        f"this machine's clock says {_utc(now)}; the backup is of {_utc(made.made_at)}",
        f"  {count} windows have begun by now: {ends[made.service]}",
        "  with a wrong clock that would be wrong, and it can't be undone",
    ]


def _check_names(made: Backup) -> None:
    """Whether it has what a backup of its service has. Raises CONFIG."""
    wanted = {places.CONFIG} | ({places.STORE} if made.service == "analyzer" else set())
    foreign = [
        name
        for name in made.files
        if name.startswith(places.TASKS)
        and (
            name != places.TASKS + Path(name).name
            or Path(name).suffix not in (TASK_SUFFIX, SCHEDULE_SUFFIX, SUFFIX)
        )
    ]
    foreign += [
        name
        for name in made.files
        if name.startswith(places.STEPS)
        and (name != places.STEPS + Path(name).name or Path(name).suffix != STEP_SUFFIX)
    ]
    if made.service not in _KINDS or not wanted <= made.files.keys() or foreign:
        raise ShoalError(
            Kind.CONFIG,
            "this is no backup of a shuffler or an analyzer as shoal makes them: name another",
        )


def _configured(made: Backup, path: Path, *, authenticated: bool) -> RoleSettings:
    """The configuration that is there, else the backup's. Of a backup that anybody may have made,
    it may name nothing outside its own folder. Writes nothing that stays. Raises CONFIG.
    """
    if path.exists():
        return load_settings(_KINDS[made.service], path)
    trial = path.with_name(f".{path.name}.trial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial.unlink(missing_ok=True)
        _write_new(trial, made.files[places.CONFIG], 0o600)
        config = load_settings(_KINDS[made.service], trial)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None
    finally:
        trial.unlink(missing_ok=True)
    home = path.resolve().parent
    folders = (config.data_dir, config.keys_dir, config.tasks_dir)
    for target in (*folders, *places.public(config).values(), *places.secret(config).values()):
        if not authenticated and not target.resolve().is_relative_to(home):
            raise ShoalError(
                Kind.CONFIG,
                f"{UNKNOWN_MAKER}: its configuration names {target}, outside {home}; put your own "
                f"configuration at {path} first, or give the passphrase",
            )
    return config


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
    _put_steps(done, config, made)
    wanted = places.not_begun(config, now)
    for key_id in sorted(wanted):
        name = f"{places.KEYS}{key_id.hex}.key"
        target = config.keys_dir / f"{key_id.hex}.key"
        if name in secrets:
            _put(done, name, target, secrets[name], secret=True)
        elif not target.exists():
            done.missing_keys += 1


def _put_steps(done: Restored, config: RoleSettings, made: Backup) -> None:
    """What the analyzer of a task signed, that does not contradict what is there: the service takes
    no other, whoever made the backup.
    """
    steps = StepFolder(config.data_dir / STEPS_FOLDER, replace_whole)
    by_id = {one.task_id: one.task for one in places.served(config)}
    for name in sorted(one for one in made.files if one.startswith(places.STEPS)):
        data = made.files[name]
        try:
            task_id = task_of_step(data)
            task = by_id.get(task_id)
            fresh = task is not None and steps.take(task, task_id, data)
        except ShoalError as error:
            if error.kind is Kind.OVERLOADED:  # the disk
                raise
            done.steps_left_out += 1
            continue
        done.steps_left_out += task is None
        if task is not None:
            (done.written if fresh else done.kept).append(name)


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
    _write_new(staged, data, mode)
    staged.rename(path)
    fsync_folder(path.parent)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


async def _close_begun(config: ShufflerConfig, now: float, half: Path, *, again: bool) -> int:
    """A shuffler without its memory would open windows anew that were full, delivered or answered.
    Returns how many were closed: of a restore that is done ``again`` all that are. A database that
    shufflers share has their memory: with this disk nothing of it was lost, and a window without a
    report is the others' to open. Whether it had is asked once: this may make the tables itself.
    """
    if config.store.kind == "postgresql":
        from shoal.cli.operations import database_checks

        if not (word := read_bytes(half)):
            word = _MEMORY if await database_checks.remembers(config) else _NOTHING
            _begin(half, word)
        if word == _MEMORY:
            return 0
    storage, count = await open_store(config), 0
    try:
        for one in places.served(config):
            windows = begun(one, now)
            closed = await close_for_good(storage.reports, one, windows)
            count += len(windows if again else closed)
        return count
    finally:
        await storage.close()
