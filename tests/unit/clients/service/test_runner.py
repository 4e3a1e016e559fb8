"""The running agent: measuring, refusals, reload, the end, a single pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.sqlite_file import SqliteFile
from shoal.clients.service import runner as runner_module
from shoal.domain import YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from tests.worlds.devices.clients import START, DirectTransport, make_world
from tests.worlds.devices.runner import HOUR, Place

pytestmark = pytest.mark.usefixtures("quick")


# --- measuring ------------------------------------------------------------------------------------


async def test_every_window_gets_exactly_one_report(place: Place) -> None:
    """Planted: measure again in an answered window -> a second moment in window 0, and the service
    never gets to window 5.
    """
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1, 2, 3, 4, 5])
    reported = place.entries(LedgerEvent.REPORTED)
    assert [(one.window, one.details["source"]) for one in reported] == [
        (window, "json") for window in range(6)
    ]
    assert len(place.entries(LedgerEvent.OUTCOME)) == 6
    times = [one.at_s - place.world.task.windows.start_of(one.window or 0) for one in reported]
    assert all(0 <= at < HOUR - 6 for at in times)
    assert len(set(times)) == 6


@pytest.mark.parametrize(
    "content",
    [None, "{", '{"visits": "many"}', '{"visits": {}}', '{"other": 3}', '{"visits": -1e400}'],
)
async def test_a_window_without_a_value_gets_a_report_all_the_same(
    place: Place, content: str | None
) -> None:
    """Planted: skip the report when the source gives None -> sending says that there was a value;
    this waits for ever.
    """
    state = place.folder / "state.json"
    state.unlink()
    if content is not None:
        state.write_text(content)
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])


async def test_what_a_source_says_is_encoded_and_what_it_lacks_is_no_answer(tmp_path: Path) -> None:
    """A yes/no question with next to no noise: 12 windows of 1 are told apart from 12 of a missing
    file.

    Each bit is wrong with probability 1/(1 + e^8) < 4e-4: more than 2 wrong of 12 have probability
    < 2e-8. Planted: a constant instead of the value -> the two agree.
    """
    shown = []
    for number, content in enumerate(['{"visits": 1}', '{"other": 1}']):
        world = make_world(
            length=HOUR, count=12, domain=YesNo(), mechanism="binary_rr", epsilon0=8.0
        )
        folder = tmp_path / str(number)
        folder.mkdir()
        here = Place(folder, world)
        text = (folder / "agent.toml").read_text()
        (folder / "agent.toml").write_text(text.replace("max_epsilon0 = 4.0", "max_epsilon0 = 9.0"))
        (folder / "state.json").write_text(content)
        async with here.running():
            # bound now
            await here.until(lambda here=here: len(here.far.contents) == 12)  # type: ignore[misc]
        shown.append(sum(world.reports(frame) == [b"\1"] for frame in here.far.frames))
    assert shown[0] >= 10
    assert shown[1] <= 2


async def test_a_restart_draws_no_second_report(place: Place) -> None:
    """Planted: ask for the next moment without looking what is answered -> a second report of a
    window.
    """
    for upto in range(1, 5):
        async with place.running():
            # bound now
            await place.until(lambda upto=upto: len(place.windows()) >= upto)  # type: ignore[misc]
    assert place.windows() == list(range(len(place.windows())))
    assert len(place.far.frames) == len(place.windows())


async def test_offline_windows_queue_up_and_go_out_later(place: Place) -> None:
    place.transport.down = True
    async with place.running():
        await place.until(lambda: len(place.entries(LedgerEvent.REPORTED)) == 3)
        place.transport.down = False
        await place.until(lambda: len(place.windows()) >= 3)
    assert place.windows()[:3] == [0, 1, 2]


async def test_a_task_without_a_source_or_for_another_task_is_left_alone(place: Place) -> None:
    text = (place.folder / "agent.toml").read_text()
    (place.folder / "agent.toml").write_text(
        text.replace("[sources.visits]", '[sources.visits]\ntask_id = "00000000"')
    )
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.far.frames == []
    assert place.entries(LedgerEvent.REPORTED) == []


async def test_a_bug_in_one_task_stops_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_world(
        name="steps", length=HOUR, count=3, authority=place.world.authority, hop=place.world.hop
    )
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


async def test_sources_are_told_of_once_and_never_what_they_say(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Planted: a line per reading -> three for the three windows without a file; the value in the
    line -> found.
    """
    state = place.folder / "state.json"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
        state.unlink()
        await place.until(lambda: place.windows() == [0, 1, 2, 3])
        state.write_text('{"visits": 31415}')
        await place.until(lambda: place.windows() == [0, 1, 2, 3, 4])
    told = [
        (one["event"], one.get("error", ""))
        for one in logged()
        if one.get("where") == "source of task visits"
    ]
    assert [event for event, _ in told] == ["source gives no value", "source answers"]
    assert "cannot be read" in told[0][1]
    assert "31415" not in json.dumps(logged())


# --- refusals -------------------------------------------------------------------------------------


async def test_over_budget_each_window_is_refused_in_the_ledger_and_nothing_is_sent(
    place: Place,
) -> None:
    """epsilon0 is 3: the budget of 7 pays two windows. Planted: charge after sending -> the third
    window's frame.
    """
    place.write(policy="lifetime_epsilon = 7.0")
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.windows() == [0, 1]
    refused = place.entries(LedgerEvent.REFUSED)
    assert [one.window for one in refused if "budget" in str(one.details["reason"])] == [2, 3, 4, 5]


async def test_a_task_that_is_over_is_refused_once_and_says_so(place: Place) -> None:
    place.clock.time = START + 100.0 * HOUR
    async with place.running():
        await place.until(lambda: place.clock.now() > START + 101 * HOUR)
    (refused,) = place.entries(LedgerEvent.REFUSED)
    assert "ended at" in str(refused.details["reason"])
    assert place.far.frames == []


# --- reload and end -------------------------------------------------------------------------------


async def test_reload_takes_the_new_file_and_keeps_the_old_one_if_it_is_wrong(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Planted: leave at a bad file -> the service ends; take what can be read of it -> consent is
    gone.
    """
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
        await place.until(
            lambda: any(one["event"] == "configuration read again" for one in logged())
        )
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    assert place.windows() == [0, 1]
    assert [one["event"] for one in logged()].count(
        "the configuration can't be used: the old one stays"
    ) == 1


async def test_the_first_configuration_must_be_right(place: Place) -> None:
    (place.folder / "agent.toml").write_text("nonsense = 1\n")
    with pytest.raises(ShoalError) as caught:
        await runner_module.run(place.folder / "agent.toml", place.stop)
    assert caught.value.kind is Kind.CONFIG


async def test_an_attempt_under_way_may_end_after_the_stop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: drain for 0 seconds -> the report stays queued, doubtful, though the shuffler has
    it.
    """
    arrived, go, draining, real = asyncio.Event(), asyncio.Event(), asyncio.Event(), Agent.drain

    async def noted(self: Agent, seconds: float) -> None:
        draining.set()
        await real(self, seconds)

    monkeypatch.setattr(Agent, "drain", noted)

    class Slow(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            arrived.set()
            await go.wait()
            return await super().submit(frame, ack_key, deadline_s)

    place.transport = Slow(place.far)
    async with place.running() as service:
        await place.until(arrived.is_set)
        place.stop.set()
        await draining.wait()
        await place.settle()
        assert not service.done()
        go.set()
        await service
    assert [one.details["state"] for one in place.entries(LedgerEvent.OUTCOME)] == [
        ReportState.ACKED.value
    ]


async def test_an_attempt_without_end_is_given_up_and_its_report_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: take the broken-off attempt for a refusal of the owner's -> the report is gone at
    the next start.
    """
    monkeypatch.setattr("shoal.clients.service.runner.LIMITS", replace(LIMITS, drain_s=0.05))
    arrived = asyncio.Event()

    class Hanging(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            arrived.set()
            await asyncio.Event().wait()
            return b""

    place.transport = Hanging(place.far)
    async with place.running():
        await place.until(arrived.is_set)
    assert place.entries(LedgerEvent.OUTCOME) == []
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
    assert [one["event"] for one in logged() if one.get("where") == "memory"] == [
        "the device's memory can't be opened"
    ]


async def test_a_reload_while_the_disk_is_full_is_no_reason_to_hurry(
    place: Place, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """The file is read again, and each try has its pause. Planted: leave reload set -> it spins,
    and no time passes.
    """
    real, tries = Agent.__aenter__, []

    async def failing(self: Agent) -> Agent:
        tries.append(place.clock.now())
        if tries[-1] < START + 600:
            raise ShoalError(Kind.OVERLOADED, "outbox outbox.db: the disk is full")
        return await real(self)

    monkeypatch.setattr(Agent, "__aenter__", failing)
    place.write(consent="denied")
    async with place.running():
        await place.until(lambda: len(tries) >= 2)
        place.write()
        place.reload.set()
        await place.until(lambda: place.windows() == [0])
    assert len(tries) <= 25
    assert [one["event"] for one in logged()].count("configuration read again") == 1


async def test_a_folder_of_tasks_that_goes_and_comes_back(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    tasks, away = place.folder / "tasks", place.folder / "away"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
        tasks.rename(away)
        await place.until(lambda: any(one["event"] == "tasks can't be read" for one in logged()))
        away.rename(tasks)
        await place.until(lambda: any(one["event"] == "tasks are read" for one in logged()))
        await place.until(lambda: len(place.windows()) >= 3)
    assert [one["event"] for one in logged()].count("tasks can't be read") == 1


async def test_what_the_file_denies_is_not_sent_though_the_disk_is_full(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Denied in the file, with SIGHUP, while nothing can be written: nothing more is sent, and with
    room what waits is deleted.

    Planted: the policy of the start kept after a reload -> the report that waits is sent as soon as
    there is room, and this fails.
    """
    full = False
    real = SqliteFile.write

    def write(self: SqliteFile, **how: Any) -> Any:
        if full:
            raise ShoalError(Kind.OVERLOADED, "the disk is full")
        return real(self, **how)

    monkeypatch.setattr(SqliteFile, "write", write)
    place.transport.down = True
    async with place.running():
        await place.until(lambda: len(place.entries(LedgerEvent.REPORTED)) == 1)
        full = True
        place.write(consent="denied")
        place.reload.set()
        await place.until(lambda: not place.reload.is_set())
        await place.until(lambda: place.clock.now() > START + 2 * HOUR)
        place.transport.down = False
        await place.until(lambda: place.clock.now() > START + 2.5 * HOUR)
        assert place.windows() == []
        full = False
        await place.until(lambda: place.clock.now() > START + 5 * HOUR)
    assert (place.windows(), len(place.entries(LedgerEvent.WITHDRAWN))) == ([], 1)


async def test_a_source_without_a_task_is_told_of_once_and_so_is_its_task(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """A name with a mistake in it, or a task that comes later. Planted: never looked at, or told at
    every look -> fails.
    """
    place.write(more='[sources.steps]\nkind = "json"\nfile = "state.json"\npointer = "/visits"\n')

    def told() -> list[tuple[str, str]]:
        return [
            (one["event"], one.get("error", ""))
            for one in logged()
            if one.get("where", "").startswith("source ")
        ]

    idle = (
        "source is not read",
        "UNKNOWN_TASK: [sources.steps] matches no task that this device knows: known are visits",
    )
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])
        assert told() == [idle]
        make_world(
            name="steps", length=HOUR, count=6, authority=place.world.authority, hop=place.world.hop
        ).write(place.folder / "tasks")
        await place.until(lambda: len(told()) > 1)
        await place.until(lambda: place.windows()[-1] >= 3)
    assert told() == [idle, ("source has a task", "")]


# --- a single pass --------------------------------------------------------------------------------


async def test_a_single_pass_answers_and_sends_once(place: Place) -> None:
    """It returns what it sent, or could not: nothing where nothing was due. Planted: an empty list
    always -> this fails.
    """
    (sent,) = await place.runner().once(place.config)
    assert (sent.task, sent.window, sent.state) == ("visits", 0, ReportState.ACKED)
    assert place.windows() == [0]
    assert await place.runner().once(place.config) == []
    assert len(place.far.frames) == 1
    place.clock.advance(HOUR)
    place.transport.down = True
    (waiting,) = await place.runner().once(place.config)
    assert (waiting.window, waiting.state) == (1, ReportState.QUEUED)
    place.transport.down = False
    await place.runner().once(place.config)
    assert place.windows() == [0, 1]


async def test_a_single_pass_names_a_source_without_a_task(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Planted: looked at by the service alone -> this fails."""
    place.write(more='[sources.visist]\nkind = "json"\nfile = "state.json"\n')
    await place.runner().once(place.config)
    assert [one["error"] for one in logged() if one.get("where") == "source visist"] == [
        "UNKNOWN_TASK: [sources.visist] matches no task that this device knows: known are visits"
    ]
