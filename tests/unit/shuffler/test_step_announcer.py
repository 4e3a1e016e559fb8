"""Steps for devices that a broker reaches."""

from __future__ import annotations

import asyncio

import pytest

from shoal.errors import Kind, ShoalError
from shoal.mqtt.topics import step_topic, task_of, task_of_steps
from shoal.shuffler.step_announcer import StepAnnouncer
from tests.worlds.words import SMALL, step_of, words_world

WORLD = words_world()
FIRST = step_of(WORLD, 1, SMALL.level(1, [b"\x02"])).data
SECOND = step_of(WORLD, 2, None).data


class Desk:
    def __init__(self) -> None:
        self.listed: tuple[bytes, ...] = ()
        self.published = list[tuple[str, bytes]]()
        self.now, self.away = 0.0, False
        self.stop: asyncio.Event | None = None
        self.announcer = StepAnnouncer(lambda: self.listed, self._publish, lambda: self.now)

    async def _publish(self, topic: str, payload: bytes) -> None:
        if self.away:
            raise ShoalError(Kind.UNAVAILABLE, "no broker")
        self.published.append((topic, payload))
        if self.stop is not None:
            self.stop.set()


async def test_each_step_is_published_once_and_again_after_a_while() -> None:
    """Of two windows the one that ends first. Planted: published at every look; the last one told
    -> more; never again -> fewer.
    """
    desk, topic = Desk(), step_topic(WORLD.task_id)
    await desk.announcer.look()
    desk.listed = (FIRST,)
    for _ in range(3):
        await desk.announcer.look()
    desk.listed = (FIRST, SECOND)
    await desk.announcer.look()
    assert len(desk.published) == 1
    desk.listed = (SECOND,)
    await desk.announcer.look()
    assert desk.published == [(topic, FIRST), (topic, SECOND)]
    desk.now = 600.0
    await desk.announcer.look()
    assert desk.published == [(topic, FIRST), (topic, SECOND), (topic, SECOND)]
    assert task_of_steps(topic) == WORLD.task_id
    assert task_of(topic) is None


async def test_a_broker_that_is_away_gets_it_when_it_is_back() -> None:
    """Planted: told before it was published -> never."""
    desk = Desk()
    desk.listed, desk.away = (FIRST,), True
    with pytest.raises(ShoalError):
        await desk.announcer.look()
    desk.away = False
    await desk.announcer.look()
    assert len(desk.published) == 1


async def test_it_goes_on_until_it_is_told_to_stop() -> None:
    desk, stop = Desk(), asyncio.Event()
    desk.listed, desk.stop = (FIRST,), stop
    await desk.announcer.run(stop)
    assert len(desk.published) == 1
