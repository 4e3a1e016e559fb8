"""Exact draws for whole arrays: every probability is an integer out of a power of two, and no draw
has modulo bias.

Blocks of ``BLOCK`` values keep the random words in cache (an unblocked numpy pipeline is bound by
page faults). Which words are drawn, and how many, never depends on a private value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import invalid

BLOCK = 16_384  # values: 128 KiB of 64-bit words
_MOST = 1 << 32


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices that cover range(count) in order, ``size`` long but for the last."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def bernoulli(thresholds: NDArray[np.uint64], entropy: Entropy) -> NDArray[np.bool_]:
    """bool[n]: entry i is True with probability exactly thresholds[i] / 2^64. Draws n words."""
    count = thresholds.shape[0]
    if count <= BLOCK:
        return np.less(entropy.words(count), thresholds)
    result = np.empty(count, dtype=np.bool_)
    for part in blocks(count):
        np.less(entropy.words(part.stop - part.start), thresholds[part], out=result[part])
    return result


def uniform_below(bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """int64[count], each exactly uniform on [0, bound), 1 <= bound <= 2^32. Raises INVALID for
    another bound.

    Multiply and shift with rejection (Lemire, "Fast random integer generation in an interval",
    2019): a 32-bit word w gives floor(w * bound / 2^32), refused when the low half of the product
    is below 2^32 mod bound; each result then keeps exactly floor(2^32 / bound) words.
    """
    if not 1 <= bound <= _MOST:
        raise invalid(f"a uniform draw wants a bound from 1 to 2^32, got {bound}")
    if count <= BLOCK:
        return _uniform_block(bound, count, entropy)
    result = np.empty(count, dtype=np.int64)
    for part in blocks(count):
        result[part] = _uniform_block(bound, part.stop - part.start, entropy)
    return result


def _uniform_block(bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    result, accepted = multiply_shift(_words32(count, entropy), bound)
    while not accepted.all():
        again = np.flatnonzero(~accepted)
        result[again], accepted[again] = multiply_shift(_words32(again.size, entropy), bound)
    return result


def multiply_shift(
    words: NDArray[np.uint32], bound: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(floor(words * bound / 2^32), which words are accepted). Pure: tests enumerate it."""
    product = words.astype(np.uint64) * np.uint64(bound)
    low = product.astype(np.uint32)  # the product modulo 2^32
    return (product >> np.uint64(32)).view(np.int64), low >= np.uint32(_MOST % bound)


def _words32(count: int, entropy: Entropy) -> NDArray[np.uint32]:
    return np.frombuffer(entropy.bytes(4 * count), dtype="<u4").astype(np.uint32, copy=False)


def normals(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """float64[count]: standard normal numbers (Box and Muller 1958), rounded. For figures: noise
    that protects anybody is drawn as integers, exactly.
    """
    words = np.asarray(entropy.words(2 * count), dtype=np.uint64)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    normal: NDArray[np.float64] = np.sqrt(-2.0 * np.log(uniform[:count])) * np.cos(
        2.0 * math.pi * uniform[count:]
    )
    return normal
