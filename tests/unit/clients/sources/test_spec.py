"""What an owner may write under [sources.TASKNAME]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.clients.sources.spec import SourceSpec, loopback_parts
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

HTTP = "http" + "://"  # most of what follows is no address of this repository
FILE = Path("/var/lib/app/state.json")


@for_each(
    "good",
    [
        {"kind": "json", "file": FILE},
        {"kind": "json", "file": FILE, "pointer": "/a~1b/m~0n/0"},
        {"kind": "sqlite", "file": FILE, "query": "SELECT 1"},
        {"kind": "command", "argv": ("cat", "/proc/loadavg")},
        {"kind": "command", "argv": ("status",), "pointer": "/visits", "timeout_s": 30.0},
        {
            "kind": "http",
            "url": "http://127.0.0.1:8080/value?name=a%20b",
            "pointer": "/x",
            "task_id": "0123abcd",
        },
    ],
)
def test_sources_that_make_sense(good: dict[str, Any]) -> None:
    assert SourceSpec(**good).kind == good["kind"]


@for_each(
    "bad, key",
    [
        ({"kind": "file", "file": FILE}, "kind: one of json"),
        ({"kind": "json"}, "file: "),
        (
            {"kind": "json", "file": FILE, "query": "SELECT 1"},
            "query: a source of kind json has none",
        ),
        ({"kind": "json", "file": FILE, "pointer": "a"}, "pointer: "),
        ({"kind": "json", "file": FILE, "pointer": "/a~2"}, "pointer: "),
        ({"kind": "json", "file": FILE, "pointer": "/a~"}, "pointer: "),
        ({"kind": "json", "file": FILE, "timeout_s": 0.0}, "timeout_s: 0.1 to 30 seconds"),
        ({"kind": "json", "file": FILE, "timeout_s": 30.1}, "timeout_s: "),
        ({"kind": "json", "file": FILE, "timeout_s": float("nan")}, "timeout_s: "),
        ({"kind": "json", "file": FILE, "task_id": "0123abc"}, "task_id: "),
        ({"kind": "json", "file": FILE, "task_id": "0123ABCD"}, "task_id: "),
        ({"kind": "sqlite", "file": FILE}, "query: "),
        ({"kind": "sqlite", "query": "SELECT 1"}, "file: "),
        ({"kind": "command"}, "argv: "),
        ({"kind": "command", "argv": ("",)}, "argv: "),
        ({"kind": "command", "argv": ("a", "b\0c")}, "argv: "),
        ({"kind": "command", "argv": ("a",) * 257}, "argv: "),
        ({"kind": "http"}, "url: "),
    ],
)
def test_sources_that_make_none_name_the_key(bad: dict[str, Any], key: str) -> None:
    with pytest.raises(ShoalError) as caught:
        SourceSpec(**bad)
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith(key)


@for_each(
    "url, parts",
    [
        (HTTP + "127.0.0.1:8080/a/b?c=d#e", ("127.0.0.1", 8080, "/a/b?c=d")),
        (HTTP + "127.9.8.7", ("127.9.8.7", 80, "/")),
        (HTTP + "[::1]:81/x", ("::1", 81, "/x")),
        (HTTP + "LOCALHOST:8080/x", ("localhost", 8080, "/x")),
    ],
)
def test_urls_of_this_machine(url: str, parts: tuple[str, int, str]) -> None:
    assert loopback_parts(url) == parts


@for_each(
    "url",
    [
        "https" + HTTP[4:] + "127.0.0.1/",
        HTTP + "example.com/",
        HTTP + "10.0.0.1/",
        HTTP + "128.0.0.1/",
        HTTP + "0.0.0.0/",
        HTTP + "127.0.0.1.example.com/",
        HTTP + "localhost.example.com/",
        HTTP + "127.1/",
        HTTP + "2130706433/",
        HTTP + "[::ffff:127.0.0.1]/",
        HTTP + "[::]/",
        HTTP + "user@127.0.0.1/",
        HTTP + "127.0.0.1@example.com/",
        HTTP + "127.0.0.1:99999/",
        HTTP + "127.0.0.1:x/",
        HTTP + "[::1/",
        HTTP + "127.0.0.1/a b",
        HTTP + "127.0.0.1/\u00e4",
        HTTP + "/x",
        "file:///etc/passwd",
        "127.0.0.1:80",
    ],
)
def test_urls_that_leave_this_machine_or_are_none(url: str) -> None:
    """Planted: a look-up of the host's addresses instead of literals -> the names pass on a machine
    with a helpful resolver.
    """
    with pytest.raises(ShoalError) as caught:
        SourceSpec("http", url=url)
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith("url: ")
