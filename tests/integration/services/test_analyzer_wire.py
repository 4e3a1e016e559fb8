"""The Delivery service over real sockets with TLS: every bad input has one kind, one status, one
line, and changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.batches.spool import spool_path
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.clocks.clock import FakeClock
from shoal.codec import encode_manifest
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.errors import Kind
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2
from shoal.protos.delivery_pb2 import (
    BATCH_STATE_RECEIVING,
)
from tests.sizes import size
from tests.worlds.services.analyzer import OTHER_CA, START, identity, make_world
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
