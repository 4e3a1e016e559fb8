"""Axes: where values lie, which ticks there are, and what stands at them."""

from __future__ import annotations

import pytest

from shoal.pictures.axes import (
    Axis,
    Steps,
    linear_ticks,
    logarithmic_ticks,
    number,
    polyline,
    power_text,
)

_STEPS = (Steps((1, 2, 5), most=8), Steps((1,), most=12))


def test_a_logarithmic_axis_keeps_ratios() -> None:
    """Equal ratios are equal distances. Planted: a linear axis -> this fails."""
    axis = Axis(10.0, 1000.0, 0.0, 200.0, logarithmic=True)
    assert [axis.place(value) for value in (10.0, 100.0, 1000.0)] == [0.0, 100.0, 200.0]
    upward = Axis(0.01, 1.0, 300.0, 100.0, logarithmic=True)
    assert [upward.place(value) for value in (0.01, 0.1, 1.0)] == [300.0, 200.0, 100.0]


def test_a_linear_axis_keeps_differences() -> None:
    """Planted: a logarithmic axis by default -> a value below 0 has no place."""
    axis = Axis(-1.0, 3.0, 20.0, 60.0)
    assert [axis.place(value) for value in (-1.0, 0.0, 1.0, 3.0)] == [20.0, 30.0, 40.0, 60.0]
    upward = Axis(0.0, 2.0, 100.0, 0.0)
    assert polyline([(-1.0, 0.0), (3.0, 1.0)], axis, upward) == "20.0,100.0 60.0,50.0"


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (10.0, 1e7, ["10", "100", "1000", "10⁴", "10⁵", "10⁶", "10⁷"]),
        (0.02, 3.0, ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        (1e-9, 1e-4, ["10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴"]),
        (3e-6, 4e-5, ["5·10⁻⁶", "10⁻⁵", "2·10⁻⁵"]),
        (2.1, 4.2, ["2.5", "3", "3.5", "4"]),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, texts: list[str]) -> None:
    """Planted: the slack at the ends left out -> 10^7 is missing; no evenly spaced ticks where
    there is no power of ten -> an axis with one tick or none.
    """
    axis = Axis(low, high, 0.0, 600.0, logarithmic=True)
    ticks = axis.ticks(logarithmic_ticks(low, high, _STEPS), power_text)
    assert [tick.text for tick in ticks] == texts
    assert all(0.0 <= tick.at <= 600.0 for tick in ticks)


def test_far_ends_get_no_more_ticks() -> None:
    """Planted: the thinning left out -> 600 ticks."""
    assert 6 <= len(logarithmic_ticks(1e-300, 1e300, _STEPS)) <= 12
    assert len(linear_ticks(0.0, 1e9, about=6)) <= 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (20_190.0, "20,190"),
        (-12.5, "-12.5"),
        (0.03565, "0.03565"),
        (1e-8, "1e-08"),
        (1.10003, "1.1"),
        (1234.5678, "1,235"),
    ],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text
