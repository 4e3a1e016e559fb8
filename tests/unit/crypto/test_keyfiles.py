"""Key files: private, whole or absent, never overwritten; each bad case has one line that says how
to mend it.
"""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shoal.crypto import keyfiles
from shoal.crypto.hpke import generate
from shoal.crypto.keyfiles import (
    HPKE_LABEL,
    delete_key_file,
    load_hpke_key,
    load_private_pem,
    load_signing_key,
    save_hpke_key,
    save_private_pem,
    save_signing_key,
)
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from tests.cases import for_each


def refused(act: Callable[[], object], *words: str) -> None:
    with pytest.raises(ShoalError) as caught:
        act()
    text = str(caught.value)
    assert caught.value.kind is Kind.KEY_FILE
    assert "\n" not in text
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for word in words:
        assert word in text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("suite", SuiteId)
def test_hpke_key_round_trip(tmp_path: Path, suite: SuiteId) -> None:
    """The suite comes back too. Planted: the header written for suite 1 always -> suites 2 and 3
    fail.
    """
    path, key = tmp_path / "analyzer.key", generate(suite)
    save_hpke_key(path, key)
    again = load_hpke_key(path)
    assert again.config == key.config
    assert again.to_raw_secret() == key.to_raw_secret()
    assert path.read_bytes().startswith(b"-----BEGIN SHOAL HPKE PRIVATE KEY-----\n")
    assert (
        base64.b64decode(path.read_text().splitlines()[1])
        == b"\x01" + key.config.raw[:6] + key.to_raw_secret()
    )


def test_signing_key_round_trip(tmp_path: Path) -> None:
    path, key = tmp_path / "task.key", SigningKey.generate()
    save_signing_key(path, key)
    assert load_signing_key(path).public == key.public


@for_each("umask", [0o000, 0o022, 0o077, 0o377])
def test_mode_is_0600_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Planted: fchmod removed -> umask 0377 leaves a key that can't be written or read, and this
    fails.
    """
    old = os.umask(umask)
    try:
        save_private_pem(tmp_path / "key", b"pem")
    finally:
        os.umask(old)
    assert mode(tmp_path / "key") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    """Planted: os.replace instead of os.link -> this fails."""
    path = tmp_path / "key"
    save_signing_key(path, SigningKey.generate())
    before = path.read_bytes()
    refused(lambda: save_signing_key(path, SigningKey.generate()), "exists already", "move it away")
    refused(lambda: save_hpke_key(path, generate(SuiteId.X25519_AES128)), "exists already")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    refused(lambda: save_private_pem(tmp_path / "key", b"pem"), "exists already")
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at fsync: no key, no leftover. Planted: the unlink of the staged file
    removed -> this fails.
    """

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(lambda: save_private_pem(tmp_path / "key", b"pem"), "no space left on device")
    assert list(tmp_path.iterdir()) == []


def test_folder_must_exist(tmp_path: Path) -> None:
    refused(
        lambda: save_private_pem(tmp_path / "no" / "key", b"pem"),
        "make the folder first",
        "mkdir -p",
    )


def test_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """A file in place of the folder: the one such failure that also root meets."""
    (tmp_path / "file").write_bytes(b"")
    refused(
        lambda: save_private_pem(tmp_path / "file" / "key", b"pem"),
        "can't be written",
        "not a directory",
    )


@for_each("bits", [0o640, 0o604, 0o660, 0o644, 0o610, 0o601, 0o620, 0o602, 0o666])
def test_any_bit_for_others_is_refused(tmp_path: Path, bits: int) -> None:
    """Planted: mask 0o044 instead of 0o077 -> the write and execute cases fail."""
    path = tmp_path / "key"
    save_signing_key(path, SigningKey.generate())
    path.chmod(bits)
    refused(lambda: load_signing_key(path), f"mode {bits:04o}", f"chmod 600 {path}")
    path.chmod(0o600)
    load_signing_key(path)


@pytest.mark.parametrize("bits", [0o600, 0o400])
def test_private_modes_are_accepted(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "key"
    save_signing_key(path, SigningKey.generate())
    path.chmod(bits)
    load_signing_key(path)


def test_a_link_to_a_private_file_is_fine_and_to_a_public_one_is_not(tmp_path: Path) -> None:
    """What counts is the file that is opened. Planted: lstat of the path instead of fstat -> this
    fails (links are 0777).
    """
    real, link = tmp_path / "real", tmp_path / "link"
    save_signing_key(real, SigningKey.generate())
    link.symlink_to(real)
    assert load_signing_key(link).public == load_signing_key(real).public
    real.chmod(0o644)
    refused(lambda: load_signing_key(link), "mode 0644", "chmod 600")


def test_a_path_with_blanks_is_quoted_in_the_command(tmp_path: Path) -> None:
    path = tmp_path / "my key"
    save_private_pem(path, b"pem")
    path.chmod(0o644)
    refused(lambda: load_private_pem(path), f"chmod 600 '{path}'")


def test_missing_file(tmp_path: Path) -> None:
    for load in (load_signing_key, load_hpke_key):
        refused(partial(load, tmp_path / "none"), "does not exist", "make the key")


def test_folder_and_pipe_are_no_key_files(tmp_path: Path) -> None:
    """A named pipe must not hang the service. Planted: O_NONBLOCK removed -> this test times
    out.
    """
    os.mkfifo(tmp_path / "pipe", 0o600)
    refused(lambda: load_signing_key(tmp_path / "pipe"), "no regular file")
    (tmp_path / "folder").mkdir(mode=0o700)
    refused(lambda: load_signing_key(tmp_path / "folder"), "no regular file")


def test_file_of_another_user() -> None:
    """As a user who may not read the file: run in a child that drops its rights (a root user may
    read everything).
    """
    child = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from shoal.crypto.keyfiles import load_private_pem\n"
        "from shoal.errors import ShoalError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "else: os.chmod(sys.argv[1], 0)\n"
        "try: load_private_pem(Path(sys.argv[1]))\n"
        "except ShoalError as error: print(error.kind.name, error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "key"
        save_signing_key(path, SigningKey.generate())
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", child, str(path)], capture_output=True, text=True, check=True
        )
    assert done.stdout.startswith("KEY_FILE key file ")
    assert "can't be read (permission denied): run as the user who owns it" in done.stdout


GARBLED_SIGNING = [
    b"",
    b"\n",
    b"hello",
    b"\xff" * 100,
    b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
]


@for_each("content", GARBLED_SIGNING)
def test_garbled_signing_key(tmp_path: Path, content: bytes) -> None:
    save_private_pem(tmp_path / "key", content)
    refused(lambda: load_signing_key(tmp_path / "key"), "holds no Ed25519 private key")


def _hpke_pem(body: bytes, label: str = HPKE_LABEL) -> bytes:
    text = base64.b64encode(body).decode()
    return f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n".encode()


GOOD_BODY = bytes.fromhex("01" + "002000010001") + bytes(range(32))
GARBLED_HPKE = {
    "empty": b"",
    "text": b"hello",
    "not ASCII": b"\xff" * 80,
    "no body": _hpke_pem(b""),
    "version alone": _hpke_pem(b"\x01"),
    "version 2": _hpke_pem(b"\x02" + GOOD_BODY[1:]),
    "unknown suite": _hpke_pem(GOOD_BODY[:6] + b"\x02" + GOOD_BODY[7:]),
    "short secret": _hpke_pem(GOOD_BODY[:-1]),
    "long secret": _hpke_pem(GOOD_BODY + b"\x00"),
    "other label": _hpke_pem(GOOD_BODY, "PRIVATE KEY"),
    "no end": _hpke_pem(GOOD_BODY).rpartition(b"-----END")[0],
    "not base64": _hpke_pem(GOOD_BODY).replace(b"\n", b"\n!", 1),
    "two keys": _hpke_pem(GOOD_BODY) * 2,
}


@for_each("content", GARBLED_HPKE.values(), ids=GARBLED_HPKE.keys())
def test_garbled_hpke_key(tmp_path: Path, content: bytes) -> None:
    """Planted: ``validate=True`` of b64decode removed -> "not base64" fails."""
    save_private_pem(tmp_path / "key", content)
    refused(lambda: load_hpke_key(tmp_path / "key"), HPKE_LABEL)


def test_the_good_body_is_good(tmp_path: Path) -> None:
    """So that the cases above fail for the reason that their names give."""
    save_private_pem(tmp_path / "key", _hpke_pem(GOOD_BODY))
    assert load_hpke_key(tmp_path / "key").to_raw_secret() == bytes(range(32))


def test_a_key_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    save_signing_key(tmp_path / "signing", SigningKey.generate())
    save_hpke_key(tmp_path / "hpke", generate(SuiteId.X25519_AES128))
    refused(lambda: load_hpke_key(tmp_path / "signing"), HPKE_LABEL)
    refused(lambda: load_signing_key(tmp_path / "hpke"), "Ed25519")


def test_huge_file_is_refused(tmp_path: Path) -> None:
    save_private_pem(tmp_path / "key", b"x" * (64 * 1024 + 1))
    refused(lambda: load_private_pem(tmp_path / "key"), "larger than 65536 bytes")


def test_no_error_shows_the_key(tmp_path: Path) -> None:
    body = base64.b64encode(GOOD_BODY).decode()
    save_private_pem(tmp_path / "key", _hpke_pem(GOOD_BODY)[:-1] + b"!")
    with pytest.raises(ShoalError) as caught:
        load_hpke_key(tmp_path / "key")
    assert body not in str(caught.value)
    assert body not in repr(caught.value)


def test_delete_removes_the_key_and_what_an_interruption_left(tmp_path: Path) -> None:
    """A writer killed between link and unlink leaves a second name of the key: deleting must take
    both.

    Planted: the glob removed -> this fails.
    """
    path = tmp_path / "a[1]*.key"
    save_private_pem(path, b"pem")
    os.link(path, path.with_name(f".{path.name}.0123456789abcdef.new"))
    neighbour = tmp_path / "a1x.key"
    save_private_pem(neighbour, b"other")
    os.link(neighbour, tmp_path / ".a1x.key.0123456789abcdef.new")
    delete_key_file(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        ".a1x.key.0123456789abcdef.new",
        "a1x.key",
    ]


def test_delete_syncs_the_folder_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: ``_sync_folder`` left out of delete_key_file -> this fails."""
    synced: list[Path] = []
    monkeypatch.setattr(keyfiles, "_sync_folder", synced.append)
    path = tmp_path / "key"
    save_private_pem(path, b"pem")
    delete_key_file(path)
    delete_key_file(path)
    assert synced == [path, path, path]
    assert not path.exists()


def test_delete_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(lambda: delete_key_file(tmp_path / "folder"), "can't be deleted", "by hand")
