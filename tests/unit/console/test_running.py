"""The page Running: what the services say, however little or wrong that is."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from starlette.testclient import TestClient

from shoal.console.operator import services
from shoal.console.operator.app import Sources, operator_app
from shoal.console.words import moment
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import AdminPort
from shoal.shuffler.core import WindowState
from tests.unit.analyzer.results.test_report_page import Page
from tests.worlds.console import visits, write_data

TASK = visits().task_id.hex
SHUFFLER: dict[str, Any] = {
    "service": "shuffler",
    "ready": None,
    "version": "0.1.0",
    "conditions": [
        {
            "code": "certificate",
            "subject": "x",
            "message": "x.pem ends on 2027-02-01",
            "stops": False,
        }
    ],
    "tasks": [
        {
            "task_id": TASK,
            "name": "visits",
            "pairwise": False,
            "windows": 7,
            "states": {"OPEN": 1, "DELIVERING": 2, "SHREDDED": 2},
            "shown": [
                {"window": 1, "state": "SHREDDED", "outcome": "ACKNOWLEDGED", "reports": 603},
                {
                    "window": 2,
                    "state": "DELIVERING",
                    "reports": 611,
                    "failing": {"kind": "UNAVAILABLE", "attempts": 7},
                },
                {"window": 3, "state": "OPEN"},
            ],
            "given_up": [{"window": 0, "at": 1_767_225_600, "by": "ada", "reason": "lost"}],
        }
    ],
    "rounds": {},
    "refused": {"WINDOW_CLOSED": 12, "INVALID": 3},
    "certificates": [
        {
            "file": "x.pem",
            "role": "tls.certificate",
            "days_left": 12,
            "not_after": "2027-02-01T00:00:00Z",
        },
        {
            "file": "y.pem",
            "role": "tls.client_ca",
            "days_left": -1,
            "not_after": "2027-01-01T00:00:00Z",
        },
    ],
    "disk": {"free_bytes": 5 << 30, "total_bytes": 100 << 30},
    "clock": {"difference_s": 3, "peers": {"ab" * 32: -90}},
}
ANALYZER: dict[str, Any] = {
    "service": "analyzer",
    "ready": "the disk is full: make room",
    "conditions": [
        {
            "code": "disk_full",
            "subject": "",
            "message": "the disk is full: make room",
            "stops": True,
        }
    ],
    "tasks": [
        {
            "task_id": TASK,
            "name": "visits",
            "windows": 7,
            "receiving": 1,
            "processing": 1,
            "released": 1,
            "withheld": 0,
            "ended": [{"window": 1, "n": 600, "rejected": 3, "withheld": False}],
        }
    ],
}


class Said(BaseHTTPRequestHandler):
    """/status of a service that is whatever the test says, for who shows the token."""

    said: ClassVar[dict[int, Any]] = {}
    token = ""

    def do_GET(self) -> None:
        shown = self.headers.get("Authorization", "")
        self.send_response(200 if shown == self.token else 401)
        self.end_headers()
        self.wfile.write(json.dumps(self.said[self.server.server_port]).encode())  # type: ignore[attr-defined] # an HTTPServer has it

    def log_message(self, *_: object) -> None:
        pass


def _server(said: Any) -> HTTPServer:
    server = HTTPServer(("127.0.0.1", 0), Said)
    Said.said[server.server_port] = said
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_data(tmp_path_factory.mktemp("running"), 2)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HTTPServer, HTTPServer]]:
    monkeypatch.setattr("shoal.console.operator.app._EVERY_S", 0.0)
    both = _server(copy.deepcopy(SHUFFLER)), _server(copy.deepcopy(ANALYZER))
    yield both
    for server in both:
        server.shutdown()
        server.server_close()


def client_of(folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]) -> TestClient:
    ports = [
        AdminPort(name, f"127.0.0.1:{server.server_port}")
        for name, server in zip(("shuffler", "analyzer"), servers, strict=True)
    ]
    places = Sources(folders[0], None, folders[1], ports[1], ports[0])
    return TestClient(operator_app(places, "127.0.0.1:1"), base_url="http://127.0.0.1:1")


def test_it_shows_windows_refusals_certificates_disks_and_clocks(
    folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]
) -> None:
    """Planted: windows that the analyzer processes left out of the backlog -> two windows wait, not
    three. Planted: the end of a certificate by its date's text alone -> no days.
    """
    text = Page(client_of(folders, servers).get("/running").text).text
    for said in (
        "3 windows closed and not released yet",
        "the disk is full: make room",
        "not ready",
        "is being delivered",
        "takes reports",
        "7 failures (unavailable)",
        "window closed",
        services.REFUSALS["WINDOW_CLOSED"][1:],
        "5 GiB free of 100 GiB: make room",
        "3 seconds behind",
        "90 seconds behind",
        "x.pem ends on 2027-02-01",
        "-1",
        "603",
    ):
        assert said in text, said


def test_windows_that_were_given_up_are_shown_with_what_it_means(
    folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]
) -> None:
    """By either operator, by both, on Running and on Budget. Planted: the analyzer's lines left out
    -> window 5 is missing, and what is said of 4 is wrong: fails. Planted: the state of the store
    for a window that was given up -> "expired before its delivery", and this fails.
    """
    line = {"at": 1_767_225_600, "by": "ada", "reason": "its key <b>is</b> lost"}
    there, here = copy.deepcopy(SHUFFLER), copy.deepcopy(ANALYZER)
    there["tasks"][0]["given_up"] = [{"window": 3, **line}, {"window": 4, **line}]
    there["tasks"][0]["shown"].append({"window": 4, "state": "SHREDDED", "outcome": "EXPIRED"})
    here["tasks"][0]["given_up"] = [{"window": 4, **line, "by": "grace"}, {"window": 5, **line}]
    for server, said in zip(servers, (there, here), strict=True):
        Said.said[server.server_port] = said
    (task,) = services.windows(there, here)
    assert [(each.window, each.where) for each in task.given_up] == [
        (5, "analyzer"),
        (4, "both"),
        (3, "shuffler"),
    ]
    assert task.given_up[1].by == "ada; grace"
    assert task.given_up[1].reasons == line["reason"]
    assert next(row for row in task.latest if row["window"] == 4)["state"] == "given up"
    client = client_of(folders, servers)
    for path in ("/running", "/budget"):
        found = client.get(path).text
        assert "<b>is</b>" not in found
        text = Page(found).text
        for words in ("3 windows given up", "stays spent", "ada; grace", "1 Jan 2026", "both"):
            assert words in text, (path, words)
        for meaning in services.GIVEN_UP.values():
            assert meaning[1:] in text, path


def test_an_open_window_has_no_count(
    folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]
) -> None:
    """Not even a count that a service should not have told is made up. Planted: a missing count
    shown as 0 -> a zero beside the open window, and this fails.
    """
    (task,) = services.windows(SHUFFLER, ANALYZER)
    (row,) = [row for row in task.latest if row["window"] == 3]
    assert (row["reports"], row["n"], row["rejected"]) == (None, None, None)


def test_a_service_that_went_away_is_named_and_its_last_word_kept(
    folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]
) -> None:
    """Planted: the notice on this page alone -> the others say nothing, and this fails."""
    client = client_of(folders, servers)
    assert "no shuffler answers" not in client.get("/running").text
    servers[0].shutdown()
    servers[0].server_close()
    found = Page(client.get("/running").text).text
    assert "no shuffler answers at 127.0.0.1:" in found
    assert "not reached since" in found
    assert "is being delivered" in found
    assert "no shuffler answers at 127.0.0.1:" in Page(client.get("/releases").text).text


WRONG: list[Any] = [None, "x", -1, 10**30, 1.5, [], {}, [None], [[]], {"x": None}, True, "x" * 1000]


def _places(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return [(value, key) for key in value] + [
            x for each in value.values() for x in _places(each)
        ]
    if isinstance(value, list) and value:
        return [(value, 0), *_places(value[0])]
    return []


def test_whatever_a_service_says_the_page_stands(
    folders: tuple[Path, Path], servers: tuple[HTTPServer, HTTPServer]
) -> None:
    """Every value replaced by something else. Planted: ``days_left`` compared as it came -> the
    page fails with a TypeError.
    """
    client = client_of(folders, servers)
    for at, original in enumerate((SHUFFLER, ANALYZER)):
        for place in range(len(_places(original))):
            for wrong in WRONG:
                changed = copy.deepcopy(original)
                parent, key = _places(changed)[place]
                if key == "service":
                    continue
                parent[key] = wrong
                both = [SHUFFLER, ANALYZER]
                both[at] = changed
                for task in services.windows(*both):
                    for each in task.given_up:
                        assert each.at is None or moment(each.at)
                for read in (services.certificates, services.disk, services.clock):
                    read(changed)
                services.refusals(changed)
        Said.said[servers[at].server_port] = {"service": original["service"], "ready": 5}
    assert client.get("/running").status_code == 200


def test_every_state_of_a_window_has_words() -> None:
    """Planted: a state left out -> its name in capitals is shown, and this fails."""
    assert set(services.STATES) == {state.name for state in WindowState}
    assert set(services.REFUSALS) <= {kind.name for kind in Kind}


def test_a_token_is_shown_and_a_wrong_one_is_said(
    folders: tuple[Path, Path],
    servers: tuple[HTTPServer, HTTPServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the header left out -> UNAUTHENTICATED with the right one, and this fails."""
    monkeypatch.setattr(Said, "token", "Bearer right")
    address = f"127.0.0.1:{servers[0].server_port}"
    assert AdminPort("shuffler", address, b"right").status()["ready"] is None
    with pytest.raises(ShoalError, match="another token") as caught:
        AdminPort("shuffler", address, b"wrong").status()
    assert caught.value.kind is Kind.UNAUTHENTICATED
