"""Today's kinds of sources keep what every kind promises."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

from shoal.clients.sources import json_file
from shoal.clients.sources.spec import KINDS, SourceSpec
from tests.conformance.sources.suite import SourceSuite, in_thread
from tests.worlds.devices.sources import ok, saying

Endless = tuple[SourceSpec, Callable[[], Awaitable[None]]]


class TestJson(SourceSuite):
    """A file that another program writes."""

    @contextmanager
    def saying(self, folder: Path, data: bytes) -> Iterator[SourceSpec]:
        file = folder / "state.json"
        file.write_bytes(data)
        yield SourceSpec("json", file=file)

    def missing(self, folder: Path) -> SourceSpec:
        return SourceSpec("json", file=folder / "missing.json")

    @contextmanager
    def endless(self, folder: Path, timeout_s: float) -> Iterator[Endless]:
        """As on a network disk that does not answer."""
        over = threading.Event()

        def read(_file: Path) -> bytes:
            over.wait()
            return b"3"

        with mock.patch.object(json_file, "_read", read):
            yield SourceSpec("json", timeout_s, file=folder / "dead.json"), in_thread
            over.set()


class TestSqlite(SourceSuite):
    """A database of another program."""

    @contextmanager
    def saying(self, folder: Path, data: bytes) -> Iterator[SourceSpec]:
        yield self._query(self._database(folder, data), 5.0)

    def missing(self, folder: Path) -> SourceSpec:
        return self._query(folder / "missing.db", 5.0)

    @contextmanager
    def endless(self, folder: Path, timeout_s: float) -> Iterator[Endless]:
        """The other program holds its lock."""
        file = self._database(folder, b"3")
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield self._query(file, timeout_s), in_thread

    @staticmethod
    def _database(folder: Path, data: bytes) -> Path:
        file = folder / "app.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("CREATE TABLE state (value)")
            database.execute("INSERT INTO state VALUES (CAST(? AS TEXT))", (data,))
        return file

    @staticmethod
    def _query(file: Path, timeout_s: float) -> SourceSpec:
        return SourceSpec("sqlite", timeout_s, file=file, query="SELECT value FROM state")


class TestCommand(SourceSuite):
    """A program of the owner."""

    @contextmanager
    def saying(self, folder: Path, data: bytes) -> Iterator[SourceSpec]:
        file = folder / "said"
        file.write_bytes(data)
        yield SourceSpec("command", 20.0, argv=("cat", str(file)))

    def missing(self, folder: Path) -> SourceSpec:
        return SourceSpec("command", argv=(str(folder / "missing"),))

    @contextmanager
    def endless(self, folder: Path, timeout_s: float) -> Iterator[Endless]:
        mark = folder / "begun"
        code = f"import time; open({str(mark)!r}, 'w').close(); time.sleep(600)"

        async def begun() -> None:
            while not mark.exists():
                await asyncio.to_thread(lambda: None)

        yield SourceSpec("command", timeout_s, argv=(sys.executable, "-S", "-c", code)), begun


class TestHttp(SourceSuite):
    """A service on this very machine."""

    @contextmanager
    def saying(self, folder: Path, data: bytes) -> Iterator[SourceSpec]:
        with saying(ok(data)) as (url, _):
            yield SourceSpec("http", url=url)

    def missing(self, folder: Path) -> SourceSpec:
        return SourceSpec("http", url="http://127.0.0.1:1/")

    @contextmanager
    def endless(self, folder: Path, timeout_s: float) -> Iterator[Endless]:
        over = threading.Event()
        with saying(b"HTTP/1.1 200 OK\r\n\r\n3", close=over.wait) as (url, _):
            yield SourceSpec("http", timeout_s, url=url), in_thread
            over.set()


def test_every_kind_is_here() -> None:
    """Planted: a kind in ``KINDS`` without a class of its own -> fails."""
    assert {f"Test{kind.capitalize()}" for kind in KINDS} <= set(globals())
