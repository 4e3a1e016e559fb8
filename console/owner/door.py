"""The door of an owner's console: a word that one address has, once, becomes a cookie.

Whoever else has an account on this machine reaches its loopback too. So nothing is shown to a
browser that never had the address; and the address opens once, because it stays behind, in a
terminal or a browser's history.
"""

from __future__ import annotations

import hmac
import secrets
from threading import Lock

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from shoal.console.signin.gate import Gate, Refuses, cookie_of
from shoal.console.signin.visitors import HERE, Visitor, set_visitor

OPENING = "/open"
_STATIC = "/static/"
_STRANGER = (
    "only this device's owner sees this: open the address that `shoal agent console` printed, or "
    "start it again, where that was opened before"
)
SPENT = (
    "this address opens once, and was opened or never was one: start `shoal agent console` again "
    "for a new one"
)


class Door(Gate):
    """``word``: in the address to be opened; never to be logged."""

    way = "owner"

    def __init__(self) -> None:
        super().__init__(None)
        self.word = secrets.token_urlsafe(32)
        # of forms: another site's page, even with the cookie, can't know it
        self.seal = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        # browsers give a cookie to every port of a machine: each console has a name of its own
        self._cookie = f"shoal-owner-{secrets.token_hex(4)}"
        self._turn, self._opened = Lock(), False

    def __repr__(self) -> str:
        return "Door(...)"

    def visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        """The owner, by the cookie; else nobody."""
        return HERE if _same(cookie_of(headers, self._cookie), self._session) else None

    def open(self, request: Request) -> bool:
        """Whether this request has the word, now for the only time. What it is answered with then
        goes through ``let_in``.
        """
        word = request.query_params.get("word", "")
        with self._turn:
            fits = request.method == "GET" and not self._opened and _same(word, self.word)
            self._opened = self._opened or fits
        if fits:
            set_visitor(request.scope, HERE)
        return fits

    def let_in(self, answer: Response) -> Response:
        """The answer, with the cookie by which the owner is known from now on."""
        answer.set_cookie(self._cookie, self._session, path="/", httponly=True, samesite="strict")
        return answer

    def _pass(self, request: Request, pages: Refuses) -> Response | None:
        visitor = self.visitor(request.scope, request.headers)
        if visitor is not None:
            set_visitor(request.scope, visitor)
        path = request.url.path
        if visitor is not None or path == OPENING or path.startswith(_STATIC):
            return None
        return pages.refusal(request, _STRANGER, 403, "")


def _same(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), kept.encode())
