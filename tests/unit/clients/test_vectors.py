"""A vector on its way from an owner to the randomizer: as text, by the rules, or refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.clients.owner.rules import Rule
from shoal.clients.vectors import quantized, settle_vector
from shoal.domain import NO_ANSWER, Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.vectors.registry import create, design
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, TASK

DOMAIN = Vector(3, Norm.L2, 2.0, 1 << 20)
SPEC = design("privunit", DOMAIN, 1.0)
VECTOR_TASK = replace(TASK, domain=DOMAIN, mechanism=SPEC, report_size=18)
WRONG: tuple[Any, ...] = (
    [1.0, 2.0],
    [1.0, 2.0, 3.0, 4.0],
    [1.0, 2.0, math.nan],
    [1.0, 2.0, math.inf],
    ["a", "b", "c"],
    [[1.0, 2.0, 3.0]],
    "[1, 2",
    "flu",
    5.0,
    True,
    {"x": 1.0},
)


def settled(value: Any, rules: tuple[Rule, ...] = (), otherwise: str | None = None) -> Any:
    return settle_vector(rules, VECTOR_TASK, DOMAIN, value, otherwise)


@for_each("value", [[1, -2.5, 0.1], (1, -2.5, 0.1), "[1, -2.5, 0.1]", np.array([1, -2.5, 0.1])])
def test_a_vector_is_kept_as_its_text_exactly(value: Any) -> None:
    """Planted: six digits kept -> fails."""
    text = settled(value)
    assert json.loads(text) == [1.0, -2.5, 0.1]
    assert settled(text) == text


@for_each("value", WRONG)
def test_what_is_no_vector_is_refused_where_typed_and_missing_where_read(value: Any) -> None:
    """No message quotes the value. Planted: ``otherwise`` not looked at -> fails."""
    with pytest.raises(ShoalError) as caught:
        settled(value)
    assert caught.value.kind is Kind.INVALID
    assert "flu" not in caught.value.message
    assert settled(value, otherwise=NO_ANSWER) is None


def test_rules_and_missing_vectors_leave_none() -> None:
    """A rule for the task, whatever it says, sends zeros. Planted: rules passed by -> fails."""
    assert settled(None) is None
    assert settled("null") is None
    rule = Rule(purpose=VECTOR_TASK.purpose, redact=("x",))
    assert settled([1.0, 0.0, 0.0], (rule,)) is None
    other = Rule(purpose="another", redact=("x",))
    assert settled([1.0, 0.0, 0.0], (other,)) is not None


def test_vectors_are_quantized_in_clips() -> None:
    """Zeros for none; what is longer than the clip becomes as long, and no longer than the grid by
    more than rounding. Planted: no clip -> fails.
    """
    entropy = SeededEntropy("quantized")
    assert not quantized(DOMAIN, None, entropy).any()
    assert quantized(DOMAIN, "[1, 0, -2e-7]", entropy).tolist()[:2] == [1 << 19, 0]
    long = quantized(DOMAIN, "[30, 40, 0]", entropy).tolist()
    assert long == pytest.approx([0.6 * (1 << 20), 0.8 * (1 << 20), 0], abs=1.01)


def test_tasks_ask_for_vectors_by_a_mechanism_of_vectors_alone() -> None:
    """Planted: any of the refusals left out of ``Task`` -> its case fails."""
    assert isinstance(VECTOR_TASK, Task)
    create(SPEC, DOMAIN)
    for wrong in (
        {"mechanism": MechanismSpec.of("krr", k=3, uniform=1 << 62)},
        {"memoized": True},
        {"domain": TASK.domain},
        {"pairwise": PAIRWISE.pairwise},
    ):
        with pytest.raises(ShoalError) as caught:
            replace(VECTOR_TASK, **wrong)
        assert caught.value.kind is Kind.INVALID, wrong
