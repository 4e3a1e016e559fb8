"""What a device would answer to a model, for its owner: at the model that follows from releases."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.clients.rounds.trial import OwnerRow, model_so_far, row_names, try_answer
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.registry import create_noise
from shoal.questions.learning import LearningPlan, begin_learning
from shoal.questions.models import Logistic
from shoal.questions.network import Network
from tests.cases import for_each
from tests.worlds.devices.clients import World
from tests.worlds.learning import NAMES, PLAN, learning_world, release_file

TOTALS = (9.0, -4.5, 1.8)  # of 90 devices


@pytest.fixture(scope="module")
def world() -> World:
    return learning_world()


def refused(world: World, *paths: Path) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        model_so_far(world.task, world.task_id, paths)
    assert "\n" not in caught.value.message
    return caught.value


def test_it_is_the_gradient_at_the_first_model(world: World) -> None:
    """At weights 0 a row x that says yes has gradient -x / 2, -1 / 2: here -0.3, 0.1, -0.5, of
    length sqrt(0.35), which is shortened to 1 by the division; and one draw with noise lies within
    10 standard deviations: a false alarm in fewer than one of 10^20 runs. Planted: the gradient
    before the clip shown as the vector -> fails.
    """
    state = model_so_far(world.task, world.task_id, [])
    row = OwnerRow.read('{"row": [0.6, -0.2], "yes": true}')
    found = try_answer(world.task, state, row, SeededEntropy("trial"))
    length = math.sqrt(0.35)
    assert (found.window, found.clip, found.shortened) == (0, 0.5, True)
    assert found.length == pytest.approx(length)
    assert found.vector == pytest.approx(np.array([-0.3, 0.1, -0.5]) / length)
    assert found.example is not None
    off = np.abs(found.example - found.vector)
    assert 0.0 < off.max() < 10 * found.own_noise + 0.01
    assert world.task.pairwise is not None
    honest = world.task.pairwise.honest_survivors(world.task.honest_fraction_ppm)
    share = create_noise(world.task.mechanism).variance
    domain = world.task.domain
    step = domain.clip / domain.grid  # type: ignore[union-attr]
    assert found.own_noise == pytest.approx(step * math.sqrt(share))
    assert found.all_noise == pytest.approx(found.own_noise * math.sqrt(honest))


def test_a_later_round_is_asked_at_the_model_of_the_releases(world: World, tmp_path: Path) -> None:
    """Files in any order, and a folder in which there are others' releases. weights = -step x clip
    x mean. Planted: files followed as they come -> refused, fails; the second left out -> fails.
    """
    files = [release_file(world, tmp_path / f"{at}.json", at, TOTALS) for at in (1, 0)]
    release_file(world, tmp_path / "another.json", 2, TOTALS, task_id=bytes(32))
    for paths in (files, [tmp_path], [tmp_path, *files]):
        state = model_so_far(world.task, world.task_id, paths)
        assert state.done == 2
        assert state.weights == pytest.approx(-2 * 8.0 * 0.5 * np.array(TOTALS) / 90)
    found = try_answer(world.task, state, OwnerRow(np.ones(2), yes=False), SeededEntropy("r"))
    assert found.window == 2


def test_what_gives_no_model(world: World, tmp_path: Path) -> None:
    """A gap, another's release that was named, one that is not signed, two of one window, no
    release, no file. Planted: the second of two releases taken -> fails.
    """
    second = release_file(world, tmp_path / "1.json", 1, TOTALS)
    assert "window 0 comes next" in refused(world, second).message
    other = release_file(world, tmp_path / "o.json", 0, TOTALS, task_id=bytes(32))
    assert refused(world, other).kind is Kind.MISMATCH
    first = release_file(world, tmp_path / "0.json", 0, TOTALS)
    forged = json.loads(first.read_text())
    forged["signed"]["release_signature"] = "AAAA"
    (tmp_path / "f.json").write_text(json.dumps(forged))
    assert refused(world, tmp_path / "f.json").kind is Kind.BAD_SIGNATURE
    again = release_file(world, tmp_path / "again.json", 0, (1.0, 2.0, 3.0))
    error = refused(world, first, again)
    assert (error.kind, "another release of window 0" in error.message) == (Kind.MISMATCH, True)
    (tmp_path / "none.json").write_text("{}")
    assert "none.json: this is no release file" in refused(world, tmp_path / "none.json").message
    assert "cannot read" in refused(world, tmp_path / "lacking.json").message


def test_after_the_last_round_nothing_is_asked(world: World, tmp_path: Path) -> None:
    for at in range(PLAN.rounds):
        release_file(world, tmp_path / f"{at}.json", at, TOTALS)
    state = model_so_far(world.task, world.task_id, [tmp_path])
    with pytest.raises(ShoalError, match="all 4 rounds are over"):
        try_answer(world.task, state, OwnerRow(np.ones(2), yes=True), SeededEntropy("r"))


@for_each(
    "text",
    [
        "", "[1, 2, true]", '{"row": [1, 2]}', '{"row": [1, 2], "yes": 1}',
        '{"row": 3, "yes": true}', '{"row": [1, "2"], "yes": true}',
        '{"row": [true, 2], "yes": true}', '{"row": [1, 2], "yes": true, "no": false}',
        '{"row": [[1, 2]], "yes": true}', "[" * 100_000,
        '{"row": [1' + "0" * 400 + '], "yes": true}',
    ],
)  # fmt: skip
def test_what_is_no_row(text: str) -> None:
    """Refused without a word of it. Planted: the text quoted -> fails."""
    with pytest.raises(ShoalError) as caught:
        OwnerRow.read(text)
    assert caught.value.kind is Kind.INVALID
    assert "100" not in caught.value.message


def test_a_row_of_another_size_or_with_rubbish_is_refused(world: World) -> None:
    state = model_so_far(world.task, world.task_id, [])
    for numbers in ([1.0], [1.0, 2.0, 3.0], [math.nan, 1.0], [1e12, 0.0]):
        with pytest.raises(ShoalError) as caught:
            try_answer(world.task, state, OwnerRow(np.array(numbers), yes=True), SeededEntropy("r"))
        assert caught.value.kind is Kind.INVALID


def test_what_is_sent_is_in_memory_once(world: World) -> None:
    """2^17 numbers, as ``--send`` has them: no draw, and the gradient is gone when the vector is
    made. Planted: the gradient kept for its length -> fails.
    """
    plan = LearningPlan(Logistic((1 << 17) - 1), 4, 8.0, 0.5)
    task, state = learning_world(plan, names=()).task, begin_learning(plan)
    row = OwnerRow(np.linspace(-1.0, 1.0, plan.model.features), yes=True)
    try_answer(task, state, row, None)  # what is made once, of the noise
    tracemalloc.start()
    try:
        found = try_answer(task, state, row, None)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.example is None
    assert most <= 1.2 * 8 * plan.dimension


def test_the_numbers_of_a_row_are_named(world: World) -> None:
    """Of a network too. Planted: the weights' names given -> "hidden 1: age", fails."""
    network = replace(PLAN, model=Network(2, 3, 1))
    for one, plan in ((world, PLAN), (learning_world(network), network)):
        assert row_names(one.task, plan) == NAMES
    assert row_names(learning_world(names=()).task, PLAN) == ()


def test_nothing_of_a_row_is_told_by_its_repr(world: World) -> None:
    row = OwnerRow(np.array([0.625, 0.5]), yes=True)
    found = try_answer(
        world.task, model_so_far(world.task, world.task_id, []), row, SeededEntropy("r")
    )
    for shown in (repr(row), repr(found)):
        assert "." not in shown
    assert world.task.domain.labels == (*NAMES, "intercept")
