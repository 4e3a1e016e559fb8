"""``shoal shuffler status`` and ``shoal analyzer status``: what programs read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from shoal.cli.main import main

STATUS: dict[str, Any] = {"ready": None, "tasks": [], "rounds": {}}


class Page(BaseHTTPRequestHandler):
    """/status of a service that is whatever the test says."""

    said: dict[str, Any]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.said).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("service", ["shuffler", "analyzer"])
@pytest.mark.parametrize("trouble", [None, "the store is not open yet"])
def test_ready_is_true_or_false(
    address: str, capsys: pytest.CaptureFixture[str], service: str, trouble: str | None
) -> None:
    """Planted: the page's null for "ready" passed on, which reads as if nobody knew -> this
    fails.
    """
    Page.said = {"service": service, **STATUS, "ready": trouble}
    status = 0 if trouble is None else 1
    assert main([service, "status", "--admin", address, "--json"]) == status
    shown = json.loads(capsys.readouterr().out)
    why = {} if trouble is None else {"not_ready": trouble}
    assert shown == {"service": service, **STATUS, "ready": trouble is None, **why}
    assert main([service, "status", "--admin", address]) == status
    assert (trouble or "ready") in capsys.readouterr().out
    # what does not stop it never reads as "ready" beside what does. Planted: it does -> fails
    Page.said["conditions"] = [{"code": "broker", "message": "away", "stops": False}]
    main([service, "status", "--admin", address])
    shown = capsys.readouterr().out
    assert ("ready, but broker: away" in shown) is (trouble is None), shown


@pytest.mark.parametrize("service", ["shuffler", "analyzer"])
def test_everything_that_is_wrong_is_told(
    address: str, capsys: pytest.CaptureFixture[str], service: str
) -> None:
    """The one that stops it first, once; the others too. Planted: ``ready`` alone printed ->
    fails.
    """
    full = {"code": "disk_full", "subject": "data_dir", "message": "make room", "stops": True}
    away = {"code": "broker", "subject": "", "message": "start the broker", "stops": False}
    Page.said = {"service": service, **STATUS, "ready": "make room", "conditions": [full, away]}
    assert main([service, "status", "--admin", address]) == 1
    out = capsys.readouterr().out
    assert out.count("make room") == 1
    assert "start the broker" in out
    Page.said = {"service": service, **STATUS, "ready": None, "conditions": [away]}
    assert main([service, "status", "--admin", address]) == 0
    assert "start the broker" in capsys.readouterr().out
