"""Configuration: every mistake is one line that names the file and the key, and no mistake is
ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.services.settings import Address, PublicKey, Section, ServiceSettings, load_settings
from shoal.storage.toml import read_toml
from tests.cases import for_each


class Tls(Section):
    certificate: Path
    key: Path


class Sample(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SHOAL_SAMPLE_")

    listen: str
    data_dir: Path
    tls: Tls
    workers: Annotated[int, Field(ge=1, le=256)] = 2
    names: tuple[str, ...] = ()


GOOD = (
    'listen = "127.0.0.1:1"\ndata_dir = "data"\n[tls]\ncertificate = "tls/cert.pem"\nkey = '
    '"/etc/key.pem"\n'
)


def load(folder: Path, text: str | bytes) -> Sample:
    path = folder / "sample.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_settings(Sample, path)


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(ShoalError) as caught:
        load(folder, text)
    assert caught.value.kind is Kind.CONFIG
    assert "\n" not in caught.value.message
    return caught.value.message


def test_defaults_and_paths(tmp_path: Path) -> None:
    """Relative paths are relative to the file, in tables too, wherever the process runs. Planted:
    no ``_anchor`` -> this fails.
    """
    one = load(tmp_path, GOOD)
    assert one.workers == 2
    assert one.data_dir == tmp_path / "data"
    assert one.tls.certificate == tmp_path / "tls" / "cert.pem"
    assert one.tls.key == Path("/etc/key.pem")


@for_each(
    "text, expected",
    [
        (GOOD.replace('listen = "127.0.0.1:1"\n', ""), "listen: required, but missing"),
        (
            GOOD.replace("listen", "lissten"),
            'lissten: no such key: remove it or mend its name (did you mean "listen"?)',
        ),
        (
            "workerz = 3\n" + GOOD,
            'workerz: no such key: remove it or mend its name (did you mean "workers"?)',
        ),
        (GOOD + "ciphers = 1\n", "tls.ciphers: no such key"),
        (
            GOOD.replace("key =", "kee ="),
            'tls.kee: no such key: remove it or mend its name (did you mean "key"?)',
        ),
        ("workers = 0\n" + GOOD, "workers: Input should be greater than or equal to 1"),
        ("workers = 257\n" + GOOD, "workers: Input should be less than or equal to 256"),
        ('workers = "many"\n' + GOOD, "workers: must be a whole number"),
        ("workers = 1.5\n" + GOOD, "workers: must be a whole number"),
        (
            "listen = 7443\n" + GOOD.replace('listen = "127.0.0.1:1"\n', ""),
            "listen: must be a text in quotes",
        ),
        ('tls = "yes"\nlisten = "a:1"\ndata_dir = "d"\n', "tls: must be a table"),
        ('base_dir = "/"\n' + GOOD, "base_dir: no such key"),
        ("listen = \n", "line 1"),
        ("commit_ms = 6.0\n" + GOOD, "commit_ms: this is the file of a shuffler"),
        # not the first key that is wrong, but the one that says most
        ("allowed_shufflers = 1\n" + GOOD + "client_ca = 1\n", "the file of an analyzer"),
        ("allowed_shufflers = 1\n" + GOOD.replace("listen", "aa"), "the file of an analyzer"),
        (GOOD + "[tls]\n", "line"),
        (b"\xff\xfe", "UTF-8"),
        ("x = " + "[" * 50_000, "nested too deeply"),
        ("#" * (LIMITS.config_bytes + 1), f"larger than {LIMITS.config_bytes} bytes"),
        ("", "required, but missing"),
    ],
)
def test_mistakes(tmp_path: Path, text: str | bytes, expected: str) -> None:
    """Planted: extra="ignore" -> the unknown keys pass and this fails."""
    message = refusal(tmp_path, text)
    assert message.startswith("sample.toml: ")
    assert expected in message


class Role(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SHOAL_ROLE_")

    address: Address = "127.0.0.1:1"
    authorities: Annotated[list[PublicKey], Field(min_length=1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'authorities = ["zz"]',
            "authorities.0: each authority is an Ed25519 public key: 64 hex digits, as `shoal "
            "keys` prints them",
        ),
        ("authorities = []", "authorities: List should have at least 1 item"),
        ('address = "nope"', 'address: "nope" is not HOST:PORT, for example 127.0.0.1:7443'),
    ],
)
def test_a_mistake_is_told_without_the_library_s_own_words(
    tmp_path: Path, text: str, expected: str
) -> None:
    """The whole line. Planted: pydantic's text as it is ("Value error, ...", "... after validation,
    not 0") -> this fails.
    """
    path = tmp_path / "role.toml"
    path.write_text(text if "authorities" in text else f'{text}\nauthorities = ["{"0" * 64}"]')
    with pytest.raises(ShoalError) as caught:
        load_settings(Role, path)
    assert (caught.value.kind, caught.value.message) == (Kind.CONFIG, f"role.toml: {expected}")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing.toml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(ShoalError, match="cannot read") as caught:
            read_toml(path)
        assert caught.value.kind is Kind.CONFIG
        assert why in caught.value.message


def test_the_environment_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the file, key by key, in tables too; other keys of the table stay."""
    monkeypatch.setenv("SHOAL_SAMPLE_LISTEN", "127.0.0.1:9")
    monkeypatch.setenv("SHOAL_SAMPLE_WORKERS", "7")
    monkeypatch.setenv("SHOAL_SAMPLE_TLS__KEY", "other.pem")
    monkeypatch.setenv("SHOAL_SAMPLE_NAMES", '["a", "b"]')
    monkeypatch.setenv("SHOAL_OTHER_LISTEN", "ignored")
    one = load(tmp_path, GOOD)
    assert (one.listen, one.workers, one.names) == ("127.0.0.1:9", 7, ("a", "b"))
    assert one.tls == Tls(certificate=tmp_path / "tls" / "cert.pem", key=tmp_path / "other.pem")


@for_each(
    "name, value, expected",
    [
        ("SHOAL_SAMPLE_LISTN", "x", "SHOAL_SAMPLE_LISTN: no such key"),
        ("SHOAL_SAMPLE_BASE_DIR", "/", "SHOAL_SAMPLE_BASE_DIR: no such key"),
        ("SHOAL_SAMPLE_TLS__CIPHERS", "x", "tls.ciphers: no such key"),
        # the file holds another, right one. Planted: the file blamed -> these fail
        ("SHOAL_SAMPLE_WORKERS", "0", "environment: SHOAL_SAMPLE_WORKERS: workers: "),
        ("SHOAL_SAMPLE_TLS__CIPHERS", "x", "environment: SHOAL_SAMPLE_TLS__CIPHERS: tls.ciphers: "),
        (
            "SHOAL_SAMPLE_NAMES",
            "a,b",
            'environment: SHOAL_SAMPLE_NAMES: not JSON: write a list as ["a", "b"], a table as',
        ),
    ],
)
def test_overrides_are_checked_like_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    """A misspelt override is as wrong as a misspelt key. Planted: no ``_known_variables`` -> this
    fails.
    """
    monkeypatch.setenv(name, value)
    assert expected in refusal(tmp_path, GOOD)


def test_a_value_is_not_repeated(tmp_path: Path) -> None:
    """What somebody typed into the wrong key may be a secret: the message says what is wanted, not
    what was there.
    """
    message = refusal(tmp_path, 'workers = "canary-7f3a91"\n' + GOOD)
    assert "canary" not in message


def test_settings_do_not_change(tmp_path: Path) -> None:
    one = load(tmp_path, GOOD)
    with pytest.raises(ValueError, match="frozen"):
        one.listen = "elsewhere"
