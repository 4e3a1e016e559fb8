"""The servers that tests start: what was committed outlives them, a standby has it too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)


def test_what_was_committed_is_there_after_kill_9() -> None:
    """Planted: the data made anew at each start -> no table, fails."""
    with postgres.Server() as server:
        server.sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        before = server.port
        server.kill()
        server.start()
        assert server.sql("SELECT n FROM kept") == ["7"]
        assert server.port == before
        assert server.sql("SHOW data_checksums") == ["on"]
        folder = server.folder
    assert not folder.exists()


def test_a_standby_that_is_waited_for_has_what_was_committed() -> None:
    """Planted: promoted before it was waited for -> no row, fails now and then."""
    with postgres.Server() as server, server.standby("two") as standby:
        server.wait_for("two")
        server.sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        server.kill()
        assert standby.sql("SELECT pg_is_in_recovery()") == ["t"]
        standby.promote()
        standby.sql("INSERT INTO kept VALUES (8)")
        assert standby.sql("SELECT n FROM kept ORDER BY n") == ["7", "8"]


def test_databases_of_the_shared_server_are_apart() -> None:
    """Planted: one name for all -> it exists, fails."""
    server = postgres.shared()
    assert postgres.shared() is server
    names = [server.database().rpartition("/")[2] for _ in range(2)]
    server.sql("CREATE TABLE here ()", names[0])
    assert server.sql("SELECT count(*) FROM pg_tables WHERE tablename = 'here'", names[1]) == ["0"]


def test_a_server_that_cannot_start_says_why() -> None:
    """Planted: only waited for its end -> it passes as started, fails later without a word."""
    with (
        pytest.raises(AssertionError, match="shared_buffers"),
        postgres.Server(["shared_buffers = nonsense"]),
    ):
        pass


def test_the_programs_are_wanted_where_that_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the variable not looked at -> passes in silence, fails."""
    monkeypatch.setenv("SHOAL_POSTGRES", "1")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(AssertionError, match="apt-get install postgresql"):
        postgres.programs.__wrapped__()
