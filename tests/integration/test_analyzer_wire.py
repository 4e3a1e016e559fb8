"""The Delivery service over real sockets with TLS: every bad input has one kind, one status, one
line, and changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.batches.spool import spool_path
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release import decode_release, to_json
from shoal.clocks.clock import FakeClock
from shoal.codec import encode_manifest
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2
from shoal.protos.delivery_pb2 import (
    BATCH_STATE_DONE,
    BATCH_STATE_PROCESSING,
    BATCH_STATE_RECEIVING,
)
from tests.sizes import size
from tests.worlds.analyzer import OTHER_CA, START, Batch, World, identity, make_task, make_world
from tests.worlds.analyzer_service import Caller, Refusal, Refused, Running, chunks, running

WORLD = make_world()
GOOD = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(50)]))


async def refused(run: Running, call: Any) -> Refusal:
    """How ``call`` is refused; afterwards everything must be as it was before."""
    before = run.digest()
    with pytest.raises(Refused) as error:
        await call
    refusal = error.value.refusal
    assert refusal.status not in {"UNKNOWN", "INTERNAL"}
    assert refusal.message
    assert "\n" not in refusal.message
    assert "Traceback" not in refusal.message
    assert run.digest() == before
    return refusal


def offer_with(signer: SigningKey | None = None, **changes: Any) -> bytes:
    return WORLD.batch(list(GOOD.rows), signer=signer, **changes).signed


def resigned(**changes: Any) -> bytes:
    """Fields that ``World.batch`` itself needs to look something up."""
    data = encode_manifest(replace(GOOD.manifest, **changes))
    return delivery_pb2.SignedManifest(
        manifest=data, signature=WORLD.shuffler.sign(SigningContext.MANIFEST, data)
    ).SerializeToString()


def wrong_context() -> bytes:
    data = GOOD.manifest_bytes
    return delivery_pb2.SignedManifest(
        manifest=data, signature=WORLD.shuffler.sign(SigningContext.ACK, data)
    ).SerializeToString()


def altered_after_signing() -> bytes:
    message = delivery_pb2.SignedManifest.FromString(GOOD.signed)
    message.manifest = encode_manifest(replace(GOOD.manifest, rows=49))
    return message.SerializeToString()


BAD_OFFERS: dict[str, tuple[Callable[[], bytes], Kind, str]] = {
    "no protobuf": (lambda: b"\xff\xff\xff", Kind.INVALID, "INVALID_ARGUMENT"),
    "empty": (lambda: b"", Kind.INVALID, "INVALID_ARGUMENT"),
    "no manifest inside": (
        lambda: delivery_pb2.SignedManifest(
            manifest=b"\xff\xff", signature=bytes(64)
        ).SerializeToString(),
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
    "another version": (
        lambda: delivery_pb2.SignedManifest(
            manifest=delivery_pb2.Manifest(version=2).SerializeToString()
        ).SerializeToString(),
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
    "no rows": (
        lambda: delivery_pb2.SignedManifest(
            manifest=delivery_pb2.Manifest(version=1, task_id=bytes(32)).SerializeToString()
        ).SerializeToString(),
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
    "oversize": (lambda: bytes(5_000), Kind.OVERSIZE, "RESOURCE_EXHAUSTED"),
    "unknown task": (lambda: resigned(task_id=TaskId(bytes(32))), Kind.UNKNOWN_TASK, "NOT_FOUND"),
    "another signer": (
        lambda: offer_with(signer=SigningKey.generate()),
        Kind.BAD_SIGNATURE,
        "PERMISSION_DENIED",
    ),
    "our own signature": (
        lambda: offer_with(signer=WORLD.analyzer),
        Kind.BAD_SIGNATURE,
        "PERMISSION_DENIED",
    ),
    "a signature for something else": (wrong_context, Kind.BAD_SIGNATURE, "PERMISSION_DENIED"),
    "altered after signing": (altered_after_signing, Kind.BAD_SIGNATURE, "PERMISSION_DENIED"),
    "no signature": (
        lambda: delivery_pb2.SignedManifest(manifest=GOOD.manifest_bytes).SerializeToString(),
        Kind.BAD_SIGNATURE,
        "PERMISSION_DENIED",
    ),
    "no such window": (lambda: resigned(window=2), Kind.MISMATCH, "DATA_LOSS"),
    "another row size": (
        lambda: offer_with(row_size=WORLD.row_size() + 1),
        Kind.MISMATCH,
        "DATA_LOSS",
    ),
    "unknown analyzer key": (
        lambda: offer_with(analyzer_key_id=KeyId(bytes(8))),
        Kind.MISMATCH,
        "DATA_LOSS",
    ),
    "another window's key": (
        lambda: offer_with(analyzer_key_id=WORLD.keys[1].config.key_id),
        Kind.MISMATCH,
        "DATA_LOSS",
    ),
    "unknown hop key": (lambda: offer_with(hop_key_id=KeyId(bytes(8))), Kind.MISMATCH, "DATA_LOSS"),
    "another schedule": (
        lambda: offer_with(schedule_hash=Digest(bytes(32))),
        Kind.MISMATCH,
        "DATA_LOSS",
    ),
    "under the minimum": (
        lambda: WORLD.batch(list(GOOD.rows[:19])).signed,
        Kind.TOO_FEW,
        "FAILED_PRECONDITION",
    ),
}


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(WORLD, tmp_path) as one:
        yield one


@pytest.mark.parametrize("name", BAD_OFFERS)
async def test_bad_offers(run: Running, name: str) -> None:
    """Planted: verify() before check_manifest left out -> the signature cases fail; a check left
    out -> its case fails.
    """
    make, kind, status = BAD_OFFERS[name]
    refusal = await refused(run, run.caller.offer(make()))
    assert (refusal.kind, refusal.status) == (kind, status)


async def test_a_window_that_is_still_open_is_too_early(tmp_path: Path) -> None:
    async with running(WORLD, tmp_path, clock=FakeClock(START + 5)) as run:
        refusal = await refused(run, run.caller.offer(GOOD))
        assert (refusal.kind, refusal.status) == (Kind.TOO_EARLY, "FAILED_PRECONDITION")


async def test_beyond_its_retention_a_window_is_closed(tmp_path: Path) -> None:
    """New or half delivered; a released one is still acknowledged. Planted: check_retention left
    out -> taken on without a key.
    """
    clock = FakeClock(WORLD.after)
    async with running(WORLD, tmp_path, clock=clock) as run:
        done = WORLD.batch(WORLD.seal_cells([1] * 30, 1), 1)
        ack = await run.caller.done(done)
        await run.caller.offer(GOOD)
        await run.caller.deliver([GOOD.chunk(0, 20)])
        clock.time = WORLD.expiry(1)
        for call in (run.caller.offer(GOOD), run.caller.deliver([GOOD.chunk(20)])):
            refusal = await refused(run, call)
            assert (refusal.kind, refusal.status) == (Kind.WINDOW_CLOSED, "FAILED_PRECONDITION")
        assert (await run.caller.offer(done)).ack == ack
    fresh = tmp_path / "fresh"
    async with running(WORLD, fresh, clock=clock) as run:
        assert (await refused(run, run.caller.offer(GOOD))).kind is Kind.WINDOW_CLOSED
        assert list((fresh / "keys").iterdir()) == []  # swept at the start


async def test_a_sweep_ends_a_call_that_is_still_delivering(tmp_path: Path) -> None:
    """The retention ends between two chunks of one call. Planted: the spool not ended -> OK, and a
    file with a hole, and this fails.
    """
    clock = FakeClock(WORLD.after)
    async with running(WORLD, tmp_path, clock=clock) as run:
        await run.caller.offer(GOOD)
        await run.caller.deliver([GOOD.chunk(0, 10)])

        async def stream() -> AsyncIterator[bytes]:
            yield GOOD.chunk(10, 10)
            path = spool_path(run.data / "spool", GOOD.manifest_hash)
            # the spool has no event to wait for
            while path.stat().st_size < 20 * WORLD.row_size():  # noqa: ASYNC110
                await asyncio.sleep(0)
            clock.time = WORLD.expiry(1)
            await run.service._processor._sweep()
            yield GOOD.chunk(20)

        with pytest.raises(Refused) as error:
            await run.caller.stream(stream())
        assert (error.value.refusal.kind, error.value.refusal.status) == (
            Kind.WINDOW_CLOSED,
            "FAILED_PRECONDITION",
        )
        assert os.listdir(run.data / "spool") == []


async def test_a_second_batch_for_a_window_is_a_conflict(run: Running) -> None:
    other = WORLD.batch(WORLD.seal_cells([0] * 50))
    await run.caller.offer(GOOD)
    refusal = await refused(run, run.caller.offer(other))
    assert (refusal.kind, refusal.status) == (Kind.CONFLICT, "ALREADY_EXISTS")
    await run.caller.done(GOOD)
    refusal = await refused(run, run.caller.offer(other))
    assert refusal.kind is Kind.CONFLICT


@pytest.mark.parametrize("damage", ["missing", "readable by others", "garbage"])
async def test_a_window_whose_key_can_not_be_read_is_not_taken_on(
    run: Running, damage: str
) -> None:
    """Planted: the key looked at only when the batch is opened -> accepted here, and this fails."""
    path = run.folder / "keys" / f"{WORLD.keys[0].config.key_id.hex}.key"
    match damage:
        case "missing":
            path.unlink()
        case "readable by others":
            path.chmod(0o644)
        case "garbage":
            path.write_bytes(b"x")
    refusal = await refused(run, run.caller.offer(GOOD))
    assert (refusal.kind, refusal.status) == (Kind.UNAVAILABLE, "UNAVAILABLE")
    assert str(run.folder) not in refusal.message


BAD_CHUNKS: dict[str, tuple[Callable[[], list[bytes]], Kind, str]] = {
    "no protobuf": (lambda: [b"\xff\xff"], Kind.INVALID, "INVALID_ARGUMENT"),
    "nothing": (list, Kind.INVALID, "INVALID_ARGUMENT"),
    "no hash": (lambda: [GOOD.chunk(20, manifest_hash=b"")], Kind.INVALID, "INVALID_ARGUMENT"),
    "not offered": (lambda: [GOOD.chunk(20, manifest_hash=bytes(32))], Kind.NOT_FOUND, "NOT_FOUND"),
    "a gap": (lambda: [GOOD.chunk(21, 5)], Kind.INVALID, "INVALID_ARGUMENT"),
    "an overlap": (lambda: [GOOD.chunk(19, 5)], Kind.INVALID, "INVALID_ARGUMENT"),
    "from the start again": (lambda: [GOOD.chunk(0)], Kind.INVALID, "INVALID_ARGUMENT"),
    "misaligned": (
        lambda: [GOOD.chunk(20, rows=GOOD.rows[20][:-1])],
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
    "no rows": (lambda: [GOOD.chunk(20, rows=b"")], Kind.INVALID, "INVALID_ARGUMENT"),
    "over-long": (
        lambda: [GOOD.chunk(20, rows=bytes(31 * WORLD.row_size()))],
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
    "oversize": (
        lambda: [GOOD.chunk(20, rows=bytes(LIMITS.chunk_bytes + 1))],
        Kind.OVERSIZE,
        "RESOURCE_EXHAUSTED",
    ),
    "far oversize": (
        lambda: [GOOD.chunk(20, rows=bytes(LIMITS.chunk_bytes + 100_000))],
        Kind.OVERSIZE,
        "RESOURCE_EXHAUSTED",
    ),
    "a huge first row": (
        lambda: [GOOD.chunk((1 << 64) - 1, rows=GOOD.rows[0])],
        Kind.INVALID,
        "INVALID_ARGUMENT",
    ),
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_bad_chunks(run: Running, name: str) -> None:
    """With 20 of 50 rows held. Planted: first_row not compared, or the remainder ignored -> its
    case fails.
    """
    await run.caller.offer(GOOD)
    assert await run.caller.deliver([GOOD.chunk(0, 20)]) == 20
    make, kind, status = BAD_CHUNKS[name]
    refusal = await refused(run, run.caller.deliver(make()))
    assert (refusal.kind, refusal.status) == (kind, status)
    assert (await run.caller.offer(GOOD)).received_rows == 20
    await run.caller.done(GOOD)
    assert to_json(decode_release(run.store.releases()[0].release))["n"] == 50


async def test_chunks_of_two_batches_in_one_call(run: Running) -> None:
    other = WORLD.batch(WORLD.seal_cells([0] * 50, 1), 1)
    await run.caller.offer(GOOD)
    await run.caller.offer(other)
    with pytest.raises(Refused) as error:
        await run.caller.deliver([GOOD.chunk(0, 5), other.chunk(0, 5)])
    assert error.value.refusal.kind is Kind.INVALID
    assert (await run.caller.offer(GOOD)).received_rows == 5
    assert (await run.caller.offer(other)).received_rows == 0


async def test_a_refusal_reaches_a_caller_who_is_still_writing(run: Running) -> None:
    """Planted: the rest of the call not read -> now and then gRPC answers INTERNAL by itself, and
    this fails (in some of its rounds).
    """
    await run.caller.offer(GOOD)
    for _ in range(size(20, 500)):
        with pytest.raises(Refused) as error:
            await run.caller.deliver([GOOD.chunk(30, 1)] * 200)
        assert error.value.refusal.kind is Kind.INVALID
    assert (await run.caller.offer(GOOD)).received_rows == 0


async def test_rows_that_are_not_the_manifests_are_dropped_and_can_be_sent_again(
    run: Running,
) -> None:
    swapped = replace(GOOD, rows=(GOOD.rows[1], GOOD.rows[0], *GOOD.rows[2:]))
    await run.caller.offer(GOOD)
    await run.caller.deliver([GOOD.chunk(0, 1)])
    with pytest.raises(Refused) as error:
        await run.caller.deliver(chunks(swapped, 1))
    assert (error.value.refusal.kind, error.value.refusal.status) == (Kind.MISMATCH, "DATA_LOSS")
    reply = await run.caller.offer(GOOD)
    assert (reply.state, reply.received_rows) == (BATCH_STATE_RECEIVING, 0)
    assert run.store.releases() == []
    await run.caller.done(GOOD)
    assert to_json(decode_release(run.store.releases()[0].release))["n"] == 50


async def test_only_named_shufflers_may_call(run: Running) -> None:
    """Planted: peers=None in Ingest.service -> the wrong name gets through, and this fails."""
    before = run.digest()
    for client, kind, status in (
        (identity(name="somebody.test"), Kind.FORBIDDEN, "PERMISSION_DENIED"),
        (
            identity(OTHER_CA),
            Kind.UNAVAILABLE,
            "UNAVAILABLE",
        ),  # ends in the TLS handshake: no method is reached
        (None, Kind.UNAVAILABLE, "UNAVAILABLE"),
    ):
        caller = Caller(run.port, client)
        for call in (caller.offer(GOOD), caller.deliver([GOOD.chunk()])):
            with pytest.raises(Refused) as error:
                await call
            assert (error.value.refusal.kind, error.value.refusal.status) == (kind, status)
        await caller.channel.close()
    assert run.digest() == before


# --- the good way ---------------------------------------------------------------------------------


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
        assert len(list((tmp_path / "keys").iterdir())) == 1
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
