"""What the table of bounds judges, and what it counts against a certificate."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import bounds
from benchmarks.bench import Bench, Scale
from benchmarks.bounds import Case
from shoal.accounting import certify
from shoal.accounting.reference.published import published


def case(
    upper: float,
    lower: float,
    best: float,
    *,
    n: int = 1000,
    epsilon0: float = 2.0,
    law: str = "binary",
) -> Case:
    return Case(law, epsilon0, n, 1e-8, upper, lower, best, "clones")


def test_what_is_judged() -> None:
    """Planted: n > 1000, or judged against lower -> fails."""
    assert case(1.8, 1.7, 2.0).judged
    assert not case(1.81, 1.7, 2.0).judged
    assert not case(1.0, 0.9, 2.0, n=999).judged
    assert not case(1.0, 0.0, 2.0).judged  # nothing refuted: no ratio to judge
    assert case(1.8, 1.5, 2.0).ratio == pytest.approx(1.2)
    assert case(0.0, 0.0, 0.0).ratio == 1.0
    assert math.isinf(case(1.0, 0.0, 2.0).ratio)
    assert case(1.0, 0.9, 1.5).gain == pytest.approx(1.5)


def test_what_is_a_violation() -> None:
    """Above the published by more than two searches may differ. Planted: the comparison turned
    round -> fails.
    """
    assert case(1.001, 1.0, 1.0).violates
    assert not case(1.0 + 1e-9, 1.0, 1.0).violates
    assert not case(0.9, 0.9, 1.0).violates


def test_a_case_is_measured_with_the_accountant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a violation reaches the figure and the notes. Planted: unsound published values among
    those compared -> fails for 3 cells.
    """
    found = bounds.measure("krr, 3 cells", 3.0, 300, 1e-6)
    law = bounds.law_of("krr, 3 cells", 3.0)
    certificate = certify(law, 300, 1e-6)
    assert (found.upper, found.lower) == (certificate.epsilon_upper, certificate.epsilon_lower)
    assert found.best == min(
        bound.epsilon
        for bound in published(law, 300, 1e-6)
        if bound.applies and bound.epsilon is not None
    )
    assert not found.violates
    monkeypatch.setattr(bounds, "measure", lambda law, *_: case(1.5, 1.0, 1.2, law=law))
    bench = Bench(Scale.TINY, tmp_path)
    try:
        outcome = bounds.run(bench)
    finally:
        bench.close()
    assert outcome.figures[-1].values == (2.0,)
    assert outcome.figures[-1].met is False
    assert sum(note.startswith("above the published") for note in outcome.notes) == 2
    widest = next(
        figure for figure in outcome.figures if "binary" in figure.what and "widest" in figure.what
    )
    assert widest.met is False
