"""As ``test_secagg_dropouts.py``, in strict mode, where endorsing is a step too. A file of its own,
because both take minutes at full size.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.entropy import SeededEntropy, uniform_below
from shoal.secagg import Mode
from tests.property.secagg_losses import ALL, FAILURES_MOST, checked, lose_in_every_way, within
from tests.sizes import size
from tests.worlds.rounds.secagg import World, remembered_agreements, remembered_signatures

pytestmark = pytest.mark.campaign


@pytest.fixture(autouse=True)
def _remembered() -> Iterator[None]:
    with remembered_signatures(), remembered_agreements():
        yield


def test_every_way_of_losing_devices() -> None:
    """n <= 6: every device lost at every step, in every combination (137,200 rounds).

    Reduced: n = 3.
    """
    lose_in_every_way(Mode.STRICT, size(3, 6))


def test_random_strict_rounds() -> None:
    """As many lost as the plan allows, at any steps after joining. A sum, always."""
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
        aborted += checked(world, within(n, n // 10, ALL[Mode.STRICT][1:-1], entropy)) is not None
    assert aborted <= FAILURES_MOST
