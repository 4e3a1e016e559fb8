"""A network's gradients against a derivation by hand and against differences; its first weights;
what a device does without PyTorch, and with one that returns rubbish.
"""

from __future__ import annotations

import hashlib
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.errors import Kind, ShoalError
from shoal.questions.models import gradients_of
from shoal.questions.network import Network
from tests.cases import for_each
from tests.unit.common.questions.test_models import loss, numbers
from tests.worlds.pytorch import needs_pytorch

MODEL = Network(features=3, hidden=4, seed=7)
FIRST = "-0x1.322943d76dbdep-2"  # on every machine: where a device begins may not change
Floats = NDArray[np.float64]


def by_hand(model: Network, weights: Floats, rows: Floats, yes: NDArray[np.bool_]) -> Floats:
    """Back propagation, written down: with e = likely - yes and z = tanh(W x + b), the gradients
    are e of the output's intercept, e z of its weights, g = e v (1 - z^2) of b, and g x of W.
    """
    h, f = model.hidden, model.features
    first, low = weights[: h * f].reshape(h, f), weights[h * f : h * f + h]
    out, last = weights[h * f + h : -1], weights[-1]
    found = []
    for row, one in zip(rows, yes, strict=True):
        z = np.tanh(first @ row + low)
        e = 1.0 / (1.0 + math.exp(-(out @ z + last))) - one
        g = e * out * (1.0 - z * z)
        found.append(np.concatenate([np.outer(g, row).ravel(), g, e * z, [e]]))
    return np.array(found)


@needs_pytorch
@for_each("model", [MODEL, Network(1, 1, 0), Network(30, 16, 1)])
def test_gradients_are_those_by_hand(model: Network) -> None:
    """20 rows at once, at random weights. Planted: the two intercepts exchanged, a mean over rows
    for each row, weights read column by column -> each fails.
    """
    weights = numbers(model.size, "weights")
    rows = numbers(20 * model.features, "rows").reshape(20, model.features)
    yes = np.arange(20) % 3 == 0
    found = gradients_of(model, weights, rows, yes)
    assert found.shape == (20, model.size)
    assert found.dtype == np.float64
    assert found == pytest.approx(by_hand(model, weights, rows, yes), rel=1e-9, abs=1e-12)


@for_each("yes", [True, False])
def test_by_hand_is_the_slope_of_the_loss(yes: bool) -> None:
    """The derivation against differences of ``predict``, which needs no PyTorch. Planted: 1 - z for
    1 - z^2 -> fails; ReLU in ``predict`` -> fails.
    """
    weights, row = numbers(MODEL.size, "weights"), numbers(3, "row")
    found = by_hand(MODEL, weights, row[None, :], np.array([yes]))[0]
    for at in range(MODEL.size):
        up, down = (
            loss(MODEL, weights + way * 1e-5 * np.eye(MODEL.size)[at], row, yes) for way in (1, -1)
        )
        assert found[at] == pytest.approx((up - down) / 2e-5, abs=1e-8)


@needs_pytorch
def test_far_weights_give_finite_gradients() -> None:
    """As far as totals can carry them (``learning``), at the largest rows. Planted: the logarithms
    of both likelihoods as the loss -> 0 times infinity, fails.
    """
    for far in (1e32, -1e32):
        weights = np.full(MODEL.size, far)
        rows = np.array([[1e9, 1e9, 1e9], [-1e9, 1e9, 0.0]])
        for yes in (True, False):
            found = gradients_of(MODEL, weights, rows, np.array([yes, yes]))
            assert np.isfinite(np.linalg.norm(found, axis=1)).all()
            assert np.isfinite(MODEL.predict(weights, rows)).all()


def test_first_weights_are_those_of_the_seed() -> None:
    """Against exact arithmetic over the published hash: w = +-(2 k + 1 - 2^53) / 2^53, times the
    root. Planted: little-endian words, one more bit of a word -> fails.
    """
    weights = MODEL.begin()
    stream = hashlib.shake_256(b"shoal/v1/network\0" + MODEL.words.encode()).digest(8 * 16)
    for at in range(16):
        k = int.from_bytes(stream[8 * at : 8 * at + 8], "big") >> 11
        even = float(Fraction(2 * k + 1 - 2**53, 2**53))
        inputs = 3 if at < 12 else 4
        place = at if at < 12 else at + 4  # the intercepts lie between
        assert weights[place] == even * math.sqrt(3.0 / inputs)
    assert (weights[12:16] == 0.0).all()
    assert weights[-1] == 0.0
    assert weights.size == MODEL.size == 4 * 5 + 1
    assert weights[0].hex() == FIRST


def test_first_weights_have_the_variance_that_is_said() -> None:
    """1 / inputs, of 32,000 weights: 6 standard errors. Planted: sqrt(1 / inputs) as the end ->
    a third of it, fails.
    """
    model = Network(1_000, 32, 3)
    first = model.begin()[: 32 * 1_000]
    assert abs(first.mean()) < 6 / math.sqrt(32e3 * 1_000)
    assert first.var() * 1_000 == pytest.approx(1.0, abs=6 * math.sqrt(0.8 / 32e3))
    other = Network(1_000, 32, 4).begin()[: 32 * 1_000]
    assert abs(np.corrcoef(first, other)[0, 1]) < 6 / math.sqrt(32e3)


def test_names_are_one_for_each_weight() -> None:
    """All differ. Planted: the output's names before the intercepts' -> fails."""
    names = MODEL.names(("a", "b", "c"))
    assert len(set(names)) == len(names) == MODEL.size
    assert names[:4] == ("hidden 1: a", "hidden 1: b", "hidden 1: c", "hidden 2: a")
    assert names[12:18] == (
        *(f"hidden {unit}: intercept" for unit in (1, 2, 3, 4)),
        "output: hidden 1",
        "output: hidden 2",
    )
    assert names[-1] == "output: intercept"


def test_without_pytorch_a_device_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; first weights and predictions are there all the same. Planted: no such error ->
    Python's own, fails.
    """
    monkeypatch.setitem(sys.modules, "torch", None)
    weights, rows = MODEL.begin(), np.zeros((1, 3))
    with pytest.raises(ShoalError, match=r"pip install 'shoal\[network\]'") as raised:
        gradients_of(MODEL, weights, rows, np.array([True]))
    assert raised.value.kind is Kind.CONFIG
    assert "\n" not in raised.value.message
    assert 0.0 < float(MODEL.predict(weights, rows)[0]) < 1.0


@for_each(
    ("changes", "words"),
    [
        ({"hidden": 0}, "1 to 1024 hidden units"),
        ({"hidden": 1_025}, "1 to 1024 hidden units"),
        ({"features": 0}, "1 feature or more"),
        ({"features": 1 << 19}, "at most 1048576 weights"),
        ({"seed": -1}, "below 2"),
        ({"seed": 1 << 63}, "below 2"),
    ],
)
def test_networks_that_cannot_be(changes: dict[str, int], words: str) -> None:
    """Planted: no check of any one of them -> fails."""
    with pytest.raises(ShoalError, match=words) as raised:
        Network(**{"features": 3, "hidden": 4, "seed": 7, **changes})
    assert raised.value.kind is Kind.INVALID
