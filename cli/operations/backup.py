"""``shoal backup``: what may be copied of a service, while it runs, into one file."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal import __version__
from shoal.cli.output import check_new, emit_json, read_bytes, say
from shoal.errors import Kind, ShoalError
from shoal.limits import MIB

if TYPE_CHECKING:
    from shoal.services.settings import RoleSettings

_LARGEST = 4096 * MIB


def register(app: typer.Typer) -> None:
    """Add ``shoal backup``."""
    app.command("backup")(backup)


def backup(
    out: Annotated[Path, typer.Option(help="The file to write; it must be new.")],
    shuffler: Annotated[
        Path | None, typer.Option(help="shuffler.toml: back up a shuffler, as its user.")
    ] = None,
    analyzer: Annotated[
        Path | None, typer.Option(help="analyzer.toml: back up an analyzer, as its user.")
    ] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(help="Mode 0600, one line: signing key, TLS keys and passwords too, sealed."),
    ] = None,
    with_window_keys: Annotated[
        bool,
        typer.Option(
            "--with-window-keys",
            help="With a passphrase: private keys of windows that have not begun, too.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Copy configuration, tasks, certificates, what discoveries ask and, of an analyzer, all that
    is decided. Safe beside a running service, and after every release.

    Never copied: reports, open windows, batches, sums of windows that may yet be withheld, and
    without --with-window-keys every window's private key: what a service deletes, no copy may keep.
    A device's memory is not copied either (docs/OPERATIONS.md).

    Example: shoal backup --analyzer analyzer.toml --out analyzer-2026-11-23.backup
    """
    from shoal.cli.operations import archive

    if (shuffler is None) == (analyzer is None):
        raise ShoalError(
            Kind.CONFIG, "give one of --shuffler shuffler.toml and --analyzer analyzer.toml"
        )
    if with_window_keys and passphrase_file is None:
        raise ShoalError(Kind.CONFIG, "--with-window-keys wants --passphrase-file: keys are sealed")
    check_new(out)
    path, service, config = _configured(shuffler, analyzer)
    passphrase = archive.read_passphrase(passphrase_file) if passphrase_file else None
    # before anything is read: what changes meanwhile is after the copy
    made = archive.Backup(service, int(time.time()), __version__, 0, {})
    files, releases = _public(path, config)
    made = replace(made, files=files, releases=releases)
    keys = 0
    if passphrase is not None:
        secrets, keys = _secrets(config, made.made_at, with_window_keys)
        made = replace(made, sealed=made.seal(secrets, passphrase))
    archive.write(out, made)
    told = {
        "service": service,
        "file": str(out),
        "made_at": made.made_at,
        "releases": releases,
        "secrets": passphrase is not None,
        "window_keys": keys,
    }
    if as_json:
        emit_json(told)
    else:
        _say(told, len(files))


def _say(told: dict[str, Any], files: int) -> None:
    """For people: what is in it, and what is not."""
    say(f"{told['file']}: {told['service']}, {files} files, {told['releases']} releases")
    if not told["secrets"]:
        say(
            "not in it: signing key, TLS keys, passwords (give --passphrase-file, or keep them "
            "elsewhere): without the signing key no task can go on"
        )
    elif not told["window_keys"]:
        say("not in it: private keys of windows; a task goes on only where those are kept")


def _configured(shuffler: Path | None, analyzer: Path | None) -> tuple[Path, str, RoleSettings]:
    """The one of the two that is given. Raises CONFIG."""
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.services.settings import load_settings
    from shoal.shuffler.config import ShufflerConfig

    if shuffler is not None:
        return shuffler, "shuffler", load_settings(ShufflerConfig, shuffler)
    assert analyzer is not None  # noqa: S101 - one of the two
    return analyzer, "analyzer", load_settings(AnalyzerConfig, analyzer)


def _public(path: Path, config: RoleSettings) -> tuple[Mapping[str, bytes], int]:
    """By name, and how many releases the store among them has."""
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.store_copy import copy_decided
    from shoal.cli.operations import places

    files = {places.CONFIG: read_bytes(path)}
    listed = {
        **places.public(config),
        **places.task_files(config.tasks_dir),
        **places.lines(config),
    }
    files |= {name: read_bytes(file) for name, file in listed.items()}
    if not isinstance(config, AnalyzerConfig):
        return files | _steps(config), 0
    with _scratch(config.data_dir) as folder:
        releases = copy_decided(config.data_dir, folder)
        files[places.STORE] = read_bytes(folder / places.STORE, _LARGEST)
    return files | _steps(config), releases


def _steps(config: RoleSettings) -> dict[str, bytes]:
    """Read after the releases: of those that are copied, what follows was told by then, or was not
    told to anybody.
    """
    from shoal.cli.operations import places

    return {name: read_bytes(file) for name, file in places.steps(config).items()}


@contextmanager
def _scratch(data_dir: Path) -> Iterator[Path]:
    """A folder beside the store: a copy of it is as large. Those of backups that were killed go."""
    for left in data_dir.glob(".backup-*"):
        with suppress(OSError), _held(left):
            shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=data_dir) as made, _held(Path(made)):
        yield Path(made)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """As long as its process lives. Raises OSError: another one holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _secrets(config: RoleSettings, now: int, window_keys: bool) -> tuple[dict[str, bytes], int]:
    """By name, and how many keys of windows are among them."""
    from shoal.cli.operations import places

    secrets = {name: read_bytes(path) for name, path in places.secret(config).items()}
    keys = {
        f"{places.KEYS}{key_id.hex}.key": read_bytes(path)
        for key_id in (places.not_begun(config, now) if window_keys else ())
        # one that is gone is no reason to copy nothing
        if (path := config.keys_dir / f"{key_id.hex}.key").exists()
    }
    return secrets | keys, len(keys)
