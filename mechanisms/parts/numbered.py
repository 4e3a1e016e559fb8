"""Reports that are one number below ``room``, unsigned and big-endian in the fewest bytes: their
bytes, and how often each was made.

For reports that pack several small draws into one number of up to 32 bits: an index, a column, a
sign. Where a report names a cell, in 1, 2 or 4 bytes: ``cells``.
"""

from __future__ import annotations

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Tally, invalid
from shoal.mechanisms.parts.sampling import blocks


def report_size(room: int) -> int:
    """Bytes of a report below ``room``, 2 to 2^32."""
    return -(-(room - 1).bit_length() // 8)


def decode(reports: NDArray[np.uint8], room: int) -> NDArray[np.uint32]:
    """The numbers of uint8[rows, report_size], unchecked. Raises INVALID for another shape."""
    size = report_size(room)
    if reports.ndim != 2 or reports.shape[1] != size or reports.dtype != np.uint8:
        raise invalid(f"reports are uint8[rows, {size}]")
    numbers = reports[:, 0].astype(np.uint32)
    for place in range(1, size):
        numbers <<= np.uint32(8)
        numbers |= reports[:, place]
    return numbers


def valid(reports: NDArray[np.uint8], room: int) -> NDArray[np.bool_]:
    """bool[rows]: the reports that are below ``room``."""
    return np.less(decode(reports, room), room)


def tally(reports: NDArray[np.uint8], room: int) -> Tally:
    """How often each number was reported. Raises INVALID if a row is not ``valid``."""
    numbers, counts = decode(reports, room), np.zeros(room, dtype=np.int64)
    for part in blocks(numbers.shape[0], max(65_536, 4 * room)):
        if int(numbers[part].max()) >= room:  # before bincount, which would make room for it
            raise invalid(
                f"a report is no number below {room}: keep only the rows that valid() accepts"
            )
        counts += np.bincount(numbers[part], minlength=room)
    return Tally(counts, numbers.shape[0])
