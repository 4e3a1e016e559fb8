"""The bill of materials: what the schema wants, everything that an installation brings, in the
versions that are pinned, and the same bytes for the same wheel.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from tests.unit.packaging.test_generated import tool

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("mqtt", "plot", "console", "dataframes", "server", "accounting", "dev")
MADE = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])


def wheel(folder: Path, *more: str) -> Path:
    """A wheel of nothing but what it says of itself."""
    lines = [f"Requires-Dist: {line}" for line in (*PROJECT["dependencies"], *more)]
    for extra in EXTRAS:
        lines.append(f"Provides-Extra: {extra}")
        for line in PROJECT["optional-dependencies"][extra]:
            bare, _, marker = line.partition(";")
            both = f'extra == "{extra}"' + (f" and ({marker.strip()})" if marker else "")
            lines.append(f"Requires-Dist: {bare}; {both}")
    path = folder / "shoal-1.2.3-py3-none-any.whl"
    head = "Metadata-Version: 2.4\nName: shoal\nVersion: 1.2.3\nSummary: s\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "shoal-1.2.3.dist-info/METADATA",
            f"{head}License-Expression: Apache-2.0\n" + "\n".join(lines) + "\n\nWords.\n",
        )
    return path


def pinned() -> dict[str, str]:
    versions: dict[str, str] = tool("constraints").read((ROOT / "constraints.txt").read_text())
    return versions


def test_it_names_everything_that_an_installation_brings(tmp_path: Path) -> None:
    """Planted: no walk below the wheel's own requirements -> starlette's anyio is missing; extras
    of developers not left out -> pytest is there; a random serial number -> other bytes.
    """
    sbom, made = tool("sbom"), wheel(tmp_path)
    text = sbom.bill(made, pinned(), MADE)
    assert text == sbom.bill(made, pinned(), MADE)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill: dict[str, Any] = json.loads(text)
    parts = {sbom.normal(one["name"]): one for one in bill["components"]}
    assert {name: one["version"] for name, one in parts.items()}.items() <= pinned().items()
    base = {sbom.normal(Requirement(line).name) for line in PROJECT["dependencies"]}
    needed = {name for name, one in parts.items() if one["scope"] == "required"}
    assert base | {"cffi", "pydantic-core", "markdown-it-py"} <= needed
    assert {"anyio", "h11", "markupsafe", "paho-mqtt", "scipy"} <= parts.keys() - needed
    assert not {"pytest", "hypothesis", "ruff"} & parts.keys()
    assert bill["metadata"]["component"]["hashes"][0]["alg"] == "SHA-256"
    edges = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    (root,) = [ref for ref in edges if ref.startswith("pkg:pypi/shoal@")]
    assert {ref.partition("@")[0] for ref in edges[root]} >= {f"pkg:pypi/{name}" for name in base}
    (starlette,) = [ref for ref in edges if ref.startswith("pkg:pypi/starlette@")]
    assert any(ref.startswith("pkg:pypi/anyio@") for ref in edges[starlette])


def test_what_is_not_known_for_certain_is_not_written(tmp_path: Path) -> None:
    """A package that isn't installed has wants that nobody knows. Planted: passed over -> a bill
    that looks whole.
    """
    sbom = tool("sbom")
    with pytest.raises(sbom.BillError, match="no-such-thing-of-ours is not installed"):
        sbom.bill(wheel(tmp_path, "no-such-thing-of-ours>=1"), pinned(), MADE)
    with pytest.raises(sbom.BillError, match=r"constraints\.txt has 1\.0"):
        sbom.bill(wheel(tmp_path), pinned() | {"numpy": "1.0"}, MADE)
