"""Windows of rounds: who may come in, what hostile bytes get, how a window ends, and what is left
of it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from shoal.clients.rounds.participation import RoundState
from shoal.clients.rounds.single import send_single
from shoal.clocks.clock import FakeClock
from shoal.crypto.secagg.exchange import seal_request
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import issue, make_authority
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.rpc.channel import build_channel, call, call_stream
from shoal.rpc.tls import TlsIdentity
from shoal.secagg import Mode
from tests.flipped import last_bit_flipped
from tests.sizes import size
from tests.worlds.rounds.services import TICK_S, Running, Wire, World, ask, running, step, total
from tests.worlds.services.shuffler import CA, GRACE, LENGTH, submit

COLLECTION = "/shoal.v1.Collection"


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path)) as both:
        yield both


async def offer(one: Running) -> pairwise_pb2.SignedOffer:
    await ask(one, step(one, ask=pairwise_pb2.Ask()))
    await one.until(lambda: one.phase() == "JOIN")
    return (await ask(one, step(one, ask=pairwise_pb2.Ask()))).offer


# --- who may come in ------------------------------------------------------------------------------


async def test_a_stranger_gets_no_seat(one: Running) -> None:
    """Certified by another root, or showing another's certificate: typed, and nobody sits."""
    from shoal.crypto.secagg.device.machine import DeviceRound

    opened = await offer(one)
    known = one.world.device()
    device = DeviceRound(one.world.terms, known.identity)
    join = device.join(opened, one.clock.now())
    stranger = one.world.device(root=SigningKey.generate())
    cases = {
        Kind.UNAUTHENTICATED: pairwise_pb2.Join(certificate=stranger.identity.certificate),
        Kind.BAD_SIGNATURE: pairwise_pb2.Join(certificate=one.world.device().identity.certificate),
    }
    for kind, change in cases.items():
        tampered = pairwise_pb2.Join()
        tampered.CopyFrom(join)
        tampered.MergeFrom(change)
        answer = await ask(one, step(one, join=tampered))
        assert Kind(answer.kind) is kind
        assert not answer.HasField("started")
    assert one.counts()["joined"] == 0
    # the device itself sends nothing to a task that doesn't know it
    outcome = await one.take_part(stranger)
    assert (outcome.state, outcome.kind, outcome.charged) == (
        RoundState.ABORTED,
        Kind.UNAUTHENTICATED,
        False,
    )


async def test_collection_is_for_the_allowed_shufflers_alone(one: Running) -> None:
    """Planted: the service registered without peers -> another service's certificate is let in."""
    made = issue(CA, "other.test", ["other.test"], server=False, client=True, days=1)
    foreign = issue(
        make_authority("elsewhere"),
        "shuffler.test",
        ["shuffler.test"],
        server=False,
        client=True,
        days=1,
    )
    for identity, kind in (
        (made, Kind.FORBIDDEN),
        (foreign, Kind.UNAVAILABLE),
        (None, Kind.UNAVAILABLE),
    ):
        tls = None if identity is None else TlsIdentity(identity.cert_pem, identity.key_pem)
        channel = build_channel(
            f"localhost:{one.analyzer_port}", CA.cert_pem, client=tls, private_pool=True
        )
        with pytest.raises(ShoalError) as refused:
            await call(channel, f"{COLLECTION}/OpenRound", b"", 5.0)
        assert refused.value.kind is kind
        await channel.close()


async def test_frames_of_shuffled_tasks_have_no_place_here(one: Running) -> None:
    channel = one.transport()._channel.grpc  # the same connection, for another service
    with pytest.raises(ShoalError) as refused:
        await call(channel, "/shoal.v1.Ingress/Submit", submit(one.world.published.frame()), 5.0)
    assert refused.value.kind is Kind.INVALID
    assert "summed in rounds" in refused.value.message


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.HELPER])
async def test_a_clock_without_a_witness_holds_rounds_and_ends_no_window(
    tmp_path: Path, mode: Mode
) -> None:
    """Services that moved to new machines in mid-task; then the analyzer has found a witness.
    Nobody is sent away for good.

    Planted: rounds opened, or vectors taken, by ``decide`` alone -> nobody is counted; refusals by
    ``letting`` -> WINDOW_CLOSED; the window ended by it -> a release.
    """
    helper = (
        {"dimension": 3, "devices": 8, "cohort_min": 4, "survivors_min": 4, "target_epsilon": 1e9}
        if mode is Mode.HELPER
        else {}
    )
    world = World(tmp_path, mode=mode, **helper)
    devices = world.devices(8 if helper else 12)
    async with running(world) as both:
        await both.stop("shuffler")
        lonely = both.clocks["shuffler"] = FakeClock(both.clock.time)
        lonely.alone = both.clock.alone = True
        await both.start_shuffler()
        await both.until(lambda: both.shuffler.rounds.window(both.window()) is not None)
        if mode is Mode.HELPER:
            sends = [
                send_single(world.terms, one.identity, one.vector, one.ledger, both.line())
                for one in devices
            ]
            outcomes = await asyncio.gather(*sends)
        else:
            outcomes = await asyncio.gather(*both.begin(devices))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        both.clock.alone = False
        both.clock.advance(LENGTH + GRACE + 1)
        lonely.advance(LENGTH + GRACE + 1)
        first = (
            {"poll": pairwise_pb2.Poll()} if mode is Mode.HELPER else {"ask": pairwise_pb2.Ask()}
        )
        for _ in range(5):
            assert (await ask(both, step(both, **first))).kind == Kind.UNAVAILABLE.value
            await asyncio.sleep(2 * TICK_S)
        assert not both.store.released(world.published.task_id, 0)
        lonely.alone = False
        await both.until(lambda: both.store.released(world.published.task_id, 0))


# --- hostile bytes --------------------------------------------------------------------------------


async def test_frames_that_do_not_open_are_refused_by_kind(one: Running) -> None:
    config = one.world.published.hop.config
    good = seal_request(
        config, step(one, poll=pairwise_pb2.Poll()).SerializeToString(), SYSTEM
    ).frame
    cases = {
        b"": Kind.INVALID,
        b"\x02" + good[1:]: Kind.INVALID,
        last_bit_flipped(good): Kind.INVALID,
        good[:2] + bytes(8) + good[10:]: Kind.UNKNOWN_KEY,
        bytes(300_000): Kind.OVERSIZE,
    }
    transport = one.transport()
    for frame, kind in cases.items():
        with pytest.raises(ShoalError) as refused:
            await transport.exchange(frame, 5.0)
        assert refused.value.kind is kind, frame[:12]
    for _ in range(size(50, 2_000)):
        noise = secrets.token_bytes(1 + secrets.randbelow(200))
        with pytest.raises(ShoalError) as refused:
            await transport.exchange(noise, 5.0)
        assert refused.value.kind in {Kind.INVALID, Kind.UNKNOWN_KEY}


async def test_steps_that_make_no_sense_are_answered_and_change_nothing(one: Running) -> None:
    """Every answer is sealed and typed, none is INTERNAL, and nobody has a seat after them."""
    opened = await offer(one)
    session = secrets.token_bytes(16)
    cases: list[tuple[Kind, bytes | pairwise_pb2.Step]] = [
        (Kind.INVALID, b"\xff\xff\xff"),
        (Kind.INVALID, step(one, session=b"short", poll=pairwise_pb2.Poll())),
        (Kind.INVALID, step(one)),
        (Kind.INVALID, step(one, single=pairwise_pb2.Single())),
        (Kind.INVALID, step(one, window=2, poll=pairwise_pb2.Poll())),
        (Kind.TOO_EARLY, step(one, window=1, ask=pairwise_pb2.Ask())),
        (
            Kind.UNKNOWN_TASK,
            pairwise_pb2.Step(task_id=bytes(32), session=session, ask=pairwise_pb2.Ask()),
        ),
        (Kind.INVALID, pairwise_pb2.Step(task_id=b"x", session=session, ask=pairwise_pb2.Ask())),
        (Kind.NOT_FOUND, step(one, session, join=pairwise_pb2.Join(offer_id=bytes(32)))),
        (Kind.INVALID, step(one, session, join=pairwise_pb2.Join(offer_id=one_offer_id(opened)))),
        (Kind.ABORTED, step(one, session, poll=pairwise_pb2.Poll())),
        (Kind.ABORTED, step(one, session, shares=pairwise_pb2.Shares())),
        (
            Kind.ABORTED,
            step(
                one, session, upload=pairwise_pb2.Upload(offset=1 << 60, total=1 << 60, chunk=b"x")
            ),
        ),
        (Kind.ABORTED, step(one, session, endorse=pairwise_pb2.Endorse())),
        (Kind.ABORTED, step(one, session, unmask=pairwise_pb2.Unmask())),
    ]
    for kind, hostile in cases:
        answer = await ask(one, hostile)
        assert Kind(answer.kind) is kind, hostile
        assert answer.reason
    assert one.counts()["joined"] == 0


def one_offer_id(opened: pairwise_pb2.SignedOffer) -> bytes:
    from shoal.crypto.secagg.records import offer_id

    return offer_id(opened.offer).raw


async def test_hostile_calls_of_a_shuffler_are_typed_at_the_analyzer(one: Running) -> None:
    # the shuffler's own
    channel = one.shuffler.rounds._parts.collection._channel  # type: ignore[attr-defined]
    task_id = one.world.published.task_id.raw
    unknown = bytes(32)
    cases: list[tuple[str, Message | bytes, Kind]] = [
        ("OpenRound", b"\xff", Kind.INVALID),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, window=9, shuffler_commitment=unknown),
            Kind.INVALID,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, window=1, shuffler_commitment=unknown),
            Kind.TOO_EARLY,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, shuffler_commitment=b"x"),
            Kind.INVALID,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=unknown, shuffler_commitment=unknown),
            Kind.UNKNOWN_TASK,
        ),
        ("StartRound", pairwise_pb2.StartRoundRequest(offer_id=unknown), Kind.NOT_FOUND),
        ("CommitRound", pairwise_pb2.CommitRoundRequest(commit=b""), Kind.NOT_FOUND),
        (
            "UnmaskRound",
            pairwise_pb2.UnmaskRoundRequest(round_id=unknown, last=True),
            Kind.NOT_FOUND,
        ),
        ("UnmaskRound", b"", Kind.INVALID),
        ("FinishWindow", pairwise_pb2.FinishWindowRequest(task_id=task_id), Kind.TOO_EARLY),
        ("FinishWindow", bytes(5_000), Kind.OVERSIZE),
    ]
    for method, request, kind in cases:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        with pytest.raises(ShoalError) as refused:
            await call(channel, f"{COLLECTION}/{method}", data, 5.0)
        assert refused.value.kind is kind, (method, request)
    assert one.analyzer._rounds.open_rounds == 0


async def test_deliveries_that_do_not_fit_are_refused_and_the_round_goes_on(one: Running) -> None:
    """Nothing of a refused chunk is counted. Planted: the offset of a chunk unchecked
    (Rounds._deliver) -> a gap passes.
    """
    devices = one.world.devices(12)
    wire = Wire(one.transport(), one.world, "upload")
    held = asyncio.create_task(one.take_part(devices[0], wire))
    rest = one.begin(devices[1:])
    await one.until(lambda: one.counts().get("uploaded") == 11)
    live, *_ = one.rounds._under_way
    round_id, size = live.coordinator.round_id, one.world.terms.sealed_vector_bytes
    assert round_id is not None
    # the shuffler's own
    channel = one.shuffler.rounds._parts.collection._channel  # type: ignore[attr-defined]
    cases: list[tuple[list[dict[str, object]], Kind]] = [
        ([], Kind.INVALID),
        ([{"round_id": bytes(32), "data": bytes(size)}], Kind.NOT_FOUND),
        ([{"round_id": b"x", "data": bytes(size)}], Kind.NOT_FOUND),
        ([{"offset": 1, "data": bytes(size)}], Kind.INVALID),
        ([{"offset": size, "data": bytes(size)}], Kind.INVALID),
        ([{"data": b""}], Kind.INVALID),
        ([{"data": bytes(size - 1)}], Kind.INVALID),
        ([{"data": bytes(size - 1)}, {"offset": size, "data": b"x"}], Kind.INVALID),
        ([{"data": b"x"}, {"round_id": bytes(32), "offset": 1, "data": b"x"}], Kind.INVALID),
        ([{"data": bytes(260 * 1024)}], Kind.OVERSIZE),
    ]
    for chunks, kind in cases:
        with pytest.raises(ShoalError) as refused:
            await call_stream(
                channel, f"{COLLECTION}/DeliverVectors", _stream(round_id.raw, chunks), 5.0
            )
        assert refused.value.kind is kind, chunks
    held.cancel()
    await one.advance(121)
    outcomes = await asyncio.gather(*rest)
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    assert [stored.vector.tolist() for stored in one.sums()] == [total(devices[1:])]


async def _stream(round_id: bytes, chunks: list[dict[str, object]]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield pairwise_pb2.VectorChunk(
            **{"round_id": round_id, "rows": 1, **chunk}  # type: ignore[arg-type]
        ).SerializeToString()
