"""Groups of devices as their code makes bundles: every group's answers before and after, every
dataset of the others, "none" among the answers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement, permutations, product

import pytest

from shoal.accounting.groups.of_messages import group_of_several
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from tests.sizes import size
from tests.unit.accounting.several_messages.real_bundles import (
    added,
    bundles,
    choose_everything,
    moved,
    worst_curve,
)


@pytest.mark.parametrize(("group", "deltas"), [(2, (0.3, 0.1)), (3, (0.5, 0.3))])
def test_a_group_among_dummies(
    group: int, deltas: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two or three of three devices replaced together: their own dummies count, and no more than
    theirs and the other's. At the epsilon that is stated the worst divergence is below delta, by
    10 % at most. Planted: the epsilon of one device fewer -> fails.
    """
    choose_everything(monkeypatch)
    noise = NoiseLaw(Truth.CELL, 2, 3, 16, dummies=Fraction(8))
    made = BundledHistogram(("yes", "none"), noise)
    one = moved(bundles(made, 0), (1, 0), -1)
    drawn = reduce(added, [one] * 3)
    views = {count: moved(drawn, (count, 3 - count)) for count in range(4)}
    pairs = [
        (views[sum(before) + sum(others)], views[sum(after) + sum(others)])
        for others in product((0, 1), repeat=3 - group)
        for before, after in permutations(combinations_with_replacement((0, 1), group), 2)
    ]
    truth = worst_curve(pairs)
    for delta in deltas[: size(1, 2)]:
        stated = group_of_several(made, 3, delta, group).epsilon_upper
        assert 0.9 * delta <= truth(stated) <= delta
