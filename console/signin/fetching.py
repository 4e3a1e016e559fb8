"""Asking a sign-in provider: HTTPS, no proxy, no redirect, a small answer, soon."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback

_PATIENCE_S = 10.0  # for the whole of an answer
_MOST = 256 * 1024  # bytes of an answer
_NOT_YET, _OVER = 9, 10  # OpenSSL's: a certificate that is not valid yet, or no more


class _Here(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """An answer that leads elsewhere is none."""


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """``status`` of HTTP; ``body``: the JSON object, empty for anything else. ``date``: Unix
    seconds that the provider's own clock showed; None if it didn't say.
    """

    status: int
    body: Mapping[str, Any]
    date: float | None


@dataclass(frozen=True, slots=True)
class Fetcher:
    """``issuer``: for messages. ``tls``: whom to trust."""

    issuer: str
    tls: ssl.SSLContext = field(repr=False)

    @classmethod
    def trusting(cls, issuer: str, ca: Path | None) -> Fetcher:
        """``ca``: None trusts whom this machine trusts. Raises KEY_FILE."""
        try:
            return cls(issuer, ssl.create_default_context(cafile=str(ca) if ca else None))
        except (OSError, ssl.SSLError):
            raise ShoalError(Kind.KEY_FILE, f"oidc.ca: {ca} is not a PEM certificate") from None

    def get(self, url: str) -> ProviderAnswer:
        """``url``: one that ``is_sound``. Raises UNAVAILABLE, which names the provider."""
        return self._ask(urllib.request.Request(url))  # noqa: S310 - ``is_sound``

    def post(self, url: str, form: Mapping[str, str], authorization: str = "") -> ProviderAnswer:
        """Raises UNAVAILABLE, which names the provider."""
        data = urllib.parse.urlencode(form).encode()
        headers = {"Authorization": authorization} if authorization else {}
        return self._ask(urllib.request.Request(url, data, headers))  # noqa: S310

    def _ask(self, request: urllib.request.Request) -> ProviderAnswer:
        request.add_header("Accept", "application/json")
        ways = (
            urllib.request.ProxyHandler({}),
            _Here(),
            urllib.request.HTTPSHandler(context=self.tls),
        )
        over = time.monotonic() + _PATIENCE_S
        try:
            with urllib.request.build_opener(*ways).open(request, timeout=_PATIENCE_S) as reply:
                return _answer(reply.status, reply.headers, _read(reply, over))
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error.read(_MOST))
        except urllib.error.URLError as error:
            raise self._away(error.reason) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._away(error) from None

    def _away(self, reason: object) -> ShoalError:
        why = "it does not answer"
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = "its certificate is not one that oidc.ca trusts"
            if reason.verify_code in {_NOT_YET, _OVER}:
                now = f"{datetime.now(UTC):%d %b %Y, %H:%M} UTC"
                why = f"its certificate is not valid at {now}: look at this machine's clock"
        return ShoalError(
            Kind.UNAVAILABLE,
            f"the sign-in provider {self.issuer} can't be reached: {why}. Who is signed in "
            "stays so",
        )


def is_sound(url: str) -> bool:
    """Whether an address of a provider has TLS, or is on this machine."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    here = parts.scheme == "http" and is_loopback(host)
    return bool(host) and (parts.scheme == "https" or here)


def _read(reply: http.client.HTTPResponse, over: float) -> bytes:
    data = b""
    while part := reply.read1(_MOST + 1 - len(data)):
        data += part
        if len(data) > _MOST:
            raise ValueError("too much")
        if time.monotonic() > over:
            raise TimeoutError
    return data


def _answer(status: int, headers: Any, body: bytes) -> ProviderAnswer:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    try:
        date = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (TypeError, ValueError, OverflowError):
        date = None
    return ProviderAnswer(status, said if isinstance(said, dict) else {}, date)
