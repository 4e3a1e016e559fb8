"""Frames that come over an MQTT broker: taken in groups by the same path as any other, answered in
48 bytes each.

A broker sees who sends and who is answered, so nothing here may tell it more. What a reply says,
its sender alone can read (``crypto.brokered``): to all others a frame that is stored, one that is
refused and one that does not open get the same. The replies of a group leave together, in the order
in which the frames came, at a multiple of 50 ms after the group was taken up: how long it took to
open or to store them does not show while the disk keeps up. What still shows: which frames got no
reply at all (what is no frame, and what came while too much was waiting or nothing could be
stored), and that a disk is slower than that: of refused frames nothing is written.

QoS 1 brings a frame at least once up to here; that it is stored is said by its reply alone, and a
device that gets none sends the same bytes again. So nothing is kept on disk, and a broker or a
shuffler that dies loses no report that was acknowledged. Of several shufflers with one key, which
share a store, the broker gives each frame to one; whichever took a frame answers it. A device whose
frame went to one that died gets no reply, and sends it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shoal.crypto.brokered import make_reply
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import down_topic, reply_of, shared_filter, up_filter
from shoal.shuffler.reports.taken import Answer

log = get_log("shuffler")
_GROUP = 512  # frames taken together, of at most ...
_GROUP_BYTES = LIMITS.batch_bytes
_GATHER_S = 0.005  # how long a frame waits for company
_STEP_S = 0.05  # replies leave at multiples of this
_GROUPS = 8  # that are stored and wait for their reply; beyond them frames wait
_TURN = 8  # replies handed to the link before others get a turn: about 1 ms
# replies that the broker has not acknowledged: the library reads that many packets in one turn, and
# 20 are in flight
_UNDER_WAY = 64
# after which a reply is given up: the device sends its frame again
_REPLY_S = LIMITS.reply_deadline_s
_DRAIN_S = LIMITS.drain_s  # for what is under way when the service stops


@dataclass(frozen=True, slots=True)
class _Uplink:
    reply: str = field(repr=False)
    frame: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A group whose answers are known, and when (on the loop's clock) its replies leave."""

    group: Sequence[_Uplink]
    answers: Sequence[Answer]
    due: float


class Wire(Protocol):
    """What a bridge wants of ``shoal.mqtt.link.Link``; tests put a script behind it."""

    oversize: int
    problem: ShoalError | None

    @property
    def up(self) -> bool:
        """Whether the broker is connected now."""
        ...

    async def __aenter__(self) -> object: ...

    async def close(self) -> None:
        """End the connection, after what is on its way."""
        ...

    async def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, timeout_s: float
    ) -> None:
        """As ``Link.publish``. Raises UNAVAILABLE, DEADLINE, INVALID."""
        ...


Connect = Callable[[Callable[[str, bytes], None]], Wire]


def broker_link(
    settings: BrokerSettings, tag: str, entropy: Entropy = SYSTEM, *, shared: bool = False
) -> Connect:
    """A link that brings every uplink of this tag; ``shared``: those that the broker gives to this
    one of several shufflers with one key. What the broker had stored is no frame of a device that
    waits: it is dropped.
    """
    wanted = shared_filter(tag) if shared else up_filter(tag)

    def connect(on_message: Callable[[str, bytes], None]) -> Link:
        return Link(
            settings,
            subscribe=[(wanted, 1)],
            on_message=on_message,
            entropy=entropy,
            retained=False,
            most_bytes=LIMITS.frame_sizes[-1],
        )

    return connect


def departure(started: float, now: float, step_s: float) -> float:
    """The first ``started + k * step_s``, k >= 1, that is not before ``now``; seconds on one clock.
    ``now`` itself if ``step_s`` is 0.
    """
    if step_s <= 0:
        return now
    return started + step_s * max(1, -((started - now) // step_s))


class MqttBridge:
    """``start``, then ``stop``. ``take`` is ``Ingress.take``; ``step_s``: see the module.

    ``dropped`` counts frames without a reply by reason, for metrics: "odd" (of no frame's size, or
    on a topic without a reply id), "full" (too many waited), "unanswered" (nothing could be stored,
    or the broker did not take the reply). What is answered is not counted: watched often enough
    that would be the arrival times of reports.
    """

    def __init__(
        self,
        take: Callable[[Sequence[bytes]], Awaitable[list[Answer]]],
        connect: Connect,
        tag: str,
        entropy: Entropy = SYSTEM,
        *,
        step_s: float = _STEP_S,
        most_frames: int = LIMITS.bridge_frames,
        most_bytes: int = LIMITS.bridge_bytes,
    ) -> None:
        self._take, self._tag, self._entropy, self._step_s = take, tag, entropy, step_s
        self._most_frames, self._most_bytes = most_frames, most_bytes
        self._link = connect(self._arrived)
        self._dropped: Counter[str] = Counter()
        self._waiting: deque[_Uplink] = deque()
        self._bytes = 0  # of the frames that wait
        self._some = asyncio.Event()  # frames wait, or it is time to stop
        self._taken: asyncio.Queue[_Taken | None] = asyncio.Queue(_GROUPS)
        self._replies: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_UNDER_WAY)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._complaint = ""  # the last failure of ``take``: said once

    @property
    def connected(self) -> bool:
        """Whether frames reach this bridge."""
        return self._link.up

    @property
    def trouble(self) -> str:
        """Why not, in one line; empty if they do."""
        if self._link.up:
            return ""
        return (
            self._link.problem.message
            if self._link.problem is not None
            else "the MQTT broker has not answered yet"
        )

    @property
    def dropped(self) -> Counter[str]:
        """Messages that were not answered, by reason."""
        return self._dropped + Counter(oversize=self._link.oversize)

    async def start(self) -> None:
        """Does not wait for the broker."""
        self._tasks = [asyncio.create_task(self._take_all()), asyncio.create_task(self._send_all())]
        await self._link.__aenter__()

    async def stop(self) -> None:
        """Take nothing more, answer what is stored, disconnect. What only waited is dropped: its
        senders send it again. Idempotent.
        """
        self._stopping = True
        self._some.set()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await asyncio.gather(*self._replies, return_exceptions=True)
        except TimeoutError:
            log.warning(
                "not every reply could be sent before the end: these reports will come again, and "
                "be counted once"
            )
        finally:
            await self._link.close()

    # --- from the broker --------------------------------------------------------------------------

    def _arrived(self, topic: str, payload: bytes) -> None:
        """Called by the link for every message: nothing but a look at lengths and names, whatever
        comes.
        """
        reply = reply_of(topic, self._tag)
        if reply is None or len(payload) not in LIMITS.frame_sizes:
            self._dropped["odd"] += 1
        elif (
            len(self._waiting) >= self._most_frames or self._bytes + len(payload) > self._most_bytes
        ):
            self._dropped["full"] += 1
        else:
            self._waiting.append(_Uplink(reply, payload))
            self._bytes += len(payload)
            self._some.set()

    async def _take_all(self) -> None:
        """Group after group, one at a time: however many frames wait, the opener and the writer see
        one bounded call of ours.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._some.wait()
            if not self._stopping and len(self._waiting) < _GROUP:
                await asyncio.sleep(_GATHER_S)
            if self._stopping:
                await self._taken.put(None)
                return
            group, started = self._next_group(), loop.time()
            # whatever it was, the next group may fare better
            try:
                answers = await self._patiently(group)
                self._complaint = ""
            except Exception as error:  # noqa: BLE001
                self._dropped["unanswered"] += len(group)
                self._complain(error)
                await asyncio.sleep(_GATHER_S)
                continue
            await self._taken.put(
                _Taken(group, answers, departure(started, loop.time(), self._step_s))
            )

    async def _patiently(self, group: Sequence[_Uplink]) -> list[Answer]:
        """What became of them. Whoever asks to wait is obeyed, as long as the devices wait too;
        meanwhile what comes has to wait or is dropped ("full"). Raises what ``take`` raises.
        """
        loop, frames = asyncio.get_running_loop(), [uplink.frame for uplink in group]
        last = loop.time() + LIMITS.send_deadline_s
        while True:
            try:
                return await self._take(frames)
            except ShoalError as error:
                asked = min(error.retry_after_s, LIMITS.retry_after_s)
                if asked <= 0 or self._stopping or loop.time() + asked > last:
                    raise
                self._complain(error)
                await asyncio.sleep(asked)

    def _next_group(self) -> list[_Uplink]:
        group, size = list[_Uplink](), 0
        while (
            self._waiting
            and len(group) < _GROUP
            and size + len(self._waiting[0].frame) <= _GROUP_BYTES
        ):
            uplink = self._waiting.popleft()
            group.append(uplink)
            size += len(uplink.frame)
        self._bytes -= size
        if not self._waiting:
            self._some.clear()
        return group

    def _complain(self, error: Exception) -> None:
        """Once per kind of failure, not once per group."""
        what = str(error.kind if isinstance(error, ShoalError) else type(error))
        if what != self._complaint:
            log.error(
                "frames from the broker could not be taken: their senders will send them again",
                error=error,
            )
        self._complaint = what

    async def announce(self, topic: str, payload: bytes) -> None:
        """Publish, retained. Raises UNAVAILABLE, DEADLINE."""
        await self._link.publish(topic, payload, qos=1, retain=True, timeout_s=_REPLY_S)

    # --- to the broker ----------------------------------------------------------------------------

    async def _send_all(self) -> None:
        """Groups in their order, each at its time; a few replies at a time, so that calls are
        served between them.
        """
        loop = asyncio.get_running_loop()
        while (taken := await self._taken.get()) is not None:
            await asyncio.sleep(max(0.0, taken.due - loop.time()))
            for index, (uplink, answer) in enumerate(zip(taken.group, taken.answers, strict=True)):
                if index % _TURN == _TURN - 1:
                    await asyncio.sleep(0)
                await self._room.acquire()
                task = asyncio.create_task(
                    self._send(
                        down_topic(uplink.reply),
                        make_reply(uplink.frame, answer.ack_key, answer.status, self._entropy),
                    )
                )
                self._replies.add(task)
                task.add_done_callback(self._sent)

    async def _send(self, topic: str, payload: bytes) -> None:
        try:
            await self._link.publish(topic, payload, qos=1, timeout_s=_REPLY_S)
        except ShoalError:
            self._dropped["unanswered"] += 1

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._replies.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a reply failed unexpectedly", error=error)
