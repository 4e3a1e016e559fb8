"""The service over its seams: real memory, real cryptography, a clock and sleeps that the test moves, a far end without a network."""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shoal import codec
from shoal.clients import runner as runner_module
from shoal.clients.agent import Agent
from shoal.clients.config import AgentConfig
from shoal.clients.core import State
from shoal.clients.ledger import Event, LedgerEntry
from shoal.clients.memory import Memory
from shoal.clients.runner import Runner
from shoal.clock import FakeClock
from shoal.codec import Bundle
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.domain import YesNo
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import Task
from tests.clients_world import START, DirectTransport, FarEnd, World, make_world

HOUR = 3_600


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of each task takes a third of a second, and is shown elsewhere. Naps are long: the clock is the test's."""
    monkeypatch.setattr("shoal.clients.measuring._NAP_S", 900.0)
    monkeypatch.setattr("shoal.clients.runner.LOOK_S", 900.0)
    monkeypatch.setattr("shoal.clients.explain.guaranteed_epsilon", lambda _: 0.25)


def bundle(world: World) -> bytes:
    return codec.encode_bundle(Bundle(world.signed_task, world.signed_schedule))


@dataclass
class Place:
    """A device's folder, its clock, and the service on it. Time goes on only in ``until``: to whoever sleeps shortest."""

    folder: Path
    world: World
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + 10.0))

    def __post_init__(self) -> None:
        self.world.write(self.folder / "tasks")
        self.far = FarEnd([self.world.hop])
        self.transport = DirectTransport(self.far)
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.numbers = count()
        self.stop, self.reload = asyncio.Event(), asyncio.Event()
        (self.folder / "state.json").write_text('{"visits": 3}')
        self.text: dict[str, str] = {}
        self.write()

    def write(self, *, consent: str = "allowed", policy: str = "", more: str = "") -> None:
        source = '[sources.visits]\nkind = "json"\nfile = "state.json"\npointer = "/visits"\n'
        (self.folder / "agent.toml").write_text(
            f'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = ["{self.world.authority.public.hex()}"]\nmax_epsilon0 = 4.0\n'
            f'min_batch_floor = 100\n{policy}\n[policy.purposes]\n"{self.world.task.purpose}" = "{consent}"\n'
            f"[send]\nretry_first_s = 0.01\nretry_most_s = 0.01\ngap_s = 0\n[measure]\nmean_s = 200\n{source}{more}\n"
        )

    @property
    def config(self) -> AgentConfig:
        return AgentConfig.load(self.folder / "agent.toml")

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self.sleepers, (self.clock.now() + seconds, next(self.numbers), future))
        await future

    def agents(self, config: AgentConfig, background: bool) -> Agent:
        self.transport.closed = False

        def way(task: Task, insecure: bool) -> DirectTransport:
            return self.transport

        return Agent(config, background=background, clock=self.clock, transports=way)

    def runner(self) -> Runner:
        self.stop.clear()
        return Runner(self.folder / "agent.toml", self.stop, self.reload, clock=self.clock, sleep=self.sleep, agents=self.agents)

    @asynccontextmanager
    async def running(self) -> Any:
        """The service, stopped at the end as SIGTERM would."""
        service = asyncio.create_task(self.runner().run(self.config))
        try:
            yield service
            self.stop.set()
            await service
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    async def settle(self) -> None:
        """Let threads and callbacks come to rest."""
        for _ in range(12):
            await asyncio.to_thread(lambda: None)

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Let time pass until it is so (the test's own time limit is the bound)."""
        while True:
            await self.settle()
            if wanted():
                return
            while self.sleepers:
                at, _, future = heapq.heappop(self.sleepers)
                if not future.done():
                    self.clock.time = max(self.clock.time, at)
                    future.set_result(None)
                    break

    def windows(self) -> list[int]:
        """Of the reports that the far end has."""
        return sorted(content.window for content in self.far.contents.values())

    def entries(self, *events: Event) -> list[LedgerEntry]:
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            memory.book.verify()
            return [one.entry for one in memory.book.entries() if one.entry.event in events]
        finally:
            memory.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, make_world(length=HOUR, count=6))


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.message) for record in caplog.records if record.name == "shoal.agent"]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    caplog.set_level(logging.INFO, "shoal")
    logging.getLogger("shoal").propagate = True
    return lambda: lines(caplog)


# --- measuring --------------------------------------------------------------------------------------------------------


async def test_every_window_gets_exactly_one_report(place: Place) -> None:
    """Planted: measure again in an answered window -> a second moment in window 0, and the service never gets to window 5."""
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1, 2, 3, 4, 5])
    reported = place.entries(Event.REPORTED)
    assert [(one.window, one.details["source"]) for one in reported] == [(window, "json") for window in range(6)]
    assert len(place.entries(Event.OUTCOME)) == 6
    times = [one.at_s - place.world.task.windows.start_of(one.window or 0) for one in reported]
    assert all(0 <= at < HOUR - 6 for at in times)
    assert len(set(times)) == 6


@pytest.mark.parametrize("content", [None, "{", '{"visits": "many"}', '{"visits": {}}', '{"other": 3}', '{"visits": -1e400}'])
async def test_a_window_without_a_value_gets_a_report_all_the_same(place: Place, content: str | None) -> None:
    """Planted: skip the report when the source gives None -> sending says that there was a value; this waits for ever."""
    state = place.folder / "state.json"
    state.unlink()
    if content is not None:
        state.write_text(content)
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])


async def test_what_a_source_says_is_encoded_and_what_it_lacks_is_no_answer(tmp_path: Path) -> None:
    """A yes/no question with next to no noise: 12 windows of 1 are told apart from 12 of a missing file.

    Each bit is wrong with probability 1/(1 + e^8) < 4e-4: more than 2 wrong of 12 have probability < 2e-8. Planted: a constant instead
    of the value -> the two agree."""
    shown = []
    for number, content in enumerate(['{"visits": 1}', '{"other": 1}']):
        world = make_world(length=HOUR, count=12, domain=YesNo(), mechanism="binary_rr", epsilon0=8.0)
        folder = tmp_path / str(number)
        folder.mkdir()
        here = Place(folder, world)
        text = (folder / "agent.toml").read_text()
        (folder / "agent.toml").write_text(text.replace("max_epsilon0 = 4.0", "max_epsilon0 = 9.0"))
        (folder / "state.json").write_text(content)
        async with here.running():
            await here.until(lambda here=here: len(here.far.contents) == 12)  # type: ignore[misc] # bound now
        shown.append(sum(world.reports(frame) == [b"\1"] for frame in here.far.frames))
    assert shown[0] >= 10
    assert shown[1] <= 2


async def test_a_restart_draws_no_second_report(place: Place) -> None:
    """Planted: ask for the next moment without looking what is answered -> a second report of a window."""
    for upto in range(1, 5):
        async with place.running():
            await place.until(lambda upto=upto: len(place.windows()) >= upto)  # type: ignore[misc] # bound now
    assert place.windows() == list(range(len(place.windows())))
    assert len(place.far.frames) == len(place.windows())


async def test_offline_windows_queue_up_and_go_out_later(place: Place) -> None:
    place.transport.down = True
    async with place.running():
        await place.until(lambda: len(place.entries(Event.REPORTED)) == 3)
        place.transport.down = False
        await place.until(lambda: len(place.windows()) >= 3)
    assert place.windows()[:3] == [0, 1, 2]


async def test_a_task_without_a_source_or_for_another_task_is_left_alone(place: Place) -> None:
    text = (place.folder / "agent.toml").read_text()
    (place.folder / "agent.toml").write_text(text.replace("[sources.visits]", '[sources.visits]\ntask_id = "00000000"'))
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.far.frames == []
    assert place.entries(Event.REPORTED) == []


async def test_a_bug_in_one_task_stops_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_world(name="steps", length=HOUR, count=3, authority=place.world.authority, hop=place.world.hop)
    other.write(place.folder / "tasks")
    place.write(more='[sources.steps]\nkind = "json"\nfile = "state.json"\npointer = "/visits"\n')
    real = Agent.report

    async def failing(self: Agent, name: str, *rest: Any, **more: Any) -> Any:
        if name == other.task_id.hex:
            raise ZeroDivisionError
        return await real(self, name, *rest, **more)

    monkeypatch.setattr(Agent, "report", failing)
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1, 2, 3, 4, 5])


async def test_sources_are_told_of_once_and_never_what_they_say(place: Place, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Planted: a line per reading -> three for the three windows without a file; the value in the line -> found."""
    state = place.folder / "state.json"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
        state.unlink()
        await place.until(lambda: place.windows() == [0, 1, 2, 3])
        state.write_text('{"visits": 31415}')
        await place.until(lambda: place.windows() == [0, 1, 2, 3, 4])
    told = [(one["event"], one.get("error", "")) for one in logged() if one.get("where") == "source of task visits"]
    assert [event for event, _ in told] == ["source gives no value", "source answers"]
    assert "cannot be read" in told[0][1]
    assert "31415" not in json.dumps(logged())


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_over_budget_each_window_is_refused_in_the_ledger_and_nothing_is_sent(place: Place) -> None:
    """epsilon0 is 3: the budget of 7 pays two windows. Planted: charge after sending -> the third window's frame."""
    place.write(policy="lifetime_epsilon = 7.0")
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.windows() == [0, 1]
    refused = place.entries(Event.REFUSED)
    assert [one.window for one in refused if "budget" in str(one.details["reason"])] == [2, 3, 4, 5]


async def test_a_task_that_is_over_is_refused_once_and_says_so(place: Place) -> None:
    place.clock.time = START + 100.0 * HOUR
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 101 * HOUR)
    (refused,) = place.entries(Event.REFUSED)
    assert "ended at" in str(refused.details["reason"])
    assert place.far.frames == []


# --- reload and end ---------------------------------------------------------------------------------------------------


async def test_reload_takes_the_new_file_and_keeps_the_old_one_if_it_is_wrong(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Planted: leave at a bad file -> the service ends; take what can be read of it -> consent is gone."""
    async with place.running() as service:
        await place.until(lambda: place.windows() == [0])
        good = (place.folder / "agent.toml").read_text()
        (place.folder / "agent.toml").write_text(good + "\nnonsense = 1\n")
        place.reload.set()
        await place.until(lambda: any("the old one stays" in one["event"] for one in logged()))
        assert not service.done()
        await place.until(lambda: place.windows() == [0, 1])
        (place.folder / "agent.toml").write_text(good.replace('"allowed"', '"denied"'))
        place.reload.set()
        await place.until(lambda: any(one["event"] == "configuration read again" for one in logged()))
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.windows() == [0, 1]
    assert [one["event"] for one in logged()].count("the configuration can't be used: the old one stays") == 1


async def test_the_first_configuration_must_be_right(place: Place) -> None:
    (place.folder / "agent.toml").write_text("nonsense = 1\n")
    with pytest.raises(ShoalError) as caught:
        await runner_module.run(place.folder / "agent.toml", place.stop)
    assert caught.value.kind is Kind.CONFIG


async def test_an_attempt_under_way_may_end_after_the_stop(place: Place) -> None:
    """Planted: cancel at once -> the report stays queued, doubtful, though the shuffler has it."""
    arrived, go = asyncio.Event(), asyncio.Event()

    class Slow(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            arrived.set()
            await go.wait()
            return await super().submit(frame, ack_key, deadline_s)

    place.transport = Slow(place.far)
    async with place.running() as service:
        await place.until(arrived.is_set)
        place.stop.set()
        await place.settle()
        assert not service.done()
        go.set()
        await service
    assert [one.details["state"] for one in place.entries(Event.OUTCOME)] == [State.ACKED.value]


async def test_an_attempt_without_end_is_given_up_and_its_report_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: take the broken-off attempt for a refusal of the owner's -> the report is gone at the next start."""
    monkeypatch.setattr("shoal.clients.runner.LIMITS", replace(LIMITS, drain_s=0.05))
    arrived = asyncio.Event()

    class Hanging(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            arrived.set()
            await asyncio.Event().wait()
            return b""

    place.transport = Hanging(place.far)
    async with place.running():
        await place.until(arrived.is_set)
    assert place.entries(Event.OUTCOME) == []
    place.transport = DirectTransport(place.far)
    async with place.running():
        await place.until(lambda: 0 in place.windows())


async def test_a_disk_that_is_full_at_the_start_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    real, tries = Agent.__aenter__, []

    async def failing(self: Agent) -> Agent:
        tries.append(1)
        if len(tries) < 4:
            raise ShoalError(Kind.OVERLOADED, "outbox outbox.db: the disk is full")
        return await real(self)

    monkeypatch.setattr(Agent, "__aenter__", failing)
    async with place.running():
        await place.until(lambda: place.windows() == [0])
    assert [one["event"] for one in logged() if one.get("where") == "memory"] == ["the device's memory can't be opened"]


async def test_a_folder_of_tasks_that_goes_and_comes_back(place: Place, logged: Callable[[], list[dict[str, Any]]]) -> None:
    tasks, away = place.folder / "tasks", place.folder / "away"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
        tasks.rename(away)
        await place.until(lambda: any(one["event"] == "tasks can't be read" for one in logged()))
        away.rename(tasks)
        await place.until(lambda: any(one["event"] == "tasks are read" for one in logged()))
        await place.until(lambda: len(place.windows()) >= 3)
    assert [one["event"] for one in logged()].count("tasks can't be read") == 1


# --- a single pass ----------------------------------------------------------------------------------------------------


async def test_a_single_pass_answers_and_sends_once(place: Place) -> None:
    await place.runner().once(place.config)
    assert place.windows() == [0]
    await place.runner().once(place.config)
    assert len(place.far.frames) == 1
    place.clock.advance(HOUR)
    place.transport.down = True
    await place.runner().once(place.config)
    place.transport.down = False
    await place.runner().once(place.config)
    assert place.windows() == [0, 1]


# --- feeds ------------------------------------------------------------------------------------------------------------


class FakeFeed:
    """Offers what the test gives it."""

    origin, trouble = "mqtt", None

    def __init__(self, offer: Callable[[bytes, str], None]) -> None:
        self._offer = offer
        self.refused: list[Kind] = []

    def give(self, data: bytes) -> None:
        try:
            self._offer(data, self.origin)
        except ShoalError as error:
            self.refused.append(error.kind)

    async def once(self, deadline_s: float) -> None:
        pass

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[FakeFeed]:
    feeds: list[FakeFeed] = []

    def opening(config: AgentConfig, offer: Callable[[bytes, str], None], entropy: object) -> list[FakeFeed]:
        feeds.append(FakeFeed(offer))
        return feeds[-1:]

    monkeypatch.setattr(runner_module, "open_feeds", opening)
    return feeds


def learnt(place: Place, **changes: Any) -> World:
    """A task that is not in the folder."""
    for path in (place.folder / "tasks").iterdir():
        path.unlink()
    world = make_world(**{"length": HOUR, "count": 6, "authority": place.world.authority, "hop": place.world.hop, **changes})
    place.world = world
    return world


async def test_a_task_learnt_from_a_feed_is_answered_also_after_a_restart(place: Place, fed: list[FakeFeed]) -> None:
    world = learnt(place)
    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].give(bundle(world))
        await place.until(lambda: place.windows() == [0])
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])
    assert [one.task_id for one in place.entries(Event.SEEN)] == [world.task_id]
    assert len(place.entries(Event.ACCEPTED)) == 1


async def test_a_second_schedule_from_a_feed_strikes_the_task_for_ever(place: Place, fed: list[FakeFeed]) -> None:
    """Planted: no strike on the shelf's CONFLICT -> window 1 is answered under the first schedule."""
    world = learnt(place)
    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].give(bundle(world))
        await place.until(lambda: place.windows() == [0])
        other = world.schedule(generate(SuiteId.X25519_AES128))
        fed[0].give(codec.encode_bundle(Bundle(world.signed_task, other)))
        assert fed[0].refused == [Kind.CONFLICT]
        await place.until(lambda: bool(place.entries(Event.STRUCK)))
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    async with place.running():
        fed[-1].give(bundle(world))
        await place.settle()
    assert place.windows() == [0]
    (struck,) = place.entries(Event.STRUCK)
    assert struck.task_id == world.task_id
    assert "another key schedule" in str(struck.details["reason"])


def altered(data: bytes) -> bytes:
    return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]


@pytest.mark.parametrize("what", ["junk", "unsigned", "wrongly signed", "altered task", "altered schedule", "expired", "foreign"])
async def test_what_a_feed_brings_and_is_refused_is_in_the_ledger_once_and_nothing_is_sent(
    place: Place, fed: list[FakeFeed], what: str
) -> None:
    """Planted: write the bundle before its signatures hold -> a file on the shelf; no digest kept -> an entry per offer."""
    world = learnt(place)
    signed = codec.decode_signed_task(world.signed_task)
    forged = codec.encode_signed_task(codec.Signed(signed.data, world.authority.public, bytes(64)))
    data, kinds = {
        "junk": (b"junk", {Kind.INVALID}),
        "unsigned": (codec.encode_bundle(Bundle(forged, world.signed_schedule)), {Kind.BAD_SIGNATURE, Kind.INVALID}),
        "wrongly signed": (bundle(resigned(world)), {Kind.BAD_SIGNATURE}),
        "altered task": (codec.encode_bundle(Bundle(altered(world.signed_task), world.signed_schedule)), {Kind.BAD_SIGNATURE}),
        "altered schedule": (codec.encode_bundle(Bundle(world.signed_task, altered(world.signed_schedule))), {Kind.BAD_SIGNATURE}),
        "expired": (bundle(make_world(start=START - 10**7, count=1, length=HOUR, authority=world.authority)), {Kind.WINDOW_CLOSED}),
        "foreign": (bundle(make_world(length=HOUR)), {Kind.FORBIDDEN}),
    }[what]
    async with place.running():
        await place.until(lambda: bool(fed))
        for _ in range(3):
            fed[0].give(data)
        await place.until(lambda: place.clock.now() > START + 2 * HOUR)
    assert set(fed[0].refused) <= kinds
    assert len(fed[0].refused) == 3
    (problem,) = place.entries(Event.PROBLEM)
    assert problem.details["origin"] == "mqtt"
    assert Kind[str(problem.details["kind"])] in kinds
    assert problem.details["reason"]
    assert place.far.frames == []
    assert not list((place.folder / "outbox.db.tasks").glob("*.task"))


def resigned(world: World) -> World:
    """The same task, its signature made by somebody else in the authority's name."""
    signed, stranger = codec.decode_signed_task(world.signed_task), SigningKey.generate()
    world.signed_task = codec.encode_signed_task(
        codec.Signed(signed.data, world.authority.public, stranger.sign(SigningContext.TASK, signed.data))
    )
    return world
