"""Secure aggregation end to end: real services on real sockets, devices that come, go and come
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.memory.rounds_ledger import MemoryLedger, RoundStanding
from shoal.clients.rounds.participation import RoundOutcome, RoundState
from shoal.clocks.backoff import Backoff
from shoal.crypto.secagg.exchange import open_reply, open_request
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.sizes import size
from tests.worlds.rounds.services import Running, Wire, World, running, total


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path)) as one:
        yield one


async def end(tasks: list[asyncio.Task[RoundOutcome]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def summed(one: Running, window: int = 0) -> list[tuple[int, list[int]]]:
    return sorted((stored.survivors, stored.vector.tolist()) for stored in one.sums(window))


# --- what a round is for --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
async def test_the_sum_of_a_round_is_exact(tmp_path: Path, mode: Mode) -> None:
    """Every coordinate, with the right number of devices, on the analyzer's disk before any device
    hears that it is done.

    Planted: the analyzer answers before it stores (Rounds._unmask) -> the sum is missing here.
    """
    world = World(
        tmp_path, devices=size(14, 60), mode=mode, honest_ppm=990_000, dropout_ppm=100_000
    )
    devices = world.devices(size(14, 60))
    async with running(world) as one:
        outcomes = await asyncio.gather(*one.begin(devices))
        assert [outcome.state for outcome in outcomes] == [RoundState.COUNTED] * len(devices)
        assert summed(one) == [(len(devices), total(devices))]
        (stored,) = one.sums()
        assert {outcome.round_id for outcome in outcomes} == {stored.round_id}
        assert all(outcome.charged and outcome.kind is None for outcome in outcomes)
    standings = {answer.standing for device in devices for answer in device.ledger.answers()}
    assert standings == {RoundStanding.COUNTED}


async def test_devices_may_be_lost_at_every_stage(tmp_path: Path) -> None:
    """One after it joined, one after it shared, one after it checked, one in the middle of its
    upload, one after it: the last one is in the sum, the rest is not.

    Planted: vectors that are not complete delivered with the rest -> the spool refuses to hand them
    out, and the round has no end.
    """
    # two chunks of a vector
    world = World(tmp_path, devices=14, survivors_min=8, dropout_ppm=400_000, dimension=70_000)
    devices = world.devices(14)
    stops = [("join", True), ("shares", True), ("check", True), ("upload", True), ("unmask", False)]
    async with running(world) as one:
        wires = [Wire(one.transport(), world, kind, after=after) for kind, after in stops]
        lost = [
            asyncio.create_task(one.take_part(device, wire))
            for device, wire in zip(devices, wires, strict=False)
        ]
        rest = one.begin(devices[5:])
        await one.until(lambda: one.counts().get("shared") == 13)
        await one.advance(61)
        await one.until(lambda: one.counts().get("checked") == 12)
        await one.advance(61)
        await one.until(lambda: one.counts().get("uploaded") == 10)
        await wires[3].silent.wait()
        await one.advance(121)
        await one.until(lambda: one.counts().get("answered") == 9)
        await one.advance(61)
        outcomes = await asyncio.gather(*rest)
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        assert summed(one) == [(10, total(devices[4:]))]
        await end(lost)
    lost_standings = [
        [answer.standing for answer in device.ledger.answers()] for device in devices[:5]
    ]
    assert lost_standings == [[], [], [], [RoundStanding.LOST], [RoundStanding.LOST]]


async def test_a_device_that_lost_its_seat_learns_it_and_may_join_the_next_round(
    tmp_path: Path,
) -> None:
    """Its process died before its vector was sent: the seat is gone when the others go on, the
    window is not.

    Planted: a seat is held until its round ends -> TOO_EARLY for ever, and the second cohort never
    begins.
    """
    world = World(tmp_path, devices=8, cohort_min=7, survivors_min=5)
    devices = world.devices(8)
    async with running(world) as one:
        wire = Wire(one.transport(), world, "shares")
        first = asyncio.create_task(one.take_part(devices[0], wire))
        rest = one.begin(devices[1:])
        await one.until(lambda: one.counts().get("shared") == 7)
        await end([first])
        slow = Wire(one.transport(), world, "upload")
        await one.advance(61)  # the others go on without it
        assert all(outcome.state is RoundState.COUNTED for outcome in await asyncio.gather(*rest))
        others = world.devices(7)
        again = one.begin([devices[0], *others], slow.inner)
        assert all(outcome.state is RoundState.COUNTED for outcome in await asyncio.gather(*again))
        assert summed(one) == sorted([(7, total(devices[1:])), (8, total([devices[0], *others]))])


async def test_cohorts_go_on_beside_one_another(tmp_path: Path) -> None:
    """A round that waits for a slow device does not keep the next cohort from starting, or from
    ending first.
    """
    world = World(tmp_path, devices=6, survivors_min=4)
    early, late = world.devices(6), world.devices(6)
    async with running(world) as one:
        slow = Wire(one.transport(), world, "unmask")
        held = asyncio.create_task(one.take_part(early[0], slow))
        first = one.begin(early[1:])
        await one.until(lambda: one.counts().get("answered") == 5)
        assert {outcome.state for outcome in await asyncio.gather(*one.begin(late))} == {
            RoundState.COUNTED
        }
        assert summed(one) == [(6, total(late))]
        await one.advance(61)
        assert {outcome.state for outcome in await asyncio.gather(*first)} == {RoundState.COUNTED}
        assert summed(one) == sorted([(6, total(late)), (6, total(early))])
        await end([held])


# --- rounds that end without a sum ----------------------------------------------------------------


async def test_too_few_devices_are_told_so_and_have_the_window_still(two: Running) -> None:
    world = two.world
    few = world.devices(3)
    tasks = two.begin(few)
    await two.until(lambda: two.counts().get("joined") == 3)
    await two.advance(31)
    for outcome in await asyncio.gather(*tasks):
        assert (outcome.state, outcome.kind, outcome.charged) == (
            RoundState.ABORTED,
            Kind.ABORTED,
            False,
        )
        assert "too few devices joined" in outcome.message
    outcomes = await asyncio.gather(*two.begin([*few, *world.devices(9)]))
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    assert two.analyzer._rounds.ended == {"too few devices joined": 1, "done": 1}


async def test_too_few_vectors_abort_and_charge_those_who_sent(tmp_path: Path) -> None:
    """A device whose vector was complete has answered, round or no round: a second vector would
    show the difference of both noises.
    """
    world = World(tmp_path, devices=8, survivors_min=7)
    devices = world.devices(8)
    async with running(world) as one:
        wires = [Wire(one.transport(), world, "upload") for _ in range(2)]
        lost = [
            asyncio.create_task(one.take_part(device, wire))
            for device, wire in zip(devices, wires, strict=False)
        ]
        rest = one.begin(devices[2:])
        await one.until(lambda: one.counts().get("uploaded") == 6)
        await one.advance(121)
        for outcome in await asyncio.gather(*rest):
            assert (outcome.state, outcome.kind, outcome.charged) == (
                RoundState.ABORTED,
                Kind.ABORTED,
                True,
            )
            assert "too few vectors came" in outcome.message
        assert one.sums() == []
        await end(lost)
        with pytest.raises(ShoalError) as refused:
            await one.take_part(devices[2])
        assert refused.value.kind is Kind.CONFLICT
        devices[2].ledger = MemoryLedger()  # a device that forgot: the shuffler has not
        outcome = await one.take_part(devices[2])
        assert (outcome.state, outcome.kind, outcome.charged) == (
            RoundState.NONE,
            Kind.CONFLICT,
            False,
        )


async def test_a_shuffler_that_restarts_aborts_and_the_next_round_takes_everybody_who_sent_nothing(
    tmp_path: Path,
) -> None:
    """Planted: unknown sessions answered NOT_FOUND instead of ABORTED -> the outcome's kind is
    another.
    """
    world = World(tmp_path, devices=8, survivors_min=6)
    devices = world.devices(8)
    async with running(world) as one:
        held = Wire(one.transport(), world, "shares")
        silent = asyncio.create_task(one.take_part(devices[0], held))
        shared = one.transport()
        tasks = one.begin(devices[1:], shared)
        await one.until(lambda: one.counts().get("shared") == 7)
        port = one.shuffler.port
        await one.stop("shuffler")
        await one.start_shuffler(port)
        for outcome in await asyncio.gather(*tasks):
            assert (outcome.state, outcome.kind, outcome.charged) == (
                RoundState.ABORTED,
                Kind.ABORTED,
                False,
            )
            assert "a service restarted" in outcome.message
        await end([silent])
        outcomes = await asyncio.gather(*one.begin(devices))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        assert summed(one) == [(8, total(devices))]
        # told by the shuffler as it stopped
        assert one.analyzer._rounds.ended == {"a service restarted": 1, "done": 1}


async def test_who_answered_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """Complete vectors of a round that a restart ended. Planted: admissions in memory -> the device
    gets a second seat.
    """
    world = World(tmp_path, devices=8, survivors_min=6)
    devices = world.devices(8)
    async with running(world) as one:
        held = Wire(one.transport(), world, "upload")
        silent = asyncio.create_task(one.take_part(devices[0], held))
        tasks = one.begin(devices[1:])
        await one.until(lambda: one.counts().get("uploaded") == 7)
        port = one.shuffler.port
        await one.stop("shuffler")
        await one.start_shuffler(port)
        assert {outcome.charged for outcome in await asyncio.gather(*tasks)} == {True}
        await end([silent])
        devices[1].ledger = MemoryLedger()
        outcome = await one.take_part(devices[1])
        assert (outcome.state, outcome.kind) == (RoundState.NONE, Kind.CONFLICT)
        devices[0].ledger = MemoryLedger()  # its vector never came
        outcomes = await asyncio.gather(*one.begin([devices[0], *world.devices(7)]))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}


async def test_an_analyzer_that_restarts_aborts_and_the_next_round_works(tmp_path: Path) -> None:
    world = World(tmp_path, devices=8, survivors_min=6)
    devices = world.devices(8)
    async with running(world) as one:
        held = Wire(one.transport(), world, "shares")
        silent = asyncio.create_task(one.take_part(devices[0], held))
        tasks = one.begin(devices[1:])
        await one.until(lambda: one.counts().get("shared") == 7)
        await one.stop("analyzer")
        await one.start_analyzer()
        await one.advance(61)
        for outcome in await asyncio.gather(*tasks):
            assert (outcome.state, outcome.kind, outcome.charged) == (
                RoundState.LOST,
                Kind.ABORTED,
                True,
            )  # a device can't tell that none was made
            assert "a service restarted" in outcome.message
        await end([silent])
        fresh = world.devices(8)
        outcomes = await asyncio.gather(*one.begin(fresh))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        assert summed(one) == [(8, total(fresh))]


# --- networks that lose and repeat ----------------------------------------------------------------


class Flaky:
    """An analyzer behind a bad line: every call fails twice before it arrives, and its first answer
    is lost.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            count = self.calls[name] = self.calls.get(name, 0) + 1
            if count <= 2:
                raise ShoalError(Kind.UNAVAILABLE, "scripted: nobody there")
            answer = await getattr(self._inner, name)(*arguments)
            if count == 3:
                raise ShoalError(Kind.DEADLINE, "scripted: the answer is lost")
            return answer

        return call


async def test_an_analyzer_that_is_away_for_a_moment_ends_no_round(
    two: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of the shuffler's fails, is repeated, and says the same. Planted: no retry -> "the
    analyzer cannot be reached".
    """
    monkeypatch.setattr("shoal.shuffler.rounds.live_round._ASK", Backoff(0.01, 0.01))
    flaky = Flaky(two.rounds._parts.collection)
    parts = replace(two.rounds._parts, collection=flaky)  # type: ignore[arg-type]
    monkeypatch.setattr(two.rounds, "_parts", parts)
    devices = two.world.devices(12)
    outcomes = await asyncio.gather(*two.begin(devices))
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    assert summed(two) == [(12, total(devices))]
    assert set(flaky.calls) == {"open", "start", "deliver", "commit", "unmask"}
    assert all(count >= 4 for count in flaky.calls.values())


async def test_every_frame_twice_changes_nothing(tmp_path: Path) -> None:
    """A retry, or somebody who replays. Planted: a piece of a vector that came before refused
    (VectorSpool.write) -> INVALID.
    """
    world = World(tmp_path, dimension=70_000)  # two pieces
    devices = world.devices(12)
    async with running(world) as one:
        wires = [Wire(one.transport(), world, twice=True) for _ in devices]
        outcomes = await asyncio.gather(
            *(one.take_part(device, wire) for device, wire in zip(devices, wires, strict=True))
        )
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        assert summed(one) == [(12, total(devices))]
    for wire in wires:
        assert {"join", "shares", "upload", "unmask"} <= set(wire.kinds)
        assert all(answer.kind == 0 for pair in wire.answers for answer in pair)


async def test_frames_replayed_after_the_round_find_it_over(two: Running) -> None:
    """Old frames of every kind, sent again by somebody who kept them: nobody gets a seat, a share
    or another answer by it.

    Planted: steps of an ended round judged like others (Rounds._step) -> a device whose last answer
    was lost is told that it is late.
    """
    devices = two.world.devices(12)
    wire = Wire(two.transport(), two.world)
    outcomes = await asyncio.gather(*two.begin(devices, wire))
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    before = two.rounds.ended.copy(), summed(two)
    for frame in wire.frames:
        data, key = open_request(two.world.published.hop, frame)
        answer = pairwise_pb2.Answer.FromString(
            open_reply(key, await wire.inner.exchange(frame, 5.0))
        )
        kind = pairwise_pb2.Step.FromString(data).WhichOneof("step")
        assert answer.phase in {
            pairwise_pb2.PHASE_DONE,
            pairwise_pb2.PHASE_NONE,
            pairwise_pb2.PHASE_JOIN,
        }, kind
        assert not answer.HasField("commit")
        assert not answer.HasField("roster")
    assert (two.rounds.ended, summed(two)) == before
