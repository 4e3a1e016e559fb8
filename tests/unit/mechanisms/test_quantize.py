"""Quantization: bounds for every finite input, unbiasedness in exact arithmetic, and what is
refused.

Expectations are computed through the thresholds: for given values the production code is run on
scripted words at every place where its answer changes, and the answers are weighted with the exact
number of words between those places.
"""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.parts.sampling import BLOCK, bernoulli
from shoal.mechanisms.quantize import (
    SensitivityBounds,
    bounds,
    default_grid,
    dequantize,
    enforce,
    quantize,
    rounding_variance,
    sum_of_squares,
)
from tests.cases import for_each
from tests.worlds.tapes import Constant, Tape

WORDS = 1 << 64
FINITE = st.floats(allow_nan=False, allow_infinity=False)
EXTREME = st.sampled_from(
    [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        2.2e-308,
        1e-17,
        0.5,
        -1.0,
        1.0,
        1e9,
        1.7e308,
        -1.7e308,
        1 / 3,
        1 - 2**-53,
        1 + 2**-52,
    ]
)
CLIPS = st.one_of(
    st.sampled_from([1e-100, 1e-9, 0.1, 1.0, 3.0, 1e9, 1e100]),
    st.floats(min_value=1e-12, max_value=1e12),
)
GRIDS = st.one_of(st.sampled_from([1, 2, 3, 1000, (1 << 48) - 1]), st.integers(1, (1 << 48) - 1))


def holds(vector: NDArray[np.int64], most: SensitivityBounds) -> bool:
    sizes = [abs(int(q)) for q in vector]
    return (
        sum(sizes) <= most.l1
        and sum(q * q for q in sizes) <= most.l2_squared
        and max(sizes) <= most.linf
    )


@given(
    st.lists(st.one_of(FINITE, EXTREME), min_size=1, max_size=12),
    st.sampled_from(list(Norm)),
    CLIPS,
    GRIDS,
    st.one_of(st.sampled_from([0, 1, WORDS - 1]), st.integers(0, WORDS - 1)),
)
def test_every_finite_vector_keeps_the_bounds(
    values: list[float], norm: Norm, clip: float, grid: int, word: int
) -> None:
    """Huge, subnormal, one coordinate, at the clip's edge; with the words that round up most. No
    overflow, no warning.

    Planted: no clipping; a norm computed without scaling by the largest (1e308 squared is
    infinite); scaling before clipping -> each fails. (L2 bounds without sqrt(d) and independent
    rounding in L1 are caught by the tests below: here ``enforce`` would hide them.)
    """
    domain = Vector(len(values), norm, clip, grid)
    made = quantize(values, domain, Constant(word))
    assert made.vector.dtype == np.int64
    assert holds(made.vector, bounds(domain))
    assert 0 <= made.clipped <= 1
    assert all(
        q == 0 or (q > 0) == (x > 0) for q, x in zip(made.vector.tolist(), values, strict=True)
    )


@given(st.integers(1, 64), st.sampled_from([1, 2, 5, 100, 1 << 20]), st.integers(0, WORDS - 1))
def test_a_full_vector_of_equal_parts_keeps_the_bounds(
    dimension: int, grid: int, word: int
) -> None:
    """Exactly at the clip, where every coordinate may be rounded up: the largest norms there
    are.
    """
    for norm, part in (
        (Norm.L1, 1 / dimension),
        (Norm.L2, 1 / math.sqrt(dimension)),
        (Norm.COORDINATE, 1.0),
    ):
        domain = Vector(dimension, norm, 1.0, grid)
        for values in (
            [part] * dimension,
            [part * 1e200] * dimension,
            [math.nextafter(part, 1)] * dimension,
        ):
            assert holds(quantize(values, domain, Constant(word)).vector, bounds(domain))


def test_the_bounds_of_l2_are_reached() -> None:
    """Not looser than they must be: tiny coordinates all rounded up come within one step of the L2
    bound.
    """
    domain = Vector(101, Norm.L2, 1.0, 1_000)
    values = [0.999999, *[1e-4] * 100]
    vector = quantize(values, domain, Constant(0)).vector
    assert vector.tolist() == [1000, *[1] * 100]
    assert bounds(domain) == SensitivityBounds(10150, 1_020_200, 1000, 10**6)
    assert bounds(Vector(1, Norm.L2, 1.0, 1_000)) == SensitivityBounds(1000, 10**6, 1000, 10**6)
    assert bounds(Vector(4, Norm.L2, 1.0, 1)) == SensitivityBounds(4, 4, 1, 1)


def test_bounds_of_the_other_norms() -> None:
    assert bounds(Vector(50, Norm.L1, 2.0, 300)) == SensitivityBounds(300, 90_000, 300, 90_000)
    assert bounds(Vector(50, Norm.COORDINATE, 2.0, 300)) == SensitivityBounds(
        15_000, 4_500_000, 300, 4_500_000
    )


@given(st.integers(1, LIMITS.vector_words), GRIDS)
def test_bounds_of_l2_are_the_integers_of_the_proof(dimension: int, grid: int) -> None:
    """l2_squared <= (grid + sqrt d)^2 < l2_squared + 1, or the cube's; l1^2 <= d l2_squared.
    Rational arithmetic throughout.
    """
    most = bounds(Vector(dimension, Norm.L2, 1.0, grid))
    excess = most.l2_squared - grid**2 - dimension  # to be the floor of 2 grid sqrt(d)
    if most.l2_squared < dimension * grid**2:
        assert excess**2 <= 4 * grid**2 * dimension < (excess + 1) ** 2
    assert most.l1**2 <= dimension * most.l2_squared
    assert most.linf == grid


def at_the_clip(
    domain: Vector, moved: int, sign: float, word: int
) -> tuple[list[int], SensitivityBounds]:
    """What ``clip`` in so many coordinates is rounded to, each times ``sign``; and the bounds."""
    values = [sign * domain.clip] * moved + [0.0] * (domain.dimension - moved)
    vector = quantize(values, domain, Constant(word)).vector.tolist()
    assert not any(vector[moved:])
    return [int(sign) * q for q in vector[:moved]], bounds(domain)


@given(
    st.integers(1, 70),
    st.integers(0, 30),
    st.sampled_from(list(Norm)),
    CLIPS,
    GRIDS,
    st.one_of(st.sampled_from([0, 1, WORDS - 1]), st.integers(0, WORDS - 1)),
)
def test_what_is_certain_is_sent_whatever_the_words(
    moved: int, others: int, norm: Norm, clip: float, grid: int, word: int
) -> None:
    """The promise of ``certain_squared``: c or more in each of the moved coordinates, either sign.
    Planted: ``certain_squared`` = l2_squared -> this fails.
    """
    domain = Vector(moved + others, norm, clip, grid)
    for sign in (1.0, -1.0):
        sent, most = at_the_clip(domain, moved, sign, word)
        least = min(most.linf, most.l1 // moved, math.isqrt(most.certain_squared // moved))
        assert min(sent) >= least


@for_each("moved", [2, 3, 5, 6, 7])
def test_what_is_certain_beside_a_root_that_floats_round(moved: int) -> None:
    """Grids whose grid / sqrt(m) is a hair above a whole number (grid^2 - m c^2 small: solutions of
    Pell's equation), where a float of the root may be too large. Planted: grid^2 without what large
    grids leave out -> this fails.
    """
    start = next(
        (g, c)
        for c in range(1, 10)
        for g in [math.isqrt(moved * c * c + 1)]
        if g * g == moved * c * c + 1
    )
    (grid, c), seen = start, 0
    while grid < 1 << 48:
        for words in (0, WORDS - 1):
            domain = Vector(moved, Norm.L2, 1.0, grid)
            sent, most = at_the_clip(domain, moved, 1.0, words)
            assert min(sent) >= math.isqrt(most.certain_squared // moved)
        grid, c = start[0] * grid + moved * start[1] * c, start[0] * c + start[1] * grid
        seen += 1
    assert seen > 8


# --- unbiased -------------------------------------------------------------------------------------


def fraction_of(value: float) -> tuple[int, int]:
    """(n, f) with |value| = n + f / 2^64, f rounded down: exact fractions."""
    exact = abs(Fraction(value))
    return int(exact), int((exact - int(exact)) * WORDS)


@given(
    st.floats(min_value=-1.0, max_value=1.0),
    st.sampled_from([1, 7, 1_000, 1 << 40, (1 << 48) - 1]),
    st.sampled_from([Norm.L2, Norm.COORDINATE]),
)
def test_independent_rounding_is_unbiased(value: float, grid: int, norm: Norm) -> None:
    """The mean over all 2^64 words is the scaled value, but for what lies below 2^-64 of a step:
    nothing for sizes from 2^-12 on.

    Planted: rounding toward zero; round to nearest; a threshold out of 2^63; floor of a negative
    value -> each fails.
    """
    scaled = abs(value) / 1.0 * grid
    n, f = fraction_of(scaled)
    domain = Vector(1, norm, 1.0, grid)

    def rounded(word: int) -> int:
        return int(quantize([value], domain, Constant(word)).vector[0])

    sign = -1 if value < 0 else 1
    # Up for the f words below f, down for the others.
    assert rounded(WORDS - 1) == sign * n
    assert rounded(f) == sign * n
    if f:
        assert rounded(f - 1) == rounded(0) == sign * (n + 1)
    mean = sign * (n + Fraction(f, WORDS))
    error = abs(mean - sign * Fraction(scaled))
    assert error == 0 if scaled == 0 or scaled >= 2**-12 else error < Fraction(1, WORDS)


@given(
    st.lists(st.floats(min_value=-1.0, max_value=1.0), min_size=1, max_size=8),
    st.sampled_from([1, 10, 1_000]),
)
def test_systematic_rounding_is_unbiased_and_keeps_the_sum(values: list[float], grid: int) -> None:
    """L1: over all offsets u each coordinate's mean is its value, exactly, and the sum is its floor
    or its ceiling.

    The answer changes at 2^64 - (f_1 + ... + f_i) mod 2^64 and nowhere else: runs between those are
    weighted with their length. Planted: an offset of 32 bits; u < f_i without the running sum
    (independent); the sum begun at 0 -> each fails.
    """
    domain = Vector(len(values), Norm.L1, 8.0, grid)  # never clipped
    parts = [fraction_of(abs(v) / 8.0 * grid) for v in values]
    running = accumulate(f for _, f in parts)
    ends = sorted({0, *(-c % WORDS for c in running), WORDS})
    means = [0] * len(values)
    for start, stop in pairwise(ends):
        first = quantize(values, domain, Constant(start)).vector
        assert first.tolist() == quantize(values, domain, Constant(stop - 1)).vector.tolist()
        means = [m + int(q) * (stop - start) for m, q in zip(means, first, strict=True)]
        whole = sum(n * WORDS + f for n, f in parts)
        assert whole // WORDS <= int(np.abs(first).sum()) <= -(-whole // WORDS)
    assert means == [
        (n * WORDS + f) * (-1 if v < 0 else 1) for (n, f), v in zip(parts, values, strict=True)
    ]


@pytest.mark.parametrize("norm", list(Norm))
def test_whole_steps_are_kept_as_they_are(norm: Norm) -> None:
    """Counts on a grid that equals the clip are not rounded at all, whatever the words."""
    domain = Vector(5, norm, 64.0, 64)
    for word in (0, WORDS // 3, WORDS - 1):
        made = quantize([3, -7, 0, 20, 1], domain, Constant(word))
        assert made.vector.tolist() == [3, -7, 0, 20, 1]
        assert made.clipped == 0


# --- clipping -------------------------------------------------------------------------------------


@for_each(
    "norm, values, expected, clipped",
    [
        (Norm.COORDINATE, [2.0, -5.0, 0.25, 1.0], [100, -100, 25, 100], 0.5),
        (Norm.L1, [3.0, -1.0, 0.0, 4.0], [37, -13, 0, 50], 1.0),
        (Norm.L1, [0.5, -0.25, 0.0, 0.25], [50, -25, 0, 25], 0.0),
        (Norm.L2, [3.0, -4.0, 0.0, 0.0], [60, -80, 0, 0], 1.0),
        (Norm.L2, [0.6, -0.8, 0.0, 0.0], [60, -80, 0, 0], 0.0),
        (Norm.L2, [1.5e308, -1.5e308, 1.5e308, 1.5e308], [50, -50, 50, 50], 1.0),
        (Norm.L2, [0.0, 0.0, 0.0, 0.0], [0, 0, 0, 0], 0.0),
    ],
)
def test_clipping(norm: Norm, values: list[float], expected: list[int], clipped: float) -> None:
    """The direction is kept in L1 and L2, the sign in every norm; a vector at the clip is not
    called clipped.
    """
    made = quantize(values, Vector(4, norm, 1.0, 100), Constant(WORDS // 2))
    assert np.abs(made.vector - np.array(expected)).max() <= 1
    assert made.clipped == clipped


def test_enforcement_is_total_and_moves_toward_zero() -> None:
    """Vectors that no float slop could make: still brought within the bounds, each sign kept.
    Planted: enforce as a no-op -> fails.
    """
    generator = SeededEntropy("enforce")
    for norm in Norm:
        for dimension, grid in ((1, 1), (3, 10), (50, 7), (1000, 1_000_000), (20, (1 << 48) - 1)):
            domain = Vector(dimension, norm, 1.0, grid)
            wild = (generator.words(dimension) % np.uint64(2 * grid + 1)).astype(np.int64) - grid
            wild = wild if norm is not Norm.L2 else wild // max(1, math.isqrt(dimension) // 2)
            moved = enforce(wild.copy(), domain)
            assert holds(moved, bounds(domain))
            assert (np.abs(moved) <= np.abs(wild)).all()
            assert ((moved == 0) | (np.sign(moved) == np.sign(wild))).all()
            assert np.array_equal(enforce(moved.copy(), domain), moved)


def test_one_step_too_many_costs_one_step() -> None:
    """What float slop could do, by hand. L1: the largest gives the excess. L2: every coordinate one
    step.
    """
    assert enforce(np.array([5, -6, 0]), Vector(3, Norm.L1, 1.0, 10)).tolist() == [5, -5, 0]
    domain = Vector(4, Norm.L2, 1.0, 10)  # at most 144
    assert enforce(np.array([9, -8, 0, 1]), domain).tolist() == [8, -7, 0, 0]
    assert enforce(np.array([8, -8, 4, 0]), domain).tolist() == [8, -8, 4, 0]


@given(
    st.lists(st.integers(-(1 << 48) + 1, (1 << 48) - 1), min_size=1, max_size=20),
    st.integers(1, 3_000),
)
def test_sums_of_squares_are_exact(values: list[int], repeated: int) -> None:
    """Also where int64 would wrap. Planted: int64 dot product -> fails."""
    assert sum_of_squares(np.array(values * repeated, dtype=np.int64)) == repeated * sum(
        v * v for v in values
    )


# --- randomness, refusals, the way back -----------------------------------------------------------


@for_each("norm, words", [(Norm.L1, 1), (Norm.L2, 4), (Norm.COORDINATE, 4)])
@for_each("values", [None, [0.0] * 4, [0.5, -0.1, 1.0, 0.0], [1e300, 1.0, 0.0, 0.0]])
def test_words_drawn_never_depend_on_the_value(
    norm: Norm, words: int, values: list[float] | None
) -> None:
    """Planted: None answered without a draw -> fails."""
    entropy = Constant(12345)
    made = quantize(values, Vector(4, norm, 1.0, 10), entropy)
    assert entropy.drawn == words
    if values is None:
        assert made.vector.tolist() == [0] * 4
        assert made.clipped == 0


@for_each(
    "values, words",
    [
        ([1.0, math.nan], "NaN or infinity"),
        ([math.inf, 0.0], "NaN or infinity"),
        ([0.0, -math.inf], "NaN or infinity"),
        ([1.0], "a vector of 2 numbers"),
        ([1.0, 2.0, 3.0], "a vector of 2 numbers"),
        ([[1.0, 2.0]], "a vector of 2 numbers"),
        (3.0, "a vector of 2 numbers"),
        (["a", "b"], "numbers and nothing else"),
        ([None, 1.0], "NaN or infinity|numbers and nothing else"),
        ([10**400, 1.0], "numbers and nothing else"),
        ([[1.0], [1.0, 2.0]], "numbers and nothing else"),
        ([1j, 1.0], "numbers and nothing else"),
    ],
    ids=str,
)
@for_each("norm", list(Norm))
def test_what_is_no_vector_is_refused_before_anything_is_drawn(
    values: object, words: str, norm: Norm
) -> None:
    """Planted: NaN turned into 0 -> no error, and this fails. The values themselves are not in the
    message.
    """
    with pytest.raises(ShoalError, match=words) as caught:
        quantize(values, Vector(2, norm, 1.0, 10), Tape())  # type: ignore[arg-type]
    assert caught.value.kind is Kind.INVALID


def test_the_input_is_left_alone_and_private() -> None:
    values = np.array([3.0, -4.0, 12.0])
    made = quantize(values, Vector(3, Norm.L2, 1.0, 1_000), SeededEntropy(1))
    assert values.tolist() == [3.0, -4.0, 12.0]
    assert repr(made) == "Quantized(3 coordinates)"


@for_each("clip", [1e-100, 0.1, 1.0, 7.0, 1e100])
def test_back_to_the_unit(clip: float) -> None:
    """A sum of n quantized vectors returns to the sum of values within rounding: half a step per
    device would be 5 sigma here.
    """
    domain = Vector(3, Norm.COORDINATE, clip, 1_000)
    assert dequantize(np.array([1000, -500, 0]), domain) == pytest.approx([clip, -clip / 2, 0.0])
    values = np.array([0.12345, -0.98765, 0.5]) * clip
    entropy = SeededEntropy("back")
    n = 400
    total = sum(
        (quantize(values, domain, entropy).vector for _ in range(n)), np.zeros(3, dtype=np.int64)
    )
    tolerance = 5 * math.sqrt(n * rounding_variance(domain)) / 1_000 * clip
    assert np.abs(dequantize(total, domain) - n * values).max() < tolerance
    assert rounding_variance(domain) == 0.25


@for_each("dimension", [1, 2, 99, 100, 101, 10_000, LIMITS.vector_words])
def test_default_grids_cost_at_most_one_percent(dimension: int) -> None:
    """Of the norm that noise is made for. Planted: 10 sqrt(d) -> fails."""
    for norm in Norm:
        grid = default_grid(norm, 2.0, dimension)
        most = bounds(Vector(dimension, norm, 2.0, grid))
        assert grid >= 1_000
        if norm is Norm.L2:
            assert 10_000 * most.l2_squared <= 10_201 * grid**2  # (1.01 grid)^2
        if norm is Norm.L1:
            assert most.l1 == grid
        if norm is Norm.COORDINATE:
            assert most.linf == grid


@for_each(
    "clip, dimension",
    [(0.0, 5), (-1.0, 5), (math.nan, 5), (math.inf, 5), (1.0, 0), (1.0, LIMITS.vector_words + 1)],
)
def test_default_grid_refuses_what_a_vector_refuses(clip: float, dimension: int) -> None:
    for norm in Norm:
        with pytest.raises(ShoalError) as caught:
            default_grid(norm, clip, dimension)
        assert caught.value.kind is Kind.INVALID


def at_once(values: NDArray[np.float64], domain: Vector, entropy: SeededEntropy) -> list[int]:
    """``quantize`` of a vector that fits its clip, without blocks and in as many arrays as it
    likes.
    """
    sizes = np.minimum(np.abs(values) / domain.clip * domain.grid, domain.grid)
    whole = np.floor(sizes)
    fractions = ((sizes - whole) * 2.0**64).astype(np.uint64)
    if domain.norm is Norm.L1:
        running = np.cumsum(fractions, dtype=np.uint64) + entropy.words(1)[0]
        up = running < fractions
    else:
        up = bernoulli(fractions, entropy)
    vector = whole.astype(np.int64) + up
    return np.where(np.signbit(values), -vector, vector).tolist()  # type: ignore[no-any-return]


@for_each("norm", list(Norm))
@for_each("dimension", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
def test_blocks_change_nothing(norm: Norm, dimension: int) -> None:
    """Planted: the sum of systematic rounding begun anew in each block -> fails; words drawn for
    one block used for the next -> fails.
    """
    values = SeededEntropy(f"{dimension}").words(dimension).astype(np.float64) / 2.0**63 - 1.0
    domain = Vector(dimension, norm, float(dimension), 1_000_000)
    quantized = quantize(values, domain, SeededEntropy("coins"))
    assert quantized.vector.tolist() == at_once(values, domain, SeededEntropy("coins"))
    assert quantized.clipped == 0.0


@for_each("norm", list(Norm))
def test_a_long_vector_is_held_once(norm: Norm) -> None:
    """Beside the values themselves: the result, and a little that does not grow. It was 4.25 times
    the result. Planted: magnitudes in memory of their own -> 2, fails.
    """
    dimension = 1 << 19
    values = np.full(dimension, 1e-6)
    domain = Vector(dimension, norm, 1.0, 1_000_000)
    entropy = SeededEntropy("long")
    tracemalloc.start()
    try:
        quantize(values, domain, entropy)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * 8 * dimension
