"""Write what deploy/ holds twice: the alerts of deploy/prometheus as an object of the Prometheus
operator. ``python tools/deployment.py``; a test compares.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "shoal.rules.yml"
AS_OBJECT = DEPLOY / "kubernetes" / "monitoring" / "rules" / "rules.yaml"


def as_yaml(value: Any) -> str:
    """YAML as this project writes it: two spaces, lists indented."""
    writer = YAML()
    writer.default_flow_style = False
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 92
    into = io.StringIO()
    writer.dump(value, into)
    return into.getvalue()


def rules() -> str:
    """The alerts, as a PrometheusRule."""
    groups = YAML(typ="safe").load(RULES.read_text())["groups"]
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "shoal"},
        "spec": {"groups": groups},
    }
    return (
        f"# Written by tools/deployment.py from deploy/prometheus/shoal.rules.yml.\n{as_yaml(made)}"
    )


def files() -> dict[Path, str]:
    """Every file that is written, and what it holds."""
    return {AS_OBJECT: rules()}


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
