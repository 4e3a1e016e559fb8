"""Files of a run in a folder that somebody named: what an earlier run left there goes, and nothing
else does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from shoal.analyzer.results.files.exports import CHECKABLE_SUFFIX
from shoal.cli.demo.made import AUTHORITY
from shoal.crypto.trust import TASK_SUFFIX
from shoal.errors import Kind, ShoalError

RESULTS = "results.json"
_FOLDERS = ("tasks", "releases")
_MOST_READ = 1 << 26  # bytes of results


def check_ours(out: Path) -> None:
    """Raises CONFIG if ``out`` holds tasks or releases that no earlier run's results tell of."""
    ours = set(_told(out))
    for folder in _FOLDERS:
        try:
            found = sorted((out / folder).iterdir())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG, f"cannot read {out / folder}: {error.strerror}: name another folder"
            ) from None
        strange = next((each for each in found if (folder, each.name) not in ours), None)
        if strange is not None:
            raise ShoalError(
                Kind.CONFIG,
                f"--out: {strange} is of no earlier run that {RESULTS} there tells of, and would "
                "be lost among these: name a new folder",
            )


def remove_ours(out: Path) -> None:
    """What an earlier run left in the folders of tasks and releases, and its authority's key.
    Raises CONFIG.
    """
    try:
        told = list(_told(out))
        if told:
            (out / AUTHORITY).unlink(missing_ok=True)
        for folder, name in told:
            (out / folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot take away what was left in {out}: {error.strerror}"
        ) from None


def write_private(path: Path, data: bytes) -> None:
    """In the place of what was there, for its owner alone. Raises CONFIG."""
    try:
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


def _told(out: Path) -> Iterator[tuple[str, str]]:
    """(folder, file name) of all that the results there tell of; nothing where there are none."""
    try:
        with (out / RESULTS).open("rb") as file:
            tasks = json.loads(file.read(_MOST_READ))["tasks"]
        releases = [task["release"] for task in tasks]
        files = [
            (f"{one['name']}", f"{one['name']}-{one['task_id'][:8]}-{int(one['window'])}")
            for one in releases
        ]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return
    for task, release in files:
        if "/" not in task + release and "\0" not in task + release:
            yield "tasks", f"{task}{TASK_SUFFIX}"
            yield "releases", f"{release}{CHECKABLE_SUFFIX}"
