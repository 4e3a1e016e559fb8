"""Files of releases, as ``shoal results export --format release`` writes them, on a device that
follows a model: read whole, and believed in nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal import codec
from shoal.clients.rounds.learning import MOST_BYTES, signed_release
from shoal.clients.sources.json_file import read_regular
from shoal.clients.sources.problem import SourceError
from shoal.errors import Kind, ShoalError
from shoal.protos import release_pb2


@dataclass(frozen=True, slots=True)
class HandedRelease:
    """What a file says that it is. ``task_id``: bytes. ``signed``: a SignedRelease, which nobody
    verified yet.
    """

    window: int
    task_id: bytes
    signed: bytes


def read_release(file: Path) -> HandedRelease:
    """Raises CONFIG for what can't be read, INVALID for what is no release; both name the file."""
    try:
        data = read_regular(file, MOST_BYTES)
    except SourceError as error:
        reason = str(error).removeprefix("cannot be read: ")
        raise ShoalError(Kind.CONFIG, f"cannot read {file}: {reason}") from None
    try:
        signed = signed_release(data)
        message = codec.parse(release_pb2.SignedRelease, signed, "signed release")
        release = codec.parse(release_pb2.Release, message.release, "release")
    except ShoalError as error:
        if error.kind is not Kind.INVALID:
            raise
        raise ShoalError(Kind.INVALID, f"{file}: {error.message}") from None
    return HandedRelease(release.window, release.task_id, signed)


def another_release(file: Path, window: int, before: Path | str) -> str:
    """The line for whoever finds two releases of one window that differ."""
    return (
        f"{file}: another release of window {window} than {before} has: ask the analyzer's "
        "operator which one holds, and answer neither before"
    )
