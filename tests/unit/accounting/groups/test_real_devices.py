"""Groups of devices as their code makes bundles: every group's answers before and after, every
dataset of the others, "none" among the answers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement, permutations, product

import pytest

from shoal.accounting.groups.bound import GroupBound
from shoal.accounting.groups.of_dummies import group_lower
from shoal.accounting.groups.of_messages import group_of_several
from shoal.accounting.several_messages.of_domain import design_several
from shoal.arrays import np
from shoal.domain import Numeric
from shoal.errors import ShoalError
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.several_messages.real_bundles import (
    added,
    bundles,
    choose_everything,
    moved,
    worst_curve,
)


@pytest.mark.parametrize(("group", "deltas"), [(2, (0.3, 0.1)), (3, (0.5, 0.3))][: size(1, 2)])
def test_a_group_among_dummies(
    group: int, deltas: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two or three of three devices replaced together: their own dummies count, and no more than
    theirs and the other's. At the epsilon that is stated the worst divergence is below delta, by
    10 % at most; at the lower one it is above. Planted: the epsilon of one device fewer -> fails; a
    lower one of a device more -> fails.
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
        found = group_of_several(made, 3, delta, group)
        assert 0.9 * delta <= truth(found.epsilon_upper) <= delta
        assert found.epsilon_lower > 0.5 * found.epsilon_upper
        assert truth(found.epsilon_lower) > delta


@for_each("devices", [2, 3])
def test_a_lower_bound_in_tables_is_below_what_two_tables_show(devices: int) -> None:
    """Sums of plain products over all counts of two pairs of cells. Planted: a cell's ``certain``
    of three counts more -> fails.
    """
    mean = 6.0
    law = NoiseLaw(Truth.CELL, 4, 4, 60, dummies=Fraction(mean), truths=2)
    counts = np.arange(50)
    f = np.exp(counts * math.log(mean) - mean - np.array([math.lgamma(c + 1.0) for c in counts]))
    more = np.append(np.zeros(devices), f[:-devices])
    p, q = np.outer(more, f).ravel(), np.outer(f, more).ravel()
    kept = p + q > 1e-9
    p, q = p[kept], q[kept]

    def truth(epsilon: float) -> float:
        e = math.exp(epsilon)
        return float(
            sum(np.maximum(p * a - e * q * b, 0.0).sum() for a, b in zip(p, q, strict=True))
        )

    for delta in (0.5, 0.2):
        lower = group_lower(law, 4, delta, devices, 20.0)
        assert truth(lower + 1e-9) >= delta * (1 - 1e-6)
        assert truth(1.02 * lower + 0.01) < delta


@for_each("devices", [1, 2, 3])
def test_a_group_among_many_dummies_is_two_sided(devices: int) -> None:
    """The chain and a real pair of datasets meet to .5 %. Planted: the chain of one device more ->
    fails.
    """
    domain = Numeric(0.0, 1.0, 63)
    made = create(design_several("ranges", domain, 18_000, 1.0, 1e-9, windows=1), domain)
    found = group_of_several(made, 18_000, 1e-6, devices)
    assert found.epsilon_lower <= found.epsilon_upper <= 1.005 * found.epsilon_lower


def test_nothing_is_claimed_where_no_pair_is_known() -> None:
    """Of signed messages, and of more devices than are honest. Planted: no such check -> fails."""
    signed = NoiseLaw(Truth.CELL, 4, 4, 60, Fraction(1, 2), 5, Fraction(3), 2)
    assert group_lower(signed, 4, 0.1, 2, 9.0) == 0.0
    few = NoiseLaw(Truth.CELL, 4, 4, 60, dummies=Fraction(6))
    assert group_lower(few, 1, 0.1, 2, 9.0) == 0.0
    with pytest.raises(ShoalError, match="at most the upper one"):
        GroupBound(2, 1, 1.0, 1e-6, "chain", 1.5)
