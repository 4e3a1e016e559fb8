"""Devices of a task for enrolled devices alone: what a frame carries, and what a device without an
identity does: nothing.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, prover_for
from shoal.clients.drawing import prepare
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.share import ACKED, Share, SimulatedTask
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig, EnrolmentFiles
from shoal.clocks.clock import FakeClock
from shoal.crypto.admission.enrolled import ADMISSION_SIZE, EnrolledProver, verify_proof
from shoal.crypto.admission.enrolment import DeviceIdentity, enrol
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import HopContent, open_frame
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.task import Admission, Task
from tests.unit.clients.test_core import assignment_of
from tests.worlds.devices.clients import START, WEEK, DirectTransport, FarEnd, World, make_world

ROOT = SigningKey.generate()


def enrolled_world(name: str = "visits", like: World | None = None) -> World:
    world = like or make_world()
    task = replace(world.task, name=name, admission=Admission.ENROLLED, enrolment_key=ROOT.public)
    return World(task, world.authority, world.analyzer, world.hop, world.services)


def identity(
    first: int = START - 100, last: int = START + 4 * WEEK, root: SigningKey = ROOT
) -> DeviceIdentity:
    return enrol(root, first, last)


def who(world: World, content: HopContent, now: float = START) -> bytes:
    """As the shuffler sees it."""
    return verify_proof(
        content.admission,
        world.task.enrolment_key,
        now,
        content.task_id,
        content.window,
        content.sealed,
    )


def test_a_frame_carries_the_proof_and_no_length_changes() -> None:
    """The proof is for the very bytes that the frame holds. Planted: the proof made over the report
    before sealing -> fails.
    """
    world, me = enrolled_world(), identity()
    frames = [
        prepare(assignment_of(world), window, value, prover=EnrolledProver(me)).frame
        for window, value in ((0, 3), (1, None), (2, "junk"))
    ]
    assert {len(frame) for frame in frames} == {512}
    contents = [open_frame(world.hop, frame) for frame in frames]
    assert [who(world, content) for content in contents] == [me.key.public] * 3
    assert {len(content.admission) for content in contents} == {ADMISSION_SIZE}
    assert len({content.admission for content in contents}) == 3


def test_what_a_device_shows_for_a_task() -> None:
    """Nothing to a task for anybody, whoever it is. Planted: the identity shown to every task ->
    fails; dates not looked at -> fails.
    """
    task, me = enrolled_world().task, identity()
    assert prover_for(make_world().task, me, START) is OPEN
    assert prover_for(make_world().task, None, START) is OPEN
    assert prover_for(task, me, START) == EnrolledProver(me)
    for one, now, words in (
        (None, START, "[enrolment]"),
        (me, START - 101, "does not hold yet"),
        (me, START + 4 * WEEK + 1, "expired"),
        (identity(root=SigningKey.generate()), START, "enrolment key"),
    ):
        with pytest.raises(ShoalError) as refused:
            prover_for(task, one, now)
        assert refused.value.kind is Kind.CONFIG
        assert "task visits admits enrolled devices alone" in refused.value.message
        assert words in refused.value.message
        assert "\n" not in refused.value.message


class Device:
    """A folder with one task for enrolled devices and one for anybody; agents on it, with or
    without an identity.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.world = folder, enrolled_world("certified")
        anybody = replace(
            self.world.task, name="anybody", admission=Admission.OPEN, enrolment_key=b""
        )
        for world in (
            self.world,
            World(
                anybody,
                self.world.authority,
                self.world.analyzer,
                self.world.hop,
                self.world.services,
            ),
        ):
            world.write(folder / "tasks")
        self.far = FarEnd([self.world.hop])
        self.clock = FakeClock(START + 100)

    def agent(self, me: DeviceIdentity | None) -> Agent:
        files = None
        if me is not None:
            files = EnrolmentFiles(self.folder / "device.cert", self.folder / "device.key")
            if not files.key.exists():
                save_signing_key(files.key, me.key)
                files.certificate.write_bytes(me.certificate)
        policy = Policy(self.world.authorities, 4.0, 2, {self.world.task.purpose: "allowed"})
        config = AgentConfig(
            self.folder / "tasks", self.folder / "outbox.db", policy, enrolment=files
        )
        return Agent(config, background=False, clock=self.clock, transports=self._way)

    def _way(self, task: Task, insecure: bool) -> DirectTransport:
        return DirectTransport(self.far)


async def test_a_device_without_an_identity_sends_nothing_and_says_why(tmp_path: Path) -> None:
    """And draws nothing: the window is still unanswered when the device has been enrolled. Other
    tasks are answered as ever.

    Planted: the prover asked for inside the claim alone, or not at all -> a frame without a proof
    is sent, fails.
    """
    device, me = Device(tmp_path), identity()
    async with device.agent(None) as agent:
        with pytest.raises(ShoalError, match="admits enrolled devices alone") as refused:
            await agent.report("certified", 3)
        assert refused.value.kind is Kind.CONFIG
        assert (await agent.report("anybody", 3)).state is ReportState.ACKED
        assert {status.assignment.task.name: bool(status.refusal) for status in agent.status()} == {
            "anybody": False,
            "certified": True,
        }
    assert len(device.far.frames) == 1
    async with device.agent(me) as agent:
        assert not any(status.refusal for status in agent.status())
        outcome = await agent.report("certified", 3)
        assert (outcome.state, outcome.fresh) == (ReportState.ACKED, True)
        device.clock.advance(WEEK)
        assert (await agent.report("anybody", 3)).state is ReportState.ACKED
    contents = {content.task_id: content for content in device.far.contents.values()}
    assert who(device.world, contents[device.world.task_id]) == me.key.public
    # a task for anybody learns nobody
    assert [content.admission for content in device.far.contents.values()].count(b"") == 2


async def test_a_retry_after_a_restart_carries_the_same_proof(tmp_path: Path) -> None:
    device, me = Device(tmp_path), identity()
    device.far.script = lambda number, _: (
        ShoalError(Kind.OVERLOADED, "busy") if number == 0 else None
    )
    async with device.agent(me) as agent:
        assert (await agent.report("certified", 3)).state is ReportState.QUEUED
    async with device.agent(None) as agent:  # whatever became of the files: the frame was made
        assert [outcome.state for outcome in await agent.flush()] == [ReportState.ACKED]
    assert len(device.far.frames) == 2
    assert len(set(device.far.frames)) == 1


async def test_an_agent_with_unreadable_files_does_not_start(tmp_path: Path) -> None:
    device = Device(tmp_path)
    agent = device.agent(identity())
    (tmp_path / "device.key").unlink()
    with pytest.raises(ShoalError, match=r"device\.key does not exist") as refused:
        await agent.__aenter__()
    assert refused.value.kind is Kind.KEY_FILE


# --- simulated devices ----------------------------------------------------------------------------


def share_of(
    worlds: list[World], roots: tuple[bytes, ...], devices: int = 6, relay: bool = False
) -> Share:
    tasks = tuple(
        SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(devices)), 0)
        for world in worlds
    )
    return Share(
        tasks,
        worlds[0].authorities,
        0,
        1,
        2,
        Carrier.RELAY if relay else Carrier.GRPC,
        None,
        0.0,
        5.0,
        roots,
    )


@pytest.mark.parametrize("relay", [False, True])
async def test_simulated_devices_are_enrolled_each_for_itself(relay: bool) -> None:
    """Six devices, two tasks of one authority: six keys, each in both tasks. Planted: one identity
    for all -> fails.
    """
    first = enrolled_world("one")
    worlds = [first, enrolled_world("two", first)]
    far = FarEnd([first.hop])
    result = await FleetSimulation(
        share_of(worlds, (ROOT.to_pem(),), relay=relay), [DirectTransport(far)]
    ).run()
    assert [set(codes) for codes in result.codes] == [{ACKED}, {ACKED}]
    keys = {
        world.task_id: [who(world, c) for c in far.contents.values() if c.task_id == world.task_id]
        for world in worlds
    }
    assert [len(set(one)) for one in keys.values()] == [6, 6]
    assert set(keys[worlds[0].task_id]) == set(keys[worlds[1].task_id])


async def test_simulated_devices_without_their_authority_send_nothing() -> None:
    world = enrolled_world()
    far = FarEnd([world.hop])
    result = await FleetSimulation(
        share_of([world], (SigningKey.generate().to_pem(),)), [DirectTransport(far)]
    ).run()
    assert [list(codes) for codes in result.codes] == [[Kind.CONFIG.value] * 6]
    assert not far.frames


def test_the_authority_of_a_simulation_does_not_print() -> None:
    """It does travel to the simulation's own processes. Planted: ``repr=False`` taken away ->
    fails.
    """
    share = share_of([enrolled_world()], (ROOT.to_pem(),))
    assert "PRIVATE" not in repr(share)
    # our own bytes
    assert pickle.loads(pickle.dumps(share)).enrolment_roots == (ROOT.to_pem(),)  # noqa: S301
