"""kill -9 of shuffler and analyzer at random moments of many rounds: every stored sum is exact,
whoever died.

Real processes, TLS and sockets. Devices ask for a round until they have answered or the window
takes no more of them; a kill comes after a random number of their steps, so at any moment of
whatever goes on. (A kill does not test fsync: the page cache survives the process.)

How many rounds such kills leave is chance: a death before MASK ends a round without a sum. So the
devices of one round of each window come when the kills on the way are over; both services have just
been started again, and nobody dies before they have answered.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.clients.rounds.participation import RoundState
from shoal.secagg import Mode
from tests.faults.rounds_services import Part, Services, Smithy, serving
from tests.sizes import size

pytestmark = pytest.mark.campaign
WINDOWS = size(3, 12, 60)
DEVICES, SEATS = 24, 8  # the last SEATS of them are spared
STEPS = 250  # between two kills, at most
FIRST = 60  # before the first one of a window, at most: no 16 devices have answered after as few
TRIES = 4  # of a device for a seat in one window
# real seconds without a step after which the phase that is waited for is ended by the clock
STALLED_S = 0.25


@pytest.fixture(scope="module")
def smithy() -> Iterator[Smithy]:
    one = Smithy()
    yield one
    one.close()


async def answer(services: Services, part: Part, window: int) -> None:
    """As an agent does: one round after the other until this device has answered, or the window is
    over.
    """
    for _ in range(TRIES):
        outcome = await services.take_part(part, window)
        if part.charged or outcome.state is RoundState.NONE:
            return


def steps(parts: list[Part]) -> int:
    return sum(sum(part.steps.values()) for part in parts)


def progress(parts: list[Part]) -> int:
    return sum(part.changes + len(part.outcomes) for part in parts)


async def pass_time(services: Services, parts: list[Part]) -> None:
    """End the phase that is waited for when nobody gets any further: someone died, or too few are
    left. Not while a service starts: on a busy machine that takes long, and the window's hour would
    be over before those that are spared have come.
    """
    before = -1
    while True:
        if progress(parts) == before and len(services.back) == services.kills:
            services.clock.set(services.clock.now() + 31.0)
        before = progress(parts)
        await asyncio.sleep(STALLED_S)


async def kill(services: Services, role: str) -> None:
    """It is up again when this returns."""
    services.kills += 1
    os.kill(services.pids[role], signal.SIGKILL)
    await services.until(lambda: len(services.back) == services.kills)


def one_of_the_two(rng: random.Random) -> str:
    return rng.choice(("shuffler", "shuffler", "analyzer"))


async def kill_on_the_way(services: Services, parts: list[Part], rng: random.Random) -> None:
    goal = rng.randrange(1, FIRST)
    while True:
        await services.until(lambda goal=goal: steps(parts) >= goal)  # type: ignore[misc]
        await kill(services, one_of_the_two(rng))
        goal = steps(parts) + rng.randrange(1, STEPS)


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel them; what went wrong in them goes wrong here."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result


async def hunted(services: Services, parts: list[Part], window: int, rng: random.Random) -> None:
    """These devices, with kills on their way."""
    around = [
        asyncio.create_task(pass_time(services, parts)),
        asyncio.create_task(kill_on_the_way(services, parts, rng)),
    ]
    try:
        await asyncio.gather(*(answer(services, part, window) for part in parts))
    finally:
        await end(*around)
    await services.until(lambda: len(services.back) == services.kills)


async def one_window(services: Services, window: int, rng: random.Random) -> list[set[int]]:
    """Who is in which sum."""
    services.begin(window)
    parts = services.parts(range(DEVICES))
    await hunted(services, parts[:-SEATS], window, rng)
    # no round is left that others have joined
    await asyncio.gather(kill(services, "analyzer"), kill(services, "shuffler"))
    await services.together(parts[-SEATS:], window)
    for part in parts:
        if part.charged:
            await services.refused(part, window)
    finishing = asyncio.create_task(services.finish(window))
    await asyncio.sleep(rng.random() * 0.04)  # a moment of the window's end
    await kill(services, one_of_the_two(rng))
    await finishing
    return services.check(window, parts)


@pytest.mark.timeout(3_600)
async def test_kill_9_in_the_middle_of_rounds(smithy: Smithy, memory_folder: Path) -> None:
    """``Services.check`` after each window: exact sums, everybody in one at most, COUNTED in one, n
    of the release, nothing left on disk. And of each window a sum of exactly those that are spared.

    Planted: the sum stored after the reply -> counted, and in no sum. A device that asks its ledger
    no more before it takes part -> it is not refused. Every abort taken at its word by a device
    that gave shares -> told that it is in no sum, and it is in one. Half of the rounds given up
    when their vectors have come -> a window has no sum of those that are spared.
    """
    rng = random.Random(21)  # noqa: S311 - when to kill is no secret
    plan = {
        "mode": Mode.DEFAULT,
        "devices": SEATS,
        "cohort_min": 5,
        "survivors_min": 4,
        "dropout_ppm": 300_000,
    }
    async with serving(smithy, memory_folder, windows=WINDOWS + 1, **plan) as services:
        guard = asyncio.create_task(services.guard())
        try:
            windows = [await one_window(services, window, rng) for window in range(WINDOWS)]
        finally:
            await end(guard)
    spared = set(range(DEVICES - SEATS, DEVICES))
    assert [window for window, sums in enumerate(windows) if spared not in sums] == []
    # two before those that are spared, and one at the end of each
    on_the_way = len(services.deaths) - 3 * WINDOWS
    assert on_the_way >= WINDOWS
    assert {"shuffler", "analyzer"} == set(services.deaths)
