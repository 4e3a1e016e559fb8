"""What a role has of its machine: versions, room, rights of files, stores, the clock."""

from __future__ import annotations

import os
import platform
import pwd
import stat
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import grpc

from shoal import __version__
from shoal.cli.operations.findings import Findings
from shoal.clocks.readings import in_words
from shoal.clocks.timekeeper import inspect
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB
from shoal.storage import sqlite

_GIB = 1 << 30
_LITTLE = 20  # a disk that has less than a twentieth left is nearly full


def versions(findings: Findings) -> None:
    """What runs here."""
    findings.ok(
        "versions",
        f"shoal {__version__}, Python {platform.python_version()}, grpcio {grpc.__version__}, "
        f"cryptography {version('cryptography')}, SQLite {sqlite.LIBRARY_VERSION}",
    )


def disk(findings: Findings, folder: Path) -> None:
    """Room for what is kept, and whether it may be written."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    space = os.statvfs(there)
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    room = f"{_of_size(free, total)} free for {folder}"
    if space.f_flag & os.ST_RDONLY:
        findings.fail("disk", f"the disk of {folder} is read-only: remount it, or mend it")
    elif free < LIMITS.disk_free:
        findings.fail("disk", f"{room}, less than {LIMITS.disk_free // MIB} MiB: make room")
    elif space.f_files and not space.f_favail:
        findings.fail("disk", f"the disk of {folder} takes no more files: remove some")
    elif free < min(total // _LITTLE, 10 * _GIB):
        findings.warn("disk", f"{room}: make room before it is full")
    else:
        findings.ok("disk", room)


def _of_size(free: int, total: int) -> str:
    unit, name = (_GIB, "GiB") if free >= _GIB else (MIB, "MiB")
    return f"{free / unit:.1f} of {total / unit:.1f} {name}"


def rights(
    findings: Findings, data: Path, secrets: Iterable[Path], folders: Iterable[Path]
) -> None:
    """That nobody else reads what is secret: data, key files, and folders of them. Nothing is
    opened.
    """
    bad, foreign = 0, list[Path]()
    owner = data.stat().st_uid if data.exists() else None
    looked = list(secrets)
    for folder in folders:
        if not folder.is_dir():
            findings.fail("permissions", f"{folder} is no folder: make it, or name another")
            bad += 1
            continue
        looked += sorted(folder.glob("*.key"))
        if not os.access(folder, os.W_OK):
            findings.warn(
                "permissions",
                f"{folder} can't be written by this user: the service deletes keys there; run "
                "this as its user",
            )
            bad += 1
    for path in [data, *looked]:
        try:
            found = path.stat()
        except OSError as error:
            if path != data:
                findings.fail("permissions", f"{path}: {error.strerror}: put it there")
                bad += 1
            continue
        if found.st_mode & 0o077:
            mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
            findings.fail("permissions", f"{path} can be read by others: run chmod {mode} {path}")
            bad += 1
        elif owner is not None and found.st_uid != owner:
            foreign.append(path)
            bad += 1
    if owner is not None and owner != os.geteuid() != 0:
        findings.fail(
            "permissions",
            f"{data} is {_name(owner)}'s, and this runs as {_name(os.geteuid())}: run it as the "
            f"service's user, or chown -R {data} to that user",
        )
        bad += 1
    elif foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        findings.warn(
            "permissions",
            f"{foreign[0]}{more} belong to another user than {data}: chown them to the service's "
            "user",
        )
    if not bad:
        findings.ok("permissions", f"{len(looked)} key files and data_dir are their owner's alone")


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in a container
        return f"user {user}"


def clock(findings: Findings, folder: Path, service: str) -> None:
    """How the wall clock stands beside what the machine counted since its start, and beside the
    other service's.
    """
    try:
        report = inspect(folder)
    except ShoalError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        now = datetime.now(UTC)
        findings.warn(
            "clock",
            f"it is {now:%Y-%m-%d %H:%M:%S} UTC here, and no service has kept a time "
            "yet: compare it with a clock that you trust, and start the service",
        )
        return
    if report.trouble is not None:
        findings.fail(
            "clock",
            f"{report.say}: nothing is closed or deleted: set the clock right, or see `shoal "
            f"{service} clock`",
        )
        return
    off = "" if report.ahead is None else f", {in_words(abs(report.ahead))} off what is expected"
    peers = "".join(
        f", {in_words(abs(by))} from peer {name}" for name, by in sorted(report.peers.items())
    )
    findings.ok("clock", f"believed{off}{peers}")


def stores(findings: Findings, folder: Path, names: Iterable[str]) -> None:
    """That SQLite finds its files whole. They are opened read-only, beside a running service."""
    there = [folder / name for name in names if (folder / name).exists()]
    for path in there:
        try:
            with closing(sqlite.connect_read_only(path)) as connection:
                whole = sqlite.is_whole(connection)
        except sqlite.Error as error:
            if not sqlite.is_damaged(error):
                findings.warn("store", f"{path.name} is busy or away: try again")
                continue
            whole = False
        if whole:
            findings.ok("store", f"{path.name} is whole")
        else:
            findings.fail(
                "store",
                f"{path.name} is damaged: stop the service, put a backup in its place, or start "
                "it and let it save what it can read (docs/OPERATIONS.md)",
            )
    for aside in sorted(folder.glob("*.damaged-*")):
        findings.warn(
            "store", f"{aside.name} was set aside as damaged: look at it, then move it away"
        )
