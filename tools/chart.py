"""Write the templates of deploy/helm/shoal from what Kustomize renders of deploy/kubernetes, so
that the two never differ: ``python tools/chart.py`` (wants kubectl); a test compares.

A template is a rendered overlay under a condition, with a value of values.yaml at each place of
``PLACES``. The chart has no logic beyond that.
"""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

ROOT = Path(__file__).resolve().parents[1]
KUSTOMIZATIONS = ROOT / "deploy" / "kubernetes"
TEMPLATES = ROOT / "deploy" / "helm" / "shoal" / "templates"
# Template -> (its folder in deploy/kubernetes, when it is rendered).
PARTS = {
    "shuffler-sqlite": (
        "overlays/single/shuffler",
        'and (eq .Values.role "shuffler") (eq .Values.shuffler.store "sqlite")',
    ),
    "shuffler-postgresql": (
        "overlays/replicated/shuffler",
        'and (eq .Values.role "shuffler") (eq .Values.shuffler.store "postgresql")',
    ),
    "analyzer-processes": (
        "overlays/single/analyzer",
        'and (eq .Values.role "analyzer") (eq .Values.analyzer.opening "processes")',
    ),
    "analyzer-dask": (
        "overlays/replicated/analyzer",
        'and (eq .Values.role "analyzer") (eq .Values.analyzer.opening "dask")',
    ),
    "monitoring-shuffler": (
        "monitoring/shuffler",
        'and .Values.monitoring (eq .Values.role "shuffler")',
    ),
    "monitoring-analyzer": (
        "monitoring/analyzer",
        'and .Values.monitoring (eq .Values.role "analyzer")',
    ),
}
# Kind/name, path in the object -> a value of values.yaml. "toJson" twice: a list within a string.
PLACES = {
    ("ConfigMap/shuffler-site", "data.SHOAL_SHUFFLER_AUTHORITIES"): "authorities | toJson",
    (
        "ConfigMap/shuffler-site",
        "data.SHOAL_SHUFFLER_ANALYZER__ADDRESS",
    ): "shuffler.analyzerAddress",
    ("ConfigMap/analyzer-site", "data.SHOAL_ANALYZER_AUTHORITIES"): "authorities | toJson",
    (
        "ConfigMap/analyzer-site",
        "data.SHOAL_ANALYZER_ALLOWED_SHUFFLERS",
    ): "analyzer.allowedShufflers | toJson",
    (
        "ConfigMap/analyzer-site",
        "data.SHOAL_ANALYZER_OPENING__WORKERS",
    ): "analyzer.dask.workerKeys | toJson",
    ("ConfigMap/analyzer-site", "data.ANALYZER_KEY"): "analyzer.dask.analyzerKey",
    ("Service/shuffler", "spec.type"): "shuffler.serviceType",
    ("Deployment/dask-worker", "spec.replicas"): "analyzer.dask.workers",
    ("Cluster/shuffler-db", "spec.imageName"): "shuffler.postgresql.image",
    ("Cluster/shuffler-db", "spec.instances"): "shuffler.postgresql.instances",
    ("Cluster/shuffler-db", "spec.storage.size"): "shuffler.postgresql.storage",
    ("Cluster/shuffler-db", "spec.walStorage.size"): "shuffler.postgresql.walStorage",
    **{
        (f"StatefulSet/{role}", path): f"{role}.{value}"
        for role in ("shuffler", "analyzer")
        for path, value in (
            ("spec.volumeClaimTemplates.0.spec.resources.requests.storage", "storage"),
            ("spec.volumeClaimTemplates.0.spec.storageClassName", "storageClass"),
            ("spec.template.spec.containers.0.resources.requests.cpu", "cpu"),
            ("spec.template.spec.containers.0.resources.requests.memory", "memory"),
            ("spec.template.spec.containers.0.resources.limits.memory", "memory"),
        )
    },
}
ABSENT = frozenset({"storageClassName"})  # not in Kustomize's, where no value means the default
REPLICAS = "shuffler.replicas"  # of the StatefulSet and, the same number, of its configuration
NAMESPACES = ("shoal-shuffler", "shoal-analyzer", "monitoring")
_MARK = re.compile(r"[\"']?@@(.+?)@@[\"']?")


def _mark(value: str) -> str:
    return f"@@{value}@@"


def rendered(folder: str) -> list[dict[str, Any]]:
    """What Kustomize makes of a folder of deploy/kubernetes."""
    command = ["kubectl", "kustomize", str(KUSTOMIZATIONS / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(YAML(typ="safe").load_all(done.stdout))


def template(folder: str, condition: str) -> str:
    """One file of the chart. A namespace is the operator's to make, with the labels of the base."""
    objects = [_marked(one) for one in rendered(folder) if one["kind"] != "Namespace"]
    text = "---\n".join(_as_yaml(one) for one in objects)
    if "{{" in text:
        raise ValueError(f"{folder} holds braces, which a template would read")
    body = _MARK.sub(lambda found: "{{ " + found[1] + " }}", text)
    head = "# Written by tools/chart.py: change deploy/kubernetes instead."
    return f"{head}\n{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n"


def _marked(one: dict[str, Any]) -> dict[str, Any]:
    name = f"{one['kind']}/{one['metadata']['name']}"
    for (where, path), value in PLACES.items():
        if where == name:
            _put(one, path.split("."), _mark(f".Values.{value} | toJson"))
    if name == "StatefulSet/shuffler" and one["spec"]["replicas"] > 1:
        one["spec"]["replicas"] = _mark(f".Values.{REPLICAS} | toJson")
    one["metadata"]["namespace"] = _mark(".Release.Namespace")
    changed: dict[str, Any] = _walk(one, _scalar)
    return changed


def _put(one: Any, path: list[str], value: str) -> None:
    *parents, last = path
    for part in parents:
        if part not in one and isinstance(one, dict):
            return  # of the other size: not there
        one = one[int(part)] if isinstance(one, list) else one[part]
    if last in one or last in ABSENT:
        one[last] = value


def _walk(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _walk(part, change, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_walk(part, change) for part in value]
    return change(key, value) if isinstance(value, str) else value


def _scalar(key: str, value: str) -> str:
    if value.startswith("shoal:") and key == "image":
        return _mark(".Values.image | toJson")
    if key == "kubernetes.io/metadata.name" and value in NAMESPACES:
        return _mark(f".Values.namespaces.{value.removeprefix('shoal-')} | toJson")
    if "\n" in value:
        number = _mark(f".Values.{REPLICAS}")
        text = re.sub(r"(?m)^replicas = \d+$", f"replicas = {number}", value)
        literal: str = LiteralScalarString(text)
        return literal
    return value


def _as_yaml(value: Any) -> str:
    writer = YAML()
    writer.default_flow_style = False
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 96
    into = io.StringIO()
    writer.dump(value, into)
    return into.getvalue()


def files() -> dict[Path, str]:
    """Every template, and what it holds."""
    return {
        TEMPLATES / f"{name}.yaml": template(folder, condition)
        for name, (folder, condition) in PARTS.items()
    }


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
