"""Gradients and other vectors: clipped, laid out again, added up under noise, sent by an agent."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.mechanisms.quantize import dequantize, quantize
from shoal.questions.layout import NamedShape
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.sums import designed
from tests.worlds.tasks import PAIRWISE, TASK

LAYERS: dict[str, Any] = {"weights": np.arange(6.0).reshape(2, 3) - 2.0, "bias": [0.5, -0.5]}


@for_each("norm, clip", [("l2", 2.0), ("l1", 2.0), ("coordinate", 0.75), ("l2", 100.0)])
def test_an_update_is_clipped_as_a_device_clips_it(norm: str, clip: float) -> None:
    """What a device's quantizer makes of the clipped update is what it makes of the whole one.
    Planted: each layer clipped by itself; the L1 norm for L2 -> fails.
    """
    update = shoal.clip_update(LAYERS, clip, norm)
    flat = np.concatenate([np.ravel(part) for part in LAYERS.values()])
    domain = designed(8, norm=Norm[norm.upper()], clip=clip).domain
    direct = quantize(flat, domain, SeededEntropy(1)).vector
    clipped = quantize(update.vector, domain, SeededEntropy(1)).vector
    assert np.abs(direct - clipped).max() <= 1  # the last bit of a float may decide a rounding
    order = {"l2": 2, "l1": 1, "coordinate": np.inf}[norm]
    assert update.norm == pytest.approx(np.linalg.norm(flat, order))
    assert np.linalg.norm(update.vector, order) <= clip * (1 + 1e-12)
    assert update.clipped == (update.norm > clip)
    shown = update.restore()
    assert list(shown) == ["weights", "bias"]
    assert shown["weights"].shape == (2, 3)
    assert np.allclose(np.concatenate([np.ravel(part) for part in shown.values()]), update.vector)


class Tensor:
    """What is asked of a tensor of PyTorch, which need not be installed."""

    def __init__(self, values: Any, where: str = "gpu", kind: str = "bfloat16") -> None:
        self.values, self.where = np.asarray(values, dtype=np.float16), where
        self.shape, self.device, self.dtype = self.values.shape, where, kind

    def is_floating_point(self) -> bool:
        return "float" in self.dtype

    def is_complex(self) -> bool:
        return self.dtype == "complex64"

    def to(self, device: str, dtype: str) -> tuple[Any, str, str]:
        return self.values, device, dtype

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return Tensor(self.values, "cpu", self.dtype)

    def double(self) -> Tensor:
        made = Tensor(self.values, self.where, self.dtype)
        made.values = self.values.astype(np.float64)
        return made

    def numpy(self) -> Any:
        if self.where != "cpu" or self.values.dtype != np.float64:
            raise TypeError("can't convert this tensor")  # as PyTorch does: of a GPU, of bfloat16
        if self.dtype == "sparse float":
            raise TypeError("can't convert Sparse layout tensor to numpy")
        return self.values


async def test_arrays_by_name_are_those_that_the_task_names() -> None:
    """Another order, shape or number of them is refused: they would be summed with others. Planted:
    names alone compared, or the dict taken as it comes -> fails.
    """
    layout = (NamedShape("weight", (2, 1)), NamedShape("bias", (1,)))
    assert isinstance(PAIRWISE.domain, Vector)
    domain = replace(PAIRWISE.domain, names=(), layout=layout)
    agent = Recorder(SimpleNamespace(domain=domain))  # type: ignore[arg-type]  # nothing else is read
    good = {"weight": [[3.0], [4.0]], "bias": [0.0]}
    assert await shoal.send_update(agent, "moments", good)
    assert np.allclose(agent.given, [[3.0, 4.0, 0.0]])
    for bad in (
        dict(reversed(good.items())),
        {"weight": [[3.0, 4.0]], "bias": [0.0]},
        {"weight": [[3.0], [4.0]], "bais": [0.0]},
        {"all": [3.0, 4.0, 0.0]},
        {**good, "more": []},
    ):
        with pytest.raises(ValueError, match=r"^update: moments sums "):
            await shoal.send_update(agent, "moments", bad)
    assert len(agent.given) == 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "__module__", "torch")
    module: Any = ModuleType("torch")
    module.from_numpy, module.float64 = Tensor, "float64"
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.mark.usefixtures("library")
def test_tensors_come_back_as_they_were() -> None:
    """As a parameter's gradient has to be: of its type, where it lies. Planted: ``import torch``; a
    tensor's ``numpy()`` alone; double precision for all -> fails.
    """
    update = shoal.clip_update([Tensor([[3.0, 0.0]]), np.array([4.0])], clip=1.0)
    (values, where, kind), second = update.restore()
    assert (where, kind) == ("gpu", "bfloat16")
    assert np.allclose(values, [[0.6, 0.0]], atol=1e-3)  # the stand-in keeps half precision
    assert np.allclose(second, [0.8])
    whole = shoal.clip_update(Tensor([1.0], kind="int64"), clip=5).restore()
    assert whole[1:] == ("gpu", "float64")


@pytest.mark.usefixtures("library")
def test_a_tensor_that_is_no_plain_numbers_is_refused() -> None:
    """Planted: a complex one taken by its real part; PyTorch's own error let through -> fails."""
    for wrong in (Tensor([1.0], kind="complex64"), Tensor([1.0], kind="sparse float"), None):
        with pytest.raises(TypeError, match=r"^update: "):
            shoal.clip_update([wrong, np.array([1.0])], clip=1.0)


@dataclass
class Recorder:
    """An agent as far as a sender knows it: its tasks, and what it was given to report."""

    task: Task
    given: list[Any] = field(default_factory=list)

    @property
    def tasks(self) -> Any:
        return SimpleNamespace(find=lambda _: SimpleNamespace(task=self.task))

    async def report(self, name: str, value: Any) -> str:
        self.given.append(value)
        return name


async def test_an_update_is_sent_as_the_task_says() -> None:
    """Its norm and clip are the signed ones (integration/rounds/test_agent.py sends it for real).
    Planted: a clip of the caller's; another norm; a wrong length let through -> fails.
    """
    agent = Recorder(PAIRWISE)
    assert await shoal.send_update(agent, "moments", [[30.0, 40.0], [0.0]]) == "moments"
    assert np.allclose(agent.given[0], [6.0, 8.0, 0.0])  # clip 10 in L2
    domain = designed(3, norm=Norm.L1, clip=7.0).domain
    other = Recorder(replace(PAIRWISE, domain=domain))
    await shoal.send_update(other, "moments", [30.0, 40.0, 0.0])
    assert np.allclose(other.given[0], [3.0, 4.0, 0.0])
    with pytest.raises(ValueError, match=r"^update: .* 3 numbers"):
        await shoal.send_update(agent, "moments", [1.0, 2.0])
    with pytest.raises(ValueError, match=r"^task: "):
        await shoal.send_update(Recorder(TASK), "visits", [1.0])
    assert len(agent.given) == 1


@for_each("bad", [math.nan, math.inf, -math.inf])
async def test_an_update_that_is_no_numbers_is_a_missing_one(
    bad: float, caplog: pytest.LogCaptureFixture
) -> None:
    """A device whose training failed takes part all the same, and its log says it; in a notebook it
    is an error. One of another length is an error for both. Planted: raised, as it was -> fails.
    """
    agent = Recorder(PAIRWISE)
    assert await shoal.send_update(agent, "moments", [[1.0, bad], [0.0]]) == "moments"
    assert agent.given == [None]
    assert "answered with zeros" in caplog.text
    assert str(bad) not in caplog.messages[0].split()
    with pytest.raises(ValueError, match="NaN or infinity"):
        shoal.clip_update([1.0, bad], clip=1.0)
    with pytest.raises(ValueError, match=r"^update: .* 3 numbers"):
        await shoal.send_update(agent, "moments", [1.0, bad])


def test_a_mean_of_vectors_is_right_and_its_promise_the_tasks() -> None:
    """Over 40 seeds and 3 coordinates: unbiased within five standard errors (a false alarm in
    fewer than one of 10^5 runs, and the seeds are fixed), the spread as stated within 26 % (four
    standard deviations of a deviation over 120 figures). Planted: noise of the guaranteed devices
    alone in the standard error; no noise -> fails.
    """
    design = shoal.design_vector(["a", "b", "c"], clip=2, devices=60, epsilon=4, delta=1e-6)
    people = [[0.5, -1.0, i % 2] for i in range(50)]
    means = [design.mean(people, simulation_seed=seed) for seed in range(40)]
    off = np.array([each.mean - [0.5, -1.0, 0.5] for each in means]) / means[0].stderr
    assert abs(off.mean()) <= 5 / math.sqrt(off.size)
    assert 0.74 <= off.std() <= 1.26
    assert means[0].columns == ("label", "value", "stderr", "ci_low", "ci_high")
    assert list(means[0].to_pandas()["label"]) == ["a", "b", "c"]
    assert np.allclose(means[0].total, means[0].mean * 50)
    sums = designed(
        3,
        clip=2.0,
        cohort_max=60,
        dropout_ppm=200_000,
        epsilon=4.0,
        delta=1e-6,
        names=("a", "b", "c"),
    )
    assert design.sums == sums
    promise = design.certify()
    assert promise.epsilon <= 4
    assert promise.certificate.honest == sums.plan.honest_survivors(900_000)
    assert promise.headline in repr(promise)
    alone = design.randomize(people[0])
    assert alone.shape == (3,)
    assert not np.array_equal(alone, design.randomize(people[0]))
    assert abs(dequantize(alone, sums.domain)).max() < 100


def test_an_l1_mean_has_laplace_noise_and_its_wider_interval() -> None:
    """Planted: 1.96 standard errors for every noise -> fails."""
    design = shoal.design_vector(2, clip=1, devices=10, epsilon=1, norm="l1", drop_out=0)
    mean = design.mean([[0.5, 0.5]] * 8)
    (row, *_) = mean
    reach = (row["ci_high"] - row["value"]) / row["stderr"]  # type: ignore[operator] # numbers
    assert 1.97 < reach < 2.3
    assert design.sums.mechanism.name == "discrete_laplace"


@for_each(
    "argument, wrong",
    [
        ("update", lambda: shoal.clip_update("abc", 1)),
        ("update", lambda: shoal.clip_update(None, 1)),
        ("update", lambda: shoal.clip_update([], 1)),
        ("update", lambda: shoal.clip_update({}, 1)),
        ("update", lambda: shoal.clip_update([1.0, "x"], 1)),
        ("update", lambda: shoal.clip_update([1.0, float("nan")], 1)),
        ("update", lambda: shoal.clip_update([[1.0, 2.0], [[1.0], [2.0, 3.0]]], 1)),
        ("clip", lambda: shoal.clip_update([1.0], 0)),
        ("norm", lambda: shoal.clip_update([1.0], 1, "max")),
        ("vector", lambda: shoal.clip_update([1.0], 1).restore([1.0, 2.0])),
        ("names", lambda: shoal.design_vector(0, clip=1, devices=10, epsilon=1)),
        ("names", lambda: shoal.design_vector("abc", clip=1, devices=10, epsilon=1)),
        ("names", lambda: shoal.design_vector(["a", "a"], clip=1, devices=10, epsilon=1)),
        ("names", lambda: shoal.design_vector([], clip=1, devices=10, epsilon=1)),
        ("epsilon", lambda: shoal.design_vector(1, clip=1, devices=500, epsilon=1e-9)),
        ("clip", lambda: shoal.design_vector(1, clip=1e200, devices=50, epsilon=1)),
        (
            "devices",
            lambda: shoal.design_vector(1, clip=1, devices=5, epsilon=1, honest_fraction=0.5),
        ),
        ("devices", lambda: shoal.design_vector(1, clip=1, devices=20_000, epsilon=1)),
        ("clip", lambda: shoal.design_vector(1, clip=-1, devices=10, epsilon=1)),
        ("devices", lambda: shoal.design_vector(1, clip=1, devices=1, epsilon=1)),
        ("epsilon", lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=0)),
        ("norm", lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=1, norm="l3")),
        ("mode", lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=1, mode="fast")),
        ("drop_out", lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=1, drop_out=1)),
        ("updates", lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=1).mean([[1.0]])),
        (
            "updates",
            lambda: shoal.design_vector(1, clip=1, devices=50, epsilon=1).mean([[1.0]] * 51),
        ),
        (
            "update",
            lambda: shoal.design_vector(2, clip=1, devices=50, epsilon=1).randomize([1.0]),
        ),
    ],
)
def test_what_is_wrong_is_named(argument: str, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        wrong()
    assert isinstance(refused.value, ShoalError)
    assert str(refused.value).split(":")[0] == argument, str(refused.value)


def test_noise_for_several_rounds_together() -> None:
    """The promise is of all of them; each round by itself has less, and one round's design is what
    it was. Planted: the rounds left out of the design -> 20 rounds cost 5 times the target, fails;
    the promise of one round said of all -> fails.
    """
    asked: dict[str, Any] = {"clip": 1.0, "devices": 200, "epsilon": 2.0, "delta": 1e-6}
    one, many = shoal.design_vector(8, **asked), shoal.design_vector(8, **asked, rounds=20)
    single, promise = one.certify(), many.certify()
    assert single.together == single.epsilon <= 2.0
    assert "together" not in single.headline
    assert 1.99 < promise.together <= 2.0
    assert promise.epsilon < 0.5
    assert "epsilon <= 2 for 20 rounds together; epsilon <= 0.4" in promise.headline
    assert 4.0 < many.error / one.error < 5.0  # the root of 20 is 4.5


@for_each("rounds", [0, 10_001, 1.5])
def test_rounds_are_whole_numbers(rounds: float) -> None:
    """Planted: no check -> a promise for no round, fails."""
    with pytest.raises(ShoalError, match="rounds: give a whole number from 1"):
        shoal.design_vector(8, clip=1.0, devices=200, epsilon=2.0, rounds=rounds)  # type: ignore[arg-type]


def test_weighted_means_of_little_noise_are_those_of_arithmetic() -> None:
    """Vectors that are clipped, weights of 0 and 1 among them. Planted: the weight left out of the
    vector -> the plain mean, fails; the mark not divided out -> half, fails.
    """
    design = shoal.design_vector(
        ["a", "b"], clip=2.0, devices=500, epsilon=2e3, drop_out=0.0, weighted=True
    )
    rows = [([1.0, -0.5], 1.0), ([0.0, 1.5], 0.25), ([9.0, 0.0], 0.5), ([1.0, 1.0], 0.0)] * 120
    found = design.weighted_mean(rows, simulation_seed=3)
    weights = np.array([weight for _, weight in rows])
    clipped = np.array([[1.0, -0.5], [0.0, 1.5], [2.0, 0.0], [1.0, 1.0]] * 120)
    assert found.weight == pytest.approx(weights.sum(), rel=0.01)
    assert found.mean == pytest.approx(
        (weights[:, None] * clipped).sum(0) / weights.sum(), abs=0.01
    )
    assert found["label"] == ["a", "b"]


def test_weighted_means_cover_the_truth() -> None:
    """The noise of the weights is in the interval: of 400 runs 95 % hold the truth, but for 4
    standard errors, once in 16,000; the seeds are fixed. The mean is far from 0, so that most of
    the noise is the weights'. Planted: the weights' noise left out of the error -> 87 %, fails.
    """
    runs, held = 400, 0
    design = shoal.design_vector(1, clip=1.0, devices=60, epsilon=15.0, weighted=True)
    rows = [([0.9], 0.8)] * 60
    for run in range(runs):
        (row,) = design.weighted_mean(rows, simulation_seed=run)
        held += row["ci_low"] <= 0.9 <= row["ci_high"]  # type: ignore[operator] # numbers
    assert abs(held / runs - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)


def test_a_weight_is_covered_by_the_noise() -> None:
    """The bound of the sum is that of a vector with its weight. Planted: the clip of the vector
    alone -> fails.
    """
    asked: dict[str, Any] = {"clip": 2.0, "devices": 100, "epsilon": 1.0}
    plain, weighted = (shoal.design_vector(3, **asked, weighted=one) for one in (False, True))
    assert weighted.sums.domain.clip == pytest.approx(2.0 * math.sqrt(1.25))
    assert (weighted.dimension, weighted.clip) == (plain.dimension, plain.clip) == (3, 2.0)
    assert weighted.sums.domain.dimension == 4
    assert weighted.certify().epsilon <= 1.0


def test_weights_that_cannot_be() -> None:
    """Each in one line. Planted: any one not checked -> fails."""
    asked: dict[str, Any] = {"clip": 1.0, "devices": 100, "epsilon": 1.0}
    design, plain = (shoal.design_vector(2, **asked, weighted=one) for one in (True, False))
    for weight in (-0.1, 1.1, math.nan):
        with pytest.raises(ShoalError, match="weights: give a weight from 0 to 1"):
            design.weighted_mean([([0.1, 0.2], weight)] * 90)
    with pytest.raises(ShoalError, match="lost in the noise"):
        design.weighted_mean([([0.1, 0.2], 0.0)] * 90, simulation_seed=1)
    with pytest.raises(ShoalError, match="weighted=True"):
        plain.weighted_mean([([0.1, 0.2], 1.0)] * 90)
    with pytest.raises(ShoalError, match="ask weighted_mean"):
        design.mean([[0.1, 0.2]] * 90)
    with pytest.raises(ShoalError, match="ask weighted_mean"):
        design.randomize([0.1, 0.2])
    with pytest.raises(ShoalError, match="norm='l2' alone"):
        shoal.design_vector(2, **asked, norm="l1", weighted=True)
