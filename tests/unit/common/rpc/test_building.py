"""The one builder of servers and the one of channels: TLS or refuse, one server per port, a clean
start and stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.call import Call
from shoal.rpc.channel import build_channel, call
from shoal.rpc.server import Method, RpcServer, Service
from shoal.rpc.tls import TlsIdentity
from tests.cases import for_each
from tests.unit.common.rpc.world import (
    METHODS,
    OURS,
    SERVICE,
    authority,
    both,
    connected,
    echo,
    path,
    served,
    server_identity,
)

ECHO = [Service(SERVICE, METHODS)]


def refused(
    kind: Kind,
    address: str,
    services: list[Service],
    tls: TlsIdentity | None,
    *,
    insecure: bool = False,
) -> str:
    with pytest.raises(ShoalError) as caught:
        RpcServer(address, services, tls, insecure=insecure)
    assert caught.value.kind is kind
    return caught.value.message


@for_each(
    "address",
    ["0.0.0.0:0", "10.0.0.1:7443", "[::]:7443", "shuffler.example:7443", "127.0.0.1.example:1"],
)
def test_no_server_without_tls_off_this_machine(address: str) -> None:
    """Asked for by name or not. Planted: ``insecure or loopback`` -> this fails."""
    for insecure in (False, True):
        assert "without TLS" in refused(Kind.CONFIG, address, ECHO, None, insecure=insecure)
    with pytest.raises(ShoalError, match="only loopback") as caught:
        build_channel(address, None, insecure=True)
    assert caught.value.kind is Kind.CONFIG


def test_on_this_machine_it_must_be_asked_for_by_name() -> None:
    assert "without TLS" in refused(Kind.CONFIG, "127.0.0.1:0", ECHO, None)
    with pytest.raises(ShoalError, match="CA certificate"):
        build_channel("127.0.0.1:1", None)
    with pytest.raises(ShoalError, match="CA certificate"):
        build_channel("127.0.0.1:1", b"")


async def test_insecure_loopback_works_when_asked_for() -> None:
    server = RpcServer("127.0.0.1:0", ECHO, None, insecure=True)
    address = f"127.0.0.1:{await server.start()}"
    channel = build_channel(address, None, insecure=True)
    assert await call(channel, path(), b"x", 30.0) == b"x"
    await channel.close()
    await server.stop(0)


@for_each(
    "address", ["", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "unix:/run/x:1", "dns:///a:1"]
)
def test_addresses_that_are_none(address: str) -> None:
    message = refused(Kind.CONFIG, address, ECHO, server_identity())
    assert message == f'listen: "{address}" is not HOST:PORT, for example 127.0.0.1:7443'
    with pytest.raises(ShoalError, match="is not HOST:PORT"):
        build_channel(address, authority(OURS).cert_pem)


@contextlib.contextmanager
def trap(listening: socket.socket) -> Iterator[list[bytes]]:
    """What anybody sends to this socket, once the block is left: connections that came meanwhile
    wait in its backlog.
    """
    caught: list[bytes] = []
    with listening:
        yield caught
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection, _ = listening.accept()
            caught.append(b"connected")
            connection.close()


def test_what_is_for_this_machine_goes_through_no_proxy() -> None:
    """gRPC would send frames to whatever http_proxy names: in clear text without TLS, and with it
    to somebody who knows no such service. Planted: grpc.enable_http_proxy left out -> this fails.

    In a process of its own: the environment of one with threads of gRPC can't be changed safely.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    proxy = f"http://127.0.0.1:{listening.getsockname()[1]}"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in {"no_proxy", "no_grpc_proxy"}
    }
    environment.update(dict.fromkeys(("grpc_proxy", "http_proxy", "https_proxy"), proxy))
    with trap(listening) as caught:
        done = subprocess.run(
            [sys.executable, "-c", _DIAL],
            input=authority(OURS).cert_pem.decode(),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout == "UNAVAILABLE\n" * 2, done.stderr
    assert not caught


# Calls a port where nobody listens, without TLS and with it.
_DIAL = """
import asyncio, socket, sys
from shoal.errors import ShoalError
from shoal.rpc.channel import build_channel, call

async def main(port, ca):
    for given in (None, ca):
        channel = build_channel(f"127.0.0.1:{port}", given, insecure=given is None)
        try:
            await call(channel, "/a.B/C", b"x", 10.0)
        except ShoalError as error:
            print(error.kind.name)
        await channel.close()

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
asyncio.run(main(port, sys.stdin.buffer.read()))
"""


async def test_a_host_is_never_taken_for_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that names the shuffler "unix:1234" means a host: no socket file is opened. Planted:
    no dns:/// -> this fails.
    """
    monkeypatch.chdir(tmp_path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("1234")
    listening.listen()
    with trap(listening) as caught:
        channel = build_channel("unix:1234", authority(OURS).cert_pem, private_pool=True)
        with pytest.raises(ShoalError) as error:
            await call(channel, path(), b"x", 2.0)
        await channel.close()
    assert error.value.kind in {Kind.UNAVAILABLE, Kind.DEADLINE}
    assert not caught


def test_what_is_on_this_machine() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::1"]))
    assert not any(
        map(
            is_loopback,
            [
                "0.0.0.0",
                "[::]",
                "10.0.0.1",
                "localhost.example",
                "127.0.0.1.example",
                "",
                "shuffler",
            ],
        )
    )
    assert parse_address("[::1]:7443", "listen") == ("[::1]", 7443)


def test_wrong_assemblies_are_refused() -> None:
    """Planted: dropping the client_ca check -> a service for named peers that anybody may call, and
    this fails.
    """
    named = Service(SERVICE, METHODS, frozenset({"shuffler.internal"}))
    assert "client_ca" in refused(Kind.CONFIG, "127.0.0.1:0", [named], server_identity())
    assert "client_ca" in refused(Kind.CONFIG, "127.0.0.1:0", [named], None, insecure=True)
    assert "twice" in refused(Kind.CONFIG, "127.0.0.1:0", ECHO * 2, server_identity())
    for arguments in ({}, {"handler": echo, "stream_handler": METHODS["Total"].stream_handler}):
        with pytest.raises(ShoalError, match="either") as caught:
            Method(1, **arguments)  # type: ignore[arg-type]  # that is the point
        assert caught.value.kind is Kind.CONFIG


def test_a_ca_that_is_none() -> None:
    with pytest.raises(ShoalError, match="its CA is not a PEM certificate") as caught:
        build_channel("127.0.0.1:1", b"-----BEGIN NONSENSE-----")
    assert caught.value.kind is Kind.KEY_FILE


async def test_a_port_in_use() -> None:
    """The second server fails to bind and takes none of the first one's traffic. Planted:
    so_reuseport at its default -> this fails.
    """
    async with served() as address:
        second = RpcServer(address, ECHO, server_identity())
        with pytest.raises(ShoalError) as caught:
            await second.start()
        assert caught.value.kind is Kind.PORT_IN_USE
        assert address in caught.value.message
        await second.stop(0)
        async with connected(address) as channel:
            assert await call(channel, path(), b"x", 30.0) == b"x"
    third = RpcServer(address, ECHO, server_identity())
    await third.start()
    await third.stop(0)


async def test_an_address_of_another_machine() -> None:
    """192.0.2.1 is nobody's (RFC 5737)."""
    server = RpcServer("192.0.2.1:7443", ECHO, server_identity())
    with pytest.raises(ShoalError, match="the address is not ours") as caught:
        await server.start()
    assert caught.value.kind is Kind.PORT_IN_USE


async def test_health_answers_per_service() -> None:
    """What probes of an orchestrator ask for; no client certificate and no size of ours stands in
    the way.
    """
    async with both() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs know no methods
        for name in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=30.0)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=30.0)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_stopping_lets_open_calls_finish() -> None:
    """Planted: stop(0) -> the open call is torn and this fails."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, call: Call) -> bytes:
        entered.set()
        await go.wait()
        return b"done"

    server = RpcServer(
        "127.0.0.1:0", [Service(SERVICE, {"Slow": Method(10, slow)})], server_identity()
    )
    async with connected(f"127.0.0.1:{await server.start()}") as channel:
        open_call = asyncio.create_task(call(channel, path("Slow"), b"", 60.0))
        await asyncio.wait_for(entered.wait(), 30.0)
        stopping = asyncio.create_task(server.stop(60.0))
        while not stopping.done():
            try:
                # until the server has begun to stop, this waits in the handler
                await call(channel, path("Slow"), b"", 0.2)
            except ShoalError as error:
                if error.kind is Kind.UNAVAILABLE:
                    break
        go.set()
        assert await open_call == b"done"
        await stopping
        with pytest.raises(ShoalError) as caught:
            await call(channel, path("Slow"), b"", 30.0)
        assert caught.value.kind is Kind.UNAVAILABLE
    await server.stop(0)


async def test_what_does_not_finish_in_time_is_retryable() -> None:
    """Nothing is left hanging: after the grace the caller hears UNAVAILABLE."""
    entered = asyncio.Event()

    async def stuck(request: bytes, call: Call) -> bytes:
        entered.set()
        await asyncio.Event().wait()
        return b""

    server = RpcServer(
        "127.0.0.1:0", [Service(SERVICE, {"Stuck": Method(10, stuck)})], server_identity()
    )
    async with connected(f"127.0.0.1:{await server.start()}") as channel:
        open_call = asyncio.create_task(call(channel, path("Stuck"), b"", 60.0))
        await asyncio.wait_for(entered.wait(), 30.0)
        await server.stop(0.05)
        with pytest.raises(ShoalError) as caught:
            await asyncio.wait_for(open_call, 30.0)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.retryable
