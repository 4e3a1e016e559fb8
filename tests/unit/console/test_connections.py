"""Browsers that are slow on purpose, and more of them than there is room for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Receive, Scope, Send

from shoal.console import connections, serving
from shoal.console.signin.visitors import CERTIFICATE

_ASKED = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
_POSTED = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab"
Work = Callable[[int], Awaitable[None]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    peer = str(scope[CERTIFICATE]).encode()
    client = str(scope["client"][0]).encode()
    told = peer + b" " + client + b" " + body
    headers = [(b"content-length", str(len(told)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def serving_to(work: Work, limit: int = 8) -> None:
    """``work`` gets the port of a console's server."""

    async def run() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        port, ready = bound.getsockname()[1], asyncio.Event()
        server = serving.server(app, bound, ready.set, limit=limit)
        serves = asyncio.create_task(server.serve())
        await ready.wait()
        try:
            async with asyncio.timeout(60):  # else what is wrong would never end
                await work(port)
        finally:
            server.should_exit = True
            await serves

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab"]
)
def test_who_does_not_finish_a_request_is_left(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Byte by byte buys no time. Planted: the limit begun anew with every byte -> it never ends.
    Planted: a body without a limit -> fails.
    """
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)

    async def work(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip()) if sent.startswith(b"GET") else None
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        finally:
            if dripping is not None:
                dripping.cancel()
            await closed(writer)

    serving_to(work)


def test_those_that_only_hold_a_connection_make_room() -> None:
    """Planted: no room made -> 503. Two requests over one connection go on."""

    async def work(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(_ASKED)
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b"None 127.0.0.1 ")
        for _, one in [*idle, (reader, writer)]:
            await closed(one)

    serving_to(work)


def test_what_a_header_says_of_a_browser_is_nothing() -> None:
    """Planted: proxy_headers left on -> the address of the header. Planted: the certificate taken
    from a header -> fails.
    """

    async def work(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = b"x-forwarded-for: 9.9.9.9\r\nx-ssl-client-cert: ada\r\nconnection: close\r\n"
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n" + said + b"\r\n")
        assert (await reader.read()).endswith(b"None 127.0.0.1 ")
        await closed(writer)

    serving_to(work)
