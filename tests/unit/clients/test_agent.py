"""The agent over its seams: real outbox on disk, real cryptography, a far end without a network, a
clock set by hand.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.clients import core
from shoal.clients.agent import Agent, ReportOutcome
from shoal.clients.core import ReportState
from shoal.clients.owner.policy import Policy
from shoal.clients.reports.answering import AnswerRequest, answer
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import DeviceClock, FakeClock
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.domain import Numeric
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.worlds.devices.clients import (
    START,
    WEEK,
    DirectTransport,
    FarEnd,
    Script,
    World,
    accept,
    make_world,
)


@dataclass
class Device:
    """A folder with tasks and outbox, the far end behind it, and agents made one after another on
    it: restarts.
    """

    folder: Path
    world: World
    script: Script = accept
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + 100))

    def __post_init__(self) -> None:
        self.world.write(self.folder / "tasks")
        self.far = FarEnd([self.world.hop], self.script)
        self.transport = DirectTransport(self.far)
        self.policy = Policy(self.world.authorities, 4.0, 2, {self.world.task.purpose: "allowed"})
        self.rows = 100

    def agent(self, *, background: bool = False, clock: DeviceClock | None = None) -> Agent:
        config = AgentConfig(
            self.folder / "tasks",
            self.folder / "outbox.db",
            self.policy,
            retry_first_s=0.01,
            retry_most_s=0.01,
            outbox_rows=self.rows,
        )
        self.transport.closed = False
        return Agent(config, background=background, clock=clock or self.clock, transports=self._way)

    def _way(self, task: Task, insecure: bool) -> DirectTransport:
        return self.transport


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, make_world())


def standing(outcome: ReportOutcome) -> tuple[ReportState, bool, Kind | None]:
    return outcome.state, outcome.fresh, outcome.kind


async def test_a_report_is_acknowledged(device: Device) -> None:
    async with device.agent() as agent:
        outcome = await agent.report("visits", 3)
        assert standing(outcome) == (ReportState.ACKED, True, None)
        assert (outcome.task, outcome.task_id, outcome.window, outcome.attempts) == (
            "visits",
            device.world.task_id,
            0,
            1,
        )
        assert await agent.flush() == []
    assert len(device.far.frames) == 1
    assert device.transport.closed


async def test_a_window_is_answered_once_even_over_restarts(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The randomizer runs once per window. Planted: ask ``find`` in one transaction and insert in
    another -> see the outbox suite; forget finished windows -> the calls below are four.
    """
    calls: list[int] = []

    def counting(request: AnswerRequest, *rest: Any) -> core.SealedReport:
        calls.append(request.window)
        return answer(request, *rest)

    monkeypatch.setattr("shoal.clients.reports.answering.answer", counting)
    device.transport.down = True
    async with device.agent() as agent:
        assert standing(await agent.report("visits", 3)) == (
            ReportState.QUEUED,
            True,
            Kind.UNAVAILABLE,
        )
        assert standing(await agent.report("visits", 9)) == (
            ReportState.QUEUED,
            False,
            Kind.UNAVAILABLE,
        )
    device.transport.down = False
    async with device.agent() as agent:
        assert standing(await agent.report("visits", 9)) == (ReportState.ACKED, False, None)
        assert standing(await agent.report("visits", 9)) == (ReportState.ACKED, False, None)
        device.clock.advance(WEEK)
        assert standing(await agent.report("visits", 9)) == (ReportState.ACKED, True, None)
    assert calls == [0, 1]


async def test_every_attempt_sends_the_same_bytes_also_after_a_restart(device: Device) -> None:
    """Planted: prepare again for each attempt -> two different frames."""
    device.far.script = lambda number, _: (
        ShoalError(Kind.OVERLOADED, "busy") if number < 4 else None
    )
    async with device.agent() as agent:
        await agent.report("visits", 3)
        await agent.flush()
    async with device.agent() as agent:
        await agent.flush()
        await agent.flush()
    async with device.agent() as agent:
        (outcome,) = await agent.flush()
        assert (outcome.state, outcome.attempts) == (ReportState.ACKED, 5)
    assert len(device.far.frames) == 5
    assert len(set(device.far.frames)) == 1


async def test_offline_then_online(device: Device) -> None:
    """Several windows queue up and go out when the network is back; each once."""
    device.transport.down = True
    async with device.agent() as agent:
        for _ in range(3):
            assert (await agent.report("visits", 3)).state is ReportState.QUEUED
            device.clock.advance(WEEK)
        assert {outcome.state for outcome in await agent.flush()} == {ReportState.QUEUED}
    device.transport.down = False
    async with device.agent() as agent:
        assert [standing(outcome) for outcome in await agent.flush()] == [
            (ReportState.ACKED, False, None)
        ] * 3
    assert sorted(content.window for content in device.far.contents.values()) == [0, 1, 2]
    assert len(device.far.frames) == 3


async def test_queue_only_sends_nothing(device: Device) -> None:
    async with device.agent() as agent:
        assert standing(await agent.report("visits", 3, send=False)) == (
            ReportState.QUEUED,
            True,
            None,
        )
        assert device.far.frames == []


@pytest.mark.parametrize("reply", [b"", bytes(32), b"x" * 31])
async def test_a_forged_receipt_is_not_believed(device: Device, reply: bytes) -> None:
    """Planted: skip ``verify_receipt`` -> ACKED, and the report would be lost."""
    device.far.script = lambda number, _: reply if number < 2 else None
    async with device.agent() as agent:
        assert standing(await agent.report("visits", 3)) == (
            ReportState.QUEUED,
            True,
            Kind.BAD_SIGNATURE,
        )
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.QUEUED
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.ACKED
    assert len(set(device.far.frames)) == 1


async def test_a_receipt_of_another_frame_is_not_believed(device: Device) -> None:
    """Replayed from the device's own earlier report."""
    async with device.agent() as agent:
        await agent.report("visits", 3)
        content = next(iter(device.far.contents.values()))
        from shoal.crypto.envelope import receipt_mac

        old = receipt_mac(content.ack_key, 0, device.far.frames[0])
        device.far.script = lambda _n, _f: old
        device.clock.advance(WEEK)
        assert standing(await agent.report("visits", 3)) == (
            ReportState.QUEUED,
            True,
            Kind.BAD_SIGNATURE,
        )


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ([Kind.WINDOW_FULL], ReportState.REFUSED),
        ([Kind.INVALID], ReportState.REFUSED),
        ([Kind.OVERLOADED, Kind.WINDOW_CLOSED], ReportState.REFUSED),
        ([Kind.UNAVAILABLE, Kind.WINDOW_FULL], ReportState.UNKNOWN),
        ([Kind.DEADLINE, Kind.OVERLOADED, Kind.WINDOW_CLOSED], ReportState.UNKNOWN),
        ([Kind.INTERNAL, Kind.INVALID], ReportState.UNKNOWN),
    ],
)
async def test_final_refusals_end_a_report_and_say_what_is_known(
    device: Device, script: list[Kind], state: ReportState
) -> None:
    """Across restarts too. Planted: keep ``doubtful`` in memory alone -> UNKNOWN becomes
    REFUSED.
    """
    device.far.script = lambda number, _: ShoalError(script[number], "no")
    async with device.agent() as agent:
        await agent.report("visits", 3)
    for _ in script[1:]:
        async with device.agent() as agent:
            await agent.flush()
    async with device.agent() as agent:
        assert await agent.flush() == []
        (outcome,) = await agent.outcomes()
        assert (outcome.state, outcome.kind) == (state, script[-1])
    assert len(device.far.frames) == len(script)


async def test_an_unknown_task_makes_the_agent_read_its_tasks_again(device: Device) -> None:
    """And the report goes on, with the same bytes, to the address that the refreshed folder
    names.
    """
    device.far.script = lambda number, _: (
        ShoalError(Kind.UNKNOWN_TASK, "not here") if number == 0 else None
    )
    async with device.agent() as agent:
        other = make_world(name="other", authority=device.world.authority)
        other.write(device.folder / "tasks")
        assert standing(await agent.report("visits", 3)) == (
            ReportState.QUEUED,
            True,
            Kind.UNKNOWN_TASK,
        )
        assert [one.task.name for one in agent.tasks.all()] == ["other", "visits"]
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.ACKED


async def test_a_second_schedule_is_refused_and_nothing_is_sent(device: Device) -> None:
    """Remembered over a restart."""
    async with device.agent():
        pass
    device.world.signed_schedule = device.world.schedule(generate(SuiteId.X25519_AES128))
    device.world.write(device.folder / "tasks")
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        assert caught.value.kind is Kind.CONFLICT
        assert await agent.outcomes() == []
    assert device.far.frames == []


@pytest.mark.parametrize("answer", ["denied", None])
async def test_without_consent_nothing_is_randomized_stored_or_sent(
    device: Device, answer: str | None
) -> None:
    device.policy = Policy(
        device.world.authorities,
        4.0,
        2,
        {} if answer is None else {device.world.task.purpose: "denied"},
    )
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        assert caught.value.kind is Kind.REFUSED
        assert await agent.outcomes() == []
        (status,) = agent.status()
        assert status.refusal == caught.value.message
        assert status.consent == (answer or "not asked")
    assert device.far.frames == []


async def test_consent_withdrawn_ends_a_report_that_waits(device: Device) -> None:
    """Planted: check the policy only when a report is made -> the frame is sent."""
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
    device.policy = Policy(device.world.authorities, 4.0, 2, {device.world.task.purpose: "denied"})
    async with device.agent() as agent:
        assert await agent.flush() == []
        (outcome,) = await agent.outcomes()
        assert outcome.state is ReportState.WITHDRAWN
    assert device.far.frames == []


async def test_a_task_that_left_the_folder_keeps_its_report(device: Device) -> None:
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
    for path in (device.folder / "tasks").iterdir():
        path.unlink()
    async with device.agent() as agent:
        (outcome,) = await agent.flush()
        assert (outcome.state, outcome.kind) == (ReportState.QUEUED, Kind.UNKNOWN_TASK)
        assert outcome.message.endswith("put it back")
    device.world.write(device.folder / "tasks")
    async with device.agent() as agent:
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.ACKED


async def test_a_full_outbox_refuses_the_next_report(device: Device) -> None:
    device.rows = 2
    device.transport.down = True
    async with device.agent() as agent:
        for _ in range(2):
            await agent.report("visits", 3)
            device.clock.advance(WEEK)
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        assert caught.value.kind is Kind.OVERLOADED
        assert len(await agent.outcomes()) == 2
        device.transport.down = False
        await agent.flush()
        assert (await agent.report("visits", 3)).state is ReportState.ACKED


async def test_outside_the_plan_nothing_is_randomized(device: Device) -> None:
    for now, kind in ((START - 1, Kind.TOO_EARLY), (START + 4 * WEEK, Kind.WINDOW_CLOSED)):
        device.clock.time = now
        async with device.agent() as agent:
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3)
            assert caught.value.kind is kind
            assert await agent.outcomes() == []


async def test_an_expired_report_gets_one_more_attempt_and_then_ends(device: Device) -> None:
    """The device's clock alone never ends a report: only an attempt that fails after the expiry
    does.
    """
    device.transport.down = True
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
        device.clock.time = START + 100 * WEEK
        (outcome,) = await agent.flush()
        assert (outcome.state, outcome.kind) == (ReportState.UNKNOWN, Kind.UNAVAILABLE)
        (outcome,) = await agent.outcomes()
        assert (outcome.state, outcome.kind) == (ReportState.UNKNOWN, Kind.WINDOW_CLOSED)
        assert await agent.flush() == []


async def test_a_clock_that_jumped_loses_nothing_while_the_shuffler_answers(device: Device) -> None:
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
        device.clock.time = START + 100 * WEEK
        (outcome,) = await agent.flush()
        assert outcome.state is ReportState.ACKED


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_the_true_value_is_never_on_disk_nor_in_any_representation(tmp_path: Path) -> None:
    """A canary as value, with every file of the device searched before, while and after it waits.

    Planted: store the value beside the frame -> found.
    """
    canary = 0x5AFEC0DE
    domain = Numeric(0.0, float(1 << 40), 9, unit="x")
    device = Device(tmp_path, make_world(domain=domain, mechanism="kmean"))
    device.transport.down = True
    forms = [
        str(canary).encode(),
        hex(canary)[2:].encode(),
        canary.to_bytes(4, "big"),
        canary.to_bytes(4, "little"),
        repr(float(canary)).encode(),
    ]
    async with device.agent() as agent:
        outcome = await agent.report("visits", canary)
        texts = [
            repr(outcome),
            repr(agent.status()),
            repr(await agent.outcomes()),
            repr(vars(agent)),
        ]
        held = files(tmp_path) + "".join(texts).encode()
        assert not [form for form in forms if form in held]
        device.transport.down = False
        await agent.flush()
    held = files(tmp_path)
    assert not [form for form in forms if form in held]
    (tmp_path / "control").write_bytes(os.urandom(100) + forms[0] + os.urandom(100))
    held = files(tmp_path)
    assert forms[0] in held  # the search can find


async def test_used_without_entering_it_says_how(device: Device) -> None:
    with pytest.raises(ShoalError) as caught:
        await device.agent().flush()
    assert "async with" in caught.value.message


async def test_a_memory_that_is_an_older_copy_is_not_taken_in_silence(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """It knows too little of what was spent and answered. Planted: no look at the noted head -> no
    line.
    """
    said = "this memory was set back: nothing is answered"
    path = device.folder / "outbox.db"
    async with device.agent() as agent:
        await agent.report("visits", 3)
    kept = path.read_bytes()
    device.clock.advance(WEEK)
    async with device.agent() as agent:
        await agent.report("visits", 3)
    assert said not in caplog.text
    path.write_bytes(kept)  # a clean end leaves nothing in the -wal file
    async with device.agent():
        pass
    assert said in caplog.text
    assert caplog.text.count(said) == 1
    path.with_name("outbox.db.head").unlink()
    async with device.agent():
        pass
    assert caplog.text.count(said) == 2
