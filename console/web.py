"""A console's frame: pages from templates, their headers, refusals in place, and what is served
beside them. Both consoles are made of it, the operator's and a device owner's.

Pages are plain HTML with forms, and work without a script. Nothing is loaded from anywhere else,
nothing runs that is not a file of ours (``_POLICY``), and no page is kept by a cache.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from shoal.console.guard import guarded
from shoal.console.signin.gate import SIGN_IN, SIGN_OUT, Gate
from shoal.console.signin.visitors import Visitor, visitor_of
from shoal.console.words import FILTERS
from shoal.errors import Kind, ShoalError
from shoal.log import get_log

log = get_log("console")

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    # under "no-referrer" browsers say of their own forms that they come from nowhere
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_STATUS = {
    Kind.INVALID: 400,
    Kind.CONFIG: 400,
    Kind.UNAUTHENTICATED: 401,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.UNKNOWN_TASK: 404,
    Kind.OVERLOADED: 503,
    Kind.UNAVAILABLE: 503,
}
_NO_PAGE = "there is no such page here: choose one of those above"


@dataclass(frozen=True, slots=True)
class NavItem:
    """One entry of the navigation. ``path``: where it leads, from the root on. ``acting``: it is
    for operators alone.
    """

    name: str
    path: str
    acting: bool = False


class Frame:
    """One console. ``package``: whose folder ``templates`` holds its pages, beside the common ones
    of ``shoal.console``; ``around``: values that every page shows, asked for at each;
    ``foot``: the line below them.
    """

    def __init__(
        self,
        title: str,
        package: str,
        navigation: Sequence[NavItem],
        around: Callable[[Request], Mapping[str, Any]],
        foot: str = "Counts and releases, never reports.",
    ) -> None:
        self._foot = foot
        self._around, self._navigation, self.title = around, tuple(navigation), title
        self._environment, self._gated = _environment(package), False

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """The page that ``template`` makes of ``values``."""
        path, visitor = request.url.path, visitor_of(request)
        shown = [item for item in self._navigation if _may_see(visitor, item)]
        at = next((item for item in shown if _below(path, item.path)), None)
        text = self._environment.get_template(template).render(
            {**self._around(request), **values} if self._known(request) else values,
            site=self.title,
            foot=self._foot,
            navigation=shown if self._known(request) else (),
            visitor=visitor if visitor is not None and visitor.way != "loopback" else None,
            sign_out=SIGN_OUT,
            at=at,
            version=_version(),
        )
        return HTMLResponse(text, status)

    def _known(self, request: Request) -> bool:
        return not self._gated or visitor_of(request) is not None

    def refusal(self, request: Request, text: str, status: int, again: str) -> Response:
        """A page that says why not. ``again``: the page to come to by signing in; "" where that
        would not help.
        """
        where = f"{SIGN_IN}?{urllib.parse.urlencode({'to': again})}" if again else ""
        return self.page(
            request, "refused.html.j2", status=status, text=text, code=status, sign_in=where
        )

    def app(
        self,
        routes: Sequence[BaseRoute],
        address: str,
        hosts: frozenset[str],
        gate: Gate | None = None,
    ) -> ASGIApp:
        """The whole site, for who asks for it under the name of ``address`` (HOST:PORT) or of
        ``hosts``, and whom ``gate`` lets in: None lets in everybody.
        """
        self._gated = gate is not None
        own = [] if gate is None else gate.routes(self)
        app: ASGIApp = Starlette(
            routes=[*routes, *own, Route("/static/{name}", _static)],
            exception_handlers={
                ShoalError: self._refuse,
                HTTPException: self._refuse,
                Exception: self._fail,
            },
        )
        if gate is not None:
            app = gate.around(app, self)
        return guarded(app, address, hosts, HEADERS)

    def _refuse(self, request: Request, error: Exception) -> Response:
        if isinstance(error, ShoalError):
            return self._say(request, str(error), _STATUS.get(error.kind, 500))
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._say(request, _NO_PAGE if status == 404 else str(error.args[-1]), status)

    def _fail(self, request: Request, error: Exception) -> Response:
        log.error("a page failed", error=type(error).__name__)
        text = f"unexpected {type(error).__name__}: a bug; the console's log names the page"
        return self._say(request, text, 500)

    def _say(self, request: Request, text: str, status: int) -> Response:
        return self.refusal(request, text, status, "")


def _may_see(visitor: Visitor | None, item: NavItem) -> bool:
    return not item.acting or (visitor is not None and visitor.acts)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _environment(package: str) -> Environment:
    """Templates of ``package`` come first, then those that all consoles share."""

    def load(name: str) -> str | None:
        for home in (package, "shoal.console"):
            file = importlib.resources.files(home).joinpath("templates", name)
            if file.is_file():
                return file.read_text(encoding="utf-8")
        return None

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(FILTERS)
    return environment


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    # the address of a file names its version: a browser may keep it
    keep = {"cache-control": "public, max-age=86400, immutable"}
    return Response(_file(name), media_type=_STATIC[name], headers=keep)


@functools.cache
def _file(name: str) -> bytes:
    return importlib.resources.files("shoal.console").joinpath("static", name).read_bytes()


@functools.cache
def _version() -> str:
    return hashlib.sha256(b"".join(map(_file, sorted(_STATIC)))).hexdigest()[:12]
