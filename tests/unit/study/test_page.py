"""docs/PYTHON.md, its blocks run as they stand, in their order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "PYTHON.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block is the ten lines of the page's first sentence. Planted: ``to_frames`` in a
    block -> fails.
    """
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(bool(line.strip()) for line in blocks[0].splitlines()) <= 10
    known: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), known)  # noqa: S102 - our own page
    assert os.listdir(tmp_path) == []
    assert len(known["estimates"].to_frame()) == 4
