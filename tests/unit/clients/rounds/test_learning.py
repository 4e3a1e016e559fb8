"""A device follows signed releases, in order, of its task alone, and answers within the bound."""

from __future__ import annotations

import base64
import json
import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal import codec
from shoal.clients.rounds.agent import noisy
from shoal.clients.rounds.learning import answer, follow, signed_release
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.quantize import bounds, quantize
from shoal.protos import release_pb2
from shoal.questions.learning import (
    ClipRule,
    LearningPlan,
    LearningState,
    after_round,
    begin_learning,
)
from shoal.questions.models import Logistic
from shoal.questions.network import Network
from shoal.questions.plan_words import check_learning
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.pytorch import needs_pytorch
from tests.worlds.tasks import PAIRWISE, pairwise, window_plan

Floats = NDArray[np.float64]
KEY = SigningKey.generate()
PLAN = LearningPlan(Logistic(2), rounds=3, step=2.0, clip=0.5)
NAMES = ("a", "b", "intercept")
ID = TaskId(bytes(range(32)))
TOTALS = (3.0, -1.0, 0.5)


def task(**changes: object) -> Task:
    return pairwise(
        **{
            "analyzer_key": KEY.public,
            "domain": Vector(3, Norm.L2, 1.0, 1_000, NAMES),
            "windows": window_plan(count=3),
            "question": f"How must a model change? {PLAN.words}",
            **changes,
        }
    )


def sized(**changes: object) -> Task:
    """``task`` with reports as long as its domain wants."""
    domain = changes.get("domain", Vector(3, Norm.L2, 1.0, 1_000, NAMES))
    size = PAIRWISE.pairwise.vector_bytes(domain.size)  # type: ignore[union-attr, attr-defined]
    return task(**{"report_size": size, **changes})


def signed(
    window: int = 0,
    *,
    key: SigningKey = KEY,
    context: SigningContext = SigningContext.RELEASE,
    names: tuple[str, ...] = NAMES,
    **fields: object,
) -> bytes:
    """A SignedRelease of 10 devices with TOTALS."""
    values = {"version": codec.VERSION, "task_id": ID.raw, "window": window, "n": 10, **fields}
    release = release_pb2.Release(**values)  # type: ignore[arg-type]
    if not release.withheld:
        for name, value in zip(names, TOTALS, strict=True):
            release.estimates.add(label=name, value=value)
    data = release.SerializeToString()
    return release_pb2.SignedRelease(
        release=data, signature=key.sign(context, data)
    ).SerializeToString()


def followed(data: bytes, state: LearningState | None = None) -> LearningState:
    return follow(PLAN, sized(), ID, state or begin_learning(PLAN), data)


def refusal(data: bytes, state: LearningState | None = None) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        followed(data, state)
    assert "\n" not in caught.value.message
    return caught.value


def test_the_model_follows_from_releases() -> None:
    """Two windows, then one that was withheld. Planted: the number of devices left out, a withheld
    release that moves the model -> fails.
    """
    first = followed(signed(0))
    assert first.weights == pytest.approx([-0.3, 0.1, -0.05])
    second = followed(signed(1), first)
    assert second.weights == pytest.approx([-0.6, 0.2, -0.1])
    third = followed(signed(2, withheld="too few"), second)
    assert (third.weights == second.weights).all()
    assert third.done == 3


def test_a_release_that_the_analyzer_did_not_sign_is_refused() -> None:
    """Another key, and the analyzer's key for something else. Planted: no verification -> fails."""
    assert refusal(signed(key=SigningKey.generate())).kind is Kind.BAD_SIGNATURE
    assert refusal(signed(context=SigningContext.ACK)).kind is Kind.BAD_SIGNATURE
    assert refusal(b"\xff\xff").kind is Kind.INVALID


def test_releases_come_in_order() -> None:
    """None is left out, none counts twice. Planted: the window not compared -> fails."""
    first = followed(signed(0))
    for window, state in ((1, None), (2, first), (0, first)):
        error = refusal(signed(window), state)
        assert error.kind is Kind.MISMATCH
        assert "in order" in error.message


@for_each(
    "data",
    [
        lambda: signed(task_id=bytes(32)),
        lambda: signed(version=9),
        lambda: signed(names=("b", "a", "intercept")),
    ],
)
def test_a_release_of_something_else_is_refused(data: object) -> None:
    """Another task, version or order of coordinates. Planted: any one not compared -> fails."""
    assert refusal(data()).kind is Kind.MISMATCH  # type: ignore[operator]


def test_an_answer_is_within_the_bound() -> None:
    """Of a row far out, too. Planted: the gradient itself sent -> 100 long, fails."""
    state = begin_learning(PLAN)
    for row in ([0.1, 0.2], [100.0, -3.0]):
        value = answer(PLAN, state, np.array(row), True)
        assert value.shape == (3,)
        assert np.linalg.norm(value) <= PLAN.bound * (1 + 1e-12)
        assert value[-1] < 0  # towards yes


@for_each("row", [[math.nan, 0.0], [0.0, -math.inf], [2e9, 0.0]])
def test_a_row_that_is_no_numbers_is_answered_with_zeros(
    row: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """So who takes part says nothing of a row, and no log does, which others may collect. With an
    adapted clip too. Planted: refused, as it was -> raises; the gradient of a row of zeros sent ->
    not zero, fails; a line in the log -> fails.
    """
    for plan in (PLAN, replace(PLAN, rule=ClipRule())):
        value = answer(plan, begin_learning(plan), np.array(row), True)
        assert value.tolist() == [0.0] * plan.dimension
    assert not caplog.records
    with pytest.raises(ShoalError, match="2 numbers"):
        answer(PLAN, begin_learning(PLAN), np.array([*row, 0.0]), True)


def test_a_device_that_can_not_compute_says_so_whatever_its_row_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: zeros before the model is asked -> only devices of good rows stay away, fails."""
    monkeypatch.setitem(sys.modules, "torch", None)
    plan = replace(PLAN, model=Network(1, 1, 0))
    for value in (0.1, math.nan):
        with pytest.raises(ShoalError, match="install"):
            answer(plan, begin_learning(plan), np.array([value]), True)


@dataclass(frozen=True)
class Rubbish(Logistic):
    """Its library is broken, or another's."""

    value: float = math.nan

    def gradients(
        self, weights: Floats, rows: Floats, yes: NDArray[np.bool_], into: Floats
    ) -> None:
        into[:] = self.value


@for_each("value", [math.nan, math.inf, -1e200])
def test_rubbish_ends_before_the_noise(value: float) -> None:
    """Whatever a model writes, nothing of it is noised or charged, and the state is as it was; the
    next answer, by a model that works, is what it would have been. Planted: the gradient handed on
    as it is -> NaN reaches the rounding, fails.
    """
    plan = replace(PLAN, model=Rubbish(2, value))
    state = begin_learning(plan)
    with pytest.raises(ShoalError, match="a gradient") as raised:
        answer(plan, state, np.array([0.1, 0.2]), True)
    assert raised.value.kind is Kind.INVALID
    assert (state.weights.tolist(), state.clip, state.done) == ([0.0, 0.0, 0.0], 0.5, 0)
    assert np.linalg.norm(answer(PLAN, state, np.array([0.1, 0.2]), True)) <= PLAN.bound


def test_the_rounding_believes_no_model_either() -> None:
    """A program that calls ``noisy`` with what it likes: NaN is refused, and a vector a million
    clips long becomes one of a clip. Planted: ``noisy`` without ``quantize`` -> fails.
    """
    asked = sized()
    for wrong in (math.nan, math.inf):
        with pytest.raises(ShoalError) as raised:
            noisy(asked, np.array([0.0, wrong, 0.0]), SeededEntropy("none"))
        assert raised.value.kind is Kind.INVALID
    domain = asked.domain
    assert isinstance(domain, Vector)
    rounded = quantize(np.array([0.0, 1e6, 0.0]), domain, SeededEntropy("long")).vector
    assert int((rounded.astype(object) ** 2).sum()) <= bounds(domain).l2_squared


def test_a_network_is_followed_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that lacks it says so in one line, answers nothing, and goes on following: once it
    is installed the next window is answered. Planted: an import when the model is made -> fails.
    """
    monkeypatch.setitem(sys.modules, "torch", None)
    plan = replace(PLAN, model=Network(1, 1, 0))
    assert plan.dimension == 4
    state = begin_learning(plan)
    with pytest.raises(ShoalError, match="install") as raised:
        answer(plan, state, np.array([0.1]), True)
    assert raised.value.kind is Kind.CONFIG
    assert after_round(plan, state, np.ones(4), 10).done == 1


@needs_pytorch
def test_a_networks_answer_is_within_the_bound() -> None:
    """At the demo's size. Planted: the gradient itself sent -> longer than 1, fails."""
    plan = LearningPlan(Network(30, 16, 1), rounds=6, step=8.0, clip=0.5)
    value = answer(plan, begin_learning(plan), np.full(30, 0.9), True)
    assert value.shape == (513,)
    assert 0.99 < np.linalg.norm(value) <= 1.0 + 1e-12


def test_the_task_fits_its_plan() -> None:
    """Planted: any one of the numbers not compared -> fails."""
    check_learning(sized(), PLAN)
    domain = Vector(3, Norm.L2, 1.0, 1_000, NAMES)
    wrong = (
        replace(domain, clip=2.0),
        replace(domain, norm=Norm.L1),
        Vector(4, Norm.L2, 1.0, 1_000),
    )
    changed = (
        *(sized(domain=one) for one in wrong),
        sized(windows=window_plan(count=4)),
        sized(question="How must a model change?"),
        sized(question=replace(PLAN, step=3.0).words),
        sized(question=f"{PLAN.words} Or not."),
        sized(question=replace(PLAN, model=Network(1, 1, 0)).words),
    )
    for one in changed:
        with pytest.raises(ShoalError, match="is not asked by this plan") as raised:
            check_learning(one, PLAN)
        assert raised.value.kind is Kind.MISMATCH


def test_a_release_comes_in_a_file() -> None:
    """As ``shoal results export --format release`` writes it: what is signed, and nothing else of
    it. Planted: what the file says for readers believed -> fails.
    """
    message = release_pb2.SignedRelease.FromString(signed(0))
    parts = {"release": message.release, "release_signature": message.signature, "task": b"t"}
    file: dict[str, object] = {
        "format": "shoal-release",
        "version": 1,
        "release": {"window": 7, "n": 1},
        "signed": {name: base64.b64encode(part).decode() for name, part in parts.items()},
    }
    state = followed(signed_release(json.dumps(file).encode()))
    assert (state.weights == followed(signed(0)).weights).all()


@for_each(
    "data",
    [
        b"",
        b"[1]",
        b"{}",
        b'{"signed": {"release": "AA=="}}',
        b'{"signed": {"release": "%%", "release_signature": "AA=="}}',
        b'{"signed": {"release": 3, "release_signature": "AA=="}}',
        b"[" * 100_000,
    ],
)
def test_other_files_are_refused(data: bytes) -> None:
    """Planted: any one let through -> an exception of Python's, or a release of nothing."""
    with pytest.raises(ShoalError, match="this is no release file") as raised:
        signed_release(data)
    assert raised.value.kind is Kind.INVALID


def test_a_huge_file_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no limit -> it is parsed, fails."""
    monkeypatch.setattr("shoal.clients.rounds.learning.MOST_BYTES", 10)
    with pytest.raises(ShoalError, match="no release file"):
        signed_release(b'{"signed": {"release": "AA==", "release_signature": "AA=="}}')
