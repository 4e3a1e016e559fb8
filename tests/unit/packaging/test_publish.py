"""The workflow that publishes: it parses, runs what there is, and gives nobody more than he needs.
It can't be run here; what can be held is held.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.cases import for_each
from tests.unit.packaging.test_generated import tool

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / ".github" / "workflows" / "publish.yml"


def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FILE)
    return loaded


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow()["jobs"][job]["steps"]
    return found


def test_it_runs_targets_that_there_are() -> None:
    """Planted: ``make dists`` in the workflow, or the target renamed in the Makefile -> fails."""
    makefile = (ROOT / "Makefile").read_text()
    runs = [step["run"] for job in workflow()["jobs"] for step in steps(job) if "run" in step]
    used = {name for run in runs for name in re.findall(r"\bmake ([a-z-]+)", run)}
    assert {"dist", "sbom", "check-dist"} <= used
    assert not {name for name in used if f"\n{name}: " not in makefile}


def test_every_action_is_a_commit() -> None:
    """And says which version that is. Planted: ``actions/checkout@v6`` -> fails."""
    uses = re.findall(r"uses: *(.*)", FILE.read_text())
    assert len(uses) >= 5
    pinned = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert not [one for one in uses if not pinned.fullmatch(one)]


def test_only_the_last_job_may_publish_and_it_runs_nothing_of_ours() -> None:
    """No password is kept anywhere; a job that runs code of the repository can't get the index's
    trust. Planted: ``id-token: write`` for the build, a checkout in the job that publishes, a token
    among the secrets -> fails.
    """
    made = workflow()
    rights = {name: job["permissions"] for name, job in made["jobs"].items()}
    assert made["permissions"] == {}
    assert rights == {
        "build": {"contents": "read"},
        "again": {"contents": "read"},
        "publish": {"id-token": "write"},
    }
    assert "secrets" not in FILE.read_text()
    assert made["jobs"]["publish"]["environment"] == "pypi"
    assert made["jobs"]["publish"]["needs"] == ["build", "again"]
    assert [step["uses"].partition("@")[0] for step in steps("publish")] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert made["on"] == {"push": {"tags": ["v[0-9]*"]}}


CHANGES = "# Changelog\n\n## [{}\n\n### Added\n"


@for_each(
    "tag, heading, word",
    [
        ("v1.2.3", "1.2.3] - 2026-11-02", None),
        ("v1.2.4", "1.2.3] - 2026-11-02", "tag v1.2.3"),
        ("1.2.3", "1.2.3] - 2026-11-02", "tag v1.2.3"),
        ("v1.2.3", "1.2.3] - unreleased", "CHANGELOG.md"),
        ("v1.2.3", "1.2.2] - 2026-11-02", "CHANGELOG.md"),
    ],
)
def test_a_tag_must_fit(tag: str, heading: str, word: str | None, tmp_path: Path) -> None:
    """Planted: the heading not looked at -> an unreleased version is published."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES.format(heading))
    trouble = tool("dist").tag_trouble(tag, tmp_path)
    assert trouble is None if word is None else word in trouble
