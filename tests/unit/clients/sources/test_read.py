"""Each kind of source, and every way that it can fail to answer: None, a short reason, and none of
what it said.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from shoal.clients.sources import read
from shoal.clients.sources.read import SourceReading, read_source
from shoal.clients.sources.spec import SourceSpec
from shoal.domain import Value
from shoal.limits import LIMITS
from tests.cases import for_each
from tests.worlds.devices.sources import dead, gone, ok, reading_threads, saying


async def of_json(folder: Path, text: str | bytes, pointer: str = "") -> SourceReading:
    file = folder / "state.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return await read_source(SourceSpec("json", file=file, pointer=pointer))


# --- JSON -----------------------------------------------------------------------------------------

DOCUMENT = (
    '{"a": {"b": [10, {"c": 2.5}], "": 7, "x/y": 8, "m~n": 9, "~1": 6}, "on": true, "off": null, '
    '"text": "3-4", "v": [1, 2.5, -3]}'
)


@for_each(
    "pointer, value",
    [
        ("/a/b/0", 10),
        ("/a/b/1/c", 2.5),
        ("/a/", 7),
        ("/a/x~1y", 8),
        ("/a/m~0n", 9),
        ("/a/~01", 6),
        ("/on", True),
        ("/off", None),
        ("/text", "3-4"),
        ("/v", "[1, 2.5, -3]"),
    ],
)
async def test_a_pointer_names_a_value(tmp_path: Path, pointer: str, value: Value) -> None:
    """RFC 6901, sections 4 and 5. Planted: ~0 replaced before ~1 -> "/a/~01" finds nothing."""
    assert await of_json(tmp_path, DOCUMENT, pointer) == SourceReading(value)


@for_each(
    "pointer",
    [
        "/b",
        "/a/b/2",
        "/a/b/-",
        "/a/b/01",
        "/a/b/+0",
        "/a/b/-1",
        "/on/0",
        "/text/0",
        "/a/b",
    ],
)
async def test_a_pointer_that_names_no_value(tmp_path: Path, pointer: str) -> None:
    reading = await of_json(tmp_path, DOCUMENT, pointer)
    assert reading.value is None
    assert "the pointer points" in reading.reason


@for_each("pointer", ["/a", ""])
async def test_an_object_comes_back_as_its_text(tmp_path: Path, pointer: str) -> None:
    """That is how a record is answered. Planted: Python's text of a dict -> no JSON."""
    reading = await of_json(tmp_path, DOCUMENT, pointer)
    whole = json.loads(DOCUMENT)
    assert isinstance(reading.value, str)
    assert json.loads(reading.value) == (whole["a"] if pointer else whole)


async def test_large_integers_stay_exact(tmp_path: Path) -> None:
    assert (await of_json(tmp_path, str(1 << 200))).value == 1 << 200


@for_each(
    "text",
    ["", "{", "3 4", "NaN", "[Infinity]", b"\xff\xfe3", "[" * 200_000, "9" * 10_000, "secret"],
    ids=["empty", "half", "two", "nan", "infinity", "bytes", "deep", "long", "word"],
)
async def test_what_is_no_json_is_no_answer(tmp_path: Path, text: str | bytes) -> None:
    assert await of_json(tmp_path, text) == SourceReading(None, "not a JSON text")


async def test_files_that_are_missing_or_none(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for. Planted: a plain open -> the test runs into its
    time limit.
    """
    os.mkfifo(tmp_path / "pipe")
    reasons = [
        (await read_source(SourceSpec("json", file=tmp_path / name, timeout_s=5.0))).reason
        for name in ("missing", "pipe", ".", "/dev/zero")
    ]
    assert reasons[0].startswith("cannot be read: ")
    assert reasons[1] == reasons[3] == "not a file"
    assert reasons[2]


async def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    reading = await of_json(tmp_path, '"' + "x" * LIMITS.source_bytes + '"')
    assert reading == SourceReading(None, f"more than {LIMITS.source_bytes} bytes")


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "app ?#%.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE visit (day INTEGER, kind TEXT)")
        db.executemany("INSERT INTO visit VALUES (?, ?)", [(day, "clinic") for day in range(7)])
    db.close()
    return file


def of_sqlite(file: Path, query: str, timeout_s: float = 5.0) -> SourceSpec:
    return SourceSpec("sqlite", timeout_s, file=file, query=query)


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT count(*) FROM visit", 7),
        ("SELECT kind, day FROM visit ORDER BY day DESC", "clinic"),
        ("SELECT 2.5", 2.5),
        ("SELECT NULL", None),
    ],
)
async def test_the_first_column_of_the_first_row(database: Path, query: str, value: Value) -> None:
    assert await read_source(of_sqlite(database, query)) == SourceReading(value)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT day FROM visit WHERE day > 9", "no row"),
        ("SELECT x'00ff'", "bytes"),
        ("SELECT nonesuch FROM visit", "failed (SQLITE_ERROR)"),
        ("SELECT 1; SELECT 2", ""),
        ("DELETE FROM visit", "failed (SQLITE_READONLY)"),
        ("INSERT INTO visit VALUES (1, 'x') RETURNING day", "failed (SQLITE_READONLY)"),
        (f"SELECT zeroblob({LIMITS.source_bytes + 1})", "failed (SQLITE_TOOBIG)"),
    ],
)
async def test_queries_without_an_answer(database: Path, query: str, reason: str) -> None:
    """And the database is never written. Planted: no mode=ro and no query_only -> the DELETE
    empties it.
    """
    before = content(database)
    reading = await read_source(of_sqlite(database, query))
    assert reading.value is None
    assert reading.reason
    assert reason in reading.reason
    assert content(database) == before


def content(file: Path) -> bytes:
    return file.read_bytes()


async def test_a_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    reading = await read_source(of_sqlite(tmp_path / "none.db", "SELECT 1"))
    assert reading == SourceReading(None, "the query failed (SQLITE_CANTOPEN)")
    assert not (tmp_path / "none.db").exists()


async def test_a_query_without_end_is_stopped(database: Path) -> None:
    """Its thread ends too. Planted: no progress handler -> the thread is still there at the end of
    the test.
    """
    endless = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    )
    assert await read_source(of_sqlite(database, endless, 0.1)) == SourceReading(
        None, "took too long"
    )
    await gone("source")


# --- commands -------------------------------------------------------------------------------------


def of_command(code: str, timeout_s: float = 20.0, pointer: str = "") -> SourceSpec:
    return SourceSpec(
        "command", timeout_s, argv=(sys.executable, "-S", "-c", code), pointer=pointer
    )


async def test_what_a_command_prints() -> None:
    assert await read_source(of_command("print(' 42 ')")) == SourceReading("42")
    assert await read_source(of_command("print('{\"a\": 3}')", pointer="/a")) == SourceReading(3)


@for_each(
    "code, reason",
    [
        ("import sys; print(3); sys.exit(3)", "ended with an error"),
        ("import os; os.kill(os.getpid(), 9)", "ended with an error"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "not a text in UTF-8"),
        (f"print('x' * {LIMITS.source_bytes})", f"more than {LIMITS.source_bytes} bytes"),
    ],
)
async def test_commands_without_an_answer(code: str, reason: str) -> None:
    assert await read_source(of_command(code)) == SourceReading(None, reason)


async def test_a_command_that_does_not_exist() -> None:
    reading = await read_source(SourceSpec("command", argv=("/nonexistent/program",)))
    assert reading.value is None
    assert reading.reason.startswith("cannot be started: ")


async def test_a_command_gets_no_input_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the whole environment passed on -> the token is printed."""
    monkeypatch.setenv("TOKEN_OF_ANOTHER_SERVICE", "secret")
    code = (
        "import os, sys; print(sys.stdin.read() or 'nothing', "
        "os.environ.get('TOKEN_OF_ANOTHER_SERVICE'), os.getpid() == os.getpgid(0))"
    )
    assert await read_source(of_command(code)) == SourceReading("nothing None True")


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    """The child holds the pipe and would live on. Planted: kill the process alone -> the child's
    pid is still there.
    """
    pid = tmp_path / "pid"
    child = "import time; time.sleep(600)"
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-S', '-c', "
        f"{child!r}]); open({str(pid)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    )
    spec = of_command(code, timeout_s=1.5)
    while not pid.exists() or not pid.read_text():  # a slow machine: the child was not even born
        assert await read_source(spec) == SourceReading(None, "took too long")
    await dead(int(pid.read_text()))


async def test_a_reading_that_is_cancelled_kills_the_command(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    reading = asyncio.create_task(read_source(of_command(code)))
    while not pid.exists() or not pid.read_text():
        await asyncio.to_thread(lambda: None)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await dead(int(pid.read_text()))


# --- HTTP on this machine -------------------------------------------------------------------------


async def test_what_a_local_service_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not through a proxy. Planted: urllib.request.urlopen -> the proxy, which nobody is, is
    asked.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with saying(ok(b' {"visits": 3}\n')) as (url, requests):
        assert await read_source(
            SourceSpec("http", url=f"{url}/state?x=1", pointer="/visits")
        ) == SourceReading(3)
        assert await read_source(SourceSpec("http", url=f"{url}/state")) == SourceReading(
            '{"visits": 3}'
        )
        port = url.rpartition(":")[2]
        assert await read_source(
            SourceSpec("http", url=f"http://localhost:{port}/")
        ) == SourceReading('{"visits": 3}')
    assert requests[0].startswith(b"GET /state?x=1 HTTP/1.1\r\n")


async def test_a_redirect_is_not_followed() -> None:
    with saying(ok(b"3")) as (target, asked):
        with saying(
            b"HTTP/1.1 302 Found\r\nLocation: %s/\r\nContent-Length: 0\r\n\r\n" % target.encode()
        ) as (url, _):
            assert await read_source(SourceSpec("http", url=url)) == SourceReading(
                None, "answered with status 302"
            )
        assert asked == []


@for_each(
    "reply, reason",
    [
        (b"HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\n3", "answered with status 500"),
        (ok(b"x" * (LIMITS.source_bytes + 1)), f"more than {LIMITS.source_bytes} bytes"),
        (b"SSH-2.0-hello\r\n", "no proper reply"),
        (b"", "no proper reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n3", "no proper reply"),
        (ok(b"\xff"), "not a text in UTF-8"),
    ],
    ids=["500", "large", "ssh", "nothing", "cut off", "bytes"],
)
async def test_replies_that_are_none(reply: bytes, reason: str) -> None:
    with saying(reply) as (url, _):
        assert await read_source(SourceSpec("http", url=url)) == SourceReading(None, reason)


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await read_source(SourceSpec("http", url=f"http://localhost:{port}/")) == SourceReading(
        None, "nobody listens there"
    )


async def test_a_service_that_never_ends_its_reply() -> None:
    done = threading.Event()
    with saying(b"HTTP/1.1 200 OK\r\n\r\n3", close=lambda: done.wait(60)) as (url, _):
        assert await read_source(SourceSpec("http", timeout_s=0.2, url=url)) == SourceReading(
            None, "took too long"
        )
        done.set()
    await gone("source")


# --- whatever happens -----------------------------------------------------------------------------


async def test_a_source_that_hangs_costs_one_thread_and_never_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a dead network disk. Planted: no memory of what hangs -> a thread for each reading."""
    free = threading.Event()
    monkeypatch.setattr(read, "_waiting", lambda _spec, _timeout: free.wait(60) and None)
    spec = SourceSpec("json", 0.1, file=tmp_path / "a")
    assert await read_source(spec) == SourceReading(None, "took too long")
    for _ in range(5):
        assert await read_source(spec) == SourceReading(
            None, "the reading before has not come back"
        )
    assert reading_threads() == 1
    free.set()
    await gone("source")
    monkeypatch.undo()
    assert (await read_source(spec)).reason.startswith("cannot be read")


async def test_a_bug_in_a_reader_is_no_answer_and_its_words_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_spec: SourceSpec, _timeout: float) -> Value:
        raise KeyError("the true value: 3")

    monkeypatch.setattr(read, "_waiting", broken)
    assert await read_source(SourceSpec("json", file=tmp_path / "a")) == SourceReading(
        None, "failed (KeyError)"
    )
