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


async def test_while_one_group_is_opened_the_next_one_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And begins before the first one is stored. Planted: ``opened`` begins none -> hangs until the
    time limit; groups without limit -> three of them, fails.
    """
    monkeypatch.setattr("shoal.shuffler.reports.gathering._GATHER_S", 0.0)
    taker = Taker()
    gathering = Gathering(taker, 1)
    first = gathering.add(b"a")
    await taker.begun.wait()
    rest = []
    for frame in (b"b", b"c"):
        rest.append(gathering.add(frame))
        await turns()  # its time comes, and goes by
    assert taker.groups == [[b"a"]]
    taker.begun.clear()
    taker.open.set()
    async with asyncio.timeout(10):
        await taker.begun.wait()
    assert taker.groups == [[b"a"], [b"b", b"c"]]
    assert not first.done()
    taker.store.set()
    assert await asyncio.gather(first, *rest) == [b"a", b"b", b"c"]


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


async def test_a_group_that_is_not_full_waits_while_others_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full one does not, so a slow disk holds nobody up. Planted: a group for every moment -> the
    third begins before the first is stored, fails; nobody taken up at the end of one -> hangs until
    the time limit, fails.
    """
    monkeypatch.setattr("shoal.shuffler.reports.gathering._GATHER_S", 0.0)
    taker = Taker()
    taker.open.set()
    gathering = Gathering(taker, 1)
    under_way = list[asyncio.Future[bytes]]()
    for frame in (b"a", b"b"):
        taker.begun.clear()
        under_way.append(gathering.add(frame))
        await taker.begun.wait()
    taker.begun.clear()
    under_way += [gathering.add(frame) for frame in frames(63)]
    await turns()  # their time comes, and goes by
    assert len(taker.groups) == 2
    under_way.append(gathering.add(b"the 64th"))
    async with asyncio.timeout(10):
        await taker.begun.wait()
    assert [len(group) for group in taker.groups] == [1, 1, 64]
    under_way.append(gathering.add(b"last"))
    await turns()
    taker.store.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*under_way)
