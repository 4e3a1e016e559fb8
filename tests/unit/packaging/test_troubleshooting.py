"""docs/TROUBLESHOOTING.md quotes lines that the code prints, and knows every condition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shoal.services.conditions import CODES
from tests.worlds.modules import read

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()
HOUSES = ("cli", "clients", "common", "crypto", "shuffler", "analyzer", "accounting")
TYPERS_OWN = {"…: no such command …"}  # said by the library that reads command lines


@cache
def texts() -> tuple[str, ...]:
    """Every string of the product; what is put into it by then is "…"."""
    return tuple(
        "".join(_parts(node))
        for house in HOUSES
        for module in read(house)
        for node in module.nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
    )


def _parts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _parts(value)
        case ast.FormattedValue():
            yield "…"


def quoted() -> list[str]:
    """The lines of the page's tables, as they are told: the first column."""
    rows = re.findall(r"^\| (`.+?`) \| ", PAGE, re.MULTILINE)
    lines = [row.strip("`").replace("``", "`") for row in rows]
    return [line for line in lines if " " in line]


def test_every_line_of_the_page_is_said_somewhere() -> None:
    """Planted: "has gone before" for "has not begun" on the page; the text of a ShoalError changed
    and not the page's -> fails.
    """
    unsaid = []
    for line in quoted():
        pieces = [piece for piece in line.split("…") if piece.strip(" :.")]
        pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
        if line not in TYPERS_OWN and not any(pattern.search(text) for text in texts()):
            unsaid.append(line)
    assert len(quoted()) > 30
    assert not unsaid


def test_every_condition_has_its_row_in_the_words_of_the_service() -> None:
    """Planted: a code without a row; another word in a row -> fails."""
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.+?) \| .+ \|$", PAGE, re.MULTILINE))
    assert rows == CODES
