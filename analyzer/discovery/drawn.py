"""How many devices come to one window, if each of them draws the window in which it answers.

Each of n devices draws one of w windows uniformly, so a window gets Binomial(n, 1/w) of them. One
that lies keeps to no draw: it may answer in every window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from shoal.accounting.certificate import count_honest
from shoal.mechanisms.several.levels import least_number

_PPM = 1_000_000  # what a task states its honest fraction in
_ROUNDING = 1.0 + 1e-5  # of the logarithms of factorials, for up to 1e9 devices


def at_a_window(devices: int, windows: int) -> int:
    """Of so many ``devices`` how many come to a window, but with a chance of 1e-4 or so
    (``chance_of_few`` says it): four standard deviations fewer than are expected. May be 0 or less.
    """
    mean = devices / windows
    return math.floor(mean - 4.0 * math.sqrt(mean))


def honest_share(devices: int, honest: Fraction, least: int) -> Fraction:
    """The share of a window's reports that is honest, in whole millionths, where ``honest`` is that
    of all ``devices`` and a window is released with ``least`` >= 1 reports or more. Direction:
    lower bound, 0 where no report need be honest.

    All who lie may answer in the same window, so ``least`` less all of them are honest. Larger
    batches have a larger share.
    """
    liars = devices - count_honest(devices, honest)
    return Fraction(max(0, least - liars) * _PPM // least, _PPM)


def at_most(devices: int, windows: int) -> int:
    """As ``at_a_window``, but seldom more than so many: four standard deviations above."""
    mean = devices / windows
    return min(devices, math.ceil(mean + 4.0 * math.sqrt(mean)))


def devices_for(least: int, windows: int) -> int:
    """The fewest devices of which ``at_a_window`` are ``least`` >= 1 or more."""
    found = math.floor(windows * (2.0 + math.sqrt(4.0 + least)) ** 2)
    while found > 0 and at_a_window(found - 1, windows) >= least:
        found -= 1
    while at_a_window(found, windows) < least:
        found += 1
    return found


def chance_of_few(devices: int, windows: int, least: int) -> float:
    """How probable it is that one window or more get fewer than ``least`` of ``devices``.
    Direction: upper bound (the sum over windows; each of them by its terms from the largest on).
    """
    most = min(least - 1, devices)
    if most < 0:
        return 0.0
    if windows == 1:
        return 1.0 if devices < least else 0.0
    share, mean = 1.0 / windows, devices / windows
    if most >= mean:  # more likely than not, or nearly
        return 1.0
    logarithm = (
        math.lgamma(devices + 1)
        - math.lgamma(most + 1)
        - math.lgamma(devices - most + 1)
        + most * math.log(share)
        + (devices - most) * math.log1p(-share)
    )
    term = total = math.exp(logarithm)
    for count in range(most, 0, -1):
        # the terms fall by this ratio or faster, from here on down
        ratio = count / (devices - count + 1) * (windows - 1)
        term *= ratio
        total += term
        if term < 1e-12 * total:
            total += term * ratio / (1.0 - ratio)
            break
    return min(1.0, windows * total * _ROUNDING)


def error_in_all(stderr: float, windows: int, holders: int) -> float:
    """Standard error of a count of the whole fleet, ``windows`` times that of a window which errs
    by ``stderr``, for a word that ``holders`` devices have: by the noise and by the draw.
    """
    return math.sqrt((windows * stderr) ** 2 + holders * (windows - 1))


def found_in_all(windows: int, levels: int, chance: Callable[[int], float], sure: float) -> int:
    """The fewest devices that have a word which is found with ``sure``: at every of ``levels``
    those of them that drew its window are enough. ``chance``: that a level follows what so many
    devices of it have; more have no smaller one. Direction: upper bound (what all levels miss is
    added up, for their devices are not drawn independently).
    """
    most_missed = (1.0 - sure) / levels

    def enough(holders: int) -> bool:
        met = math.fsum(
            share * chance(count) for count, share in _law(holders, windows) if share > 0.0
        )
        return 1.0 - met / _ROUNDING <= most_missed

    return least_number(enough)


def _law(holders: int, windows: int) -> Iterator[tuple[int, float]]:
    """Of how many of ``holders`` devices come to a window, with which probability: all but 1e-12 or
    so of it.
    """
    mean = holders / windows
    reach = 8.0 * math.sqrt(mean) + 32.0
    for count in range(max(0, math.floor(mean - reach)), min(holders, math.ceil(mean + reach)) + 1):
        if windows == 1:
            yield count, float(count == holders)
            continue
        yield (
            count,
            math.exp(
                math.lgamma(holders + 1)
                - math.lgamma(count + 1)
                - math.lgamma(holders - count + 1)
                - holders * math.log(windows)
                + (holders - count) * math.log(windows - 1)
            ),
        )
