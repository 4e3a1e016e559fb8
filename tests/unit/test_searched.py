"""The search for many secrets in one pass, against ``in``."""

from __future__ import annotations

from itertools import product

from tests.searched import any_within


def test_it_finds_what_in_finds() -> None:
    """Of two different bytes, so that heads, overlaps and both ends are met. Planted: the odd
    places left out -> fails; the head alone compared -> fails.
    """
    seen = set[bool]()
    few = [bytes(one) for length in (2, 3) for one in product(range(2), repeat=length)]
    for length in range(8):
        for data in map(bytes, product(range(2), repeat=length)):
            for needles in ([], few[:1], few[1:3], few[5:7], few[-1:]):
                found = any(one in data for one in needles)
                assert any_within(needles, data) is found, (data, needles)
                seen.add(found)
    assert seen == {False, True}
