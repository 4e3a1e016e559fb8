"""Rows whose nonces begin alike: over parts on disk the same as in memory."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from shoal.analyzer.batches import repeats
from shoal.analyzer.batches.repeats import Beginnings, InMemory, OnDisk, beginnings
from shoal.arrays import NDArray
from shoal.errors import Kind, ShoalError
from tests.sizes import size


def added(found: Beginnings, good: NDArray[np.int64], begin: NDArray[np.uint64], step: int) -> None:
    """As opening adds them: the good rows of one chunk after the other."""
    for first in range(0, good.size, step):
        found.add(good[first : first + step], begin[first : first + step])


def drawn(draw: np.random.Generator) -> tuple[int, NDArray[np.int64], NDArray[np.uint64]]:
    """(rows of a batch, its good rows, how they begin): few values or many, close or far apart."""
    rows = int(draw.integers(0, 400))
    good = np.flatnonzero(draw.random(rows) < draw.choice([0.1, 0.9, 1.0]))
    values = draw.integers(0, 2**64, size=int(draw.choice([1, 5, 300, 10_000])), dtype=np.uint64)
    if draw.random() < 0.3:
        values = np.arange(values.size, dtype=np.uint64)
    return rows, good, draw.choice(values, good.size)


def test_over_parts_on_disk_the_rows_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random batches, against counting; blocks of any size. Planted: what is still held left out
    when a part is read, or the records of a chunk in another order than its rows -> this fails.
    """
    draw = np.random.default_rng(82)
    several = 0
    for _ in range(size(150, 1_500)):
        monkeypatch.setattr(repeats, "_BLOCK", int(draw.choice([16, 64, 1 << 18])))
        rows, good, begin = drawn(draw)
        counted = Counter(begin.tolist())
        every = zip(good.tolist(), begin.tolist(), strict=True)
        wanted = [(row, first) for row, first in every if counted[first] > 1]
        for made in (InMemory(rows), OnDisk(rows + 20, int(draw.integers(1, 20)), tmp_path)):
            with closing(made):
                added(made, good, begin, int(draw.integers(1, 50)))
                found = [(tied.tolist(), first.tolist()) for tied, first in made.tied()]
            pairs = [pair for one in found for pair in zip(*one, strict=True)]
            assert sorted(pairs) == wanted
            assert all(tied == sorted(tied) for tied, _ in found)
            together = [set(first) for _, first in found]
            assert sum(map(len, together)) == len(set().union(*together))
            several += isinstance(made, OnDisk) and len(found) > 1
    assert several > 50


def test_the_limit_says_which() -> None:
    """Planted: the disk for every batch, or for none -> this fails."""
    for rows, kind in ((0, InMemory), (100, InMemory), (101, OnDisk)):
        with closing(beginnings(rows, 100, None)) as found:
            assert type(found) is kind, rows


def test_memory_is_that_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: in memory it takes more. Planted: all parts read at once, or blocks held until the
    end -> this fails.
    """
    monkeypatch.setattr(repeats, "_BLOCK", 1 << 14)
    rows = size(1 << 19, 1 << 22)
    good = np.arange(rows, dtype=np.int64)
    begin = np.random.default_rng(7).integers(0, 2**64, size=rows, dtype=np.uint64)

    def peak(most: int) -> int:
        tracemalloc.start()
        try:
            with closing(beginnings(rows, most, tmp_path)) as made:
                added(made, good, begin, 4_096)
                assert not list(made.tied())
                return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(rows) > 16 * rows
    assert peak(rows // 8) < 6 * rows


@contextmanager
def filled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnDisk]:
    """All nonces four times, in blocks of four rows. By a factor that spreads nonces in a row over
    all parts: of one in a hundred that are drawn some part would have none.
    """
    monkeypatch.setattr(repeats, "_BLOCK", 64)
    monkeypatch.setattr("secrets.randbits", lambda _: 0x9E3779B97F4A7C15)
    with closing(OnDisk(1_000, 100, folder)) as made:
        begin = np.arange(1_000, dtype=np.uint64) % 250 + 0x1122334455667700
        added(made, np.arange(1_000), begin, 50)
        yield made


def test_the_disk_holds_nothing_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a file that a crash would leave. Planted: blocks as they are, or a named file -> this
    fails.
    """
    with filled(tmp_path, monkeypatch) as made:
        assert os.listdir(tmp_path) == []
        data = os.pread(made._file.fileno(), 1 << 20, 0)
        assert len(data) > 8_000
        assert bytes.fromhex("77665544332211") not in data


def test_what_was_changed_on_disk_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros, and a block in another one's place. Planted: blocks under a nonce that is no count of
    them -> this fails.
    """
    for swapped in (False, True):
        with filled(tmp_path, monkeypatch) as made:
            (mine, first, length), (_, second, other) = made._blocks[0][0], made._blocks[1][0]
            number = made._file.fileno()
            data = os.pread(number, other, second) if swapped else bytes(length)
            made._blocks[0][0] = (mine, second if swapped else first, len(data))
            os.pwrite(number, data, second if swapped else first)
            with pytest.raises(ShoalError) as caught:
                list(made.tied())
            assert caught.value.kind is Kind.UNAVAILABLE


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the OSError let through -> this fails."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with closing(OnDisk(10, 1, tmp_path)) as made:
        monkeypatch.setattr(repeats, "_BLOCK", 16)
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(ShoalError) as caught:
            made.add(np.arange(10), np.arange(10, dtype=np.uint64))
        assert caught.value.kind is Kind.OVERLOADED
    with pytest.raises(ShoalError) as caught:
        OnDisk(10, 1, tmp_path / "none")
    assert caught.value.kind is Kind.OVERLOADED


def test_a_batch_that_was_cancelled_is_written_nowhere(tmp_path: Path) -> None:
    """Its thread may still add when the file is closed, and its number another file's. Planted: the
    number kept -> this fails.
    """
    made = OnDisk(1 << 20, 1 << 10, tmp_path)
    kept = made._file.fileno()
    made.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        assert other == kept
        with pytest.raises(ValueError, match="closed"):
            made.add(np.arange(1 << 16), np.zeros(1 << 16, dtype=np.uint64))
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)
