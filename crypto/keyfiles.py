"""Private keys on disk: PEM, mode 0600, written whole or not at all, never over another key, never
read when others could.

An HPKE key has a PEM label of its own, for all suites: base64 of ``u8 version (1) || u16be kem ||
u16be kdf || u16be aead || raw secret`` (``crypto.suites``). PKCS #8 could hold an X25519 key but
not say which AEAD it is for, and two suites share that curve. Signing keys are PKCS #8 (RFC 8410).

Every failure is a KEY_FILE error of one line that names the file and what to do; none holds a byte
of the key.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import glob
import os
import secrets
import shlex
import stat
from pathlib import Path

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import CONFIG_HEADER_SIZE, config_header, suite_of_header
from shoal.errors import Kind, ShoalError

HPKE_LABEL = "SHOAL HPKE PRIVATE KEY"
_VERSION = 1
_LARGEST = 64 * 1024  # bytes; a key file is a few hundred
_LINE = 64  # base64 characters per line (RFC 7468)


def save_signing_key(path: Path, key: SigningKey) -> None:
    """Write an Ed25519 key. Raises KEY_FILE; an existing file is left as it is."""
    save_private_pem(path, key.to_pem())


def load_signing_key(path: Path) -> SigningKey:
    """Read an Ed25519 key. Raises KEY_FILE."""
    pem = load_private_pem(path)
    try:
        return SigningKey.from_pem(pem)
    except ShoalError:
        raise _error(
            path,
            "holds no Ed25519 private key in unencrypted PKCS #8 PEM: name the right file, or make "
            "a new key",
        ) from None


def save_hpke_key(path: Path, key: HpkePrivateKey) -> None:
    """Write an HPKE key. Raises KEY_FILE; an existing file is left as it is."""
    body = bytes((_VERSION,)) + config_header(key.config.suite) + key.to_raw_secret()
    text = base64.b64encode(body).decode()
    lines = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    save_private_pem(
        path,
        "\n".join(
            [f"-----BEGIN {HPKE_LABEL}-----", *lines, f"-----END {HPKE_LABEL}-----", ""]
        ).encode(),
    )


def load_hpke_key(path: Path) -> HpkePrivateKey:
    """Read an HPKE key of any suite. Raises KEY_FILE."""
    pem = load_private_pem(path)
    try:
        return _parse_hpke(pem)
    except (ShoalError, binascii.Error, ValueError):
        raise _error(
            path,
            f'holds no "{HPKE_LABEL}" that this version reads: name the right file, or make a new '
            "key",
        ) from None


def _parse_hpke(pem: bytes) -> HpkePrivateKey:
    lines = pem.decode("ascii").split()
    text = " ".join(lines)
    begin, end = f"-----BEGIN {HPKE_LABEL}-----", f"-----END {HPKE_LABEL}-----"
    if not (text.startswith(begin) and text.endswith(end)):
        raise ValueError("label")
    body = base64.b64decode(text[len(begin) : -len(end)].replace(" ", ""), validate=True)
    if len(body) < 1 + CONFIG_HEADER_SIZE or body[0] != _VERSION:
        raise ValueError("version")
    suite = suite_of_header(body[1 : 1 + CONFIG_HEADER_SIZE])
    return HpkePrivateKey.from_raw_secret(suite, body[1 + CONFIG_HEADER_SIZE :])


def save_private_pem(path: Path, pem: bytes) -> None:
    """Write any private PEM (a TLS key, for example) with mode 0600, atomically and durably.

    The bytes go to a new file beside ``path`` (O_EXCL, mode 0600 from the first byte on, fsync),
    which then gets its name by a hard link: unlike a rename, that fails when the name is taken, so
    two writers can't overwrite one another. Raises KEY_FILE if ``path`` exists or can't be written.
    """
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        handle = os.open(
            staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            with open(handle, "wb") as file:
                os.fchmod(file.fileno(), 0o600)  # whatever the umask took away
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
            os.link(staged, path)
        finally:
            os.unlink(staged)
        _sync_folder(path)
    except FileExistsError:
        raise _error(
            path,
            "exists already and a key is never overwritten: move it away, or choose another name",
        ) from None
    except FileNotFoundError:
        raise _error(
            path,
            f"can't be written: make the folder first, mkdir -p {shlex.quote(str(path.parent))}",
        ) from None
    except OSError as error:
        raise _error(
            path,
            f"can't be written ({_reason(error)}): choose a folder that this user may write to",
        ) from None


def load_private_pem(path: Path) -> bytes:
    """The bytes of a private file, checked on the file that is really read (after symlinks):
    regular, no bit for group or others.

    Raises KEY_FILE.
    """
    try:
        # O_NONBLOCK: a named pipe must not hang us
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _error(path, "does not exist: name the right file, or make the key") from None
    except OSError as error:
        raise _error(
            path, f"can't be read ({_reason(error)}): run as the user who owns it"
        ) from None
    try:
        return _checked(handle, path)
    except OSError as error:
        raise _error(
            path, f"can't be read ({_reason(error)}): restore it from its backup"
        ) from None
    finally:
        os.close(handle)


def _checked(handle: int, path: Path) -> bytes:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise _error(path, "is no regular file: name a key file")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise _error(
            path, f"has mode {mode:04o}, so others may use it: chmod 600 {shlex.quote(str(path))}"
        )
    with open(handle, "rb", closefd=False) as file:
        pem = file.read(_LARGEST + 1)
    if len(pem) > _LARGEST:
        raise _error(path, f"is larger than {_LARGEST} bytes, so it is no key: name the right file")
    return pem


def delete_key_file(path: Path) -> None:
    """Unlink a key file, durably; also what an interrupted writing of the same name may have left
    beside it.

    What was on the disk's blocks is the file system's matter (docs/THREAT_MODEL.md). A file that is
    already gone is fine: the deletion may have been interrupted before. Raises KEY_FILE if it can't
    be removed.
    """
    try:
        for name in [
            str(path),
            *glob.glob(f"{glob.escape(str(path.with_name('.' + path.name)))}.*.new"),
        ]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        _sync_folder(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _error(
            path,
            f"can't be deleted ({_reason(error)}): delete it by hand, it must not outlive its "
            "window",
        ) from None


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    return (error.strerror or "input/output error").lower()


def _error(path: Path, what: str) -> ShoalError:
    return ShoalError(Kind.KEY_FILE, f"key file {path} {what}")
