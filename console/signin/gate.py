"""What stands between the guard and the pages: nobody sees a page before they are known, a viewer
does nothing but look, and what is done is in the audit before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shoal.console.signin.audit import Audit
from shoal.console.signin.certificates import visitor as certified
from shoal.console.signin.sessions import WHOLE_S, Sessions
from shoal.console.signin.visitors import CERTIFICATE, HERE, Roles, Visitor, set_visitor, visitor_of
from shoal.errors import Kind, ShoalError
from shoal.log import get_log

if TYPE_CHECKING:  # the extra [oidc]
    from shoal.console.signin.oidc import Provider

log = get_log("console")

SIGN_IN, SIGNED_IN, SIGN_OUT = "/sign-in", "/sign-in/done", "/sign-out"
_OPEN = ("/static/",)  # for everybody: what the page that asks to sign in is made of
_TAKES = "/download/"
_SESSION, _BEGUN = "__Host-shoal", "__Host-shoal-begun"
_KEPT = {"secure": True, "httponly": True, "samesite": "lax", "path": "/"}
_START = "/releases"
_TOLD_EACH_S, _TOLD_MOST = (
    60.0,
    20,
)  # refusals that the audit takes, of strangers and of each visitor


class Refuses(Protocol):
    """Draws the page for who may not pass."""

    def refusal(self, request: Request, text: str, status: int, again: str) -> Response:
        """``again``: where one signs in; "" where that is nowhere."""


class Gate:
    """One way to be known. ``audit``: None where nobody signs in and nothing is kept."""

    way = "loopback"

    def __init__(self, audit: Audit | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.audit, self._clock, self._lock = audit, clock, Lock()
        self._told: dict[str, list[float]] = {}  # when refusals were, of whom; "" is strangers
        self._untold: dict[str, int] = {}

    def visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        """Who asks; None for nobody that is known."""
        return HERE

    def routes(self, pages: Refuses) -> list[BaseRoute]:
        """Those on which one signs in and out."""
        return []

    def again(self, request: Request) -> tuple[str, str]:
        """(why somebody is not known, where they sign in or "")."""
        return "", ""

    def tell(self, what: str, visitor: Visitor, **detail: str | int | float) -> None:
        """Into the audit, before it is done. Raises UNAVAILABLE."""
        if self.audit is not None:
            self.audit.write(what, visitor.who, visitor.way, visitor.role.value, **detail)

    def tell_stranger(self, what: str, why: str) -> None:
        """A refusal. Many at once are counted and not written one by one: nobody fills the disk."""
        if self.audit is None:
            return
        more = self._counted("")
        if more is None:
            return
        try:
            self.audit.write(what, "", self.way, "", why=why, **more)
        except ShoalError as error:
            log.error("the audit cannot be written", error=error)

    def _tell_refused(self, visitor: Visitor, asked: str) -> None:
        """As those of strangers, each person for themselves. Raises UNAVAILABLE."""
        more = self._counted(visitor.who)
        if more is not None:
            self.tell("refused", visitor, asked=asked, **more)

    def _counted(self, who: str) -> dict[str, int] | None:
        """None where this refusal of theirs is counted alone; else those counted since the last."""
        with self._lock:
            now = self._clock()
            recent = [at for at in self._told.get(who, ()) if now - at < _TOLD_EACH_S]
            if len(recent) >= _TOLD_MOST:
                self._untold[who] = self._untold.get(who, 0) + 1
                return None
            self._told[who] = [*recent, now]
            more = self._untold.pop(who, 0)
            return {"more": more} if more else {}

    def around(self, app: ASGIApp, pages: Refuses) -> ASGIApp:
        """``app`` for those who are known."""

        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request = Request(scope, receive)
            try:
                refused = await run_in_threadpool(self._pass, request, pages)
            except ShoalError as error:
                refused = pages.refusal(request, str(error), 503, "")
            await (app if refused is None else refused)(scope, receive, send)

        return gated

    def _pass(self, request: Request, pages: Refuses) -> Response | None:
        """None for who may go on. Raises UNAVAILABLE if that can't be audited."""
        # as routes see it: what a Host header says has no part in it
        path, acts = str(request.scope["path"]), request.method == "POST"
        visitor = self.visitor(request.scope, request.headers)
        if visitor is not None:
            set_visitor(request.scope, visitor)
        if path.startswith(_OPEN) or path in {SIGN_IN, SIGNED_IN}:
            return None
        if visitor is None:
            why, again = self.again(request)
            if acts or path.startswith(_TAKES):
                self.tell_stranger("refused", f"{request.method} {path[:200]}")
            return pages.refusal(request, why, 401, again)
        if acts and path != SIGN_OUT and not visitor.acts:
            self._tell_refused(visitor, f"POST {path[:200]}")
            return pages.refusal(request, "a viewer looks: ask an operator to do that", 403, "")
        if acts or path.startswith(_TAKES):
            self.tell("does" if acts else "takes", visitor, path=path[:200])
        return None


class CertificateGate(Gate):
    """By the certificate that TLS verified for the connection. Headers say nothing."""

    way = "certificate"

    def __init__(self, audit: Audit, roles: Roles) -> None:
        super().__init__(audit)
        self._roles = roles

    def visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        """See ``Gate``."""
        return certified(scope.get(CERTIFICATE), self._roles)

    def again(self, request: Request) -> tuple[str, str]:
        """See ``Gate``."""
        self.tell_stranger("refused", "a certificate without a role")
        return "your certificate has no role here: ask who runs this console", ""


class OidcGate(Gate):
    """By a session that began with a provider's word."""

    way = "oidc"

    def __init__(self, audit: Audit, provider: Provider, sessions: Sessions) -> None:
        super().__init__(audit)
        self._provider, self._sessions = provider, sessions

    def visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        """See ``Gate``. What a page asks by itself keeps no session alive."""
        token = cookie_of(headers, _SESSION)
        by_hand = headers.get("sec-fetch-mode", "navigate") == "navigate"
        return self._sessions.find(token, by_hand=by_hand) if token else None

    def again(self, request: Request) -> tuple[str, str]:
        """See ``Gate``."""
        page = str(request.scope["path"]) if request.method == "GET" else _START
        if request.method == "GET" and request.url.query:
            page = f"{page}?{request.url.query}"
        return "sign in to see this", page

    def routes(self, pages: Refuses) -> list[BaseRoute]:
        """See ``Gate``."""

        def sign_in(request: Request) -> Response:
            try:
                begun = self._provider.begin(own_page(request.query_params.get("to", "")))
            except ShoalError as error:
                return pages.refusal(request, str(error), 503, _START)
            answer = RedirectResponse(begun.url, 303)
            answer.set_cookie(_BEGUN, begun.cookie, max_age=600, **_KEPT)  # type: ignore[arg-type]
            return answer

        def signed_in(request: Request) -> Response:
            query = dict(request.query_params)
            try:
                arrived = self._provider.finish(query, cookie_of(request.headers, _BEGUN))
                self.tell("signs in", arrived.visitor)
            except ShoalError as error:
                self.tell_stranger("refused to sign in", str(error)[:300])
                status = {Kind.UNAUTHENTICATED: 401, Kind.FORBIDDEN: 403}.get(error.kind, 503)
                answer = pages.refusal(request, str(error), status, _START)
            else:
                known = visitor_of(request)
                if known is not None:
                    self._sessions.end(known.session)
                token = self._sessions.begin(arrived.visitor)
                answer = RedirectResponse(arrived.page, 303)
                answer.set_cookie(_SESSION, token, max_age=int(WHOLE_S), **_KEPT)  # type: ignore[arg-type]
            answer.delete_cookie(_BEGUN, **_KEPT)  # type: ignore[arg-type]
            return answer

        def sign_out(request: Request) -> Response:
            visitor = visitor_of(request)
            if visitor is not None:
                self._sessions.end(visitor.session)
            answer = pages.refusal(request, "you are signed out", 200, _START)
            answer.delete_cookie(_SESSION, **_KEPT)  # type: ignore[arg-type]
            return answer

        return [
            Route(SIGN_IN, sign_in),
            Route(SIGNED_IN, signed_in),
            Route(SIGN_OUT, sign_out, methods=["POST"]),
        ]


def own_page(asked: str) -> str:
    """A page of this console to go to; its first one for anything that a browser may take for
    another site's.
    """
    letters = all("!" <= each <= "~" and each != "\\" for each in asked)
    fits = asked.startswith("/") and not asked.startswith("//") and letters and len(asked) <= 1_000
    return asked if fits and not asked.startswith((SIGN_IN, SIGN_OUT)) else _START


def cookie_of(headers: Headers, name: str) -> str:
    """ "" where there is none, and where there are several of the name: one was put there."""
    found = []
    for line in headers.getlist("cookie"):
        for part in line.split(";"):
            key, _, value = part.strip().partition("=")
            found += [value] if key == name else []
    return found[0] if len(found) == 1 else ""
