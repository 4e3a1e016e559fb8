"""A round of more devices than a complete graph could have: at full counts ten thousand."""

from __future__ import annotations

from tests.sizes import size
from tests.worlds.rounds.secagg import Play, Step, World, remembered_signatures

DEVICES = size(1_030, 10_000)
LOST = size(8, 500)  # after they shared; as many before


def test_a_large_cohort_ends_with_the_exact_sum() -> None:
    """Every position is found on the ring, and nobody has all others for neighbours. Planted: the
    limit of cohorts of before -> the list of seats is refused; neighbours counted without mod n ->
    fails.
    """
    world = World(
        DEVICES,
        dimension=3,
        cohort_min=DEVICES,
        survivors_min=DEVICES // 2,
        dropout_ppm=size(20_000, 120_000),
        honest_ppm=size(1_000_000, 950_000),
    )
    fates = [Step.MASK] * LOST + [Step.SHARE] * LOST + [Step.NONE] * (DEVICES - 2 * LOST)
    with remembered_signatures():
        play = Play(world, fates=fates).run()
        assert play.check()
    assert len(play.uploaded) == DEVICES - 2 * LOST
    assert not world.terms.parameters(DEVICES).complete
