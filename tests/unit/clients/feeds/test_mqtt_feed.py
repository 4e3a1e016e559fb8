"""The broker's retained tasks, on a link that is scripted: what is offered, what is not, and what
is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shoal import codec
from shoal.clients.feeds import mqtt_feed
from shoal.clients.feeds.mqtt_feed import MqttFeed
from shoal.codec import TaskBundle
from shoal.crypto.signing import SigningKey
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import STEPS_FILTER, TASKS_FILTER, task_topic
from tests.worlds.devices.clients import make_world

AUTHORITY = SigningKey.generate()
WORLDS = [make_world(authority=AUTHORITY, name=f"task-{i}") for i in range(3)]
BUNDLES = [
    codec.encode_bundle(TaskBundle(world.signed_task, world.signed_schedule)) for world in WORLDS
]
TOPICS = [task_topic(world.task_id) for world in WORLDS]
SETTINGS = BrokerSettings("127.0.0.1", 1, insecure=True)
RETAINED = list(zip(TOPICS, BUNDLES, strict=True))


class FakeLink:
    """A broker that sends what it retains whenever somebody connects. ``script``: called with every
    link, in order.
    """

    made: list[FakeLink]
    script: Callable[[FakeLink], None]

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        subscribe: Any,
        on_message: Callable[[str, bytes], None],
        entropy: Any,
    ) -> None:
        assert list(subscribe) == [(TASKS_FILTER, 1), (STEPS_FILTER, 1)]
        self.send, self.up, self.closed = on_message, True, False
        self.problem: ShoalError | None = None
        type(self).made.append(self)

    async def __aenter__(self) -> FakeLink:
        type(self).script(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def connected(self, timeout_s: float) -> None:
        if self.problem is not None:
            raise self.problem


@pytest.fixture(autouse=True)
def link(monkeypatch: pytest.MonkeyPatch) -> type[FakeLink]:
    def everything(one: FakeLink) -> None:
        for topic, data in RETAINED:
            one.send(topic, data)

    fake = type("Fake", (FakeLink,), {"made": [], "script": staticmethod(everything)})
    monkeypatch.setattr(mqtt_feed, "Link", fake)
    monkeypatch.setattr(mqtt_feed, "_QUIET_S", 0.02)
    return fake


class Taken:
    def __init__(self, *, stop_at: int = 0) -> None:
        self.got: list[bytes] = []
        self.offered = 0
        self.refuse: dict[bytes, Kind] = {}
        self.stop, self.stop_at = asyncio.Event(), stop_at

    def __call__(self, data: bytes, origin: str) -> None:
        assert origin == "mqtt"
        self.offered += 1
        if self.offered == self.stop_at:
            self.stop.set()
        if data in self.refuse:
            raise ShoalError(self.refuse[data], "no")
        self.got.append(data)


def feed(taken: Taken, every_s: float = 3_600.0) -> MqttFeed:
    return MqttFeed(SETTINGS, taken, every_s=every_s, entropy=SeededEntropy("feed"))


async def test_everything_retained_is_offered_and_what_is_known_not_again() -> None:
    """Every connection brings everything. Planted: nothing remembered -> six offers, and this
    fails.
    """
    taken = Taken()
    one = feed(taken)
    await one.once(10.0)
    assert taken.got == BUNDLES
    await one.once(10.0)
    assert taken.got == BUNDLES


async def test_one_task_that_breaks_its_reader_does_not_keep_the_others_away() -> None:
    """Planted: only ShoalError caught -> the connection ends with the first one, every time, and no
    other task is ever learnt.
    """
    taken = Taken()

    def offer(data: bytes, origin: str) -> None:
        if data == BUNDLES[0] and broken:
            raise RuntimeError("a bug of ours")
        taken(data, origin)

    broken = True
    one = MqttFeed(SETTINGS, offer, every_s=3_600.0, entropy=SeededEntropy("feed"))
    await one.once(10.0)
    assert taken.got == BUNDLES[1:]
    assert one.trouble is not None
    broken = False
    await one.once(10.0)
    assert taken.got == [*BUNDLES[1:], BUNDLES[0]]


async def test_what_is_on_its_way_over_a_far_link_is_waited_for(
    link: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting took five of its round trips, the first bundle comes two later, the next one two
    after that.

    Planted: a silence of fixed length -> a device far away learns of no task, and this fails.
    """
    rtt_s, loop = 0.05, asyncio.get_running_loop()

    async def connected(self: FakeLink, timeout_s: float) -> None:
        await asyncio.sleep(5 * rtt_s)
        for number, (topic, data) in enumerate(RETAINED):
            loop.call_later(2 * (number + 1) * rtt_s, self.send, topic, data)

    link.script = staticmethod(lambda _one: None)
    monkeypatch.setattr(link, "connected", connected)
    taken = Taken()
    await feed(taken).once(600.0)
    assert taken.got == BUNDLES


async def test_what_discoveries_ask_is_told_also_when_it_comes_before_its_task(
    link: type[FakeLink],
) -> None:
    """The last step of each task, again after every bundle; one that is refused keeps nothing
    back. Planted: told when it comes and no more -> the first half; all steps kept -> the old one.
    """
    old, new, other = b"old step", b"new step", b"step of another task"
    first, second = TOPICS[0].replace("tasks", "steps"), TOPICS[1].replace("tasks", "steps")

    def script(one: FakeLink) -> None:
        one.send(first, old)
        one.send(first, b"x" * (1 << 18))
        one.send(first, new)
        one.send(second, other)
        one.send(second, b"")
        one.send(TOPICS[1], BUNDLES[1])

    link.script = staticmethod(script)
    taken, told = Taken(), list[tuple[int, bytes]]()

    def step(data: bytes) -> None:
        told.append((len(taken.got), data))
        if data == other:
            raise ShoalError(Kind.BAD_SIGNATURE, "no")

    await MqttFeed(SETTINGS, taken, every_s=3_600.0, step=step).once(10.0)
    assert taken.got == [BUNDLES[1]]
    assert told == [(0, new), (0, other), (1, new), (1, other)]


async def test_a_broker_fills_no_memory_with_steps(link: type[FakeLink]) -> None:
    """Planted: every one is kept -> 64."""

    def script(one: FakeLink) -> None:
        for number in range(64):
            one.send(f"shoal/v1/steps/{number:064x}", b"step %d" % number)

    link.script = staticmethod(script)
    told = list[bytes]()
    await MqttFeed(SETTINGS, Taken(), every_s=3_600.0, step=told.append).once(10.0)
    assert told == [b"step %d" % number for number in range(32, 64)]


async def test_what_is_no_task_is_not_offered(link: type[FakeLink]) -> None:
    """An empty message is a task that was withdrawn: devices keep theirs. Planted: the topic not
    looked at -> this fails.
    """

    def script(one: FakeLink) -> None:
        one.send(TOPICS[0], b"")
        one.send("shoal/v1/tasks/../x", BUNDLES[0])
        one.send("shoal/v1/up/x/y", BUNDLES[0])
        one.send(TOPICS[1], BUNDLES[1])

    link.script = staticmethod(script)
    taken = Taken()
    await feed(taken).once(10.0)
    assert taken.got == [BUNDLES[1]]


@pytest.mark.parametrize(
    ("kind", "again"),
    [(Kind.OVERLOADED, True), (Kind.WINDOW_CLOSED, True), (Kind.BAD_SIGNATURE, False)],
)
async def test_what_could_not_be_taken_is_had_again(kind: Kind, again: bool) -> None:
    """Planted: refused bundles remembered as seen whatever the reason -> a full disk costs the task
    for ever, this fails.
    """
    taken = Taken()
    taken.refuse = {BUNDLES[1]: kind}
    one = feed(taken)
    await one.once(10.0)
    taken.refuse = {}
    await one.once(10.0)
    assert (BUNDLES[1] in taken.got) == again
    assert taken.offered == (4 if again else 3)


async def test_a_running_feed_renews_its_connection_only_for_what_it_missed(
    link: type[FakeLink],
) -> None:
    taken = Taken(stop_at=4)
    taken.refuse = {BUNDLES[0]: Kind.OVERLOADED}
    one = feed(taken, every_s=0.02)
    await asyncio.wait_for(one.run(taken.stop), 30.0)
    assert len(link.made) == 2
    assert all(made.closed for made in link.made)
    assert taken.got == BUNDLES[1:]


async def test_a_broker_that_floods_is_bounded_and_asked_again(
    link: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no bound on what waits -> all three at once in memory, and this fails."""
    monkeypatch.setattr(mqtt_feed, "_MOST_WAITING", len(BUNDLES[0]) + len(BUNDLES[1]))
    taken = Taken()
    one = feed(taken)
    await one.once(10.0)
    assert taken.got == BUNDLES[:2]
    await one.once(10.0)
    assert taken.got == BUNDLES


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_feed, "_MOST_SEEN", 2)
    taken = Taken()
    one = feed(taken)
    for _ in range(3):
        await one.once(10.0)
    assert len(one._seen) == 2


async def test_rubbish_is_refused_at_a_bounded_pace(link: type[FakeLink]) -> None:
    """Each refusal is a pause of its own. Planted: no pause -> the loop never sleeps, and this
    fails.
    """
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    rubbish = [bytes([i]) * 40 for i in range(20)]

    def script(one: FakeLink) -> None:
        for data in rubbish:
            one.send(TOPICS[0], data)

    link.script = staticmethod(script)
    taken = Taken()
    taken.refuse = dict.fromkeys(rubbish, Kind.INVALID)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mqtt_feed.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
        await feed(taken).once(10.0)
    assert taken.offered == 20
    assert sum(slept) >= 20 * mqtt_feed._REFUSED_PAUSE_S


@pytest.mark.parametrize("refused", [None, Kind.INVALID, Kind.OVERLOADED])
async def test_a_bundle_is_followed_by_a_rest_as_long_as_its_work_deserves(
    monkeypatch: pytest.MonkeyPatch, refused: Kind | None
) -> None:
    """A valid bundle with another unknown field each time is taken each time, at the cost of two
    signatures.

    Planted: no rest after what was taken -> 0 seconds.
    """
    rests: list[float] = []
    now = asyncio.get_running_loop().time
    late = 0.0

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    def offer(data: bytes, origin: str) -> None:
        nonlocal late
        late += 0.25
        if refused is not None:
            raise ShoalError(refused, "no")

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now() + late)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    feed = MqttFeed(SETTINGS, offer, every_s=1.0)
    await feed._take(BUNDLES[0])
    assert len(rests) == 1
    assert rests[0] >= 0.74  # three times as long, but for the rounding of a clock


async def test_once_says_why_the_broker_cannot_be_reached(link: type[FakeLink]) -> None:
    def script(one: FakeLink) -> None:
        one.problem = ShoalError(Kind.UNAVAILABLE, "the broker refuses")

    link.script = staticmethod(script)
    with pytest.raises(ShoalError, match="refuses"):
        await feed(Taken()).once(10.0)


async def test_a_broker_that_never_stops_sending_ends_once_at_its_deadline(
    link: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_feed, "_QUIET_S", 600.0)  # however slowly the machine sends

    def script(one: FakeLink) -> None:
        loop, count = asyncio.get_running_loop(), iter(range(10**9))

        def more() -> None:
            if not one.closed:
                one.send(TOPICS[0], next(count).to_bytes(8, "big"))
                loop.call_later(0.001, more)

        more()

    link.script = staticmethod(script)
    with pytest.raises(ShoalError) as error:
        await feed(Taken()).once(0.2)
    assert error.value.kind is Kind.DEADLINE


async def test_it_outlives_bugs_and_stops_when_told(
    link: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: only ShoalError caught -> the feed dies with the first, and this fails."""
    failures: list[float] = []

    async def waited(_: asyncio.Event, seconds: float) -> bool:
        failures.append(seconds)
        return False

    def script(one: FakeLink) -> None:
        if len(link.made) < 3:
            raise RuntimeError("a bug")
        for topic, data in RETAINED:
            one.send(topic, data)

    link.script = staticmethod(script)
    monkeypatch.setattr(mqtt_feed, "waited", waited)
    taken = Taken(stop_at=3)
    one = feed(taken)
    await asyncio.wait_for(one.run(taken.stop), 30.0)
    assert taken.got == BUNDLES
    assert len(failures) == 2
    assert one.trouble is None


async def test_trouble_is_the_links_while_it_is_down(link: type[FakeLink]) -> None:
    stop = asyncio.Event()
    one = feed(Taken())

    def script(made: FakeLink) -> None:
        made.up = False
        made.problem = ShoalError(Kind.UNAVAILABLE, "not authorised")

    link.script = staticmethod(script)
    running = asyncio.create_task(one.run(stop))
    for _ in range(5):  # steps of the event loop
        await asyncio.sleep(0)
    assert one.trouble == "not authorised"
    stop.set()
    await asyncio.wait_for(running, 10.0)
