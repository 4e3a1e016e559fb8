"""Several stores on one database: one admission for each device, wherever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.errors import Kind
from shoal.shuffler.core import Capacity
from tests.conformance.store.harness import devices, of, reports, seal
from tests.worlds import postgres
from tests.worlds.replica_stores import Replicas, replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replica_stores(tmp_path) as make:
        yield make


async def test_a_device_is_admitted_once_wherever_it_comes(replica: Replicas) -> None:
    """Also by two replicas at a time; the same report is taken by any. Planted: tags entered in a
    transaction of their own -> CONFLICT for a report that is nowhere, fails under the kills of
    tests/faults. Planted: blocks of others not read for a tag that was refused -> CONFLICT, fails.
    """
    one, two = await replica(), await replica()
    who, sent, second = devices(30), reports(30), reports(30)
    both = [
        [of(device, report) for device, report in zip(who, some, strict=True)]
        for some in (sent, second)
    ]
    outcomes = await asyncio.gather(one.append(both[0]), two.append(both[1]))
    won = [
        (first is None and other is Kind.CONFLICT) or (first is Kind.CONFLICT and other is None)
        for first, other in zip(*outcomes, strict=True)
    ]
    assert all(won)
    again = await asyncio.gather(two.append(both[0]), one.append(both[1]))
    assert [list(some) for some in again] == [list(some) for some in outcomes]
    assert (await seal(one))[0].rows == 30


async def test_of_two_reports_that_come_together_the_stored_one_is_taken(
    replica: Replicas,
) -> None:
    """The device was admitted elsewhere with the second of them. Planted: what conflicts within a
    group left as it is -> CONFLICT for a report that counts, fails.
    """
    one, two = await replica(), await replica()
    (who,), (first, second) = devices(1), reports(2)
    assert await one.append([of(who, second)]) == [None]
    assert await two.append([of(who, first), of(who, second)]) == [Kind.CONFLICT, None]


async def test_a_device_brings_in_no_reports_of_others(replica: Replicas) -> None:
    """Three are admitted elsewhere, with other reports; a fourth sends theirs behind its own. One
    certificate is one report. Planted: a report taken of whoever sends it again -> 7 rows, fails.
    """
    one, two = await replica(), await replica()
    *others, last = devices(4)
    stored, refused, (own,) = reports(3), reports(3), reports(1)
    assert await one.append(list(map(of, others, stored))) == [None] * 3
    again = [of(last, report) for report in refused]
    coming = [*map(of, others, refused), of(last, own), *again]
    conflict = [Kind.CONFLICT] * 3
    for _ in range(2):
        assert await two.append(coming) == [*conflict, None, *conflict]
    assert (await seal(one))[0].rows == 4


async def test_devices_that_are_admitted_elsewhere_take_no_place_from_others(
    replica: Replicas,
) -> None:
    """Forty devices were admitted elsewhere; their other reports come together with those of five
    that are new, and there are five places. Planted: the table of tags not looked at -> some of
    the five are refused, fails but in 1e-6 of all runs.
    """
    capacity = Capacity(1, 45, 4_000)
    one, two = await replica(capacity), await replica(capacity)
    who, fresh = devices(40), devices(5)
    assert await one.append(list(map(of, who, reports(40)))) == [None] * 40
    theirs, new = list(map(of, who, reports(40))), list(map(of, fresh, reports(5)))
    kinds = await two.append([*theirs, *new])
    assert kinds == [Kind.CONFLICT] * 40 + [None] * 5
    assert (await seal(one))[0].rows == 45
