"""Sums are held against what was masked; what is shown of the rounds is true."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from shoal.analyzer.rounds.sums import StoredSum
from shoal.cli.demo.federated import show
from shoal.cli.demo.federated.asked import Learner
from shoal.cli.demo.federated.beside import CentralAccuracy
from shoal.cli.demo.federated.outcome import (
    Course,
    LearningBeside,
    LearntRound,
    check_exact,
    made_of,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.questions.learning import LearningPlan
from shoal.questions.models import Logistic

ROUND = Digest(bytes(32))
CENTRAL = CentralAccuracy((0.9, 0.95), 0.95, 0.91, 0.97, 200)


def learners(*integers: int) -> list[Learner]:
    made = [
        SimpleNamespace(masked={3: np.array([value, 1], dtype=np.int64)}, summed={3: ROUND})
        for value in integers
    ]
    return cast("list[Learner]", made)


def stored(*vector: int, survivors: int) -> StoredSum:
    return StoredSum(ROUND, survivors, np.array(vector, dtype=np.int64))


def test_a_sum_is_that_of_its_devices_to_the_last_bit() -> None:
    """Planted: no comparison, or only of the number of devices -> fails."""
    check_exact(stored(12, 3, survivors=3), 3, learners(3, 4, 5))
    for wrong in (stored(13, 3, survivors=3), stored(12, 3, survivors=2)):
        with pytest.raises(ShoalError, match="is not that of its") as raised:
            check_exact(wrong, 3, learners(3, 4, 5))
        assert raised.value.kind is Kind.INTERNAL
    with pytest.raises(ShoalError):  # of another window
        check_exact(stored(12, 3, survivors=3), 2, learners(3, 4, 5))


def course(*rounds: LearntRound) -> Course:
    asked: Any = SimpleNamespace(
        plan=LearningPlan(Logistic(2), 2, 1.0, 0.5),
        task=SimpleNamespace(name="learning", question="how?", windows=None),
    )
    made = Course(asked, LearningBeside(CENTRAL, 0.97))
    made.rounds.extend(rounds)
    return made


def learnt(withheld: str | None = None, **changes: float) -> LearntRound:
    figures = {"epsilon": 0.83, "so_far": 1.25, "clip": 0.5, "accuracy": 0.93, **changes}
    return LearntRound({"n": 455, "withheld": withheld}, **figures)


def said(call: Any, *arguments: Any) -> str:
    screen = Console(file=io.StringIO(), width=200)
    call(screen, *arguments)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_a_row_for_each_round() -> None:
    """Planted: the curator's accuracy after the last round in every row -> fails."""
    text = said(show.row, course(learnt()))
    assert text.split() == ["1", "455", "0.5", "0.83", "1.25", "93.0%", "90.0%"]
    assert len(said(show.head).strip().split()) == 8


def test_a_withheld_round_is_said_to_be_charged() -> None:
    """Planted: a row of figures as if there were a sum -> fails."""
    text = said(show.row, course(learnt(), learnt("too few survivors")))
    assert "2   withheld: too few survivors; charged all the same" in text


def test_the_end_says_all_three_and_the_promise() -> None:
    """In lines of at most 80 columns, but for paths. Planted: the sum of epsilons as the promise ->
    fails.
    """
    results = {
        "accuracy": {
            "federated": 0.939,
            "central": 0.945,
            "central_low": 0.91,
            "central_high": 0.97,
            "central_runs": 200,
            "open": 0.97,
        },
        "composed": {"epsilon_upper": 2.0, "delta": 1e-5, "tasks": 1, "windows": 6},
        "rounds": [{"epsilon": 0.83}] * 6,
        "devices": 455,
        "held_out": 114,
    }
    text = said(show.ending, results, 271.0, Path("out"), None)
    for words in ("93.9%", "94.5%", "91.0% to 97.0%", "97.0%", "epsilon <= 2 at", "say 5.0."):
        assert words in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.split("Page:")[0].splitlines())


def test_another_model_stands_beside_logistic_regression() -> None:
    """Planted: the line left out -> fails; there for a logistic regression too -> the test above
    has no such figure, and fails.
    """
    told = {"federated": 0.93, "central": 0.946, "central_low": 0.93, "central_high": 0.97}
    results = {
        "accuracy": {**told, "central_runs": 50, "open": 0.974, "central_logistic": 0.934},
        "composed": {"epsilon_upper": 2.0, "delta": 1e-5, "tasks": 1, "windows": 6},
        "rounds": [{"epsilon": 0.83}] * 6,
        "devices": 455,
        "held_out": 114,
    }
    text = " ".join(said(show.ending, results, 271.0, Path("out"), None).split())
    assert "93.4% logistic regression by such a curator 97.4% without privacy" in text


def test_no_sum_at_all_is_no_success() -> None:
    """Planted: results without any sum -> exit status 0, fails."""
    site: Any = None
    with pytest.raises(ShoalError, match="no sum came about") as raised:
        made_of(site, course(learnt("no round"), learnt("no round")), 60, 114)
    assert raised.value.kind is Kind.ABORTED
