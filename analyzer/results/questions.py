"""What the versions of a question gave away together: releases of one name, whatever their task."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.ids import TaskId

ALL = "all questions"
UNKNOWN = "damaged, or lost"


def spent_by_question(
    spendings: Sequence[Spending], names: Mapping[TaskId, str]
) -> list[dict[str, Any]]:
    """[{"question", "versions", "windows", "epsilon_upper", "delta"}], by name, and last all
    together. ``names``: of tasks. epsilon_upper None: nothing is promised.

    A version is a task of its own, and its releases compose with those of the versions before it
    as any two releases do: as if the same devices had answered all of them.
    """
    groups: dict[str, list[Spending]] = defaultdict(list)
    for spending in spendings:
        groups[names.get(spending.task_id, UNKNOWN)].append(spending)
    rows = [_row(name, groups[name]) for name in sorted(groups)]
    return [*rows, _row(ALL, spendings)] if rows else []


def _row(name: str, spendings: Sequence[Spending]) -> dict[str, Any]:
    together = compose_spendings(spendings)
    epsilon = together.epsilon_upper
    return {
        "question": name,
        "versions": len({spending.task_id for spending in spendings}),
        "windows": len(spendings),
        "epsilon_upper": epsilon if math.isfinite(epsilon) else None,
        "delta": together.delta,
    }
