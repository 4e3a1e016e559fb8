"""What is under way when the pool of an executor breaks."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import aclosing
from typing import cast

import pytest

from shoal.analyzer.batches.executor import ProcessExecutor
from shoal.errors import Kind, ShoalError
from shoal.services.workers import WorkerPool
from tests.conformance.opening.worker_tasks import Rows, echo, single_rows


class Pool:
    """As far as an executor asks it: two calls, which the test ends."""

    processes = 1

    def __init__(self) -> None:
        self.calls: list[Future[bytes]] = []

    def submit(self, *_: object) -> Future[bytes]:
        self.calls.append(Future())
        return self.calls[-1]


async def test_nothing_is_cancelled_before_the_broken_pool_has_ended_it() -> None:
    """A broken pool fails its calls one after the other, in a thread that ends where one is
    cancelled already (InvalidStateError, Python 3.11); the other workers are never stopped then.
    Planted: not waited for what is under way -> the second call is cancelled, fails.
    """
    pool = Pool()
    executor = ProcessExecutor(cast(WorkerPool, pool))

    async def first_result() -> None:
        async with aclosing(executor.over_chunks(echo, (b"",), Rows(2), single_rows(2))) as results:
            async for _ in results:
                raise AssertionError

    opening = asyncio.create_task(first_result())
    async with asyncio.timeout(20.0):
        while len(pool.calls) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        pool.calls[0].set_exception(BrokenProcessPool())
        for _ in range(20):
            await asyncio.sleep(0)
        pool.calls[1].set_exception(BrokenProcessPool())
        with pytest.raises(ShoalError) as caught:
            await opening
    assert caught.value.kind is Kind.UNAVAILABLE
