"""What is generated and committed is what its generator makes today: protobuf code. The links for
type checkers reach every package.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(
        f"shoal_tools_{name}", ROOT / "tools" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_protobuf_code_is_regenerated_identically(tmp_path: Path) -> None:
    """Planted: renaming a field in protos/submit.proto without ``make proto`` -> this fails."""
    made = {path.name: path.read_bytes() for path in tool("protos").generate(tmp_path)}
    committed = {
        path.name: path.read_bytes() for path in (ROOT / "protos").iterdir() if "_pb2" in path.name
    }
    assert made.keys() == committed.keys(), "run: make proto"
    assert not [name for name, data in made.items() if committed[name] != data], "run: make proto"


def test_generated_code_imports_under_its_own_name() -> None:
    """``from shoal.protos import x_pb2``: a bare ``import x_pb2`` works in this folder and nowhere
    else.
    """
    for path in (ROOT / "protos").glob("*_pb2*.py"):
        for line in path.read_text().splitlines():
            if line.startswith("import ") and "_pb2" in line:
                pytest.fail(f"{path.name}: {line}")


def test_links_cover_every_package_of_the_wheel(tmp_path: Path) -> None:
    """What the type checkers see is what is installed. Planted: a package of pyproject.toml taken
    out of tools/links.py -> this fails.
    """
    import tomllib

    tool("links").make(tmp_path)
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for package in listed:
        assert (tmp_path / package.replace(".", "/") / "__init__.py").is_file(), (
            f"{package} is not under .links"
        )
