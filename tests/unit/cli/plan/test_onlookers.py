"""Whom an epsilon does not hold against, as plans say it."""

from __future__ import annotations

import pytest

from shoal.cli.main import main
from shoal.cli.plan.onlookers import sizes_lines


def test_there_is_one_line_or_none() -> None:
    """Planted: no line at all, or one about nobody -> fails."""
    assert sizes_lines([]) == []
    (line,) = sizes_lines(["cancelling", "signed_count"])
    assert line.startswith("cancelling, signed_count: epsilon holds")


def test_a_plan_of_places_names_whom(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: dummies named too, or the line left out -> fails."""
    options = ("--box", "48,11.3,48.3,11.8", "--rows", "4", "--columns", "4", "--n", "10000")
    assert main(["places", "plan", *options]) == 0
    said = capsys.readouterr().out.splitlines()
    (line,) = [one for one in said if "but the shuffler" in one]
    assert line.startswith("cancelling: ")
