"""Signing in at a provider: who is let in, and everybody who tries it another way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.testclient import TestClient

from shoal.console.operator.app import Sources, operator_app
from shoal.console.signin import oidc, sessions
from shoal.console.signin.audit import Audit, check
from shoal.console.signin.fetching import Fetcher
from shoal.console.signin.gate import OidcGate, own_page
from shoal.console.signin.oidc import Client, Provider
from shoal.console.signin.sessions import Sessions
from shoal.console.signin.visitors import Role, Roles, Visitor
from tests.cases import for_each
from tests.worlds.console import write_data
from tests.worlds.provider import CLIENT, KEY, SECRET, Peer, Person, provider

NAME = "console.example"
HERE = f"https://{NAME}"
ROLES = Roles(frozenset({"operators"}), frozenset({"viewers"}))
VIEWER = Person("eve-2", ("viewers",), "eve@people.example")
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_data(tmp_path_factory.mktemp("signin"), 2)


@pytest.fixture(scope="module")
def shared() -> Iterator[Peer]:
    with provider() as peer:
        yield peer


@pytest.fixture
def peer(shared: Peer) -> Iterator[Peer]:
    """Told to lie by one test alone."""
    yield shared
    shared.person, shared.lie, shared.sign, shared.ahead_s = Person(), lambda told: told, None, 0.0


class Console:
    """One console and its browsers. ``ticks``: seconds that its unset clock gained."""

    def __init__(self, folders: tuple[Path, Path], kept: Path, issuer: str) -> None:
        self.ticks, self.now = 0.0, 0.0
        self.audit = Audit(kept / "audit.jsonl")
        client = Client(issuer, CLIENT, SECRET, f"{HERE}/sign-in/done", "openid", "groups", ROLES)
        fetcher = Fetcher(issuer, ssl.create_default_context())
        known = Provider(client, fetcher, clock=lambda: self.ticks)
        gate = OidcGate(self.audit, known, Sessions(lambda: self.ticks))
        places = Sources(data_dir=folders[0], tasks_dir=folders[1])
        self.app = operator_app(places, "0.0.0.0:443", frozenset({NAME}), gate, kept)

    def browser(self) -> TestClient:
        return TestClient(self.app, base_url=HERE, follow_redirects=False)

    def told(self) -> list[tuple[str, str]]:
        return [(entry["what"], entry["who"]) for entry in check(self.audit.path).entries]


@pytest.fixture
def console(folders: tuple[Path, Path], tmp_path: Path, peer: Peer) -> Iterator[Console]:
    made = Console(folders, tmp_path / "kept", peer.issuer)
    yield made
    made.audit.close()


def back_from(browser: TestClient, page: str = "/budget") -> str:
    """The address with which the provider sends a browser back."""
    begun = browser.get("/sign-in", params={"to": page})
    assert begun.status_code == 303, begun.text
    answer = httpx2.get(begun.headers["location"], follow_redirects=False)
    return str(answer.headers["location"])


def sign_in(browser: TestClient, page: str = "/budget") -> Any:
    return browser.get(back_from(browser, page), headers=LINK)


def test_nobody_sees_a_page_before_they_are_known(console: Console) -> None:
    """Planted: downloads left to everybody -> fails. Planted: the way back without its question ->
    fails.
    """
    browser = console.browser()
    for path in ("/", "/releases", "/promise", "/running", "/budget", "/audit", "/nowhere"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert "Counts and releases" in answer.text
        assert "Budget" not in answer.text
    assert browser.get("/download/all.csv").status_code == 401
    assert "to=%2Fbudget%3Flimit%3D2" in browser.get("/budget?limit=2").text
    assert browser.get("/static/console.css").status_code == 200
    assert browser.post("/budget/limit", headers={"origin": HERE}).status_code == 401
    assert [what for what, _ in console.told()] == ["refused", "refused"]


def test_who_signs_in_sees_pages_and_signs_out(console: Console) -> None:
    """Planted: the session kept at the end -> the same cookie still opens pages. Planted: cookies
    without Secure -> fails.
    """
    browser = console.browser()
    answer = sign_in(browser, "/budget?limit=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/budget?limit=2")
    (line,) = [each for each in answer.headers.get_list("set-cookie") if "__Host-shoal=" in each]
    for word in ("httponly", "secure", "samesite=lax", "path=/"):
        assert word in line.lower()
    assert "domain" not in line.lower()
    assert "ada@people.example" in browser.get("/budget").text
    token = browser.cookies["__Host-shoal"]
    assert browser.post("/sign-out", headers={"origin": HERE}).status_code == 200
    assert browser.get("/budget").status_code == 401
    assert browser.get("/budget", headers={"cookie": f"__Host-shoal={token}"}).status_code == 401
    assert console.told() == [("signs in", "ada-1"), ("does", "ada-1")]


def test_roles(console: Console, peer: Peer) -> None:
    """A viewer sees and takes, and neither acts nor reads the audit. Planted: the role not asked at
    POST, or not at the audit -> each fails.
    """
    operator, viewer, stranger = console.browser(), console.browser(), console.browser()
    sign_in(operator)
    peer.person = VIEWER
    sign_in(viewer)
    peer.person = Person("mallory-3", ("others",))
    assert sign_in(stranger).status_code == 403
    origin = {"origin": HERE}
    answer = operator.post("/budget/limit", data={"limit": "2"}, headers=origin)
    assert answer.status_code == 303
    assert "Keep 2 as the limit" in operator.get("/budget").text
    answer = viewer.post("/budget/limit", data={"limit": "9"}, headers=origin)
    assert answer.status_code == 403
    seen = viewer.get("/budget")
    assert 'value="2"' in seen.text
    assert "Keep 2" not in seen.text
    assert "Audit" not in seen.text
    assert viewer.get("/audit").status_code == 403
    assert viewer.get("/download/all.csv").status_code == 200
    page = operator.get("/audit").text
    for word in ("sets the limit", "eve-2", "/download/all.csv", "before: none, after: 2"):
        assert word in page
    assert console.told() == [
        ("signs in", "ada-1"),
        ("signs in", "eve-2"),
        ("refused to sign in", ""),
        ("does", "ada-1"),
        ("sets the limit", "ada-1"),
        ("refused", "eve-2"),
        ("takes", "eve-2"),
    ]


def _part(told: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(told).encode()).rstrip(b"=")


def _unsigned(claims: dict[str, Any]) -> str:
    return (_part({"alg": "none"}) + b"." + _part(claims) + b".").decode()


def _shared(claims: dict[str, Any]) -> str:
    """Signed by the public key, taken for a shared secret."""
    told = _part({"alg": "HS256", "kid": "one"}) + b"." + _part(claims)
    signed = hmac.new(KEY.as_pem(private=False), told, hashlib.sha256).digest()
    return (told + b"." + base64.urlsafe_b64encode(signed).rstrip(b"=")).decode()


def _others(claims: dict[str, Any]) -> str:
    key = RSAKey.generate_key(2048, {"kid": "one"})
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)


@for_each(
    "what",
    [
        {"lie": lambda told: {**told, "nonce": "another"}},
        {"lie": lambda told: {key: value for key, value in told.items() if key != "nonce"}},
        {"lie": lambda told: {**told, "aud": "somebody-else"}},
        {"lie": lambda told: {**told, "aud": [CLIENT, "somebody-else"]}},
        {"lie": lambda told: {**told, "aud": [CLIENT, "x"], "azp": "x"}},
        {"lie": lambda told: {**told, "iss": "https://another.example"}},
        {"lie": lambda told: {**told, "exp": told["iat"] - 600}},
        {"lie": lambda told: {key: value for key, value in told.items() if key != "exp"}},
        {"lie": lambda told: {**told, "iat": told["iat"] - 86_400}},
        {"lie": lambda told: {key: value for key, value in told.items() if key != "sub"}},
        {"lie": lambda told: {**told, "groups": {"operators": True}}},
        {"lie": lambda told: {**told, "groups": "operators,viewers"}},
        {"sign": _unsigned},
        {"sign": _shared},
        {"sign": _others},
        {"sign": lambda _: "no.token.atall"},
    ],
)
def test_a_lie_of_the_provider_lets_nobody_in(
    console: Console, peer: Peer, what: dict[str, Callable[..., Any]]
) -> None:
    """Planted: claims not validated; any algorithm taken; the age of a proof not looked at; a
    string's parts taken for names -> each fails.
    """
    for name, made in what.items():
        setattr(peer, name, made)
    browser = console.browser()
    answer = sign_in(browser)
    assert answer.status_code in {401, 403}
    assert "__Host-shoal=" not in answer.headers.get("set-cookie", "")
    assert browser.get("/budget").status_code == 401
    assert set(console.told()) == {("refused to sign in", "")}
    peer.lie, peer.sign = lambda told: told, None


def test_what_a_browser_brings_back_is_used_once_and_by_itself(console: Console) -> None:
    """Another browser with the address of the first; the same again; a state of one's own; after
    ten minutes. Planted: the state not compared, not remembered, not aged -> each fails.
    """
    first, second = console.browser(), console.browser()
    address = back_from(first)
    back_from(second)
    assert "another beginning" in second.get(address, headers=LINK).text
    begun = first.cookies["__Host-shoal-begun"]
    assert first.get(address, headers=LINK).status_code == 303
    again = first.get(address, headers={**LINK, "cookie": f"__Host-shoal-begun={begun}"})
    assert again.status_code == 401
    assert "used before" in again.text
    third = console.browser()
    address = back_from(third)
    console.ticks += 601
    assert "took too long" in third.get(address, headers=LINK).text
    forged = console.browser()
    state = urllib.parse.urlencode({"state": "mine", "code": "x"})
    cookie = {"cookie": "__Host-shoal-begun=bWluZQ==.00"}
    assert forged.get(f"/sign-in/done?{state}", headers={**LINK, **cookie}).status_code == 401


def test_a_session_ends_by_itself(console: Console) -> None:
    """Idle, whatever the page asks by itself; and after hours of use. Planted: a page that looks
    again keeps it -> fails. Planted: only idleness counted -> fails.
    """
    browser = console.browser()
    sign_in(browser)
    by_itself = {"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"}
    for _ in range(4):
        console.ticks += sessions.IDLE_S / 4
        answer = browser.get("/running", headers=by_itself)
    assert answer.status_code == 401
    sign_in(browser)
    for _ in range(int(sessions.WHOLE_S / sessions.IDLE_S * 2) - 1):
        console.ticks += sessions.IDLE_S / 2
        assert browser.get("/running").status_code == 200
    console.ticks += sessions.IDLE_S / 2
    assert browser.get("/running").status_code == 401


def test_a_session_is_nobody_elses(console: Console, peer: Peer) -> None:
    """A word that was put into a browser before is not the one that it gets. Planted: the word of
    the cookie taken over -> fails. Two cookies of the name are none.
    """
    attacker, victim = console.browser(), console.browser()
    peer.person = VIEWER
    sign_in(attacker)
    planted = attacker.cookies["__Host-shoal"]
    peer.person = Person()
    address = back_from(victim)
    begun = victim.cookies["__Host-shoal-begun"]
    both = {"cookie": f"__Host-shoal-begun={begun}; __Host-shoal={planted}", **LINK}
    answer = victim.get(address, headers=both)
    assert answer.status_code == 303
    assert planted not in answer.headers["set-cookie"]
    assert attacker.get("/budget").status_code == 401  # the planted session ended
    own = victim.cookies["__Host-shoal"]
    twice = {"cookie": f"__Host-shoal={own}; __Host-shoal=x"}
    assert console.browser().get("/budget", headers=twice).status_code == 401


@for_each(
    "asked, goes",
    [
        ("/budget?limit=2", "/budget?limit=2"),
        ("https://evil.example/", "/releases"),
        ("//evil.example/", "/releases"),
        ("/\\evil.example/", "/releases"),
        ("\\\\evil.example", "/releases"),
        ("/\t/evil.example", "/releases"),
        ("javascript:alert(1)", "/releases"),
        ("/sign-in?to=/", "/releases"),
        ("", "/releases"),
        ("/" + "x" * 5_000, "/releases"),
    ],
)
def test_the_way_back_leads_nowhere_else(asked: str, goes: str) -> None:
    """Planted: only "//" looked for -> a backslash leads to another site."""
    assert own_page(asked) == goes


def test_forms_of_other_sites_and_headers_of_proxies(console: Console, peer: Peer) -> None:
    """Planted: a header believed for a name or a role -> fails. Planted: a form without an origin
    taken -> fails.
    """
    browser = console.browser()
    headers = {
        "x-forwarded-user": "ada-1",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "127.0.0.1",
        "x-forwarded-proto": "https",
        "x-ssl-client-cert": "ada",
        "x-client-cert": "ada",
        "ssl-client-verify": "SUCCESS",
        "x-shoal.visitor": "operator",
        "authorization": "Basic YWRhOmFkYQ==",
    }
    assert browser.get("/budget", headers=headers).status_code == 401
    peer.person = VIEWER
    sign_in(browser)
    headers["x-role"] = "operator"
    origin = {"origin": HERE}
    assert browser.post("/budget/limit", headers={**headers, **origin}).status_code == 403
    peer.person = Person()
    sign_in(browser)
    for wrong in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
        answer = browser.post("/budget/limit", data={"limit": "9"}, headers=wrong)
        assert answer.status_code == 403
    assert "Keep 9" not in browser.get("/budget").text


def test_a_wrong_clock_is_said(console: Console, peer: Peer) -> None:
    """Planted: the claims' own message alone -> "exp", from which nobody learns of a clock."""
    peer.ahead_s = 10 * 86_400
    answer = sign_in(console.browser())
    assert answer.status_code == 401
    assert "differ by 10 days" in answer.text


def test_without_its_provider_who_is_signed_in_goes_on(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """Planted: the provider asked at every page -> fails."""
    with provider() as peer:
        console = Console(folders, tmp_path, peer.issuer)
        inside, outside = console.browser(), console.browser()
        sign_in(inside)
        address = back_from(outside)
    answer = outside.get(address, headers=LINK)
    assert answer.status_code == 503
    assert peer.issuer in answer.text
    assert inside.get("/budget").status_code == 200
    console.ticks += oidc._METADATA_S
    assert peer.issuer in console.browser().get("/sign-in").text
    console.audit.close()


def test_what_can_not_be_audited_is_not_done(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full. Planted: the gate lets on who can't be audited -> the limit is set."""
    browser = console.browser()
    sign_in(browser)
    with monkeypatch.context() as full:
        full.setattr("shoal.console.signin.audit.os.fsync", _full)
        answer = browser.post("/budget/limit", data={"limit": "3"}, headers={"origin": HERE})
        assert answer.status_code == 503
        assert "nothing was done" in answer.text
        assert browser.get("/download/all.csv").status_code == 503
        assert browser.get("/budget").status_code == 200
    assert "Keep 3" not in browser.get("/budget").text


def _full(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_sessions_have_an_end_in_number() -> None:
    """Planted: the newest thrown out -> fails."""
    kept = Sessions(lambda: 0.0)
    visitor = Visitor("ada", "ada", Role.VIEWER, "oidc")
    words = [kept.begin(visitor) for _ in range(sessions._MOST + 1)]
    assert kept.find(words[0], by_hand=True) is None
    assert kept.find(words[-1], by_hand=True) is not None


def test_nobody_is_locked_out_by_beginnings_without_a_code(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a state marked as used before a code is exchanged -> nobody signs in.
    Planted: that of a made-up code kept -> the same.
    """
    monkeypatch.setattr(oidc, "_MOST_USED", 2)
    for answer in [{"error": "x"}, {}, {"code": "made-up"}] * 2:
        browser = console.browser()
        begun = urllib.parse.urlsplit(browser.get("/sign-in").headers["location"])
        (state,) = urllib.parse.parse_qs(begun.query)["state"]
        told = browser.get("/sign-in/done", params={"state": state, **answer}, headers=LINK)
        assert told.status_code == 401
    assert sign_in(console.browser()).status_code == 303


def test_an_email_that_nobody_verified_is_no_name(console: Console, peer: Peer) -> None:
    """Planted: the email shown in any case -> who sets that of another goes under it."""
    peer.person = Person("mallory-9", ("operators",), "ada@people.example", email_verified=False)
    browser = console.browser()
    sign_in(browser)
    page = browser.get("/releases").text
    assert "ada@people.example" not in page
    assert "mallory-9" in page


def test_a_viewer_does_not_fill_the_audit(console: Console, peer: Peer) -> None:
    """Planted: each refusal of a viewer written -> 30 lines."""
    peer.person = VIEWER
    browser = console.browser()
    sign_in(browser)
    for _ in range(30):
        browser.post("/budget/limit", data={"limit": "9"}, headers={"origin": HERE})
    assert console.told().count(("refused", "eve-2")) == 20
