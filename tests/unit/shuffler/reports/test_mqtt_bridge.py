"""The bridge with a scripted link and a scripted ingress: what is answered, when, how much waits,
and how it ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.crypto.brokered import REPLY_SIZE, read_reply, reply_name
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt.topics import down_topic, new_reply, tag_of, up_topic
from shoal.shuffler.reports import mqtt_bridge
from shoal.shuffler.reports.mqtt_bridge import MqttBridge, departure
from shoal.shuffler.reports.taken import Answer
from tests.cases import for_each

TAG = tag_of(bytes(32))
OTHER = tag_of(bytes(31) + b"x")
SMALL, MIDDLE, LARGE = LIMITS.frame_sizes


def frame(number: int, length: int = SMALL) -> bytes:
    return number.to_bytes(8, "big").ljust(length, b"\xaa")


def key_of(one: bytes) -> bytes:
    return hashlib.sha256(b"key of" + one).digest()


class ScriptedLink:
    """Notes what is published. ``gate``: publishing waits for it. ``failures``: raised by the next
    calls, one each.
    """

    def __init__(self, arrived: Callable[[str, bytes], None]) -> None:
        self.arrived, self.oversize, self.up = arrived, 0, True
        self.problem: ShoalError | None = None
        self.published: list[tuple[str, bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.under_way = self.most_under_way = 0
        self.closed = False

    async def __aenter__(self) -> ScriptedLink:
        return self

    async def close(self) -> None:
        self.closed = True
        self.gate.set()

    async def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, timeout_s: float
    ) -> None:
        assert (qos, retain) == (1, False)
        assert 0 < timeout_s <= 60
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            self.published.append((topic, payload))
        finally:
            self.under_way -= 1


class Bench:
    """``kinds``: answers by frame, a ShoalError for the whole group; ``unopened``: frames without
    an ack key.
    """

    def __init__(self, **changes: Any) -> None:
        self.groups: list[list[bytes]] = []
        self.kinds: dict[bytes, Kind] = {}
        self.unopened: set[bytes] = set()
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.links: list[ScriptedLink] = []
        self.bridge = MqttBridge(
            self._take, self._connect, TAG, SeededEntropy("bridge"), **{"step_s": 0.0, **changes}
        )
        self.link = self.links[0]

    def _connect(self, arrived: Callable[[str, bytes], None]) -> ScriptedLink:
        self.links.append(ScriptedLink(arrived))
        return self.links[-1]

    async def _take(self, frames: Sequence[bytes]) -> list[Answer]:
        self.groups.append(list(frames))
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return [
            Answer(self.kinds.get(one), None if one in self.unopened else key_of(one))
            for one in frames
        ]

    def send(self, one: bytes, reply: str | None = None) -> str:
        """As a device does; its reply id."""
        reply = reply or new_reply()
        self.link.arrived(up_topic(TAG, reply), one)
        return reply

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            # nothing here to wait for: the bridge has no hooks for tests
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def answered(self, count: int) -> list[tuple[str, bytes]]:
        await self.until(lambda: len(self.link.published) >= count)
        return self.link.published


@asynccontextmanager
async def running(**changes: Any) -> AsyncIterator[Bench]:
    bench = Bench(**changes)
    await bench.bridge.start()
    try:
        yield bench
    finally:
        bench.gate.set()
        await bench.bridge.stop()
        assert bench.link.closed


# --- what is answered -----------------------------------------------------------------------------


async def test_every_frame_is_answered_on_its_own_topic_and_its_sender_reads_its_fate() -> None:
    """All kinds, and frames that do not open: one reply each, of one size. Planted: no reply to
    what did not open -> this fails.
    """
    async with running() as bench:
        frames = [frame(number) for number in range(len(Kind) + 3)]
        bench.kinds = dict(zip(frames, Kind, strict=False))
        bench.unopened = {frames[0], frames[3]}
        replies = [bench.send(one) for one in frames]
        published = await bench.answered(len(frames))
        assert [topic for topic, _ in published] == [down_topic(reply) for reply in replies]
        assert {len(payload) for _, payload in published} == {REPLY_SIZE}
        for one, (_, payload) in zip(frames, published, strict=True):
            kind = bench.kinds.get(one)
            expected = None if one in bench.unopened else (kind.value if kind else 0)
            assert read_reply(payload, one, key_of(one)) == expected
            assert payload[:16] == reply_name(one)
        assert bench.groups == [frames]  # together
        assert not bench.bridge.dropped


async def test_a_frame_that_comes_twice_is_answered_twice_and_differently() -> None:
    """A retry wants its reply, and a broker that repeats a frame learns nothing. Planted:
    remembering answers by frame -> fails.
    """
    async with running() as bench:
        bench.unopened = {frame(2)}
        for one in (frame(1), frame(2)):
            for _ in range(2):
                bench.send(one)
        published = await bench.answered(4)
        assert len({payload[16:] for _, payload in published}) == 4
        assert [read_reply(payload, frame(1), key_of(frame(1))) for _, payload in published] == [
            0,
            0,
            None,
            None,
        ]


async def test_what_is_no_frame_is_counted_and_gets_no_reply() -> None:
    """Odd sizes, other tags, topics without a reply id. Planted: replying to a topic of the
    sender's choice -> this fails.
    """
    async with running() as bench:
        reply = new_reply()
        for payload in (b"", b"x", bytes(SMALL - 1), bytes(SMALL + 1), bytes(LARGE + 1)):
            bench.link.arrived(up_topic(TAG, reply), payload)
        good = frame(0)
        for topic in (
            up_topic(OTHER, reply),
            f"shoal/v1/up/{TAG}/",
            f"shoal/v1/up/{TAG}/{reply.upper()}",
            f"shoal/v1/up/{TAG}/{reply}/more",
            f"shoal/v1/up/{TAG}/{reply[:-1]}",
            f"shoal/v1/up/{TAG}/+",
            f"shoal/v1/up/{TAG}/#",
            f"shoal/v1/up/{TAG}/{reply[:-1]}\n",
            down_topic(reply),
            "",
        ):
            bench.link.arrived(topic, good)
        bench.link.oversize = 7
        bench.send(frame(1))
        await bench.answered(1)
        assert bench.groups == [[frame(1)]]
        assert bench.bridge.dropped == Counter(odd=15, oversize=7)


async def test_nothing_of_a_message_prints() -> None:
    """Planted: a field without repr=False -> this fails."""
    reply = new_reply()
    uplink = mqtt_bridge._Uplink(reply, b"secret".ljust(SMALL))
    taken = mqtt_bridge._Taken([uplink], [Answer(Kind.WINDOW_CLOSED, b"k" * 32)], 1.0)
    assert reply not in repr(taken)
    assert "secret" not in repr(taken)
    assert "kkkk" not in repr(taken)


# --- how much waits -------------------------------------------------------------------------------


async def test_a_flood_is_dropped_beyond_what_may_wait() -> None:
    """Planted: no bound on frames, or on bytes -> this fails."""
    async with running(most_frames=100, most_bytes=40 * MIDDLE) as bench:
        bench.gate.clear()
        bench.send(frame(0))
        # this one is being stored: it waits no more
        await bench.until(lambda: len(bench.groups) == 1)
        for number in range(1, 131):
            bench.send(frame(number))
        assert bench.bridge.dropped == Counter(full=30)
        bench.gate.set()
        await bench.answered(101)
        bench.gate.clear()
        bench.send(frame(1_000))
        await bench.until(lambda: bench.groups[-1] == [frame(1_000)])
        for number in range(50):
            bench.send(frame(number, MIDDLE))
        assert bench.bridge.dropped == Counter(full=40)
        bench.gate.set()
        await bench.answered(142)
        bench.send(frame(2_000))  # there is room again: bytes that were taken are given back
        await bench.answered(143)


async def test_a_call_of_ours_is_bounded_in_frames_and_bytes_and_there_is_one_at_a_time() -> None:
    """Planted: taking all that waits in one go, or two groups at once -> this fails."""
    async with running() as bench:
        bench.gate.clear()
        for number in range(1_200):
            bench.send(frame(number))
        for number in range(100):
            bench.send(frame(number, LARGE))
        await bench.until(lambda: len(bench.groups) == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(bench.groups) == 1
        bench.gate.set()
        await bench.answered(1_300)
        assert all(
            len(group) <= 512 and sum(map(len, group)) <= LIMITS.batch_bytes
            for group in bench.groups
        )
        assert [len(group) for group in bench.groups[:2]] == [512, 512]
        assert sum(map(len, bench.groups)) == 1_300


async def test_a_broker_that_acknowledges_nothing_holds_up_a_bounded_number() -> None:
    """Replies under way, groups that are stored, frames that wait: all bounded. Planted: no
    semaphore -> this fails.
    """
    async with running(most_frames=2_000) as bench:
        bench.link.gate.clear()
        for _ in range(40):
            for number in range(512):
                bench.send(frame(number))
            for _ in range(60):
                await asyncio.sleep(0)
            await asyncio.sleep(0.006)  # a group that isn't full waits that long for company
        assert bench.link.most_under_way <= 1_024
        assert sum(map(len, bench.groups)) <= 1_024 + 512 * 11
        assert bench.bridge.dropped["full"] > 0
        bench.link.gate.set()
        await bench.answered(sum(map(len, bench.groups)))


async def test_others_get_their_turn_while_replies_are_sent() -> None:
    """Of 512 replies at most 8 are handed over in one turn of the loop. Planted: all in one turn ->
    this fails.
    """
    async with running() as bench:
        for number in range(512):
            bench.send(frame(number))
        counts = [0]
        async with asyncio.timeout(20):
            while len(bench.link.published) < 512:
                await asyncio.sleep(0)
                counts.append(len(bench.link.published))
        assert max(after - before for before, after in itertools.pairwise(counts)) <= 2 * 8


# --- when -----------------------------------------------------------------------------------------


@for_each(
    "started, now, step, leaves",
    [
        (10, 10, 0.5, 10.5),
        (10, 10.25, 0.5, 10.5),
        (10, 10.5, 0.5, 10.5),
        (10, 10.51, 0.5, 11),
        (10, 12.4, 0.5, 12.5),
        (3, 4, 0, 4),
    ],
)
def test_replies_leave_at_steps_after_the_group_was_taken_up(
    started: float, now: float, step: float, leaves: float
) -> None:
    """Never before the answers are known, never at once. Planted: ``now`` if that is sooner -> this
    fails.
    """
    assert departure(started, now, step) == leaves


async def test_a_refused_group_leaves_no_sooner_than_a_stored_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a loop's clock that only this test moves: a group whose answers are known at once, and one
    that took 40 ms.

    Planted: replies sent as soon as the answers are known -> this fails.
    """
    clock = [100.0]
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds > 0:
            clock[0] += seconds
        await real(0)

    loop = asyncio.get_running_loop()
    waits: list[float] = []
    async with running(step_s=0.05) as bench:
        monkeypatch.setattr(loop, "time", lambda: clock[0])
        monkeypatch.setattr(asyncio, "sleep", sleep)
        for took in (0.0, 0.04, 0.07):
            bench.gate.clear()
            before = len(bench.link.published)
            bench.send(frame(1))
            groups = len(bench.groups)
            while len(bench.groups) == groups:
                await real(0)
            begun = clock[0]
            clock[0] += took
            bench.gate.set()
            while len(bench.link.published) == before:
                await real(0)
            waits.append(round(clock[0] - begun, 9))
        monkeypatch.undo()
    assert waits == [0.05, 0.05, 0.1]


# --- failures -------------------------------------------------------------------------------------


async def test_what_could_not_be_taken_gets_no_reply_and_the_next_group_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Typed failures and bugs alike; said once per kind. Planted: letting the failure end the task
    -> the last frame has no reply.
    """
    async with running() as bench:
        bench.failures = [
            ShoalError(Kind.OVERLOADED, "too many"),
            ShoalError(Kind.OVERLOADED, "too many"),
            ShoalError(Kind.UNAVAILABLE, "stopping"),
            ValueError("canary"),
        ]
        for number in range(4):
            bench.send(frame(number))
            await bench.until(
                lambda number=number: bench.bridge.dropped["unanswered"] == number + 1  # type: ignore[misc]
            )
        bench.send(frame(9))
        ((_, payload),) = await bench.answered(1)
        assert read_reply(payload, frame(9), key_of(frame(9))) == 0
    said = [record.message for record in caplog.records if "could not be taken" in record.message]
    assert len(said) == 3
    assert "canary" not in caplog.text


async def test_who_asks_to_wait_is_asked_again_with_the_same_frames() -> None:
    """Nothing is dropped for it: the devices would send it again. Planted: dropping the group ->
    "unanswered", and this fails.
    """
    async with running() as bench:
        bench.failures = [ShoalError(Kind.OVERLOADED, "too many", retry_after_s=0.01)] * 2
        bench.send(frame(1))
        ((_, payload),) = await bench.answered(1)
        assert read_reply(payload, frame(1), key_of(frame(1))) == 0
        assert bench.groups == [[frame(1)]] * 3
        assert not bench.bridge.dropped


async def test_a_reply_that_the_broker_does_not_take_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Counted; its sender comes again. Planted: one failure ending all sending -> this fails."""
    async with running() as bench:
        bench.link.failures = [
            ShoalError(Kind.UNAVAILABLE, "down"),
            ShoalError(Kind.DEADLINE, "late"),
            RuntimeError("canary"),
        ]
        for number in range(4):
            bench.send(frame(number))
        published = await bench.answered(1)
        assert read_reply(published[0][1], frame(3), key_of(frame(3))) == 0
        assert bench.bridge.dropped == Counter(unanswered=2)
    assert "a reply failed unexpectedly" in caplog.text
    assert "canary" not in caplog.text


async def test_readiness_follows_the_link() -> None:
    async with running() as bench:
        assert (bench.bridge.connected, bench.bridge.trouble) == (True, "")
        bench.link.up = False
        assert (bench.bridge.connected, bench.bridge.trouble) == (
            False,
            "the MQTT broker has not answered yet",
        )
        bench.link.problem = ShoalError(Kind.UNAVAILABLE, "nobody listens")
        assert bench.bridge.trouble == "nobody listens"


# --- the end --------------------------------------------------------------------------------------


async def test_stopping_answers_what_is_stored_and_takes_nothing_more() -> None:
    """Planted: closing the link first -> the group under way gets no reply, fails."""
    async with running() as bench:
        bench.gate.clear()
        bench.send(frame(1))
        await bench.until(lambda: len(bench.groups) == 1)
        bench.send(frame(2))
        stopping = asyncio.create_task(bench.bridge.stop())
        await asyncio.sleep(0)
        bench.send(frame(3))
        bench.gate.set()
        await stopping
        assert [
            read_reply(payload, frame(1), key_of(frame(1))) for _, payload in bench.link.published
        ] == [0]
        assert bench.groups == [[frame(1)]]


async def test_stopping_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that never acknowledges, a disk that never answers. Planted: no limit -> this
    hangs.
    """
    monkeypatch.setattr(mqtt_bridge, "_DRAIN_S", 0.01)
    for stuck in ("link", "take"):
        async with running() as bench:
            (bench.link if stuck == "link" else bench).gate.clear()
            bench.send(frame(1))
            await bench.until(
                lambda bench=bench, stuck=stuck: (  # type: ignore[misc]
                    bench.link.under_way == 1 if stuck == "link" else len(bench.groups) == 1
                )
            )
            await bench.bridge.stop()
            assert bench.link.closed
            assert bench.link.under_way == 0


async def test_a_bridge_that_was_never_started_stops() -> None:
    bench = Bench()
    await bench.bridge.stop()
    assert bench.link.closed
