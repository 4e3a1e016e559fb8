"""What stands before every page: whose name was asked for, and who sent the browser here.

A page on loopback is reached by any web site that a browser of this machine has open: under a name
of its own that it lets point here (DNS rebinding), or by a form that it submits. So a request names
a host that is ours, and comes from a page of ours or from the user's own hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.rpc.access import OWN_HOSTS, host_of
from shoal.rpc.address import parse_address

_READS = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_MOST_BODY = 64 * 1024  # bytes of a form
_TLS_ALONE = "max-age=31536000"
_WRONG_HOST = "not a name of this console: ask for the address that it printed"
_WRONG_ORIGIN = "this was sent by another site: open the console, and do it there"
_WRONG_METHOD = "the console knows GET, HEAD and POST"
_TOO_LARGE = "a form of the console is smaller than that"


def guarded(
    app: ASGIApp, address: str, hosts: frozenset[str], headers: Mapping[str, str]
) -> ASGIApp:
    """``app`` for requests that ask for it as ``address`` (HOST:PORT), a name of loopback or one of
    ``hosts``, and that no other site sent. Every answer gets ``headers``, but those that it has.
    """
    own = OWN_HOSTS | {parse_address(address, "listen")[0].strip("[]").lower()}
    names = frozenset(own | {host.lower() for host in hosts})

    async def before(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return

        scheme = scope["scheme"]  # of the socket: no header has a say in it

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                for name, value in headers.items():
                    given.setdefault(name, value)
                if scheme == "https":
                    given.setdefault("strict-transport-security", _TLS_ALONE)
            await send(message)

        refused = _refusal(scope["method"], scheme, Headers(scope=scope), names)
        if refused is None:
            await app(scope, receive, with_headers)
        else:
            await _answer(with_headers, *refused)

    return before


def _named(host: str) -> str:
    return host_of(host.encode("latin-1"))


def _refusal(
    method: str, scheme: str, headers: Headers, names: frozenset[str]
) -> tuple[int, str] | None:
    """None for a request that may pass, else the HTTP status and why not."""
    host = headers.getlist("host")
    if len(host) != 1 or not _HOST.fullmatch(host[0]) or _named(host[0]) not in names:
        return 421, _WRONG_HOST
    if method not in _READS and method != "POST":
        return 405, _WRONG_METHOD
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > _MOST_BODY or "transfer-encoding" in headers:
        return 413, _TOO_LARGE
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host[0]}".lower():
        return 403, _WRONG_ORIGIN
    if method in _READS:
        # a link on another page may lead here; a picture, script or frame of it may not be ours
        strange = site not in {None, "none", "same-origin"}
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get(
            "sec-fetch-dest", "document"
        ) in {"document", "empty"}
        return (403, _WRONG_ORIGIN) if strange and not followed else None
    # every browser says where a form was: one that doesn't is none of this machine's users
    known = origin is not None and site in {None, "same-origin"}
    return None if known else (403, _WRONG_ORIGIN)


async def _answer(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
