"""Tasks from a broker: retained messages under one topic, all of them, for everybody.

The broker is nobody's friend. It sees that this connection wants tasks (all devices want all of
them), may keep tasks back, repeat them, and send anything. The connection is the feed's own: it
shares no client id with the one that reports go through.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib

from shoal.clients.core import pause
from shoal.clients.feeds.feed import MQTT, BundleListener, Told, jittered, untold, waited
from shoal.clients.feeds.task_store import FINAL
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import KIB, LIMITS
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import STEPS_FILTER, TASKS_FILTER, task_of, task_of_steps

_QUIET_S = LIMITS.feed_quiet_s
# after a bundle that was refused: a broker that sends rubbish can't keep a device busy
_REFUSED_PAUSE_S = 0.01
# times as long as a bundle took: a broker gets a quarter of one processor, whatever it sends
_REST = 3.0
_STEPS = b""  # in the queue: steps came. No bundle is empty
_STEP_BYTES = 128 * KIB  # a step is 80 KiB at most
_MOST_STEPS = 32  # of tasks that run at once
_MOST_SEEN = 2 * LIMITS.known_tasks
_MOST_WAITING = 4 * LIMITS.bundle_bytes  # a broker can't fill a small device's memory


class MqttFeed:
    """The broker's tasks. ``every_s``: mean seconds, jittered, after which bundles that had to wait
    (disk full) are asked for again.
    """

    origin = MQTT

    def __init__(
        self,
        settings: BrokerSettings,
        offer: BundleListener,
        *,
        every_s: float,
        entropy: Entropy = SYSTEM,
        step: Told = untold,
    ) -> None:
        self._settings, self._offer, self._every_s, self._entropy = (
            settings,
            offer,
            every_s,
            entropy,
        )
        self._step = step
        # the last step of each task, told again after every bundle: its task may come later
        self._steps: dict[TaskId, bytes] = {}
        self._steps_wait = False  # they are in the queue
        # SHA-256 of bundles that need no second look: every connection brings all of them again
        self._seen: dict[bytes, None] = {}
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._bytes = 0  # in the queue
        # something was dropped or could not be taken: have the broker send it once more
        self._again = False
        self._link: Link | None = None
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """As ``Feed.trouble``."""
        if self._link is not None and not self._link.up:
            return (
                self._link.problem.message
                if self._link.problem is not None
                else "the broker was not reached yet"
            )
        return self._trouble

    async def once(self, deadline_s: float) -> None:
        """As ``Feed.once``."""
        try:
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with asyncio.timeout(deadline_s), self._open() as link:
                await link.connected(deadline_s)
                # Connecting took four round trips and more: what is on its way takes fewer.
                quiet_s = max(_QUIET_S, loop.time() - began)
                while (data := await self._next(quiet_s)) is not None:
                    await self._take(data)
        except TimeoutError:
            raise ShoalError(
                Kind.DEADLINE, "the broker took too long over its tasks: it is asked again later"
            ) from None

    async def run(self, stop: asyncio.Event) -> None:
        """As ``Feed.run``."""
        failures = 0
        while not stop.is_set():
            try:
                await self._session(stop)
                self._trouble, failures = None, 0
            except Exception as error:  # noqa: BLE001 - whatever a broker sends, the feed goes on
                failures += 1
                self._trouble = (
                    error.message
                    if isinstance(error, ShoalError)
                    else "the broker's tasks can't be read"
                )
                await waited(
                    stop, pause(failures, self._entropy, LIMITS.feed_retry_first_s, self._every_s)
                )

    async def _session(self, stop: asyncio.Event) -> None:
        """One link (which reconnects by itself), until ``stop``, or until it is time to ask again
        for what was missed.
        """
        loop = asyncio.get_running_loop()
        async with self._open() as link:
            self._link = link
            ended = asyncio.create_task(stop.wait())
            renew_at = loop.time() + jittered(self._every_s, self._entropy)
            try:
                while not stop.is_set():
                    if loop.time() >= renew_at and self._waiting.empty():
                        if self._again:
                            return
                        renew_at = loop.time() + jittered(self._every_s, self._entropy)
                    coming = asyncio.create_task(self._next(renew_at - loop.time()))
                    await asyncio.wait({coming, ended}, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        coming.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await coming
                    elif (data := coming.result()) is not None:
                        await self._take(data)
            finally:
                ended.cancel()
                self._link = None

    def _open(self) -> Link:
        self._waiting, self._bytes, self._again = asyncio.Queue(), 0, False
        self._steps_wait = False
        return Link(
            self._settings,
            subscribe=((TASKS_FILTER, 1), (STEPS_FILTER, 1)),
            on_message=self._arrived,
            entropy=self._entropy,
        )

    def _arrived(self, topic: str, payload: bytes) -> None:
        """On the event loop, between two awaits of the link. An empty message takes a task off the
        broker, not off a device.
        """
        if payload and (task_id := task_of_steps(topic)) is not None:
            self._heard(task_id, payload)
            return
        if not payload or task_of(topic) is None or hashlib.sha256(payload).digest() in self._seen:
            return
        if self._bytes + len(payload) > _MOST_WAITING:
            self._again = True
            return
        self._bytes += len(payload)
        self._waiting.put_nowait(payload)

    def _heard(self, task_id: TaskId, payload: bytes) -> None:
        """What a window of a discovery asks: the last one of each task, of few tasks."""
        if len(payload) <= _STEP_BYTES and self._steps.get(task_id) != payload:
            self._steps.pop(task_id, None)
            while len(self._steps) >= _MOST_STEPS:
                del self._steps[next(iter(self._steps))]
            self._steps[task_id] = payload
            if not self._steps_wait:
                self._steps_wait = True
                self._waiting.put_nowait(_STEPS)

    async def _next(self, seconds: float) -> bytes | None:
        """The next bundle; None if none came in that time."""
        try:
            async with asyncio.timeout(seconds):
                data = await self._waiting.get()
        except TimeoutError:
            return None
        self._bytes -= len(data)
        return data

    async def _take(self, data: bytes) -> None:
        """Offer, then rest: a bundle that is known may be sent again in endless other spellings,
        and each is looked at anew.
        """
        clock, pause = asyncio.get_running_loop().time, 0.0
        began = clock()
        # whatever one task does to its reader, the others are read
        try:
            if data != _STEPS:
                self._offer(data, MQTT)
            self._tell_steps()
        except ShoalError as error:
            pause = _REFUSED_PAUSE_S
            if error.kind not in FINAL:
                await self._later(max(pause, _REST * (clock() - began)))
                return
        except Exception:  # noqa: BLE001
            self._trouble = (
                "a task from the broker can't be read, the others were: it is asked for again"
            )
            await self._later(max(_REFUSED_PAUSE_S, _REST * (clock() - began)))
            return
        await asyncio.sleep(max(pause, _REST * (clock() - began)))
        while len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        if data != _STEPS:
            self._seen[hashlib.sha256(data).digest()] = None

    def _tell_steps(self) -> None:
        """After every bundle: the task of a step may be the one that came. What is wrong with a
        step keeps nothing back: who is told of it knows what to do.
        """
        self._steps_wait = False
        for payload in list(self._steps.values()):
            with contextlib.suppress(ShoalError):
                self._step(payload)

    async def _later(self, rest_s: float) -> None:
        """Have the broker send it once more, and rest."""
        self._again = True
        await asyncio.sleep(rest_s)
