"""Failures over a real wire: every kind arrives as itself, and whatever else goes wrong tells
nobody anything.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator

import grpc
import pytest

from shoal import codec
from shoal.errors import STATUS_OF, Kind, ShoalError
from shoal.protos import submit_pb2
from shoal.rpc.call import Call
from shoal.rpc.channel import call, call_stream
from shoal.rpc.server import Method
from shoal.rpc.status import KIND_KEY, Unnamed, from_rpc_error
from tests.cases import for_each
from tests.unit.common.rpc.world import METHODS, both, connected, messages, path, served

CANARY = "canary-7f3a91 203.0.113.9"
UNTYPED: list[BaseException] = [
    ValueError(CANARY),
    KeyError(CANARY),
    OSError(5, CANARY),
    AssertionError(CANARY),
    RecursionError(CANARY),
    MemoryError(CANARY),
    StopAsyncIteration(CANARY),
    UnicodeDecodeError("utf-8", CANARY.encode(), 0, 1, CANARY),
    ExceptionGroup(CANARY, [ValueError(CANARY)]),
    SystemExit(CANARY),
]


async def by_number(request: bytes, call: Call) -> bytes:
    raise ShoalError(Kind(request[0]), f"refused for reason {request[0]}: mend it")


async def by_number_streamed(messages: AsyncIterator[bytes], call: Call) -> bytes:
    async for message in messages:
        raise ShoalError(Kind(message[0]), f"refused for reason {message[0]}: mend it")
    return b""


async def test_every_kind_survives_the_wire() -> None:
    """Kind, status and text, unary and streamed, although many kinds share a status.

    Planted: no kind in the trailing metadata -> WINDOW_FULL arrives as WINDOW_CLOSED and this
    fails.
    """
    async with both(
        {"Unary": Method(10, by_number), "Stream": Method(10, stream_handler=by_number_streamed)}
    ) as channel:
        for kind in Kind:
            request = bytes([kind.value])
            for attempt in (
                call(channel, path("Unary"), request, 30.0),
                call_stream(channel, path("Stream"), messages(request), 30.0),
            ):
                with pytest.raises(ShoalError) as caught:
                    await attempt
                assert caught.value.kind is kind
                assert caught.value.message == f"refused for reason {kind.value}: mend it"
                assert not isinstance(caught.value, Unnamed)
            unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                path("Unary")
            )
            with pytest.raises(grpc.aio.AioRpcError) as raw:
                await unary(request, timeout=30.0)
            assert raw.value.code().name == STATUS_OF[kind]
            assert (KIND_KEY, str(kind.value)) in list(raw.value.trailing_metadata() or ())


@for_each("error", UNTYPED, ids=lambda error: type(error).__name__)
@for_each("streamed", [False, True], ids=["unary", "stream"])
async def test_a_bug_tells_nothing_but_its_incident(
    error: BaseException, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL, a random number that the log has too, and nowhere the exception's text. Never
    UNKNOWN.

    Planted: no barrier around the handler -> UNKNOWN with the text, and this fails.
    """

    async def buggy(request: bytes, call: Call) -> bytes:
        raise error

    async def buggy_stream(messages: AsyncIterator[bytes], call: Call) -> bytes:
        raise error

    with caplog.at_level(
        logging.INFO
    ):  # at DEBUG the records would hold objects of gRPC, which crash when freed after its loop
        async with both(
            {"Unary": Method(10, buggy), "Stream": Method(10, stream_handler=buggy_stream)}
        ) as channel:
            with pytest.raises(ShoalError) as caught:
                await (
                    call_stream(channel, path("Stream"), messages(b"x"), 30.0)
                    if streamed
                    else call(channel, path("Unary"), b"x", 30.0)
                )
    assert caught.value.kind is Kind.INTERNAL
    incident = re.fullmatch(
        r"internal error, incident ([0-9a-f]{8}): its operator finds it in the log",
        caught.value.message,
    )
    assert incident is not None
    assert CANARY not in caplog.text
    assert "canary" not in caplog.text
    assert incident[1] in caplog.text
    assert type(error).__name__ in caplog.text
    assert "test_failures.py:" in caplog.text


async def test_the_service_lives_on_after_bugs() -> None:
    count = 0

    async def flaky(request: bytes, call: Call) -> bytes:
        nonlocal count
        count += 1
        if count % 2:
            raise KeyError(CANARY)
        return request

    async with both({"Flaky": Method(10, flaky)}) as channel:
        for _ in range(5):
            with pytest.raises(ShoalError, match="incident"):
                await call(channel, path("Flaky"), b"x", 30.0)
            assert await call(channel, path("Flaky"), b"x", 30.0) == b"x"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(asyncio.CancelledError(), Kind.UNAVAILABLE), (TimeoutError(CANARY), Kind.DEADLINE)],
)
async def test_cancelled_and_late_work_is_retryable(error: BaseException, kind: Kind) -> None:
    """A CancelledError from inside a handler would leave the caller hanging. Planted: re-raising it
    -> this fails.
    """

    async def handler(request: bytes, call: Call) -> bytes:
        raise error

    async with both({"Echo": Method(10, handler)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"x", 30.0)
    assert caught.value.kind is kind
    assert caught.value.retryable
    assert CANARY not in caught.value.message


@for_each("data", [b"\xff", b"\x0a\xff", b"\x0a\x05ab", b"\x08\x01\x0a", b"\x33" * 50])
async def test_malformed_protobuf_is_invalid(data: bytes) -> None:
    """Our status, not the library's UNKNOWN: handlers get bytes and parse them with the codec."""

    async def handler(request: bytes, call: Call) -> bytes:
        codec.parse(submit_pb2.SubmitRequest, request, "submit")
        return b""

    async with both({"Submit": Method(1_000, handler)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path("Submit"), data, 30.0)
        assert caught.value.kind is Kind.INVALID
        assert caught.value.message == "submit: not a well-formed protobuf message"
        assert (
            await call(
                channel,
                path("Submit"),
                submit_pb2.SubmitRequest(frame=b"x").SerializeToString(),
                30.0,
            )
            == b""
        )


async def test_unknown_methods_are_typed() -> None:
    async with both() as channel:
        for method in (path("Nothing"), "/shoal.v1.Nothing/Echo"):
            with pytest.raises(Unnamed) as caught:
                await call(channel, method, b"", 30.0, peer="shuffler")
            assert caught.value.kind is Kind.INVALID
            assert caught.value.message == "the shuffler answered UNIMPLEMENTED"


async def test_nobody_there_is_unavailable() -> None:
    async with served() as address:
        pass
    async with connected(address) as channel:
        with pytest.raises(Unnamed) as caught:
            await call(channel, path(), b"", 30.0, peer="analyzer")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert (
        caught.value.message == "the analyzer can't be reached: nobody listens at its address: "
        "check the port, and that it runs"
    )


def test_a_refused_ipv6_address_does_not_hide_why_the_other_one_failed() -> None:
    """``localhost`` mostly has both kinds of address, and gRPC tells of the last one alone: with a
    wrong CA the operator was told that nobody listens. Planted: that told again -> fails.
    """
    details = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:7445: Failed to "
        "connect to remote host: Connection refused"
    )
    met = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details
    )
    told = from_rpc_error(met, "analyzer").message
    assert "certificate" in told
    assert "::1" not in told


async def test_a_hostile_services_text_is_one_printable_line() -> None:
    """What a peer says is shown to a person at a terminal. Planted: passing details() on as they
    are -> this fails.
    """

    async def handler(request: bytes, call: Call) -> bytes:
        raise ShoalError(Kind.INVALID, "line\nline\x1b[2K\r" + "x" * 200)

    async with both({"Echo": Method(10, handler)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"", 30.0)
    assert caught.value.kind is Kind.INVALID
    assert caught.value.message == "line line [2K " + "x" * 200


async def test_a_long_text_does_not_hide_the_kind() -> None:
    """It would not fit the limit of headers, and arrive as overload. Planted: sending the whole
    text -> this fails.
    """

    async def handler(request: bytes, call: Call) -> bytes:
        raise ShoalError(Kind.MISMATCH, "é" * 50_000)

    async with both({"Echo": Method(10, handler)}) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"", 30.0)
    assert caught.value.kind is Kind.MISMATCH
    assert caught.value.message == "é" * 300


async def test_a_foreign_kind_number_falls_back_to_the_status() -> None:
    """A newer service may name kinds that we don't know."""

    async def handler(request: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(
            grpc.StatusCode.NOT_FOUND,
            "x",
            ((KIND_KEY, request.decode() if isinstance(request, bytes) else ""),),
        )
        raise AssertionError

    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Echo": grpc.unary_unary_rpc_method_handler(handler)
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("foreign.Service", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for number in (b"999", b"-1", b"x", b"", b"1e3"):
                with pytest.raises(Unnamed) as caught:
                    await call(channel, "/foreign.Service/Echo", number, 30.0)
                assert caught.value.kind is Kind.UNKNOWN_TASK
    finally:
        await server.stop(None)


async def test_a_good_call_is_only_the_handlers_reply() -> None:
    """The control of this file."""
    async with both(METHODS) as channel:
        assert await call(channel, path(), b"hello", 30.0) == b"hello"
        assert await call_stream(channel, path("Total"), messages(b"ab", b"c"), 30.0) == b"3"
