"""A round of more devices than a complete graph could have: at full counts ten thousand. Its
vectors travel in segments, and some of its devices deal shares that do not open.
"""

from __future__ import annotations

from shoal.crypto.secagg.device.machine import DeviceState
from tests.sizes import size
from tests.worlds.rounds.dealers import BadDealers, charged, guilty
from tests.worlds.rounds.secagg import Step, World, remembered_signatures

DEVICES = size(1_030, 10_000)
LOST = size(8, 500)  # after they shared; as many before
BAD = size(4, 100)  # dealers; the first of them to one neighbour alone


def test_a_large_cohort_ends_with_the_exact_sum() -> None:
    """Every position is found on the ring, and nobody has all others for neighbours. Bad dealers
    are out before anybody masks: they alone have not answered the window, and nobody else is named
    or lost.

    Planted: the limit of cohorts of before -> the list of seats is refused; neighbours counted
    without mod n -> fails; a verdict that lets nobody go (``judged``) -> no sum, fails.
    """
    world = World(
        DEVICES,
        dimension=9,
        segment_words=4,
        cohort_min=DEVICES,
        survivors_min=DEVICES // 2,
        dropout_ppm=size(20_000, 120_000),
        honest_ppm=size(1_000_000, 950_000),
    )
    fates = [Step.MASK] * LOST + [Step.SHARE] * LOST + [Step.NONE] * (DEVICES - 2 * LOST)
    assert not world.terms.parameters(DEVICES).complete
    neighbours = world.terms.parameters(DEVICES).neighbours
    bad = dict.fromkeys(range(DEVICES - BAD, DEVICES), neighbours) | {DEVICES - 1: 1}
    with remembered_signatures():
        play = BadDealers(world, fates=fates, bad=bad).run()
        assert play.check()
    honest = set(range(2 * LOST, DEVICES - BAD))
    assert set(play.uploaded) == charged(play) == honest
    assert guilty(play) == set(bad)
    assert not play.coordinator.blamed
    assert {play.devices[number].state for number in honest} == {DeviceState.RELEASED}
