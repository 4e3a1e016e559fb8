"""Unary encoding: its integers, its settings, its estimate and its two draws."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, YesNo
from shoal.entropy import SeededEntropy, SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Tally, create, design
from shoal.mechanisms.categories.unary import (
    UnaryEncoding,
    law,
    least_one_if_zero,
    least_symmetric,
    ratio,
)
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Tape

WORDS = 1 << 64
LABELS = ("a", "b", "no answer")
VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "mechanisms" / "unary.json"
ENDS = (
    (WORDS - 1, 1),
    (2, 1),
    (WORDS - 1, WORDS - 2),
    (WORDS // 2 + 1, WORDS // 2),
    (WORDS - 1, WORDS // 2),
    (WORDS // 2, 1),
)


class Stream:
    """The bytes of one string in any portions: what many devices draw, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def bytes(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self._data)
        return self._data[self.at - count : self.at]

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


def labels(k: int) -> tuple[str, ...]:
    return tuple(map(str, range(k)))


# --- the integers ---------------------------------------------------------------------------------


def test_the_settings_of_the_field() -> None:
    """OUE first. Planted: another order, or another default -> this fails."""
    settings = [setting.name for setting in REGISTRY["unary"].settings(YesNo())]
    assert settings == ["oue", "sue", "p=0.6", "p=0.75", "p=0.9", "p=0.97", "p=0.99", "p=0.999"]
    assert design("unary", YesNo(), 1.0) == design("unary", YesNo(), 1.0, "oue")


@for_each("epsilon0", [0.1, 1.0, 4.0, 10.0])
def test_the_probabilities_are_those_of_the_papers(epsilon0: float) -> None:
    """OUE: p = 1/2, q = 1 / (e^eps + 1); SUE: p = s / (s + 1) = 1 - q, s = e^(eps / 2); free p: q
    solves p (1 - q) = e^eps q (1 - p).

    Planted: e^eps for the bit and not for the report (s = e^eps) -> this fails.
    """
    domain, grown = Categories(("a", "b", "c")), math.exp(epsilon0)
    oue = design("unary", domain, epsilon0)
    assert oue.get("one_if_one") == WORDS // 2
    assert oue.get("one_if_zero") / WORDS == pytest.approx(1 / (grown + 1), rel=1e-12)
    sue = design("unary", domain, epsilon0, "sue")
    assert sue.get("one_if_one") + sue.get("one_if_zero") == WORDS
    assert sue.get("one_if_one") / WORDS == pytest.approx(
        math.sqrt(grown) / (math.sqrt(grown) + 1), rel=1e-12
    )
    for p in (0.6, 0.75, 0.9, 0.97, 0.99, 0.999):
        free = design("unary", domain, epsilon0, f"p={p}")
        assert free.get("one_if_one") / WORDS == pytest.approx(p, rel=1e-15)
        assert free.get("one_if_zero") / WORDS == pytest.approx(
            p / (p + grown * (1 - p)), rel=1e-12
        )


@for_each("epsilon0", [1e-9, 1e-3, 1.0, 5.0, 20.0, 40.0])
def test_one_step_less_noise_would_break_the_promise(epsilon0: float) -> None:
    """Planted: the threshold rounded down from a float formula -> the first assertion fails."""
    for one in (WORDS // 2, 3 * (WORDS // 4), int(Fraction("0.999") * WORDS), WORDS - 1, 12_345):
        if epsilon0_upper(law(3, one, one - 1)) > epsilon0:
            continue  # not even the finest step: 1 out of 12,345
        zero = least_one_if_zero(one, epsilon0)
        assert epsilon0_upper(law(3, one, zero)) <= epsilon0
        assert zero == 1 or epsilon0_upper(law(3, one, zero - 1)) > epsilon0
    zero = least_symmetric(epsilon0)
    assert epsilon0_upper(law(3, WORDS - zero, zero)) <= epsilon0
    assert zero == 1 or epsilon0_upper(law(3, WORDS - zero + 1, zero - 1)) > epsilon0


def test_an_epsilon0_that_p_can_not_express_is_refused() -> None:
    """p so small that q one step below it already has a larger epsilon0."""
    with pytest.raises(ShoalError, match="64-bit") as caught:
        least_one_if_zero(12_345, 1e-9)
    assert caught.value.kind is Kind.INVALID


def test_beyond_64_bits_the_finest_noise_is_taken() -> None:
    assert least_one_if_zero(WORDS // 2, 100.0) == least_symmetric(100.0) == 1
    assert ratio(WORDS // 2, 1) == WORDS - 1
    assert ratio(WORDS - 1, 1) == (WORDS - 1) ** 2


@for_each("k", [2, 3, 5, 1024])
@for_each("one, zero", [*ENDS, (WORDS // 3, WORDS // 7)])
def test_the_search_uses_the_ratio_of_the_law(k: int, one: int, zero: int) -> None:
    """And the law claims a third answer only where there is one. Planted: P / Q alone, or its
    square, for the ratio; the law of k = 3 for every k -> this fails.
    """
    privacy = UnaryEncoding(labels(k), one, zero).privacy()
    assert ratio(one, zero) == law(k, one, zero).max_ratio == privacy.max_ratio
    assert (privacy.third is None) == (k == 2)


@for_each("one, zero", [(5, 5), (5, 6), (5, 0), (WORDS, 5), (0, 0)])
def test_other_probabilities_are_refused(one: int, zero: int) -> None:
    with pytest.raises(ShoalError, match="one_if_zero") as caught:
        UnaryEncoding(LABELS, one, zero)
    assert caught.value.kind is Kind.INVALID
    if one < WORDS:
        with pytest.raises(ShoalError, match="unary"):
            create(MechanismSpec.of("unary", k=2, one_if_one=one, one_if_zero=zero), YesNo())


def test_k_must_be_the_domain_s_size_and_two_at_least() -> None:
    with pytest.raises(
        ShoalError, match='"k" is 3, but the domain has 2 cells: set k = 2'
    ) as caught:
        create(MechanismSpec.of("unary", k=3, one_if_one=5, one_if_zero=4), YesNo())
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match='"k" is 1'):
        UnaryEncoding(("a",), 5, 4)


def test_as_many_cells_as_a_report_has_bits() -> None:
    """Planted: the limit of cells for the limit of bytes -> this fails."""
    most = Categories(labels(32_767))
    mechanism = create(design("unary", most, 4.0), most)
    assert mechanism.report_size == 4_096
    assert mechanism.randomize_one(32_767, SeededEntropy(1)) == (
        mechanism.randomize(np.array([32_767]), SeededEntropy(1)).tobytes(),
    )
    more: Domain = Categories(labels(32_768))
    spec = MechanismSpec.of("unary", k=32_769, one_if_one=5, one_if_zero=4)
    for act in (
        lambda: design("unary", more, 4.0),
        lambda: create(spec, more),
        lambda: REGISTRY["unary"].settings(more),
    ):
        with pytest.raises(ShoalError, match="32768 cells at most") as caught:
            act()
        assert caught.value.kind is Kind.INVALID


# --- the estimate ---------------------------------------------------------------------------------


def test_an_estimate_by_hand() -> None:
    """p = 3/4, q = 1/4, p - q = 1/2. 800 reports, 300 of "a": (300 - 200) * 2 = 200. Planted:
    clipped at 0 -> this fails.
    """
    mechanism = UnaryEncoding(LABELS, 3 * (WORDS // 4), WORDS // 4)
    estimate = mechanism.estimate(Tally(np.array([300, 600, 100]), 800))
    assert estimate.labels == LABELS
    assert estimate.values.tolist() == [200.0, 800.0, -200.0]
    # p (1 - p) = q (1 - q) = 3/16, over (1/2)^2.
    assert (estimate.stderr**2).tolist() == pytest.approx([600, 600, 600])


def test_standard_errors_by_hand() -> None:
    """p = 1/2, q = 1/8: holders add 1/4, others 7/64, over (3/8)^2. Values below 0 and above n err
    as 0 and n do.
    """
    mechanism = UnaryEncoding(LABELS, WORDS // 2, WORDS // 8)
    expected = [math.sqrt(held * 16 + (900 - held) * 7) / 3 for held in (300, 600, 0)]
    assert mechanism.expected_stderr(np.array([300, 600, 0])) == pytest.approx(expected)
    tally = Tally(np.array([225, 675, 40]), 900)  # (225 - 112.5) * 8 / 3 = 300; above n; below 0
    values = mechanism.estimate(tally)
    assert values.values == pytest.approx([300, 1_500, -580 / 3])
    assert values.stderr == pytest.approx(
        [math.sqrt(held * 16 + (900 - held) * 7) / 3 for held in (300, 900, 0)]
    )


@for_each("one, zero", [*ENDS, (WORDS // 2, WORDS // 8), (WORDS // 3, WORDS // 7)])
def test_the_expected_errors_are_those_of_all_coins(one: int, zero: int) -> None:
    """Three devices, every bit of every report, in rationals: the variance of each estimate is the
    square of the stated error to 1e-14, at the ends of the range too. Planted: p (1 - p) from
    floats, so that 1 - p = 2^-64 becomes 0; the variance as q (1 - q) and a difference, which
    cancels at (2^64 - 1, 2^63); p - q from floats -> each fails.
    """
    mechanism, gap = UnaryEncoding(LABELS, one, zero), Fraction(one - zero, WORDS)
    stated = [
        *mechanism.expected_stderr(np.array([2, 1, 0])),
        *mechanism.expected_stderr(np.array([0, 0, 3])),
    ]
    for cell, holders in enumerate((2, 1, 0, 0, 0, 3)):
        chances = [Fraction(one if device < holders else zero, WORDS) for device in range(3)]
        moments = [Fraction(0), Fraction(0)]
        for bits in itertools.product((0, 1), repeat=3):
            weight = math.prod(p if bit else 1 - p for bit, p in zip(bits, chances, strict=True))
            value = (sum(bits) - 3 * Fraction(zero, WORDS)) / gap
            moments = [moments[0] + weight * value, moments[1] + weight * value**2]
        assert moments[0] == holders
        with mpmath.workdps(60):
            exact = moments[1] - moments[0] ** 2
            assert stated[cell] == pytest.approx(
                float(mpmath.sqrt(mpmath.mpf(exact.numerator) / exact.denominator)), rel=1e-14
            )


@for_each(
    "counts",
    [np.array([1, 2]), np.array([1, 2, -1]), np.array([1.0, 2.0, 3.0]), np.array([[1, 2, 3]])],
)
def test_other_numbers_of_devices_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(ShoalError, match=r"int64\[3\]") as caught:
        UnaryEncoding(LABELS, 5, 4).expected_stderr(counts)
    assert caught.value.kind is Kind.INVALID


# --- the draws ------------------------------------------------------------------------------------


@for_each("k, count", [(3, 11_000), (100, 700), (1_000, 70), (1_024, 65), (20_000, 3)])
def test_devices_draw_one_after_the_other(k: int, count: int) -> None:
    """Over several blocks an array's reports are those that the devices would draw by themselves
    from the same stream.

    Planted: the bits of the block before left in the room of a shorter last block; the values of
    the first block for all -> fails.
    """
    mechanism = create(design("unary", domain := Categories(labels(k - 1)), 5.0, "p=0.9"), domain)
    data = SeededEntropy(f"stream {k}").bytes(8 * k * count)
    values = np.arange(count, dtype=np.int64) * 7 % k
    together, alone = Stream(data), Stream(data)
    reports = mechanism.randomize(values, together)
    assert [report.tobytes() for report in reports[:, 0]] == [
        mechanism.randomize_one(value, alone)[0] for value in values.tolist()
    ]
    assert together.at == alone.at == len(data)


@for_each("cell", range(9))
def test_every_bit_falls_at_its_own_threshold(cell: int) -> None:
    """One bit at a time takes the words around both thresholds, the others a word that gives 0.
    Planted: <= for <; the neighbour's threshold; the bits from the other end of the byte -> this
    fails.
    """
    one, zero = 3 * (WORDS // 4) + 1, WORDS // 3
    mechanism = UnaryEncoding(labels(9), one, zero)
    for at in range(9):
        threshold = one if at == cell else zero
        for word in (0, zero - 1, zero, zero + 1, one - 1, one, one + 1, WORDS - 1):
            words = [WORDS - 1] * 9
            words[at] = word
            tape = b"".join(w.to_bytes(8, "little") for w in words)
            expected = (int(word < threshold) << (15 - at)).to_bytes(2, "big")
            assert mechanism.randomize_one(cell, Tape(tape)) == (expected,)
            assert mechanism.randomize(np.array([cell]), Tape(tape)).tobytes() == expected


def test_frequencies_of_a_wide_report() -> None:
    """k = 1,000 and the system's entropy's own stream: ones at the true cells and at the others,
    each within 5 standard deviations (false alarm 6e-7 each). Planted: the true cells of the first
    block for every block -> far off.
    """
    mechanism = UnaryEncoding(labels(1_000), 9 * (WORDS // 10), WORDS // 50)
    count = size(2_000, 50_000)
    values = np.arange(count, dtype=np.int64) * 3 % 1_000
    bits = np.unpackbits(mechanism.randomize(values, SeededEntropy("wide"))[:, 0], axis=1)
    true = int(bits[np.arange(count), values].sum())
    others = int(bits.sum()) - true
    for seen, draws, p in ((true, count, 0.9), (others, 999 * count, 0.02)):
        assert abs(seen - draws * p) < 5 * math.sqrt(draws * p * (1 - p))


def test_two_batches_differ() -> None:
    mechanism, values = (
        UnaryEncoding(labels(1_000), WORDS // 2, WORDS // 4),
        np.zeros(50, dtype=np.int64),
    )
    first, second = (mechanism.randomize(values, SystemEntropy()) for _ in range(2))
    assert len({report.tobytes() for report in (*first, *second)}) == 100


def _written() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for case in json.loads(VECTORS.read_text())["cases"]:
        for report in case["reports"]:
            yield case, report


def test_the_vectors_follow_from_the_wire_document() -> None:
    """Each bit from its own word and threshold, as docs/WIRE.md says it, without our code: the file
    is right, not only kept.

    Planted: big-endian words; w <= T; bits from the other end of a byte, in the code that writes
    the file -> this fails.
    """
    seen = 0
    for case, report in _written():
        entropy, k = bytes.fromhex(report["entropy"]), case["cells"]
        expected = bytearray((k + 7) // 8)
        for at in range(k):
            word = sum(
                byte << (8 * place) for place, byte in enumerate(entropy[8 * at : 8 * at + 8])
            )
            if word < int(
                case["parameters"]["one_if_one" if at == report["cell"] else "one_if_zero"]
            ):
                expected[at // 8] |= 1 << (7 - at % 8)
        assert len(entropy) == 8 * k
        assert report["report"] == [expected.hex()]
        seen += 1
    assert seen >= 20
