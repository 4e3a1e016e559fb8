"""Laws of the rooms: no circle of files, no name for two things, no folder to get lost in."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.worlds.modules import ROOT, Module, imports_of, read

HOUSES = (
    "common",
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
MOST_ENTRIES = 22  # of a folder, its __init__ among them; 20 is what one sees at a glance


def sources() -> dict[str, Module]:
    """By dotted name, every file that somebody wrote."""
    return {dotted(Path(one.path)): one for house in HOUSES for one in read(house)}


def dotted(path: Path) -> str:
    """clients/memory/ledger.py -> shoal.clients.memory.ledger; common/ is shoal itself."""
    parts = path.with_suffix("").parts
    kept = parts[1:] if parts[0] == "common" else parts
    return ".".join(["shoal", *(part for part in kept if part != "__init__")])


def imports(module: Module, known: Collection[str]) -> Iterator[str]:
    """Files of ours that it imports, in functions and for types too."""
    for one in imports_of(module):
        yield one.name if one.name in known else one.name.rpartition(".")[0]


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
    """Not for types either: a Protocol stands with who asks, below its members. Planted:
    ``open_feeds`` back in feed.py, beside the Protocol that its members import; ``SqliteFile`` for
    ``ReadableFile`` in marks.py, for types alone -> fails.
    """
    files = sources()
    packages = {name for name in files if any(other.startswith(f"{name}.") for other in files)}
    links = {
        name: {target for target in imports(file, files) if target in files} - packages - {name}
        for name, file in files.items()
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
    for name, file in sources().items():
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_folder_shows_too_much() -> None:
    """Planted: the limit one lower than the fullest folder -> fails."""
    folders = {path.parent for house in HOUSES for path in (ROOT / house).rglob("*.py")}
    entries = {
        str(folder.relative_to(ROOT)): sum(
            entry.name not in {"__pycache__", "py.typed", "__init__.pyi"}
            for entry in folder.iterdir()
        )
        for folder in folders
    }
    assert {name: count for name, count in entries.items() if count > MOST_ENTRIES} == {}
