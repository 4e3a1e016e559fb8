"""Chunks in parts: the same rows, one result, and none that lacks a part."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.analyzer.batches.row_opening import ChunkResult
from shoal.analyzer.machines.messages import ChunkPart
from shoal.analyzer.machines.partials import Partials, split
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally


def result_of(rows: list[int]) -> ChunkResult:
    """As if row i were of cell i % 5, and bad where i % 7 is 0."""
    good = np.array([row for row in rows if row % 7], dtype=np.uint64)
    cells = (good % 5).astype(np.int64)
    tally = Tally(np.bincount(cells, minlength=5).astype(np.int64), good.size)
    marks = bytes(3 * (row % 7 == 0) for row in rows)
    return ChunkResult(tally.to_bytes(), marks, good.tobytes())


def test_parts_are_the_chunk_and_their_results_come_to_its_result() -> None:
    """Random chunks, of single rows and of ranges. Planted: a part's end counted from its chunk's,
    marks joined in another order, the tally of the last part -> this fails.
    """
    draw = np.random.default_rng(81)
    for number in range(300):
        starts = draw.integers(0, 1_000, size=int(draw.integers(6))).tolist()
        chunk = [range(start, start + int(draw.choice([1, 1, 3, 40]))) for start in starts]
        rows = [row for span in chunk for row in span]
        most = int(draw.choice([1, 2, 7, 100]))
        parts = split(chunk, most)
        each = [[row for span in part for row in span] for part in parts]
        assert [row for part in each for row in part] == rows
        assert [len(part) for part in each[:-1]] == [most] * (len(each) - 1)
        assert len(each[-1]) <= most
        held = Partials()
        answers = [
            held.of(ChunkPart(number, at, len(parts)))(result_of(part))
            for at, part in enumerate(each)
        ]
        assert answers == [None] * (len(parts) - 1) + [result_of(rows)]


def test_two_chunks_at_once_stay_apart() -> None:
    """Planted: one sum for all of a connection -> this fails."""
    held = Partials()
    assert held.of(ChunkPart(1, 0, 2))(result_of([1, 2])) is None
    assert held.of(ChunkPart(2, 0, 2))(result_of([10, 11])) is None
    assert held.of(ChunkPart(1, 1, 2))(result_of([3])) == result_of([1, 2, 3])
    assert held.of(ChunkPart(2, 1, 2))(result_of([12])) == result_of([10, 11, 12])


def test_a_part_without_those_before_it_is_not_taken() -> None:
    """Nor one that came already, nor one after ``forget``. Planted: whatever is there taken for the
    whole -> this fails.
    """
    for before, part in (([], 1), ([0], 2), ([0, 1], 1)):
        held = Partials()
        for at in before:
            held.of(ChunkPart(5, at, 3))(result_of([at]))
        with pytest.raises(ShoalError) as caught:
            held.of(ChunkPart(5, part, 3))(result_of([part]))
        assert caught.value.kind is Kind.UNAVAILABLE
    held.of(ChunkPart(6, 0, 2))(result_of([0]))
    held.forget()
    with pytest.raises(ShoalError):
        held.of(ChunkPart(6, 1, 2))(result_of([1]))
