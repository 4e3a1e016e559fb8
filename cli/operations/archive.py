"""The file of a backup: a tar of public files under their digests, and secrets under a passphrase.

``backup.json`` comes first: what it is a backup of, when it was made, and the SHA-256 of every
public member. ``secrets.sealed``: AES-256-GCM under scrypt(passphrase), with the header's SHA-256
as associated data. So who opens it knows that every file is from who knew the passphrase; a backup
with a passphrase has it also if there are no secrets.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import secrets as random_secrets
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from shoal.cli.output import check_new
from shoal.errors import Kind, ShoalError
from shoal.limits import MIB
from shoal.services.whole_files import whole_file
from shoal.storage.private_files import read_private_line

FORMAT = 2
_HEADER, _SEALED = "backup.json", "secrets.sealed"
_LARGEST = 4096 * MIB  # of all members
_SALT, _NONCE = 16, 12  # bytes
_WORK = 1 << 16  # of scrypt, with r = 8: 64 MiB of memory for each guess
_LEAST_PASSPHRASE = 16  # characters


@dataclass(frozen=True, slots=True)
class Backup:
    """service: "shuffler" or "analyzer". made_at: Unix seconds. version: of the program that made
    it. releases: how many its store holds. files: public, by name; sealed: the secrets, if any.
    """

    service: str
    made_at: int
    version: str
    releases: int
    files: Mapping[str, bytes] = field(repr=False)
    sealed: bytes = field(default=b"", repr=False)

    def header(self) -> bytes:
        """What it says of itself and of its files, always in the same bytes."""
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        said = {
            "format": FORMAT,
            "service": self.service,
            "made_at": self.made_at,
            "version": self.version,
            "releases": self.releases,
            "files": digests,
        }
        return json.dumps(said, indent=1, sort_keys=True).encode()

    @property
    def _bound(self) -> bytes:
        return b"shoal/v1/backup " + hashlib.sha256(self.header()).digest()

    def seal(self, secrets: Mapping[str, bytes], passphrase: bytes) -> bytes:
        """Secrets as they are kept in it."""
        salt, nonce = random_secrets.token_bytes(_SALT), random_secrets.token_bytes(_NONCE)
        plain = json.dumps(
            {name: base64.b64encode(data).decode() for name, data in secrets.items()}
        )
        return (
            salt
            + nonce
            + AESGCM(_key(passphrase, salt)).encrypt(nonce, plain.encode(), self._bound)
        )

    def unseal(self, passphrase: bytes) -> dict[str, bytes]:
        """Secrets by name: it is from who knew the passphrase. Raises CONFIG for another
        passphrase, one that it was not made with, or a file that was changed.
        """
        if not self.sealed:
            raise ShoalError(
                Kind.CONFIG,
                "this backup was made without a passphrase, or its sealed part was taken out: "
                "name another, or leave --passphrase-file out if you trust where it comes from",
            )
        salt, rest = self.sealed[:_SALT], self.sealed[_SALT:]
        try:
            plain = AESGCM(_key(passphrase, salt)).decrypt(
                rest[:_NONCE], rest[_NONCE:], self._bound
            )
        except (InvalidTag, ValueError):
            raise ShoalError(
                Kind.CONFIG,
                "the passphrase does not open this backup, or it was changed since it was made: "
                "give the right one, or another copy",
            ) from None
        return {name: base64.b64decode(data) for name, data in json.loads(plain).items()}


def _key(passphrase: bytes, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=_WORK, r=8, p=1).derive(passphrase)


def read_passphrase(path: Path) -> bytes:
    """The one line of a file that nobody else may read. Raises KEY_FILE, CONFIG."""
    line = read_private_line(path)
    if len(line) < _LEAST_PASSPHRASE or b"\n" in line:
        raise ShoalError(
            Kind.CONFIG,
            f"{path}: a passphrase is one line of {_LEAST_PASSPHRASE} characters or more: "
            "openssl rand -base64 24 makes one",
        )
    return line


def write(path: Path, backup: Backup) -> None:
    """A new file, mode 0600, whole or not at all, durably. Raises CONFIG."""
    check_new(path)
    members = {_HEADER: backup.header(), **backup.files}
    if backup.sealed:
        members[_SEALED] = backup.sealed
    try:
        with whole_file(path) as file, tarfile.open(fileobj=file, mode="w") as tar:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o600
                tar.addfile(member, io.BytesIO(data))
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


def read(path: Path) -> Backup:
    """Raises CONFIG for what is no backup, is damaged, or is of a newer version."""
    members, total = dict[str, bytes](), 0
    try:
        with tarfile.open(path, "r:") as tar:
            for one in tar:
                total += one.size
                if total > _LARGEST or not one.isreg() or one.issparse():
                    raise tarfile.ReadError("no member of a backup")
                members[one.name] = _content(tar, one)
    except (OSError, tarfile.TarError, EOFError) as error:
        reason = "it is no backup: give a whole file that shoal backup wrote"
        if isinstance(error, OSError):
            reason = error.strerror or "it can't be read"
        raise ShoalError(Kind.CONFIG, f"cannot read {path}: {reason}") from None
    try:
        written = members.pop(_HEADER, b"{}")
        header: dict[str, Any] = json.loads(written)
        if header.get("format") != FORMAT:
            raise ShoalError(
                Kind.CONFIG, f"{path}: no backup that this version reads: upgrade, or name another"
            )
        sealed = members.pop(_SEALED, b"")
        made = Backup(
            str(header["service"]),
            int(header["made_at"]),
            str(header["version"]),
            int(header["releases"]),
            members,
            sealed,
        )
        if made.header() != written:
            raise ValueError("other files than the header says")
        return made
    except (KeyError, ValueError, TypeError, AttributeError):
        raise ShoalError(Kind.CONFIG, f"{path} is damaged: take another copy of it") from None


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None:
        raise tarfile.ReadError("no member of a backup")
    return file.read()
