"""shuffler.toml: the sample is complete and valid, and every mistake is one line that names the
key.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings
from shoal.services.settings import AdminSection, load_settings
from shoal.shuffler.config import Analyzer, Mqtt, ServerTls, ShufflerConfig, StoreSection
from tests.worlds.services.shuffler import CA, World

SAMPLE = Path(__file__).parents[3] / "deploy" / "shuffler.toml"
REQUIRED = (
    "listen",
    "admin_listen",
    "data_dir",
    "tasks_dir",
    "keys_dir",
    "signing_key",
    "authorities",
    "tls",
    "analyzer",
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def load(world: World, **changes: Any) -> ShufflerConfig:
    return load_settings(ShufflerConfig, world.write_config(**changes))


def refused(world: World, **changes: Any) -> str:
    with pytest.raises(ShoalError) as error:
        load(world, **changes)
    assert error.value.kind is Kind.CONFIG
    assert "\n" not in error.value.message
    assert error.value.message.startswith("shuffler.toml: ")
    return error.value.message


def uncomment(text: str) -> str:
    """The sample with every key, also those that it shows commented out."""
    tables = re.compile(r"^# \[[\w.]+\]\n(?:# .*\n)+", re.MULTILINE)
    text = tables.sub(lambda table: re.sub(r"^# ", "", table[0], flags=re.MULTILINE), text)
    return re.sub(r"^# (open_workers)", r"\1", text, flags=re.MULTILINE)


def test_the_sample_with_every_key_loads(tmp_path: Path) -> None:
    path = tmp_path / "shuffler.toml"
    path.write_text(uncomment(SAMPLE.read_text()))
    config = load_settings(ShufflerConfig, path)
    assert config.mqtt is not None
    assert config.mqtt.broker == "broker.internal:8883"


def test_the_sample_loads_and_shows_every_key_with_its_default(tmp_path: Path) -> None:
    text = SAMPLE.read_text()
    config = load_settings(ShufflerConfig, SAMPLE)
    uncommented = tomllib.loads(uncomment(text))
    assert uncommented.keys() == ShufflerConfig.model_fields.keys() - {"base_dir"}
    assert uncommented["tls"].keys() == ServerTls.model_fields.keys()
    assert uncommented["analyzer"].keys() == Analyzer.model_fields.keys()
    assert uncommented["mqtt"].keys() == Mqtt.model_fields.keys()
    assert uncommented["admin"].keys() == AdminSection.model_fields.keys()
    assert uncommented["store"].keys() == {
        field.alias or name for name, field in StoreSection.model_fields.items()
    }
    assert load(world := World(tmp_path), store=uncommented["store"]).store.replicas == 2
    assert load(world).store == StoreSection()
    for name, field in Mqtt.model_fields.items():
        if name not in ("broker", "ca", "username", "password_file"):
            assert uncommented["mqtt"][name] == field.default, name
    for name, field in ShufflerConfig.model_fields.items():
        if name not in (*REQUIRED, "base_dir"):
            assert getattr(config, name) == field.default, name


def test_relative_paths_are_relative_to_the_file(world: World) -> None:
    config = load(world)
    assert config.data_dir == world.folder / "data"
    assert config.tls.key == world.folder / "front.key"


def test_the_environment_overrides(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_SHUFFLER_DELIVERY_DELAY_MAX_S", "7")
    monkeypatch.setenv("SHOAL_SHUFFLER_ANALYZER__ADDRESS", "127.0.0.1:99")
    config = load(world)
    assert (config.delivery_delay_max_s, config.analyzer.address) == (7.0, "127.0.0.1:99")


@pytest.mark.parametrize("key", REQUIRED)
def test_a_required_key_that_is_missing(world: World, key: str) -> None:
    values = world.values()
    path = world.write_config()
    text = path.read_text()
    if isinstance(values[key], dict):
        text = re.sub(rf"\[{key}\]\n(?:[a-z_]+ = .*\n)+", "", text)
    else:
        text = re.sub(rf"^{key} = .*\n", "", text, flags=re.MULTILINE)
    path.write_text(text)
    with pytest.raises(ShoalError, match=f"shuffler.toml: {key}: required, but missing") as error:
        load_settings(ShufflerConfig, path)
    assert error.value.kind is Kind.CONFIG


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen", "nowhere"),
        ("listen", "127.0.0.1:70000"),
        ("admin_listen", "0.0.0.0:80"),
        ("admin_listen", "example.org:80"),
        ("authorities", []),
        ("authorities", ["00"]),
        ("authorities", ["zz" * 32]),
        ("delivery_delay_max_s", -1),
        ("delivery_delay_max_s", 604_801),
        ("delivery_delay_max_s", "soon"),
        ("open_workers", -1),
        ("open_workers", 257),
        ("open_workers", 1.5),
        ("reload_s", 0),
        ("commit_ms", -1),
        ("commit_ms", 1_001),
        ("log_level", "loud"),
        ("analyzer", {"address": "x", "ca": "ca.pem", "certificate": "c", "key": "k"}),
        ("delivery_delay_s", 3),
        ("tls", {"certificate": "front.pem", "key": "front.key", "insecure": True}),
        ("tls", {"certificate": "front.pem"}),
        ("base_dir", "/"),
        ("mqtt", {"ca": "ca.pem"}),
        ("mqtt", {"broker": "nowhere"}),
        ("mqtt", {"broker": "127.0.0.1:1", "protocol": "3.1"}),
        ("mqtt", {"broker": "127.0.0.1:1", "password": "in the open"}),
        ("mqtt", {"broker": "127.0.0.1:1", "enabled": "perhaps"}),
    ],
)
def test_an_unknown_or_out_of_range_key(world: World, key: str, value: Any) -> None:
    assert refused(world, **{key: value}).startswith(f"shuffler.toml: {key}")


def test_a_file_that_is_missing_or_no_toml(tmp_path: Path) -> None:
    for path, text in ((tmp_path / "none.toml", None), (tmp_path / "bad.toml", "listen = ")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ShoalError) as error:
            load_settings(ShufflerConfig, path)
        assert error.value.kind is Kind.CONFIG
        assert path.name in error.value.message


# --- [mqtt] ---------------------------------------------------------------------------------------


def mqtt(world: World, **keys: Any) -> BrokerSettings:
    config = load(world, mqtt=keys)
    assert config.mqtt is not None
    return config.mqtt.settings()


def secret(path: Path, text: bytes, mode: int = 0o600) -> None:
    path.write_bytes(text)
    path.chmod(mode)


def test_no_table_no_broker(world: World) -> None:
    assert load(world).mqtt is None


def test_broker_settings_hold_what_the_files_hold(world: World) -> None:
    """The password is the file's one line; it prints nowhere. Planted: the newline kept -> this
    fails.
    """
    secret(world.folder / "password", "pässword \r\n".encode())
    settings = mqtt(
        world,
        broker="[::1]:8883",
        ca="ca.pem",
        username="shuffler",
        password_file="password",
        protocol="3.1.1",
    )
    assert (settings.host, settings.port, settings.ca) == ("::1", 8883, CA.cert_pem)
    assert (settings.username, settings.password, settings.protocol, settings.insecure) == (
        "shuffler",
        "pässword ",
        "3.1.1",
        False,
    )
    assert "pässword" not in repr(settings)


def test_without_tls_on_loopback_alone(world: World) -> None:
    assert mqtt(world, broker="127.0.0.1:1883", insecure=True).insecure
    with pytest.raises(
        ShoalError, match="without TLS only a broker on a loopback address"
    ) as error:
        mqtt(world, broker="broker.example.org:1883", insecure=True)
    assert error.value.kind is Kind.CONFIG


@pytest.mark.parametrize(
    ("text", "mode", "kind", "says"),
    [
        (b"", 0o600, Kind.CONFIG, "holds no password"),
        (b"\n", 0o600, Kind.CONFIG, "holds no password"),
        (b"two\nlines\n", 0o600, Kind.CONFIG, "on one line"),
        (b"\xff\xfe", 0o600, Kind.CONFIG, "is no text"),
        (b"open\n", 0o644, Kind.KEY_FILE, "chmod 600"),
        (None, 0o600, Kind.KEY_FILE, "does not exist"),
    ],
)
def test_a_password_file_that_is_wrong(
    world: World, text: bytes | None, mode: int, kind: Kind, says: str
) -> None:
    if text is not None:
        secret(world.folder / "password", text, mode)
    with pytest.raises(ShoalError, match=says) as error:
        mqtt(
            world,
            broker="127.0.0.1:1883",
            ca="ca.pem",
            username="shuffler",
            password_file="password",
        )
    assert error.value.kind is kind
    assert "\n" not in error.value.message
    assert "lines" not in error.value.message


def test_a_ca_that_is_missing_or_none(world: World) -> None:
    (world.folder / "other.pem").write_bytes(b"-----BEGIN NOTHING-----\n")
    for ca, kind in (("none.pem", Kind.KEY_FILE), ("other.pem", Kind.CONFIG)):
        with pytest.raises(ShoalError) as error:
            mqtt(world, broker="127.0.0.1:8883", ca=ca)
        assert error.value.kind is kind


def test_a_shared_store_says_where_it_is_and_a_files_store_has_no_replicas(world: World) -> None:
    """Planted: ``_fits`` left out -> all load, fails."""
    shared = {"kind": "postgresql", "dsn_file": "dsn", "replicas": 3}
    config = load(world, store=shared)
    assert config.store.dsn_file == world.folder / "dsn"
    assert config.store.schema_name == "shoal"
    config = load(world, store={**shared, "batches": {"url": "s3://b/f", "ca": "ca"}})
    assert config.store.batches is not None
    assert config.store.batches.ca == world.folder / "ca"
    for wrong in (
        {"replicas": 2},
        {"kind": "postgresql"},
        {"dsn_file": "dsn"},
        {**shared, "replicas": 0},
        {**shared, "schema": "a b"},
        {**shared, "kind": "mysql"},
        {"batches": {"url": "s3://b/f"}},
        {**shared, "batches": {"url": "file:///tmp/f"}},
    ):
        assert "store" in refused(world, store=wrong)
