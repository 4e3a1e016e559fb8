"""Limits of calls without a timer each: what is over ends, what is not goes on."""

from __future__ import annotations

import asyncio

import pytest

from shoal.rpc.deadlines import Deadlines, Limit


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow one another without a pause."""
    monkeypatch.setattr("shoal.rpc.deadlines._LOOK_S", 0.0)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_over_ends_and_what_is_not_goes_on() -> None:
    """Planted: every call ended at a look -> the second raises TimeoutError, fails; none ended ->
    the first waits until the time limit.
    """
    deadlines = Deadlines()

    async def call(seconds: float, until: asyncio.Event) -> str:
        with deadlines.within(seconds):
            await until.wait()
        return "answered"

    never, soon = asyncio.Event(), asyncio.Event()
    late, right = asyncio.create_task(call(0.0, never)), asyncio.create_task(call(1e6, soon))
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await late
    assert not right.done()
    soon.set()
    assert await right == "answered"
    assert not deadlines.open


async def test_a_limit_that_moved_on_is_not_over() -> None:
    """Planted: ``move`` forgotten -> TimeoutError, fails."""
    deadlines = Deadlines()
    with deadlines.within(0.0) as limit:
        limit.move(asyncio.get_running_loop().time() + 1e6)
        await turns()


async def test_a_call_that_must_make_way_ends_before_its_limit() -> None:
    """Planted: ``end`` does nothing -> waits until the time limit, fails."""
    deadlines = Deadlines()

    async def call() -> None:
        with deadlines.within(1e6) as limit:
            limit.end()
            limit.end()  # twice is once
            await asyncio.Event().wait()

    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await call()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_that_left_before_its_turn_is_not_cancelled() -> None:
    """Planted: no look at whether it is still inside -> the next await raises CancelledError."""
    deadlines = Deadlines()
    with deadlines.within(1e6) as limit:
        limit.end()
    await turns()


async def test_who_is_cancelled_by_somebody_else_is_not_told_of_a_limit() -> None:
    """Also where both come together. Planted: every cancellation taken for the limit's ->
    TimeoutError, fails.
    """
    deadlines, limits = Deadlines(), list[Limit]()

    async def call() -> None:
        with deadlines.within(1e6) as limit:
            limits.append(limit)
            await asyncio.Event().wait()

    for also_over in (False, True):
        task = asyncio.create_task(call())
        await turns()
        if also_over:
            limits[-1].end()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_looks_end_with_the_last_call_and_begin_again() -> None:
    """Planted: no look after the first time that nothing was open -> waits until the time limit."""
    deadlines = Deadlines()
    with deadlines.within(1e6):
        await turns()
    await turns()
    assert not deadlines.looking
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError), deadlines.within(0.0):
            await asyncio.Event().wait()
