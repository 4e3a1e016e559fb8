"""deploy/helm/shoal renders what deploy/kubernetes renders: by reading the templates ourselves, and
with Helm's own code where `make helm` has installed it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from ruamel.yaml import YAML

from tests.worlds.kubernetes import ROOT, rendered

CHART = ROOT / "deploy" / "helm" / "shoal"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
HELM = ROOT / ".venv-helm" / "bin" / "python"
VARIANTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"role": "shuffler"}, ["overlays/single/shuffler"]),
    ({"role": "analyzer"}, ["overlays/single/analyzer"]),
    (
        {"role": "shuffler", "shuffler": {"store": "postgresql"}, "monitoring": True},
        ["overlays/replicated/shuffler", "monitoring/shuffler"],
    ),
    (
        {"role": "analyzer", "analyzer": {"opening": "dask"}, "monitoring": True},
        ["overlays/replicated/analyzer", "monitoring/analyzer"],
    ),
]
Found = dict[tuple[str, str], dict[str, Any]]


def values(chosen: dict[str, Any]) -> dict[str, Any]:
    """values.yaml, with what is chosen over it."""
    base: dict[str, Any] = YAML(typ="safe").load((CHART / "values.yaml").read_text())
    for key, value in chosen.items():
        base[key] = {**base[key], **value} if isinstance(value, dict) else value
    return base


def lookup(path: str, given: dict[str, Any]) -> Any:
    value: Any = given
    for part in path.split("."):
        value = value[part]
    return value


def filled(text: str, given: dict[str, Any]) -> str:
    """A template, read by the few words that ours have."""

    def one(found: re.Match[str]) -> str:
        name, *filters = found[1].split(" | ")
        if name == ".Release.Namespace":
            return f"shoal-{given['role']}"
        value = lookup(name.removeprefix(".Values."), given)
        for used in filters:
            assert used == "toJson"
            value = json.dumps(value)
        return str(value)

    head, condition, body = text.split("\n", 2)
    wanted = re.findall(r'\(eq \.Values\.(\S+) "(\w+)"\)', condition)
    shown = all(lookup(name, given) == value for name, value in wanted)
    if "and .Values.monitoring " in condition:
        shown = shown and given["monitoring"]
    assert body.endswith("{{- end }}\n")
    return re.sub(r"\{\{ (.+?) \}\}", one, body.removesuffix("{{- end }}\n")) if shown else head


def objects(text: str) -> Found:
    """By kind and name, without what is null: Kubernetes takes that as not given."""
    found = [one for one in YAML(typ="safe").load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): without_null(one) for one in found}


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(part) for key, part in value.items() if part is not None}
    return [without_null(part) for part in value] if isinstance(value, list) else value


def expected(folders: list[str]) -> Found:
    """What Kustomize makes of them. A namespace is not the chart's to make."""
    namespace = f"shoal-{folders[0].rpartition('/')[2]}"
    return {
        (one["kind"], one["metadata"]["name"]): {
            **one,
            "metadata": {"namespace": namespace, **one["metadata"]},
        }
        for folder in folders
        for one in rendered(folder)
        if one["kind"] != "Namespace"
    }


def test_the_templates_are_those_of_kustomize() -> None:
    """Planted: a port changed in deploy/kubernetes alone -> fails."""
    rendered("overlays/single/shuffler")  # skips without kubectl
    written: dict[Path, str] = run_path(str(ROOT / "tools" / "chart.py"))["files"]()
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name}: run python tools/chart.py"
    assert {*written, CHART / "templates" / "NOTES.txt"} == {*(CHART / "templates").iterdir()}


@pytest.mark.parametrize(("chosen", "folders"), VARIANTS)
def test_the_defaults_are_kustomize_s(chosen: dict[str, Any], folders: list[str]) -> None:
    """Planted: another default of ``memory``, ``instances`` or ``namespaces`` -> each fails."""
    given = values(chosen)
    found: Found = {}
    for path in (CHART / "templates").glob("*.yaml"):
        found |= objects(filled(path.read_text(), given))
    assert found == expected(folders)


@pytest.mark.parametrize(("chosen", "folders"), VARIANTS)
def test_helm_finds_nothing_wrong_and_renders_the_same(
    chosen: dict[str, Any], folders: list[str], tmp_path: Path
) -> None:
    """Planted: ``{{- end }}`` of a template left out -> fails."""
    if not HELM.exists():
        assert os.environ.get("SHOAL_HELM") != "1", "run make helm"
        pytest.skip("Helm's code is not installed: run make helm")
    (tmp_path / "values.json").write_text(json.dumps(chosen))
    command = [str(HELM), str(ROOT / "tools" / "helm_check.py"), str(tmp_path / "values.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [one for one in answer["messages"] if one["severity"] > 1] == []
    found: Found = {}
    for name, text in answer["rendered"].items():
        if name.endswith(".yaml"):
            found |= objects(text)
    assert found == expected(folders)


def test_a_replica_more_is_told_to_the_configuration_too() -> None:
    """Both the StatefulSet and [store] take the number from one value."""
    text = (CHART / "templates" / "shuffler-postgresql.yaml").read_text()
    given = values({"role": "shuffler", "shuffler": {"store": "postgresql", "replicas": 5}})
    found = objects(filled(text, given))
    assert found["StatefulSet", "shuffler"]["spec"]["replicas"] == 5
    assert "\nreplicas = 5\n" in found["ConfigMap", "shuffler"]["data"]["shuffler.toml"]


def leaves(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {path}
    return {leaf for key, part in value.items() for leaf in leaves(part, f"{path}.{key}")}


def test_every_value_is_used_and_in_the_schema() -> None:
    """Planted: a value more in values.yaml, or one that no template names -> each fails."""
    given = values({})
    texts = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values(\.[A-Za-z.]+)", texts))
    assert leaves(given) | {".role"} == used
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate({**given, "role": "shuffler"})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"role": "both"},
        {"role": "shuffler", "authorities": []},
        {"role": "shuffler", "authorities": ["00"]},
        {"role": "shuffler", "shuffler": {"replica": 3}},
        {"role": "shuffler", "shuffler": {"store": "postgresql", "replicas": 1}},
        {"role": "shuffler", "shuffler": {"memory": "much"}},
        {"role": "analyzer", "analyzer": {"opening": "ray"}},
        {"role": "analyzer", "monitoring": "yes"},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(values(wrong))
