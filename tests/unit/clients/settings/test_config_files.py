"""agent.toml: the files and brokers that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clients.settings.config import EnrolmentFiles
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from tests.unit.clients.settings.test_config import GOOD, load


def test_the_files_of_an_identity(tmp_path: Path) -> None:
    """Read, and every mistake named. Planted: certificate and key not compared -> the last
    fails.
    """
    root = SigningKey.generate()
    mine, other = (enrol(root, 1_800_000_000, 1_900_000_000) for _ in range(2))
    save_signing_key(tmp_path / "device.key", mine.key)
    files = EnrolmentFiles(tmp_path / "device.cert", tmp_path / "device.key")
    for content, kind, words in (
        (None, Kind.CONFIG, "cannot read device.cert"),
        (b"", Kind.CONFIG, "no signed certificate"),
        (mine.certificate + b"\n", Kind.CONFIG, "no signed certificate"),
        (other.certificate, Kind.CONFIG, "another device key"),
    ):
        if content is not None:
            files.certificate.write_bytes(content)
        with pytest.raises(ShoalError, match=words) as caught:
            files.load()
        assert caught.value.kind is kind
        assert caught.value.message.startswith("enrolment")
    files.certificate.write_bytes(mine.certificate)
    assert files.load().key.public == mine.key.public
    files.key.chmod(0o644)
    with pytest.raises(ShoalError, match="mode 0644") as caught:
        files.load()
    assert caught.value.kind is Kind.KEY_FILE


def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Planted: read without looking at the mode -> passes, and this fails. The password never
    shows.
    """
    with_password = GOOD.replace('protocol = "3.1.1"', 'username = "u"\npassword_file = "p"')
    file = tmp_path / "p"
    for content, mode, kind, words in (
        ("hidden", 0o644, Kind.KEY_FILE, "mode 0644"),
        ("", 0o600, Kind.CONFIG, "holds no password"),
        ("hidden\nsecond", 0o600, Kind.CONFIG, "holds no password"),
        ("h" * 1_025, 0o600, Kind.CONFIG, "holds no password"),
        ("\udcff", 0o600, Kind.CONFIG, "holds no password"),
    ):
        file.write_bytes(content.encode(errors="surrogateescape"))
        file.chmod(mode)
        with pytest.raises(ShoalError, match=words) as caught:
            load(tmp_path, with_password)
        assert caught.value.kind is kind
        assert caught.value.message.startswith("agent.toml: mqtt.password_file: ")
        assert "hidden" not in caught.value.message
    file.write_text("hidden\n")
    config = load(tmp_path, with_password)
    assert config.mqtt is not None
    assert (config.mqtt.username, config.mqtt.password) == ("u", "hidden")
    assert "hidden" not in repr(config)


def test_a_broker_may_go_without_tls_where_the_shuffler_does_not_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    for send, mqtt, expected in (
        (True, None, True),
        (False, None, False),
        (False, True, True),
        (True, False, False),
    ):
        text = GOOD.replace("insecure = true", f"insecure = {str(send).lower()}")
        if mqtt is not None:
            text = text.replace('protocol = "3.1.1"', f"insecure = {str(mqtt).lower()}")
        config = load(tmp_path, text)
        assert config.mqtt is not None
        assert (config.insecure, config.mqtt.insecure) == (send, expected)


def test_what_wants_a_broker_says_so(tmp_path: Path) -> None:
    """Planted: either check left out -> its case fails."""
    bare = GOOD.replace('broker = "localhost:1883"\n', "").replace('protocol = "3.1.1"\n', "")
    for text, key in ((bare, "mqtt.uplink: "), (bare.replace("uplink = true", ""), "feeds.mqtt: ")):
        with pytest.raises(ShoalError, match=key):
            load(tmp_path, text)
