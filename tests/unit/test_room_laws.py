"""Laws of the rooms: no circle of files, no name for two things, no folder to get lost in."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.worlds.modules import ROOT

HOUSES = (
    "common",
    "crypto",
    "mechanisms",
    "accounting",
    "clients",
    "shuffler",
    "analyzer",
    "cli",
)
MOST_ENTRIES = 22  # of a folder, its __init__ among them; 20 is what one sees at a glance


def sources() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree, of every file that somebody wrote."""
    found = {}
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            found[dotted(path.relative_to(ROOT))] = ast.parse(path.read_text())
    return found


def dotted(path: Path) -> str:
    """clients/memory/ledger.py -> shoal.clients.memory.ledger; common/ is shoal itself."""
    parts = path.with_suffix("").parts
    kept = parts[1:] if parts[0] == "common" else parts
    return ".".join(["shoal", *(part for part in kept if part != "__init__")])


def imports(tree: ast.AST, known: Mapping[str, object], typed: bool = False) -> Iterator[str]:
    """Files of ours that are imported when the code runs, in functions too."""
    for node in ast.iter_child_nodes(tree):
        only_types = typed or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if not only_types and isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        elif not only_types and isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imports(node, known, only_types)


def circle(links: Mapping[str, set[str]]) -> list[str]:
    """Some circle, its first member again at the end; empty: there is none."""
    done: set[str] = set()
    way: list[str] = []

    def visit(name: str) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        way.append(name)
        for target in sorted(links.get(name, ())):
            if found := visit(target):
                return found
        way.pop()
        done.add(name)
        return []

    for name in sorted(links):
        if found := visit(name):
            return found
    return []


def test_no_files_import_one_another_in_a_circle() -> None:
    """Planted: ``open_feeds`` back in feed.py, beside the Protocol that its members import."""
    trees = sources()
    packages = {name for name in trees if any(other.startswith(f"{name}.") for other in trees)}
    links = {
        name: {target for target in imports(tree, trees) if target in trees} - packages - {name}
        for name, tree in trees.items()
        if name not in packages
    }
    assert circle(links) == []


def test_a_circle_is_seen() -> None:
    """Planted: only pairs looked at -> the circle of three passes."""
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_no_public_class_name_means_two_things() -> None:
    """Planted: a second class ``Outcome`` -> fails, and names both files."""
    homes = defaultdict(list)
    for name, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_folder_shows_too_much() -> None:
    """Planted: the limit one lower than the fullest folder -> fails."""
    folders = {path.parent for house in HOUSES for path in (ROOT / house).rglob("*.py")}
    entries = {
        str(folder.relative_to(ROOT)): sum(
            entry.name not in {"__pycache__", "py.typed"} for entry in folder.iterdir()
        )
        for folder in folders
    }
    assert {name: count for name, count in entries.items() if count > MOST_ENTRIES} == {}
