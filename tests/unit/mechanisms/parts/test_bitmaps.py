"""Bitmap reports: the order of their bits, their padding, and sums of columns by carries against
sums of unpacked bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts import bitmaps
from tests.cases import for_each

WIDTHS = (2, 7, 8, 9, 16, 100, 1024)
ROWS = (0, 1, 2, 3, 5, 128, 255, 256, 257, 513, 3_000)


def drawn(rows: int, k: int, seed: str = "bitmaps") -> tuple[np.ndarray, np.ndarray]:
    """(bool[rows, k], its reports)."""
    noise = np.frombuffer(SeededEntropy(f"{seed} {rows} {k}").bytes(rows * k + 1), dtype=np.uint8)[
        :-1
    ].reshape(rows, k)
    # rare at the first cell, almost always at the last
    bits = noise < 1 + 254 * np.arange(k) // (k - 1)
    return bits, np.packbits(bits, axis=1) if rows else np.zeros((0, -(-k // 8)), dtype=np.uint8)


@for_each("k", WIDTHS)
@for_each("rows", ROWS)
def test_columns_are_summed(rows: int, k: int) -> None:
    """Planted: the rows beyond a whole group left out; one fold too few or a plane's weight too
    small; the carry's term ``either & carry`` left out; the halves of a plane taken as every other
    row in one plane only -> this fails.
    """
    bits, reports = drawn(rows, k)
    tally = bitmaps.tally(reports, k)
    assert tally.rows == rows
    assert tally.counts.tolist() == bits.sum(axis=0).tolist()


@for_each("k", [2, 9, 1024])
@for_each("rows", [255, 256, 257, 131_072, 140_001])
def test_no_sum_overflows(rows: int, k: int) -> None:
    """All bits set, over several blocks: every cell counts every row. Planted: eight planes for
    nine, so that 256 is 0 -> this fails.
    """
    reports = np.broadcast_to(
        np.packbits(np.ones(k, dtype=np.bool_)), (rows if k < 1024 else rows // 50, -(-k // 8))
    )
    assert bitmaps.tally(reports, k).counts.tolist() == [reports.shape[0]] * k


def test_the_widest_reports_are_summed() -> None:
    """One group of rows is longer than a block of bytes."""
    bits, reports = drawn(300, bitmaps.MOST_CELLS)
    assert np.array_equal(bitmaps.tally(reports, bitmaps.MOST_CELLS).counts, bits.sum(axis=0))


def test_rows_that_are_not_contiguous_are_summed() -> None:
    bits, reports = drawn(1_000, 100)
    wide = np.full((2_000, 20), 255, dtype=np.uint8)
    wide[::2, 3:16] = reports
    assert np.array_equal(bitmaps.tally(wide[::2, 3:16], 100).counts, bits.sum(axis=0))
    assert bitmaps.tally(reports[::-1], 100) == bitmaps.tally(reports, 100)
    assert (wide[1::2] == 255).all(), "the caller's rows are left alone"


@for_each("k", [2, 3, 7, 9, 15, 1001])
def test_padding_bits_are_refused_and_never_counted(k: int) -> None:
    """Each of them alone; the bits of all cells are fine. Planted: one bit of the mask too few, or
    a mask from the other end -> fails.
    """
    size = bitmaps.report_size(k)
    fine = bytearray(np.packbits(np.ones(k, dtype=np.bool_)).tobytes())
    bad = [bytes([*fine[:-1], fine[-1] | 1 << bit]) for bit in range(8 * size - k)]
    lone = [bytes([*bytes(size - 1), 1 << bit]) for bit in range(8 * size - k)]
    rows = np.frombuffer(b"".join([bytes(size), bytes(fine), *bad, *lone]), dtype=np.uint8).reshape(
        -1, size
    )
    assert bitmaps.valid(rows, k).tolist() == [True, True] + [False] * (len(bad) + len(lone))
    with pytest.raises(ShoalError, match="valid") as caught:
        bitmaps.tally(rows, k)
    assert caught.value.kind is Kind.INVALID
    assert bitmaps.tally(rows[:2], k).counts.tolist() == [1] * k


def test_whole_bytes_have_no_padding() -> None:
    assert bitmaps.valid(np.array([[255, 255], [0, 1]], dtype=np.uint8), 16).all()


@for_each(
    "reports",
    [
        np.zeros((3, 3), np.uint8),
        np.zeros(2, np.uint8),
        np.zeros((3, 2), np.int64),
        np.zeros((3, 1, 2), np.uint8),
    ],
)
def test_another_shape_is_refused(reports: np.ndarray) -> None:
    for act in (bitmaps.valid, bitmaps.tally):
        with pytest.raises(ShoalError, match=r"uint8\[rows, 2\]") as caught:
            act(reports, 12)
        assert caught.value.kind is Kind.INVALID


@for_each("k", [*WIDTHS, bitmaps.MOST_CELLS])
def test_one_report_is_packed_as_arrays_are(k: int) -> None:
    """Planted: no shift past the padding, or the cells from the last to the first -> this fails."""
    bits, reports = drawn(3, k)
    for row, report in zip(bits.tolist(), reports, strict=True):
        assert bitmaps.pack(row) == report.tobytes()
        assert bitmaps.unpack(report.tobytes(), k) == row
    first = bitmaps.pack([True] + [False] * (k - 1))
    assert first == b"\x80" + bytes(bitmaps.report_size(k) - 1)


def test_what_is_no_bitmap_is_not_unpacked() -> None:
    """Planted: no look at the padding; or at the length -> fails."""
    assert bitmaps.unpack(b"\xff\xf0", 12) == [True] * 12
    for bitmap in (b"\xff\xf1", b"\xff\xf8", b"\xff", b"\xff\xf0\x00", b""):
        assert bitmaps.unpack(bitmap, 12) is None


def test_more_cells_than_a_report_has_bits_are_refused() -> None:
    """Planted: < for <= at the limit -> the first line fails."""
    bitmaps.check_k("unary", 32_768)
    with pytest.raises(
        ShoalError, match="4096 bytes: ask for 32768 cells at most, or choose krr"
    ) as caught:
        bitmaps.check_k("unary", 32_769)
    assert caught.value.kind is Kind.INVALID
