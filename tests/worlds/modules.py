"""The repository's modules as syntax trees: what they import, and from which distributions."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    path: str  # relative to the repository, e.g. shuffler/core.py
    source: str

    @property
    def folder(self) -> str:
        return self.path.split("/")[0]

    @property
    def tree(self) -> ast.Module:
        return _parsed(self)

    @property
    def nodes(self) -> Sequence[ast.AST]:
        """All of the tree's, as ``ast.walk`` has them."""
        return _nodes(self)


# Laws ask of one module after another. The trees of all of them would take half a gigabyte.
@lru_cache(maxsize=1)
def _parsed(module: Module) -> ast.Module:
    return ast.parse(module.source, module.path)


@lru_cache(maxsize=1)
def _nodes(module: Module) -> Sequence[ast.AST]:
    return tuple(ast.walk(module.tree))


@dataclass(frozen=True, slots=True)
class Import:
    name: str  # dotted, e.g. shoal.crypto.hpke or numpy
    line: int
    lazy: bool  # inside a function

    @property
    def top(self) -> str:
        return self.name.split(".")[0]


@cache  # most laws ask
def imports_of(module: Module) -> Sequence[Import]:
    """Every import, wherever it stands, also ``import_module("...")``; ``from a import b`` counts
    as a.b. What a type checker alone reads counts too.
    """
    found: list[Import] = []

    def visit(node: ast.AST, lazy: bool) -> None:
        match node:
            case ast.Import():
                found.extend(Import(alias.name, node.lineno, lazy) for alias in node.names)
            case ast.ImportFrom():
                base = "." * node.level + (node.module or "")
                found.extend(
                    Import(f"{base}.{alias.name}", node.lineno, lazy) for alias in node.names
                )
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__")
            ):
                texts = [
                    argument.value for argument in node.args if isinstance(argument, ast.Constant)
                ]
                found.extend(
                    Import(text, node.lineno, lazy) for text in texts if isinstance(text, str)
                )
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(module.tree, False)
    return found


@cache
def declared(*extras: str) -> frozenset[str]:
    """Distributions that pyproject.toml names: the base, and the given extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]
    names = {
        line.split(";")[0].split(">")[0].split("=")[0].split("<")[0].split("[")[0].strip().lower()
        for line in lines
    }
    return frozenset(names)


def distribution_of(one: Import) -> str:
    """grpc -> grpcio, google.protobuf -> protobuf; the import's own name where nothing is installed
    under it.
    """
    if one.name.startswith("google.protobuf"):
        return "protobuf"
    return installed().get(one.top, [one.top])[0].lower().replace("_", "-")


@cache
def installed() -> Mapping[str, list[str]]:
    """Top-level import name -> distributions."""
    return packages_distributions()


@cache
def read(folder: str) -> Sequence[Module]:
    paths = sorted(path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name)
    return [Module(str(path.relative_to(ROOT)), path.read_text()) for path in paths]
