"""An OpenID Connect provider of our own, with real keys, on loopback: a peer of the console. It
can be told to lie.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "shoal-console", "s3cret-of-the-console"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
_Claims = dict[str, Any]


@dataclass
class Person:
    """Who is at the browser, as the provider knows them."""

    sub: str = "ada-1"
    groups: tuple[str, ...] = ("operators",)
    email: str = "ada@people.example"
    email_verified: bool = True


@dataclass
class Peer:
    """``issuer``: its address. ``lie``: changes claims before they are signed; ``sign``: makes the
    token itself; ``ahead_s``: its clock against ours.
    """

    issuer: str
    person: Person = field(default_factory=Person)
    lie: Callable[[_Claims], _Claims] = lambda claims: claims
    sign: Callable[[_Claims], str] | None = None
    ahead_s: float = 0.0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def app(self) -> Starlette:
        """Its four pages."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata),
                Route("/keys", self._keys),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def _metadata(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    def _keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [KEY.as_dict(private=False)]})

    def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = urllib.parse.urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 303)

    async def _token(self, request: Request) -> Response:
        sent = dict(urllib.parse.parse_qsl((await request.body()).decode()))
        asked = self.codes.pop(sent.get("code", ""), None)
        known = f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
        if (
            asked is None
            or request.headers.get("authorization") != known
            or sent["redirect_uri"] != asked["redirect_uri"]
            or _challenge(sent["code_verifier"]) != asked["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time() + self.ahead_s)
        claims = self.lie(
            {
                "iss": self.issuer,
                "aud": CLIENT,
                "nonce": asked["nonce"],
                "iat": now,
                "exp": now + 300,
                **vars(self.person),
                "groups": list(self.person.groups),
            }
        )
        sign = self.sign or (lambda told: jwt.encode({"alg": "RS256", "kid": "one"}, told, KEY))
        return JSONResponse({"id_token": sign(claims), "access_token": "a", "token_type": "Bearer"})


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@contextmanager
def provider() -> Iterator[Peer]:
    """A running one."""
    bound = socket.create_server(("127.0.0.1", 0))
    peer = Peer(f"http://127.0.0.1:{bound.getsockname()[1]}")
    config = uvicorn.Config(peer.app(), log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        server.should_exit = True
        thread.join()
