"""Signing in by OpenID Connect: the authorization code flow with PKCE, state and nonce.

What comes back by way of the browser is believed in nothing but the code: who somebody is stands in
a token that the provider gives to us alone, signed, for this console, now, and with the nonce that
this browser began with.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from threading import BoundedSemaphore, Lock
from typing import Any, cast

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from shoal.console.signin.fetching import Fetcher, ProviderAnswer, is_sound
from shoal.console.signin.visitors import Roles, Visitor, plain
from shoal.errors import Kind, ShoalError

# Signatures of providers. "none" and those with a shared secret are not among them.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_BEGUN_S = 600.0  # to sign in at the provider, from the first click on
_METADATA_S = 3_600.0  # between two readings of what the provider says of itself
_KEYS_S, _KEYS_AGAIN_S = 600.0, 10.0  # of its keys; and where a proof has none of them
_TALK_S = 2.0  # until one of the talks under way is over
_LEEWAY_S = 120  # between the provider's clock and ours
_DAY = 86_400
_TALKS = 4  # with the provider at once: one that hangs holds no more of our threads
_MOST_USED = 50_000
_ERROR = re.compile(r"[a-z_]{1,40}")
_AGAIN = "sign in again"


@dataclass(frozen=True, slots=True)
class Client:
    """This console as its provider knows it. ``redirect``: where browsers come back to. ``claim``:
    whose values have roles.
    """

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    redirect: str
    scopes: str
    claim: str
    roles: Roles


@dataclass(frozen=True, slots=True)
class Begun:
    """``url``: where the browser goes to sign in; ``cookie``: what it brings back, to be kept in a
    cookie until then.
    """

    url: str
    cookie: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """Who signed in, and the page that they had asked for."""

    visitor: Visitor
    page: str


class Provider:
    """``now``: Unix seconds; ``clock``: monotonic seconds."""

    def __init__(
        self,
        client: Client,
        fetcher: Fetcher,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._fetcher, self._now, self._clock = client, fetcher, now, clock
        self._key = secrets.token_bytes(32)  # of cookies: those of another start are none
        self._used: dict[str, float] = {}
        self._lock, self._talks = Lock(), BoundedSemaphore(_TALKS)
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def begin(self, page: str) -> Begun:
        """``page``: a path of ours to go to afterwards. Raises UNAVAILABLE."""
        endpoint = self._endpoint("authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect,
            "scope": self._client.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        over = self._clock() + _BEGUN_S
        told = json.dumps([state, nonce, verifier, page, over])
        url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urllib.parse.urlencode(asked)}"
        return Begun(url, self._sealed(told))

    def finish(self, query: Mapping[str, str], cookie: str) -> Arrived:
        """``query``: what the browser came back with. Raises UNAUTHENTICATED, FORBIDDEN for who has
        no role, UNAVAILABLE.
        """
        state, nonce, verifier, page = self._opened(cookie)
        if not hmac.compare_digest(state.encode(), query.get("state", "").encode()):
            raise _refused("this answer belongs to another beginning")
        if query.get("iss", self._client.issuer) != self._client.issuer:
            raise _refused("this answer is of another provider")
        if "error" in query:
            said = query["error"] if _ERROR.fullmatch(query["error"]) else "no reason"
            raise _refused(f"the provider refused it ({said})")
        if not query.get("code"):
            raise _refused("the provider sent no code")
        self._use(state)
        try:
            answer = self._token(query["code"], verifier)
        except ShoalError:  # no code was exchanged: nothing that could be used again
            with self._lock:
                self._used.pop(state, None)
            raise
        claims = self._claims(answer, nonce)
        return Arrived(self._visitor(claims), page)

    # --- what the browser keeps meanwhile -----------------------------------------------------

    def _sealed(self, text: str) -> str:
        body = base64.b16encode(text.encode()).decode()  # a cookie takes no more
        return f"{body}.{self._mac(body)}"

    def _mac(self, body: str) -> str:
        return hmac.new(self._key, body.encode("latin-1", "replace"), sha256).hexdigest()

    def _opened(self, cookie: str) -> tuple[str, str, str, str]:
        body, _, mac = cookie.partition(".")
        if not hmac.compare_digest(self._mac(body).encode(), mac.encode("latin-1", "replace")):
            raise _refused("this browser did not begin it here, or the console was restarted")
        state, nonce, verifier, page, over = json.loads(base64.b16decode(body))
        if self._clock() >= over:
            raise _refused("it took too long")
        return state, nonce, verifier, page

    def _use(self, state: str) -> None:
        now = self._clock()
        with self._lock:
            if len(self._used) >= _MOST_USED:
                self._used = {one: over for one, over in self._used.items() if over > now}
            if state in self._used:
                raise _refused("this answer was used before")
            if len(self._used) >= _MOST_USED:
                raise ShoalError(Kind.OVERLOADED, "too many sign in at once: try again in a while")
            self._used[state] = now + _BEGUN_S

    # --- what the provider says ---------------------------------------------------------------

    def _ask(self, talk: Callable[[], ProviderAnswer]) -> ProviderAnswer:
        if not self._talks.acquire(timeout=_TALK_S):
            raise ShoalError(
                Kind.UNAVAILABLE, f"the sign-in provider {self._client.issuer} is slow: try again"
            )
        try:
            return talk()
        finally:
            self._talks.release()

    def _away(self, what: str) -> ShoalError:
        return ShoalError(Kind.UNAVAILABLE, f"the sign-in provider {self._client.issuer} {what}")

    def _endpoint(self, name: str) -> str:
        known, now = self._metadata, self._clock()
        if known is None or now - known[0] >= _METADATA_S:
            url = f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
            said = self._ask(lambda: self._fetcher.get(url)).body
            if said.get("issuer") != self._client.issuer:
                raise self._away("says that it is another, or does not speak OpenID Connect")
            known = self._metadata = (now, said)
        found = known[1].get(name)
        if not isinstance(found, str) or not is_sound(found):
            raise self._away(f"names no {name} with TLS")
        return found

    def _token(self, code: str, verifier: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect,
            "client_id": self._client.client_id,
            "code_verifier": verifier,
        }
        endpoint, basic = self._endpoint("token_endpoint"), ""
        if self._client.secret:
            pair = (self._client.client_id, self._client.secret)
            known = ":".join(urllib.parse.quote(part, safe="") for part in pair)
            basic = f"Basic {base64.b64encode(known.encode()).decode()}"
        answer = self._ask(lambda: self._fetcher.post(endpoint, form, basic))
        if answer.date is not None:
            self._check_clock(answer.date)
        if answer.status != 200 or not isinstance(answer.body.get("id_token"), str):
            raise _refused(f"the provider took no code of it (HTTP {answer.status})")
        return answer.body

    def _check_clock(self, theirs: float) -> None:
        apart = abs(self._now() - theirs)
        if apart > _LEEWAY_S:
            much = f"{apart / _DAY:.0f} days" if apart >= 2 * _DAY else f"{apart / 60:.0f} minutes"
            raise _refused(
                f"this machine's clock and that of {self._client.issuer} differ by {much}, so no "
                "proof can be dated: set the clock"
            )

    def _key_set(self, again: bool = False) -> KeySet:
        known, now = self._keys, self._clock()
        fresh = _KEYS_AGAIN_S if again else _KEYS_S
        if known is None or now - known[0] >= fresh:
            endpoint = self._endpoint("jwks_uri")
            said = self._ask(lambda: self._fetcher.get(endpoint)).body
            try:
                keys = KeySet.import_key_set(cast("Any", said))
            except (JoseError, ValueError, TypeError, KeyError):
                raise self._away("shows no keys") from None
            known = self._keys = (now, keys)
        return known[1]

    def _claims(self, answer: Mapping[str, Any], nonce: str) -> CodeIDToken:
        token = answer["id_token"]
        try:
            try:
                read = jwt.decode(token, self._key_set(), algorithms=_ALGORITHMS)
            except (JoseError, ValueError):  # its keys may be new
                read = jwt.decode(token, self._key_set(again=True), algorithms=_ALGORITHMS)
        except (JoseError, ValueError, TypeError, KeyError):
            raise _refused("the provider's proof is not signed by its keys") from None
        dated = read.claims.get("iat")
        if isinstance(dated, int | float):
            self._check_clock(dated)
        wanted = {
            "iss": {"essential": True, "value": self._client.issuer},
            "aud": {"essential": True, "value": self._client.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        params = {"nonce": nonce, "client_id": self._client.client_id}
        if isinstance(answer.get("access_token"), str):
            params["access_token"] = answer["access_token"]
        claims = CodeIDToken(read.claims, read.header, wanted, params)
        try:
            claims.validate(now=int(self._now()), leeway=_LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            about = getattr(error, "claim", None) or getattr(error, "error", "")
            named = str(about) if _ERROR.fullmatch(str(about)) else "claims"
            raise _refused(f"the provider's proof is not for this sign-in ({named})") from None
        return claims

    def _visitor(self, claims: Mapping[str, Any]) -> Visitor:
        said = claims.get(self._client.claim)
        values = [said] if isinstance(said, str) else said if isinstance(said, list) else []
        if self._client.claim == "email" and claims.get("email_verified") is not True:
            values = []
        role = self._client.roles.of([value for value in values if isinstance(value, str)])
        who = plain(str(claims["sub"]))
        if role is None:
            raise ShoalError(
                Kind.FORBIDDEN,
                f"{who} is known to the provider, and has no role here: ask who runs this console",
            )
        # what people may set for themselves, at a provider that lets them, is nobody's name
        email = claims.get("email") if claims.get("email_verified") is True else None
        name = email if isinstance(email, str) and email else who
        return Visitor(plain(name), who, role, "oidc")


def _refused(why: str) -> ShoalError:
    return ShoalError(Kind.UNAUTHENTICATED, f"not signed in: {why}: {_AGAIN}")
