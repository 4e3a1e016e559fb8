"""Reports that mark cells of k: bitmaps of ceil(k / 8) bytes, cell i is bit 7 - i % 8 of byte i // 8, the bits after cell k - 1 are 0.

Here for whole batches at the analyzer: which cells were marked how often, without unpacking the bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.mechanisms.base import invalid
from shoal.mechanisms.sampling import blocks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LANE = 255  # ones that a byte can count
_WORDS = 32_768  # words of a block: 256 KiB
_ONES = 0x0101_0101_0101_0101


def report_size(k: int) -> int:
    """Bytes of a bitmap of k cells."""
    return -(-k // 8)


def check_reports(reports: NDArray[np.uint8], k: int) -> NDArray[np.uint8]:
    """The same reports, uint8[rows, report_size], contiguous. Raises INVALID for another shape."""
    import numpy as np

    size = report_size(k)
    if reports.ndim != 2 or reports.shape[1] != size or reports.dtype != np.uint8:
        raise invalid(f"reports are uint8[rows, {size}]")
    return np.ascontiguousarray(reports)


def padded_right(reports: NDArray[np.uint8], k: int) -> NDArray[np.bool_]:
    """bool[rows]: the reports whose bits after cell k - 1 are 0."""
    import numpy as np

    spare = (1 << (8 * report_size(k) - k)) - 1
    return np.equal(check_reports(reports, k)[:, -1] & np.uint8(spare), 0)


def marked(reports: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """int64[rows]: how many bits of each report are set, spare ones included."""
    import numpy as np

    rows = check_reports(reports, k)
    counts = np.empty(rows.shape[0], dtype=np.int64)
    for part in blocks(rows.shape[0], max(1, 8 * _WORDS // rows.shape[1])):
        np.add.reduce(np.bitwise_count(rows[part]), axis=1, dtype=np.int64, out=counts[part])
    return counts


def column_counts(reports: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """int64[k]: in how many reports each cell is marked. Spare bits are not looked at.

    Eight reports are ``report_size`` 64-bit words. A word shifted and masked is eight bytes of 0 or 1, and up to 255 of them add up
    without a carry from byte to byte: eight columns at once, in the machine's own words, whatever their byte order.
    """
    import numpy as np

    rows, size = check_reports(reports, k), report_size(k)
    whole = rows.shape[0] // 8 * 8
    rest = np.zeros((8, size), dtype=np.uint8)
    rest[: rows.shape[0] - whole] = rows[whole:]
    counts = np.zeros((size, 8), dtype=np.int64)
    for eights in (rows[:whole], rest):
        words = eights.reshape(-1).view(np.uint64).reshape(-1, size)
        full = words.shape[0] // _LANE * _LANE
        for sheaves in (words[:full].reshape(-1, _LANE, size), words[full:].reshape(1, -1, size)):
            for part in blocks(sheaves.shape[0], max(1, _WORDS // (_LANE * size))):
                for bit in range(8):
                    sums = np.add.reduce((sheaves[part] >> np.uint64(7 - bit)) & np.uint64(_ONES), axis=1)
                    counts[:, bit] += sums.view(np.uint8).reshape(-1, size).sum(axis=0, dtype=np.int64)
    return counts.reshape(-1)[:k]
