"""Traces of a running shuffler: nothing of them comes from a peer, nothing goes to one, and nothing
counts reports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from shoal.clocks.clock import FakeClock
from shoal.rpc.channel import build_channel
from shoal.shuffler.service import Shuffler
from tests.integration.services.test_restoring import SUBMIT
from tests.worlds.services.collector import collecting, words
from tests.worlds.services.shuffler import _ANALYZER, CA, GRACE, LENGTH, START, World, submit

THEIRS = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = (
    ("traceparent", f"00-{THEIRS}-00f067aa0ba902b7-01"),
    ("tracestate", "vendor=opaque"),
    ("baggage", "owner=alice"),
)


class Heard(grpc.GenericRpcHandler):
    """An analyzer that answers nothing, and keeps the headers of every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str]]] = []

    def service(self, details: grpc.HandlerCallDetails) -> None:
        self.calls.append(
            (details.method, {name: str(value) for name, value in details.invocation_metadata})
        )


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, Heard]]:
    heard, server = Heard(), grpc.aio.server()
    server.add_generic_rpc_handlers((heard,))
    credentials = grpc.ssl_server_credentials([(_ANALYZER.key_pem, _ANALYZER.cert_pem)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        await server.stop(0)


async def test_no_trace_crosses_the_shuffler_and_none_counts_reports(tmp_path: Path) -> None:
    """Two windows, of 3 and 9 reports, each sent with headers that a tracing client adds.

    Planted: a trace that goes on with the peer's number -> fails. Planted: a header on the way to
    the analyzer -> fails. Planted: a span in ``Submit`` -> more spans for more reports, fails.
    """
    world, clock = World(tmp_path), FakeClock(START + 10)
    published = world.publish()
    with collecting() as collector:
        async with listening() as (address, heard):
            config = world.config(address, tracing={"endpoint": collector.endpoint})
            async with Shuffler(config, clock=clock) as shuffler:
                channel = build_channel(
                    f"127.0.0.1:{shuffler.port}", CA.cert_pem, private_pool=True
                )
                send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                send = channel.unary_unary(SUBMIT)
                for window, count in enumerate((3, 9)):
                    clock.time = START + window * LENGTH + GRACE + 10
                    for _ in range(count):
                        frame = submit(published.frame(window=window))
                        await send(frame, timeout=10, metadata=HEADERS)
                assert collector.calls == []  # of an open window there is nothing to tell
                clock.time = START + 2 * LENGTH + GRACE
                for _ in range(3):
                    await shuffler.lifecycle.tick()
                    await shuffler.lifecycle.settle()
                await channel.close()
    assert {path for path, _ in heard.calls} >= {"/shoal.v1.Delivery/Offer"}
    ours = {name for name, _ in HEADERS}
    assert not [headers for _, headers in heard.calls if ours & headers.keys()]
    assert THEIRS not in str(heard.calls) + str(collector.calls)
    assert "alice" not in str(collector.calls)
    steps = {
        window: sorted(
            {(one["name"], *words(one)) for one in collector.spans if _window(one) == window}
        )
        for window in ("0", "1")
    }
    assert steps["0"] == steps["1"]
    assert {name for name, *_ in steps["0"]} == {"seal", "deliver"}
    assert len({one["traceId"] for one in collector.spans}) == 2
    seals = [_window(one) for one in collector.spans if one["name"] == "seal"]
    assert sorted(seals) == ["0", "1"]


def _window(span: dict[str, object]) -> str:
    return words(span)["shoal.window"]
