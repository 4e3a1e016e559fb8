"""The keys of a window, which never enter the database: derived from its hop key, kept in a file of
this machine for as long as they are needed.

All replicas have the window's hop key, so all derive the same, and agree on nothing over the wire.
A file is written, durably, before the rest of the program hears of the window: the hop key is
deleted once the window is decided, and whoever takes the window over after that must still be able
to seal it. ``INBOX`` goes when the window is sealed, ``BATCH`` when it is acknowledged. What the
database, its log, its standbys and its backups hold of the window is waste once these files *and*
the hop key are gone on every replica: the hop key gives the same keys again. Windows that share one
become waste together, when the last of them is decided; a replica that is down keeps what it has.

    root    = HKDF-SHA256(ikm = hop private key, salt = "shoal/v1/window-keys",
                          info = task id || u32be(window) || purpose), 32 bytes
    of INBOX: HKDF-Expand(root, "rows") for AES-256-GCM, "names" for storage keys and tags,
              "check" for the window's check value
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import re
from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import delete_key_file, load_private_pem, save_private_pem
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId, WindowState

_SALT = b"shoal/v1/window-keys"
_SIZE = 32  # bytes of every key
_LABEL = "SHOAL WINDOW KEY"
_FOLDER = "window-keys"
_NAME = re.compile(r"([0-9a-f]{64})-(\d{1,10})\.(inbox|batch)\.key")


@unique
class Purpose(Enum):
    """What a window's key file is for, and the states in which it is needed."""

    INBOX = "inbox"
    BATCH = "batch"

    def needed(self, state: WindowState) -> bool:
        """Whether a window in this state can't be brought to its end without it."""
        first = state in (WindowState.OPEN, WindowState.CLOSING)
        if self is Purpose.INBOX:
            return first
        return first or state in (WindowState.SEALED, WindowState.DELIVERING)


class WindowKey:
    """The root of what a window needs for one purpose. Neither it nor a copy of it prints."""

    def __init__(self, root: bytes) -> None:
        """``root``: 32 bytes. Raises INVALID."""
        if len(root) != _SIZE:
            raise ShoalError(Kind.INVALID, f"a window key is {_SIZE} bytes long")
        self._root = root

    def __repr__(self) -> str:
        return "<WindowKey>"

    def __reduce__(self) -> str:
        raise TypeError("a window key is not pickled")

    def of(self, label: str) -> bytes:
        """32 bytes for one use."""
        return HKDFExpand(hashes.SHA256(), _SIZE, label.encode()).derive(self._root)

    @property
    def check_value(self) -> bytes:
        """32 bytes that say which key this is, and nothing about it."""
        return self.of("check")

    def same_as(self, other: WindowKey) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self._root, other._root)

    def to_pem(self) -> bytes:
        """As it is kept on disk."""
        text = base64.b64encode(self._root).decode()
        return f"-----BEGIN {_LABEL}-----\n{text}\n-----END {_LABEL}-----\n".encode()

    @classmethod
    def from_pem(cls, pem: bytes) -> WindowKey:
        """Raises INVALID."""
        with contextlib.suppress(UnicodeDecodeError, binascii.Error, ValueError):
            begin, text, end = pem.decode("ascii").strip().split("\n")
            if (begin, end) == (f"-----BEGIN {_LABEL}-----", f"-----END {_LABEL}-----"):
                return cls(base64.b64decode(text, validate=True))
        raise ShoalError(Kind.INVALID, "no window key")


def derive(hop_key: HpkePrivateKey, window: WindowId, purpose: Purpose) -> WindowKey:
    """The same for whoever has the hop key."""
    info = window.task_id.raw + window.window.to_bytes(4, "big") + purpose.value.encode()
    return WindowKey(HKDF(hashes.SHA256(), _SIZE, _SALT, info).derive(hop_key.to_raw_secret()))


@dataclass(frozen=True, slots=True)
class _Held:
    window: WindowId
    purpose: Purpose


class WindowKeyFiles:
    """The key files of one machine, in a folder of its ``data_dir``. What it reads is kept in
    memory until it is deleted.
    """

    def __init__(self, data_dir: Path) -> None:
        """Makes the folder. Raises KEY_FILE."""
        self._folder = data_dir / _FOLDER
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            raise ShoalError(
                Kind.KEY_FILE,
                f"{self._folder} can't be made: let this user write to data_dir",
            ) from None
        self._known: dict[_Held, WindowKey] = {}

    def held(self) -> list[tuple[WindowId, Purpose]]:
        """Of which windows there are files."""
        return [
            (WindowId(TaskId.parse(parts[1]), int(parts[2])), Purpose(parts[3]))
            for path in self._folder.iterdir()
            if (parts := _NAME.fullmatch(path.name)) is not None
        ]

    def get(self, window: WindowId, purpose: Purpose) -> WindowKey | None:
        """None: there is no such file. Raises KEY_FILE if it can't be used."""
        held = _Held(window, purpose)
        if held not in self._known:
            path = self._path(held)
            if not path.exists():
                return None
            try:
                self._known[held] = WindowKey.from_pem(load_private_pem(path))
            except ShoalError as error:
                if error.kind is Kind.KEY_FILE:
                    raise
                raise ShoalError(
                    Kind.KEY_FILE,
                    f"key file {path} is damaged: delete it while the window's hop key is there, "
                    "it is made anew",
                ) from None
        return self._known[held]

    def keep(self, window: WindowId, purpose: Purpose, key: WindowKey) -> None:
        """Durable on return; may be repeated. Raises KEY_FILE, also where there is another key."""
        kept = self.get(window, purpose)
        if kept is None:
            save_private_pem(self._path(_Held(window, purpose)), key.to_pem())
            self._known[_Held(window, purpose)] = key
        elif not kept.same_as(key):
            raise ShoalError(
                Kind.KEY_FILE,
                f"key file {self._path(_Held(window, purpose))} holds another key than the "
                "window's hop key gives: data_dir and keys_dir belong to different shufflers",
            )

    def delete(self, window: WindowId, purpose: Purpose) -> None:
        """File and memory, durably; may be repeated. Raises KEY_FILE."""
        held = _Held(window, purpose)
        self._known.pop(held, None)
        delete_key_file(self._path(held))

    def _path(self, held: _Held) -> Path:
        window = held.window
        return self._folder / f"{window.task_id.hex}-{window.window}.{held.purpose.value}.key"
