"""The matrix on the page is the one of the threat model."""

from __future__ import annotations

from dataclasses import replace

from shoal.console.operator.collusion import (
    KINDS,
    MATRIX,
    kind_of,
    matrix,
    meaning,
    numbers_tell,
)
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.worlds.devices.several import several
from tests.worlds.modules import ROOT
from tests.worlds.words import words_world


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


def test_numbers_of_messages_are_told_of_where_they_tell() -> None:
    """By the task's integers, and where no task can be read too. Planted: told of every task of
    several messages, or of none; nothing said where the task is not there; "epsilon0 remains" left
    alone -> each fails.
    """
    bare = several(hidden=False).task
    tasks = {None: True, bare: True, several().task: False, words_world().task: False}
    for task, tells in tasks.items():
        assert numbers_tell(task) == tells
        for kind in ("several", "several, drawn"):
            (row,) = [row for row in matrix(kind, tells=tells) if row.who == "shuffler alone"]
            assert row.what.startswith("part, and how many messages, which no value decides")
            assert ("no message is empty" in row.what) == tells
            assert ("epsilon0 remains" in row.what) == (tells and kind == "several, drawn")
    assert numbers_tell(replace(bare, mechanism=MechanismSpec.of("signed_count", shares=1)))
