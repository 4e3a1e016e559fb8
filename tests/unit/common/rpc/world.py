"""Real servers and channels on loopback with certificates of a small authority, for the tests of
shoal.rpc.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import grpc

from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.rpc.call import Call
from shoal.rpc.channel import build_channel
from shoal.rpc.server import Method, RpcServer, Service
from shoal.rpc.tls import TlsIdentity

SERVICE = "shoal.test.Echo"
OURS = "test authority"


@cache
def authority(name: str) -> Identity:
    return make_authority(name)


@cache
def identity(
    san: tuple[str, ...], *, server: bool = False, client: bool = False, by: str = OURS
) -> TlsIdentity:
    """A certificate of the authority ``by``; servers know OURS as their client CA."""
    made = issue(authority(by), "somebody", san, server=server, client=client, days=2)
    return TlsIdentity(made.cert_pem, made.key_pem, authority(OURS).cert_pem if server else None)


def server_identity(
    *, client_ca: bool = False, san: tuple[str, ...] = ("127.0.0.1",)
) -> TlsIdentity:
    one = identity(san, server=True)
    return one if client_ca else TlsIdentity(one.certificate, one.key)


async def echo(request: bytes, call: Call) -> bytes:
    return request


async def total(messages: AsyncIterator[bytes], call: Call) -> bytes:
    return str(sum([len(message) async for message in messages])).encode()


METHODS = {"Echo": Method(1_000, echo), "Total": Method(1_000, stream_handler=total)}


@asynccontextmanager
async def served(
    methods: Mapping[str, Method] = METHODS, *, peers: frozenset[str] | None = None
) -> AsyncIterator[str]:
    """A TLS server with one service; its address."""
    server = RpcServer(
        "127.0.0.1:0",
        [Service(SERVICE, methods, peers)],
        server_identity(client_ca=peers is not None),
    )
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def connected(
    address: str, client: TlsIdentity | None = None, ca: bytes | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    channel = build_channel(
        address, ca or authority(OURS).cert_pem, client=client, private_pool=True
    )
    try:
        yield channel
    finally:
        await channel.close()


@asynccontextmanager
async def both(methods: Mapping[str, Method] = METHODS) -> AsyncIterator[grpc.aio.Channel]:
    """A server and a channel to it."""
    async with served(methods) as address, connected(address) as channel:
        yield channel


def path(method: str = "Echo") -> str:
    return f"/{SERVICE}/{method}"


async def messages(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
