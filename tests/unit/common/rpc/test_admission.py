"""What a stranger can hold of a server: a slot for a while, and bytes that were counted before they
came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.rpc.backlog import Backlog
from shoal.rpc.call import Call
from shoal.rpc.channel import call, call_stream
from shoal.rpc.health import HEALTH
from shoal.rpc.server import Method, RpcServer, Service
from tests.cases import for_each
from tests.unit.common.rpc.world import (
    SERVICE,
    both,
    connected,
    echo,
    identity,
    path,
    served,
    server_identity,
)


async def never() -> AsyncIterator[bytes]:
    """A message that does not come."""
    await asyncio.Event().wait()
    yield b""


def silent(channel: grpc.aio.Channel, method: str) -> asyncio.Task[grpc.StatusCode]:
    """A call that sends its headers and nothing else; how it ends."""

    async def ends() -> grpc.StatusCode:
        stream: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(method)
        return await stream(never()).code()

    return asyncio.create_task(ends())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        # nothing here to wait for: the server has no hooks for tests
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("calls", "size"), [(32, 32_000_000), (32_000, 32_000)], ids=["calls", "bytes"]
)
async def test_calls_without_a_message_make_way(
    monkeypatch: pytest.MonkeyPatch, calls: int, size: int
) -> None:
    """One connection after the other takes half of what is left, until nothing is: who comes then
    is served all the same.

    Planted: no ``make_room``, for calls or for bytes -> the last one is refused for as long as the
    others like, and this fails.
    """
    monkeypatch.setattr(
        "shoal.rpc.admission.LIMITS", replace(LIMITS, concurrent_calls=calls, call_bytes=size)
    )
    async with served() as address, AsyncExitStack() as stack:
        held = list[asyncio.Task[grpc.StatusCode]]()
        for _ in range(8):
            stranger = await stack.enter_async_context(connected(address))
            held += [silent(stranger, path()) for _ in range(40)]
            await call_until_taken(stranger)
        for _ in range(3):
            channel = await stack.enter_async_context(connected(address))
            assert await call(channel, path(), b"x", 30.0) == b"x"
        for one in held:
            one.cancel()
        ends = await asyncio.gather(*held, return_exceptions=True)
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in ends
        assert grpc.StatusCode.DEADLINE_EXCEEDED not in ends


async def call_until_taken(channel: grpc.aio.Channel) -> None:
    """By then the headers that this connection sent before have been seen, whatever becomes of the
    call itself.
    """
    with contextlib.suppress(ShoalError):
        await call(channel, path(), b"x", 30.0)


async def test_calls_without_a_message_hold_no_more_than_a_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many times more calls than there are slots, headers only: slots stay free, and other
    connections are served meanwhile.

    Planted: unary methods registered as unary -> their handlers begin with the message, nobody is
    refused, and this hangs and fails. So it does without shares: then all slots are taken.
    """
    monkeypatch.setattr("shoal.rpc.admission.LIMITS", replace(LIMITS, concurrent_calls=32))
    async with served() as address, AsyncExitStack() as stack:
        strangers = [await stack.enter_async_context(connected(address)) for _ in range(3)]
        held = [silent(channel, path()) for channel in strangers for _ in range(40)]
        refused = 0
        # what one after the other may hold; fewer where they come in turns
        while refused < 3 * 40 - (16 + 8 + 4):
            done, _ = await asyncio.wait(held, timeout=30.0, return_when=asyncio.FIRST_COMPLETED)
            assert done
            refused += len(done)
            assert {one.result() for one in done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            held = [one for one in held if one not in done]
        assert len(held) >= 3 * (32 // 4)
        async with connected(address) as channel:
            assert await call(channel, path(), b"x", 30.0) == b"x"
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("method", ["Echo", "Total"])
async def test_the_time_limit_begins_with_the_call(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not a message comes. Planted: the time limit around the handler alone -> this
    hangs and fails.
    """
    monkeypatch.setattr("shoal.rpc.server.LIMITS", replace(LIMITS, read_s=0.2))
    async with both() as channel:
        assert (
            await asyncio.wait_for(silent(channel, path(method)), 30.0)
            is grpc.StatusCode.DEADLINE_EXCEEDED
        )


async def test_deadlines_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day is not granted. Planted: the caller's deadline taken as it is -> this hangs and
    fails.
    """
    left: list[float] = []

    async def hang(request: bytes, call: Call) -> bytes:
        left.append(call.deadline_left())
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr("shoal.rpc.server.LIMITS", replace(LIMITS, longest_call_s=0.2))
    async with both({"Hang": Method(10, hang)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await asyncio.wait_for(call(channel, path("Hang"), b"", 86_400.0), 30.0)
    assert caught.value.kind is Kind.DEADLINE
    assert 0.0 < left[0] <= 0.2


async def test_a_message_has_time_by_its_size() -> None:
    """A megabyte over a slow link is no attack. Planted: one limit for all methods -> this
    fails.
    """
    small, large = Method(64 * 1024, echo), Method(1024 * 1024, echo)
    assert small.reading_s >= 30.0
    assert large.reading_s >= 30.0 + 1024 * 1024 / LIMITS.slowest_bytes_s


async def test_a_call_without_a_message_is_invalid() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        return
        yield b""

    async with both() as channel:
        with pytest.raises(ShoalError) as caught:
            await call_stream(channel, path(), nothing(), 30.0)
    assert caught.value.kind is Kind.INVALID


async def test_bytes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for a message is taken before it is read, all of it, and no connection gets more than is
    left for the others.

    Planted: no ``reserve`` -> nine handlers run at once, and this fails.
    """
    monkeypatch.setattr("shoal.rpc.admission.LIMITS", replace(LIMITS, call_bytes=8_000))
    go, running = asyncio.Event(), 0

    async def wait(request: bytes, call: Call) -> bytes:
        nonlocal running
        running += 1
        await go.wait()
        return b"ok"

    async with (
        served({"Wait": Method(1_000, wait)}) as address,
        connected(address) as one,
        connected(address) as other,
    ):

        async def attempt(channel: grpc.aio.Channel) -> tuple[Kind, float] | None:
            try:
                await call(channel, path("Wait"), bytes(1_000), 60.0)
            except ShoalError as error:
                return error.kind, error.retry_after_s
            return None

        tasks = [asyncio.create_task(attempt(one)) for _ in range(9)]
        while len(tasks) > 4:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in done} == {(Kind.OVERLOADED, LIMITS.retry_after_s)}
            tasks = [task for task in tasks if task not in done]
        second = asyncio.create_task(attempt(other))
        await until(lambda: running == 5)
        assert len(tasks) == 4
        go.set()
        assert await asyncio.gather(*tasks, second) == [None] * 5
        assert await attempt(one) is None, "what was held is free again"


async def test_what_ends_badly_gives_everything_back() -> None:
    """Refused, broken off, too large, failed: no slot and no byte stays taken.

    Planted: giving back at the end of the handler alone -> calls that were broken off before it
    keep theirs, and this fails.
    """
    entered = asyncio.Event()

    async def hang(request: bytes, call: Call) -> bytes:
        entered.set()
        await asyncio.Event().wait()
        return b""

    async def buggy(request: bytes, call: Call) -> bytes:
        raise KeyError

    methods = {"Hang": Method(10, hang), "Buggy": Method(10, buggy), "Echo": Method(10, echo)}
    server = RpcServer("127.0.0.1:0", [Service(SERVICE, methods)], server_identity())
    port = await server.start()
    try:
        async with connected(f"127.0.0.1:{port}") as channel:
            for method, request in (("Buggy", b""), ("Echo", bytes(11))):
                with pytest.raises(ShoalError):
                    await call(channel, path(method), request, 30.0)
            assert await call(channel, path(), b"fine", 30.0) == b"fine"
            hanging = asyncio.create_task(call(channel, path("Hang"), b"", 30.0))
            await asyncio.wait_for(entered.wait(), 30.0)
            assert (server.admission.calls.used, server.admission.calls.holders) == (1, 1)
            hanging.cancel()
            quiet = silent(channel, path())
            await until(lambda: hanging.done() and server.admission.calls.used == 1)
            quiet.cancel()
        await until(lambda: not server.admission.calls.used and not server.admission.bytes.used)
        assert server.admission.calls.holders == server.admission.bytes.holders == 0
    finally:
        await server.stop(0)


async def test_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that finished their handshake and say nothing more. Planted: no limit -> all six
    are served, and this fails.
    """
    monkeypatch.setattr("shoal.rpc.server.LIMITS", replace(LIMITS, connections=3))
    async with served() as address, AsyncExitStack() as stack:
        answers = list[bytes | Kind]()
        for _ in range(6):
            channel = await stack.enter_async_context(connected(address))
            try:
                answers.append(await call(channel, path(), b"x", 2.0))
            except ShoalError as error:
                answers.append(error.kind)
    assert answers[:3] == [b"x"] * 3
    assert b"x" not in answers[3:]


# --- health, compression --------------------------------------------------------------------------


async def test_health_is_a_method_like_any_other() -> None:
    """Check alone; what can't be parsed is INVALID and tells nothing; Watch, which would stay open
    for ever, is not there.

    Planted: the library's own servicer -> UNKNOWN with the exception's text, Watch answers, and
    this fails.
    """
    async with both() as channel:
        for name in ("", SERVICE):
            request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
            reply = health_pb2.HealthCheckResponse.FromString(
                await call(channel, f"/{HEALTH}/Check", request, 30.0)
            )
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        for request, kind in ((b"\xff\xff", Kind.INVALID), (b"\x0a\x04nope", Kind.NOT_FOUND)):
            with pytest.raises(ShoalError) as caught:
                await call(channel, f"/{HEALTH}/Check", request, 30.0)
            assert caught.value.kind is kind
            assert "Error" not in caught.value.message
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            f"/{HEALTH}/Watch"
        )
        assert await watch(b"", timeout=30.0).code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_is_behind_the_barrier() -> None:
    """Where named peers alone are served, they alone may ask. Planted: no peers for Check -> a
    stranger of the CA is answered.
    """
    friend, stranger = identity(("friend",), client=True), identity(("stranger",), client=True)
    async with served(peers=frozenset({"friend"})) as address:
        async with connected(address, friend) as channel:
            assert await call(channel, f"/{HEALTH}/Check", b"", 30.0)
        async with connected(address, stranger) as channel:
            with pytest.raises(ShoalError) as caught:
                await call(channel, f"/{HEALTH}/Check", b"", 30.0)
            assert caught.value.kind is Kind.FORBIDDEN


async def test_compression_is_unimplemented() -> None:
    """As gRPC has it for an encoding that the server does not take. Planted: no bitset -> INVALID,
    or a bomb, and this fails.
    """
    async with both() as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(bytes(900), timeout=30.0, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await unary(b"plain", timeout=30.0) == b"plain"


# --- when to come again ---------------------------------------------------------------------------


@for_each(
    "value, heard",
    [("1500", 1.5), ("0", 0.0), ("-1", 0.0), ("soon", 0.0), ("9999999999", LIMITS.retry_most_s)],
)
async def test_how_long_to_wait_is_heard(value: str, heard: float) -> None:
    """Whatever a peer says: no more than the longest pause that a device would make by itself.
    Planted: no cap -> this fails.
    """

    async def refuse(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "no", (("grpc-retry-pushback-ms", value),)
        )
        return b""

    server = grpc.aio.server()
    handler: Any = grpc.stream_unary_rpc_method_handler(refuse)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),)
    )
    one = server_identity()
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(one.key, one.certificate)])
    )
    await server.start()
    try:
        async with connected(f"127.0.0.1:{port}") as channel:
            with pytest.raises(ShoalError) as caught:
                await call(channel, path(), b"", 30.0)
    finally:
        await server.stop(0)
    assert caught.value.kind is Kind.OVERLOADED
    assert caught.value.retry_after_s == heard


async def test_a_full_backlog_refuses_before_the_message_is_read() -> None:
    """Planted: no ``look`` -> the call that sends no message is not refused, and this hangs and
    fails.
    """
    backlog, go, entered = Backlog(limit_s=1e-9), asyncio.Event(), asyncio.Event()

    async def wait(request: bytes, call: Call) -> bytes:
        entered.set()
        await go.wait()
        return b"ok"

    async with (
        served({"Wait": Method(1_000, wait, backlog=backlog)}) as address,
        connected(address) as one,
        connected(address) as other,
    ):
        first = asyncio.create_task(call(one, path("Wait"), bytes(1_000), 30.0))
        await asyncio.wait_for(entered.wait(), 30.0)
        assert (
            await asyncio.wait_for(silent(other, path("Wait")), 30.0)
            is grpc.StatusCode.RESOURCE_EXHAUSTED
        )
        go.set()
        assert await first == b"ok"


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _work(backlog: Backlog, clock: _Clock, size: int, seconds: float) -> None:
    with backlog.admit("relay", size):
        clock.now += seconds


def test_a_backlog_learns_how_long_work_takes() -> None:
    """Planted: a fixed pace -> this fails."""
    clock = _Clock()
    backlog = Backlog(limit_s=2.0, now=clock)
    for _ in range(60):
        _work(backlog, clock, 1_000, 0.5)
    with backlog.admit("relay", 1_000):
        assert backlog.seconds == pytest.approx(0.5, rel=0.05)
    assert backlog.seconds == 0.0


def test_what_waits_is_shown_in_quarters_and_a_few_reports_never() -> None:
    """Planted: the share as it is -> a single small call is seen, fails."""
    clock, shown = _Clock(), list[float]()
    for size in (100, 900, 1_300, 2_500, 3_700):
        backlog = Backlog(limit_s=2.0, now=clock)
        for _ in range(60):
            _work(backlog, clock, 1_000, 0.5)
        with backlog.admit("relay", size):
            shown.append(backlog.share)
    assert (shown[0], shown[-1], backlog.share) == (0.0, 0.75, 0.0)
    assert shown == sorted(shown)
    assert {4 * one % 1 for one in shown} == {0.0}


def test_a_backlog_takes_what_it_can_do_soon_and_books_the_rest() -> None:
    """Each that is refused is told a later time than the one before it, up to the longest. Planted:
    the same for all -> this fails.
    """
    clock = _Clock()
    backlog = Backlog(limit_s=2.0, now=clock)
    for _ in range(60):
        _work(backlog, clock, 1_000, 0.5)
    with backlog.admit("a", 5_000):
        for who in ("a", "b"):
            with pytest.raises(ShoalError) as caught:
                backlog.look(who)
            assert caught.value.kind is Kind.OVERLOADED
        told = [caught.value.retry_after_s]
        for _ in range(200):
            with pytest.raises(ShoalError) as caught:
                backlog.look("c")
            told.append(caught.value.retry_after_s)
    assert told == sorted(told)
    assert told[0] >= 2.5
    assert told[-1] == LIMITS.retry_after_most_s
    backlog.look("a")


def test_a_backlog_is_shared() -> None:
    """A greedy connection leaves as much as it has, and one alone may do what takes long. Planted:
    first come, first served -> fails.
    """
    clock = _Clock()
    backlog = Backlog(limit_s=2.0, now=clock)
    for _ in range(60):
        _work(backlog, clock, 1_000, 0.5)
    with ExitStack() as stack:
        stack.enter_context(backlog.admit("greedy", 2_500))
        with pytest.raises(ShoalError):
            backlog.look("greedy")
        backlog.look("modest")
        stack.enter_context(backlog.admit("modest", 1_000))
    with backlog.admit("greedy", 1_000_000):
        pass
