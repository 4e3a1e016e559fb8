"""Plans for numbers with heaps: shapes from numbers, levels that hit heaps, and promises that hold
for them.

The weekly hours are made up, with the shares that a published census column has: 47 % at exactly
40, more at other round numbers.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.analyzer.planner import (
    Quantiles,
    Shape,
    Spread,
    heaped,
    heaped_error,
    hitting,
    of_numbers,
    simulate,
)
from shoal.analyzer.planner.quantiles import predict_quantiles
from shoal.cli.plan.request import read_numbers
from shoal.domain import Numeric
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from tests.cases import for_each

SHARES = {
    40: 467,
    50: 87,
    45: 56,
    60: 45,
    35: 40,
    20: 38,
    30: 35,
    55: 21,
    25: 21,
    48: 16,
    38: 15,
    15: 12,
    70: 9,
    10: 9,
}
AT = (0.25, 0.5, 0.75)
N = 4_000


def hours() -> dict[float, int]:
    """10,000 numbers from 1 to 99."""
    others = (
        np.random.default_rng(4)
        .normal(40, 16, 10_000 - 10 * sum(SHARES.values()))
        .round()
        .clip(1, 99)
    )
    counts = {float(number): 10 * share for number, share in SHARES.items()}
    for number in others.tolist():
        counts[number] = counts.get(number, 0) + 1
    return counts


def drawn(shape: Spread, count: int = 20_000) -> NDArray[np.float64]:
    return np.sort(shape.quantiles((np.arange(count) + 0.5) / count))


def test_a_shape_of_numbers_has_their_quantiles() -> None:
    """Planted: heaps one place further up (side "right") -> the quantile at a heap's own end is the
    next heap, fails.
    """
    shape = of_numbers(hours(), 0.0, 100.0, "hours.csv")
    every = np.sort(np.repeat(list(hours()), list(hours().values())))
    for share in (0.001, 0.1, 0.25, 0.5, 0.6, 0.9, 0.999):
        found = float(shape.quantiles(np.array([share]))[0])
        assert found == pytest.approx(every[math.ceil(share * every.size) - 1] / 100)
    assert "10,000 numbers of hours.csv" in str(shape)


def test_heaps_stand_in_a_smooth_shape() -> None:
    """Half of all at 40 and 50; the others as a bell. Planted: the rest squeezed below the heaps ->
    fails.
    """
    shape = heaped("50,40", Shape.BELL, 0.0, 100.0)
    found = drawn(shape)
    assert np.mean(np.isclose(found, 0.4)) == pytest.approx(0.25, abs=1e-3)
    assert np.mean(np.isclose(found, 0.5)) == pytest.approx(0.25, abs=1e-3)
    rest = found[~np.isclose(found, 0.4) & ~np.isclose(found, 0.5)]
    assert rest == pytest.approx(drawn(Shape.BELL, rest.size), abs=2e-3)
    stated = heaped("40=0.47,50=0.09", Shape.BELL, 0.0, 100.0)
    assert np.mean(np.isclose(drawn(stated), 0.4)) == pytest.approx(0.47, abs=1e-3)
    assert "47%" in str(stated)


@for_each("text", ["", "40,x", "40=0.5,50", "140", "40=0.7,50=0.7", "40=-1"])
def test_heaps_that_can_not_be_are_refused(text: str) -> None:
    with pytest.raises(ShoalError) as caught:
        heaped(text, Shape.BELL, 0.0, 100.0)
    assert caught.value.kind is Kind.CONFIG


def test_levels_hit_heaps() -> None:
    """All heaps where that is possible, else the largest. Planted: the number of steps for the
    number of levels -> fails.
    """
    for low, high, text in (
        (0.0, 100.0, "40,35,50"),
        (1.0, 99.0, "40=0.47"),
        (0.0, 24.0, "7.5,8"),
        (0.0, 1.0, "0.1=0.3"),
    ):
        for levels in (found := hitting(heaped(text, Shape.BELL, low, high), low, high)):
            step = (high - low) / (levels - 1)
            for part in text.split(","):
                place = (float(part.partition("=")[0]) - low) / step
                assert place == pytest.approx(round(place), abs=1e-9)
            assert levels <= 256
        assert found
    assert hitting(Shape.BELL, 0.0, 100.0) == ()
    largest = hitting(heaped("40=0.4,33.333=0.05", Shape.BELL, 0.0, 100.0), 0.0, 100.0)
    assert largest
    assert all((levels - 1) % 5 == 0 for levels in largest)


def test_what_is_predicted_for_heaps_is_what_comes() -> None:
    """4,000 devices with hours as a census has them, 60 batches: with 101 levels, one per hour, the
    error is as predicted (within 35 %, which 60 runs tell apart from twice), and below a quarter of
    an hour at the median; with 24 levels it is said to be twice that.

    Planted: the shape ignored by ``values`` -> the prediction is off by hours, fails; quantiles in
    a plain straight line within a bin -> half an hour at the median, fails.
    """
    shape = of_numbers(hours(), 0.0, 100.0, "hours")
    errors = {}
    for levels in (24, 101):
        question, domain = Quantiles(0.0, 100.0, AT, (levels,), shape), Numeric(0.0, 100.0, levels)
        mechanism = create(design("kmean", domain, 6.5), domain)
        squares, _ = predict_quantiles(question, mechanism, domain, N)
        errors[levels] = np.sqrt(squares)
        if levels == 101:
            found = simulate(question, mechanism, domain, N, 60, entropy=SeededEntropy("heaps"))
            assert found.predicted / 1.35 <= found.observed <= found.predicted * 1.35
    assert errors[101][1] < 0.25
    assert errors[24][1] > 2 * errors[101][1]
    smooth = Quantiles(0.0, 100.0, AT, (24,))
    domain = Numeric(0.0, 100.0, 24)
    mechanism = create(design("kmean", domain, 6.5), domain)
    promised = math.sqrt(float(predict_quantiles(smooth, mechanism, domain, 100_000)[0].mean()))
    assert heaped_error(smooth, mechanism, domain, 100_000) > 2 * promised


def test_numbers_are_read_from_a_file(tmp_path: Path) -> None:
    """Lines with counts and without. Planted: repeated numbers replaced, not added -> fails. An
    error never shows a number.
    """
    file = tmp_path / "hours.csv"
    file.write_text("40,3\n38.5\n\n40\n")
    assert read_numbers(file) == {40.0: 4, 38.5: 1}
    for text in ("forty\n", "40,x\n", "nan\n", "40,3\n12;7654321\n"):
        file.write_text(text)
        with pytest.raises(ShoalError, match="line") as caught:
            read_numbers(file)
        assert caught.value.kind is Kind.CONFIG
        assert "7654321" not in str(caught.value)
    with pytest.raises(ShoalError, match="bell"):
        read_numbers(tmp_path / "none")
