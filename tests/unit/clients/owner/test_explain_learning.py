"""What an owner reads about a task that learns a model: what leaves, and what all rounds cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.accounting.meaning import bound_text
from shoal.accounting.sums.windows import epsilon_of_task, epsilon_of_windows
from shoal.clients.owner.explain import explain
from shoal.clients.owner.explain_learning import learning_lines
from shoal.domain import Vector
from shoal.mechanisms.quantize import bounds
from shoal.questions.learning import ClipRule
from shoal.questions.network import Network
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.devices.explained import assignment_of, config_of, small_world, text_of
from tests.worlds.learning import DELTA, PLAN, learning_world


@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
def test_all_facts_of_a_model(mode: Mode) -> None:
    """The plan's words, what leaves, each round's composed epsilon, what is left if both services
    work together. Planted: epsilons added up -> fails; all honest
    noise in place of the device's own -> fails; the default mode's words in strict mode ->
    fails.
    """
    world = learning_world(mode=mode)
    one = assignment_of(world)
    text = text_of(explain(one, config_of(world)))
    by_round = [epsilon_of_task(world.task, at, DELTA) for at in (1, 2, 3, 4)]
    assert by_round == sorted(by_round)
    assert by_round[-1] <= 2.0 < 4 * by_round[0]
    shown = ", ".join(f"{bound_text(each)} of {at}" for at, each in enumerate(by_round, 1))
    for fact in (
        f"a round in each window: {PLAN.words}",
        "3 numbers, masked: the gradient of its row's error",
        "longer than the clip (0.5), divided by that",
        f"in each, at delta = 1e-06: epsilon <= {shown}.",
        f"all 4 windows together: epsilon <= {bound_text(by_round[-1])} at delta = 1e-06",
        "shoal agent learn model",
    ):
        assert fact in text
    assert ("the same holds of all rounds" in text) == (mode is Mode.STRICT)
    assert ("a gradient can tell its row" in text) == (mode is Mode.DEFAULT)
    if mode is Mode.DEFAULT:
        domain = world.task.domain
        assert isinstance(domain, Vector)
        alone = epsilon_of_windows(
            world.task.mechanism, bounds(domain), 3, honest=1, windows=4, delta=DELTA
        )
        assert one.epsilon0 < alone < 4 * one.epsilon0
        assert f"epsilon <= {bound_text(alone)} at delta = 1e-06 is left" in text


def test_a_clip_that_adapts_is_said() -> None:
    """Planted: the first round's clip said of all -> fails."""
    plan = replace(PLAN, rule=ClipRule(0.7, 0.25, 0.5))
    text = text_of(learning_lines(assignment_of(learning_world(plan))))
    assert "0.5 in the first round, then so that about 70% of the gradients are within it" in text
    assert "One more number says whether the gradient was within the clip" in text
    assert "4 numbers, masked" in text


def test_a_device_without_pytorch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network alone. Planted: said of every model -> fails."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    plan = replace(PLAN, model=Network(2, 3, 1))
    text = text_of(learning_lines(assignment_of(learning_world(plan))))
    assert "pip install 'shoal[network]'" in text
    assert "PyTorch" not in text_of(learning_lines(assignment_of(learning_world())))


def test_words_that_do_not_fit_their_task_are_said() -> None:
    """Another number of weights than the vector has. Planted: the words believed -> fails."""
    world = learning_world()
    domain = world.task.domain
    assert isinstance(domain, Vector)
    world.task = replace(world.task, domain=replace(domain, clip=2.0))
    world.sign()
    (line,) = learning_lines(assignment_of(world))
    assert "its numbers are not those of its words" in line


def test_of_another_task_there_is_nothing_to_say() -> None:
    assert learning_lines(assignment_of(small_world())) == []


def test_many_rounds_are_told_by_some() -> None:
    plan = replace(PLAN, rounds=40)
    text = text_of(learning_lines(assignment_of(learning_world(plan))))
    line = next(one for one in text.splitlines() if "first rounds" in one)
    assert line.count(" of ") <= 13
    assert line.endswith(" of 40.")
