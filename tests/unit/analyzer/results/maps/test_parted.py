"""Rectangles of a map that was looked at part by part: which cells count, and what cut ones add."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal.analyzer.results.maps.parted import most_hidden, parted_rectangle
from shoal.errors import Kind, ShoalError
from tests.unit.analyzer.results.maps.test_tree import released

RELEASES = released(3)
BOX = RELEASES[0]["discovered"]["box"]


def edges(release: dict[str, Any], at: int) -> dict[str, float]:
    cell = release["discovered"]["cells"][at]
    return {side: cell[side] for side in ("south", "west", "north", "east")}


def test_a_cell_of_level_0_is_its_own_count() -> None:
    """Its interval too, but that releases count the law of so little noise in whole devices.
    Planted: the parts of a followed cell for its own count -> fails.
    """
    for at, row in enumerate(RELEASES[0]["estimates"][:-1]):
        found = parted_rectangle(RELEASES, **edges(RELEASES[0], at))
        assert found.value == pytest.approx(row["value"])
        assert found.stderr == pytest.approx(row["stderr"])
        assert (found.ci_low, found.ci_high) == pytest.approx(
            (row["ci_low"], row["ci_high"]), abs=0.5
        )
        assert (found.cells, found.cut) == (1, 0)


def test_the_whole_map_is_all_devices_but_elsewhere() -> None:
    """One count errs less than sixteen. Planted: always from inside -> the error is 4 times as
    large; elsewhere left out -> all devices.
    """
    found, last = parted_rectangle(RELEASES), RELEASES[0]["estimates"][-1]
    assert found.value == pytest.approx(RELEASES[0]["n"] - last["value"])
    assert found.stderr == pytest.approx(last["stderr"])


def test_parts_of_followed_cells_count() -> None:
    """A cell of level 1, and one of level 2. Planted: a level's cells by their order -> fails."""
    for level in (1, 2):
        release = RELEASES[level]
        for at in range(0, len(release["discovered"]["cells"]), 7):
            found = parted_rectangle(RELEASES, **edges(release, at))
            assert found.value == pytest.approx(release["estimates"][at]["value"])
            assert (found.cells, found.cut) == (1, 0)


def test_a_part_that_nobody_was_asked_for_may_have_all_or_none() -> None:
    """A quarter of a cell that was not followed: from 0 to more than its count. Planted: the share
    of the area for all of it -> the upper end is below the count.
    """
    told = RELEASES[0]["discovered"]["cells"]
    followed = {one["path"][:-1] for one in RELEASES[1]["discovered"]["cells"]}
    at = next(at for at, one in enumerate(told) if one["path"] not in followed)
    box = edges(RELEASES[0], at)
    box["north"] = (box["south"] + box["north"]) / 2
    box["east"] = (box["west"] + box["east"]) / 2
    found, row = parted_rectangle(RELEASES, **box), RELEASES[0]["estimates"][at]
    assert (found.cells, found.cut, found.ci_low) == (0, 1, 0.0)
    assert found.ci_high >= row["value"] + 2.2 * row["stderr"]
    assert found.ci_low <= found.value <= found.ci_high


def test_fewer_devices_are_scaled_to_level_0() -> None:
    """Planted: counts of the other window as they are -> half."""
    releases = [RELEASES[0], {**RELEASES[1], "n": RELEASES[1]["n"] // 2}]
    found = parted_rectangle(releases, **edges(RELEASES[1], 3))
    assert found.value == pytest.approx(2 * RELEASES[1]["estimates"][3]["value"])
    assert found.stderr == pytest.approx(2 * RELEASES[1]["estimates"][3]["stderr"])


@pytest.mark.parametrize("mean", [4, 36, 170])
def test_noise_hides_no_more_than_a_normal_error(mean: int) -> None:
    """E exp(t (-e)_+) of a Poisson number less its mean, in standard deviations, summed over its
    law: at most 1/2 + exp(t^2 / 2) Phi(t), for every t that is used. Planted: without the half ->
    fails.
    """
    deviation = math.sqrt(mean)
    for step in range(30):
        tilt = 0.1 * 1.15**step
        exact = math.fsum(
            math.exp(
                count * math.log(mean)
                - mean
                - math.lgamma(count + 1)
                + tilt * max(0.0, mean - count) / deviation
            )
            for count in range(8 * mean + 60)
        )
        normal = 0.5 + math.exp(tilt**2 / 2) * 0.5 * math.erfc(-tilt / math.sqrt(2))
        assert exact <= normal * (1 + 1e-9), (mean, tilt)


def test_what_is_hidden_grows_with_the_cells() -> None:
    assert most_hidden(1, 0.025) == pytest.approx(1.95996, abs=1e-4)
    found = [most_hidden(cells, 0.0125) for cells in (1, 2, 5, 20, 100, 1_000)]
    assert found == sorted(found)
    assert found[-1] < 0.55 * 1_000


@pytest.mark.parametrize(
    "bounds",
    [
        {"south": BOX[0] - 1},
        {"north": math.nan},
        {"north": 1e308},
        {"west": -math.inf},
        {"south": BOX[2], "north": BOX[2]},
        {"west": BOX[3], "east": BOX[1]},
    ],
)
def test_bounds_that_are_none_are_refused(bounds: dict[str, float]) -> None:
    """Planted: finite ones rounded to microdegrees at once -> OverflowError for 1e308."""
    with pytest.raises(ShoalError) as caught:
        parted_rectangle(RELEASES, **bounds)
    assert caught.value.kind is Kind.CONFIG


def test_without_level_0_nothing_is_counted() -> None:
    with pytest.raises(ShoalError) as caught:
        parted_rectangle(RELEASES[1:])
    assert caught.value.kind is Kind.NOT_FOUND
