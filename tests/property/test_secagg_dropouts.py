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

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from shoal.crypto.secagg.records import Reason
from shoal.entropy import SeededEntropy, uniform_below
from shoal.secagg import Mode
from tests.sizes import FULL, size
from tests.worlds.rounds.secagg import (
    Play,
    Step,
    World,
    remembered_agreements,
    remembered_signatures,
)

pytestmark = pytest.mark.campaign

ALL = {
    Mode.DEFAULT: (Step.JOIN, Step.SHARE, Step.CHECK, Step.MASK, Step.UNMASK, Step.NONE),
    Mode.STRICT: (
        Step.JOIN,
        Step.SHARE,
        Step.CHECK,
        Step.MASK,
        Step.ENDORSE,
        Step.UNMASK,
        Step.NONE,
    ),
}
# Chance that a round within the plan's dropout aborts, by the parameters: at most 2^-20. Of 10,000
# rounds the expected number is below 0.01; more than 1 has probability below 1e-4.
FAILURES_MOST = 1


@pytest.fixture(autouse=True)
def _remembered() -> Iterator[None]:
    with remembered_signatures(), remembered_agreements():
        yield


def play(world: World, fates: Sequence[Step]) -> Play:
    return Play(world, fates).run()


def small(n: int, mode: Mode) -> World:
    """Nobody corrupt, a quarter may be lost: t = 2 for n = 3 to 5, more slack at 6."""
    return World(
        n,
        mode,
        cohort_min=3,
        survivors_min=2,
        dropout_ppm=250_000,
        honest_ppm=1_000_000,
        dimension=2,
    )


def must_end_well(world: World, fates: Sequence[Step]) -> bool:
    """Within the plan: enough join, and of those floor(dropout n) at most are lost at all."""
    joined = [fate for fate in fates if fate is not Step.JOIN]
    lost = sum(fate is not Step.NONE for fate in joined)
    return (
        len(joined) >= world.plan.cohort_min
        and lost <= world.plan.dropout_ppm * len(joined) // 10**6
    )


def checked(world: World, fates: Sequence[Step]) -> Reason | None:
    """The reason of an abort; the sum is looked at."""
    one = play(world, fates)
    assert one.check() == (one.coordinator.reason is None)
    # Vectors that count are those of devices that took the step, and the devices that were lost
    # before are not among them.
    assert all(fates[number] > Step.MASK for number in one.uploaded)
    return one.coordinator.reason


def _every(n: int, mode: Mode) -> Iterator[Sequence[Step]]:
    """The ways of losing n devices."""
    if FULL or n < 4:
        yield from itertools.product(ALL[mode], repeat=n)
        return
    entropy = SeededEntropy("an order of the devices")
    for chosen in itertools.combinations_with_replacement(ALL[mode], n):
        fates = list(chosen)
        yield [fates.pop(uniform_below(len(fates), entropy)) for _ in range(n)]


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
def test_every_way_of_losing_devices(mode: Mode) -> None:
    """n <= 6: every device lost at every step, in every combination (61,712 rounds).

    Reduced: n = 3 so, and by default 4, where all devices are one another's neighbours, every
    combination in one order of the devices, drawn.
    """
    seen: Counter[Reason | None] = Counter()
    for n in range(3, size(5, 7) if mode is Mode.DEFAULT else size(4, 7)):
        world = small(n, mode)
        for fates in _every(n, mode):
            reason = checked(world, fates)
            seen[reason] += 1
            assert reason is None or not must_end_well(world, fates), fates
    assert {
        None,
        Reason.TOO_FEW_JOINED,
        Reason.TOO_FEW_SHARED,
        Reason.TOO_FEW_VECTORS,
        Reason.TOO_FEW_SHARES,
    } <= set(seen)
    assert (Reason.TOO_FEW_ENDORSED in seen) == (mode is Mode.STRICT)


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
        fates = _within(n, uniform_below(n, entropy), ALL[mode][1:-1], entropy)
        assert checked(world, fates) is None or not must_end_well(world, fates), fates


def _any(steps: Sequence[Step], entropy: SeededEntropy) -> Step:
    return steps[uniform_below(len(steps), entropy)]


def _devices(entropy: SeededEntropy) -> int:
    """95 % 50 to 65, 4 % 66 to 150, 1 % 151 to 500: a round's cost grows faster than n, and k with
    log n alone.
    """
    percent = uniform_below(100, entropy)
    least, most = (50, 65) if percent < 95 else (66, 150) if percent < 99 else (151, 500)
    return least + uniform_below(most - least + 1, entropy)


def _within(n: int, lost: int, steps: Sequence[Step], entropy: SeededEntropy) -> list[Step]:
    """``lost`` random devices, each at a random step."""
    fates = [Step.NONE] * n
    places = list(range(n))
    for _ in range(lost):
        fates[places.pop(uniform_below(len(places), entropy))] = _any(steps, entropy)
    return fates


@pytest.mark.timeout(7_200)
def test_random_rounds() -> None:
    """10 rounds by default, 10,000 in full: as many lost as the plan allows, or fewer, at any steps
    after joining. A sum, always.

    A quarter of the rounds lose all at one step. Word widths, plans and dropout shares vary.
    Failure rate: see FAILURES_MOST.
    """
    entropy, aborted = SeededEntropy("random rounds"), 0
    rounds = size(10, 300, 10_000)
    for number in range(rounds):
        n = _devices(entropy) if FULL or number % 8 else 51
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
        steps = ALL[Mode.DEFAULT][1:-1] if number % 4 else (_any(ALL[Mode.DEFAULT][1:-1], entropy),)
        aborted += checked(world, _within(n, lost, steps, entropy)) is not None
    assert aborted <= FAILURES_MOST


def test_random_strict_rounds() -> None:
    """The same in strict mode, where endorsing is a step too."""
    entropy, aborted = SeededEntropy("random strict rounds"), 0
    for number in range(size(2, 20, 100)):
        n = 50 + uniform_below(11, entropy)
        world = World(
            n,
            Mode.STRICT,
            dimension=3,
            survivors_min=n // 2,
            dropout_ppm=100_000,
            seed=f"strict {number}",
        )
        aborted += checked(world, _within(n, n // 10, ALL[Mode.STRICT][1:-1], entropy)) is not None
    assert aborted <= FAILURES_MOST


def test_random_rounds_beyond_the_plan() -> None:
    """Up to everybody lost: a sum or an abort, and the sum is exact. Both happen."""
    entropy, seen = SeededEntropy("beyond"), Counter[bool]()
    for number in range(size(6, 60, 400)):
        n = 20 + uniform_below(40, entropy)
        world = World(n, dimension=3, survivors_min=3, seed=f"beyond {number}")
        fates = _within(n, uniform_below(n + 1, entropy), ALL[Mode.DEFAULT][:-1], entropy)
        seen[checked(world, fates) is None] += 1
    assert set(seen) == {True, False}
