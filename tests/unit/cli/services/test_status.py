"""What ``shoal analyzer status`` and ``shoal shuffler status`` make of who answers there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB
from shoal.rpc import admin_pages as service_status
from shoal.rpc.admin_pages import fetch_status


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """Somebody who answers every question with ``body``; its HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'["service"]', Kind.CONFIG),  # JSON, but no object
        (b'{"service": "analyzer"}', Kind.CONFIG),
        (b'{"service": "shuffler"}', Kind.CONFIG),  # which says nothing of whether it is ready
        (b"<html>", Kind.CONFIG),
        (b"\xff\xfe", Kind.CONFIG),
        (b"[" * 100_000, Kind.CONFIG),
    ],
)
def test_a_stranger_on_the_port_is_one_line(body: bytes, kind: Kind) -> None:
    """Planted: no look at whether the answer is an object -> AttributeError for the first body."""
    with answering(body) as address, pytest.raises(ShoalError) as caught:
        fetch_status("shuffler", address)
    assert caught.value.kind is kind
    assert "admin_listen" in str(caught.value)


def test_an_endless_answer_is_said_to_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: cut without a word -> what is no JSON any more is taken for a stranger."""
    monkeypatch.setattr(service_status, "LIMITS", replace(LIMITS, status_bytes=MIB))
    long = b'{"service": "shuffler", "ready": null, "tasks": "' + b" " * MIB + b'"}'
    with answering(long) as address, pytest.raises(ShoalError) as caught:
        fetch_status("shuffler", address)
    assert caught.value.kind is Kind.OVERSIZE


def test_the_service_itself_is_believed() -> None:
    with answering(b'{"service": "shuffler", "ready": null}') as address:
        assert fetch_status("shuffler", address) == {"service": "shuffler", "ready": None}


def test_no_address_and_nobody_there() -> None:
    with pytest.raises(ShoalError) as caught:
        fetch_status("analyzer", "7446")
    assert caught.value.kind is Kind.CONFIG
    with answering(b"") as address:
        pass
    with pytest.raises(ShoalError) as caught:
        fetch_status("analyzer", address)
    assert caught.value.kind is Kind.UNAVAILABLE
