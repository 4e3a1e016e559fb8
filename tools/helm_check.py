"""Lint and render the chart with Helm's own code: ``check.py VALUES.json``, in the environment of
``make helm``. Prints JSON: {"messages": [...], "rendered": {template: text}}.
"""

import json
import sys
from pathlib import Path

from helm_python import chart

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "shoal"


def main() -> None:
    values = json.loads(Path(sys.argv[1]).read_text())
    report = chart.lint(FOLDER, values, strict=True, kube_version="v1.33.0")
    loaded = chart.Chart.load(FOLDER)
    rendered = loaded.render(values, name="shoal", namespace=f"shoal-{values['role']}")
    json.dump({"messages": report["messages"], "rendered": rendered}, sys.stdout)


if __name__ == "__main__":
    main()
