"""Nothing that the shuffler stores is lost silently: every file damaged in every way, and what a
start makes of it.

The rule: what is delivered was sent; what was acknowledged and is not delivered is counted as
damaged; and whatever damage had an effect is told by a condition. Where state.db itself is what was
damaged, counts may be gone with it: then it is told.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.sqlite import intake
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from shoal.storage.checksums import row_digest
from tests.faults import corrupt
from tests.sizes import size
from tests.worlds.inbox_file import KEY

pytestmark = pytest.mark.campaign

TASK, ROW = TaskId(bytes(range(32))), 200
WINDOW, OTHER = WindowId(TASK, 0), WindowId(TASK, 1)
INBOX, BATCH, STATE = f"inbox-{TASK.hex}-0.db", f"batch-{TASK.hex}-0.rows", "state.db"
REPORTS, SEEDS = 300, size(2, 10, 40)


def adopted(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 10_000, 40_000), ROW)
    return store


def take(store: SqliteStore, window: WindowId, reports: list[bytes], group: int = 50) -> None:
    for at in range(0, len(reports), group):
        part = [AdmittedReport(window, (one,)) for one in reports[at : at + group]]
        assert store.append(part) == [None] * len(part)
        store.confirm()


@dataclass(frozen=True)
class Site:
    """Folders of one window, as a killed service leaves them: open, and sealed. ``other``: of a
    window that nothing happens to.
    """

    opened: Path
    sealed: Path
    acked: frozenset[bytes]
    other: frozenset[bytes]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    live, opened, sealed = (
        tmp_path_factory.mktemp("damage") / name for name in ("live", "opened", "sealed")
    )
    live.mkdir()
    acked, other = ([secrets.token_bytes(ROW) for _ in range(REPORTS)] for _ in range(2))
    store = adopted(live)
    take(store, OTHER, other)
    take(store, WINDOW, acked)
    shutil.copytree(live, opened)
    close(store, WINDOW)
    shutil.copytree(live, sealed)
    store.close()
    return Site(opened, sealed, frozenset(acked), frozenset(other))


def close(store: SqliteStore, window: WindowId) -> None:
    """Bring a window to SEALED, from wherever it is."""
    record = store.record(window)
    if record is not None and record.state is WindowState.OPEN:
        store.close_intake(window)
    record = store.record(window)
    if record is not None and record.state is WindowState.CLOSING:
        sealed = store.seal(window)
        store.advance(
            window, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest"
        )
        store.destroy_inbox(window)


def delivered(store: SqliteStore, window: WindowId) -> set[bytes]:
    """What the analyzer would get, after mending as the lifecycle does it."""
    close(store, window)
    record = store.record(window)
    if record is None or record.state is not WindowState.SEALED:
        return set()
    sealed = store.mend(window)
    if sealed is not None:
        store.advance(
            window, WindowState.SEALED, WindowState.SEALED, sealed, sealed.rows, b"another"
        )
        record = store.record(window)
        assert record is not None
    try:
        data = b"".join(store.read_rows(window, first, 97) for first in range(0, record.rows, 97))
    except ShoalError:  # gone: told, and tried again until retention ends
        return set()
    assert Digest.of(data) == record.rows_hash
    rows = [data[at : at + ROW] for at in range(0, len(data), ROW)]
    assert len(rows) == len(set(rows))
    return set(rows)


def damaged(store: SqliteStore) -> int:
    """What the record of WINDOW counts as lost."""
    record = store.record(WINDOW)
    assert record is not None
    return record.damaged


def lose_rows(folder: Path, kept: int) -> None:
    """The inbox of WINDOW holds its first rows alone."""
    with closing(sqlite3.connect(folder / INBOX, isolation_level=None)) as box:
        found = box.execute("SELECT number, length(body) FROM block ORDER BY number").fetchall()
        held = 0
        for number, length in found:
            held += length // (KEY + ROW)
            if held > kept:
                box.execute("DELETE FROM block WHERE number = ?", (number,))


def verdict(site: Site, folder: Path, *, of_state: bool) -> str:
    """Empty if the rule holds."""
    store = adopted(folder)
    try:
        if of_state and store.record(OTHER) is None:
            return "" if store.damage() else "a window vanished silently"
        rows = delivered(store, WINDOW)
        record = store.record(WINDOW)
        damaged = 0 if record is None else record.damaged
        told = [one for one in store.damage() if one.subject in ("state.db", f"{TASK.short}:0")]
        missing = len(site.acked - rows)
        if not rows <= site.acked:
            return "something is delivered that was never sent"
        if missing and not told:
            return f"{missing} reports lost silently"
        if missing and not of_state and damaged != missing and rows:
            return f"{missing} reports lost, {damaged} counted"
        if damaged and not missing:
            return "damage is counted where there is none"
        if not of_state and delivered(store, OTHER) != site.other:
            return "another window suffered"
    finally:
        store.close()
    return ""


def cases(folder: Path) -> list[str]:
    return sorted(
        path.name
        for path in folder.iterdir()
        if not path.name.endswith("-shm") and "-1.db" not in path.name
    )


def play(site: Site, source: Path, work: Path) -> tuple[int, list[str]]:
    """(images, rule breakers) of every file of ``source`` under every corruption."""
    bad, count = list[str](), 0
    for name in cases(source):
        if not (source / name).stat().st_size:
            continue
        for how, corruption in corrupt.ALL.items():
            for seed in range(1 if how in corrupt.ONCE else SEEDS):
                folder = work / f"{count}"
                shutil.copytree(source, folder)
                # which byte is no secret
                corruption(folder / name, random.Random(f"{name} {how} {seed}"))  # noqa: S311
                try:
                    wrong = verdict(site, folder, of_state=name.startswith(STATE))
                except (ShoalError, sqlite3.Error, AssertionError) as error:
                    wrong = f"{type(error).__name__}: {error}"
                bad += [f"{name} {how} {seed}: {wrong}"] if wrong else []
                count += 1
                shutil.rmtree(folder)
    return count, bad


@pytest.mark.parametrize("state", ["opened", "sealed"])
def test_whatever_is_damaged_is_told_and_counted(
    site: Site, memory_folder: Path, state: str
) -> None:
    """Planted: rows of a batch read without their checksum -> a flipped batch is delivered,
    fails.
    """
    count, bad = play(site, getattr(site, state), memory_folder)
    assert bad == []
    assert count >= 2 * 5 * SEEDS


def test_an_inbox_that_is_removed_costs_what_it_held_and_no_more(
    site: Site, tmp_path: Path
) -> None:
    """300 acknowledged, the file removed, 400 more: 400 are delivered and 300 counted. Planted: no
    durable count -> damaged 0.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{INBOX}{suffix}").unlink(missing_ok=True)
    with closing(adopted(folder)) as store:
        more = [secrets.token_bytes(ROW) for _ in range(400)]
        take(store, WINDOW, more)
        assert delivered(store, WINDOW) == set(more)
        assert damaged(store) == REPORTS
        assert [one.code for one in store.damage()] == ["damage"]


def test_an_older_copy_of_an_inbox_is_found_out(tmp_path: Path) -> None:
    """Planted: the count of rows kept in the inbox itself -> fits, and fails."""
    store = adopted(tmp_path)
    first, second = ([secrets.token_bytes(ROW) for _ in range(100)] for _ in range(2))
    take(store, WINDOW, first)
    store.close()
    older = (tmp_path / INBOX).read_bytes()
    store = adopted(tmp_path)
    take(store, WINDOW, second)
    store.close()
    (tmp_path / INBOX).write_bytes(older)
    with closing(adopted(tmp_path)) as store:
        assert delivered(store, WINDOW) == set(first)
        assert damaged(store) == 100


def test_a_window_that_state_db_lost_still_has_its_count(site: Site, tmp_path: Path) -> None:
    """Its row damaged and its inbox lost rows too. Planted: the count in that row, or the entry
    dropped -> damaged 0, fails.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    with closing(sqlite3.connect(folder / STATE, isolation_level=None)) as state:
        state.execute("UPDATE window SET state = 2 WHERE window = 0")
    lose_rows(folder, 250)
    with closing(adopted(folder)) as store:
        assert len(delivered(store, WINDOW)) == 250
        assert damaged(store) == REPORTS - 250


def test_counts_that_are_lost_are_told_and_made_anew(site: Site, tmp_path: Path) -> None:
    """Planted: a window without an entry taken for one that was never counted -> nothing is told,
    fails. Planted: counted from the next report on alone -> what the inbox loses meanwhile is not
    missed, fails.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    (folder / "acknowledged").unlink()
    with closing(adopted(folder)) as store:
        assert {one.subject for one in store.damage()} == {f"{TASK.short}:0", f"{TASK.short}:1"}
        store.confirm()
    lose_rows(folder, 250)
    with closing(adopted(folder)) as store:
        assert len(delivered(store, WINDOW)) == 250
        assert damaged(store) == REPORTS - 250


def test_two_rows_with_each_other_s_bytes_are_both_damaged(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    with closing(sqlite3.connect(folder / INBOX, isolation_level=None)) as box:
        (first,), (second,) = box.execute(
            "SELECT body FROM block WHERE number IN (2, 9) ORDER BY number"
        ).fetchall()
        one, other = first[KEY : KEY + ROW], second[-ROW:]
        changed = [(first.replace(one, other), 2), (second.replace(other, one), 9)]
        box.executemany("UPDATE block SET body = ? WHERE number = ?", changed)
    with closing(adopted(folder)) as store:
        assert delivered(store, WINDOW) == site.acked - {one, other}
        assert damaged(store) == 2


@pytest.mark.parametrize(
    "secret", ["7", "zeroblob(3)", "zeroblob(32)", "x''", "'a text of thirty-two characters.'"]
)
def test_a_secret_that_is_none_is_not_taken_for_one_of_the_version_before(
    site: Site, tmp_path: Path, secret: str
) -> None:
    """Without its checksum. Planted: whatever is there gets one -> the start ends in a TypeError,
    or a report sent again counts twice.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    with closing(sqlite3.connect(folder / INBOX, isolation_level=None)) as box:
        # a test's own text
        box.execute(f"UPDATE secret SET secret = {secret}, digest = NULL")  # noqa: S608
    with closing(adopted(folder)) as store:
        assert store.damage()
        again = sorted(site.acked)[:10]
        take(store, WINDOW, again)
        assert delivered(store, WINDOW) == set(again)
        assert damaged(store) == REPORTS


def test_tags_that_are_lost_let_no_device_in_twice(tmp_path: Path) -> None:
    """Of a task for enrolled devices. Planted: a bad tag believed, or passed over without counting
    those that are left -> the device's second report is taken.
    """
    who, sent = (
        [secrets.token_bytes(32) for _ in range(20)],
        [secrets.token_bytes(ROW) for _ in range(20)],
    )
    store = adopted(tmp_path)
    assert (
        store.append(
            [AdmittedReport(WINDOW, (one,), device) for one, device in zip(sent, who, strict=True)]
        )
        == [None] * 20
    )
    store.confirm()
    store.close()
    with closing(sqlite3.connect(tmp_path / INBOX, isolation_level=None)) as box:
        (tag,) = box.execute("SELECT tag FROM admitted LIMIT 1").fetchone()
        box.execute(
            "UPDATE admitted SET tag = ? WHERE tag = ?", (bytes([tag[0] ^ 1]) + tag[1:], tag)
        )
    with closing(adopted(tmp_path)) as store:
        again = [AdmittedReport(WINDOW, (secrets.token_bytes(ROW),), device) for device in who]
        assert all(kind in (Kind.OVERLOADED, Kind.CONFLICT) for kind in store.append(again))
        # a repeat is acknowledged as ever
        assert store.append([AdmittedReport(WINDOW, (sent[0],), who[0])]) == [None]
        assert store.damage()
        assert delivered(store, WINDOW) == set(sent)


@pytest.mark.parametrize(
    "change",
    [
        "state = 2",
        "state = 8",
        "outcome = 5",
        "acked = 1",
        "damaged = 7",
        "window = 5",
        "manifest = x'00'",
        "digest = NULL",
    ],
)
def test_a_row_of_state_that_is_not_what_was_written_is_not_believed(
    site: Site, tmp_path: Path, change: str
) -> None:
    """Its window goes on from its files. Planted: no digest, or one without any of these columns ->
    fails.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    with closing(sqlite3.connect(folder / STATE, isolation_level=None)) as state:
        # a test's own text
        state.execute(f"UPDATE window SET {change} WHERE window = 0")  # noqa: S608
    with closing(adopted(folder)) as store:
        assert store.damage()
        assert delivered(store, WINDOW) == site.acked
        assert delivered(store, OTHER) == site.other
        assert damaged(store) == 0


def test_a_damaged_inbox_without_a_count_keeps_what_can_be_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: rows looked for up to the count and what the writer may hold alone -> 64 are left,
    fails. Planted: one text per window -> that the count is lost is told no more, fails.
    """
    monkeypatch.setattr(intake, "LIMITS", replace(LIMITS, writer_queue_rows=64))
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    adopted(folder).close()  # its log is in the file now
    (folder / "acknowledged").unlink()
    data = bytearray((folder / INBOX).read_bytes())
    at = data.rindex(sorted(site.acked)[7]) // corrupt.PAGE * corrupt.PAGE
    assert at
    data[at : at + corrupt.PAGE] = b"\xff" * corrupt.PAGE
    (folder / INBOX).write_bytes(data)
    with closing(adopted(folder)) as store:
        rows = delivered(store, WINDOW)
        assert rows < site.acked
        assert len(rows) >= REPORTS - 2 * corrupt.PAGE // ROW
        (told,) = [one.message for one in store.damage() if one.subject == f"{TASK.short}:0"]
        assert "count of acknowledged reports is lost" in told
        assert "is damaged" in told
        assert "rows lost: unknown" in told


def test_counts_of_the_version_before_are_taken_from_state_db_once(
    site: Site, tmp_path: Path
) -> None:
    """Planted: told as lost -> fails. Planted: the figure left in state.db -> a count that is lost
    later is not told, fails.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    with closing(sqlite3.connect(folder / STATE, isolation_level=None)) as state:
        state.create_function("row_digest", -1, row_digest)
        state.execute(f"UPDATE window SET acked = {REPORTS}")  # noqa: S608 - a test's own text
        columns = (
            "task_id, window, state, outcome, reports, rows, row_size, rows_hash, manifest, acked, "
            "damaged"
        )
        state.execute(f"UPDATE window SET digest = row_digest({columns})")  # noqa: S608 - likewise
    (folder / "acknowledged").unlink()
    lose_rows(folder, 250)
    with closing(adopted(folder)) as store:
        assert [one.subject for one in store.damage()] == [f"{TASK.short}:0"]
        assert damaged(store) == REPORTS - 250
    (folder / "acknowledged").unlink()
    with closing(adopted(folder)) as store:
        assert {one.subject for one in store.damage()} == {f"{TASK.short}:0", f"{TASK.short}:1"}


@pytest.mark.parametrize("what", ["folder", "pipe", "unreadable"])
def test_counts_that_can_not_be_read_are_set_aside(site: Site, tmp_path: Path, what: str) -> None:
    """The shuffler starts, says so and loses nothing. Planted: the failure passed on -> CONFIG,
    fails.
    """
    folder = tmp_path / "one"
    shutil.copytree(site.opened, folder)
    path = folder / "acknowledged"
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/proc/self/mem")  # its first page gives EIO
    with closing(adopted(folder)) as store:
        told = {one.subject: one.message for one in store.damage()}
        assert told.keys() == {"acknowledged", f"{TASK.short}:0", f"{TASK.short}:1"}
        assert "acknowledged.damaged-1" in told["acknowledged"]
        assert path.is_file()
        assert not path.is_symlink()
        assert delivered(store, WINDOW) == site.acked
    with closing(adopted(folder)) as store:
        assert not store.damage()
