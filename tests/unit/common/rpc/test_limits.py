"""Sizes, deadlines, concurrency and cancellation: nothing is taken without bound, and what is
refused was never begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.rpc.call import Call
from shoal.rpc.channel import call, call_stream
from shoal.rpc.server import Method
from tests.unit.common.rpc.world import both, messages, path


class Recorder:
    """Handlers that remember what they were given."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.left: list[float] = []

    async def unary(self, request: bytes, call: Call) -> bytes:
        self.seen.append(request)
        self.left.append(call.deadline_left())
        return b"ok"

    async def stream(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        async for message in messages:
            self.seen.append(message)
        return b"ok"


async def test_each_method_has_its_own_size() -> None:
    """To the byte, and before the handler. Planted: >= for >, or one limit for all methods -> this
    fails.
    """
    small, large = Recorder(), Recorder()
    async with both(
        {"Small": Method(100, small.unary), "Large": Method(5_000, large.unary)}
    ) as channel:
        assert await call(channel, path("Small"), bytes(100), 30.0) == b"ok"
        assert await call(channel, path("Large"), bytes(5_000), 30.0) == b"ok"
        with pytest.raises(ShoalError) as caught:
            await call(channel, path("Small"), bytes(101), 30.0)
        assert caught.value.kind is Kind.OVERSIZE
        assert caught.value.message == "the request is 101 bytes long, at most 100 are taken"
        assert not caught.value.retryable
    assert (len(small.seen), len(large.seen)) == (1, 1)


@pytest.mark.parametrize(
    "excess", [1, 2_000_000], ids=["over the method's limit", "over every limit"]
)
async def test_oversize_is_never_retried(excess: int) -> None:
    """Far too large a message is refused by gRPC itself as RESOURCE_EXHAUSTED, the status of
    overload, which means "try again".

    Planted: not telling the two apart -> OVERLOADED, a device that retries for ever, and this
    fails.
    """
    recorder = Recorder()
    async with both({"Echo": Method(1_000, recorder.unary)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), bytes(1_000 + excess), 30.0)
        assert caught.value.kind is Kind.OVERSIZE
        assert not caught.value.retryable
        assert await call(channel, path(), b"x", 30.0) == b"ok"
    assert recorder.seen == [b"x"]


async def test_messages_of_a_stream_are_measured_one_by_one() -> None:
    recorder = Recorder()
    async with both({"Deliver": Method(100, stream_handler=recorder.stream)}) as channel:
        assert (
            await call_stream(channel, path("Deliver"), messages(*[bytes(100)] * 50), 30.0) == b"ok"
        )
        with pytest.raises(ShoalError) as caught:
            await call_stream(channel, path("Deliver"), messages(bytes(100), bytes(101)), 30.0)
    assert caught.value.kind is Kind.OVERSIZE
    assert len(recorder.seen) == 51


async def test_headers_are_bounded() -> None:
    """Planted: no max_metadata_size -> the flood is taken and this fails."""
    recorder = Recorder()
    async with both({"Echo": Method(100, recorder.unary)}) as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(b"", timeout=30.0, metadata=(("x-flood", "x" * LIMITS.metadata_bytes),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not recorder.seen


async def test_too_short_a_deadline_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less than the smallest deadline left the handler is not called. Planted: no check in
    ``_enter`` -> this fails.
    """
    monkeypatch.setattr("shoal.rpc.server.LIMITS", replace(LIMITS, smallest_deadline_s=60.0))
    recorder = Recorder()
    async with both(
        {
            "Unary": Method(100, recorder.unary),
            "Stream": Method(100, stream_handler=recorder.stream),
        }
    ) as channel:
        for attempt in (
            call(channel, path("Unary"), b"x", 59.0),
            call_stream(channel, path("Stream"), messages(b"x"), 59.0),
        ):
            with pytest.raises(ShoalError) as caught:
                await attempt
            assert caught.value.kind is Kind.DEADLINE
            assert (
                caught.value.message
                == "too little time is left for this call: use a longer deadline"
            )
        assert await call(channel, path("Unary"), b"y", 600.0) == b"ok"
    assert recorder.seen == [b"y"]


async def test_a_stated_deadline_is_the_handlers() -> None:
    recorder = Recorder()
    async with both({"Echo": Method(100, recorder.unary)}) as channel:
        await call(channel, path(), b"", 77.0)
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path())
        await unary(b"")
    assert 60.0 < recorder.left[0] <= 77.0
    assert recorder.left[1] == pytest.approx(LIMITS.default_deadline_s, abs=1.0)


async def test_who_states_no_deadline_gets_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unary and streamed: nobody holds a call open for ever. Planted: no timeout around stream
    handlers -> this hangs and fails.
    """
    monkeypatch.setattr("shoal.rpc.server.LIMITS", replace(LIMITS, default_deadline_s=0.2))
    cancelled: list[str] = []

    async def hang(request: bytes, call: Call) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("unary")
            raise
        return b""

    async def drain(messages: AsyncIterator[bytes], call: Call) -> bytes:
        try:
            async for _ in messages:
                pass
        except asyncio.CancelledError:
            cancelled.append("stream")
            raise
        return b""

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    async with both(
        {"Hang": Method(100, hang), "Drain": Method(100, stream_handler=drain)}
    ) as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path("Hang"))
        stream: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
            path("Drain")
        )
        for attempt in (unary(b""), stream(endless())):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await attempt
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert sorted(cancelled) == ["stream", "unary"]


async def test_a_caller_that_goes_away_cancels_its_handler() -> None:
    """And nothing else: other calls go on, the service answers the next."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(request: bytes, call: Call) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return b""

    recorder = Recorder()
    async with both({"Hang": Method(100, hang), "Echo": Method(100, recorder.unary)}) as channel:
        task = asyncio.create_task(call(channel, path("Hang"), b"", 60.0))
        await asyncio.wait_for(started.wait(), 30.0)
        task.cancel()
        await asyncio.wait_for(cancelled.wait(), 30.0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call(channel, path(), b"", 30.0) == b"ok"


async def test_calls_beyond_the_limit_are_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing queues without bound: a connection's third of four calls is refused at once,
    retryably, and told how long to wait.

    Planted: no slots -> this fails.
    """
    monkeypatch.setattr("shoal.rpc.admission.LIMITS", replace(LIMITS, concurrent_calls=4))
    go, entered = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(request: bytes, call: Call) -> bytes:
        entered.release()
        await go.wait()
        return b"ok"

    async with both({"Wait": Method(100, wait)}) as channel:
        first = [asyncio.create_task(call(channel, path("Wait"), b"", 60.0)) for _ in range(2)]
        for _ in first:
            await asyncio.wait_for(entered.acquire(), 30.0)
        with pytest.raises(ShoalError) as caught:
            await call(channel, path("Wait"), b"", 30.0, peer="shuffler")
        assert caught.value.kind is Kind.OVERLOADED
        assert caught.value.retryable
        assert caught.value.retry_after_s >= LIMITS.retry_after_s
        go.set()
        assert await asyncio.gather(*first) == [b"ok", b"ok"]
