"""shuffler.toml: the sample is complete and valid, and every mistake is one line that names the key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.settings import load_settings
from shoal.shuffler.config import Analyzer, ShufflerConfig, Tls
from tests.shuffler_world import World

SAMPLE = Path(__file__).parents[3] / "deploy" / "shuffler.toml"
REQUIRED = ("listen", "admin_listen", "data_dir", "tasks_dir", "keys_dir", "signing_key", "authorities", "tls", "analyzer")


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


def test_the_sample_loads_and_shows_every_key_with_its_default() -> None:
    text = SAMPLE.read_text()
    config = load_settings(ShufflerConfig, SAMPLE)
    uncommented = tomllib.loads(re.sub(r"^# (open_workers)", r"\1", text, flags=re.MULTILINE))
    assert uncommented.keys() == ShufflerConfig.model_fields.keys() - {"base_dir"}
    assert uncommented["tls"].keys() == Tls.model_fields.keys()
    assert uncommented["analyzer"].keys() == Analyzer.model_fields.keys()
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
