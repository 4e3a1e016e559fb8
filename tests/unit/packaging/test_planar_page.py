"""The table of places in docs/MECHANISMS.md is what tools/planar.py finds."""

from __future__ import annotations

import re
from runpy import run_path
from types import SimpleNamespace

import pytest

from tests.cases import for_each
from tests.sizes import size
from tests.worlds.modules import ROOT

PAGE = (ROOT / "docs" / "MECHANISMS.md").read_text()
tool = SimpleNamespace(**run_path(str(ROOT / "tools" / "planar.py")))
_ROW = re.compile(
    r"^\| [^|]*\| `(krr|planar)`(?: `(cut|clamped)`)? " + r"\| ([0-9.,]+) " * 7 + r"\|$",
    re.MULTILINE,
)


def rows() -> list[tuple[str, str, list[float]]]:
    found = [
        (name, setting, [float(figure.replace(",", "")) for figure in figures])
        for name, setting, *figures in _ROW.findall(PAGE)
    ]
    assert len(found) == 12
    return found


@for_each("row", rows()[: size(2, 12)])
def test_every_figure_is_the_codes(row: tuple[str, str, list[float]]) -> None:
    """epsilon0 is printed with four digits, and errors are to 5 %. Planted: a block's error by
    its cells' alone; the figures of two settings exchanged; a central epsilon of twice that ->
    fails.
    """
    name, setting, (epsilon0, per_km, central, cell, block, elsewhere, metres) = row
    one = tool.line(name, tool.made(name, epsilon0, setting), 100_000)
    found = [one.per_km, one.central, one.cell, one.block, one.away_m]
    assert found == pytest.approx([per_km, central, cell, block, metres], rel=0.05)
    assert one.elsewhere == pytest.approx(elsewhere, abs=0.6, rel=0.05)
