"""One device's draw without numpy, and the way around for mechanisms that have none."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design, serves
from shoal.mechanisms.categories.binary_rr import BinaryResponse
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.parts import sampling, scalar
from tests.cases import for_each
from tests.worlds.tapes import DryError, Tape

BOUNDS = (
    1,
    2,
    3,
    7,
    22,
    255,
    256,
    257,
    1000,
    65_535,
    65_536,
    65_537,
    2**31 - 1,
    2**31 + 1,
    2**32 - 1,
    2**32,
)
WORDS = 1 << 64


def word(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def drawn(bound: int, *words: int) -> int | None:
    """None: every word was refused."""
    try:
        return scalar.uniform_below(bound, Tape(*(word(w, 4) for w in words)))
    except DryError:
        return None


@for_each("bound", BOUNDS)
def test_a_uniform_draw_decides_as_the_arrays_do(bound: int) -> None:
    """At and next to every place (at most 300 of them) where another cell begins, and at the ends
    of the words.

    Planted: the high half rounded up; the low half compared by <=, or not at all (modulo bias) ->
    fails.
    """
    cells = {0, 1, bound - 1, *np.linspace(0, bound - 1, 300, dtype=np.int64).tolist()}
    near = {-(-(cell << 32) // bound) + step for cell in cells for step in (-1, 0, 1)} | {2**32 - 1}
    words = np.array(sorted(w for w in near if 0 <= w < 1 << 32), dtype=np.uint32)
    results, accepted = sampling.multiply_shift(words, bound)
    for w, result, keeps in zip(words.tolist(), results.tolist(), accepted.tolist(), strict=True):
        assert drawn(bound, w) == (result if keeps else None)


@for_each("bound", [3, 7, 1000, 65_537, 2**31 + 1])
def test_a_refused_word_is_replaced_by_the_next(bound: int) -> None:
    """Word 0 is always below 2^32 mod bound where that is not 0. Planted: the refused word's own
    cell kept -> fails.
    """
    fresh = 2**32 - 1
    expected = drawn(bound, fresh)
    assert expected == bound - 1
    assert drawn(bound, 0) is None
    assert drawn(bound, 0, 0, 0, fresh) == expected


@pytest.mark.parametrize("bound", [0, -1, 2**32 + 1])
def test_a_bound_that_32_bits_can_not_serve_is_refused(bound: int) -> None:
    with pytest.raises(ShoalError, match="2\\^32") as caught:
        scalar.uniform_below(bound, Tape())
    assert caught.value.kind is Kind.INVALID


@for_each("threshold", [1, 2, 2**32, 2**63 - 1, 2**63, WORDS - 2, WORDS - 1])
def test_coins_fall_at_their_own_threshold(threshold: int) -> None:
    """One below it: heads; on it and one above: tails. Planted: <= for <, threshold + 1, threshold
    - 1 -> fails.
    """
    words = [w for w in (0, threshold - 1, threshold, threshold + 1, WORDS - 1) if 0 <= w < WORDS]
    for w in words:
        uniform = word(3 << 28, 4)  # of 16 cells, cell 3
        (report,) = KaryResponse(tuple("abcdefghijklmnop"), threshold).randomize_one(
            9, Tape(word(w, 8), uniform)
        )
        assert report == bytes([3 if w < threshold else 9])
        if threshold > 1:
            assert BinaryResponse(threshold, 1).randomize_one(1, Tape(word(w, 8))) == (
                bytes([w < threshold]),
            )
        if threshold < WORDS - 1:
            assert BinaryResponse(WORDS - 1, threshold).randomize_one(0, Tape(word(w, 8))) == (
                bytes([w < threshold]),
            )


class Several:
    """Three messages of two bytes: the value, a random word's half, and their difference. No draw
    of its own for one device.
    """

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        if values.max() > 9:
            raise ShoalError(Kind.INVALID, "too large")
        noise = np.frombuffer(entropy.bytes(2 * values.shape[0]), dtype="<u2")
        messages = np.stack([values, noise, values - noise], axis=1).astype(">u2")
        return messages.view(np.uint8).reshape(values.shape[0], 3, 2)


def test_a_mechanism_without_a_draw_of_its_own_goes_by_the_array() -> None:
    """Messages keep their order. Planted: the transposed array -> fails."""
    for value in range(10):
        one = scalar.one_by_array(Several(), value, SeededEntropy(value))
        assert one == tuple(
            bytes(message)
            for message in Several().randomize(np.array([value]), SeededEntropy(value))[0]
        )
        assert [len(message) for message in one] == [2, 2, 2]
        assert one[0] == value.to_bytes(2, "big")


@for_each("value", [10, 2**63, -(2**63) - 1, True, 1.0, np.int64(1)])
def test_going_by_the_array_refuses_what_is_no_cell(value: int) -> None:
    with pytest.raises(ShoalError) as caught:
        scalar.one_by_array(Several(), value, SeededEntropy(1))
    assert caught.value.kind is Kind.INVALID


_DRAW = """
import json
import sys
import shoal.mechanisms
from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms import REGISTRY, create, serves
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec

domains = (Categories(("a", "b", "c")), YesNo(), Numeric(0.0, 1.0, 5))
for name, parameters in json.loads(sys.argv[1]).items():
    domain = next(domain for domain in domains if serves(name, domain))
    mechanism = create(MechanismSpec.of(name, **parameters), domain)
    assert epsilon0_upper(mechanism.privacy()) <= 2.0
    for value in (None, 1, "yes", 0.3):
        (message,) = mechanism.randomize_one(domain.encode(value, SYSTEM), SYSTEM)
        assert len(message) == mechanism.report_size
assert "numpy" not in sys.modules, "numpy was loaded"
"""


def test_a_device_draws_without_numpy() -> None:
    """Built of a task's integers, its law told, a report drawn. (Choosing the integers is the
    owner's, and may load it.)

    Planted: ``np.pi`` at the end of cells.py; in ``KaryMean.randomize_one`` -> fails.
    """
    domains: tuple[Domain, ...] = (Categories(("a", "b", "c")), YesNo(), Numeric(0.0, 1.0, 5))
    specs = {}
    for name in REGISTRY:
        domain = next(domain for domain in domains if serves(name, domain))
        specs[name] = dict(design(name, domain, 2.0).parameters)
    assert len(specs) == len(REGISTRY)
    subprocess.run([sys.executable, "-c", _DRAW, json.dumps(specs)], check=True)
