"""The pipe between a simulation and its processes: a result is as large as the fleet."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from shoal.clients.fleet.simulator import _when_told

LARGE = 4 << 20  # bytes; a pipe holds about 0.2 MB


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_result_that_is_larger_than_the_pipe_arrives_whole(run: Any) -> None:
    """While the loop listens for a word of the parent, and afterwards. Planted: don't make the pipe
    blocking again -> EAGAIN under uvloop, with the process's results lost.
    """
    ours, theirs = multiprocessing.Pipe()

    def take() -> list[bytes]:
        return [theirs.recv() for _ in range(2)]

    async def send() -> None:
        with _when_told(ours, lambda: None):
            ours.send(bytes(LARGE))

    with ThreadPoolExecutor(1) as pool, ours, theirs:
        taken = pool.submit(take)
        try:
            run(send())
            ours.send(bytes(LARGE))
        finally:
            ours.close()  # or the reader waits for ever
        assert [len(one) for one in taken.result()] == [LARGE, LARGE]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_word_from_the_other_end_is_heard(run: Any) -> None:
    """Planted: the reader not added -> this waits for ever."""
    ours, theirs = multiprocessing.Pipe()

    async def listen() -> None:
        told = asyncio.Event()
        with _when_told(ours, told.set):
            theirs.send("stop")
            async with asyncio.timeout(60):
                await told.wait()

    with ours, theirs:
        run(listen())
