"""What is said of a task of several messages before anybody signs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.accounting.lint.task import lint
from shoal.limits import LIMITS
from tests.cases import for_each
from tests.unit.clients.test_several_tasks import several

TASK = several().task
ROOM = LIMITS.batch_rows // TASK.messages


@for_each(
    "changes, said",
    [
        ({}, None),
        ({"min_batch": 999}, "only 899 are sure to be honest"),
        ({"honest_fraction_ppm": 899_999}, "only 899 are sure to be honest"),
        ({"fewest_messages": 0}, "report_size, messages and fewest_messages"),
        ({"messages": TASK.messages + 1}, "report_size, messages and fewest_messages"),
        ({"memoized": True}, "can't be memoized"),
        ({"target_epsilon": 0.9}, "can't be met"),
        ({"max_batch": ROOM}, None),
        ({"max_batch": ROOM + 1}, f"room for {ROOM:,} reports"),
        ({"min_batch": ROOM + 1}, f"room for {ROOM:,} reports"),
    ],
)
def test_what_can_not_hold_is_an_error(changes: dict[str, Any], said: str | None) -> None:
    """Planted: a batch that no shuffler has room for -> its windows are refused to devices before
    they are full, and never released, fails.
    """
    found = lint(replace(TASK, **changes))
    assert [said in error for error in found.errors] == [True] if said else found.errors == ()
