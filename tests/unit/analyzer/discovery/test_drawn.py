"""How many devices come to a window that each of them draws, against counting all draws."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.analyzer.discovery.drawn import (
    at_a_window,
    at_most,
    chance_of_few,
    devices_for,
    error_in_all,
    found_in_all,
)
from tests.cases import for_each


def exactly(devices: int, windows: int, least: int) -> Fraction:
    """P[Binomial(devices, 1/windows) < least]."""
    share = Fraction(1, windows)
    return sum(
        (
            math.comb(devices, count) * share**count * (1 - share) ** (devices - count)
            for count in range(min(least, devices + 1))
        ),
        Fraction(0),
    )


@for_each(
    "devices, windows, least",
    [(40, 4, 3), (400, 5, 50), (400, 12, 10), (3_000, 3, 873), (30, 2, 1), (7, 2, 3)],
)
def test_the_chance_is_that_of_the_binomial_law(devices: int, windows: int, least: int) -> None:
    """All windows together at most so many times that of one, and never less. Planted: a term
    left out, the largest or the second -> below; the ratio of the next term -> above.
    """
    bound = Fraction(chance_of_few(devices, windows, least))
    true = windows * exactly(devices, windows, least)
    assert true <= bound <= true * Fraction(10_001, 10_000)


@for_each("devices, windows, least", [(5, 1, 5), (5, 1, 6), (10, 2, 6), (9, 3, 0)])
def test_what_is_sure_is_said_so(devices: int, windows: int, least: int) -> None:
    found = chance_of_few(devices, windows, least)
    assert found == (1.0 if least > devices / windows else 0.0)


@for_each("devices, windows", [(1_000, 4), (20_000, 12), (650_000, 10)])
def test_a_window_gets_so_many_but_seldom(devices: int, windows: int) -> None:
    """Of all windows together less than once in a thousand. Planted: three deviations -> more."""
    least = at_a_window(devices, windows)
    assert 0 < least < devices / windows
    assert chance_of_few(devices, windows, least) < 1e-3 * windows / 10
    assert devices_for(least, windows) <= devices
    fewest = devices_for(least, windows)
    assert at_a_window(fewest - 1, windows) < least <= at_a_window(fewest, windows)


@for_each("windows, levels, least", [(4, 3, 5), (12, 10, 3), (2, 2, 9), (1, 4, 7)])
def test_so_many_devices_of_all_are_enough(windows: int, levels: int, least: int) -> None:
    """Levels that follow what ``least`` devices have: the fewest of all, by counting. Planted:
    levels not added up -> fewer; ``least`` in each window on average -> far fewer.
    """
    found = found_in_all(windows, levels, lambda count: float(count >= least), 0.95)

    def missed(holders: int) -> Fraction:
        return levels * exactly(holders, windows, least)

    assert missed(found) <= Fraction(5, 100)
    assert missed(found - 1) > Fraction(5, 100) * Fraction(999, 1_000)


@for_each("windows, holders", [(2, 7), (5, 12), (8, 3)])
def test_the_error_of_the_fleet_is_of_the_noise_and_of_the_draw(windows: int, holders: int) -> None:
    """A count of all devices is ``windows`` times that of a window: its variance, by the terms of
    the law, and of a noise of +-3 beside. Planted: the draw left out -> smaller; without the
    windows that are not drawn -> larger.
    """
    variance = sum(
        math.comb(holders, count)
        * Fraction(1, windows) ** count
        * (1 - Fraction(1, windows)) ** (holders - count)
        * (windows * (count + noise) - holders) ** 2
        / 2
        for count in range(holders + 1)
        for noise in (-3, 3)
    )
    assert error_in_all(3.0, windows, holders) == pytest.approx(math.sqrt(variance), rel=1e-12)


@for_each("devices, windows", [(1_000, 4), (400, 12), (9, 3)])
def test_more_seldom_come(devices: int, windows: int) -> None:
    """Less than once in a thousand, and no more than there are. Planted: below the mean ->
    fails.
    """
    most = at_most(devices, windows)
    assert devices < most * windows
    assert most <= devices
    assert 1 - exactly(devices, windows, most + 1) < Fraction(1, 1_000)
