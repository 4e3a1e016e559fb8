"""Reports that are one bit per cell of k: their bytes, and how often each bit was set.

Shared by every single-message mechanism whose report is a set of cells. A report is ceil(k / 8)
bytes: cell i is bit 7 - i % 8 of byte i // 8 (the order of numpy's packbits, and of the bits of one
big-endian number), and the padding bits after cell k - 1 are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.arrays import NDArray, np
from shoal.limits import LIMITS
from shoal.mechanisms.base import Tally, invalid
from shoal.mechanisms.parts.sampling import blocks

MOST_CELLS = 8 * LIMITS.report_bytes  # that a report has a bit for
_FOLDS = 8  # rows are added in binary, 2^8 at most to one number: 9 bits per cell
_TALLY_BYTES = 262_144  # of reports at a time: they and their partial sums stay in cache


def check_k(name: str, k: int) -> None:
    """Raises INVALID unless the bits of ``k`` cells fit a report."""
    if k > MOST_CELLS:
        raise invalid(
            f"{name}: one bit for each of {k} cells is longer than a report of "
            f"{LIMITS.report_bytes} bytes: "
            f"ask for {MOST_CELLS} cells at most, or choose krr, local_hash or hadamard"
        )


def report_size(k: int) -> int:
    """Bytes of a report over k cells."""
    return -(-k // 8)


def pack(bits: Sequence[bool]) -> bytes:
    """The bitmap of one report, ``bits``[i] for cell i. Without numpy."""
    size, k = report_size(len(bits)), len(bits)
    number = int("".join(["01"[bit] for bit in bits]), 2)
    return (number << (8 * size - k)).to_bytes(size, "big")


def unpack(bitmap: bytes, k: int) -> list[bool] | None:
    """The bits that ``pack`` made a bitmap of; None for what is no bitmap of k cells. Without
    numpy.
    """
    size = report_size(k)
    if not isinstance(bitmap, bytes) or len(bitmap) != size:
        return None
    number = int.from_bytes(bitmap, "big")
    if number & ((1 << (8 * size - k)) - 1):
        return None
    return [bit == "1" for bit in f"{number >> (8 * size - k):0{k}b}"]


def check_shape(reports: NDArray[np.uint8], k: int) -> NDArray[np.uint8]:
    """The same reports, uint8[rows, report_size]. Raises INVALID for another shape."""
    size = report_size(k)
    if reports.ndim != 2 or reports.shape[1] != size or reports.dtype != np.uint8:
        raise invalid(f"reports are uint8[rows, {size}]")
    return reports


def valid(reports: NDArray[np.uint8], k: int) -> NDArray[np.bool_]:
    """bool[rows]: the reports whose padding bits are 0."""
    padding = np.uint8((1 << (-k % 8)) - 1)
    clean: NDArray[np.bool_] = (check_shape(reports, k)[:, -1] & padding) == 0
    return clean


def marked(reports: NDArray[np.uint8], k: int, cell: int) -> NDArray[np.bool_]:
    """bool[rows]: the reports in which the bit of ``cell`` is set."""
    set_bits: NDArray[np.bool_] = np.not_equal(
        check_shape(reports, k)[:, cell // 8] & np.uint8(128 >> cell % 8), 0
    )
    return set_bits


def tally(reports: NDArray[np.uint8], k: int) -> Tally:
    """How often each of the k cells' bits was set. Raises INVALID if a row has padding bits."""
    if not valid(reports, k).all():
        raise invalid(
            "a report has bits beyond the cells of the domain: keep only the rows that valid() "
            "accepts"
        )
    counts = np.zeros(k, dtype=np.int64)
    fold = 1 << _FOLDS
    for part in blocks(reports.shape[0], max(fold, _TALLY_BYTES // report_size(k) // fold * fold)):
        for weight, plane in enumerate(_sums(reports[part])):
            counts += np.unpackbits(plane, axis=1, count=k).sum(axis=0, dtype=np.int64) << weight
    return Tally(counts, reports.shape[0])


def _sums(reports: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """The reports' bits added over groups of 2^8 rows at most: plane j has bit j of every group's
    sum, in the place of the cell's bit.

    Half of the rows is added to the other half, all bits of a byte at once: the carry-save addition
    of processors. The sum of two numbers of j bits is j half and full adders, and each time there
    are half as many numbers, so a row costs few operations. Rows that are missing to a power of two
    are empty reports.
    """
    rows = reports.shape[0]
    group = min(1 << _FOLDS, 1 << (rows - 1).bit_length())
    if rows % group:
        filled = np.zeros((-(-rows // group) * group, reports.shape[1]), dtype=np.uint8)
        filled[:rows] = reports
        reports = filled
    planes = [reports]
    for _ in range(group.bit_length() - 1):
        half = planes[0].shape[0] // 2
        added = [planes[0][:half] ^ planes[0][half:]]
        carry = planes[0][:half] & planes[0][half:]
        for plane in planes[1:]:
            low, high = plane[:half], plane[half:]
            either, both = low ^ high, low & high
            added.append(either ^ carry)
            carry = both | (either & carry)
        planes = [*added, carry]
    return planes
