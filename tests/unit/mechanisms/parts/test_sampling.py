"""Whole-array draws: exact, by enumeration of the words that decide them."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.sampling import BLOCK, bernoulli, blocks, multiply_shift, uniform_below
from tests.cases import for_each
from tests.sizes import FULL, size
from tests.worlds.tapes import DryError, Tape

BOUNDS = (1, 2, 3, 7, 10, 22, 255, 256, 257, 1000, 65_535, 65_536, 65_537)


def words32(*values: int) -> bytes:
    return np.array(values, dtype="<u4").tobytes()


@for_each("count, size", [(0, 5), (1, 5), (5, 5), (6, 5), (23, 5), (BLOCK + 1, BLOCK)])
def test_blocks_cover_everything_once(count: int, size: int) -> None:
    covered = [i for part in blocks(count, size) for i in range(part.start, part.stop)]
    assert covered == list(range(count))


def test_bernoulli_decides_at_its_own_threshold() -> None:
    """Entry by entry, at t - 1, t, t + 1 and the ends. Planted: <= for < -> the entries with word
    == t fail.
    """
    cases = [
        (t, w)
        for t in (1, 2, 2**32, 2**63 - 1, 2**63, 2**64 - 2)
        for w in (0, t - 1, t, t + 1, 2**64 - 1)
    ]
    thresholds = np.array([t for t, _ in cases], dtype=np.uint64)
    tape = Tape(np.array([w for _, w in cases], dtype="<u8").tobytes())
    assert bernoulli(thresholds, tape).tolist() == [w < t for t, w in cases]


def test_bernoulli_spans_blocks() -> None:
    """Each block has fresh words and its own thresholds: thresholds 0 and 2^64 - 1 alternate in
    runs that don't fit blocks.
    """
    count = 3 * BLOCK + 17
    yes = np.arange(count) // 1000 % 2 == 1
    drawn = bernoulli(np.where(yes, np.uint64(2**64 - 1), np.uint64(0)), SeededEntropy(5))
    assert np.array_equal(drawn, yes)
    half = bernoulli(np.full(2 * BLOCK, 2**63, dtype=np.uint64), SeededEntropy(5))
    assert not np.array_equal(half[:BLOCK], half[BLOCK:])


def edges(bound: int) -> np.ndarray:
    """The first three and the last word of every run of words with the same floor(word * bound /
    2^32).
    """
    starts = np.array([-(-(cell << 32) // bound) for cell in range(bound)] + [1 << 32])
    near = np.concatenate([starts[:-1], starts[:-1] + 1, starts[:-1] + 2, starts[1:] - 1])
    near = np.sort(near[near < 1 << 32])  # faster here than np.unique
    return near[np.diff(near, prepend=-1) > 0].astype(np.uint32)


@for_each("bound", BOUNDS)
def test_every_cell_keeps_the_same_number_of_words(bound: int) -> None:
    """Between its edges a run of words is constant (the product grows by ``bound`` per word, in the
    same cell and above the refused part), so that counting from edge to edge counts all 2^32 words:
    each cell keeps exactly floor(2^32 / bound).

    Planted: no rejection (Lemire's step without its test) -> counts differ by one and this fails.
    Planted: word % bound -> the runs are of length 1 and this fails.
    """
    at = edges(bound)
    cells, accepted = multiply_shift(at, bound)
    lengths = np.diff(np.append(at.astype(np.int64), 1 << 32))
    kept = np.bincount(cells, weights=np.where(accepted, lengths, 0), minlength=bound)
    assert kept.shape == (bound,)
    assert (kept == (1 << 32) // bound).all()
    assert lengths[~accepted].sum() == (1 << 32) % bound


def test_all_words_one_by_one() -> None:
    """The same without reasoning about edges: words one by one for bound 22, all 2^32 of them at
    full size, and the first and last 2^20 of the range reduced.
    """
    bound, step = 22, size(1 << 20, 1 << 22)
    starts = range(0, 1 << 32, step) if FULL else (0, (1 << 32) - step)
    counts = np.zeros(bound, dtype=np.int64)
    for start in starts:
        words = np.arange(start, start + step, dtype=np.int64).astype(np.uint32)
        cells, accepted = multiply_shift(words, bound)
        counts += np.bincount(cells[accepted], minlength=bound)
    if FULL:
        assert (counts == (1 << 32) // bound).all()
    else:
        assert counts[0] + counts[-1] == counts.sum()
        assert 2 * step - counts.sum() <= 2


def test_refused_words_are_drawn_again() -> None:
    """bound 3 refuses word 0 alone. Planted: a refused entry keeps its first cell -> the fourth
    assertion fails.
    """
    assert (1 << 32) % 3 == 1
    tape = Tape(words32(0, 1, 0, 2**32 - 1), words32(0, 2**31), words32(2**32 - 1))
    assert uniform_below(3, 4, tape).tolist() == [2, 0, 1, 2]
    assert tape.done()
    assert tape.asked == [16, 8, 4]
    with pytest.raises(DryError):
        uniform_below(3, 2, Tape(words32(0, 5)))


@for_each("bound", [1, 2, 7, 65_536, 1 << 32])
def test_uniform_below_shape_and_range(bound: int) -> None:
    for count in (0, 1, BLOCK, 2 * BLOCK + 3):
        drawn = uniform_below(bound, count, SeededEntropy(bound))
        assert drawn.dtype == np.int64
        assert drawn.shape == (count,)
        assert not count or int(drawn.max()) < bound


@pytest.mark.parametrize("bound", [0, -3, (1 << 32) + 1])
def test_other_bounds_are_refused(bound: int) -> None:
    with pytest.raises(ShoalError) as caught:
        uniform_below(bound, 1, SeededEntropy(1))
    assert caught.value.kind is Kind.INVALID
