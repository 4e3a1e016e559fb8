"""What a column is taken for, what overrules it, and what is refused with a way out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal.analyzer.planner import Frequencies, Mean, Quantiles
from shoal.cli.load.table import TableColumn
from shoal.cli.trial.asked import AskedColumn
from shoal.cli.trial.infer import asked_of
from shoal.cli.trial.numbers import parsed, range_of
from shoal.cli.trial.overruled import Said, said_of
from shoal.domain import Categories, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

NUMBERS = [str(3 * i) for i in range(100)]


def ask(cells: Sequence[str | None], **options: str) -> AskedColumn:
    given = {name: [text] for name, text in options.items()}
    said = said_of(["c"], *(given.get(name, []) for name in ("kind", "ends", "labels", "words")))
    return asked_of(TableColumn("a.csv", "c", cells, range(2, len(cells) + 2)), said["c"])


def domain(asked: AskedColumn) -> object:
    assert isinstance(asked.question, Frequencies)
    return asked.question.domain


def test_yes_and_no() -> None:
    """Planted: empty cells counted as no -> no cell of their own."""
    for yes, no in (("yes", "no"), ("Ja", "nein"), ("TRUE", "FALSE"), ("1", "0")):
        asked = ask([yes, no, no])
        assert (domain(asked), asked.values) == (YesNo(), [True, False, False])
        assert asked.truth(YesNo(), asked.values) == {"no": 2.0, "yes": 1.0}
    asked = ask(["yes", None, "no"])
    assert domain(asked) == Categories(("no", "yes"))
    assert asked.values == ["yes", None, "no"]
    assert asked.truth(Categories(("no", "yes")), asked.values)["no answer"] == 1.0


def test_categories_by_name() -> None:
    asked = ask(["rot", "grün", None, "rot", "Ä"])
    assert domain(asked) == Categories(("grün", "rot", "Ä"))
    assert asked.inferred
    named = ask(["rot", "grün"], labels="grün,rot,blau")
    assert domain(named) == Categories(("grün", "rot", "blau"))
    assert not named.inferred
    some = ask(["rot", "grün", None, "blau"], words="rot,lila")
    assert domain(some) == Categories(("rot", "lila", "other"))
    assert some.values == ["rot", "other", None, "other"]


def test_whole_numbers() -> None:
    """Planted: a number beyond a given range as no answer -> fails."""
    asked = ask(["1", "5", None, "3.0"])
    names = tuple(map(str, range(1, 6)))
    assert domain(asked) == Categories(names, (1, 2, 3, 4, 5))
    assert asked.values == [1, 5, None, 3]
    assert asked.truth(Categories(names, (1, 2, 3, 4, 5)), asked.values)["3"] == 1.0
    given = ask(["1", "9"], kind="whole", ends="0:4")
    assert (given.values, given.inferred, given.beyond) == ([1, 4], False, 1)


def test_numbers_with_a_range() -> None:
    """Planted: the range of a heavy tail's outermost number -> 0 to 300,000."""
    asked = ask([*NUMBERS, "300000"])
    assert asked.question == Mean(0.0, 300.0)
    assert (asked.beyond, asked.values[-1]) == (1, 300.0)
    assert asked.unclipped == (sum(range(0, 300, 3)) + 300_000) / 101
    assert "1 row beyond counts" in asked.says
    truth = asked.truth(Numeric(0.0, 300.0, 9), asked.values)
    assert truth["mean"] == (sum(range(0, 300, 3)) + 300.0) / 101
    assert (truth["quantile 0.5"], truth["no answer"]) == (150.0, 0.0)
    given = ask([*NUMBERS, None], ends="-10:10.5")
    assert given.question == Mean(-10.0, 10.5)
    assert not given.inferred
    assert isinstance(ask(NUMBERS, kind="quantiles").question, Quantiles)


@for_each(
    "least, most, ends",
    [
        (0, 90, (0.0, 100.0)),
        (18, 92, (0.0, 100.0)),
        (1950, 2005, (1950.0, 2005.0)),
        (36.13, 39.81, (36.1, 39.9)),
        (-31, 44, (-31.0, 44.0)),
        (0, 1e-7, (0.0, 1e-7)),
    ],
)
def test_ranges_end_at_round_numbers(least: float, most: float, ends: tuple[float, float]) -> None:
    """Planted: rounded inward -> fails."""
    numbers = [least + (most - least) * i / 200 for i in range(201)]
    assert range_of(numbers) == pytest.approx(ends)


@for_each(
    "cells, delimiter, numbers",
    [
        (["1,5", "2"], ";", [1.5, 2]),
        (["1.234,5", "2"], ";", [1234.5, 2]),
        (["1,234", "2.5"], ",", [1234, 2.5]),
        (["1,234.5", "12"], ",", [1234.5, 12]),
        (["1,5", "2"], ",", [1.5, 2]),
        (["1,5", "x"], ";", [None, None]),
    ],
)
def test_numbers_as_people_write_them(
    cells: list[str], delimiter: str, numbers: list[float | None]
) -> None:
    """Planted: decimal commas first in a file with commas between cells -> 1,234 is 1.234."""
    assert parsed(cells, delimiter)[0] == numbers


@for_each(
    "cells, options, said",
    [
        (["a", "a"], {}, "one value alone"),
        (["7"] * 9, {}, "one value alone"),
        (["7"] * 9, {"kind": "mean"}, "one number alone"),
        ([*NUMBERS, "NaN"], {}, 'a.csv, line 102: column "c" has no number'),
        ([*NUMBERS, "-inf"], {}, "has no number"),
        ([*NUMBERS, "many"], {}, "--missing TEXT"),
        (["1", "2", "3", "4", "NaN"], {}, "has no number"),
        (["2001-02-03", "2004-05-06"], {}, "holds dates"),
        (["3.2.2001", "4.5.2006"], {}, "holds dates"),
        ([f"p{i}" for i in range(99)], {}, "names and free texts are no statistic"),
        ([f"p{i % 40}" for i in range(99)], {}, "40 different texts: --words"),
        (["no answer", "b"], {}, '--missing "no answer"'),
        (["b", "x" * 5_000], {}, "is no name of a category"),
        (["b", "x\ny"], {}, 'line 3: what column "c" has there is no name'),
        (["maybe", "yes"], {"kind": "yes_no"}, 'line 2: column "c" has neither yes nor no'),
        (["rot", "gelb"], {"labels": "rot,blau"}, 'line 3: column "c" has none of --labels'),
        (["rot", "gelb"], {"words": "rot,other"}, '--words: "other"'),
        (["1", "2.5"], {"kind": "whole"}, "has no whole number"),
        (["1", "900000"], {"kind": "whole"}, "--kind mean"),
        (["1", "1e300"], {}, "no number there that can be asked"),
        (["1", "9" * 40], {}, "no number there that can be asked"),
        ([str(i) for i in range(7, 99)], {}, "counts the rows"),
    ],
)
def test_refusals_say_what_to_do(
    cells: list[str | None], options: dict[str, str], said: str
) -> None:
    """Planted: NaN taken for a category of its own -> "1 2 3 4 NaN" is asked."""
    with pytest.raises(ShoalError) as caught:
        ask(cells, **options)
    assert caught.value.kind is Kind.CONFIG
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    # the place and not what stands there. Planted: the cell in the words -> fails
    shown = {"NaN", "-inf", "many", "x?y", "maybe", "gelb", "2.5", "1e300", "9" * 30}
    assert not [cell for cell in shown if cell in caught.value.message]


@for_each(
    "options, said",
    [
        ({"kind": ["c=numbers"]}, "one of yes_no, categories"),
        ({"kind": ["mean"]}, "of which column"),
        ({"ends": ["c=5"]}, "the smaller first"),
        ({"ends": ["c=5:1"]}, "the smaller first"),
        ({"ends": ["c=1:nan"]}, "the smaller first"),
        ({"ends": ["c=1:2", "c=1:3"]}, "twice"),
        ({"labels": ["c=a"]}, "2 or more different"),
        ({"labels": ["c=a,a"]}, "different"),
        ({"labels": ["c=a,b"], "ends": ["c=1:2"]}, "leave one of them out"),
        ({"kind": ["c=mean"], "labels": ["c=a,b"]}, "--labels is not for --kind mean"),
    ],
)
def test_wrong_options_are_named(options: dict[str, list[str]], said: str) -> None:
    given = [options.get(name, []) for name in ("kind", "ends", "labels", "words")]
    with pytest.raises(ShoalError, match=said):
        said_of(["c", "d"], *given)


def test_options_find_their_column() -> None:
    """Planted: the first name that fits instead of the longest -> "c=x" has the range."""
    said = said_of(["c", "c=x", "d"], [], ["c=x=1:2", "d=3:4"], [], [])
    assert said == {"c": Said(), "c=x": Said(ends=(1.0, 2.0)), "d": Said(ends=(3.0, 4.0))}
