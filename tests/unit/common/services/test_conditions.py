"""The one list of what is wrong: what is set stays until it is cleared, sources are asked at every
look.
"""

from __future__ import annotations

import pytest

from shoal.services.conditions import CODES, Condition, Conditions


def test_set_and_clear() -> None:
    """Planted: ``clear`` by code alone takes another subject's condition away -> this fails."""
    conditions = Conditions()
    assert (conditions.current(), conditions.ready()) == ((), None)
    first = Condition("damage", "batch-1.rows", "batch-1.rows is damaged: restore it")
    second = Condition("damage", "batch-2.rows", "batch-2.rows is damaged: restore it")
    for one in (second, first, first):
        conditions.set(one)
    assert conditions.current() == (first, second)
    conditions.clear("damage", "batch-1.rows")
    conditions.clear("damage", "never set")
    assert conditions.current() == (second,)
    assert conditions.ready() == second.message


def test_sources_are_asked_at_every_look() -> None:
    """Planted: a source asked once and remembered -> this fails."""
    conditions, found = Conditions(), list[Condition]()
    conditions.watch(lambda: found)
    assert conditions.ready() is None
    found.append(Condition("analyzer", "", "the analyzer does not answer"))
    assert conditions.ready() == "the analyzer does not answer"
    found.clear()
    assert conditions.ready() is None


def test_what_stops_comes_first_and_only_that_stops() -> None:
    """Planted: ready() takes the first condition whatever it does -> this fails."""
    conditions = Conditions()
    conditions.set(Condition("broker", "", "the broker is away", stops=False))
    assert conditions.ready() is None
    conditions.set(Condition("task", "", "no task is served"))
    assert [one.code for one in conditions.current()] == ["task", "broker"]
    assert conditions.ready() == "no task is served"


def test_every_code_is_counted() -> None:
    """An alarm is set on what is 0 now. Planted: codes that are not there left out -> this
    fails.
    """
    conditions = Conditions()
    conditions.set(Condition("key", "a", "gone"))
    conditions.set(Condition("key", "b", "gone"))
    counts = {(code, stops): count for code, stops, count in conditions.counts()}
    assert counts.keys() == {(code, stops) for code in CODES for stops in (True, False)}
    assert counts["key", True] == 2
    assert sum(counts.values()) == 2


@pytest.mark.parametrize(
    ("code", "message"), [("unheard", "x"), ("clock", ""), ("clock", "two\nlines")]
)
def test_a_condition_is_one_line_of_a_known_code(code: str, message: str) -> None:
    with pytest.raises(ValueError):
        Condition(code, "", message)
