"""The tables of docs/ACCURACY.md are what the planner says today."""

from __future__ import annotations

from runpy import run_path
from types import SimpleNamespace

from tests.sizes import FULL
from tests.worlds.modules import ROOT

accuracy = SimpleNamespace(**run_path(str(ROOT / "tools" / "accuracy.py")))
others = SimpleNamespace(**run_path(str(ROOT / "tools" / "accuracy_others.py")))
FEW = (("yes/no", 1_000), ("16 cells", 10_000))


def test_the_tables_are_up_to_date() -> None:
    """Two rows, or (full size) all of them, the table of everything and the picture. Planted:
    another epsilon -> fails.
    """
    page = accuracy.PAGE.read_text()
    if FULL:
        rows = accuracy.all_rows()
        assert page == accuracy.page(rows)
        assert accuracy.PICTURE.read_text() == accuracy.picture(rows)
        return
    lines = page.splitlines()
    for question, n in FEW:
        assert accuracy.row(question, n).line in lines


def test_what_others_reach_is_up_to_date() -> None:
    """One randomizer, or (full size) the whole table. Planted: another delta -> fails."""
    text = others.PAGE.read_text()
    if FULL:
        assert others.table() in text
        return
    lines = text.splitlines()
    assert others.single(*others.SINGLE[0]) in lines
