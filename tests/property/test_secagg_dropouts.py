"""Whole rounds with every way of losing devices: the exact sum of the vectors of those who stayed,
or a typed abort. Never a wrong sum.

Small rounds exhaustively: each device lost at each of its steps, or never. Larger ones at random, n
= 50 to 500, with at most the plan's share of devices lost over the whole round: these must end with
a sum, up to a stated rate (the parameters are made so that one round in 2^20 fails). Real devices,
shuffler, analyzer and cryptography (tests/worlds/rounds/secagg.py); equal computations are made
once per process.

Planted, one at a time, each fails here: pads of dropped devices with the other sign; pads between
dropped devices and neighbours that never shared; devices that never shared counted as dropped; a
device that wants one neighbour more than the threshold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shoal.entropy import SeededEntropy, uniform_below
from shoal.secagg import Mode
from tests.property.secagg_losses import (
    ALL,
    FAILURES_MOST,
    any_of,
    checked,
    cohort,
    lose_in_every_way,
    must_end_well,
    small,
    within,
)
from tests.sizes import FULL, size
from tests.worlds.rounds.secagg import World, remembered_agreements, remembered_signatures

pytestmark = pytest.mark.campaign


@pytest.fixture(autouse=True)
def _remembered() -> Iterator[None]:
    with remembered_signatures(), remembered_agreements():
        yield


def test_every_way_of_losing_devices() -> None:
    """n <= 6: every device lost at every step, in every combination (55,944 rounds).

    Reduced: n = 3 so, and 4, where all devices are one another's neighbours, every combination in
    one order of the devices, drawn.
    """
    lose_in_every_way(Mode.DEFAULT, size(4, 6))


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
@pytest.mark.parametrize("n", [4, 5, 6])
def test_a_sample_with_low_thresholds(mode: Mode, n: int) -> None:
    """Thresholds as low as they can be (t = 2), so that rounds end with a sum after many losses;
    nobody is lost before the start.
    """
    entropy = SeededEntropy(f"sample {n} {mode}")
    world = (
        replace(small(n, mode), dropout_ppm=(n - 3) * 10**6 // n)
        if mode is Mode.DEFAULT
        else small(n, mode)
    )
    for _ in range(size(25, 200, 800)):
        fates = within(n, uniform_below(n, entropy), ALL[mode][1:-1], entropy)
        assert checked(world, fates) is None or not must_end_well(world, fates), fates


@pytest.mark.timeout(7_200)
def test_random_rounds() -> None:
    """10 rounds, 300 at full size, 10,000 as a campaign: as many lost as the plan allows, or fewer,
    at any steps after joining. A sum, always.

    A quarter of the rounds lose all at one step. Word widths, plans and dropout shares vary.
    Failure rate: see FAILURES_MOST.
    """
    entropy, aborted = SeededEntropy("random rounds"), 0
    rounds = size(10, 300, 10_000)
    for number in range(rounds):
        n = cohort(entropy) if FULL or number % 8 else 51
        dropout = (100_000, 200_000, 300_000)[uniform_below(3, entropy)]
        world = World(
            n,
            dimension=3,
            word_bits=(16, 32, 64)[number % 3],
            survivors_min=n // 2,
            dropout_ppm=dropout,
            seed=str(number),
        )
        lost = (
            uniform_below(n * dropout // 10**6 + 1, entropy) if number % 2 else n * dropout // 10**6
        )
        steps = (
            ALL[Mode.DEFAULT][1:-1] if number % 4 else (any_of(ALL[Mode.DEFAULT][1:-1], entropy),)
        )
        aborted += checked(world, within(n, lost, steps, entropy)) is not None
    assert aborted <= FAILURES_MOST


def test_random_rounds_beyond_the_plan() -> None:
    """Up to everybody lost: a sum or an abort, and the sum is exact. Both happen."""
    entropy, seen = SeededEntropy("beyond"), Counter[bool]()
    for number in range(size(6, 60, 400)):
        n = 20 + uniform_below(40, entropy)
        world = World(n, dimension=3, survivors_min=3, seed=f"beyond {number}")
        fates = within(n, uniform_below(n + 1, entropy), ALL[Mode.DEFAULT][:-1], entropy)
        seen[checked(world, fates) is None] += 1
    assert set(seen) == {True, False}
