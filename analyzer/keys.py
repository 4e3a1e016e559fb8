"""The analyzer's HPKE keys: one file per window's key, ``<key id in hex>.key``, deleted once its
windows are released.
"""

from __future__ import annotations

from pathlib import Path

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import delete_key_file, load_hpke_key
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import KeyId

SUFFIX = ".key"


class KeyFolder:
    """Keys are read when a batch needs them and never held for longer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key_id: KeyId) -> Path:
        return self._folder / f"{key_id.hex}{SUFFIX}"

    def load(self, key_id: KeyId) -> HpkePrivateKey:
        """Raises KEY_FILE: missing, unreadable, readable by others, or another key than its name
        says.
        """
        key = load_hpke_key(self.path(key_id))
        if key.config.key_id != key_id:
            raise ShoalError(
                Kind.KEY_FILE,
                f"key file {self.path(key_id)} holds another key than its name says: put the right "
                "file there",
            )
        return key

    def delete(self, key_id: KeyId) -> None:
        """Gone is fine. Raises KEY_FILE if it can't be removed."""
        hit("analyzer.key.delete")
        delete_key_file(self.path(key_id))
