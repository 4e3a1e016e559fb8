"""How many devices come to a window that each of them draws, against counting all draws."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.analyzer.discovery.drawn import at_a_window, chance_of_few, devices_for, found_in_all
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
