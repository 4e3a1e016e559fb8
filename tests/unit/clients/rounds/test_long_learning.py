"""A device follows releases whose totals are an array: segment by segment, to the same model, and
no file that is not what was signed.
"""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import codec
from shoal.analyzer.results.totals import write_totals
from shoal.arrays import NDArray
from shoal.clients.rounds.agent import ready
from shoal.clients.rounds.followed import ModelInFolder
from shoal.clients.rounds.learning import answer, follow
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mechanisms.parts.sampling import BLOCK
from shoal.protos import release_pb2
from shoal.questions.learning import (
    ClipRule,
    LearningPlan,
    LearningState,
    after_parts,
    after_round,
    begin_learning,
)
from shoal.questions.models import Logistic
from shoal.questions.plan_words import check_learning
from shoal.storage.released_arrays import array_name
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, pairwise, window_plan

KEY, ID = SigningKey.generate(), TaskId(bytes(range(32)))
GRID, N = 1_000, 10


def plan_of(features: int, rule: ClipRule | None = None) -> LearningPlan:
    return LearningPlan(Logistic(features), rounds=3, step=2.0, clip=0.5, rule=rule)


def task_of(plan: LearningPlan) -> Task:
    rounds = replace(PAIRWISE.pairwise, segment_words=16)  # type: ignore[type-var]
    return pairwise(
        analyzer_key=KEY.public,
        domain=Vector(plan.dimension, Norm.L2, plan.bound, GRID),
        windows=window_plan(count=3),
        question=f"How must a model change? {plan.words}",
        pairwise=rounds,
        report_size=rounds.vector_bytes(plan.dimension),  # type: ignore[union-attr]
    )


def steps_of(plan: LearningPlan) -> NDArray[np.int64]:
    """Released totals, in grid steps."""
    return np.arange(plan.dimension, dtype=np.int64) % 4_001 - 1_990


def released(
    plan: LearningPlan, folder: Path, window: int = 0, **changes: Any
) -> release_pb2.SignedRelease:
    """As the analyzer signs and writes it; ``changes``: of what the release says of the array."""
    steps, size = steps_of(plan), LIMITS.array_segment
    told = write_totals(
        folder / array_name(ID, window),
        plan.dimension,
        (steps[at : at + size] for at in range(0, len(steps), size)),
        clip=plan.bound,
        grid=GRID,
        stderr=1.0,
        reach=2.0,
    )
    for name, value in changes.items():
        setattr(told, name, value)
    release = release_pb2.Release(
        version=codec.VERSION, task_id=ID.raw, window=window, n=N, array=told
    )
    data = release.SerializeToString()
    return release_pb2.SignedRelease(release=data, signature=KEY.sign(SigningContext.RELEASE, data))


def followed(
    plan: LearningPlan,
    signed: release_pb2.SignedRelease,
    folder: Path | None,
    state: LearningState | None = None,
) -> LearningState:
    start = state or begin_learning(plan)
    return follow(plan, task_of(plan), ID, start, signed.SerializeToString(), folder)


@for_each("rule", [None, ClipRule()])
def test_the_model_is_that_of_all_totals_at_once(rule: ClipRule | None, tmp_path: Path) -> None:
    """To the last bit, over three segments, the last of one number: with a rule that is the one
    that moves the clip. Two windows. Planted: the last segment left out -> INVALID; each segment
    put at the beginning -> fails.
    """
    plan = plan_of(2 * LIMITS.array_segment - (rule is not None), rule)
    assert plan.dimension == 2 * LIMITS.array_segment + 1
    check_learning(task_of(plan), plan)
    totals, state = steps_of(plan) * np.float64(plan.bound / GRID), begin_learning(plan)
    wanted = state
    for window in range(2):
        state = followed(plan, released(plan, tmp_path, window), tmp_path, state)
        wanted = after_round(plan, wanted, totals, N)
        assert (state.weights == wanted.weights).all()
        assert (state.clip, state.done) == (wanted.clip, wanted.done)
    assert (state.clip != plan.clip) == (rule is not None)


@for_each("sizes", [(3,), (1, 2), (2, 0, 1), (1, 1, 1)])
def test_parts_are_cut_anywhere(sizes: tuple[int, ...]) -> None:
    """Planted: the clip moved by the last number of the first part -> fails."""
    plan, totals = plan_of(1, ClipRule()), np.array([3.0, -1.0, 0.25])
    parts = np.split(totals, np.cumsum(sizes)[:-1])
    wanted = after_round(plan, begin_learning(plan), totals, N)
    found = after_parts(plan, begin_learning(plan), iter(parts), N)
    assert (found.weights == wanted.weights).all()
    assert found.clip == wanted.clip
    for wrong in ([], parts[:-1], [*parts, totals[:1]], [totals[:1], totals[1:] * np.nan]):
        with pytest.raises(ShoalError, match="3 finite totals"):
            after_parts(plan, begin_learning(plan), wrong, N)


def test_following_takes_one_more_vector_and_a_segment(tmp_path: Path) -> None:
    """The model after, beside the model before, of a million weights. Planted: the totals put
    together first -> another vector: fails.
    """
    plan = plan_of(1_000_000 - 1)
    signed = released(plan, tmp_path)
    state = begin_learning(plan)
    tracemalloc.start()
    try:
        followed(plan, signed, tmp_path, state)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= 8 * plan.dimension + 5 * 8 * LIMITS.array_segment


@for_each("rule", [None, ClipRule()])
def test_an_answer_takes_one_vector_and_its_noise_one_more(rule: ClipRule | None) -> None:
    """Of 2^20 numbers, beside the model and the row: the vector alone until it is rounded, and then
    its integers. So a device that put its model away holds two. Planted: the gradient and the
    vector in two arrays -> fails; the coordinate of the clip put behind it -> fails with a rule;
    the row's sizes in an array -> fails.
    """
    plan = plan_of((1 << 20) - 1 - (rule is not None), rule)
    task, state = task_of(plan), begin_learning(plan)
    row, size = np.linspace(-1.0, 1.0, plan.model.features), 8 * plan.dimension
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        vector = answer(plan, state, row, True)
        _, most = tracemalloc.get_traced_memory()
        assert most - before <= 1.02 * size
        ready(task, vector, SeededEntropy("long"))
        _, most = tracemalloc.get_traced_memory()
        assert most - before <= 2.0 * size + 24 * BLOCK * 8
    finally:
        tracemalloc.stop()


def test_an_array_that_was_not_signed_moves_nothing(tmp_path: Path) -> None:
    """A byte changed, a number cut off, no file, no folder, no array. The model is what it was, and
    follows once the file is whole again. Planted: numbers read without their hashes -> fails.
    """
    plan = plan_of(LIMITS.array_segment + 5)
    signed, state = released(plan, tmp_path), begin_learning(plan)
    path = tmp_path / array_name(ID, 0)
    whole = path.read_bytes()
    before = state.weights.copy()

    def refusal(folder: Path | None = tmp_path) -> str:
        with pytest.raises(ShoalError) as caught:
            followed(plan, signed, folder, state)
        assert caught.value.kind is Kind.MISMATCH
        assert "\n" not in caught.value.message
        assert (state.weights == before).all()
        return caught.value.message

    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert path.name in refusal()
    path.write_bytes(whole[:-8])
    assert path.name in refusal()
    path.unlink()
    assert path.name in refusal()
    assert "--format release" in refusal(None)
    path.write_bytes(whole)
    assert followed(plan, signed, tmp_path, state).done == 1
    bare = release_pb2.Release.FromString(signed.release)
    bare.ClearField("array")
    data = bare.SerializeToString()
    signed = release_pb2.SignedRelease(
        release=data, signature=KEY.sign(SigningContext.RELEASE, data)
    )
    assert "no array" in refusal()


@for_each(
    "changes",
    [
        {"length": 7},
        {"dtype": "<f8"},
        {"segment": 0},
        {"segment": LIMITS.array_segment + 1},
        {"segments": b""},
        {"clip": 2.0},
        {"grid": 2 * GRID},
    ],
)
def test_an_array_of_another_form_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    """Even if it was signed: an analyzer must not make a device read segments of any size, or
    numbers of another scale. Planted: any one not compared -> fails.
    """
    plan = plan_of(7)
    with pytest.raises(ShoalError, match="another length, clip or grid") as caught:
        followed(plan, released(plan, tmp_path, **changes), tmp_path)
    assert caught.value.kind is Kind.MISMATCH


def handed(folder: Path, window: int, signed: release_pb2.SignedRelease) -> None:
    parts = {"release": signed.release, "release_signature": signed.signature}
    text = {name: base64.b64encode(part).decode() for name, part in parts.items()}
    (folder / f"{window}.json").write_text(json.dumps({"signed": text}))


def test_a_folder_without_the_array_gives_no_model(tmp_path: Path) -> None:
    """It comes after its release, or damaged: the model waits at the window before, and goes on
    when the file is whole, into the next window too. Planted: the release noted as followed when
    its array failed -> the next one is taken for another of its window, fails.
    """
    plan = plan_of(40_000)
    for window in range(2):
        handed(tmp_path, window, released(plan, tmp_path, window))
    model = ModelInFolder(task_of(plan), ID, tmp_path)
    array = tmp_path / array_name(ID, 0)
    whole = array.read_bytes()
    array.unlink()
    for content in (None, whole[:-8], whole[:-1] + bytes([whole[-1] ^ 1])):
        if content is not None:
            array.write_bytes(content)
        with pytest.raises(ShoalError, match=re.escape(array.name)) as caught:
            model.at(1)
        assert caught.value.kind is Kind.UNAVAILABLE
    array.write_bytes(whole)
    assert [model.at(window).done for window in (1, 2)] == [1, 2]
