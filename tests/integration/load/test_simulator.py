"""The fleet simulator against a real TLS server: every device by itself, every outcome accounted
for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest

from shoal.clients.fleet import reporter
from shoal.clients.fleet.arrivals import Arrivals, Pattern
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import Progress, SimulationPlan
from shoal.clients.fleet.share import ACKED, UNKNOWN, Share, SimulatedTask
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.fleet.simulator import simulate, target_of
from shoal.clients.transports.transport import Receipt
from shoal.crypto import trust
from shoal.crypto.envelope import open_frame
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt.settings import BrokerSettings
from tests.sizes import size
from tests.worlds.devices.clients import DirectTransport, FarEnd, make_world
from tests.worlds.devices.fleet import HandClock, children, plan_of, worlds_at


@pytest.mark.parametrize("relay", [False, True])
async def test_every_device_reports_every_task_once(relay: bool) -> None:
    """Planted: hand out devices twice, or lose a slice -> counts differ; reseal on retry -> more
    contents than reports.
    """
    devices = size(100, 2_000)
    seen: list[Progress] = []
    async with FarEnd([]).serving() as far:
        worlds = worlds_at(far)
        result = await simulate(
            plan_of(worlds, devices, way=Carrier.RELAY if relay else Carrier.GRPC), seen.append
        )
    assert (result.sent, result.acked, result.refused, result.unknown) == (
        3 * devices,
        3 * devices,
        {},
        0,
    )
    assert result.outcomes == (bytes(devices),) * 3
    assert len(result.latencies_ms) == 3 * devices
    assert len(far.frames) == len(far.contents) == 3 * devices
    assert Counter(content.task_id for content in far.contents.values()) == {
        world.task_id: devices for world in worlds
    }
    assert len({content.ack_key for content in far.contents.values()}) == 3 * devices
    assert seen[-1] == Progress(3 * devices, 3 * devices, 0, 0)


@pytest.mark.parametrize("relay", [False, True])
async def test_outcomes_are_told_apart(relay: bool) -> None:
    """Device by device: refused by the script, unknown after a lost reply, acknowledged. Planted:
    REFUSED for both -> fails.
    """
    answers: dict[bytes, str] = {}

    def script(number: int, frame: bytes) -> ShoalError | None:
        known = answers.setdefault(frame, ("ok", "full", "lost", "busy")[len(answers) % 4])
        second = far.frames.count(frame) > 1
        match known:
            case "full":
                return ShoalError(Kind.WINDOW_FULL, "full")
            case "lost":
                return ShoalError(Kind.WINDOW_CLOSED if second else Kind.INTERNAL, "lost")
            case "busy":
                return ShoalError(Kind.WINDOW_CLOSED if second else Kind.OVERLOADED, "busy")
        return None

    async with FarEnd([], script).serving() as far:
        worlds = worlds_at(far)
        result = await simulate(
            plan_of(worlds[:1], 40, way=Carrier.RELAY if relay else Carrier.GRPC, processes=1)
        )
    counts = Counter(answers.values())
    assert result.acked == counts["ok"] == 10
    assert result.unknown == counts["lost"] == 10
    assert result.refused == {Kind.WINDOW_CLOSED: counts["busy"], Kind.WINDOW_FULL: counts["full"]}
    assert Counter(result.outcomes[0]) == {
        ACKED: 10,
        UNKNOWN: 10,
        Kind.WINDOW_FULL.value: 10,
        Kind.WINDOW_CLOSED.value: 10,
    }
    assert result.acked_of(0) == 10
    assert result.unknown_of(0) == 10
    assert result.reasons.keys() == result.refused.keys()


@pytest.mark.parametrize("relay", [False, True])
async def test_retries_send_identical_bytes_and_forged_receipts_are_not_believed(
    relay: bool,
) -> None:
    """The first answer to every frame is a forged receipt. Planted: skip the check -> each frame
    comes once, nothing is stored twice.
    """
    async with FarEnd(
        [], lambda _, frame: bytes(32) if far.frames.count(frame) == 1 else None
    ).serving() as far:
        worlds = worlds_at(far)
        result = await simulate(
            plan_of(worlds[:1], 20, way=Carrier.RELAY if relay else Carrier.GRPC, processes=1)
        )
    assert result.acked == 20
    assert set(Counter(far.frames).values()) == {2}
    assert len(far.contents) == 20


async def test_a_shuffler_that_restarts_gets_the_rest() -> None:
    """It goes away in the middle and comes back on the same port: every report is acknowledged,
    with the bytes of its first attempt.

    Planted: UNAVAILABLE is final -> refused or unknown reports appear.
    """
    devices = 60
    middle = asyncio.Event()
    far = FarEnd([], lambda number, _: middle.set() if number == devices else None)
    async with far.serving():
        worlds = worlds_at(far)
        port = far.port
        running = asyncio.create_task(simulate(plan_of(worlds, devices, in_flight=4)))
        await middle.wait()
    first = len(far.frames)
    async with far.serving(port):
        result = await running
    assert first < 3 * devices
    assert result.acked == 3 * devices
    assert len(far.contents) == 3 * devices


async def test_patience_ends() -> None:
    """A shuffler that never comes: unknown, because a lost connection says nothing; no answer is
    invented.
    """
    far = FarEnd([])
    async with far.serving():
        worlds = worlds_at(far)
    told: list[Progress] = []
    result = await simulate(plan_of(worlds[:1], 4, patience_s=0.0, processes=1), told.append)
    assert (result.acked, result.unknown, result.refused) == (0, 4, {})
    # why, for whoever waits and for whoever comes back
    assert "shuffler" in result.trouble == told[-1].trouble
    assert result.outcomes[0] == bytes([UNKNOWN]) * 4


async def test_devices_refuse_tasks_that_do_not_verify() -> None:
    """One task tampered with: all its devices refuse it by themselves, and answer the others."""
    async with FarEnd([]).serving() as far:
        worlds = worlds_at(far)
        damaged = bytearray(worlds[1].signed_schedule)
        damaged[-1] ^= 1
        worlds[1].signed_schedule = bytes(damaged)
        result = await simulate(plan_of(worlds, 10))
        assert result.refused == {Kind.BAD_SIGNATURE: 10}
        assert result.outcomes[1] == bytes([Kind.BAD_SIGNATURE.value]) * 10
        assert result.acked == 20
        with pytest.raises(ShoalError) as caught:
            await simulate(plan_of(worlds, 10, authorities=frozenset({bytes(32)})))
        assert caught.value.kind is Kind.FORBIDDEN
    assert {content.task_id for content in far.contents.values()} == {
        worlds[0].task_id,
        worlds[2].task_id,
    }


async def test_each_device_verifies_both_signatures_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in this process. Planted: verify once and share the verdict -> 2 instead of 2 per
    device and task.
    """
    counted: list[str] = []
    for module in (reporter, trust):
        real = module.verify  # imported there by name

        def counting(
            public: bytes, context: object, data: bytes, signature: bytes, real: object = real
        ) -> None:
            counted.append(str(context))
            real(public, context, data, signature)  # type: ignore[operator] # the real verify

        monkeypatch.setattr(module, "verify", counting)
    world = make_world(start=int(time.time()) - 10)
    far = FarEnd([world.hop])
    task = SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(25)))
    share = Share((task,), world.authorities, 0, 1, 4, Carrier.GRPC, None, 5.0, 5.0)
    result = await FleetSimulation(share, [DirectTransport(far)]).run()
    assert result.acked == 25
    assert Counter(counted) == {"SigningContext.TASK": 25, "SigningContext.KEY_SCHEDULE": 25}


async def test_a_rate_is_kept_and_latency_counts_from_when_a_report_was_due() -> None:
    """A far end that stalls for 0.4 s at the first report, at 100 reports per second and one in
    flight: the k-th report was due at k/100 s and could go only after 0.4 s, so its latency is 0.4
    s - k/100 s. Planted: count from the sending -> all but one are 0.
    """
    world = make_world(start=int(time.time()) - 10)
    far = FarEnd([world.hop])
    clock = HandClock()

    class Stalling(DirectTransport):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            clock.time += 0.0 if far.frames else 0.4
            return await super().submit(frame, ack_key, deadline_s)

    task = SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(60)))
    share = Share(
        (task,), world.authorities, 0, 1, 1, Carrier.GRPC, Arrivals.steady(60, 100.0), 5.0, 5.0
    )
    result = await FleetSimulation(
        share, [Stalling(far)], clock.now(), now=clock.now, sleep=clock.sleep
    ).run()
    assert result.acked == 60
    assert list(result.latencies_ms) == pytest.approx(
        [max(0.0, 400.0 - 10.0 * k) for k in range(60)], abs=0.01
    )
    assert clock.time == pytest.approx(1_000.59)  # the last one was due 59/100 s after the start
    # from the 41st on there is time to wait for again
    assert clock.slept == pytest.approx([0.01] * 19, abs=1e-6)


async def test_prepared_reports_arrive_like_others() -> None:
    async with FarEnd([]).serving() as far:
        worlds = worlds_at(far)
        result = await simulate(plan_of(worlds, 60, prepare=True, way=Carrier.RELAY))
    assert (result.acked, result.refused, result.unknown) == (180, {}, 0)
    assert Counter(content.task_id for content in far.contents.values()) == {
        world.task_id: 60 for world in worlds
    }


async def test_who_is_asked_when_all_is_prepared_has_the_last_word() -> None:
    """It may refuse: nothing was sent, and nobody is left. It may give the reports less time: they
    keep to that.

    Planted: asked before the preparation -> parts are missing; the plan of the beginning kept to ->
    the second load takes an hour.
    """
    parts = list[float]()

    def over(_: SimulationPlan) -> SimulationPlan:
        assert parts[-1] == 1.0
        raise ShoalError(Kind.CONFIG, "the window is over")

    async with FarEnd([]).serving() as far:
        hour = plan_of(worlds_at(far)[:1], 20, prepare=True, over_s=3_600.0)
        with pytest.raises(ShoalError, match="the window is over"):
            await simulate(hour, None, None, parts.append, over)
        assert (far.frames, children()) == ([], [])
        result = await asyncio.wait_for(
            simulate(hour, ready=lambda plan: replace(plan, over_s=0.01)), 300
        )
    assert (result.acked, result.unknown) == (20, 0)


async def test_another_machine_is_not_loaded_by_accident() -> None:
    """Its tasks' address is refused before a process starts; the same address is taken when the
    plan names it.
    """
    far = make_world("shuffler.example:7443")
    with pytest.raises(ShoalError) as caught:
        await simulate(plan_of([far], 3))
    assert caught.value.kind is Kind.CONFIG
    assert "--address shuffler.example:7443" in caught.value.message
    assert target_of(plan_of([far], 3, address="shuffler.example:7443")) == "shuffler.example:7443"


async def test_relayed_batches_keep_the_limits() -> None:
    """At most 500 frames and 1 MiB per call. Planted: no bound on bytes -> OVERSIZE at the
    server.
    """
    sizes: list[int] = []
    world = make_world(start=int(time.time()) - 10)
    far = FarEnd([world.hop])

    class Counting(DirectTransport):
        async def submit_batch(
            self, frames: object, ack_keys: object, deadline_s: float
        ) -> list[Receipt]:
            sizes.append(len(frames))  # type: ignore[arg-type] # a list of frames
            return await super().submit_batch(frames, ack_keys, deadline_s)  # type: ignore[arg-type] # lists of bytes

    task = SimulatedTask(world.signed_task, world.signed_schedule, (1,) * 1_200)
    share = Share((task,), world.authorities, 0, 1, 1, Carrier.RELAY, None, 5.0, 5.0)
    result = await FleetSimulation(share, [Counting(far)]).run()
    assert result.acked == 1_200
    assert sizes == [500, 500, 200]
    assert 500 * (LIMITS.frame_sizes[0] + 8) <= LIMITS.batch_bytes
    assert open_frame(world.hop, far.frames[-1]).task_id == world.task_id


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": ()},
        {"processes": -1},
        {"channels": 0},
        {"in_flight": 0},
        {"rate": 0.0},
        {"patience_s": -1.0},
        {"rate": 1.0, "over_s": 1.0},
        {"over_s": 0.0},
        {"arrival": Pattern.SPIKE},
        {"way": Carrier.MQTT},
        {"broker": BrokerSettings("127.0.0.1", 1883, insecure=True)},
    ],
)
def test_a_plan_validates_itself(changes: dict[str, object]) -> None:
    world = make_world()
    with pytest.raises(ShoalError) as caught:
        plan_of([world], 3, **changes)
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        plan_of([world], 0)
    uneven = plan_of([world], 3).tasks[0]
    with pytest.raises(ShoalError):
        plan_of([world], 3, tasks=(uneven, replace(uneven, values=(1,))))
