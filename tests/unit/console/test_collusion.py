"""The matrix on the page is the one of the threat model."""

from __future__ import annotations

from shoal.console.operator.collusion import KINDS, MATRIX, kind_of, matrix, meaning
from tests.cases import for_each
from tests.worlds.modules import ROOT


def table() -> list[list[str]]:
    """The rows of the page's table, cell by cell."""
    text = (ROOT / "docs" / "THREAT_MODEL.md").read_text()
    lines = text.split("| who | single |")[1].splitlines()[2:]
    rows = [line for line in lines[: lines.index("")] if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_matrix_is_that_of_the_threat_model() -> None:
    """Planted: a cell of docs/THREAT_MODEL.md changed -> fails, and shows both."""
    assert [[who, *cells] for who, cells in MATRIX] == table()


@for_each("kind", KINDS)
def test_a_column_is_readable_by_itself(kind: str) -> None:
    """Planted: "the same" left as it is -> nobody knows as what, and this fails. Planted: a star of
    the page left -> fails.
    """
    rows = matrix(kind)
    assert len(rows) == len(MATRIX)
    for row in rows:
        assert "the same" not in row.what
        assert "*" not in row.what
        assert "`" not in row.what
    worst = {row.who for row in rows if row.own}
    assert ("shuffler + analyzer" in worst) == (kind != "strict sum")
    assert "task authority + anybody who carries frames" in worst
    assert meaning(kind)


def test_a_release_says_of_which_kind_it_is() -> None:
    """Planted: a strict sum taken for a default one -> the page would say "vector" for nobody's."""
    privacy: dict[str, object] = {}
    assert kind_of({"privacy": privacy}) == "single"
    assert kind_of({"privacy": {"memoized": {}}}) == "memoized"
    assert kind_of({"privacy": {"epsilon0": None, "method": "cancelling"}}) == "several"
    drawn = {"epsilon0": 8.0, "method": "randomized-cancelling"}
    assert kind_of({"privacy": drawn}) == "several, drawn"
    for mode, kind in (("default", "sum"), ("strict", "strict sum"), ("helper", "helper")):
        assert kind_of({"privacy": privacy, "rounds": {"mode": mode}}) == kind
