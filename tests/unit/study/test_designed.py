"""A question, from its words to a table of estimates: every kind of column, and what is refused."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shoal
from shoal.accounting import certify
from shoal.cli.main import main
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.study.cells import cells_of, levels_of
from shoal.study.columns import column_of
from tests.cases import for_each
from tests.worlds.tapes import Tape

SPORT = ["never", "weekly", "daily", None]


def columns(values: list[Any]) -> list[Any]:
    """The same answers in everything that an analyst may have them in."""
    return [
        values,
        tuple(values),
        np.array(values, dtype=object),
        pd.Series(values),
        pd.Series(values, dtype="category"),
        pl.Series(values),
        pa.array(values),
        (value for value in values),
    ]


def test_every_column_says_the_same() -> None:
    """Planted: a category's code in place of its text; NaN as a text -> fails."""
    sport = shoal.design(["never", "weekly", "daily"])
    for column in columns(SPORT):
        cells = cells_of(sport.domain, column_of(column), SeededEntropy(1))
        assert cells.tolist() == [0, 1, 2, 3], type(column)


@for_each(
    "labels, values, cells",
    [
        ([1, 2, 3], [1, 2, 3, None], [0, 1, 2, 3]),
        ([1, 2, 3], np.array([3, 1]), [2, 0]),
        ([1, 2, 3], pd.Series([1, None, 3]), [0, 3, 2]),  # pandas makes floats of them
        ([1, 2, 3], pl.Series([1, None, 3]), [0, 3, 2]),
        ([0.5, 1.5], [0.5, Decimal("1.5"), Fraction(1, 2)], [0, 1, 0]),
        (["true", "false"], pd.Series([True, False, None]), [0, 1, 2]),
        (None, [True, False, None, "yes", "No", 1, 0.0], [1, 0, 0, 1, 0, 1, 0]),
        (None, np.array([True, False]), [1, 0]),
        (None, pd.Series([True, pd.NA, False], dtype="boolean"), [1, 0, 0]),
    ],
)
def test_values_are_answers_and_not_cells(labels: Any, values: Any, cells: list[int]) -> None:
    """Planted: whole numbers taken as cells -> fails."""
    domain = shoal.design(labels).domain
    assert cells_of(domain, column_of(values), SeededEntropy(1)).tolist() == cells


def test_numbers_are_rounded_as_a_device_rounds_them() -> None:
    """Word for word: the same random words give the same levels as ``Numeric.encode``. Planted:
    rounding to the nearest level; a number beyond the range as no answer -> fails.
    """
    values = [0.0, 0.1, 2.4999, 2.5, 9.99, 10.0, 11.0, -3.0, 3, float("nan")]
    words = [b"\x00" * 8, b"\xff" * 8, bytes(7) + b"\x80", bytes(7) + b"\x40"]
    for clip in (True, False):
        number = shoal.design(low=0, high=10, levels=5, clip=clip)
        for word in words:
            alone = [number.domain.encode(value, Tape(word)) for value in values]
            many = levels_of(number.domain, np.array(values), Tape(word * len(values)))  # type: ignore[arg-type] # numeric
            assert many.tolist() == alone, (clip, word)
    # in a list, with texts: the device's own reading
    mixed = shoal.design(low=0, high=10, levels=11).domain
    cells = cells_of(mixed, column_of(["3", 4, None, "1e1", 10**400, -(10**400)]), SeededEntropy(1))
    assert cells.tolist() == [3, 4, 11, 10, 10, 0]


def test_ten_lines() -> None:
    """Estimates come back in the library that the answers came in. Planted: the library forgotten
    by ``Reports`` -> fails.
    """
    sport = shoal.design(["never", "weekly", "daily"], epsilon0=4)
    for column, frame in (
        (pd.Series(SPORT * 500), pd.DataFrame),
        (pl.Series(SPORT * 500), pl.DataFrame),
        (SPORT * 500, pd.DataFrame),
    ):
        reports = sport.randomize(column, simulation_seed=7)
        estimates = sport.estimate(reports)
        table = estimates.to_frame()
        assert isinstance(table, frame)
        assert list(table.columns) == ["label", "value", "stderr", "ci_low", "ci_high"]
        assert list(table["label"]) == ["never", "weekly", "daily", "no answer"]
        assert abs(sum(table["value"]) - 2000) < 1e-6
        again = sport.tally(reports)
        assert list(sport.estimate(again + again)["value"]) == [2 * x for x in table["value"]]
        assert sum(estimates.shares()["value"]) == pytest.approx(1.0)  # type: ignore[arg-type] # numbers
        assert estimates.row("daily").value == estimates["value"][2]
    for text in (repr(estimates), estimates._repr_html_(), repr(sport.certify(2000))):
        assert "never" in text or "epsilon" in text
    for shown in (estimates.plot(), estimates.plot("A title")):
        ElementTree.fromstring(shown._repr_svg_())  # noqa: S314 - our own


def test_the_picture_escapes_labels() -> None:
    odd = shoal.design(["<b>", "a & b"], epsilon0=4)
    estimates = odd.estimate(odd.randomize(["<b>", "a & b"] * 50, simulation_seed=1))
    ElementTree.fromstring(estimates.plot("<title>").svg)  # noqa: S314 - our own
    assert "<b>" not in estimates._repr_html_().replace("<tbody>", "")


def test_randomness_is_the_systems_unless_a_simulation_says_otherwise() -> None:
    """Planted: a fixed seed as the default -> fails."""
    sport = shoal.design(["never", "weekly", "daily"])
    once, again = (sport.randomize(SPORT * 100) for _ in range(2))
    assert not np.array_equal(once.array, again.array)
    assert not once.simulated
    seeded = [sport.randomize(SPORT * 100, simulation_seed=3) for _ in range(2)]
    assert np.array_equal(seeded[0].array, seeded[1].array)
    assert "protect nobody" in repr(seeded[0])


@for_each("n, honest, mechanism", [(1_000, 0.9, "rr"), (10, 0.7, "rr"), (5_000, 1, "krr")])
def test_epsilon_is_that_of_the_command_to_the_last_digit(
    n: int, honest: float, mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.7 of 10 is 7, though the float 0.7 is a little less. Planted: the share taken as its float
    -> fails.
    """
    options = ["--mechanism", mechanism, "--epsilon0", "2", "--n", str(n), "--delta", "1e-6"]
    kary = ["--k", "4"] if mechanism == "krr" else []
    share = ["--honest-fraction", str(honest), "--json"]
    assert main(["epsilon", *options, *kary, *share]) == 0
    told = json.loads(capsys.readouterr().out)
    labels = ["a", "b", "c"] if mechanism == "krr" else None
    question = shoal.design(labels, epsilon0=2)
    assert question.certify(n, delta=1e-6, honest_fraction=honest).to_json() == told


def test_a_plan_is_the_planners() -> None:
    """Planted: ``min_batch`` not passed on -> fails."""
    planned = shoal.plan(n=2_000, epsilon=0.5, min_batch=1_000, mechanisms=["binary_rr", "krr"])
    assert planned.promise.epsilon <= 0.5
    law = planned.design.mechanism.privacy()
    upper = certify(law, 1_000, 1e-8, honest_fraction=Fraction(9, 10)).epsilon_upper
    assert planned.promise.epsilon == upper == planned.plan.choice.epsilon_upper
    assert planned.options["why"][0] == "chosen"
    assert planned.error > 0
    assert planned.design.epsilon0 == pytest.approx(planned.plan.choice.epsilon0)
    assert shoal.plan(n=2_000, error=planned.error, mechanisms=["binary_rr"]).promise.epsilon < 1


def test_quantiles_of_a_number() -> None:
    """Planted: the tally of another design -> refused, naming the argument."""
    hours = shoal.design(low=0, high=10, levels=11, epsilon0=6, unit="hours")
    reports = hours.randomize([2, 4, 6] * 1000, simulation_seed=5)
    table = hours.quantiles(reports)
    medians = [row for row in table if row["share"] == 0.5]
    assert 3.5 <= medians[0]["value"] <= 4.5  # type: ignore[operator] # a number
    assert [row.label for row in [hours.estimate(reports).row("mean")]] == ["mean"]
    with pytest.raises(ValueError, match=r"^reports: "):
        shoal.design(low=0, high=9).estimate(reports)
    yes = shoal.design()
    with pytest.raises(ValueError, match=r"^reports: "):
        yes.quantiles(yes.randomize([True] * 10))


WRONG: list[tuple[str, type[Exception], Any]] = [
    ("labels", TypeError, lambda: shoal.design("yes")),
    ("labels", TypeError, lambda: shoal.design(["a", None])),
    ("labels", ValueError, lambda: shoal.design(["a", "a"])),
    ("low", ValueError, lambda: shoal.design(["a", "b"], low=0)),
    ("labels", TypeError, lambda: shoal.design({"a": 1, "b": 2})),
    ("low", TypeError, lambda: shoal.design(high=10)),
    ("high", ValueError, lambda: shoal.design(low=10, high=10)),
    ("high", ValueError, lambda: shoal.design(low=0, high=float("inf"))),
    ("levels", ValueError, lambda: shoal.design(low=0, high=1, levels=1)),
    ("levels", TypeError, lambda: shoal.design(low=0, high=1, levels="10")),  # type: ignore[arg-type]
    ("kind", ValueError, lambda: shoal.design(kind="number")),
    ("clip", TypeError, lambda: shoal.design(low=0, high=1, clip="no")),  # type: ignore[arg-type]
    ("lower_bounds", ValueError, lambda: shoal.design(["a", "b"], lower_bounds=[2, 1])),
    ("mechanism", ValueError, lambda: shoal.design(mechanism="laplce")),
    ("mechanism", ValueError, lambda: shoal.design(["a", "b"], mechanism="kmean")),
    ("setting", ValueError, lambda: shoal.design(["a", "b"], mechanism="unary", setting="x")),
    ("epsilon0", ValueError, lambda: shoal.design(epsilon0=0)),
    ("epsilon0", TypeError, lambda: shoal.design(epsilon0="1")),  # type: ignore[arg-type]
    ("epsilon0", ValueError, lambda: shoal.design(epsilon0=float("nan"))),
    ("values", TypeError, lambda: shoal.design().randomize("yes")),
    ("values", TypeError, lambda: shoal.design().randomize(3)),  # type: ignore[arg-type]
    ("values", TypeError, lambda: shoal.design().randomize({"a": True})),
    ("values", TypeError, lambda: shoal.design().randomize(pd.DataFrame({"a": [True]}))),
    ("values", TypeError, lambda: shoal.design().randomize(pl.DataFrame({"a": [True]}))),
    ("values", TypeError, lambda: shoal.design().randomize(np.zeros((2, 2)))),
    ("values", TypeError, lambda: shoal.design().randomize([[True]])),
    ("values", TypeError, lambda: shoal.design().randomize(pd.Series(pd.to_datetime(["2026"])))),
    ("values", ValueError, lambda: shoal.design().randomize([])),
    ("values", ValueError, lambda: shoal.design().randomize(["maybe"])),
    ("values", ValueError, lambda: shoal.design(["a", "b"]).randomize(["a", "A"])),
    ("values", ValueError, lambda: shoal.design(low=0, high=1).randomize([0.5, "a lot"])),
    ("values", ValueError, lambda: shoal.design(low=0, high=1).randomize([0.5, float("inf")])),
    ("unknown", ValueError, lambda: shoal.design().randomize([True], unknown="no answer")),
    ("simulation_seed", TypeError, lambda: shoal.design().randomize([True], simulation_seed=0.5)),  # type: ignore[arg-type]
    ("reports", TypeError, lambda: shoal.design().estimate([1, 2])),  # type: ignore[arg-type]
    ("n", ValueError, lambda: shoal.design().certify(0)),
    ("n", TypeError, lambda: shoal.design().certify("1000")),  # type: ignore[arg-type]
    ("delta", ValueError, lambda: shoal.design().certify(10, delta=1)),
    ("honest_fraction", ValueError, lambda: shoal.design().certify(10, honest_fraction=0)),
    ("honest_fraction", ValueError, lambda: shoal.design().certify(10, honest_fraction=1.1)),
    ("epsilon", ValueError, lambda: shoal.plan(n=1000)),
    ("error", ValueError, lambda: shoal.plan(n=1000, error=-1)),
    ("n", ValueError, lambda: shoal.plan(n=1, epsilon=1)),
    ("min_batch", ValueError, lambda: shoal.plan(n=10, epsilon=1, min_batch=11)),
    ("want", ValueError, lambda: shoal.plan(["a", "b"], n=10, epsilon=1, want="mean")),
    ("shares", ValueError, lambda: shoal.plan(["a", "b"], n=10, epsilon=1, shares=[0.5])),
    ("mechanisms", ValueError, lambda: shoal.plan(n=10, epsilon=1, mechanisms=["laplce"])),
    ("kind", ValueError, lambda: shoal.plan(["a", "b"], kind="words", n=10, epsilon=1)),
]


@for_each("argument, python, wrong", WRONG)
def test_what_is_wrong_is_named(argument: str, python: type[Exception], wrong: Any) -> None:
    """One line that begins with the argument's name, in the error tree and in Python's. Planted:
    an unknown answer counted as missing without being asked -> fails.
    """
    with pytest.raises(python) as refused:
        wrong()
    error = refused.value
    assert isinstance(error, ShoalError)
    assert error.kind in {Kind.CONFIG, Kind.INVALID}
    assert str(error).split(":")[0] == argument, str(error)
    assert "\n" not in str(error)
    assert "maybe" not in str(error)  # a value of the data is never shown


def test_what_is_looked_up_and_not_there_is_a_key_error() -> None:
    """That is ours too, and lists what there is. Planted: a bare KeyError -> fails."""
    yes = shoal.design(epsilon0=4)
    estimates = yes.estimate(yes.randomize([True, False]))
    for wrong in (lambda: estimates.row("maybe"), lambda: estimates["values"]):
        with pytest.raises(KeyError) as refused:
            wrong()
        assert isinstance(refused.value, ShoalError)
        assert str(refused.value).startswith(("label: give one of no, yes", "column: give one of "))


def test_a_plan_for_several_windows_says_both_epsilons() -> None:
    """That of one window, and what was asked of all together. Planted: the second left out ->
    fails.
    """
    planned = shoal.plan(n=1_000, epsilon=1, windows=10, mechanisms=["binary_rr"])
    assert planned.promise.epsilon < 1
    assert "for each of 10 windows, <= 1 for all together" in planned.headline


def test_a_plan_that_a_guess_beats_says_so() -> None:
    """A small epsilon alone is nothing to warn of. Planted: the warning for every small epsilon ->
    fails.
    """
    few = shoal.plan(n=100, epsilon=0.001, mechanisms=["binary_rr"])
    many = shoal.plan(n=1_000_000, epsilon=0.001, mechanisms=["binary_rr"])
    assert (few.useless, many.useless) == (True, False)
    assert "guess" in repr(few)
    assert "guess" not in many.headline


def test_unknown_answers_may_be_missing_ones() -> None:
    sport = shoal.design(["never", "weekly"], epsilon0=8)
    reports = sport.randomize(["never", "sometimes"] * 500, unknown="missing", simulation_seed=1)
    assert sport.estimate(reports).row("no answer").value > 400


def test_without_data_frame_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: ``to_frame`` without its last line, so that pandas is a must -> fails."""
    for name in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    yes = shoal.design(epsilon0=4)
    estimates = yes.estimate(yes.randomize([True, False] * 50))
    assert estimates.to_frame() is estimates
    assert [row["label"] for row in estimates] == ["no", "yes"]
    for way in (estimates.to_pandas, estimates.to_polars, estimates.to_arrow):
        with pytest.raises(ShoalError, match="pip install"):
            way()
