"""The shufflers' signatures of the manifests that were taken on, a small file each.

A release names its manifest by a hash. Whoever checks a release wants to see that the task's
shuffler signed that manifest (``shoal verify``). Nothing else needs the signature again, so a lost
one makes that one statement of a release unproven, and nothing wrong.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from shoal.crypto.signing import SIGNATURE_SIZE
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.services.process import fsync_folder, make_folder
from shoal.storage.disks import why_not

FOLDER = "manifests"  # in the analyzer's data_dir


class ManifestSignatures:
    """``folder`` is made with the first signature."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, manifest: Digest, signature: bytes) -> None:
        """Durably, all or nothing; once. Raises OVERLOADED if the disk can't take it: the shuffler
        comes again.
        """
        path = self._path(manifest)
        if path.exists():
            return
        # Several callers may offer one batch at once: each stages a file of its own.
        staged = path.with_suffix(f".{secrets.token_hex(8)}")
        try:
            make_folder(self._folder)
            with open(staged, "wb") as file:
                file.write(signature)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
            fsync_folder(self._folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                staged.unlink()
            why = why_not(error, self._folder.parent)
            raise ShoalError(
                Kind.OVERLOADED, f"a manifest's signature can't be written{why}: try again later"
            ) from error

    def of(self, manifest: Digest) -> bytes:
        """64 bytes; b"" where none is kept that could be one."""
        try:
            data = self._path(manifest).read_bytes()
        except OSError:
            return b""
        return data if len(data) == SIGNATURE_SIZE else b""

    def _path(self, manifest: Digest) -> Path:
        return self._folder / manifest.hex
