"""What both stores for sums share: a window's row and tables, and the keys that never get there.

Devices are hashes under a key, seeds and vectors are encrypted; both keys are derived from the
window's hop key, which every replica has until the window is decided, and which is deleted then:
what the database, its log and its standbys still hold is waste from that moment on. Nothing has to
be kept in a file, because a window that is not decided still has its hop key.

    root = HKDF-SHA256(ikm = hop private key, salt = "shoal/v1/sum-keys",
                       info = task id || u32be(window)), 64 bytes: name key || AES-256-GCM key
"""

from __future__ import annotations

import hmac
import struct
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.crypto.hpke import HpkePrivateKey
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

_SALT = b"shoal/v1/sum-keys"
_KEY = 32  # bytes
_NONCE = 12  # bytes


class ClaimedWindows(Protocol):
    """What is wanted of the windows of all kinds: ``shoal...postgresql.windows.Windows``."""

    def step(self, claim: Claim) -> AbstractAsyncContextManager[Connection]:
        """A transaction in which the claim holds to its end. Raises StaleClaimError."""
        ...

    def hop_key(self, window: WindowId) -> HpkePrivateKey | None:
        """None: it is not here, or not any more."""
        ...


class SumKeys:
    """Of one window. Neither it nor a copy of it prints."""

    def __init__(
        self, hop_key: HpkePrivateKey, window: WindowId, entropy: Entropy = SYSTEM
    ) -> None:
        self._window = named(window)[0] + struct.pack(">I", window.window)
        root = HKDF(hashes.SHA256(), 2 * _KEY, _SALT, self._window).derive(hop_key.to_raw_secret())
        self._names, self._aead, self._entropy = root[:_KEY], AESGCM(root[_KEY:]), entropy

    def __repr__(self) -> str:
        return "<SumKeys>"

    def __reduce__(self) -> str:
        raise TypeError("a window's keys are not pickled")

    def device(self, device_key: bytes) -> bytes:
        """What a device is called in the tables: 32 bytes."""
        return hmac.digest(self._names, device_key, "sha256")

    def seal(self, part: bytes, device: bytes, place: int, data: bytes) -> bytes:
        """``part``: what it is of, one byte; bound to the device's name and the place."""
        nonce = self._entropy.bytes(_NONCE)
        return nonce + self._aead.encrypt(nonce, data, self._bound(part, device, place))

    def open(self, part: bytes, device: bytes, place: int, sealed: bytes) -> bytes | None:
        """None: it is not what was sealed for this place."""
        try:
            return self._aead.decrypt(
                sealed[:_NONCE], sealed[_NONCE:], self._bound(part, device, place)
            )
        except (InvalidTag, ValueError):  # the latter: shorter than a nonce
            return None

    def _bound(self, part: bytes, device: bytes, place: int) -> bytes:
        return part + self._window + device + struct.pack(">q", place)


class SumWindows:
    """The rows of windows of sums, and their keys."""

    def __init__(self, windows: ClaimedWindows, entropy: Entropy = SYSTEM) -> None:
        self._windows, self._entropy = windows, entropy
        self._keys: dict[WindowId, SumKeys] = {}

    def step(self, claim: Claim) -> AbstractAsyncContextManager[Connection]:
        """See ``ClaimedWindows``."""
        return self._windows.step(claim)

    def keys(self, window: WindowId) -> SumKeys:
        """Raises UNAVAILABLE if they can't be made here: another replica may."""
        found = self._keys.get(window)
        if found is None:
            hop_key = self._windows.hop_key(window)
            if hop_key is None:
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    f"the hop key of window {window.window} of task {window.task_id.short} is not "
                    "here: give all replicas the same keys_dir",
                )
            found = self._keys[window] = SumKeys(hop_key, window, self._entropy)
        return found

    def forget(self, window: WindowId) -> None:
        """The window is over: its keys leave this process."""
        self._keys.pop(window, None)


def named(window: WindowId) -> tuple[bytes, int]:
    """As tables name it."""
    return window.task_id.raw, window.window


async def begin(connection: Connection, window: WindowId) -> int:
    """The number of the window's row and tables, made now if there are none; its row is locked to
    the transaction's end.
    """
    made = await connection.fetchval(
        "INSERT INTO sums (task_id, win) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id",
        *named(window),
    )
    if made is not None:
        await connection.execute(
            f"CREATE TABLE answered_{made} (device bytea PRIMARY KEY);"
            f"CREATE TABLE vector_{made} (device bytea PRIMARY KEY, place integer NOT NULL UNIQUE,"
            " head bytea NOT NULL, body bytea NOT NULL, left_out boolean NOT NULL DEFAULT false);"
            f"ALTER TABLE vector_{made} ALTER body SET STORAGE EXTERNAL"
        )
        return int(made)
    found = await connection.fetchval(
        "SELECT id FROM sums WHERE task_id = $1 AND win = $2 FOR UPDATE", *named(window)
    )
    return int(found)
