"""The analyzer's HPKE keys: one file per window's key, ``<key id in hex>.key``, deleted once its
windows are released.

Beside it is ``<key id in hex>.releasing`` from before the first release to the deletion. A key
without it was used for no release: that is how a restore knows, where the releases are gone.
"""

from __future__ import annotations

from pathlib import Path

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import delete_key_file, load_hpke_key
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import KeyId, TaskId
from shoal.log import get_log
from shoal.services.whole_files import replace_whole

log = get_log("analyzer")
SUFFIX, RELEASING = ".key", ".releasing"


class KeyFolder:
    """Keys are read when a batch needs them and never held for longer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key_id: KeyId) -> Path:
        """Where this key is, or would be."""
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

    def load_for(self, key_id: KeyId, task_id: TaskId, window: int) -> HpkePrivateKey:
        """The key of a window that a peer asks for: what is wrong with its file is the operator's
        to know, from the log. Raises UNAVAILABLE.
        """
        try:
            return self.load(key_id)
        except ShoalError as error:
            log.error("a window's key can't be read", task=task_id, window=window, error=error)
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"the analyzer can't read its key for window {window}: its operator finds the "
                "reason in its log",
            ) from None

    def begin_release(self, key_id: KeyId) -> None:
        """Note durably that a release of the key's window is about to be made. Raises OSError."""
        if not self._releasing(key_id).exists():
            replace_whole(self._releasing(key_id), b"")

    def delete(self, key_id: KeyId) -> None:
        """Gone is fine. Raises KEY_FILE if it can't be removed, OSError if the note can't."""
        hit("analyzer.key.delete")
        delete_key_file(self.path(key_id))
        self._releasing(key_id).unlink(missing_ok=True)

    def _releasing(self, key_id: KeyId) -> Path:
        return self._folder / f"{key_id.hex}{RELEASING}"
