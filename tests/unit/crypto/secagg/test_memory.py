"""How often a long vector is in memory: at a device, and at the analyzer. In vectors of 8 bytes per
coordinate, with words of 4 bytes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from tests.worlds.rounds.secagg import Play, Step, World

DIMENSION = 1 << 18
WORLD = World(devices=4, dimension=DIMENSION)


def peak(act: Callable[[], object]) -> float:
    """What ``act`` has beyond what was there before, at most."""
    tracemalloc.start()
    try:
        act()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most / (8 * DIMENSION)


def test_a_device_has_its_vector_and_what_it_sends() -> None:
    """Masked words and their sealed bytes, half a vector each, beside the vector itself: two in
    all. Planted: the words copied before they are sealed -> 1.5, fails.
    """
    play = Play(WORLD).run_to(Step.MASK)
    assert peak(lambda: play.mask(0)) < 1.05


def test_the_analyzer_has_one_sum_and_one_row() -> None:
    """Beside its sum and the sealed row: the row opened, and its ciphertext without the key before
    it; half a vector each, however many rows come. Planted: opened rows kept until the end -> 3,
    fails.
    """
    play = Play(WORLD).run_to(Step.MASK)
    for number in range(WORLD.devices):
        play.mask(number)
    rows = list(play.uploads.values())
    collector = play.collector
    assert peak(lambda: collector.add_vectors(iter(rows))) < 1.05
    assert collector.rows == WORLD.devices


def test_a_round_of_long_vectors_ends_with_their_sum() -> None:
    """Planted: the last block of a long pad left out -> the sum is wrong, fails."""
    assert Play(WORLD).run().check()
