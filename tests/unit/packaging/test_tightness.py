"""The table of both ends in docs/ACCOUNTING.md is what the accountant says today."""

from __future__ import annotations

from runpy import run_path
from types import SimpleNamespace

from tests.sizes import FULL
from tests.worlds.modules import ROOT

tightness = SimpleNamespace(**run_path(str(ROOT / "tools" / "tightness.py")))


def test_the_table_is_up_to_date() -> None:
    """One mechanism, or (full size) all of them. Planted: another delta -> fails."""
    text = tightness.PAGE.read_text()
    if FULL:
        assert tightness.table() in text
    else:
        assert tightness.row("hadamard") in text.splitlines()
