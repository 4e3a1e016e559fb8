"""What the site has beside the pages of docs/: the reference, and files elsewhere in the repository
that pages link to. Called by mkdocs (mkdocs.yml).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(Path(__file__).parent))
import commands  # noqa: E402 - found by the line above: mkdocs loads this file by its path

PYTHON = """# Python

The modules that programs use. What is not here may change without notice.
"""
MODULES = (
    "shoal.study.designed",
    "shoal.study.planning",
    "shoal.study.promise",
    "shoal.study.estimates",
    "shoal.study.simulated",
    "shoal.study.releases",
    "shoal.study.audited",
    "shoal.study.vectors",
    "shoal.study.updates",
    "shoal.study.frames",
    "shoal.clients",
    "shoal.mechanisms.base",
    "shoal.mechanisms.registry",
    "shoal.accounting",
    "shoal.accounting.meaning",
    "shoal.analyzer.planner",
    "shoal.errors",
)
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
# a page named in the text: docs/WIRE.md, WIRE.md is in the same folder
_NAMED = re.compile(r"(?<![\w/.\[`(])docs/([A-Z_]+)\.md(?![\w`\]])")
_TEXT = {".toml", ".yaml", ".yml", ".conf", ".acl", ".service", ".timer", ".json", ".py", ""}


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and what pages link to outside of docs/."""
    _add(files, config, "reference/commands.md", commands.page())
    modules = "".join(f"\n::: {name}\n" for name in MODULES)
    _add(files, config, "reference/python.md", PYTHON + modules)
    for path in sorted(DOCS.rglob("*.ipynb")):
        page = path.relative_to(DOCS).with_suffix(".md")
        _add(files, config, str(page), _notebook(path))
    for path in sorted(_linked()):
        _add(files, config, _place(path), _shown(path))
    return files


def _notebook(path: Path) -> str:
    """A notebook as a page: its text and its code. It is stored without outputs."""
    parts = [f"[Download {path.name}]({path.name}) and run it yourself.\n"]
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([parts[1], parts[0], *parts[2:]])


def on_page_markdown(  # mkdocs gives all four by name
    markdown: str,
    page: Any,
    config: Any,  # noqa: ARG001
    files: Files,
) -> str:
    """Links that lead out of docs/ lead to the copy; a page that is named is linked."""
    here = DOCS / page.file.src_uri
    up = "../" * page.file.src_uri.count("/")
    outside = page.file.src_uri.startswith("repository/")

    def moved(found: re.Match[str]) -> str:
        target = (here.parent / found[1]).resolve()
        if target.suffix == ".ipynb" and not page.file.src_uri.startswith("notebooks/"):
            return f"]({found[1].removesuffix('.ipynb')}.md)"  # the page that shows it
        if outside:  # written for its place in the repository
            target = (ROOT / page.file.src_uri.removeprefix("repository/")).parent / found[1]
            target = target.resolve()
            if target.is_relative_to(DOCS):
                return f"]({up}{target.relative_to(DOCS)}{found[2] or ''})"
            known = _place(target) if target.is_relative_to(ROOT) else ""
            return f"]({up}{known})" if files.get_file_from_path(known) else "]()"
        if target.is_relative_to(DOCS) or not target.exists():
            return found[0]
        return f"]({up}{_place(target)}{found[2] or ''})"

    def named(found: re.Match[str]) -> str:
        return f"[{found[1]}.md]({up}{found[1]}.md)"

    text = "\n".join(
        part if fenced else _NAMED.sub(named, _LINK.sub(moved, part))
        for fenced, part in _parts(markdown)
    )
    return text.replace("]()", "]") if outside else text


def _parts(markdown: str) -> list[tuple[bool, str]]:
    """(is a block of code, its lines), in order."""
    parts: list[tuple[bool, list[str]]] = [(False, [])]
    for line in markdown.split("\n"):
        fence, inside = line.lstrip().startswith("```"), parts[-1][0]
        if fence and not inside:
            parts.append((True, [line]))
        elif fence:
            parts[-1][1].append(line)
            parts.append((False, []))
        else:
            parts[-1][1].append(line)
    return [(fenced, "\n".join(lines)) for fenced, lines in parts if lines]


def _linked() -> set[Path]:
    """Files and folders of the repository, outside of docs/, that its pages link to."""
    found = set()
    for page in DOCS.rglob("*.md"):
        for link in _LINK.finditer(page.read_text()):
            target = (page.parent / link[1]).resolve()
            if target.exists() and not target.is_relative_to(DOCS):
                found.add(target)
    return found


def _place(path: Path) -> str:
    """Where the site has it: Markdown as itself, anything else as a page that shows it."""
    name = f"repository/{path.relative_to(ROOT)}"
    return name if path.suffix == ".md" else f"{name}.md" if path.is_file() else f"{name}/index.md"


def _shown(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text()
    files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.is_file())
    parts = [f"# {path.relative_to(ROOT)}\n"]
    for one in files:
        head = f"\n## {one.name}\n" if path.is_dir() else ""
        if one.suffix in _TEXT:
            parts.append(
                f"{head}\n````{one.suffix.lstrip('.') or 'text'}\n{one.read_text()}\n````\n"
            )
    return "".join(parts)


def _add(files: Files, config: Any, name: str, content: str) -> None:
    files.append(File.generated(config, name, content=content))
