"""A device's vector as a round takes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoal.clients.rounds.agent import noisy, ready
from shoal.crypto.secagg.pads import WORD
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.rounds.secagg import World
from tests.worlds.tasks import PLAN, pairwise

DIMENSION = 1_001


def long_task(bits: int, segment: int) -> Task:
    plan = replace(PLAN, word_bits=bits, segment_words=segment)
    domain = Vector(DIMENSION, Norm.L2, 10.0, 1_000)
    return pairwise(domain=domain, pairwise=plan, report_size=plan.vector_bytes(DIMENSION))


@for_each("bits", [16, 32, 64])
def test_a_long_vector_is_ready_in_words(bits: int) -> None:
    """Of the same draws it is the same vector modulo 2^w; a short one stays int64. Planted: words
    of another width; noise left out -> fails.
    """
    own = np.linspace(-3.0, 5.0, DIMENSION)
    made = noisy(long_task(bits, 0), own, SeededEntropy("a device"))
    assert made.dtype == np.int64
    same = ready(long_task(bits, 0), own, SeededEntropy("a device"))
    assert same.tolist() == made.tolist()
    words = ready(long_task(bits, 100), own, SeededEntropy("a device"))
    assert words.dtype == WORD[bits]
    assert words.tolist() == [value % 2**bits for value in made.tolist()]
    assert own[0] == -3.0


def test_a_round_takes_words_of_its_width_or_whole_numbers() -> None:
    """And of a task in one piece whole numbers alone. Planted: any unsigned words -> fails."""
    one = World(5, dimension=4).terms
    segments = World(5, dimension=4, segment_words=2).terms
    for dtype, size, whole, cut in (
        ("<i8", 4, True, True),
        ("<u4", 4, False, True),
        ("<u2", 4, False, False),
        ("<u8", 4, False, False),
        ("<f8", 4, False, False),
        ("<i8", 5, False, False),
    ):
        vector = np.zeros(size, dtype)
        assert (one.takes(vector), segments.takes(vector)) == (whole, cut)


def test_a_vector_that_does_not_fit_is_refused_before_anything_is_drawn() -> None:
    for bad in (np.zeros(3), np.full(DIMENSION, np.nan)):
        with pytest.raises(ShoalError) as caught:
            ready(long_task(32, 100), bad, SeededEntropy("a device"))
        assert caught.value.kind is Kind.INVALID
