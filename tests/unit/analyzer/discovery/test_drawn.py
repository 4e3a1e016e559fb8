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
    honest_share,
)
from shoal.analyzer.discovery.plan import DiscoveryRequest
from shoal.errors import ShoalError
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


@for_each(
    "devices, longest, share",
    [(400, 2, "9/10"), (500, 3, "19/20"), (300, 3, "1"), (201, 2, "24/25")],
)
def test_every_batch_that_is_released_has_the_honest_devices_that_are_counted_on(
    devices: int, longest: int, share: str
) -> None:
    """Wherever those who lie answer: any number of them in a window, beside any number of honest
    ones. So has the larger batch the share that its second figure counts on. Planted: the share of
    all devices as that of a window -> batches with too few, unless nobody lies.
    """
    honest = Fraction(share)
    asked = DiscoveryRequest(1, 1.0, 1e-6, honest=honest, first=1, longest=longest)
    drawn = asked.drawing(devices)
    liars = math.floor((1 - honest) * devices)
    assert drawn.n == at_a_window(devices, longest)
    assert 1 <= drawn.n_honest <= drawn.n - liars
    assert drawn.n_honest == drawn.n or drawn.n_honest >= drawn.n - liars - 2
    assert drawn.may_lie >= liars
    batches = [
        (came, came + lying)
        for came in range(devices - liars + 1)
        for lying in range(liars + 1)
        if came + lying >= drawn.n
    ]
    assert all(came >= drawn.n_honest for came, _ in batches)
    assert all(came >= math.floor(drawn.honest * reports) for came, reports in batches)
    # with the share of all devices it would not
    assert (honest == 1) == all(came >= math.floor(honest * drawn.n) for came, _ in batches)


def test_a_window_is_released_though_nobody_lies() -> None:
    """The smallest batch is what comes if all answer, and with no share that lies nothing of a plan
    changes. Planted: all who may lie added to it -> every window is withheld.
    """
    asked = DiscoveryRequest(1, 1.0, 1e-8, honest=Fraction(19, 20), longest=5, spare=2)
    drawn = asked.drawing(20_000)
    assert drawn.withheld is not None
    assert drawn.withheld < 1e-3
    assert honest_share(20_000, Fraction(1), 3_102) == 1
    assert honest_share(20_000, Fraction(9, 10), 2_000) == 0


@for_each("share, works", [("0.834", False), ("0.845", True), ("0.846", True)])
def test_too_many_who_may_lie_are_refused_with_how_many_are_not(share: str, works: bool) -> None:
    """The least share that the line names does. Planted: windows that all who lie fill taken for a
    plan -> no refusal.
    """
    asked = DiscoveryRequest(1, 1.0, 1e-8, honest=Fraction(share), longest=5, spare=2)
    if works:
        assert asked.drawing(20_000).n_honest >= 1
        return
    with pytest.raises(ShoalError, match=r"may lie.* honest fraction of 0\.845 or more") as error:
        asked.drawing(20_000)
    assert "\n" not in error.value.message
