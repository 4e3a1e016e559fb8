"""The Walsh-Hadamard transform of counts, in integers: what the estimates of all Hadamard
randomizers are read from.

Entry x of the transform of c is the sum over l of c[l] (-1)^popcount(l & x). It is its own inverse
but for the factor ``size``.
"""

from __future__ import annotations

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import invalid
from shoal.mechanisms.parts.sampling import blocks

_BLOCK = 32_768  # numbers: 256 KiB, so that all steps of a block stay in cache


def order(k: int) -> int:
    """m: the least number of bits, at least 1, such that k <= 2^m."""
    return max(1, (k - 1).bit_length())


def walsh_hadamard(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[count, size] of int64[count, size], each row by itself; ``size`` a power of two. Exact
    where the |values| of a row add up to less than 2^63.

    size log2(size) additions per row. A row is laid out as a matrix whose columns are transformed,
    and then its rows: numpy then runs along memory at every step, in blocks that fit a cache.
    Raises INVALID for another shape.
    """
    if (
        values.ndim != 2
        or values.dtype != np.int64
        or values.shape[1] < 1
        or values.shape[1] & (values.shape[1] - 1)
    ):
        raise invalid(
            "a Walsh-Hadamard transform wants int64[count, size] with size a power of two"
        )
    count, size = values.shape
    high = 1 << (size.bit_length() - 1) // 2
    low = size // high
    first = _along_first(values.reshape(count, high, low).transpose(1, 0, 2)).reshape(
        high, count, low
    )
    second = _along_first(first.transpose(2, 1, 0)).reshape(low, count, high)
    return second.transpose(1, 2, 0).reshape(count, size)


def _along_first(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[size, others]: the transform along the first axis of int64[size, ...]."""
    size = values.shape[0]
    flat = np.array(values, order="C").reshape(size, -1)  # a copy: it is worked on in place
    for part in blocks(flat.shape[1], max(1, _BLOCK // size)):
        block = np.ascontiguousarray(flat[:, part])
        step = 1
        while step < size:
            pairs = block.reshape(size // (2 * step), 2, -1)
            upper, lower = pairs[:, 0], pairs[:, 1]
            total = upper + lower
            np.subtract(upper, lower, out=lower)
            upper[...] = total
            step *= 2
        flat[:, part] = block
    return flat
