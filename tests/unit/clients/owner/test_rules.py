"""Rules for values: what they make of each type, that nothing raw slips through, and what they say
of themselves.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.clients.owner.rules import Rule, apply, describe, rules_from
from shoal.domain import Categories, Domain, Numeric, Value, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.devices.clients import VISITS, make_world

ILLNESS = Categories(("flu", "cold", "other"))
DEGREES = Numeric(0.0, 100.0, 101)


def task_of(domain: Domain) -> Task:
    return make_world(domain=domain, mechanism="krr").task


TASKS = {
    "visits": task_of(VISITS),
    "illness": task_of(ILLNESS),
    "degrees": task_of(DEGREES),
    "yes": task_of(YesNo()),
}


def follow(on: str, value: Value, **rule: Any) -> Value:
    return apply([Rule(task="visits", **rule)], TASKS[on], value)


@for_each(
    "on, rule, value, expected",
    [
        ("degrees", {"round_to": 10}, 37, 30),
        ("degrees", {"round_to": 10}, 37.9, 30),
        ("degrees", {"round_to": 10}, "37.9", 30),
        ("degrees", {"round_to": 10}, -1, -10),
        (
            "degrees",
            {"round_to": 0.1},
            0.3,
            0.3,
        ),  # in decimals: as binary numbers 0.3 is below three times 0.1
        ("degrees", {"round_to": 0.25}, 1.74, 1.5),
        ("degrees", {"round_to": 1}, 10**30 + 0, 10**30),
        ("degrees", {"round_to": 7}, (1 << 60) + 5, ((1 << 60) + 5) // 7 * 7),
        ("degrees", {"round_to": 1e308}, -1.7e308, -2 * 10**308),
        ("degrees", {"at_least": 5}, 3, 5),
        ("degrees", {"at_most": 5}, 7.5, 5),
        ("degrees", {"at_most": 5, "round_to": 3}, 100, 5),
        ("degrees", {"at_least": 5, "round_to": 10}, 3, 5),
        ("degrees", {"redact_below": 5}, 4.999, None),
        ("degrees", {"redact_below": 5}, 5, 5),
        ("degrees", {"redact_above": 5}, 5, 5),
        ("degrees", {"redact_above": 5}, 5.001, None),
        (
            "degrees",
            {"redact_above": 5},
            "１５０",
            None,
        ),  # digits of another script are digits to the domain too
        (
            "degrees",
            {"redact_above": 50, "at_most": 40},
            60,
            None,
        ),  # redacted before anything is moved
        ("degrees", {"redact": (7,)}, 7.0, None),
        ("degrees", {"redact": (7,)}, " 7 ", None),
        ("degrees", {"redact": ("7",)}, 7, None),
        ("degrees", {"redact": (7,)}, 8, 8),
        ("degrees", {"redact": (1,)}, True, None),
        ("illness", {"redact": ("flu",)}, "flu", None),
        ("illness", {"redact": ("flu",)}, "Flu ", None),
        ("illness", {"redact": ("flu",)}, "cold", "cold"),
        ("illness", {"replace": {"flu": "other"}}, "flu", "other"),
        (
            "illness",
            {"replace": {"flu": "cold", "cold": "other"}},
            "flu",
            "cold",
        ),  # one step, not a chain
        ("illness", {"replace": {"flu": "other"}}, "cold", "cold"),
        ("illness", {"redact": ("flu",), "replace": {"flu": "other"}}, "flu", None),
        ("visits", {"redact": ("5-9",)}, 7, None),
        ("visits", {"redact": ("5-9",)}, "7", None),
        ("visits", {"redact": ("5-9",)}, 10, 10),
        ("visits", {"replace": {"10+": "5-9"}}, 12, 5),
        ("visits", {"round_to": 5}, 7, 5),
        ("yes", {"redact": ("yes",)}, True, None),
        ("yes", {"redact": ("yes",)}, 1, None),
        ("yes", {"redact": ("yes",)}, "TRUE", None),
        ("yes", {"redact": ("yes",)}, False, False),
        ("yes", {"redact": ("no",)}, 0.0, None),
        ("yes", {"replace": {"yes": "no"}}, True, "no"),
        ("yes", {"replace": {"no": "yes"}}, "rubbish", "rubbish"),  # unreadable is no "no"
    ],
)
def test_what_a_rule_makes_of_a_value(
    on: str, rule: dict[str, Any], value: Value, expected: Value
) -> None:
    """Planted: rounding in floats -> 0.3 becomes 0.2; clamping before redaction -> 60 becomes 40;
    labels not looked at -> 7 passes.
    """
    assert follow(on, value, **rule) == expected
    assert type(follow(on, value, **rule)) is type(expected)


@for_each(
    "rule",
    [{"round_to": 10}, {"at_least": 1}, {"at_most": 1}, {"redact_below": 1}, {"redact_above": 1}],
)
@for_each(
    "value",
    ["flu", "", "nan", "inf", "1e999", "0x10", True, False, math.nan, math.inf, -math.inf, None],
)
def test_a_rule_for_numbers_gives_no_answer_for_anything_else(
    rule: dict[str, Any], value: Value
) -> None:
    """The raw value never passes a rule that could not be followed. Planted: such values returned
    as they are -> fails.
    """
    for on in ("degrees", "illness", "visits"):
        assert follow(on, value, **rule) is None


def test_a_rule_for_texts_gives_no_answer_to_a_question_without_texts() -> None:
    assert follow("degrees", "flu", replace={"flu": "other"}) is None
    assert follow("degrees", 5, replace={"flu": "other"}) is None


def test_a_vector_that_a_rule_concerns_is_no_answer() -> None:
    """Planted: only values that fit are looked at, and others passed on -> the vector comes
    back.
    """
    rules = [Rule(task="visits", at_most=1)]
    for vector in ([1.0, 2.0], np.ones(3), (1, 2), {"a": 1}, b"x"):
        assert apply(rules, TASKS["visits"], vector) is None
        other = [Rule(task="another", at_most=1)]
        assert apply(other, TASKS["visits"], vector) is vector


def test_rules_are_chosen_by_task_or_purpose_and_run_in_order() -> None:
    """Planted: order reversed -> 30; the rule of another task or purpose applied -> fails."""
    task = TASKS["degrees"]
    rules = [
        Rule(task="another", redact=(37,)),
        Rule(purpose="To plan clinics", redact=(37,)),
        Rule(task=task.name, round_to=10),
        Rule(purpose=task.purpose, at_least=35),
    ]
    assert apply(rules, task, 37) == 35
    assert apply(rules[:2], task, 37) == 37
    assert apply([], task, "as it is") == "as it is"
    assert apply([*rules, Rule(task=task.name, redact=(35,))], task, 37) is None
    assert (
        apply([Rule(task=task.name, redact=(37,)), Rule(task=task.name, at_least=50)], task, 37)
        is None
    )


_numbers = (
    st.integers(-(10**20), 10**20)
    | st.floats(-1e9, 1e9)
    | st.decimals(-1000, 1000, places=3).map(float)
)
_steps = st.integers(1, 10**6) | st.sampled_from([0.1, 0.25, 0.5, 2.5, 1e-3])


@settings(max_examples=size(300, 10_000), deadline=None)
@given(_numbers, _steps)
@example(0.30000000000000004, 0.1)
def test_rounding_goes_down_to_a_multiple_in_exact_decimals(number: float, step: float) -> None:
    """Against fractions of the shortest decimals. Planted: round for floor -> fails."""
    left = follow("degrees", number, round_to=step)
    assert isinstance(left, int | float)
    exact, width = Fraction(repr(number)), Fraction(repr(step))
    multiple = exact // width * width
    assert left == (int(multiple) if multiple.denominator == 1 else float(multiple))
    assert multiple <= exact < multiple + width


_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["flu", "5-9", "yes", "7"])
)


@settings(max_examples=size(300, 10_000), deadline=None)
@given(st.sampled_from(sorted(TASKS)), _values, st.integers(-5, 120), st.integers(1, 20))
def test_a_redacted_range_is_never_reported(on: str, value: Value, above: int, step: int) -> None:
    """Whatever the value looks like: if the domain would read a number above the limit, the domain
    gets none. Planted: numbers read from text by ``str.isdigit`` -> "7.5" or "+7" passes.
    """
    domain = TASKS[on].domain
    left = follow(on, value, redact_above=above, round_to=step)
    if left is not None:
        assert isinstance(left, int | float)
        assert left <= above
    cell = domain.encode(left, SeededEntropy(1))
    assert 0 <= cell < domain.size


@for_each(
    "rule, key",
    [
        ({}, "task"),
        ({"task": "a", "purpose": "b", "at_most": 1}, "task"),
        ({"at_most": 1}, "task"),
        ({"task": "a"}, "redact: the rule does nothing"),
        ({"task": "a", "round_to": 0}, "round_to"),
        ({"task": "a", "round_to": -1}, "round_to"),
        ({"task": "a", "round_to": math.inf}, "round_to"),
        ({"task": "a", "round_to": math.nan}, "round_to"),
        ({"task": "a", "at_least": True}, "at_least"),
        ({"task": "a", "at_least": "1"}, "at_least"),
        ({"task": "a", "at_least": 2, "at_most": 1}, "at_most"),
        ({"task": "a", "redact": (True,)}, "redact"),
        ({"task": "a", "redact": ([],)}, "redact"),
        ({"task": "a", "redact": tuple(range(1_001))}, "redact"),
        ({"task": "a", "replace": {"x": 1}}, "replace"),
        ({"task": "a", "replace": {str(n): "x" for n in range(1_001)}}, "replace"),
    ],
)
def test_a_rule_validates_itself(rule: dict[str, Any], key: str) -> None:
    with pytest.raises(ShoalError) as caught:
        Rule(**rule)
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith(key)
    assert "\n" not in caught.value.message


def test_rules_of_a_file() -> None:
    tables = [
        {"task": "a", "round_to": 10},
        {"purpose": "b", "redact": ["x", 7, 1.5], "replace": {"u": "v"}},
    ]
    assert rules_from(tables) == (
        Rule(task="a", round_to=10),
        Rule(purpose="b", redact=("x", 7, 1.5), replace={"u": "v"}),
    )
    assert all(rule.fleet for rule in rules_from(tables, fleet=True))
    for bad, words in (
        (["x"], "rules: must be tables"),
        ([{"task": "a", "at_most": 1}] * 1_001, "rules: at most"),
        ([{"at_most": 1}], "rules[1].task"),
    ):
        with pytest.raises(ShoalError) as caught:
            rules_from(bad)
        assert caught.value.message.startswith(words)


@for_each("on", TASKS)
@for_each(
    "rule",
    [
        {"redact": (7, "flu")},
        {"replace": {"flu": "other"}},
        {"redact": (10**400,)},
        {"round_to": 7},
    ],
)
def test_no_value_makes_a_rule_fail(on: str, rule: dict[str, Any]) -> None:
    """A failure would be a device that stays away because of its value. Planted: str(value) for
    every integer -> ValueError.
    """
    for value in (
        10**5_000,
        -(10**5_000),
        10**400,
        "9" * 5_000,
        math.inf,
        math.nan,
        "\ud800",
        np.float64(0.3),
    ):
        TASKS[on].domain.encode(follow(on, value, **rule))
    assert follow("visits", 10**400, redact=(10**400,)) is None


def test_a_rule_says_what_it_does_in_the_order_in_which_it_does_it() -> None:
    rule = Rule(
        task="a",
        redact=("x", 7),
        redact_below=0,
        redact_above=99.5,
        replace={"u": "v"},
        round_to=10,
        at_least=1,
        at_most=50,
    )
    assert describe(rule) == (
        'task a: no answer for "x", 7, below 0, above 99.5; "u" becomes "v"; rounded down to a '
        "multiple of 10; at least 1; at most 50"
    )
    assert (
        describe(Rule(purpose="p", at_least=1, fleet=True))
        == 'purpose "p" (by the fleet): at least 1'
    )


def test_a_rule_cannot_be_changed_through_what_made_it() -> None:
    replace = {"flu": "other"}
    rule = Rule(task="visits", replace=replace)
    replace.clear()
    assert apply([rule], TASKS["illness"], "flu") == "other"
    assert hash(rule) == hash(Rule(task="visits", replace={"flu": "other"}))
