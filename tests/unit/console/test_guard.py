"""Who is answered: nobody who asks under a foreign name, and no form of another site."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from shoal.console.guard import guarded
from tests.cases import for_each

HERE = "127.0.0.1:7450"
OURS = f"http://{HERE}"


def said(_: Request) -> Response:
    return PlainTextResponse("page", headers={"x-own": "kept"})


APP = guarded(
    Starlette(routes=[Route("/", said, methods=["GET", "POST"])]),
    HERE,
    frozenset({"console.example"}),
    {"x-all": "set", "x-own": "changed"},
)
CLIENT = TestClient(APP, base_url=OURS)


@for_each(
    "method, headers, status",
    [
        ("GET", {}, 200),
        ("GET", {"host": "localhost:7450"}, 200),
        ("GET", {"host": "console.example"}, 200),
        ("GET", {"host": "[::1]:7450"}, 200),
        ("GET", {"host": "evil.example"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example:7450"}, 421),
        ("GET", {"host": "127.0.0.1@evil.example"}, 421),
        ("GET", {"host": "127.0.0.1:7450/static/x?"}, 421),
        ("GET", {"host": "127.0.0.1:7450@evil.example"}, 421),
        ("GET", {"host": "127.0.0.1:"}, 421),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"origin": "null"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        (
            "GET",
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            200,
        ),
        (
            "GET",
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "iframe",
            },
            403,
        ),
        ("POST", {"origin": OURS}, 200),
        ("POST", {"origin": OURS, "sec-fetch-site": "same-origin"}, 200),
        ("POST", {}, 403),
        ("POST", {"origin": "http://localhost:7450"}, 403),
        ("POST", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": OURS, "sec-fetch-site": "cross-site"}, 403),
        ("POST", {"origin": OURS, "content-length": "99999999"}, 413),
        ("PUT", {"origin": OURS}, 405),
    ],
)
def test_who_is_answered(method: str, headers: dict[str, str], status: int) -> None:
    """Planted: the host compared by its beginning -> 127.0.0.1.evil.example is let in. Planted: a
    form without an origin let in -> fails. Planted: forms asked for their host alone -> another
    site's is done. Planted: what stands behind the name not looked at -> a path there is let in.
    """
    answer = CLIENT.request(method, "/", headers=headers)
    assert answer.status_code == status
    assert answer.headers["x-all"] == "set"
    assert (answer.headers.get("x-own") == "kept") == (status == 200)


@for_each("served, other", [("http", "https"), ("https", "http")])
def test_a_form_comes_from_the_scheme_that_is_served(served: str, other: str) -> None:
    """Planted: both schemes taken for ours -> who answers without TLS under the console's name
    sends its forms. Planted: HSTS left out -> fails.
    """
    client = TestClient(APP, base_url=f"{served}://{HERE}")
    answer = client.post("/", headers={"origin": f"{served}://{HERE}"})
    assert answer.status_code == 200
    assert ("strict-transport-security" in answer.headers) == (served == "https")
    assert client.post("/", headers={"origin": f"{other}://{HERE}"}).status_code == 403
