"""Rounds that lose devices, in every way or at random, and what must become of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from shoal.crypto.secagg.records import Reason
from shoal.entropy import SeededEntropy, uniform_below
from shoal.secagg import Mode
from tests.sizes import FULL
from tests.worlds.rounds.secagg import Play, Step, World

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


def every_loss(n: int, mode: Mode) -> Iterator[Sequence[Step]]:
    """The ways of losing n devices."""
    if FULL or n < 4:
        yield from itertools.product(ALL[mode], repeat=n)
        return
    entropy = SeededEntropy("an order of the devices")
    for chosen in itertools.combinations_with_replacement(ALL[mode], n):
        fates = list(chosen)
        yield [fates.pop(uniform_below(len(fates), entropy)) for _ in range(n)]


def lose_in_every_way(mode: Mode, most: int) -> None:
    """Rounds of 3 to ``most`` devices: a sum where the plan allows for who is lost, every way to
    end among them.
    """
    seen: Counter[Reason | None] = Counter()
    for n in range(3, most + 1):
        world = small(n, mode)
        for fates in every_loss(n, mode):
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


def any_of(steps: Sequence[Step], entropy: SeededEntropy) -> Step:
    return steps[uniform_below(len(steps), entropy)]


def cohort(entropy: SeededEntropy) -> int:
    """95 % 50 to 65, 4 % 66 to 150, 1 % 151 to 500: a round's cost grows faster than n, and k with
    log n alone.
    """
    percent = uniform_below(100, entropy)
    least, most = (50, 65) if percent < 95 else (66, 150) if percent < 99 else (151, 500)
    return least + uniform_below(most - least + 1, entropy)


def within(n: int, lost: int, steps: Sequence[Step], entropy: SeededEntropy) -> list[Step]:
    """``lost`` random devices, each at a random step."""
    fates = [Step.NONE] * n
    places = list(range(n))
    for _ in range(lost):
        fates[places.pop(uniform_below(len(places), entropy))] = any_of(steps, entropy)
    return fates
