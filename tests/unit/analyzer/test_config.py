"""analyzer.toml: the sample is complete, and every mistake is one line that names the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.analyzer.config import AnalyzerConfig, MutualTls, OpeningSection
from shoal.errors import Kind, ShoalError
from shoal.services.settings import AdminSection, TracingSection, load_settings
from tests.cases import for_each
from tests.worlds.services.analyzer import make_world

WORLD = make_world()
SAMPLE = Path(__file__).parents[3] / "deploy" / "analyzer.toml"


def test_a_complete_file_loads_with_paths_beside_it(tmp_path: Path) -> None:
    config = WORLD.config(tmp_path)
    assert config.data_dir == tmp_path / "data"
    assert config.tls.client_ca == tmp_path / "clients.crt"
    assert config.authority_keys == {WORLD.authority.public}
    assert config.workers == 1


def test_workers_default_to_the_cpus(tmp_path: Path) -> None:
    path = WORLD.write_config(tmp_path)
    path.write_text(path.read_text().replace("open_workers = 1\n", ""))
    assert load_settings(AnalyzerConfig, path).workers >= 1


def test_the_sample_loads_and_comments_every_key() -> None:
    """Planted: a key added to the class and not to the sample -> this fails."""
    config = load_settings(AnalyzerConfig, SAMPLE)
    assert config.listen == "0.0.0.0:7445"
    text, _, tls = SAMPLE.read_text().partition("\n[tls]\n")
    text, _, opening = text.partition("# [opening]\n")
    own = AnalyzerConfig.model_fields.keys() - {"base_dir", "tls", "admin", "tracing", "opening"}
    for part, keys in (
        (text, {*own, *AdminSection.model_fields, *TracingSection.model_fields}),
        (opening, OpeningSection.model_fields.keys()),
        (tls, MutualTls.model_fields.keys()),
    ):
        for key in keys:
            (found,) = re.findall(rf"((?:^#.*\n)+)(?:# )?{key} = ", part, re.M)
            assert "Required" in found or "Optional" in found, key


REQUIRED = [
    "listen",
    "admin_listen",
    "data_dir",
    "tasks_dir",
    "keys_dir",
    "signing_key",
    "authorities",
    "allowed_shufflers",
]


@for_each("key", REQUIRED)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = WORLD.write_config(tmp_path)
    path.write_text(re.sub(rf"^{key} = .*\n", "", path.read_text(), flags=re.M))
    assert refused(path).startswith(f"analyzer.toml: {key}: required")


def test_the_required_keys_are_the_ones_tested() -> None:
    required = {name for name, info in AnalyzerConfig.model_fields.items() if info.is_required()}
    assert required == {*REQUIRED, "tls"}
    assert all(info.is_required() for info in MutualTls.model_fields.values())


@for_each(
    "key, value",
    [
        ("listen", '"somewhere"'),
        ("listen", '"host:70000"'),
        ("listen", "7445"),
        ("admin_listen", '"0.0.0.0:7446"'),
        ("admin_listen", '"example.org:7446"'),
        ("authorities", "[]"),
        ("authorities", '["abc"]'),
        ("allowed_shufflers", "[]"),
        ("allowed_shufflers", '[""]'),
        ("open_workers", "0"),
        ("open_workers", "257"),
        ("open_workers", '"two"'),
        ("reload_s", "0"),
        ("log_level", '"loud"'),
        ("nonsense", "1"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, key: str, value: str) -> None:
    path = WORLD.write_config(tmp_path, **{key: value})
    assert refused(path).startswith(f"analyzer.toml: {key}")


def test_an_unknown_key_in_a_table_is_named(tmp_path: Path) -> None:
    path = WORLD.write_config(tmp_path)
    path.write_text(path.read_text() + "nonsense = 1\n")
    assert refused(path).startswith("analyzer.toml: tls.nonsense: no such key")


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "analyzer.toml"
    path.write_text("listen = ")
    assert refused(path).startswith("analyzer.toml: ")
    assert "cannot read" in refused(tmp_path / "missing.toml")


def test_the_environment_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WORLD.write_config(tmp_path)
    monkeypatch.setenv("SHOAL_ANALYZER_OPEN_WORKERS", "3")
    monkeypatch.setenv("SHOAL_ANALYZER_TLS__KEY", "other.key")
    config = load_settings(AnalyzerConfig, path)
    assert config.workers == 3
    assert config.tls.key == tmp_path / "other.key"


def refused(path: Path) -> str:
    with pytest.raises(ShoalError) as error:
        load_settings(AnalyzerConfig, path)
    assert error.value.kind is Kind.CONFIG
    message = str(error.value)
    assert "\n" not in message
    return message
