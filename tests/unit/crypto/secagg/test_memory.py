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


SEGMENTED = World(devices=4, dimension=DIMENSION, segment_words=1 << 14)


def test_a_device_with_segments_has_what_it_sends() -> None:
    """Its sealed row alone, half a vector, and a segment, beside the vector. Planted: all words
    masked before the first is sealed -> 1, fails.
    """
    play = Play(SEGMENTED).run_to(Step.MASK)
    assert peak(lambda: play.mask(0)) < 0.6


def test_the_analyzer_has_one_sum_and_one_opened_row_of_segments() -> None:
    """Half a vector beside its sum, and some segments of 1/32 each, however many rows come.
    Planted: sealed rows gathered before they are opened -> 1, fails.
    """
    play = Play(SEGMENTED).run_to(Step.MASK)
    for number in range(SEGMENTED.devices):
        play.mask(number)
    data = b"".join(play.uploads.values())
    collector, step = play.collector, 1 << 16

    def deliver() -> None:
        for at in range(0, len(data), step):
            collector.feed(memoryview(data)[at : at + step], at)

    assert peak(deliver) < 0.7
    assert collector.rows == SEGMENTED.devices
    assert collector.unusable == ()


def test_a_round_of_long_vectors_ends_with_their_sum() -> None:
    """Planted: the last block of a long pad left out -> the sum is wrong, fails."""
    assert Play(WORLD).run().check()
    assert Play(SEGMENTED).run().check()
