"""Single calls that are taken together: each is answered for itself, whatever becomes of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.reports.gathering import Gathering, Single


class Taker:
    """Accepts with the frame itself, once it may go on; notes the groups."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.open, self.store = asyncio.Event(), asyncio.Event()
        self.begun = asyncio.Event()
        self.failure: BaseException | None = None

    async def __call__(self, calls: list[Single], opened: Callable[[], None]) -> None:
        self.groups.append([call.frame for call in calls])
        self.begun.set()
        if self.failure is not None:
            calls[0].accept(calls[0].frame)
            raise self.failure
        await self.open.wait()
        opened()
        await self.store.wait()
        for call in calls:
            call.accept(call.frame)


def frames(count: int) -> list[bytes]:
    return [bytes((number,)) for number in range(count)]


async def turns() -> None:
    """Of the event loop."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_of_a_moment_are_one_group_of_at_most_64() -> None:
    """Planted: no limit -> one group of 100, fails."""
    taker = Taker()
    taker.open.set()
    taker.store.set()
    gathering = Gathering(taker, 2)
    assert await asyncio.gather(*map(gathering.add, frames(100))) == frames(100)
    assert [len(group) for group in taker.groups] == [64, 36]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for company, and whoever waits for the group before him does so for ever."""
    monkeypatch.setattr("shoal.shuffler.reports.gathering._GATHER_S", 0.0)
    monkeypatch.setattr("shoal.shuffler.reports.gathering._PATIENCE_S", 1e6)


@pytest.mark.usefixtures("at_once")
async def test_while_one_group_is_opened_and_stored_the_next_one_grows() -> None:
    """Planted: a group for every moment -> three of them, fails; nobody taken up at the end of one
    -> hangs until the time limit.
    """
    taker = Taker()
    gathering = Gathering(taker, 2)
    first = gathering.add(b"a")
    await taker.begun.wait()
    rest = []
    for frame in (b"b", b"c"):
        rest.append(gathering.add(frame))
        await turns()  # its time comes, and goes by
    taker.open.set()
    await turns()
    assert taker.groups == [[b"a"]]
    taker.store.set()
    async with asyncio.timeout(10):
        assert await asyncio.gather(first, *rest) == [b"a", b"b", b"c"]
    assert taker.groups == [[b"a"], [b"b", b"c"]]


@pytest.mark.usefixtures("at_once")
async def test_a_full_group_waits_for_no_disk() -> None:
    """So a slow one limits no rate. Planted: full ones wait too -> hangs until the time limit."""
    taker = Taker()
    taker.open.set()
    gathering = Gathering(taker, 1)
    under_way = [gathering.add(b"a")]
    await taker.begun.wait()
    taker.begun.clear()
    under_way += [gathering.add(frame) for frame in frames(70)]
    async with asyncio.timeout(10):
        await taker.begun.wait()
    await turns()
    assert [len(group) for group in taker.groups] == [1, 64]
    taker.store.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*under_way)
    assert [len(group) for group in taker.groups] == [1, 64, 6]


@pytest.mark.usefixtures("at_once")
async def test_a_group_that_hangs_keeps_the_next_for_a_while_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One window's store may hang where others do not. Planted: no patience that ends -> hangs
    until the time limit; one that ends once alone -> the third never comes.
    """
    monkeypatch.setattr("shoal.shuffler.reports.gathering._PATIENCE_S", 0.0)
    taker = Taker()
    taker.open.set()
    gathering = Gathering(taker, 1)
    under_way = list[asyncio.Future[bytes]]()
    for frame in (b"a", b"b", b"c"):
        taker.begun.clear()
        under_way.append(gathering.add(frame))
        async with asyncio.timeout(10):
            await taker.begun.wait()
    assert taker.groups == [[b"a"], [b"b"], [b"c"]]
    taker.store.set()
    assert await asyncio.gather(*under_way) == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("at_once")
async def test_no_more_groups_are_opened_at_a_time_than_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a full one nor one that waited. Planted: no limit -> a second group, fails."""
    monkeypatch.setattr("shoal.shuffler.reports.gathering._PATIENCE_S", 0.0)
    taker = Taker()
    gathering = Gathering(taker, 1)
    under_way = [gathering.add(b"a")]
    await taker.begun.wait()
    under_way += [gathering.add(frame) for frame in frames(70)]
    await turns()
    assert [len(group) for group in taker.groups] == [1]
    taker.open.set()
    taker.store.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*under_way)


async def test_a_caller_that_goes_away_keeps_nobody() -> None:
    """Planted: an answer set though its caller is gone -> InvalidStateError for all, fails."""
    taker = Taker()
    gathering = Gathering(taker, 1)
    gone, stays = gathering.add(b"a"), gathering.add(b"b")
    await taker.begun.wait()
    gone.cancel()
    taker.open.set()
    taker.store.set()
    assert await stays == b"b"
    assert taker.groups == [[b"a", b"b"]]


@pytest.mark.parametrize("failure", [ShoalError(Kind.UNAVAILABLE, "closing"), ValueError("a bug")])
async def test_a_failure_is_told_to_all_who_have_no_answer(failure: Exception) -> None:
    """And the next group is taken. Planted: the place of a group that failed not given back ->
    hangs until the time limit, fails.
    """
    taker = Taker()
    taker.failure = failure
    taker.open.set()
    taker.store.set()
    gathering = Gathering(taker, 1)
    calls = [gathering.add(frame) for frame in frames(3)]
    assert await asyncio.gather(*calls, return_exceptions=True) == [frames(1)[0], failure, failure]
    taker.failure = None
    async with asyncio.timeout(10):
        assert await gathering.add(b"next") == b"next"
