"""Connections to a console: nobody holds one for long by being slow, and a client certificate is
taken from TLS and from nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.console.signin.visitors import CERTIFICATE

REQUEST_S = 20.0  # from the first byte of a request, or from the start, to its last
ANSWER_S = 120.0  # until an answer is made and taken, a large download too


class Connection(H11Protocol):
    """One browser's. uvicorn itself ends those that are idle after an answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._due: asyncio.TimerHandle | None = None
        self._owes_request = True  # else an answer is owed to it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Of those that are over the limit, the one that has owed a request longest goes."""
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) + 1 >= limit:
            waiting = [one for one in self.connections if isinstance(one, Connection)]
            longest = min(
                (one for one in waiting if one._owes_request and one._due is not None),
                key=lambda one: one._due.when(),  # type: ignore[union-attr]
                default=None,
            )
            if longest is not None:
                longest.end()
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        inner = self.app

        async def with_certificate(scope: Scope, receive: Receive, send: Send) -> None:
            scope[CERTIFICATE] = certificate
            await inner(scope, receive, send)

        self.app = with_certificate
        self._owe(request=True)

    def handle_events(self) -> None:
        """A byte at a time buys no time: the limit is that of the whole request."""
        super().handle_events()
        if self.transport.is_closing():
            return
        request = self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
        if request != self._owes_request or self._due is None:
            self._owe(request=request)

    def on_response_complete(self) -> None:
        """From now on uvicorn's own limit holds, until another request begins."""
        self._settled()
        self._owes_request = True
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._settled()
        super().connection_lost(exc)

    def end(self) -> None:
        """At once: who was slow to ask is slow to listen."""
        self.connections.discard(self)
        self.transport.abort()

    def _owe(self, *, request: bool) -> None:
        self._settled()
        self._owes_request = request
        self._due = self.loop.call_later(REQUEST_S if request else ANSWER_S, self.end)

    def _settled(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
