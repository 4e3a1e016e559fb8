"""``shoal load --values``: rows become answers as a device reads them; what no device would take is
refused with its place.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from shoal.cli.load.options import LoadOptions
from shoal.cli.load.show import KnownTruth, LoadOutcome, TaskRow, show
from shoal.cli.load.tasks import plan_of
from shoal.cli.load.values import RowsOfTasks, missing_words, rows_of_tasks, truth_of
from shoal.clients.fleet.plan import SimulationResult
from shoal.domain import Categories, Domain, Norm, Numeric, Vector, Words, YesNo
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.cli.load.loads import target_of_world
from tests.worlds.devices.clients import VISITS, make_world

TABLE = "sleeps,visits,height,word: so\nyes,0,1.5,a\nno,4,,b\n,12,9,a\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "a:b.csv"
    file.write_text(TABLE)
    return file


def answers(table: Path, column: str, domain: Domain) -> list[object]:
    return list(rows_of_tasks([f"{table}:{column}"], [("t", domain)]).values[0])


def test_rows_are_answers(table: Path) -> None:
    """Planted: the name of a column up to its colon alone -> not found; empty cells as "" ->
    fails.
    """
    assert answers(table, "sleeps", YesNo()) == ["yes", "no", None]
    assert answers(table, "visits", VISITS) == ["0", "4", "12"]
    assert answers(table, "height", Numeric(0, 3, 4)) == ["1.5", None, "9"]
    assert answers(table, "word: so", Words(("a",))) == ["a", "b", "a"]


@for_each(
    "domain, values, truth",
    [
        (YesNo(), ["yes", "no", None], {"no": 2, "yes": 1}),
        (Words(("a", "c")), ["a", "b", "a", None], {"a": 2, "c": 0, "no answer": 1}),
        (
            Categories(("few", "many"), (0, 5)),
            ["4", "5", "9", None],
            {"few": 1, "many": 2, "no answer": 1},
        ),
    ],
)
def test_the_truth_is_counted_by_value(
    domain: Domain, values: list[str | None], truth: dict[str, float]
) -> None:
    """Planted: cells by their place in ``labels`` -> words are never found."""
    assert truth_of(domain, values) == truth


def test_the_truth_of_numbers() -> None:
    """Planted: numbers beyond the range as they are -> the mean is 4."""
    truth = truth_of(Numeric(0, 3, 4), ["1.5", None, "9", "-1"])
    assert (truth["mean"], truth["no answer"]) == (1.5, 1.0)
    assert (truth["quantile 0.25"], truth["quantile 0.5"], truth["quantile 0.9"]) == (0, 1.5, 3)
    assert truth_of(Numeric(0, 3, 4, clip=False), ["1", "9"])["no answer"] == 1.0


def test_rows_and_devices() -> None:
    """Planted: the rows drawn at random -> another order; a missing note -> fails."""
    rows = RowsOfTasks({1: ["a", "b", None]}, ["read as Latin-1"])
    assert rows.devices(None) == 3
    assert rows.of(0, range(5)) is None
    assert rows.of(1, range(5)) == ("a", "b", None, "a", "b")
    assert rows.of(1, range(1, 8, 3)) == ("b", "b", "b")
    assert rows.of(1, range(2)) == ("a", "b")
    assert rows.said(3) == ["read as Latin-1"]
    assert rows.said(5)[1] == "3 rows for 5 devices: they answer again and again"
    assert rows.said(1)[1] == "3 rows for 1 device: the first ones answer"
    with pytest.raises(ShoalError, match="2 and 3 rows: say how many"):
        RowsOfTasks({0: ["a", "b"], 1: ["a", "b", "c"]}).devices(None)
    with pytest.raises(ShoalError, match="Give --devices N, or --values"):
        RowsOfTasks({}).devices(None)
    assert "2 devices" in missing_words(YesNo(), ["yes", None, None])
    assert missing_words(VISITS, [None]) == ""


@for_each(
    "given, said",
    [
        (["{}:visits"], "of which task? Give --values one="),
        (["one={}"], "cannot read"),
        (["one=nothing"], "FILE:COLUMN is wanted"),
        (["one={}:sleeps", "one={}:sleeps"], "twice for task one"),
        (["one={}:nothing"], 'no column "nothing"'),
        (
            ["one={}:visits"],
            'line 3: column "visits" has no answer to task one: it takes yes or no',
        ),
        (
            ["two={}:word: so"],
            'line 2: column "word: so" has no answer to task two: it takes a number',
        ),
        (["three={}:visits"], "task three asks for vectors"),
    ],
)
def test_refusals(given: list[str], said: str, table: Path) -> None:
    """Planted: cells that are no answer sent as they are -> none of the last three is refused."""
    tasks: list[tuple[str, Domain]] = [
        ("one", YesNo()),
        ("two", VISITS),
        ("three", Vector(1, Norm.L1, 1.0, 10)),
    ]
    with pytest.raises(ShoalError) as caught:
        rows_of_tasks([text.format(table) for text in given], tasks)
    assert caught.value.kind is Kind.CONFIG
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_the_plan_has_the_rows(table: Path, tmp_path: Path) -> None:
    """Planted: ``--devices`` taken for the rows' number where both are there -> 3 devices."""
    target = target_of_world(make_world())
    rows = rows_of_tasks([f"{table}:visits"], [("visits", VISITS)])
    plan = plan_of(LoadOptions(devices=4, window=0), [target], 0.0, rows)
    assert plan.tasks[0].values == ("0", "4", "12", "0")
    assert plan_of(LoadOptions(window=0), [target], 0.0, rows).devices == 3


def test_the_report_says_what_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: markup in labels -> "[b29]" is gone; the twenty smallest values -> fails."""
    answered = KnownTruth({f"[b{i}]": float(i) for i in range(30)}, "a note")
    row = TaskRow(target_of_world(make_world()), 435, 400, 35, 0, 0, None, answered)
    result = SimulationResult(435, 400, {}, 35, 8.0, array("f"), (b"",))
    show(LoadOutcome(result, [row], None, {}, counting=False, interrupted=False))
    out = capsys.readouterr().out
    assert "[b29]" in out
    assert "[b9]" not in out
    assert "and 10 more values" in out
    assert "a note" in out
    assert "35 more answers, whose fate is unknown" in out
