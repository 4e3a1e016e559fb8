"""Reports that name a cell: widths, byte order, hostile rows."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.cells import report_size
from tests.cases import for_each


@for_each("k, size", [(2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_width_by_number_of_cells(k: int, size: int) -> None:
    """Planted: < for <= at 256 -> two bytes for 256 cells and this fails."""
    assert report_size(k) == size


@for_each("k", [2, 256, 257, 65_536, 65_537, 1 << 20])
def test_reports_are_big_endian_cells(k: int) -> None:
    size = report_size(k)
    named = np.array([0, 1, k // 2, k - 1])
    room = cells.empty_cells(4, k)
    room[:] = named
    reports = cells.to_reports(room)
    assert reports.shape == (4, 1, size)
    assert [bytes(row[0]) for row in reports] == [int(cell).to_bytes(size, "big") for cell in named]
    assert cells.decode(reports[:, 0], k).tolist() == named.tolist()
    assert cells.valid(reports[:, 0], k).all()
    tally = cells.tally(reports[:, 0], k)
    assert tally.rows == 4
    assert np.array_equal(tally.counts, np.bincount(named, minlength=k))


@for_each("k", [2, 7, 255, 257, 65_535, 65_537])
def test_rows_beyond_the_cells_are_flagged_and_never_counted(k: int) -> None:
    """Planted: <= for < in valid() -> the row that names cell k passes and this fails."""
    size = report_size(k)
    rows = [cell.to_bytes(size, "big") for cell in (0, k - 1, k, 256**size - 1)]
    reports = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(4, size)
    assert cells.valid(reports, k).tolist() == [True, True, False, False]
    with pytest.raises(ShoalError, match="valid") as caught:
        cells.tally(reports, k)
    assert caught.value.kind is Kind.INVALID
    assert cells.tally(reports[:2], k).rows == 2


def test_tally_of_rows_that_are_not_contiguous() -> None:
    wide = np.arange(40, dtype=np.uint8).reshape(10, 4)
    assert cells.tally(wide[::2, 1:2], 40).counts.nonzero()[0].tolist() == [1, 9, 17, 25, 33]
    assert cells.decode(wide[:, 1:3], 65_536).tolist() == [
        256 * (4 * i + 1) + 4 * i + 2 for i in range(10)
    ]


def test_tally_spans_blocks() -> None:
    """More rows than one block. Planted: only the last block kept -> this fails."""
    named = (np.arange(200_001) % 3).astype(np.uint8)
    assert cells.tally(named[:, None], 3).counts.tolist() == [66_667] * 3


def test_an_empty_tally() -> None:
    tally = cells.tally(np.zeros((0, 1), dtype=np.uint8), 5)
    assert (tally.rows, tally.counts.tolist()) == (0, [0] * 5)


@for_each(
    "reports",
    [
        np.zeros((3, 2), np.uint8),
        np.zeros(3, np.uint8),
        np.zeros((3, 1), np.int64),
        np.zeros((3, 1, 1), np.uint8),
    ],
)
def test_another_shape_is_refused(reports: np.ndarray) -> None:
    for act in (cells.valid, cells.tally):
        with pytest.raises(ShoalError, match=r"uint8\[rows, 1\]"):
            act(reports, 7)


@for_each(
    "values",
    [
        np.array([7]),
        np.array([-1]),
        np.array([0, 2**63 - 1]),
        np.array([-(2**63)]),
        np.array([1.0]),
        np.array([[1]]),
        np.array([1], np.int32),
    ],
)
def test_values_outside_the_cells_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ShoalError) as caught:
        cells.check_values(values, 7)
    assert caught.value.kind is Kind.INVALID
    assert "9223372036854775807" not in str(caught.value)


def test_unbiased_of_nothing_is_zero() -> None:
    values, errors = cells.unbiased(np.zeros(3), 0, 0.9, 0.05, 0.85)
    assert not values.any()
    assert not errors.any()


def test_the_error_of_one_cell_is_that_of_all_to_the_bit() -> None:
    """Planted: the cell's own devices counted among the others too -> fails."""
    counts = np.array([3, 0, 41_237, 12_000_001, 9], dtype=np.int64)
    all_cells = cells.expected(counts, 5, 0.7310585, 0.06723, 0.6638285)
    each = [cells.expected_of(counts, 5, 0.7310585, 0.06723, 0.6638285, at) for at in range(5)]
    assert each == all_cells.tolist()
    assert (
        cells.expected_of(counts, 5, 0.73, 0.07, 0.66, -1)
        == cells.expected(counts, 5, 0.73, 0.07, 0.66)[-1]
    )
    with pytest.raises(ShoalError):
        cells.expected_of(counts, 4, 0.73, 0.07, 0.66, 0)
