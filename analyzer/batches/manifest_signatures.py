"""The shufflers' signatures of the manifests that were taken on, a small file each.

A release names its manifest by a hash. Whoever checks a release wants to see that the task's
shuffler signed that manifest (``shoal verify``). Nothing else needs the signature again, so a lost
one makes that one statement of a release unproven, and nothing wrong.
"""

from __future__ import annotations

import threading
from pathlib import Path

from shoal.crypto.signing import SIGNATURE_SIZE
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.services.process import make_folder
from shoal.services.whole_files import replace_whole
from shoal.storage.disks import why_not

FOLDER = "manifests"  # in the analyzer's data_dir


class ManifestSignatures:
    """``folder`` is made with the first signature."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()

    def keep(self, manifest: Digest, signature: bytes) -> None:
        """Durably, all or nothing; once. Raises OVERLOADED if the disk can't take it: the shuffler
        comes again.
        """
        path = self._path(manifest)
        try:
            with self._lock:  # several callers may offer one batch at once
                if not path.exists():
                    make_folder(self._folder)
                    replace_whole(path, signature, "analyzer.signature")
        except OSError as error:
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
