"""Words of a masked vector modulo 2^w, and check words that show whether a sum is right.

How wide a word has to be so that a sum never wraps unseen: ``shoal.mechanisms.noise.width``.

**Check words.** Behind the vector stand CHECK_WORDS words in which every device puts the same
public constants. In a right sum of m vectors they are m times the constants: the first constant is
1 and so counts the vectors, the others are odd numbers from SHA-256. A pad that is missing,
doubled, of a wrong sign or of wrong byte order leaves a pad of uniform words in the sum: it passes
with 2^-64 or less, because 64 bits or more are checked. A vector too many or too few is caught
always (below 2^w vectors). Check words say nothing about devices that lie about their vectors.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

from shoal.arrays import NDArray, np
from shoal.crypto.secagg.pads import WORD, zeros
from shoal.errors import Kind, ShoalError
from shoal.secagg import CHECK_WORDS

_BLOCK = 1 << 16  # words that are narrowed at a time
WordArray: TypeAlias = "NDArray[np.unsignedinteger[Any]]"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)


def check_constants(label: bytes, bits: int) -> WordArray:
    """CHECK_WORDS[bits] public constants: 1, then odd words from SHA-256("shoal/v1/secagg/checks"
    0x00 u8 bits, label), little-endian.

    ``label``: the round id's (or, in helper mode, the task id's and window's) bytes. Raises INVALID
    for another number of bits.
    """
    _require(bits in WORD, "a word has 16, 32 or 64 bits")
    digest = hashlib.sha256(b"shoal/v1/secagg/checks\x00" + bytes((bits,)) + label).digest()
    constants: WordArray = np.frombuffer(digest, WORD[bits], CHECK_WORDS[bits]).copy()
    constants |= 1
    constants[0] = 1
    return constants


def append_checks(vector: NDArray[np.int64], constants: WordArray, bits: int) -> WordArray:
    """A fresh array: the int64 vector modulo 2^bits, then the constants, as little-endian words of
    ``bits`` bits.

    Raises INVALID for a vector of another shape or type, or constants of another width or number.
    """
    _require(bits in WORD, "a word has 16, 32 or 64 bits")
    _require(
        vector.ndim == 1 and vector.dtype == np.int64,
        "a vector to be summed is one-dimensional, of 64-bit integers",
    )
    fits = constants.dtype == WORD[bits] and constants.shape == (CHECK_WORDS[bits],)
    _require(fits, f"{CHECK_WORDS[bits]} check words of {bits} bits are wanted")
    words: WordArray = zeros(len(vector) + len(constants), WORD[bits])
    words[: len(vector)] = vector.view(np.uint64)  # the low bits: modulo 2^bits
    words[len(vector) :] = constants
    return words


def copy_words(vector: NDArray[Any], words: WordArray) -> None:
    """Write int64[n] modulo 2^w, or words of w bits as they are, into words[n]."""
    words[:] = vector.view(np.uint64) if vector.dtype == np.int64 else vector


def narrow(vector: NDArray[np.int64], bits: int) -> WordArray:
    """The int64 vector modulo 2^bits, in its own memory, which it gives up: ``vector`` and whatever
    it is a view of must not be looked at any more.

    So a long vector is at no time held twice. Raises INVALID for another number of bits.
    """
    _require(bits in WORD, "a word has 16, 32 or 64 bits")
    memory, size = vector.view(np.uint8), len(vector)
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    del vector
    held, words = memory.view(np.uint64)[:size], memory.view(WORD[bits])[:size]
    for start in range(0, size, _BLOCK):  # what is written lies before what is still to be read
        words[start : start + _BLOCK] = held[start : start + _BLOCK].copy()
    del held, words
    try:
        memory.resize(-(-size * bits // 64), refcheck=False)
    except ValueError:  # it belongs to somebody else: a view of its front does as well
        return memory.view(WORD[bits])[:size].copy()
    narrowed: WordArray = memory.view(WORD[bits])[:size]
    return narrowed


def verify_checks(sum_words: WordArray, devices: int, constants: WordArray) -> bool:
    """Whether the last words of an unmasked sum are those of exactly ``devices`` vectors, modulo
    2^w. Exact; all words are compared.

    ``sum_words``: the vector and its check words, in the constants' dtype. False for an array too
    short, of another type, or no devices.
    """
    if (
        sum_words.ndim != 1
        or sum_words.dtype != constants.dtype
        or len(sum_words) < len(constants)
        or devices < 1
    ):
        return False
    bits = 8 * constants.dtype.itemsize
    check_words = sum_words[len(sum_words) - len(constants) :].tolist()
    return bool(
        check_words == [devices * constant % (1 << bits) for constant in constants.tolist()]
    )


def decode_signed(words: WordArray) -> NDArray[np.int64]:
    """Words of 16, 32 or 64 bits read as two's complement, as a fresh int64 array of the same
    length.

    Pass the vector's words alone: ``words[:-len(constants)]``. Raises INVALID for another type.
    """
    _require(
        words.ndim == 1 and words.dtype in WORD.values(),
        "the words of a sum are one-dimensional, of 16, 32 or 64 bits",
    )
    return words.view(f"<i{words.dtype.itemsize}").astype(np.int64)
