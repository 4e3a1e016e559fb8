"""Parts of a fleet: together they are all of it."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal.clients.fleet.misbehaviour import Conduct, Shares, mix, scattered
from shoal.clients.fleet.parts import LoadPart
from shoal.errors import Kind, ShoalError
from tests.cases import for_each


@for_each("devices, of", [(100, 1), (100, 7), (1_003, 20), (100_000_000, 13), (40, 40)])
def test_parts_together_have_what_the_fleet_has(devices: int, of: int) -> None:
    """Clients of each kind, exactly. Planted: shares rounded for each part, a last part that takes
    what is left of devices alone -> each fails.
    """
    whole = mix(Shares(0.05, 0.03, 0.1, 0.02), devices, enrolled=True)
    parts = [LoadPart(number, of, devices) for number in range(of)]
    counts = [part.mix(whole) for part in parts]
    assert sum(counts, Counter()) == whole
    assert [each.total() for each in counts] == [part.devices for part in parts]
    assert max(part.devices for part in parts) - min(part.devices for part in parts) <= 1
    honest = [each[Conduct.HONEST] for each in counts]
    assert max(honest) - min(honest) <= 1


def test_clients_of_a_part_stand_anywhere() -> None:
    """Planted: in the order of their kinds -> fails."""
    counts = LoadPart(2, 5, 10_000).mix(mix(Shares(0.1, 0.1), 10_000, enrolled=False))
    found = scattered(counts)
    assert Counter(map(Conduct, found)) == counts
    assert 30 < sum(Conduct(one) is not Conduct.HONEST for one in found[:1_000]) < 370


@for_each("number, of, fleet", [(0, 0, 9), (3, 3, 9), (-1, 3, 9), (0, 10, 9), (0, 10_001, 20_000)])
def test_a_part_that_can_not_be(number: int, of: int, fleet: int) -> None:
    with pytest.raises(ShoalError) as caught:
        LoadPart(number, of, fleet)
    assert caught.value.kind is Kind.CONFIG
