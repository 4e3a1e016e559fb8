"""What an agent's file promises beyond the rules of outbox and book: crashes, full disks, other
processes, other hands.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from shoal.clients.core import ReportState, SealedReport
from shoal.clients.memory import database as store_sqlite
from shoal.clients.memory.commitments import tag
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import EMPTY, Head, Noted
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.errors import Kind, ShoalError
from shoal.failpoints import arm
from shoal.ids import Digest
from tests.conformance.outbox.device import TASK, Device, entry, error_of
from tests.worlds.devices.outbox import claim


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "outbox.db"
    arm("")


@pytest.fixture
def device(path: Path) -> Iterator[Device]:
    made = Device(path)
    yield made
    made.store.close()


# --- one transaction ------------------------------------------------------------------------------


def test_a_claim_and_all_that_it_writes_commit_together(device: Device) -> None:
    """Planted: a book on a connection of its own -> it waits for the lock that its own thread
    holds, and fails.
    """
    assert device.claim(0)
    assert device.standing() == (1, 1, 1, 1)
    arm("outbox.commit=eio")
    error_of(Kind.OVERLOADED, lambda: device.claim(1))
    arm("")
    assert device.standing() == (1, 1, 1, 1)

    def fails_late() -> SealedReport:
        device.make(1)
        raise ShoalError(Kind.INVALID, "no")

    error_of(Kind.INVALID, lambda: claim(device.outbox, TASK, 1, fails_late))
    assert device.standing() == (1, 1, 1, 1)
    assert device.claim(1)
    assert device.standing() == (2, 2, 2, 2)


def test_a_disk_that_is_full_in_the_middle(device: Device, path: Path) -> None:
    """A real SQLITE_FULL, in the last of the four writes. Nothing is charged, and it goes on when
    there is room.
    """
    device.claim(0)
    pages = device.store.read("PRAGMA page_count")[0][0]
    device.store.read(f"PRAGMA max_page_count = {pages + 3}")
    message = error_of(Kind.OVERLOADED, lambda: device.claim(1, size=32_768))
    assert "disk is full" in message
    assert device.standing() == (1, 1, 1, 1)
    assert device.store.noted_head() == device.commitments.verify()
    device.store.read("PRAGMA max_page_count = 1000000")
    assert device.claim(1, size=32_768)
    assert device.standing() == (2, 2, 2, 2)


def test_after_sqlite_gave_up_a_transaction_nothing_more_of_it_is_written(device: Device) -> None:
    """SQLite rolls back by itself when a disk fails; statements after that would commit one by one.

    Planted: no ``_broken`` -> the charge after the failure stays, without a report.
    """
    store, commitments = device.store, device.commitments

    def inner() -> None:
        with store.write() as db:
            db.execute("ROLLBACK")  # as SQLite does
            raise OSError(5, "failing")

    def outer() -> None:
        with store.write():
            commitments.charge(TASK, 0, 1, None)
            error_of(Kind.OVERLOADED, inner)
            error_of(Kind.OVERLOADED, lambda: commitments.charge(TASK, 1, 1, None))
            error_of(Kind.OVERLOADED, lambda: commitments.append(entry()))

    error_of(Kind.OVERLOADED, outer)
    assert (commitments.charges(), commitments.entries()) == ([], [])
    assert device.claim(0)
    assert device.standing() == (1, 1, 1, 1)


def test_other_threads_wait_for_the_end_of_a_transaction(device: Device) -> None:
    """They share the connection, which sees what is not committed. Planted: no lock around a read
    -> a charge that is undone is seen.
    """
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        seen.append(device.commitments.spent())
        done.set()

    reader = threading.Thread(target=look)
    with device.store.write():
        device.commitments.charge(TASK, 0, 1, None)
        reader.start()
        assert not done.wait(0.1)
        device.commitments.charge(TASK, 1, 1, None)
        assert device.commitments.spent() == 2  # this thread sees its own
    reader.join()
    assert seen == [2]


def test_claims_from_several_threads(device: Device) -> None:
    """As asyncio.to_thread makes them. Planted: a depth that threads share without a lock -> one
    joins the other's transaction.
    """
    failures: list[ShoalError] = []

    def work(first: int) -> None:
        try:
            for window in range(first, 40, 4):
                device.claim(window)
        except ShoalError as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(first,)) for first in (0, 1, 2, 3, 0)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    assert not failures
    assert (
        device.commitments.spent(),
        device.commitments.verify().count,
        len(device.outbox.records()),
    ) == (
        40,
        40,
        40,
    )


def test_nobody_commits_while_a_head_is_noted(
    device: Device, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that of two processes none writes an older head over a newer one. Planted: no lock of the
    file around it -> the other gets it.
    """
    real, refused = store_sqlite._replace, []

    def replace(head: Path, data: bytes) -> None:
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        refused.append(data)
        real(head, data)

    monkeypatch.setattr(store_sqlite, "_replace", replace)
    device.claim(0)
    # What is spent is noted before it is, and ahead; then the head is.
    assert refused == [
        f"{Noted(EMPTY, 8)}\n".encode(),
        f"{Noted(device.commitments.verify(), 2)}\n".encode(),
    ]


CHILD = """
import sys
from pathlib import Path
from tests.conformance.outbox.device import Device
from shoal.errors import ShoalError
from tests.worlds.devices.outbox import claim
device, first = Device(Path(sys.argv[1])), int(sys.argv[2])
device.limit = 300
print("ready", flush=True)
sys.stdin.readline()
refused = 0
for window in range(first, first + 240):
    try:
        device.claim(window)
    except ShoalError as error:
        assert "budget" in error.message, error
        refused += 1
device.store.close()
print(refused)
"""


def child(path: Path, *arguments: str, failpoints: str = "") -> subprocess.Popen[str]:
    path_of_imports = os.pathsep.join(
        filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")))
    )
    environment = {**os.environ, "SHOAL_FAILPOINTS": failpoints, "PYTHONPATH": path_of_imports}
    command = [sys.executable, "-c", CHILD, str(path), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def test_two_processes_share_one_budget_and_one_chain(path: Path) -> None:
    """Both open a new file at once, and answer overlapping windows: 360 in all, of which the budget
    pays 300.

    Planted: BEGIN instead of BEGIN IMMEDIATE -> one of them fails where it should wait.
    """
    workers = [child(path, first) for first in ("0", "120")]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    refused = [int(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    device = Device(path)
    assert (
        device.commitments.spent()
        == 300
        == len(device.commitments.charges())
        == len(device.outbox.records())
    )
    assert len({charge.window for charge in device.commitments.charges()}) == 300
    assert sum(refused) >= 60
    head = device.commitments.verify()
    assert head.count == 300
    assert device.store.noted_head() == head
    device.store.close()


@pytest.mark.parametrize(
    ("point", "kept"),
    [("outbox.commit=exit@3", 2), ("outbox.head=exit@3", 3), ("outbox.head.rename=exit@4", 3)],
)
def test_a_device_that_dies_has_all_of_a_claim_or_nothing(
    path: Path, point: str, kept: int
) -> None:
    """Killed before the commit, between commit and head, and in the middle of writing the head;
    then started again.

    Planted: the head written before the commit -> it leads, and an honest crash looks like a ledger
    that was cut.
    """
    Device(path).store.close()
    worker = child(path, "0", failpoints=point)
    worker.communicate("go\n")
    assert worker.returncode == -signal.SIGKILL
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    assert reader.execute("SELECT count(*) FROM ledger").fetchone() == (kept,)
    reader.close()
    device = Device(path)
    head = device.commitments.verify()
    assert device.standing() == (kept, kept, kept, kept)
    assert device.store.noted_head() == head
    assert device.claim(kept)
    assert device.store.noted_head() == device.commitments.verify()
    device.store.close()


def test_a_head_that_can_not_be_written_lags_behind(device: Device, path: Path) -> None:
    """The report stands, the owner is not told of a failure, and the next commit, or the end,
    brings the head up.
    """
    device.claim(0)
    first = device.store.noted_head()
    arm("outbox.head=enospc")
    assert device.claim(1)
    arm("")
    assert device.store.noted_head() == first
    assert device.commitments.verify().count == 2
    assert device.claim(2)
    assert device.store.noted_head() == device.commitments.verify()
    arm("outbox.head=enospc")
    device.claim(3)
    arm("")
    device.store.close()
    assert (path.with_name("outbox.db.head").read_text().splitlines()[-1].partition(":")[0]) == "4"
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".new"] == []


@pytest.mark.parametrize("last", ["settle", "close"])
def test_a_head_is_noted_once_in_a_while_and_before_the_device_rests(path: Path, last: str) -> None:
    """Two synced writes for each report would cost more than the report. Planted: ``settle``
    without its call -> the head stays at 1.
    """
    device = Device(path, 3_600.0)
    for window in range(3):
        device.claim(window)
    first, *_, newest = device.commitments.entries()
    assert device.store.noted_head() == Head(1, first.digest)
    assert device.commitments.verify().count == 3  # it lags behind, and lies on the chain
    getattr(device.store, last)()
    assert device.store.noted_head() == Head(3, newest.digest)
    device.store.close()


# --- older files ----------------------------------------------------------------------------------


def old_file(path: Path) -> None:
    """As the first version wrote it."""
    path.touch(0o600)
    db = sqlite3.connect(path)
    db.executescript(
        files("shoal.clients.memory").joinpath("migrations", "outbox_001.sql").read_text()
    )
    db.execute(
        "INSERT INTO report VALUES (?, 0, 'queued', 7, 3, 1, 99, ?, ?)",
        (TASK.raw, b"f" * 512, b"k" * 32),
    )
    db.execute("INSERT INTO report VALUES (?, 1, 'acked', NULL, 1, 0, 98, NULL, NULL)", (TASK.raw,))
    db.execute("INSERT INTO schedule VALUES (?, ?)", (TASK.raw, b"1" * 32))
    db.execute("PRAGMA user_version = 1")
    db.execute("PRAGMA journal_mode = WAL")
    db.commit()
    db.close()


def test_an_older_file_is_taken_over(path: Path) -> None:
    """Planted: no copy of the rows -> the windows would be answered a second time."""
    old_file(path)
    device = Device(path)
    first, second = device.outbox.records()
    assert (second.window, second.state, second.kind, second.attempts, second.doubtful) == (
        0,
        ReportState.QUEUED,
        Kind.OVERLOADED,
        3,
        True,
    )
    assert (first.window, first.state) == (1, ReportState.ACKED)
    held = device.outbox.load(TASK, 0)
    assert held is not None
    assert (held.frame, held.ack_key) == (b"f" * 512, b"k" * 32)
    assert not device.claim(0)
    device.outbox.pin(TASK, Digest(b"1" * 32))
    assert device.store.read("PRAGMA integrity_check") == [("ok",)]
    assert device.store.marked.damages() == []
    assert device.store.read("PRAGMA user_version") == [(6,)]
    assert "queued" in str(
        device.store.read("EXPLAIN QUERY PLAN SELECT count(*) FROM report WHERE state = 'queued'")
    )
    assert [record.state for record in device.outbox.withdraw(TASK)] == [ReportState.WITHDRAWN]
    assert (device.commitments.verify(), device.store.noted_head()) == (EMPTY, EMPTY)
    device.store.close()


def test_a_file_of_the_second_version_keeps_what_it_memoized(path: Path) -> None:
    """And gets room for choices. Planted: the third file left out of the list -> no table, and this
    fails.
    """
    path.touch(0o600)
    db = sqlite3.connect(path)
    for number in (1, 2):
        db.executescript(
            files("shoal.clients.memory")
            .joinpath("migrations", f"outbox_00{number}.sql")
            .read_text()
        )
    secret = b"s" * 32
    db.execute("INSERT INTO memo_key VALUES (?, ?)", (TASK.raw, secret))
    db.execute("INSERT INTO memo VALUES (?, ?, ?, 1)", (TASK.raw, tag(secret, 4), b"kept"))
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
    device = Device(path)
    assert (
        device.commitments.permanent(TASK, 4),
        device.commitments.latest(TASK),
        device.commitments.choice(TASK),
    ) == (
        b"kept",
        b"kept",
        None,
    )
    device.commitments.choose(TASK, b"chosen")
    assert device.commitments.choice(TASK) == b"chosen"
    device.store.close()


def test_an_older_file_is_taken_over_by_one_of_many(path: Path) -> None:
    """Planted: the version read outside of the lock alone -> the tables are made twice, and an
    agent can't start.
    """
    old_file(path)
    opened: list[AgentStore] = []
    failures: list[ShoalError] = []

    def work() -> None:
        try:
            opened.append(AgentStore(path))
        except ShoalError as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(len(SqliteOutbox(store).records()) == 2 for store in opened)
    for store in opened:
        store.close()


def test_a_migration_that_is_interrupted_begins_anew(path: Path) -> None:
    old_file(path)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE ledger (something)")  # in its way: the migration fails in the middle
    db.close()
    error_of(Kind.CONFIG, lambda: AgentStore(path))
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM report").fetchone() == (2,)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.execute("DROP TABLE ledger")
    db.close()
    device = Device(path)
    assert len(device.outbox.records()) == 2
    device.store.close()


# --- the disk -------------------------------------------------------------------------------------


def test_forgotten_reports_are_gone_from_the_disk(device: Device, path: Path) -> None:
    """Reports, key and all. Planted: secure_delete off -> they stay in free pages."""
    report = os.urandom(64)
    device.commitments.remember(TASK, 3, report)
    secret = device.store.read("SELECT secret FROM memo_key")[0][0]
    held = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert report in held
    assert secret in held
    device.commitments.forget(TASK)
    device.store.close()
    held = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert report[:16] not in held
    assert secret[:16] not in held


def test_a_closed_file_says_so(path: Path) -> None:
    device = Device(path)
    device.store.close()
    device.store.close()
    for step in (
        device.commitments.spent,
        lambda: device.claim(0),
        lambda: device.commitments.append(entry()),
    ):
        assert "closed" in error_of(Kind.UNAVAILABLE, step)


def test_an_outbox_closes_only_what_it_opened(path: Path) -> None:
    store = AgentStore(path)
    SqliteOutbox(store).close()
    assert SqliteOutbox(store).records() == []
    store.close()
    box = SqliteOutbox(path)
    box.close()
    error_of(Kind.UNAVAILABLE, box.records)


def test_a_file_in_use_for_too_long_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.clients.memory.sqlite_file._BUSY_S", 0.05)
    device = Device(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "busy" in error_of(Kind.OVERLOADED, lambda: device.claim(0))
    other.execute("ROLLBACK")
    other.close()
    assert device.claim(0)
    device.store.close()
