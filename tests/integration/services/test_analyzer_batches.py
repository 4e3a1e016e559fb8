"""Batches that are delivered as they should be, over real sockets with TLS: each becomes one
release, once, whatever happens to its rows meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.analyzer.batches.spool import spool_path
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind
from shoal.protos import delivery_pb2
from shoal.protos.delivery_pb2 import (
    BATCH_STATE_DONE,
    BATCH_STATE_PROCESSING,
    BATCH_STATE_RECEIVING,
)
from tests.worlds.services.analyzer import Batch, World, identity, make_task, make_world
from tests.worlds.services.analyzer_service import (
    Caller,
    Refused,
    Running,
    chunks,
    refused,
    running,
)

WORLD = make_world()


GOOD = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(50)]))


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(WORLD, tmp_path) as one:
        yield one


async def test_a_batch_becomes_one_signed_release_and_what_opened_it_is_gone(run: Running) -> None:
    """Planted: the acknowledgement sent before the deletions -> key or rows are still there, and
    this fails.
    """
    reply = await run.caller.offer(GOOD)
    assert (reply.state, reply.received_rows) == (BATCH_STATE_RECEIVING, 0)
    ack = await run.caller.done(GOOD)
    verify(WORLD.analyzer.public, SigningContext.ACK, ack.ack, ack.signature)
    assert delivery_pb2.Ack.FromString(ack.ack) == delivery_pb2.Ack(
        version=1, manifest_hash=GOOD.manifest_hash.raw
    )
    assert not spool_path(run.data / "spool", GOOD.manifest_hash).exists()
    assert [path.stem for path in (run.folder / "keys").iterdir()] == [
        WORLD.keys[1].config.key_id.hex
    ]
    (stored,) = run.store.releases()
    verify(WORLD.analyzer.public, SigningContext.RELEASE, stored.release, stored.signature)
    release = to_json(decode_release(stored.release))
    assert (release["n"], release["rejected"], release["withheld"]) == (50, {}, None)
    assert release["manifest_hash"] == GOOD.manifest_hash.hex


async def test_a_batch_delivered_twice_counts_once_and_a_release_never_changes(
    run: Running,
) -> None:
    """Polls after the end, late chunks included: one set of bytes. Planted: Offer of a DONE batch
    opens it again -> this fails.
    """
    first = await run.caller.done(GOOD)
    before = run.digest()
    (release,) = run.store.releases()
    for _ in range(100):
        reply = await run.caller.offer(GOOD)
        assert (reply.state, reply.received_rows, reply.ack) == (BATCH_STATE_DONE, 50, first)
    late = await refused(run, run.caller.deliver(chunks(GOOD)))
    assert late.kind is Kind.INVALID
    assert run.store.releases() == [release]
    assert run.digest() == before


async def test_rejected_rows_cost_counts_not_the_batch(run: Running) -> None:
    nonce = bytes(range(16))
    rows = [*WORLD.seal_cells([2] * 30), WORLD.seal(b"\x09"), bytes(WORLD.row_size())]
    rows += [WORLD.seal(WORLD.report(1), nonce=nonce), WORLD.seal(WORLD.report(4), nonce=nonce)]
    await run.caller.done(WORLD.batch(rows))
    release = to_json(decode_release(run.store.releases()[0].release))
    assert release["n"] == 31
    assert release["rejected"] == {"duplicate": 1, "invalid value": 1, "unopenable": 1}


@pytest.mark.parametrize(("valid", "withheld"), [(19, True), (20, False)])
async def test_the_minimum_counts_what_remains(run: Running, valid: int, withheld: bool) -> None:
    """Enough rows, but the minimum is of valid, distinct reports. Planted: rows counted instead ->
    this fails.
    """
    rows = WORLD.seal_cells([1] * valid) + [bytes([i]) * WORLD.row_size() for i in range(10)]
    await run.caller.done(WORLD.batch(rows))
    (stored,) = run.store.releases()
    release = to_json(decode_release(stored.release))
    assert bool(release["withheld"]) == withheld
    assert bool(release["estimates"]) == (not withheld)
    assert (run.store.tally(WORLD.task_id, 0) is None) == withheld
    assert release["privacy"]["windows_composed"] == 1


async def test_two_windows_and_tasks_add_up(tmp_path: Path) -> None:
    other = World(
        make_task(name="second", windows=1), WORLD.authority, WORLD.shuffler, WORLD.analyzer
    )
    other.write(tmp_path)
    async with running(WORLD, tmp_path) as run:
        batches = [(WORLD, 0), (WORLD, 1), (other, 0)]
        for world, window in batches:
            await run.caller.done(
                world.batch(world.seal_cells([i % 7 for i in range(40)], window), window)
            )
        privacies = [
            to_json(decode_release(stored.release))["privacy"] for stored in run.store.releases()
        ]
        assert sorted((p["windows_composed"], p["tasks_composed"]) for p in privacies) == [
            (1, 1),
            (2, 1),
            (3, 2),
        ]
        last = max(privacies, key=lambda p: int(p["windows_composed"]))
        total, largest = (
            sum(p["epsilon_upper"] for p in privacies),
            max(p["epsilon_upper"] for p in privacies),
        )
        assert largest < last["epsilon_cumulative_upper"] <= total * (1 + 1e-12)
        assert list((run.folder / "keys").iterdir()) == []


async def test_a_key_of_several_windows_lives_until_the_last(tmp_path: Path) -> None:
    """Planted: the key deleted after the first window -> the second batch can't be taken, and this
    fails.
    """
    world = World(make_task(), keys=[WORLD.keys[0]] * 2)
    async with running(world, tmp_path) as run:
        await run.caller.done(world.batch(world.seal_cells([1] * 30)))
        assert [path.suffix for path in (tmp_path / "keys").glob("*.key")] == [".key"]
        await run.caller.done(world.batch(world.seal_cells([1] * 30, 1), 1))
        assert list((tmp_path / "keys").iterdir()) == []


async def test_a_new_task_is_served_without_a_restart(run: Running) -> None:
    other = World(make_task(name="second"), WORLD.authority, WORLD.shuffler, WORLD.analyzer)
    batch = other.batch(other.seal_cells([1] * 30))
    assert (await refused(run, run.caller.offer(batch))).kind is Kind.UNKNOWN_TASK
    other.write(run.folder)
    await run.caller.done(batch)


async def test_many_callers_at_once_count_once(run: Running) -> None:
    """Ten callers deliver the same batch at the same time; whatever each is told, it is counted
    once.
    """

    @asynccontextmanager
    async def caller() -> AsyncIterator[Caller]:
        one = Caller(run.port, identity())
        yield one
        await one.channel.close()

    async def deliver() -> None:
        async with caller() as one:
            for _ in range(1_000):
                try:
                    reply = await one.offer(GOOD)
                    if reply.state == BATCH_STATE_DONE:
                        return
                    if reply.state != BATCH_STATE_PROCESSING:
                        await one.deliver(chunks(GOOD, reply.received_rows, 3))
                except Refused as error:
                    if error.refusal.kind is not Kind.INVALID:  # somebody else was there first
                        raise
                await asyncio.sleep(0.01)
            raise AssertionError("not done")

    await asyncio.gather(*(deliver() for _ in range(10)))
    (stored,) = run.store.releases()
    release = to_json(decode_release(stored.release))
    assert (release["n"], release["rejected"]) == (50, {})


async def test_a_batch_that_nobody_queued_is_queued_by_the_next_offer(run: Running) -> None:
    """A caller that hangs up at the wrong moment leaves a batch PROCESSING, in no queue. Planted:
    only _finish queues -> not done.
    """
    await run.caller.offer(GOOD)
    spool_path(run.data / "spool", GOOD.manifest_hash).write_bytes(GOOD.data)
    assert run.store.move(GOOD.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    await run.caller.done(GOOD)
    assert to_json(decode_release(run.store.releases()[0].release))["n"] == 50


async def test_rows_that_went_missing_are_delivered_again(run: Running) -> None:
    """Planted: the size of the file not looked at -> a release of fewer reports, and this fails."""
    await run.caller.offer(GOOD)
    spool_path(run.data / "spool", GOOD.manifest_hash).write_bytes(
        GOOD.data[: 30 * WORLD.row_size()]
    )
    assert run.store.move(GOOD.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    await run.caller.done(GOOD)
    assert to_json(decode_release(run.store.releases()[0].release))["n"] == 50


async def test_rows_that_changed_on_the_disk_are_delivered_again(run: Running) -> None:
    """One bit of one complete spool. Planted: the size alone looked at -> a row counts as a
    client's garbage, and this fails.
    """
    await run.caller.offer(GOOD)
    spool_path(run.data / "spool", GOOD.manifest_hash).write_bytes(
        bytes([GOOD.data[0] ^ 1]) + GOOD.data[1:]
    )
    assert run.store.move(GOOD.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    await run.caller.done(GOOD)
    release = to_json(decode_release(run.store.releases()[0].release))
    assert (release["n"], release["rejected"], release["damaged"]) == (50, {}, 0)


async def test_what_is_left_of_a_damaged_batch_takes_its_place_while_it_comes(run: Running) -> None:
    """Planted: any other manifest is a CONFLICT -> the window is lost, fails. Planted: taken in any
    state (``supersedes``, and the store), or without fewer rows and more damage -> the last offers
    are accepted, fails.
    """
    left = WORLD.batch(GOOD.rows[:40], damaged=10)
    await run.caller.offer(GOOD)
    await run.caller.deliver([GOOD.chunk(0, 5)])
    for other in (WORLD.batch(GOOD.rows[:40]), WORLD.batch((*GOOD.rows, GOOD.rows[0]), damaged=10)):
        assert (await refused(run, run.caller.offer(other))).kind is Kind.CONFLICT
    assert (await run.caller.offer(left)).received_rows == 0
    assert os.listdir(run.data / "spool") == []
    await run.caller.done(left)
    release = to_json(decode_release(run.store.releases()[0].release))
    assert (release["n"], release["damaged"], release["manifest_hash"]) == (
        40,
        10,
        left.manifest_hash.hex,
    )
    for other in (GOOD, WORLD.batch(GOOD.rows[:30], damaged=20)):
        assert (await refused(run, run.caller.offer(other))).kind is Kind.CONFLICT


async def test_a_full_disk_is_said_and_survived(run: Running) -> None:
    """No space for the store, for a row, for a sync: the caller just tries again. Planted: OSError
    let through -> INTERNAL here.
    """
    from shoal import failpoints

    try:
        failpoints.arm(
            "analyzer.spool.write=enospc@2,analyzer.spool.sync=enospc@1,analyzer.store.commit=enospc@1"
        )
        seen = []
        for _ in range(50):
            try:
                reply = await run.caller.offer(GOOD)
                if reply.state == BATCH_STATE_DONE:
                    break
                if reply.state == BATCH_STATE_RECEIVING:
                    await run.caller.deliver(chunks(GOOD, reply.received_rows))
            except Refused as error:
                seen.append((error.refusal.kind, error.refusal.status))
            await asyncio.sleep(0.01)
        assert seen == [(Kind.OVERLOADED, "RESOURCE_EXHAUSTED")] * 3
    finally:
        failpoints.arm("")
    assert to_json(decode_release(run.store.releases()[0].release))["n"] == 50


async def test_no_row_of_a_refused_or_finished_batch_stays_on_disk(run: Running) -> None:
    await run.caller.done(GOOD)
    found = [
        path for path in run.data.rglob("*") if path.is_file() and GOOD.rows[0] in path.read_bytes()
    ]
    assert found == []
    assert os.listdir(run.data / "spool") == []


def test_the_batch_of_these_tests_is_a_real_one() -> None:
    assert isinstance(GOOD, Batch)
    assert len(set(GOOD.rows)) == 50
