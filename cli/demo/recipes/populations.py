"""Made-up devices: what each would answer in each window.

Nobody's data, and no data set: a few public parameters, all of them here. The seed is fixed, so
that the same devices hold the same values in every run; it is for values alone. What devices
randomize with is the machine's own CSPRNG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy, SeededEntropy

_SEED = "recipes"

# The r-th of a Zipf list has a weight of 1 / r.
_KEEPS = 0.8  # of devices, from one window to the next; the others draw anew
# A window of app usage: not used at all, a round number of minutes, or anything.
_UNUSED, _ROUND, _KEEPS_USAGE = 0.35, 0.25, 0.7
_ROUND_SECONDS = (300, 600, 900, 1_800, 3_600, 7_200)
_USAGE_MEAN = 2_400.0  # seconds, of the rest, exponentially distributed and cut off at the range
_KNOWN = 0.1  # of devices, whose word a dictionary has
# Shares of the kinds of places, in the order of the recipe, on Monday to Friday and at weekends.
_WEEKDAY = (0.10, 0.08, 0.04, 0.13, 0.45, 0.20)
_WEEKEND = (0.24, 0.16, 0.17, 0.06, 0.07, 0.30)
_DAYS, _WORKDAYS = 7, 5


def favourites(devices: int, windows: int, names: Sequence[str], what: str) -> list[list[str]]:
    """A favourite among ``names``, by a Zipf law, which changes now and then. ``what``: devices of
    another question. Lists of windows, each of devices.
    """
    entropy = SeededEntropy(f"{_SEED} {what}")
    weights = 1.0 / np.arange(1, len(names) + 1)
    places = _drawn(weights, devices, entropy)
    made = [places]
    for _ in range(windows - 1):
        places = _changed(places, _drawn(weights, devices, entropy), _KEEPS, entropy)
        made.append(places)
    return [[names[place] for place in each.tolist()] for each in made]


def app_usage(devices: int, windows: int, most: float) -> list[list[float]]:
    """Seconds of use in six hours, 0 to ``most``: some use it not at all, some for a round number
    of minutes.
    """
    entropy = SeededEntropy(f"{_SEED} app usage")
    seconds = _usage(devices, most, entropy)
    made = [seconds]
    for _ in range(windows - 1):
        seconds = _changed(seconds, _usage(devices, most, entropy), _KEEPS_USAGE, entropy)
        made.append(seconds)
    return [each.tolist() for each in made]


def places(devices: int, windows: int, names: Sequence[str]) -> list[list[str]]:
    """The kind of place that a device was at longest, on Monday and each day after it."""
    entropy = SeededEntropy(f"{_SEED} places")
    made = list[list[str]]()
    for day in range(windows):
        weights = np.array(_WEEKDAY if day % _DAYS < _WORKDAYS else _WEEKEND)
        drawn = _drawn(weights, devices, entropy)
        made.append([names[place] for place in drawn.tolist()])
    return made


def words(devices: int, listed: Sequence[str], known: Sequence[str]) -> list[str]:
    """A word: some have one that is ``known``, the others one by a Zipf law over ``listed``."""
    entropy = SeededEntropy(f"{_SEED} words")
    new = _drawn(1.0 / np.arange(1, len(listed) + 1), devices, entropy)
    old = _drawn(np.ones(len(known)), devices, entropy)
    has_old = _uniform(devices, entropy) < _KNOWN
    return [
        known[other] if is_old else listed[place]
        for place, other, is_old in zip(new.tolist(), old.tolist(), has_old.tolist(), strict=True)
    ]


def _usage(devices: int, most: float, entropy: Entropy) -> NDArray[np.float64]:
    kind = _uniform(devices, entropy)
    heaps = np.array(_ROUND_SECONDS)[_drawn(np.ones(len(_ROUND_SECONDS)), devices, entropy)]
    rest = np.floor(-_USAGE_MEAN * np.log1p(-_uniform(devices, entropy)))
    seconds = np.where(kind < _UNUSED, 0.0, np.where(kind < _UNUSED + _ROUND, heaps, rest))
    used: NDArray[np.float64] = np.minimum(seconds, most)
    return used


def _changed(
    before: NDArray[Any], drawn: NDArray[Any], keeps: float, entropy: Entropy
) -> NDArray[Any]:
    """Most keep what they had."""
    return np.where(_uniform(len(before), entropy) < keeps, before, drawn)


def _drawn(weights: NDArray[np.float64], count: int, entropy: Entropy) -> NDArray[np.int64]:
    """int64[count]: places drawn by their weights."""
    edges = np.cumsum(weights) / math.fsum(weights.tolist())
    found = np.searchsorted(edges, _uniform(count, entropy), side="right")
    places: NDArray[np.int64] = np.minimum(found, len(weights) - 1).astype(np.int64)
    return places


def _uniform(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """float64[count] in [0, 1)."""
    return (entropy.words(count) >> np.uint64(11)).astype(np.float64) / 2.0**53
