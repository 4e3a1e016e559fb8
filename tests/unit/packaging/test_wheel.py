"""Whatever stands in a package folder is in the wheel, and nothing else: the explicit lists in
pyproject.toml are what people forget.
"""

from __future__ import annotations

import os
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest

import shoal
from tests.unit.packaging.test_generated import tool

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
EPOCH = 1_700_000_000  # seconds; even, as times in a zip are
ROOTS = (
    "common",
    "protos",
    "crypto",
    "mechanisms",
    "accounting",
    "clients",
    "shuffler",
    "analyzer",
    "checker",
    "study",
    "console",
    "cli",
)


def package_of(folder: Path) -> str:
    """common -> shoal, common/rpc -> shoal.rpc, cli/demo -> shoal.cli.demo."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("shoal", *(parts[1:] if parts[0] == "common" else parts)))


def packages() -> dict[str, str]:
    """Every package found on disk -> its folder."""
    found = [init.parent for root in ROOTS for init in (ROOT / root).rglob("__init__.py")]
    return {package_of(folder): str(folder.relative_to(ROOT)) for folder in found}


def shipped(tree: Path) -> dict[str, bytes]:
    """Path inside the wheel -> content, for every file under a package root of ``tree``."""
    files = [path for root in ROOTS for path in (tree / root).rglob("*") if path.is_file()]
    names = {
        path: package_of(ROOT / path.parent.relative_to(tree)).replace(".", "/") for path in files
    }
    return {f"{names[path]}/{path.name}": path.read_bytes() for path in files}


def build(source: Path) -> dict[str, bytes]:
    """Build the wheel of ``source`` as a release is built: path -> content."""
    _, wheel = tool("dist").build(source, source.parent / "dist", EPOCH)
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def copy_to(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ROOTS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("tree") / "shoal")


@pytest.fixture(scope="module")
def expected(tree: Path) -> dict[str, bytes]:
    return shipped(tree)


@pytest.fixture(scope="module")
def wheel(tree: Path, expected: dict[str, bytes]) -> dict[str, bytes]:
    assert expected
    return build(tree)


def test_every_package_is_listed() -> None:
    """Planted: taking "shoal.cli.demo" out of [tool.setuptools] packages -> this fails."""
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages())
    assert SETUPTOOLS["package-dir"] == packages()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The tree and its wheel, built with other times, rights, owner's mask and a folder with a name
    of its own, beside a package and a data file that pyproject.toml does not name.
    """
    other = copy_to(tmp_path_factory.mktemp("other") / "anders wo, ü" / "shoal")
    (other / "cli" / "forgotten").mkdir()
    (other / "cli" / "forgotten" / "__init__.py").write_text("")
    (other / "cli" / "table.unheard").write_text("")
    for path in other.rglob("*.py"):
        os.utime(path, (1_000_000_001, 1_000_000_001))
        path.chmod(0o600)
    mask = os.umask(0o077)
    try:
        return other, build(other)
    finally:
        os.umask(mask)


def test_two_builds_give_the_same_bytes(
    wheel: dict[str, bytes], tree: Path, elsewhere: tuple[Path, dict[str, bytes]]
) -> None:
    """Nothing of where and how it was built is in sdist or wheel. Planted: the sdist's members as
    the build wrote them; SOURCE_DATE_EPOCH not given -> fails.
    """
    other, _ = elsewhere
    first, second = tree.parent / "dist", other.parent / "dist"
    names = sorted(path.name for path in first.iterdir())
    assert [name.partition("-")[0] for name in names] == ["shoal", "shoal"]
    assert names == sorted(path.name for path in second.iterdir())
    assert not [
        name for name in names if (first / name).read_bytes() != (second / name).read_bytes()
    ]
    assert wheel


def test_every_file_is_in_the_wheel(wheel: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Byte for byte. Planted: taking "*.csv.gz" out of package-data -> this fails."""
    missing = sorted(expected.keys() - wheel.keys())
    assert not missing, (
        f"not in the wheel; add the package or the pattern to pyproject.toml: {missing}"
    )
    assert not [name for name, data in expected.items() if wheel[name] != data]


def test_nothing_else_is_in_the_wheel(wheel: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """No tests, no tools, no keys left lying around in a package folder."""
    others = [
        name
        for name in wheel.keys() - expected.keys()
        if not name.startswith(f"shoal-{shoal.__version__}.dist-info/")
    ]
    assert not others


def test_the_kinds_of_data_that_must_travel(wheel: dict[str, bytes]) -> None:
    names = set(wheel)
    assert {
        "shoal/py.typed",
        "shoal/protos/task.proto",
        "shoal/protos/task_pb2.pyi",
        "shoal/cli/demo/randhie.csv.gz",
        "shoal/cli/demo/federated/wdbc.csv.gz",
    } <= names
    assert any(name.endswith(".sql") for name in names), "the stores' schemas"
    assert any(name.endswith(".j2") for name in names), "the report page"
    assert {"shoal/cli/task/shuffled.toml", "shoal/analyzer/planner/planned.toml"} <= names


def test_metadata(wheel: dict[str, bytes]) -> None:
    info = f"shoal-{shoal.__version__}.dist-info"
    metadata = wheel[f"{info}/METADATA"].decode()
    assert "Name: shoal\n" in metadata
    assert "Requires-Python: >=3.11\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert f"{info}/licenses/LICENSE" in wheel
    assert "shoal = shoal.cli.main:main" in wheel[f"{info}/entry_points.txt"].decode()
    base = [
        line
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    names = sorted(line.split(": ")[1].split(">")[0].split("<")[0] for line in base)
    assert names == [
        *("cryptography", "grpcio", "numpy", "protobuf"),
        *("pydantic", "rich", "tomlkit", "typer"),
    ]


def test_one_version_everywhere() -> None:
    version = PYPROJECT["project"]["version"]
    assert shoal.__version__ == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_forgotten_package_and_pattern_are_seen(
    elsewhere: tuple[Path, dict[str, bytes]],
) -> None:
    """The control of this file: a package and a data file that pyproject.toml does not name are not
    shipped.
    """
    tree, names = elsewhere
    assert (tree / "cli" / "table.unheard").exists()
    assert "shoal/cli/main.py" in names
    assert "shoal/cli/forgotten/__init__.py" not in names
    assert "shoal/cli/table.unheard" not in names
