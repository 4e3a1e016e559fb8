"""Local hashing: its hash family, its counting, its integers and its estimate."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.categories.krr import KaryResponse, least_uniform
from shoal.mechanisms.categories.local_hash import (
    FAMILY,
    LocalHash,
    best_g,
    count_hits,
    hashed,
    law,
)
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Tape

WORDS = 1 << 64
POWERS = tuple(1 << bits for bits in range(1, 17))


def labels(k: int) -> tuple[str, ...]:
    return tuple(f"label {i}" for i in range(k))


# --- the hash family ------------------------------------------------------------------------------


def tops(x: int, width: int) -> NDArray[np.int64]:
    """int64[4^width]: ``hashed`` to all ``width`` bits under every (a, b); its upper bits are the
    hash to fewer.
    """
    a, b = np.divmod(np.arange(1 << (2 * width)), 1 << width)
    # ints or arrays of them, alike
    found: NDArray[np.int64] = hashed(a, b, x, width, width)  # type: ignore[arg-type, assignment]
    return found


def uneven(width: int, u: int, log2_g: int) -> list[tuple[int, int]]:
    """The pairs x < y of u bits whose hashes are not exactly uniform over all g^2 pairs, over every
    (a, b).
    """
    values = [tops(x, width) >> (width - log2_g) for x in range(1 << u)]
    return [
        (x, y)
        for x, y in itertools.combinations(range(1 << u), 2)
        if len(
            set(
                np.bincount((values[x] << log2_g) + values[y], minlength=1 << (2 * log2_g)).tolist()
            )
        )
        != 1
    ]


@for_each("width", range(1, size(6, 8) + 1))
def test_two_hashes_are_exactly_independent_and_uniform(width: int) -> None:
    """Dietzfelbinger's theorem, for every word length, key length and g that it allows: width >= u
    + log2 g - 1.

    Planted: a odd only, or b = 0 -> this fails; the low bits of the sum for its high ones -> this
    fails.
    """
    for log2_g in range(1, width + 1):
        assert uneven(width, min(width, width - log2_g + 1), log2_g) == []


@for_each("width", range(2, size(6, 7) + 1))
def test_with_one_bit_less_they_are_not(width: int) -> None:
    """At width = u + log2 g - 2 exactly the pairs that differ in the highest bit alone agree in a
    bit: the bound is sharp.
    """
    for log2_g in range(2, width + 1):
        u = width - log2_g + 2
        assert uneven(width, u, log2_g) == [(x, x + (1 << (u - 1))) for x in range(1 << (u - 1))]


def test_the_hash_of_three_cells_is_not_independent() -> None:
    """Why ``third`` is left out of the law: in arithmetic progression two hashes all but give the
    third.
    """
    values = [tops(x, 6) >> 4 for x in range(3)]
    triples = np.bincount((values[0] * 4 + values[1]) * 4 + values[2], minlength=64)
    assert triples.min() == 0


def test_the_hash_is_taken_of_words_of_32_bits() -> None:
    """By hand: (0xC0000001 * 3 + 0xFFFFFFFF) mod 2^32 = 0x40000002, of which the top 2 bits are 1,
    the top 16 0x4000.
    """
    assert hashed(0xC0000001, 0xFFFFFFFF, 3, 2) == 1
    assert hashed(0xC0000001, 0xFFFFFFFF, 3, 16) == 0x4000
    assert hashed(2**32 - 1, 2**32 - 1, 2**16 - 1, 16) == 2**16 - 1


def test_some_seeds_send_all_cells_to_one_value() -> None:
    """More than an ideal hash: about one in g (k - 1). There the least weight of the law is too
    small, which is the sound side.

    Over all seeds of 9 bits, g = 4, k = 8: the outputs that every input supports are counted, and
    the least weight of all outputs exceeds the stated one by theirs.
    """
    width, log2_g, k = 9, 2, 8
    values = np.stack([tops(x, width) >> (width - log2_g) for x in range(k)])
    together = Fraction(int((values == values[0]).all(axis=0).sum()), 1 << (2 * width))
    assert 0.9 < together * 4 * (k - 1) < 1.1
    uniform = 2**62
    stated, truth = law(k, 4, uniform), 4 * (WORDS - uniform) + uniform
    # per seed: one cell of four, where all agree
    exact = (1 - together / 4) * uniform * 4 + together * truth
    assert Fraction(sum(stated.least), stated.total) == Fraction(4 * uniform, 4 * WORDS)
    assert Fraction(sum(stated.least), stated.total) < exact / (4 * WORDS)


# --- reports --------------------------------------------------------------------------------------


@for_each("g", [2, 256, 512, 65_536])
def test_a_report_is_the_seed_and_a_cell(g: int) -> None:
    """Drawn in this order: the seed (a, b big-endian), the coin, the uniform cell. Planted: the
    coin first -> this fails.
    """
    mechanism = LocalHash(labels(1_000), g, 1 << 63)
    seed, bytes_of_cell = bytes.fromhex("c0000001ffffffff"), 1 if g <= 256 else 2
    cell = (0xC0000001 * 999 + 0xFFFFFFFF) % 2**32 * g // 2**32
    told = Tape(seed, (1 << 63).to_bytes(8, "little"), (7).to_bytes(4, "little"))
    assert mechanism.randomize_one(999, told) == (seed + cell.to_bytes(bytes_of_cell, "big"),)
    other = Tape(seed, ((1 << 63) - 1).to_bytes(8, "little"), (3 << 30).to_bytes(4, "little"))
    assert mechanism.randomize_one(999, other) == (
        seed + (3 * g // 4).to_bytes(bytes_of_cell, "big"),
    )
    assert told.done()
    assert other.done()
    assert mechanism.report_size == 8 + bytes_of_cell


@for_each(
    "k, g, rows",
    [
        (2, 2, 70_000),
        (16, 16, 33_000),
        (5, 65_536, 33_000),
        (1_024, 4, 300),
        (1_024, 4, 700),
        (300, 512, 2_500),
        (65_536, 1_024, 3),
    ],
)
def test_a_tally_counts_the_reports_that_support_each_cell(k: int, g: int, rows: int) -> None:
    """Against the definition in wide integers, by row and by cell, over blocks that are not full.

    Planted: cells counted from 1, by row or by cell; 2^s - 2 for the last hit, 2^s - 1 -> fails.
    """
    mechanism = LocalHash(labels(k), g, 1 << 62)
    reports = mechanism.randomize(np.arange(rows) % k, SeededEntropy(f"tally {k} {g} {rows}"))[
        :, 0, :
    ]
    # All cells hash alike, to the first value and to the last: the ends of the interval of hits.
    reports[0] = 0
    reports[1] = [0] * 4 + [255] * 4 + list((g - 1).to_bytes(mechanism.report_size - 8, "big"))
    wide = [
        [int.from_bytes(row[at:to].tobytes(), "big") for at, to in ((0, 4), (4, 8), (8, None))]
        for row in reports
    ]
    a, b, cell = (np.array(column, dtype=np.int64)[:, None] for column in zip(*wide, strict=True))
    expected = np.zeros(k, dtype=np.int64)
    for x in np.array_split(np.arange(k), -(-k * rows // 1_000_000)):
        expected[x] = ((a * x + b) % 2**32 * g // 2**32 == cell).sum(axis=0)
    tally = mechanism.tally(reports)
    assert tally.counts.tolist() == expected.tolist()
    assert tally.rows == rows
    assert expected.max() <= rows


def test_few_rows_and_many_are_counted_alike() -> None:
    """The two ways of ``count_hits``, at the border between them, at every end of the interval of
    hits.
    """
    entropy = SeededEntropy("hits")
    for rows, top in itertools.product((1, 31, 32, 33), (0, 65_535, 2**31 - 1)):
        steps, at = (entropy.words(rows).astype(np.uint32) for _ in range(2))
        at[0], steps[0] = top, 0
        wide = steps.astype(object)[:, None] * np.arange(64) + at.astype(object)[:, None]
        counts = np.ones(64, dtype=np.int64)
        count_hits(steps, at, top, counts)
        assert counts.tolist() == [
            1 + int(sum(value % 2**32 <= top for value in column)) for column in wide.T
        ]


def test_a_cell_beyond_the_hash_is_refused_wherever_it_is() -> None:
    """Planted: only the first block checked -> this fails."""
    mechanism = LocalHash(("a", "b"), 512, 1 << 62)
    reports = mechanism.randomize(np.zeros(40_000, dtype=np.int64), SeededEntropy(1))[:, 0, :]
    reports[-1, 8:] = 2, 0
    assert mechanism.valid(reports).tolist() == [True] * 39_999 + [False]
    with pytest.raises(ShoalError, match="valid") as caught:
        mechanism.tally(reports)
    assert caught.value.kind is Kind.INVALID


# --- estimate -------------------------------------------------------------------------------------


def test_an_estimate_by_hand() -> None:
    """g = 4, T = 2^63: q = 1/4, p = 1/2 + 1/8 = 5/8, p - q = 3/8. 800 reports, 350 support "a":
    (350 - 200) 8/3 = 400.
    """
    mechanism = LocalHash(("a", "b", "c"), 4, WORDS // 2)
    assert mechanism.chances == (0.625, 0.25, 0.375)
    estimate = mechanism.estimate(Tally(np.array([350, 200, 275]), 800))
    assert estimate.labels == ("a", "b", "c")
    assert estimate.values == pytest.approx([400, 0, 200])
    # Each device of the cell adds p (1 - p) = 15/64, each other q (1 - q) = 12/64, over (3/8)^2 =
    # 9/64.
    assert estimate.stderr**2 == pytest.approx(
        [(held * 15 + (800 - held) * 12) / 9 for held in (400, 0, 200)]
    )
    assert mechanism.expected_stderr(np.array([400, 0, 400])) ** 2 == pytest.approx(
        [(400 * 15 + 400 * 12) / 9, 800 * 12 / 9, 10_800 / 9]
    )


def test_the_gap_has_no_cancellation() -> None:
    """Almost pure noise: p - q is 3/4 of 3 / 2^64 to full precision. Planted: p - q from rounded
    floats -> 0 or far off.
    """
    assert Fraction(LocalHash(("a", "b"), 4, WORDS - 3).chances[2]) == Fraction(9, 4 * WORDS)


def test_the_support_of_the_law_is_that_of_the_estimate() -> None:
    """p and q, from the classes of ``law``: P(supports x | x) and P(supports x' | x), as
    fractions.
    """
    stated = law(5, 8, 3 * 2**60 + 1)
    truth = max(Fraction(one, two) for one, two in zip(stated.one, stated.two, strict=True))
    both = [one for one, low in zip(stated.one, stated.least, strict=True) if one == truth * low]
    mechanism = LocalHash(labels(5), 8, 3 * 2**60 + 1)
    p, q, _ = mechanism.chances
    assert float(Fraction(sum(both), stated.total)) == pytest.approx(p, rel=1e-14)
    swapped = [
        one
        for one, two, low in zip(stated.one, stated.two, stated.least, strict=True)
        if two == truth * low
    ]
    assert Fraction(sum(swapped), stated.total) == Fraction(1, 8) == Fraction(q)


# --- integers -------------------------------------------------------------------------------------


@for_each("epsilon0", [1e-3, 0.5, 1.0, 1.3, 1.8, 3.1, 4.0, 6.0, 8.5, 11.0, 20.0])
def test_the_default_g_is_the_best_of_sixteen(epsilon0: float) -> None:
    """By the variance at frequency 0, 1 / ((1 - T / 2^64)^2 (g - 1)) per report, in the integers.
    Planted: the g nearest to e^epsilon0 + 1 by difference, or E - 1 for E -> 3.1 fails.
    """

    def worth(g: int) -> int:
        return (WORDS - least_uniform(g, epsilon0)) ** 2 * (g - 1)

    assert worth(best_g(epsilon0)) == max(map(worth, POWERS))
    assert abs(math.log2(best_g(epsilon0) / min(math.exp(epsilon0) + 1, 2**16))) <= 1


@for_each("g", POWERS)
@for_each("epsilon0", [1e-3, 1.0, 8.0, 40.0])
def test_one_step_less_noise_would_break_the_promise(g: int, epsilon0: float) -> None:
    uniform = least_uniform(g, epsilon0)
    assert epsilon0_upper(law(3, g, uniform)) <= epsilon0
    assert uniform == 1 or epsilon0_upper(law(3, g, uniform - 1)) > epsilon0


def test_settings_are_named_and_stop_where_k_ary_response_is_better() -> None:
    names = [setting.name for setting in FAMILY.settings(Categories(labels(1_023)))]
    assert names == ["olh", "blh", "g=4", "g=16", "g=64", "g=256"]
    assert [setting.name for setting in FAMILY.settings(YesNo())] == ["olh", "blh"]
    assert [setting.name for setting in FAMILY.settings(Categories(labels(65_535)))][
        -1
    ] == "g=16384"
    domain = Categories(labels(1_023))
    assert design("local_hash", domain, 3.0, "g=64").get("g") == 64
    assert design("local_hash", domain, 3.0, "blh").get("g") == 2
    assert design("local_hash", domain, 3.0).get("g") == 16


@for_each("k", [2, 3, 16, 300])
@for_each("epsilon0", [0.01, 1.0, 5.0, 10.0])
def test_k_ary_response_beats_as_many_values_of_a_hash(k: int, epsilon0: float) -> None:
    """At every g >= k: a smaller standard error of every count, and a blanket as likely. So no
    setting is offered there.
    """
    mine = KaryResponse(labels(k), least_uniform(k, epsilon0))
    held = np.zeros(k, dtype=np.int64)
    held[0], held[1] = 7_000, 3_000
    for g in (g for g in POWERS if g >= k):
        hashing = LocalHash(labels(k), g, least_uniform(g, epsilon0))
        assert (mine.expected_stderr(held) <= hashing.expected_stderr(held)).all()


@for_each(
    "k, g, uniform",
    [(1, 4, 5), (65_537, 4, 5), (3, 1, 5), (3, 3, 5), (3, 131_072, 5), (3, 4, 0), (3, 4, WORDS)],
)
def test_other_integers_are_refused(k: int, g: int, uniform: int) -> None:
    with pytest.raises(ShoalError) as caught:
        LocalHash(labels(k), g, uniform)
    assert caught.value.kind is Kind.INVALID


def test_a_task_with_other_integers_is_refused_by_name() -> None:
    domain = Categories(("a", "b", "c"))
    assert create(design("local_hash", domain, 1.0), domain).report_size == 9
    with pytest.raises(ShoalError, match='"g" is a power of two from 2 to 65536'):
        create(MechanismSpec.of("local_hash", k=4, g=6, uniform=5), domain)
    with pytest.raises(ShoalError, match='"k" is 3, but the domain has 4 cells: set k = 4'):
        create(MechanismSpec.of("local_hash", k=3, g=4, uniform=5), domain)
