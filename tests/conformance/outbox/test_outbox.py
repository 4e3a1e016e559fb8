"""What every outbox promises. A new one is one more fixture parameter."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.core import ReportState, SealedReport
from shoal.clients.memory.outbox import MemoryOutbox, Outbox
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.errors import Kind, ShoalError
from shoal.failpoints import arm
from shoal.ids import Digest, TaskId
from tests.worlds.devices.outbox import claim

TASK, OTHER = TaskId(b"t" * 32), TaskId(b"o" * 32)
MOST = 5


def prepared(window: int = 0, mark: int = 1, task: TaskId = TASK) -> SealedReport:
    return SealedReport(task, window, bytes([mark]) * 512, bytes([mark + 100]) * 32, 1_000 - window)


def never() -> SealedReport:
    raise AssertionError("a second report of a window must not be prepared")


@pytest.fixture(params=["memory", "sqlite"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outbox]:
    made: Outbox = (
        MemoryOutbox(MOST)
        if request.param == "memory"
        else SqliteOutbox(tmp_path / "outbox.db", MOST)
    )
    yield made
    made.close()


def test_a_claimed_report_is_kept_as_it_is(outbox: Outbox) -> None:
    record, fresh = claim(outbox, TASK, 0, prepared)
    assert fresh
    assert (record.state, record.attempts, record.doubtful, record.kind, record.expires_s) == (
        ReportState.QUEUED,
        0,
        False,
        None,
        1_000,
    )
    entry = outbox.load(TASK, 0)
    assert entry is not None
    assert (entry.frame, entry.ack_key, entry.record) == (
        prepared().frame,
        prepared().ack_key,
        record,
    )
    assert outbox.find(TASK, 0) == record
    assert outbox.find(TASK, 1) is None
    assert outbox.load(OTHER, 0) is None


def test_a_window_has_one_report(outbox: Outbox) -> None:
    """Whoever adds one without claiming the window first. Planted: INSERT OR REPLACE, or no look at
    the key -> the second draw is sent.
    """
    claim(outbox, TASK, 0, prepared)
    with pytest.raises(ShoalError) as caught:
        outbox.add(prepared(mark=2))
    assert caught.value.kind is Kind.CONFLICT
    entry = outbox.load(TASK, 0)
    assert entry is not None
    assert entry.frame == prepared().frame


@pytest.mark.parametrize("state", [one for one in ReportState if one is not ReportState.NOT_ASKED])
def test_a_window_is_claimed_once_whatever_became_of_it(outbox: Outbox, state: ReportState) -> None:
    """The value is randomized once per window. Planted: forget finished rows -> ``never`` is
    called.
    """
    claim(outbox, TASK, 0, prepared)
    if state is not ReportState.QUEUED:
        outbox.finish(TASK, 0, state, Kind.WINDOW_FULL)
    record, fresh = claim(outbox, TASK, 0, never)
    assert not fresh
    assert record.state is state
    assert claim(outbox, TASK, 1, lambda: prepared(1))[1]
    assert claim(outbox, OTHER, 0, lambda: prepared(0, 1, OTHER))[1]


def test_a_failed_preparation_leaves_nothing(outbox: Outbox) -> None:
    def fails() -> SealedReport:
        raise ShoalError(Kind.INVALID, "no")

    with pytest.raises(ShoalError):
        claim(outbox, TASK, 0, fails)
    assert outbox.records() == []
    assert claim(outbox, TASK, 0, prepared)[1]


def test_an_attempt_is_doubtful_until_it_is_known_to_have_failed(outbox: Outbox) -> None:
    claim(outbox, TASK, 0, prepared)
    outbox.sending(TASK, 0)
    entry = outbox.load(TASK, 0)
    assert entry is not None
    assert (entry.record.attempts, entry.record.doubtful) == (1, True)
    outbox.failed(TASK, 0, Kind.OVERLOADED, False)
    outbox.sending(TASK, 0)
    outbox.failed(TASK, 0, Kind.DEADLINE, True)
    found = outbox.find(TASK, 0)
    assert found is not None
    assert (found.attempts, found.doubtful, found.kind, found.state) == (
        2,
        True,
        Kind.DEADLINE,
        ReportState.QUEUED,
    )


def test_a_report_may_be_added_with_its_first_attempt_begun(outbox: Outbox) -> None:
    """As ``sending`` begins it. Planted: counted and not doubtful, or the other way round."""
    with outbox.transaction():
        assert outbox.claim(TASK, 0) is None
        before = outbox.add(prepared(), sending=True)
        assert outbox.claim(TASK, 1) is None
        outbox.add(prepared(1))
        outbox.sending(TASK, 1)
    begun, other = outbox.load(TASK, 0), outbox.load(TASK, 1)
    assert begun is not None
    assert other is not None
    assert (before.attempts, before.doubtful) == (0, False)
    assert begun.record == replace(before, attempts=1, doubtful=True)
    assert begun.record == replace(other.record, window=0, expires_s=before.expires_s)
    assert begun.frame == prepared().frame


@pytest.mark.parametrize("state", [ReportState.ACKED, ReportState.REFUSED, ReportState.UNKNOWN])
def test_the_first_final_answer_counts_and_the_bytes_go(outbox: Outbox, state: ReportState) -> None:
    """Planted: let a second ``finish`` overwrite -> an acknowledged report would turn into a
    refused one.
    """
    claim(outbox, TASK, 0, prepared)
    told = outbox.finish(TASK, 0, state, None)
    assert outbox.finish(TASK, 0, ReportState.REFUSED, Kind.INVALID) is None
    assert outbox.finish(TASK, 1, state) is None
    outbox.failed(TASK, 0, Kind.DEADLINE, True)
    outbox.sending(TASK, 0)
    found = outbox.find(TASK, 0)
    assert found is not None
    assert (found.state, found.kind, found.attempts) == (state, None, 0)
    assert outbox.load(TASK, 0) is None
    assert outbox.records(queued=True) == []
    assert outbox.records() == [found] == [told]


def test_records_come_by_expiry(outbox: Outbox) -> None:
    for window in (1, 0, 3, 2):
        # mypy knows no default there
        claim(outbox, TASK, window, lambda w=window: prepared(w))  # type: ignore[misc]
    outbox.finish(TASK, 3, ReportState.ACKED)
    assert [record.window for record in outbox.records()] == [3, 2, 1, 0]
    assert [record.window for record in outbox.records(queued=True)] == [2, 1, 0]


def test_a_full_outbox_says_so_before_anything_is_prepared(outbox: Outbox) -> None:
    """Planted: count all rows instead of the queued ones -> the last claim fails."""
    for window in range(MOST):
        # mypy knows no default there
        claim(outbox, TASK, window, lambda w=window: prepared(w))  # type: ignore[misc]
    with pytest.raises(ShoalError) as caught:
        claim(outbox, TASK, MOST, never)
    assert caught.value.kind is Kind.OVERLOADED
    assert "outbox full" in caught.value.message
    assert len(outbox.records()) == MOST
    outbox.finish(TASK, 2, ReportState.ACKED)
    assert claim(outbox, TASK, MOST, lambda: prepared(MOST))[1]


def test_a_task_has_one_schedule(outbox: Outbox) -> None:
    """After a second one nothing of the task goes on, the first one neither: which of them is the
    true one, this device can't know.

    Planted: overwrite the remembered digest -> no error at the second schedule; raise without
    ``strike`` -> the task goes on.
    """
    first, second = Digest(b"1" * 32), Digest(b"2" * 32)
    outbox.pin(TASK, first)
    outbox.pin(TASK, first)
    outbox.pin(OTHER, second)
    claim(outbox, TASK, 0, prepared)
    claim(outbox, TASK, 1, lambda: prepared(1))
    outbox.sending(TASK, 1)
    claim(outbox, OTHER, 0, lambda: prepared(0, 1, OTHER))
    assert not outbox.struck(TASK)
    for schedule in (second, second, first):
        with pytest.raises(ShoalError) as caught:
            outbox.pin(TASK, schedule)
        assert caught.value.kind is Kind.CONFLICT
    assert outbox.struck(TASK)
    for window in (0, 2):
        with pytest.raises(ShoalError) as caught:
            claim(outbox, TASK, window, never)
        assert caught.value.kind is Kind.CONFLICT
        assert outbox.load(TASK, window) is None
    ended = [(record.state, record.kind) for record in outbox.records() if record.task_id == TASK]
    assert ended == [(ReportState.UNKNOWN, Kind.CONFLICT), (ReportState.REFUSED, Kind.CONFLICT)]
    assert outbox.load(OTHER, 0) is not None
    outbox.pin(OTHER, second)


def test_withdrawn_reports_are_never_sent_again(outbox: Outbox) -> None:
    """Of this task alone, and their windows stay answered. Planted: ``withdraw`` deletes the rows
    -> the window is answered again.
    """
    for window in range(3):
        # mypy knows no default there
        claim(outbox, TASK, window, lambda w=window: prepared(w))  # type: ignore[misc]
    claim(outbox, OTHER, 0, lambda: prepared(0, 1, OTHER))
    outbox.finish(TASK, 0, ReportState.ACKED)
    outbox.sending(TASK, 2)
    outbox.failed(TASK, 2, Kind.DEADLINE, True)
    gone = outbox.withdraw(TASK)
    assert [(r.window, r.state, r.kind, r.attempts, r.doubtful) for r in gone] == [
        (1, ReportState.WITHDRAWN, None, 0, False),
        (2, ReportState.WITHDRAWN, Kind.DEADLINE, 1, True),
    ]
    assert [outbox.find(TASK, record.window) for record in gone] == gone
    assert [outbox.load(TASK, window) for window in range(3)] == [None] * 3
    outbox.finish(TASK, 2, ReportState.ACKED)  # a receipt that came too late to matter
    assert outbox.withdraw(TASK) == []
    assert [record.state for record in outbox.records()] == [
        ReportState.WITHDRAWN,
        ReportState.WITHDRAWN,
        ReportState.QUEUED,
        ReportState.ACKED,
    ]
    assert not claim(outbox, TASK, 1, never)[1]
    assert [record.task_id for record in outbox.records(queued=True)] == [OTHER]


def test_of_many_threads_one_claims(outbox: Outbox) -> None:
    """Planted: look, then insert, in two transactions -> more than one is fresh, or an error."""
    if outbox.thread is None:
        return  # one event loop's own object: not shared between threads
    made: list[int] = []
    fresh: list[bool] = []

    def work(mark: int) -> None:
        def make() -> SealedReport:
            made.append(mark)
            return prepared(0, mark)

        fresh.append(claim(outbox, TASK, 0, make)[1])

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fresh.count(True) == 1
    assert len(made) == 1


# --- the durable one ------------------------------------------------------------------------------


def reopened(path: Path, use: Callable[[SqliteOutbox], object]) -> None:
    box = SqliteOutbox(path, MOST)
    try:
        use(box)
    finally:
        box.close()


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"

    def first(box: SqliteOutbox) -> None:
        claim(box, TASK, 0, prepared)
        box.sending(TASK, 0)
        claim(box, TASK, 1, lambda: prepared(1))
        box.finish(TASK, 1, ReportState.UNKNOWN, Kind.WINDOW_FULL)
        box.pin(TASK, Digest(b"1" * 32))

    def second(box: SqliteOutbox) -> None:
        entry = box.load(TASK, 0)
        assert entry is not None
        assert (entry.frame, entry.ack_key, entry.record.attempts, entry.record.doubtful) == (
            prepared().frame,
            prepared().ack_key,
            1,
            True,
        )
        assert not claim(box, TASK, 1, never)[1]
        with pytest.raises(ShoalError):
            box.pin(TASK, Digest(b"2" * 32))

    reopened(path, first)
    reopened(path, second)


def test_a_window_is_claimed_inside_a_transaction(tmp_path: Path) -> None:
    """Outside of one, another process could claim it too. Planted: no look -> None is returned."""
    box = SqliteOutbox(tmp_path / "outbox.db", MOST)
    with pytest.raises(ShoalError) as caught:
        box.claim(TASK, 0)
    assert caught.value.kind is Kind.INTERNAL
    box.close()


def test_two_processes_claim_a_window_once(tmp_path: Path) -> None:
    """Two at the same file, at once. Planted: BEGIN instead of BEGIN IMMEDIATE -> both prepare, one
    fails.
    """
    path = tmp_path / "outbox.db"
    SqliteOutbox(path, MOST).close()
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from shoal.clients.core import SealedReport\n"
        "from shoal.clients.memory.outbox_sqlite import SqliteOutbox\n"
        "from shoal.ids import TaskId\n"
        "from tests.worlds.devices.outbox import claim\n"
        "box, task = SqliteOutbox(Path(sys.argv[1]), 1000), TaskId(b't' * 32)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print([claim(box, task, w, lambda: SealedReport(task, w, b'f' * 512, b'k' * 32, 1))[1]"
        " for w in range(300)].count(True))\n"
        "box.close()\n"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sum(map(int, outputs)) == 300


def test_the_file_is_private(tmp_path: Path) -> None:
    """Planted: leave the mode to SQLite -> 0644 under a usual umask."""
    path = tmp_path / "outbox.db"
    before = os.umask(0o022)
    try:
        box = SqliteOutbox(path)
    finally:
        os.umask(before)
    claim(box, TASK, 0, prepared)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == dict.fromkeys(
        ("outbox.db", "outbox.db-wal", "outbox.db-shm", "outbox.db.head"), 0o600
    )
    box.close()
    path.chmod(0o640)
    with pytest.raises(ShoalError) as caught:
        SqliteOutbox(path)
    assert caught.value.kind is Kind.CONFIG
    assert "chmod 600" in caught.value.message


@pytest.mark.parametrize("end", ["finish", "withdraw", "strike"])
def test_finished_bytes_are_gone_from_the_disk(tmp_path: Path, end: str) -> None:
    """The frame and its acknowledgement key. Planted: secure_delete off -> the bytes stay in a free
    page.
    """
    path = tmp_path / "outbox.db"
    frame, key = os.urandom(512), os.urandom(32)
    box = SqliteOutbox(path)
    claim(box, TASK, 0, lambda: SealedReport(TASK, 0, frame, key, 1))
    pieces = [
        secret[start : start + 16] for secret in (frame, key) for start in range(0, len(secret), 16)
    ]
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert all(piece in held for piece in pieces)
    if end == "strike":
        box.strike(TASK)
    elif end == "withdraw":
        box.withdraw(TASK)
    else:
        box.finish(TASK, 0, ReportState.ACKED)
    box.close()  # the last connection: SQLite empties its log
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not [piece for piece in pieces if piece in held]


@pytest.mark.parametrize("action", ["eio", "enospc"])
def test_a_failing_disk_changes_nothing_and_says_so(tmp_path: Path, action: str) -> None:
    """Planted: return before the commit -> the claim is believed and the row is missing."""
    box = SqliteOutbox(tmp_path / "outbox.db")
    try:
        arm(f"outbox.commit={action}")
        with pytest.raises(ShoalError) as caught:
            claim(box, TASK, 0, prepared)
        assert caught.value.kind is Kind.OVERLOADED
        assert box.records() == []
        assert claim(box, TASK, 0, prepared)[1]
    finally:
        arm("")
        box.close()


def test_unusable_files_are_named(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database " * 1_000)
    text.chmod(0o600)
    newer = tmp_path / "newer.db"
    SqliteOutbox(newer).close()
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version = 99")
    db.close()
    for path in (text, newer, tmp_path / "missing" / "outbox.db", tmp_path):
        with pytest.raises(ShoalError) as caught:
            SqliteOutbox(path)
        assert caught.value.kind is Kind.CONFIG
        assert path.name in caught.value.message
        assert "\n" not in caught.value.message
    assert text.read_text() == "no database " * 1_000
