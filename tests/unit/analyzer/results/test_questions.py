"""What the versions of a question gave away together."""

from __future__ import annotations

import math

from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.analyzer.results.questions import ALL, UNKNOWN, spent_by_question
from shoal.ids import TaskId

FIRST, SECOND, OTHER = (TaskId(bytes([number]) * 32) for number in (1, 2, 3))
NAMES = {FIRST: "visits", SECOND: "visits", OTHER: "weights"}


def test_versions_of_a_question_compose_and_questions_stand_alone() -> None:
    """Planted: rows by task instead of by name -> the versions stand apart, fails. Planted: the
    largest of two versions for their sum -> fails.
    """
    spendings = [Spending(FIRST, 0.5, 1e-8)] * 2 + [Spending(SECOND, 0.25, 1e-8)]
    spendings += [Spending(OTHER, 1.0, 1e-6)]
    rows = spent_by_question(spendings, NAMES)
    assert [(row["question"], row["versions"], row["windows"]) for row in rows] == [
        ("visits", 2, 3),
        ("weights", 1, 1),
        (ALL, 3, 4),
    ]
    visits, weights, together = (row["epsilon_upper"] for row in rows)
    assert visits == compose_spendings(spendings[:3]).epsilon_upper
    assert 1.0 < visits <= 1.25
    assert weights == 1.0
    assert visits < together <= 2.25
    assert spent_by_question([], NAMES) == []


def test_what_nobody_knows_takes_the_promise_of_all_away_and_of_no_question() -> None:
    lost = Spending(TaskId(bytes(32)), math.inf, 0.0)
    rows = spent_by_question([Spending(OTHER, 1.0, 1e-6), lost], NAMES)
    assert [(row["question"], row["epsilon_upper"]) for row in rows] == [
        (UNKNOWN, None),
        ("weights", 1.0),
        (ALL, None),
    ]
