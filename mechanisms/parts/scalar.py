"""One device's draw without numpy: the same words, the same decisions and so the same bytes as the
draws for whole arrays.

``sampling`` and ``cells`` do for n devices what is done here for one. A device draws once per
window, and numpy would cost it more memory than everything else it keeps. Each function asks the
entropy for what its counterpart asks for at n = 1, in the same order, so that ``randomize_one(v)``
and ``randomize([v])[0]`` are one report under one stream of random words (the conformance suite
compares them). A Bernoulli draw is ``shoal.entropy.bernoulli``. Which words are drawn, and how
many, never depends on a private value.
"""

from __future__ import annotations

from typing import Protocol

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import invalid, outside

_WORD = 32  # bits
_MOST = 1 << _WORD


class DrawsArrays(Protocol):
    """What ``one_by_array`` needs of a mechanism."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]: ...


def one_by_array(mechanism: DrawsArrays, value: int, entropy: Entropy) -> tuple[bytes, ...]:
    """``randomize_one`` of a mechanism that has no draw of its own for one device: ``randomize`` at
    n = 1. Loads numpy.

    Raises INVALID as ``randomize`` does.
    """
    if not -(1 << 63) <= check_int(value) < 1 << 63:
        raise invalid("a value to randomize lies outside 64 bits: encode it with the task's domain")
    (report,) = mechanism.randomize(np.array([value], dtype=np.int64), entropy)
    return tuple([message.tobytes() for message in report])


def check_int(value: int) -> int:
    """The same value, an int and no bool. Raises INVALID otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid("a value to randomize is one int, a cell: encode it with the task's domain")
    return value


def check_value(value: int, k: int) -> int:
    """The same value, 0 <= value < k. Raises INVALID otherwise, without naming it."""
    if not 0 <= check_int(value) < k:
        raise outside(k)
    return value


def report_size(k: int) -> int:
    """Bytes of a report that names one of k cells: 1 for k <= 256, 2 for k <= 65,536, else 4."""
    return 1 if k <= 1 << 8 else 2 if k <= 1 << 16 else 4


def to_report(cell: int, k: int) -> tuple[bytes]:
    """The one message of a report that names ``cell`` of k."""
    return (cell.to_bytes(report_size(k), "big"),)


def uniform_below(bound: int, entropy: Entropy) -> int:
    """Exactly uniform on [0, bound), 1 <= bound <= 2^32, from 32-bit words
    (``sampling.uniform_below``). Raises INVALID for another bound.

    Not ``shoal.entropy.uniform_below``, which draws other words: a report would not be the one that
    ``randomize`` draws.
    """
    if not 1 <= bound <= _MOST:
        raise invalid(f"a uniform draw wants a bound from 1 to 2^32, got {bound}")
    refused = _MOST % bound
    while True:
        product = int.from_bytes(entropy.bytes(_WORD // 8), "little") * bound
        if product % _MOST >= refused:
            return product >> _WORD
