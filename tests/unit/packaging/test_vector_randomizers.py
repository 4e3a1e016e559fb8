"""The tables of docs/MECHANISMS.md about vectors of one device, and what they rest on."""

from __future__ import annotations

import math
from runpy import run_path
from types import SimpleNamespace

import pytest

from tests.worlds.modules import ROOT

tool = SimpleNamespace(**run_path(str(ROOT / "tools" / "vector_randomizers.py")))


def test_the_tables_are_up_to_date() -> None:
    """Planted: another delta -> fails."""
    assert tool.tables() in tool.PAGE.read_text()


def test_the_best_threshold_at_small_epsilon0() -> None:
    """p - q is near epsilon0 q (1 - q), so that m is epsilon0 phi(0) at most: the threshold 0."""
    small = 1e-3
    assert tool.best_threshold(small) * small == pytest.approx(math.sqrt(2.0 * math.pi), rel=2e-3)


def test_one_coordinate_is_drawn_and_counts_d_times() -> None:
    """At a large epsilon0 only the draw errs: 1 - 1 / d of a vector of length 1."""
    assert tool.one_coordinate(10, 30.0) == pytest.approx(math.sqrt(0.9), rel=1e-6)
