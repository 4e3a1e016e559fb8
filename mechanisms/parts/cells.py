"""Reports that name one cell of k: their bytes, and the unbiased counts behind them.

Shared by every single-message mechanism whose report is a cell. A report is the cell's index,
unsigned big-endian, in 1, 2 or 4 bytes.
"""

from __future__ import annotations

import math

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Estimate, Tally, invalid, outside
from shoal.mechanisms.parts.intervals import of_counts
from shoal.mechanisms.parts.sampling import blocks

_TALLY_BLOCK = 65_536  # rows: bincount widens them to 512 KiB


def report_size(k: int) -> int:
    """Bytes of a report that names one of k cells: 1 for k <= 256, 2 for k <= 65,536, else 4."""
    return 1 if k <= 1 << 8 else 2 if k <= 1 << 16 else 4


def check_value(value: int, k: int) -> int:
    """The same value, an int and no bool, 0 <= value < k. Raises INVALID otherwise, without naming
    it.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid("a value to randomize is one int, a cell: encode it with the task's domain")
    if not 0 <= value < k:
        raise outside(k)
    return value


def empty_cells(count: int, k: int) -> NDArray[np.unsignedinteger]:
    """Room for ``count`` cells in the byte order and width of reports."""
    return np.empty(count, dtype=f">u{report_size(k)}")


def to_reports(cells: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    """uint8[n, 1, report_size]: the bytes of ``empty_cells`` once filled, without a copy."""
    return cells.view(np.uint8).reshape(cells.shape[0], 1, cells.dtype.itemsize)


def check_shape(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same values, int64[n]. Raises INVALID for anything else."""
    if values.ndim != 1 or values.dtype != np.int64:
        raise invalid(
            "values to randomize are a one-dimensional array of int64 cells: encode them with the "
            "task's domain"
        )
    return values


def check_values(values: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The same values, int64[n] with 0 <= value < k. Raises INVALID otherwise, without naming a
    value.
    """
    check_shape(values)
    # As unsigned words negative cells are huge: one pass finds both kinds.
    if values.size and int(values.view(np.uint64).max()) >= k:
        raise outside(k)
    return values


def decode(reports: NDArray[np.uint8], k: int, size: int = 0) -> NDArray[np.unsignedinteger]:
    """The cells of uint8[rows, size], unchecked. ``size``: 1, 2 or 4 bytes; 0: ``report_size``.
    Raises INVALID for another shape.
    """
    size = size or report_size(k)
    if reports.ndim != 2 or reports.shape[1] != size or reports.dtype != np.uint8:
        raise invalid(f"reports are uint8[rows, {size}]")
    return np.ascontiguousarray(reports).view(f">u{size}")[:, 0]


def valid(reports: NDArray[np.uint8], k: int, size: int = 0) -> NDArray[np.bool_]:
    """bool[rows]: the reports that name one of the k cells. ``size`` as ``decode``."""
    cells = decode(reports, k, size)
    return (
        np.less(cells, k)
        if k < 1 << (8 * (size or report_size(k)))
        else np.ones(cells.shape[0], dtype=np.bool_)
    )


def tally(reports: NDArray[np.uint8], k: int, size: int = 0) -> Tally:
    """How often each of the k cells was reported. ``size`` as ``decode``. Raises INVALID if a row
    names no cell.
    """
    cells = decode(reports, k, size)
    counts = np.zeros(k, dtype=np.int64)
    for part in blocks(cells.shape[0], max(_TALLY_BLOCK, 4 * k)):
        named = cells[part]
        if int(named.max()) >= k:  # before bincount, which would make room for it
            raise invalid(
                "a report names no cell of the domain: keep only the rows that valid() accepts"
            )
        counts += np.bincount(named, minlength=k)
    return Tally(counts, cells.shape[0])


def counts_of(tally: Tally, k: int) -> NDArray[np.float64]:
    """The tally's counts as float64[k]. Raises INVALID for another number of cells."""
    if tally.counts.size != k:
        raise invalid(
            f"the tally has {tally.counts.size} cells and the mechanism {k}: it belongs to another "
            "task"
        )
    return tally.counts.astype(np.float64)


def unbiased(
    counts: NDArray[np.float64], rows: int, p: float, q: float, gap: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(devices per cell, standard errors), float64[k], from how often each cell was reported.

    A device whose value is v reports v with probability p, any other device reports v with
    probability q; ``gap`` is p - q, passed apart because the caller has it without cancellation.
    With n = rows and f the cell's true share (Wang, Blocki, Li, Jha 2017, "Locally differentially
    private protocols for frequency estimation", section 4):

        estimate = (count - n q) / (p - q)
        variance = n q (1 - q) / (p - q)^2 + n f (1 - p - q) / (p - q)
        (values fixed, coins random)

    The unknown f is replaced by its estimate, moved into [0, 1] for the variance alone.
    """
    values = (counts - rows * q) / gap
    share = np.clip(values / max(rows, 1), 0.0, 1.0)
    variance = rows * (q * (1.0 - q) / gap**2 + share * ((1.0 - p - q) / gap))
    return values, np.sqrt(np.maximum(variance, 0.0))


def estimated(
    labels: tuple[str, ...], counts: NDArray[np.float64], rows: int, p: float, q: float, gap: float
) -> Estimate:
    """Numbers of devices, one per label: values and standard errors of ``unbiased``, with the score
    intervals of ``intervals``.
    """
    return Estimate(labels, *unbiased(counts, rows, p, q, gap), *of_counts(counts, rows, p, q, gap))


def expected(
    counts: NDArray[np.int64], size: int, p: float, q: float, gap: float
) -> NDArray[np.float64]:
    """float64[size]: the standard errors of ``unbiased`` over the coins when ``counts``[v] of the
    devices hold cell v; p, q, gap as there.

    A cell is the sum of one Bernoulli(p) per device that holds it and one Bernoulli(q) per other
    device, all independent:

        variance = (f n p (1 - p) + (1 - f) n q (1 - q)) / (p - q)^2

    Raises INVALID for another number of cells.
    """
    holders = check_counts(counts, size).astype(np.float64)
    others = float(holders.sum()) - holders
    deviations: NDArray[np.float64] = (
        np.sqrt(holders * (p * (1.0 - p)) + others * (q * (1.0 - q))) / gap
    )
    return deviations


def expected_of(
    counts: NDArray[np.int64], size: int, p: float, q: float, gap: float, cell: int
) -> float:
    """``expected`` of one cell, to the bit: numbers of devices are exact in floats."""
    rows, holders = float(check_counts(counts, size).sum()), float(counts[cell])
    variance = holders * (p * (1.0 - p)) + (rows - holders) * (q * (1.0 - q))
    return math.sqrt(variance) / gap


def check_counts(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The same numbers of devices, int64[size] >= 0. Raises INVALID otherwise."""
    if counts.shape != (size,) or counts.dtype != np.int64 or (counts < 0).any():
        raise invalid(
            f"counts are int64[{size}], the numbers of devices that hold each cell: none below 0"
        )
    return counts
