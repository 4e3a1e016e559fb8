"""constraints.txt names a version for all that an installation brings, and nothing else: no
addresses, no hashes, no ranges.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import for_each
from tests.unit.packaging.test_generated import tool

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = ("server", "accounting", "dev", "docs", "release", "network")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned() -> dict[str, str]:
    versions: dict[str, str] = tool("constraints").read((ROOT / "constraints.txt").read_text())
    return versions


def needed() -> list[Requirement]:
    """Every requirement of shoal with all extras, through and through, as the installed packages
    state them.
    """
    project = PYPROJECT["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in EXTRAS for line in project["optional-dependencies"][extra]),
    ]
    todo, seen, found = [Requirement(line) for line in lines], set(), []
    of_builds = tool("constraints").OF_BUILDS  # there are none where PyTorch is one for CPU
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        found.append(requirement)
        if key in seen:
            continue
        seen.add(key)
        for line in distribution(requirement.name):
            child = Requirement(line)
            if child.marker is None or any(
                child.marker.evaluate({"extra": extra}) for extra in requirement.extras | {""}
            ):
                todo.append(child)
            if todo and of_builds.fullmatch(canonicalize_name(todo[-1].name)):
                todo.pop()
    return found


def distribution(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # of another platform: its marker said so
        return []


def test_every_requirement_is_pinned_to_a_version_that_fits() -> None:
    """Planted: deleting the line of click, or writing numpy==3.0 -> this fails."""
    versions = pinned()
    missing = sorted({r.name for r in needed() if canonicalize_name(r.name) not in versions})
    assert not missing, f"run: make constraints; missing: {missing}"
    wrong = [
        str(r)
        for r in needed()
        if not r.specifier.contains(versions[canonicalize_name(r.name)], prereleases=True)
    ]
    assert not wrong, f"constraints.txt does not fit pyproject.toml: {wrong}"


def test_the_builder_is_pinned_too() -> None:
    """The Makefile builds without isolation, so setuptools comes from constraints.txt."""
    (requirement,) = [Requirement(line) for line in PYPROJECT["build-system"]["requires"]]
    assert requirement.specifier.contains(pinned()[requirement.name])


def test_names_and_versions_only() -> None:
    """No address of an index, no hash, no marker, no range; sorted, so that a refresh shows as a
    small difference.
    """
    text = (ROOT / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    names = [line.split("==")[0] for line in lines]
    assert names == sorted(names)
    assert not {"pip", "shoal"} & pinned().keys()
    assert "://" not in text


@for_each(
    "line",
    [
        "numpy>=2",
        "numpy",
        "numpy==2.4.6 --hash=sha256:00",
        "-i somewhere",
        "numpy @ file:///wheels/numpy.whl",
        "numpy==1\nNumPy==2",
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"constraints\.txt"):
        tool("constraints").read(line)


def test_a_build_is_no_version() -> None:
    """What holds on every machine. Planted: 2.13.0+cpu kept -> no build for CUDA fits it, fails."""
    frozen = "torch==2.13.0+cpu\nnvidia-cublas==13.1\ntriton==3.8.0\nsympy==1.14.0\npip==26.1\n"
    assert tool("constraints").kept(frozen) == {"torch": "2.13.0", "sympy": "1.14.0"}


def test_the_script_writes_what_it_reads() -> None:
    constraints = tool("constraints")
    assert constraints.write(pinned()) == (ROOT / "constraints.txt").read_text()
