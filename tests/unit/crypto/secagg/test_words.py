"""Words of a sum: residues and signed numbers, and check words that no wrong sum passes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.crypto.secagg import pads
from shoal.crypto.secagg.words import append_checks, check_constants, decode_signed, verify_checks
from shoal.errors import Kind, ShoalError
from shoal.secagg import CHECK_WORDS
from tests.cases import for_each

ROUND = hashlib.sha256(b"round").digest()


def masked_sum(bits: int, devices: int, *, defect: str = "") -> NDArray[np.unsignedinteger]:
    """The sum of ``devices`` vectors with pads of neighbours on a ring, and of self masks that are
    removed; one defect at one device.
    """
    word = pads.WORD[bits]
    constants = check_constants(ROUND, bits)
    rng = np.random.default_rng(1)
    rows = [append_checks(rng.integers(-50, 50, 20), constants, bits) for _ in range(devices)]
    for i in range(devices):
        key = hashlib.sha512(b"pad %d" % i).digest()[:48]
        pad = np.zeros(len(rows[0]), word)
        pads.apply(pad, key, 1)
        other = pad
        if i == 0:
            other = {
                "missing": pad * 0,
                "doubled": pad + pad,
                "sign": 0 - pad,
                "byte order": pad.byteswap().view(word),
                "shifted": np.roll(pad, 1),
                "another pad": pad + np.arange(len(pad), dtype=word) * word.type(2**15 + 1),
            }.get(defect, pad)
        rows[i] = rows[i] + pad
        rows[(i + 1) % devices] = rows[(i + 1) % devices] - other.astype(word)
    if defect == "row missing":
        rows.pop()
    if defect == "row doubled":
        rows.append(rows[0])
    if defect == "vector big-endian":
        rows[0] = rows[0].byteswap().view(word)
    total: NDArray[np.unsignedinteger] = np.sum(np.stack(rows), axis=0, dtype=word)
    return total


@for_each("bits", CHECK_WORDS)
@for_each("devices", [3, 10, 257])
def test_right_sums_pass(bits: int, devices: int) -> None:
    total, constants = masked_sum(bits, devices), check_constants(ROUND, bits)
    assert verify_checks(total, devices, constants)
    rng = np.random.default_rng(1)
    expected = sum(rng.integers(-50, 50, 20) for _ in range(devices))
    assert decode_signed(total[: -len(constants)]).tolist() == np.asarray(expected).tolist()


@for_each("bits", CHECK_WORDS)
@for_each(
    "defect",
    [
        "missing",
        "doubled",
        "sign",
        "byte order",
        "shifted",
        "another pad",
        "row missing",
        "row doubled",
        "vector big-endian",
    ],
)
@for_each("devices", [3, 10, 257])
def test_wrong_sums_are_caught(bits: int, defect: str, devices: int) -> None:
    """Pitfalls 3 and 4: a pad too few, twice, with the wrong sign or byte order; a vector of a set
    that was not agreed on.
    """
    total = masked_sum(bits, devices, defect=defect)
    assert not verify_checks(total, devices, check_constants(ROUND, bits))
    if defect == "row missing":
        assert not verify_checks(total, devices - 1, check_constants(ROUND, bits))


@pytest.mark.parametrize("bits", CHECK_WORDS)
def test_every_word_is_compared(bits: int) -> None:
    """Planted: only the first word compared, or np.any for np.all -> fails. Another round's
    constants do not fit either.
    """
    constants = check_constants(ROUND, bits)
    total = append_checks(np.zeros(3, np.int64), constants, bits) * pads.WORD[bits].type(9)
    assert verify_checks(total, 9, constants)
    for place in range(3, len(total)):
        wrong = total.copy()
        wrong[place] += 1
        assert not verify_checks(wrong, 9, constants)
    for devices in (0, -1, 8, 10):
        assert not verify_checks(total, devices, constants)
    assert not verify_checks(total, 9, check_constants(ROUND[::-1], bits))
    assert not verify_checks(total[-1:], 9, constants)
    assert not verify_checks(total.astype(np.uint8), 9, constants)
    assert not verify_checks(total.reshape(1, -1), 9, constants)
    # modulo 2^w: beyond the width the count is not told apart, which rounds never reach
    count = (1 << bits) + 9
    assert verify_checks(total, count, constants) or bits == 64


@pytest.mark.parametrize("bits", CHECK_WORDS)
def test_constants(bits: int) -> None:
    """Known answers, of 64 bits or more together, 1 first and all odd: a wrong count m' of vectors
    gives m' - m times an odd number.
    """
    constants = check_constants(ROUND, bits)
    assert len(constants) * bits >= 64
    assert constants[0] == 1
    assert all(int(one) % 2 for one in constants)
    digest = hashlib.sha256(b"shoal/v1/secagg/checks\x00" + bytes([bits]) + ROUND).digest()
    width = bits // 8
    assert constants[1:].tolist() == [
        int.from_bytes(digest[i * width : (i + 1) * width], "little") | 1
        for i in range(1, len(constants))
    ]
    assert constants.dtype == pads.WORD[bits]
    assert constants.flags.writeable


def test_signed_words_go_there_and_back() -> None:
    """All residues, negative numbers and those that wrap. Planted: clipping instead of wrapping ->
    fails.
    """
    values = np.array(
        [0, 1, -1, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 12345678901],
        np.int64,
    )
    for bits in CHECK_WORDS:
        words = append_checks(values, check_constants(ROUND, bits), bits)
        assert words.dtype == pads.WORD[bits]
        assert words.flags.c_contiguous
        assert words.flags.writeable
        back = decode_signed(words[: len(values)])
        assert back.dtype == np.int64
        assert [(int(a) - int(b)) % (1 << bits) for a, b in zip(back, values, strict=True)] == [
            0
        ] * len(values)
        assert all(-(1 << bits - 1) <= int(one) < 1 << bits - 1 for one in back)


@pytest.mark.parametrize("bits", CHECK_WORDS)
def test_the_largest_sums_are_read_back(bits: int) -> None:
    most = (1 << bits - 1) - 1  # what shoal.mechanisms.noise.width lets a sum be
    edges = np.array([most, -most, -most - 1], np.int64)
    words = (edges.view(np.uint64) & np.uint64((1 << bits) - 1)).astype(pads.WORD[bits])
    assert decode_signed(words).tolist() == edges.tolist()


def test_arrays_that_do_not_fit() -> None:
    constants, vector = check_constants(ROUND, 32), np.zeros(4, np.int64)
    bad: list[Callable[[], object]] = [
        lambda: append_checks(vector.astype(np.int32), constants, 32),
        lambda: append_checks(vector.reshape(2, 2), constants, 32),
        lambda: append_checks(vector, constants, 16),
        lambda: append_checks(vector, constants[:1], 32),
        lambda: append_checks(vector, constants, 24),
        lambda: check_constants(ROUND, 8),
        lambda: decode_signed(vector),  # type: ignore[arg-type]
        lambda: decode_signed(np.zeros((2, 2), np.uint32)),
    ]
    for call in bad:
        with pytest.raises(ShoalError) as caught:
            call()
        assert caught.value.kind is Kind.INVALID
