"""Simulated devices against a shuffler in memory: right answers are counted exactly, wrong ones are
surprises. No sockets, no waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shoal.clients.fleet import pool
from shoal.clients.fleet.arrivals import Arrivals
from shoal.clients.fleet.misbehaviour import (
    HOSTILE,
    HOSTILE_TO_ENROLLED,
    MALFORMED,
    REPORTING,
    Carrier,
    Conduct,
    mute,
)
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult, merge
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.share import (
    ACKED,
    GARBAGE_ACKED,
    GARBAGE_UNKNOWN,
    NO_ANSWER,
    NOT_SENT,
    UNKNOWN,
    Share,
    SimulatedTask,
)
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.transports.transport import Receipt
from shoal.crypto.envelope import open_frame
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.task import Admission
from tests.sizes import size
from tests.unit.clients.fleet.judge import Defect, Judge, Verdict, none
from tests.worlds.devices.clients import World, make_world

ROOT = SigningKey.generate()
EVERYBODY = (*Conduct,) * 2
OPEN = tuple(one for one in EVERYBODY if one not in {Conduct.SECOND, Conduct.UNENROLLED})
WAYS = list(Carrier)
WEEK = 7 * 86_400


def world_of(enrolled: bool = False) -> World:
    # windows 0 and 1 are over, 2 is open
    world = make_world(start=int(time.time()) - 2 * WEEK - 10_000)
    if enrolled:
        return replace(
            world, task=replace(world.task, admission=Admission.ENROLLED, enrolment_key=ROOT.public)
        )
    return world


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


async def run(
    world: World,
    conduct: tuple[Conduct, ...],
    way: Carrier,
    defect: Defect = none,
    *,
    most: int = 1 << 30,
    prepare: bool = False,
    in_flight: int = 3,
) -> tuple[SimulationResult, Judge]:
    judge = Judge(world, defect, way is Carrier.MQTT, most=most)
    share = share_of(world, conduct, way, prepare, in_flight)
    clock = Clock()
    reporter = Reporter(share)
    if prepare:
        reporter.prepare()
    result = await FleetSimulation(
        share, [judge], now=clock.now, sleep=clock.sleep, reporter=reporter
    ).run()
    plan = SimulationPlan(share.tasks, share.authorities)
    return merge(plan, share.conduct, [result], 1.0, False), judge


def share_of(
    world: World,
    conduct: tuple[Conduct, ...],
    way: Carrier,
    prepare: bool = False,
    in_flight: int = 3,
) -> Share:
    task = SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(len(conduct))))
    roots = (ROOT.to_pem(),) if world.task.enrolment_key else ()
    return Share(
        (task,),
        world.authorities,
        0,
        1,
        in_flight,
        way,
        None,
        5.0,
        5.0,
        roots,
        bytes(conduct),
        prepare,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("enrolled", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
async def test_everybody_gets_the_answer_that_is_due(
    way: Carrier, enrolled: bool, prepare: bool
) -> None:
    """Planted: count garbage as acknowledged reports, send a copy but twice, or make SECOND before
    its first -> fails.
    """
    conduct = EVERYBODY if enrolled else OPEN
    result, judge = await run(world_of(enrolled), conduct, way, prepare=prepare)
    reporting = sum(one in REPORTING for one in conduct)
    assert result.surprises == {}
    assert (result.sent, result.acked, result.refused, result.unknown) == (
        reporting,
        reporting,
        {},
        0,
    )
    assert len(judge.stored) == reporting + conduct.count(Conduct.GARBAGE)
    assert result.garbage_of(0) == (conduct.count(Conduct.GARBAGE), 0)
    assert result.copies == (2 * conduct.count(Conduct.DUPLICATE),) * 2
    assert Counter(judge.frames.values()) == {1: sum(judge.frames.values()) - 3 * 2, 3: 2}
    expected = set(MALFORMED) | set(HOSTILE_TO_ENROLLED if enrolled else HOSTILE) | {Conduct.LATE}
    assert result.breaches.keys() == expected
    for one, breaches in result.breaches.items():
        assert (breaches.sent, breaches.unanswered, breaches.unknown, breaches.surprises) == (
            2,
            0,
            0,
            0,
        )
        assert breaches.acked == (2 if one is Conduct.GARBAGE else 0)
        silent = mute(one, way) and one is not Conduct.LATE
        assert (breaches.refused == {Kind.DEADLINE: 2}) == silent
    assert len(result.latencies_ms) == reporting


def acknowledging(conduct_is_broken: bool) -> Defect:
    """Says yes to what does not open, with a MAC that is none; or to what opens and is refused,
    with the right MAC.
    """

    def defect(_number: int, _frame: bytes, right: Verdict) -> Verdict:
        return right if isinstance(right, bytes) or not conduct_is_broken else bytes(32)

    return defect


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "conduct", [*MALFORMED, Conduct.OVERSIZED, Conduct.STRANGER, Conduct.MISSHAPEN, Conduct.LATE]
)
async def test_a_breach_that_is_acknowledged_is_a_surprise(way: Carrier, conduct: Conduct) -> None:
    """Planted: believe verified receipts alone -> the broken frame is tried again for ever, and
    nobody is surprised.
    """
    result, _ = await run(world_of(), (conduct, Conduct.HONEST), way, acknowledging(True))
    assert sum(result.surprises.values()) == 1
    assert "acknowledged" in next(iter(result.surprises))
    assert result.breaches[conduct].surprises == 1
    assert result.acked == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_second_report_that_is_taken_is_a_surprise(way: Carrier) -> None:
    def forgetful(_number: int, _frame: bytes, right: Verdict) -> Verdict:
        return bytes(32) if isinstance(right, ShoalError) and right.kind is Kind.CONFLICT else right

    result, _ = await run(world_of(enrolled=True), (Conduct.SECOND,), way, forgetful)
    assert result.surprises == {"second frame acknowledged": 1}
    assert result.acked == 1


@pytest.mark.parametrize("way", [Carrier.GRPC, Carrier.RELAY])
async def test_the_wrong_refusal_is_a_surprise(way: Carrier) -> None:
    def confused(_number: int, _frame: bytes, right: Verdict) -> Verdict:
        return (
            ShoalError(Kind.UNKNOWN_KEY, "?")
            if isinstance(right, ShoalError) and right.kind is Kind.INVALID
            else right
        )

    result, _ = await run(world_of(), (Conduct.DAMAGED, Conduct.NOISE), way, confused)
    # noise may be answered so
    assert result.surprises == {"damaged frame refused as UNKNOWN_KEY": 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (bytes(32), "acknowledged with other bytes"),
        (ShoalError(Kind.CONFLICT, "again"), "refused: CONFLICT"),
    ],
    ids=["other bytes", "refused"],
)
async def test_duplicates_get_the_bytes_of_the_first_receipt(
    way: Carrier, answer: Verdict, text: str
) -> None:
    """Planted: don't verify a copy's receipt -> no surprise."""
    seen: Counter[bytes] = Counter()

    def other(_number: int, frame: bytes, right: Verdict) -> Verdict:
        seen[frame] += 1
        return answer if seen[frame] == 3 else right  # the first two are under way together

    result, judge = await run(world_of(), (Conduct.DUPLICATE,) * 2, way, other)
    assert sum(result.surprises.values()) == 2
    assert text in next(iter(result.surprises))
    assert result.acked == len(judge.stored) == 2
    assert result.copies == (4, 2)


@pytest.mark.parametrize("way", WAYS)
async def test_a_report_that_any_copy_has_a_receipt_for_is_acknowledged(way: Carrier) -> None:
    """The window is full for the own attempt; its copy was acknowledged. Planted: look at the own
    answer alone -> refused.
    """
    seen: Counter[bytes] = Counter()

    def full(_number: int, frame: bytes, right: Verdict) -> Verdict:
        seen[frame] += 1
        return right if seen[frame] == 2 else ShoalError(Kind.WINDOW_FULL, "full")

    result, judge = await run(world_of(), (Conduct.DUPLICATE,), way, full)
    assert (result.acked, result.unknown, result.refused, result.surprises) == (1, 0, {}, {})
    assert len(judge.stored) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_copy_whose_fate_is_unknown_makes_its_report_unknown(way: Carrier) -> None:
    """Planted: look at the own attempt alone -> refused, while the report may count."""
    seen: Counter[bytes] = Counter()

    def lost(_number: int, frame: bytes, _right: Verdict) -> Verdict:
        seen[frame] += 1
        return (
            ShoalError(Kind.INTERNAL, "lost")
            if seen[frame] == 2
            else ShoalError(Kind.WINDOW_FULL, "full")
        )

    result, _ = await run(world_of(), (Conduct.DUPLICATE,), way, lost)
    assert (result.acked, result.unknown, result.refused, result.surprises) == (0, 1, {}, {})
    assert result.outcomes[0] == bytes([UNKNOWN])


@pytest.mark.parametrize("way", WAYS)
async def test_breaches_are_patient_with_a_busy_shuffler_and_give_up(way: Carrier) -> None:
    """Planted: the first OVERLOADED is a surprise -> fails."""
    twice: Counter[bytes] = Counter()

    def busy(_number: int, frame: bytes, right: Verdict) -> Verdict:
        twice[frame] += 1
        return ShoalError(Kind.OVERLOADED, "busy") if twice[frame] < 3 else right

    conduct = (Conduct.STRANGER, Conduct.GARBAGE, Conduct.HONEST)
    result, judge = await run(world_of(), conduct, way, busy)
    assert result.surprises == {}
    assert result.breaches[Conduct.STRANGER].refused == {Kind.UNKNOWN_TASK: 1}
    assert (result.acked, result.garbage_of(0)) == (1, (1, 0))
    assert set(judge.frames.values()) == {3}
    result, _ = await run(world_of(), conduct, way, lambda *_: ShoalError(Kind.UNAVAILABLE, "gone"))
    assert (result.acked, result.unknown, result.surprises) == (0, 1, {})
    assert Counter(result.outcomes[0]) == {NO_ANSWER: 1, GARBAGE_UNKNOWN: 1, UNKNOWN: 1}


@pytest.mark.parametrize("way", WAYS)
async def test_a_full_window_is_no_surprise(way: Carrier) -> None:
    """It holds what it holds; what comes later is refused, whoever sends it."""
    conduct = (
        Conduct.HONEST,
        Conduct.DUPLICATE,
        Conduct.GARBAGE,
        Conduct.MISSHAPEN,
        Conduct.HONEST,
    )
    result, judge = await run(world_of(), conduct, way, most=2, in_flight=1)
    assert result.surprises == {}
    assert len(judge.stored) == 2
    assert result.acked + result.garbage_of(0)[0] == 2


async def test_an_interrupted_share_claims_nothing_that_it_does_not_know() -> None:
    """Cancelled in the middle. Planted: codes begin as 0 -> everything that was never sent is
    acknowledged.
    """
    world, stuck = world_of(), asyncio.Event()

    class Stuck(Judge):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            mac = await super().submit(frame, ack_key, deadline_s)
            if self.frames.total() > 4:
                stuck.set()
                await asyncio.Event().wait()
            return mac

    simulation = FleetSimulation(
        share_of(world, (Conduct.HONEST,) * 10, Carrier.GRPC, in_flight=2), [Stuck(world)]
    )
    task = asyncio.create_task(simulation.run())
    await stuck.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert simulation.result.acked == 4
    assert Counter(simulation.result.codes[0]) == {ACKED: 4, UNKNOWN: 2, NOT_SENT: 4}


async def test_batches_with_copies_and_oversized_frames_keep_the_limits() -> None:
    """Planted: leave copies or oversized frames out of the sum, or look at the number of frames
    alone -> more than 500 frames, or 1 MiB.
    """
    calls: list[tuple[int, int]] = []

    class Counting(Judge):
        async def submit_batch(
            self, frames: object, ack_keys: object, deadline_s: float
        ) -> list[Receipt]:
            calls.append((len(frames), sum(len(one) + 8 for one in frames)))  # type: ignore[arg-type, attr-defined, misc] # a list of frames
            return await super().submit_batch(frames, ack_keys, deadline_s)  # type: ignore[arg-type] # lists of bytes

    world, copied = world_of(), size(300, 400)
    for tasks, conduct in (
        (1, (Conduct.HONEST, *(Conduct.DUPLICATE,) * copied)),
        (1, (Conduct.OVERSIZED,) * 40),
        (40, (Conduct.OVERSIZED,)),  # more than a call takes, of one device
    ):
        share = share_of(world, conduct, Carrier.RELAY, in_flight=1)
        await FleetSimulation(replace(share, tasks=share.tasks * tasks), [Counting(world)]).run()
    assert max(frames for frames, _ in calls) <= 500
    assert max(size for _, size in calls) <= 1 << 20
    assert sum(frames for frames, _ in calls) == 1 + 3 * copied + 2 * 40


async def test_a_device_may_have_more_tasks_than_a_call_takes() -> None:
    """600 tasks, or fewer of which each frame is sent three times; and 40 of which a device's
    frames might have been the largest there are. Planted: whole devices alone, as long as all of
    their frames would fit one call -> nothing is sent, and nothing said.
    """
    both = Conduct.HONEST, Conduct.DUPLICATE
    for tasks, conduct in ((size(260, 600), both), (40, (Conduct.HONEST,) * 3)):
        world = world_of()
        judge = Judge(world, none, False, most=1 << 30)
        share = share_of(world, conduct, Carrier.RELAY, in_flight=1)
        await FleetSimulation(replace(share, tasks=share.tasks * tasks), [judge]).run()
        assert len(judge.stored) == tasks * len(conduct)


async def test_a_relay_does_not_wait_for_frames_that_its_call_has_no_room_for() -> None:
    """100 reports a second, 15 to a call: each call leaves when its last report is due. Planted:
    frames gathered by number alone -> all calls leave with the last of them, and latencies are
    longer by that.
    """
    clock, sent = Clock(), []

    class Timed(Judge):
        async def submit_batch(
            self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
        ) -> list[Receipt]:
            sent.append(round(clock.time - 1_000.0, 2))
            return await super().submit_batch(frames, ack_keys, deadline_s)

    world = world_of()
    share = share_of(world, (Conduct.OVERSIZED,) * 60, Carrier.RELAY, in_flight=1)
    share = replace(share, arrivals=Arrivals.steady(60, 100.0))
    await FleetSimulation(share, [Timed(world)], 1_000.0, now=clock.now, sleep=clock.sleep).run()
    assert sent == [0.14, 0.29, 0.44, 0.59]


async def test_prepared_reports_are_all_different_and_each_devices_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several blocks. Planted: hand out a block twice -> fewer stored reports than devices."""
    monkeypatch.setattr(pool, "BLOCK", size(100, pool.BLOCK))
    world, honest = world_of(), size(250, 1_100)
    conduct = (Conduct.HONEST, Conduct.NOISE) * honest
    result, judge = await run(world, conduct, Carrier.GRPC, prepare=True, in_flight=7)
    assert result.acked == len(judge.stored) == honest
    assert len({content.ack_key for content in judge.stored.values()}) == honest
    assert (
        len(
            {
                open_frame(world.hop, frame).ack_key
                for frame in judge.frames
                if len(frame) == 512
                and frame[0] == 1
                and frame[3:11] == world.hop.config.key_id.raw
            }
        )
        == honest
    )


@pytest.mark.parametrize("way", WAYS)
async def test_garbage_that_may_be_stored_is_not_called_refused(way: Carrier) -> None:
    """Its reply was lost, then the window was full. Planted: refused -> a rejected row too many
    looks like a lost report.
    """
    seen: Counter[bytes] = Counter()

    def lost(_number: int, frame: bytes, _right: Verdict) -> Verdict:
        seen[frame] += 1
        return (
            ShoalError(Kind.INTERNAL, "lost")
            if seen[frame] == 1
            else ShoalError(Kind.WINDOW_FULL, "full")
        )

    result, _ = await run(world_of(), (Conduct.GARBAGE,), way, lost)
    assert result.garbage_of(0) == (0, 1)
    assert result.outcomes[0] != bytes([GARBAGE_ACKED])
