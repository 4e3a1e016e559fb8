"""Helper mode between real services: one visit per device, services restarted in the middle, an
exact sum and one release.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.clients.rounds.participation import RoundOutcome, RoundState
from shoal.clients.rounds.single import send_single
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.service import Shuffler
from tests.worlds import postgres
from tests.worlds.rounds.services import TICK_S, Device, Running, World, ask, running, step, total
from tests.worlds.services.shuffler import GRACE, LENGTH, START

DIMENSION = 70_000  # an upload of two pieces


def world_of(folder: Path, **changes: float) -> World:
    return World(
        folder,
        mode=Mode.HELPER,
        dimension=DIMENSION,
        **{"devices": 8, "cohort_min": 4, "survivors_min": 4, "target_epsilon": 1e9, **changes},
    )


async def send(one: Running, device: Device, window: int = 0) -> RoundOutcome:
    terms = RoundTerms.served(one.world.published.served, window)
    line = one.line(window=window, deadline=START + LENGTH * 9.0)
    return await send_single(terms, device.identity, device.vector, device.ledger, line)


async def end_of_window(one: Running) -> dict[str, object]:
    """The release of window 0."""
    one.clock.advance(LENGTH + GRACE + 1)
    await one.until(lambda: one.store.released(one.world.published.task_id, 0))
    (stored,) = [stored for stored in one.store.releases() if stored.window == 0]
    return to_json(decode_release(stored.release))


async def test_every_vector_is_summed_once(tmp_path: Path) -> None:
    """Also after both services were restarted before the window ended. Planted: seeds kept in
    memory alone -> no sum after the restart.
    """
    world = world_of(tmp_path)
    devices = world.devices(6)
    async with running(world) as one:
        outcomes = await asyncio.gather(*(send(one, device) for device in devices[:3]))
        await one.stop("shuffler")
        await one.stop("analyzer")
        await one.start_analyzer()
        await one.start_shuffler()
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is not None)
        outcomes += await asyncio.gather(*(send(one, device) for device in devices[3:]))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        release = await end_of_window(one)
        (found,) = one.sums()
        assert found.vector.tolist() == total(devices)
        assert found.survivors == release["n"] == 6
        rounds = release["rounds"]
        assert isinstance(rounds, dict)
        assert (rounds["mode"], rounds["rounds"], rounds["aborted"]) == ("helper", 1, {})
        # nothing is left of the window
        await one.until(lambda: not list((tmp_path / "shuffler").rglob("singles-*")))


async def test_too_few_give_no_sum(tmp_path: Path) -> None:
    """Planted: no look at survivors_min at the shuffler -> the analyzer refuses the delivery for
    ever, and no release comes.
    """
    world = world_of(tmp_path)
    async with running(world) as one:
        await asyncio.gather(*(send(one, device) for device in world.devices(3)))
        release = await end_of_window(one)
        assert (release["withheld"], release["n"], one.sums()) == (
            "no round of this window ended with a sum",
            0,
            [],
        )


async def test_strangers_and_late_vectors_are_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with running(world) as one:
        outcome = await send(one, world.device(root=SigningKey.generate()))
        assert (outcome.state, outcome.kind) == (RoundState.ABORTED, Kind.UNAUTHENTICATED)
        await asyncio.gather(*(send(one, device) for device in world.devices(4)))
        await end_of_window(one)
        late = await send(one, world.device())
        assert (late.state, late.kind, late.charged) == (RoundState.NONE, Kind.WINDOW_CLOSED, False)


async def test_what_disks_lost_is_counted_in_the_release(tmp_path: Path) -> None:
    """Vectors at the shuffler; then the sum at the analyzer, changed or gone: never a wrong total,
    and every device of it is counted.

    Planted: FinishWindow without its counts -> 0 damaged; ``summed`` not compared -> the lost sum
    of window 1 is nobody's.
    """
    world = world_of(tmp_path, count=3)
    async with running(world) as one:
        devices = world.devices(6)
        for device in devices:
            assert (await send(one, device)).state is RoundState.COUNTED
        await one.stop("shuffler")
        (vectors,) = (tmp_path / "shuffler").rglob("singles-*.vectors")
        data = bytearray(vectors.read_bytes())
        data[-7] ^= 1  # of the last that came
        vectors.write_bytes(data)
        await one.start_shuffler()
        release = await end_of_window(one)
        assert (release["damaged"], release["n"], release["withheld"]) == (1, 5, None)
        assert one.sums()[0].vector.tolist() == total(devices[:5])
        for window, statement in (
            (1, "DELETE FROM sums WHERE window = 1"),
            (2, "UPDATE sums SET vector = zeroblob(8) WHERE window = 2"),
        ):
            await one.until(
                lambda window=window: one.shuffler.rounds.window(one.window(window)) is not None  # type: ignore[misc]
            )
            for device in world.devices(5):
                assert (await send(one, device, window)).state is RoundState.COUNTED
            failpoints.arm("analyzer.sums.finish=enospc")
            one.clock.advance(LENGTH)
            await one.until(lambda window=window: bool(one.sums(window)))  # type: ignore[misc]
            with one.store.transaction() as db:
                db.execute("DROP TRIGGER IF EXISTS sums_never_change")
                db.execute(statement)
            failpoints.arm("")
            await one.until(
                lambda window=window: one.store.released(world.published.task_id, window)  # type: ignore[misc]
            )
            (stored,) = [stored for stored in one.store.releases() if stored.window == window]
            release = to_json(decode_release(stored.release))
            assert (release["damaged"], release["n"], release["withheld"]) == (
                5,
                0,
                "no round of this window ended with a sum",
            )


async def test_a_clock_that_steps_back_does_not_open_the_window_again(tmp_path: Path) -> None:
    """The analyzer was shown the vectors, its answer is lost, and the shuffler's clock is back
    within the window: who comes now is told that it is over. Planted: no ``closed`` -> COUNTED, and
    another set is shown.
    """
    world = world_of(tmp_path)
    devices = world.devices(4)
    async with running(world) as one:
        await asyncio.gather(*(send(one, device) for device in devices))
        failpoints.arm("rounds.DeliverSingles.done=eio@1")
        try:
            one.clock.advance(LENGTH + GRACE + 1)
            await one.until(lambda: failpoints.record(False)["rounds.DeliverSingles.done"] == 1)
        finally:
            failpoints.arm("")
        one.clock.advance(-30)
        late = await send(one, world.device())
        assert (late.state, late.kind, late.charged) == (RoundState.LOST, Kind.DEADLINE, True)
        one.clock.advance(30)
        await one.until(lambda: one.store.released(world.published.task_id, 0))
        (found,) = one.sums()
        assert (found.survivors, found.vector.tolist()) == (4, total(devices))


@pytest.mark.parametrize("service", ["analyzer", "shuffler"])
async def test_a_service_that_is_away_at_the_end_loses_nothing(
    tmp_path: Path, service: str
) -> None:
    """The window's end is met by whoever comes back."""
    world = world_of(tmp_path)
    devices = world.devices(5)
    async with running(world) as one:
        await asyncio.gather(*(send(one, device) for device in devices))
        await one.stop(service)
        one.clock.advance(LENGTH + GRACE + 1)
        await (one.start_analyzer() if service == "analyzer" else one.start_shuffler())
        await one.until(lambda: one.store.released(world.published.task_id, 0))
        assert one.sums()[0].vector.tolist() == total(devices)


@asynccontextmanager
async def two_shufflers(world: World) -> AsyncIterator[tuple[Running, Shuffler, Shuffler]]:
    """The first has claimed window 0, and the second knows it."""
    one = Running(world)
    await one.start_analyzer()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(one.close)
        dsn = world.folder / "shuffler" / "dsn"
        dsn.touch(mode=0o600)
        dsn.write_text(postgres.shared().database())
        first, second = (
            Shuffler(replica_of(world, one, name, dsn), clock=one.clock, tick_s=TICK_S)
            for name in ("one", "two")
        )
        await stack.enter_async_context(first)
        await one.until(lambda: first.rounds.window(one.window()) is not None)
        await stack.enter_async_context(second)
        await one.until(lambda: second.rounds.is_elsewhere(one.window()))
        yield one, first, second


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
async def test_a_window_goes_on_at_another_shuffler_of_the_same_database(tmp_path: Path) -> None:
    """It sends devices away until the one that has the window is gone, and sums what both took.
    Planted: seeds kept on the machine that took them, or keys drawn by each -> no sum, fails.
    """
    world = world_of(tmp_path)
    devices = world.devices(6)
    async with two_shufflers(world) as (one, first, second):
        one.shuffler = first
        taken = await asyncio.gather(*(send(one, device) for device in devices[:3]))
        one.shuffler = second
        answer = await ask(one, step(one, poll=pairwise_pb2.Poll()))
        assert Kind(answer.kind) is Kind.UNAVAILABLE  # a device comes again
        waiting = [asyncio.create_task(send(one, device)) for device in devices[3:]]
        await first.stop()
        taken += await asyncio.gather(*waiting)
        assert {outcome.state for outcome in taken} == {RoundState.COUNTED}
        release = await end_of_window(one)
        (found,) = one.sums()
        assert found.vector.tolist() == total(devices)
        assert found.survivors == release["n"] == 6


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
async def test_a_round_goes_on_at_one_shuffler_alone(tmp_path: Path) -> None:
    """The other sends devices away, to come again, until the first is gone; then it holds a round
    of its own. Planted: a claim for each -> no refusal, fails.
    """
    world = World(tmp_path, devices=12)
    async with two_shufflers(world) as (one, first, second):
        one.shuffler = second
        answer = await ask(one, step(one, poll=pairwise_pb2.Poll()))
        assert Kind(answer.kind) is Kind.UNAVAILABLE  # a device comes again
        devices = world.devices(12)
        rounds = one.begin(devices)
        await first.stop()
        outcomes = await asyncio.gather(*rounds)
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        await one.until(lambda: len(one.sums()) == 1)
        assert one.sums()[0].vector.tolist() == total(devices)


def replica_of(world: World, one: Running, name: str, dsn: Path) -> ShufflerConfig:
    """One of two shufflers, with folders of its own."""
    home = world.shuffler.folder
    shutil.copytree(home / "keys", home / name / "keys")
    return world.shuffler.config(
        f"localhost:{one.analyzer_port}",
        data_dir=f"{name}/data",
        keys_dir=f"{name}/keys",
        store={"kind": "postgresql", "dsn_file": str(dsn), "replicas": 2, "without_standby": True},
    )
