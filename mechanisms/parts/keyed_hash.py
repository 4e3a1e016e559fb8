"""Hash functions that a task fixes for all its devices: from cells (integers below 2^62) to 2^bits
values, by a public seed.

Strongly universal ("pair multiply-shift": Dietzfelbinger, STACS 1996; Thorup, "High Speed Hashing
for Integers and Strings", 2015, section 3.3, vector multiply-shift): the cell is cut into two parts
x1, x2 below 2^31 and

    h(x) = ((a1 x1 + a2 x2 + b) mod 2^64) >> (64 - bits)

with uniform a1, a2, b below 2^64. For two different cells the pair of hashes is then exactly
uniform over its 4^bits values, as long as 64 >= 31 + bits - 1. Over the choice of a task's seed,
that is: for one seed all functions are fixed and public, and which cells collide is known to
everybody. Nothing about privacy is asked of them.

The coefficients of function ``index`` are the first three u64 (big-endian) of SHA-256("shoal keyed
hash 1" || seed u64be || index u64be).
"""

from __future__ import annotations

from shoal.arrays import NDArray, np
from shoal.digests import sha256

CELL_BITS = 62
MOST_BITS = 32
_PART = 31
_MASK = (1 << 64) - 1
_LABEL = b"shoal keyed hash 1"

Coefficients = tuple[int, int, int]


def coefficients(seed: int, index: int) -> Coefficients:
    """(a1, a2, b), u64 each, of function ``index`` of a task's ``seed``; both 0 to 2^64 - 1."""
    digest = sha256(_LABEL + seed.to_bytes(8, "big") + index.to_bytes(8, "big"))
    return (
        int.from_bytes(digest[:8], "big"),
        int.from_bytes(digest[8:16], "big"),
        int.from_bytes(digest[16:24], "big"),
    )


def hashed(cell: int, function: Coefficients, bits: int) -> int:
    """h(cell), 0 to 2^bits - 1, 1 <= bits <= 32, for a cell below 2^62."""
    a1, a2, b = function
    return ((a1 * (cell >> _PART) + a2 * (cell & ((1 << _PART) - 1)) + b) & _MASK) >> (64 - bits)


def hash_many(
    cells: NDArray[np.int64], functions: NDArray[np.uint64], bits: int
) -> NDArray[np.int64]:
    """``hashed`` for whole arrays that broadcast together: cells int64[...], functions uint64[...,
    3] as (a1, a2, b).
    """
    x = cells.astype(np.uint64)
    low = x & np.uint64((1 << _PART) - 1)
    # modulo 2^64 as uint64 is
    sums = functions[..., 0] * (x >> np.uint64(_PART)) + functions[..., 1] * low + functions[..., 2]
    return (sums >> np.uint64(64 - bits)).astype(np.int64)
