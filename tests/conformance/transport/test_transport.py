"""What every transport promises: the frame arrives as it is, the reply comes back as it is, and
failures are typed.

A new transport is one more fixture parameter: a way to start a far end, and the transport that
reaches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import grpc
import pytest

from shoal.clients.core import Action, AttemptVerdict, ReportState, judge
from shoal.clients.drawing import prepare
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.clients.transports.transport import BatchTransport, Undated
from shoal.crypto.envelope import verify_receipt
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from tests.unit.clients.test_core import assignment_of
from tests.worlds.devices.clients import CA, TLS, DirectTransport, FarEnd, World, make_world
from tests.worlds.mqtt.bridge import Bridge, honest
from tests.worlds.mqtt.broker import Broker, kinds

Open = Callable[[FarEnd], Awaitable[BatchTransport]]


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture(
    scope="module", params=["direct", "grpc", *(f"mqtt over {kind}" for kind in kinds())]
)
def way(request: pytest.FixtureRequest) -> Iterator[str | Broker]:
    """How frames travel: by name, or the broker that carries them. A broker serves all tests: each
    has a shuffler of its own.
    """
    if not request.param.startswith("mqtt"):
        yield request.param
        return
    with Broker(request.param.removeprefix("mqtt over ")) as broker:
        yield broker


@pytest.fixture
async def connect(way: str | Broker) -> AsyncIterator[Open]:
    """Start a far end and connect to it."""
    async with AsyncExitStack() as stack:

        async def connected(far: FarEnd) -> BatchTransport:
            if way == "direct":
                return DirectTransport(far)
            transport: GrpcTransport | MqttTransport
            if isinstance(way, Broker):
                shuffler_key = SigningKey.generate().public
                await stack.enter_async_context(Bridge(way.settings, shuffler_key, honest(far)))
                transport = MqttTransport(way.settings, shuffler_key)
            else:
                await stack.enter_async_context(far.serving())
                transport = GrpcTransport(f"localhost:{far.port}", CA, private_pool=True)
            stack.push_async_callback(transport.close)
            return transport

        yield connected


async def test_a_frame_and_its_receipt_arrive_as_they_are(connect: Open, world: World) -> None:
    far = FarEnd([world.hop])
    transport = await connect(far)
    for value in range(3):
        one = prepare(assignment_of(world), 0, value)
        mac = await transport.submit(one.frame, one.ack_key, 10.0)
        verify_receipt(one.ack_key, 0, one.frame, mac)
        assert far.frames[-1] == one.frame


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.INTERNAL])
async def test_a_refusal_keeps_its_kind_and_words(
    connect: Open, world: World, kind: Kind, way: str | Broker
) -> None:
    """Every kind crosses, and its words where nobody in between may read them. Planted: lose the
    trailing metadata -> kinds that share a status get mixed up. Planted for MQTT: a status that is
    not tried -> no reply verifies; a plain error -> this fails.
    """
    transport = await connect(
        FarEnd([world.hop], lambda _n, _f: ShoalError(kind, f"because {kind.name}"))
    )
    one = prepare(assignment_of(world), 0, 1)
    with pytest.raises(ShoalError) as caught:
        await transport.submit(one.frame, one.ack_key, 10.0)
    assert caught.value.kind is kind
    if isinstance(way, Broker):
        assert isinstance(caught.value, Undated)
        assert len(caught.value.message.splitlines()) == 1
    else:
        assert caught.value.message == f"because {kind.name}"


async def test_a_batch_gets_one_receipt_per_frame_in_order(connect: Open, world: World) -> None:
    """One refused frame does not fail the others."""
    far = FarEnd(
        [world.hop], lambda n, _f: ShoalError(Kind.WINDOW_FULL, "full") if n % 3 == 1 else None
    )
    transport = await connect(far)
    many = [prepare(assignment_of(world), 0, value) for value in range(7)]
    receipts = await transport.submit_batch(
        [one.frame for one in many], [one.ack_key for one in many], 10.0
    )
    assert far.frames == [one.frame for one in many]
    for index, (one, receipt) in enumerate(zip(many, receipts, strict=True)):
        assert receipt.status == (Kind.WINDOW_FULL.value if index % 3 == 1 else 0)
        verify_receipt(one.ack_key, receipt.status, one.frame, receipt.mac)


async def test_calls_can_be_under_way_together(connect: Open, world: World) -> None:
    far = FarEnd([world.hop])
    transport = await connect(far)
    many = [prepare(assignment_of(world), 0, value) for value in range(40)]
    macs = await asyncio.gather(*(transport.submit(one.frame, one.ack_key, 20.0) for one in many))
    for one, mac in zip(many, macs, strict=True):
        verify_receipt(one.ack_key, 0, one.frame, mac)


async def test_closing_twice_is_fine_and_then_nothing_is_sent(connect: Open, world: World) -> None:
    far = FarEnd([world.hop])
    transport = await connect(far)
    await transport.close()
    await transport.close()
    with pytest.raises(ShoalError) as caught:
        await transport.submit(prepare(assignment_of(world), 0, 1).frame, bytes(32), 5.0)
    assert caught.value.retryable
    assert far.frames == []


async def test_closing_ends_a_call_under_way_and_a_cancelled_caller_stays_cancelled(
    world: World,
) -> None:
    """Planted: pass gRPC's own cancellation on -> a background sender would end silently when a
    channel closes.
    """
    arrived, never = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        arrived.set()
        await never.wait()
        return b""

    handler = grpc.method_handlers_generic_handler(
        "shoal.v1.Ingress", {"Submit": grpc.unary_unary_rpc_method_handler(slow)}
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(TLS.key, TLS.certificate)])
    )
    await server.start()
    transport = GrpcTransport(f"localhost:{port}", CA, private_pool=True)
    try:
        cancelled = asyncio.create_task(transport.submit(bytes(512), bytes(32), 20.0))
        await arrived.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        arrived.clear()
        closed = asyncio.create_task(transport.submit(bytes(512), bytes(32), 20.0))
        await arrived.wait()
        await transport.close()
        with pytest.raises(ShoalError) as caught:
            await closed
        assert caught.value.kind is Kind.UNAVAILABLE
    finally:
        never.set()
        await transport.close()
        await server.stop(0.0)


# --- gRPC -----------------------------------------------------------------------------------------


async def test_nobody_there_is_unavailable(world: World) -> None:
    """Making the transport does not fail; using it does, typed, and the same bytes may go again."""
    far = FarEnd([world.hop])
    async with far.serving():
        port = far.port
    transport = GrpcTransport(f"localhost:{port}", CA, private_pool=True)
    with pytest.raises(ShoalError) as caught:
        await transport.submit(bytes(512), bytes(32), 5.0)
    assert caught.value.kind is Kind.UNAVAILABLE
    async with far.serving(port):  # the same transport, once the shuffler is there
        one = prepare(assignment_of(world), 0, 1)
        await transport._channel.grpc.channel_ready()
        verify_receipt(
            one.ack_key, 0, one.frame, await transport.submit(one.frame, one.ack_key, 5.0)
        )
        assert far.frames == [one.frame]
        await transport.close()


async def test_a_server_with_another_authority_is_not_spoken_to(world: World) -> None:
    """Planted: a channel without certificate checks -> the frame arrives."""
    from shoal.crypto.tlscerts import make_authority

    far = FarEnd([world.hop])
    async with far.serving():
        transport = GrpcTransport(
            f"localhost:{far.port}", make_authority("stranger").cert_pem, private_pool=True
        )
        with pytest.raises(ShoalError) as caught:
            await transport.submit(bytes(512), bytes(32), 5.0)
        assert caught.value.kind is Kind.UNAVAILABLE
        await transport.close()
    assert far.frames == []


@pytest.mark.parametrize("status", list(grpc.StatusCode)[1:])
async def test_somebody_in_between_cannot_end_a_report(
    world: World, status: grpc.StatusCode
) -> None:
    """A proxy's 403 or 404, or gRPC's own refusal, carries no kind: the report stays, in doubt.

    Planted: take the status at its word -> final kinds, and kinds that promise that nothing was
    stored.
    """

    async def refuse(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(status, "proxy says no")
        return b""

    handler = grpc.method_handlers_generic_handler(
        "shoal.v1.Ingress", {"Submit": grpc.unary_unary_rpc_method_handler(refuse)}
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(TLS.key, TLS.certificate)])
    )
    await server.start()
    transport = GrpcTransport(f"localhost:{port}", CA, private_pool=True)
    try:
        with pytest.raises(ShoalError) as caught:
            await transport.submit(bytes(512), bytes(32), 5.0)
        assert judge(caught.value.kind, False) == AttemptVerdict(
            Action.RETRY, ReportState.QUEUED, True
        )
        assert "proxy" not in caught.value.message
    finally:
        await transport.close()
        await server.stop(0.0)


async def test_a_garbled_reply_does_not_end_a_report(world: World) -> None:
    async def garbled(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return b"\xff\xff\xff"

    handler = grpc.method_handlers_generic_handler(
        "shoal.v1.Ingress",
        {name: grpc.unary_unary_rpc_method_handler(garbled) for name in ("Submit", "SubmitBatch")},
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(TLS.key, TLS.certificate)])
    )
    await server.start()
    transport = GrpcTransport(f"localhost:{port}", CA, private_pool=True)
    try:
        for sending in (
            transport.submit(bytes(512), bytes(32), 5.0),
            transport.submit_batch([bytes(512)], [bytes(32)], 5.0),
        ):
            with pytest.raises(ShoalError) as caught:
                await sending
            assert caught.value.kind is Kind.INTERNAL
    finally:
        await transport.close()
        await server.stop(0.0)


def test_without_tls_only_loopback(world: World) -> None:
    for address, insecure in (
        ("192.0.2.1:7443", True),
        ("192.0.2.1:7443", False),
        ("nowhere", False),
    ):
        with pytest.raises(ShoalError) as caught:
            GrpcTransport(address, b"", insecure=insecure)
        assert caught.value.kind is Kind.CONFIG
