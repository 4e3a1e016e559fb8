"""The pauses of loops, looked at where a loop asks for them: nothing waits for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

QUICK_S = 0.005


class Longest:
    """Entropy of ones: every draw of a pause is the longest that it may be."""

    def bytes(self, count: int) -> bytes:
        return b"\xff" * count

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, 2**64 - 1, dtype=np.uint64)


class Pauses:
    """Stands for ``asyncio`` in a module: keeps what its loops would sleep, passes on everything
    else, and sleeps for nothing.
    """

    def __init__(self, then: Callable[[int], None] = lambda _: None) -> None:
        self.asked: list[float] = []
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._then(len(self.asked))
        await asyncio.sleep(0)


def replaced(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    then: Callable[[int], None] = lambda _: None,
) -> Pauses:
    pauses = Pauses(then)
    monkeypatch.setattr(module, "asyncio", pauses)
    return pauses


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 - the services tell nobody how far they are
            await asyncio.sleep(QUICK_S)
