"""Pictures of the console in the documentation: those that `make screenshots` makes, and small."""

from __future__ import annotations

import sys
from runpy import run_path

from tests.worlds.modules import ROOT

sys.path.append(str(ROOT / "tools"))  # as of a script: it has a second file beside it
TOOL = run_path(str(ROOT / "tools" / "screenshots.py"))

_MOST = 150_000  # bytes of one
_PNG = b"\x89PNG\r\n"


def test_pictures_are_those_that_the_tool_makes() -> None:
    """Planted: a picture renamed, a page taken off the tool's list, one of 200 kB -> each fails."""
    found = {path.name: path for path in (ROOT / "docs" / "images").glob("console-*")}
    assert set(found) == {f"console-{name}.png" for name in TOOL["IN_DOCS"]}
    assert set(TOOL["IN_DOCS"]) <= {*TOOL["PAGES"], *TOOL["owner"].PAGES}
    demo = ROOT / "docs" / "images" / "demo.png"  # by tools/demo_picture.py
    assert "docs/images/demo.png" in (ROOT / "README.md").read_text()
    for path in (*found.values(), demo):
        assert path.read_bytes().startswith(_PNG)
        assert path.stat().st_size < _MOST, path.name
