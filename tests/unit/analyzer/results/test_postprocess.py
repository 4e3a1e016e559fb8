"""Post-processing against brute force in rationals, and what it is not: clipping and
renormalising.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoal.analyzer.results.postprocess import base_cut, largest_remainder, norm_sub
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from tests.cases import for_each
from tests.sizes import size

Floats = NDArray[np.float64]
Project = Callable[[Floats, float], Floats]

_TIES = st.integers(-3, 3).map(float)
_WIDE = st.floats(-1e6, 1e6)
_HUGE = st.floats(-1e300, 1e300)
VALUES = st.one_of(*(st.lists(kind, min_size=1, max_size=6) for kind in (_TIES, _WIDE, _HUGE)))
# no subnormal numbers of devices
TOTALS = st.one_of(st.integers(0, 10).map(float), st.floats(1e-9, 1e6))


def projection(values: list[float], total: float) -> list[Fraction]:
    """The nearest point of {x >= 0, sum x = total}: of every set of cells that may be above 0, the
    best; nothing is assumed of its form.

    On a chosen set the nearest point with that sum moves all its cells alike; it counts if no cell
    is below 0.
    """
    exact, best = [Fraction(v) for v in values], None
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(len(values)), r) for r in range(1, len(values) + 1)
    ):
        moved = (sum(exact[i] for i in chosen) - Fraction(total)) / len(chosen)
        point = [exact[i] - moved if i in chosen else Fraction(0) for i in range(len(values))]
        if min(point) >= 0:
            distance = sum((x - v) ** 2 for x, v in zip(point, exact, strict=True))
            best = min(best or (distance, point), (distance, point))
    assert best is not None
    return best[1]


def check(project: Project, values: list[float], total: float) -> None:
    """The projection, to k 2^-50 of the total; its sum to k 2^-52."""
    point, grain = project(np.array(values), total).tolist(), len(values) * total
    assert min(point) >= 0.0
    assert abs(math.fsum(point) - total) <= grain * 2.0**-52
    for ours, exact in zip(point, projection(values, total), strict=True):
        assert abs(Fraction(ours) - exact) <= grain * 2.0**-50


def clipped_and_scaled(values: Floats, total: float) -> Floats:
    """What other libraries do: negative values to 0, and the rest scaled to the total."""
    above = np.maximum(values, 0.0)
    return (
        above * (total / above.sum()) if above.any() else np.full_like(values, total / values.size)
    )


# --- Norm-Sub -------------------------------------------------------------------------------------


@given(VALUES, TOTALS)
@example([1.0, 1.0, 1.0], 3.0)
@example([5.0, 5.0, -5.0], 0.5)
@example([-3.0, -2.0, -2.0], 1.0)
@example([1e300, 0.0, -1e300], 7.0)
@example([1e300], 100.0)
@example([0.0, -1e308, -1e308, -1e308], 1.0)
@example([1.7e308, -1.7e308, 1.7e308], 4.0)
@example([1e17, 1e17 - 16, 3.0], 100.0)
def test_the_projection_is_the_nearest_point(values: list[float], total: float) -> None:
    """Against all sets of cells. Planted: the set found from the raw sums and not from the largest
    cell (1e300 gives 0), without the floor at -total (sums overflow), one cell more or fewer kept,
    the sum of all cells for that of the kept ones -> this fails.
    """
    check(norm_sub, values, total)


@for_each(
    "wrong",
    [
        clipped_and_scaled,
        lambda values, _: np.maximum(values, 0.0),
        lambda values, total: values - (values.sum() - total) / values.size,
        lambda values, total: np.maximum(
            values - (np.maximum(values, 0.0).sum() - total) / (values > 0).sum(), 0.0
        ),
    ],
    ids=["clip and renormalise", "clip alone", "shift alone", "one round of clip and shift"],
)
def test_the_check_catches_other_ways(wrong: Project) -> None:
    """Planted: each of these instead of the projection -> the check above fails."""
    with pytest.raises(AssertionError):
        check(wrong, [9.0, 4.0, 0.5, -1.5], 10.0)
    check(norm_sub, [9.0, 4.0, 0.5, -1.5], 10.0)


def test_a_projection_by_hand() -> None:
    """9, 4, 0.5, -1.5 to the sum of 10: 1.5 less each, and 0.5 falls away. Too small a sum:
    everything is raised.
    """
    assert norm_sub(np.array([9.0, 4.0, 0.5, -1.5]), 10.0).tolist() == [7.5, 2.5, 0.0, 0.0]
    assert norm_sub(np.array([1.0, 2.0, 3.0]), 9.0).tolist() == [2.0, 3.0, 4.0]
    assert norm_sub(np.array([-5.0, -5.0, -7.0]), 4.0).tolist() == [2.0, 2.0, 0.0]
    assert norm_sub(np.array([-5.0]), 4.0).tolist() == [4.0]
    assert norm_sub(np.array([7.0, 7.0, -1.0]), 0.0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("k", [1_000, 65_536])
def test_many_cells(k: int) -> None:
    """Noise around a few heavy cells: the sum to k 2^-52 of it, one number subtracted from all that
    remain, nothing that falls short of it kept, the order kept, and a second projection changes
    nothing but rounding.
    """
    noise = (
        np.frombuffer(SeededEntropy(f"post {k}").bytes(4 * k), dtype="<i4").astype(np.float64)
        / 2**21
    )
    values = noise + np.where(np.arange(k) % 97 == 0, 5_000.0, 0.0)
    total = float(50 * k)
    point = norm_sub(values, total)
    assert abs(math.fsum(point.tolist()) - total) <= k * total * 2.0**-52
    kept = point > 0.0
    assert 0 < kept.sum() < k
    moved = values[kept] - point[kept]
    assert np.ptp(moved) <= total * 2.0**-50
    assert values[~kept].max() <= moved.max() + total * 2.0**-50
    assert (np.diff(point[np.argsort(values, kind="stable")]) >= 0.0).all()
    assert np.abs(norm_sub(point, total) - point).max() <= total * 2.0**-50


@given(st.permutations(range(6)), st.lists(_TIES, min_size=6, max_size=6))
def test_the_cells_order_does_not_matter(order: list[int], values: list[float]) -> None:
    point = norm_sub(np.array(values), 5.0)
    assert norm_sub(np.array(values)[order], 5.0).tolist() == point[order].tolist()


def test_shares_are_not_shrunk_and_sums_are() -> None:
    """Optimized unary encoding at epsilon0 1, 128 cells, 2,000 devices, 620 of them in one cell.
    Averages over the runs:

    the heavy cell comes out as 620 in the raw estimate (5 standard errors: false alarm 6e-7),
    within 20 % of it by projection, and as a third of it by clipping and renormalising. The 100
    cells that nobody holds sum to 0 in the raw estimates, to hundreds of devices after the
    projection: why post-processed counts don't go into sums.

    Planted: ``clipped_and_scaled`` in the place of ``norm_sub`` -> this fails.
    """
    domain, runs = Categories(tuple(f"c{i}" for i in range(127))), size(40, 400)
    mechanism, entropy = (
        create(design("unary", domain, 1.0, "oue"), domain),
        SeededEntropy("shares"),
    )
    held = np.zeros(128, dtype=np.int64)
    held[0], held[1:28] = 620, 51
    held[27] += 2_000 - held.sum()
    devices = np.repeat(np.arange(128), held)
    raw = np.array(
        [
            mechanism.estimate(mechanism.tally(mechanism.randomize(devices, entropy)[:, 0])).values
            for _ in range(runs)
        ]
    )
    errors = mechanism.expected_stderr(held)
    projected, scaled = (
        np.array([way(one, 2_000.0) for one in raw]).mean(axis=0)
        for way in (norm_sub, clipped_and_scaled)
    )
    assert abs(raw[:, 0].mean() - 620) < 5 * errors[0] / math.sqrt(runs)
    assert projected[0] > 0.8 * 620
    assert scaled[0] < 0.4 * 620
    assert abs(raw[:, 28:].sum(axis=1).mean()) < 5 * math.sqrt((errors[28:] ** 2).sum() / runs)
    assert projected[28:].sum() > 300


# --- Base-Cut -------------------------------------------------------------------------------------


def test_what_is_kept_is_raw() -> None:
    """Each against its own error; a value on the threshold stays. Planted: <= for <; the largest
    error for all; soft thresholding (the threshold subtracted from what is kept); what is kept
    scaled to the old sum -> this fails.
    """
    values, errors = (
        np.array([30.0, 29.9, 29.9, 0.1, -500.0]),
        np.array([10.0, 10.0, 9.0, 0.0, 10.0]),
    )
    assert base_cut(values, errors, 3.0).tolist() == [30.0, 0.0, 29.9, 0.1, 0.0]
    assert base_cut(values, errors, 0.0).tolist() == [30.0, 29.9, 29.9, 0.1, 0.0]
    assert values.tolist() == [30.0, 29.9, 29.9, 0.1, -500.0]


@for_each(
    "errors, multiple",
    [
        (np.array([1.0]), 3.0),
        (np.array([1.0, -1.0]), 3.0),
        (np.array([1.0, np.nan]), 3.0),
        (np.array([1.0, np.inf]), 0.0),
        (np.array([1, 1]), 3.0),
        (np.array([1.0, 1.0]), -1.0),
        (np.array([1.0, 1.0]), np.nan),
        (np.array([1.0, 1.0]), np.inf),
    ],
)
def test_a_cut_by_nothing_known_is_refused(errors: Floats, multiple: float) -> None:
    with pytest.raises(ShoalError, match="standard errors") as caught:
        base_cut(np.array([1.0, 2.0]), errors, multiple)
    assert caught.value.kind is Kind.INVALID


# --- whole numbers --------------------------------------------------------------------------------


@given(
    st.one_of(
        *(
            st.lists(kind, min_size=1, max_size=6)
            for kind in (st.integers(0, 12).map(lambda i: i / 4), st.floats(0.0, 1e6))
        )
    )
)
@example([0.5, 0.5, 1.0])
@example([0.5])
@example([1.5])
@example([0.1] * 10)
def test_rounding_keeps_the_sum_and_moves_least(values: list[float]) -> None:
    """Of all roundings up or down of each cell with that sum, none moves less in all; whole cells
    are left alone.

    Planted: each cell rounded to the nearest; the missing ones given to the smallest remainders; to
    a cell that was whole -> this fails.
    """
    counts = largest_remainder(np.array(values))
    assert counts.dtype == np.int64
    total = round(math.fsum(values))
    assert int(counts.sum()) == total
    exact = [Fraction(v) for v in values]
    moved = [abs(count - v) for count, v in zip(counts.tolist(), exact, strict=True)]
    assert max(moved) < 1
    downs = [math.floor(v) for v in values]
    if len(values) <= 6:
        ways = (
            up
            for up in itertools.product((0, 1), repeat=len(values))
            if sum(downs) + sum(up) == total
        )
        assert sum(moved) <= min(
            sum(abs(d + u - v) for d, u, v in zip(downs, up, exact, strict=True)) for up in ways
        )


def test_ties_go_to_the_first_cells() -> None:
    """Whatever the cells' sizes. Planted: an unstable sort, or ties by the larger value -> this
    fails.
    """
    assert largest_remainder(np.array([0.5, 9.5, 4.5, 1.5])).tolist() == [1, 10, 4, 1]
    assert largest_remainder(np.full(1_000, 0.25)).tolist() == [1] * 250 + [0] * 750
    assert largest_remainder(np.array([2.75, 0.25, 1.0])).tolist() == [3, 0, 1]
    # 1,250 missing: the first 625 pairs of halves
    mixed = largest_remainder(np.tile([0.25, 0.5, 7.5], 1_000)).reshape(-1, 3)
    assert mixed.tolist() == [[0, 1, 8]] * 625 + [[0, 0, 7]] * 375


def test_a_projection_rounds_to_its_total() -> None:
    """65,536 cells whose sum is the total only to rounding. Planted: the sum rounded down -> one
    device is lost, and this fails.
    """
    noise = (
        np.frombuffer(SeededEntropy("whole").bytes(4 * 65_536), dtype="<i4").astype(np.float64)
        / 2**20
    )
    for total in (1, 999_983, 200_000_000):
        counts = largest_remainder(norm_sub(noise, float(total)))
        assert counts.min() >= 0
        assert int(counts.sum()) == total


def test_raw_estimates_are_not_rounded() -> None:
    with pytest.raises(ShoalError, match="norm_sub first") as caught:
        largest_remainder(np.array([3.0, -0.5]))
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="2\\^53") as caught:
        largest_remainder(np.array([2.0**52, 2.0**52]))
    assert caught.value.kind is Kind.INVALID


# --- bad input ------------------------------------------------------------------------------------


@for_each(
    "values",
    [
        np.array([]),
        np.array([1, 2]),
        np.array([[1.0]]),
        np.array([1.0, np.nan]),
        np.array([-np.inf]),
    ],
)
def test_other_values_are_refused(values: Floats) -> None:
    ways: list[Callable[[Floats], object]] = [
        lambda v: norm_sub(v, 1.0),
        lambda v: base_cut(v, np.ones(v.shape), 1.0),
        largest_remainder,
    ]
    for way in ways:
        with pytest.raises(ShoalError, match=r"float64\[cells\]") as caught:
            way(values)
        assert caught.value.kind is Kind.INVALID


@for_each("total", [-1.0, -1e-300, math.nan, math.inf, 2.0**53])
def test_another_total_is_refused(total: float) -> None:
    with pytest.raises(ShoalError, match="total") as caught:
        norm_sub(np.array([1.0, 2.0]), total)
    assert caught.value.kind is Kind.INVALID
