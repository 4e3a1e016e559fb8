"""Where the planner takes the short reports of projective geometry response, as docs/MECHANISMS.md
says.
"""

from __future__ import annotations

import re

import pytest

from shoal.analyzer.planner import plan
from tests.cases import for_each
from tests.unit.analyzer.planner.questions import counting
from tests.worlds.modules import ROOT

PAGE = (ROOT / "docs" / "MECHANISMS.md").read_text()
NAMES = ("projective", "subset", "unary", "local_hash", "hadamard_response")


def rows() -> dict[tuple[int, int], list[str]]:
    """(cells, the cap on epsilon0) -> errors as they stand on the page, by mechanism; the chosen
    one in bold.
    """
    found = re.findall(r"^\| ([0-9,]+), epsilon0 (\d) \| (.*) \|$", PAGE, re.MULTILINE)
    return {(int(k.replace(",", "")), int(cap)): row.split(" | ") for k, cap, row in found}


@for_each("k, cap", [(1024, 2), (1024, 4), (4096, 3), (60_000, 3), (60_000, 4)])
def test_what_is_chosen_under_a_cap(k: int, cap: int) -> None:
    """Errors within 0.5 % are alike, and the shorter report wins. Planted: a report of 600 bytes
    said of ``projective`` -> 4,096 cells fail; figures of another row -> fails.
    """
    row = rows()[k, cap]
    chosen = plan(
        counting(k, 10_000, delta=1e-6, most_epsilon0=float(cap), mechanisms=NAMES)
    ).choice
    (bold,) = (name for name, cell in zip(NAMES, row, strict=True) if cell.startswith("**"))
    assert chosen.candidate.mechanism == bold
    errors = chosen.errors
    assert errors is not None
    told = [float(each) for each in row[NAMES.index(bold)].strip("*").split(", ")]
    assert [errors.ranked, errors.heavy] == pytest.approx(told, rel=6e-3)


def test_few_cells_are_not_for_it() -> None:
    """With 16 cells the nearest prime is too coarse. Planted: ``subset`` left out -> ``krr`` is
    chosen, and this fails.
    """
    asked = counting(16, 10_000, delta=1e-6, most_epsilon0=2.0, mechanisms=("krr", *NAMES))
    assert plan(asked).choice.candidate.mechanism == "subset"
