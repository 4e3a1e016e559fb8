"""The embedded store under the common suite, and what is true of its files in particular."""

from __future__ import annotations

import hmac
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.sqlite import inbox, records
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, Store, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from tests.conformance.store.harness import ROW, TASK, devices, mine, of, reports, seal, submissions
from tests.conformance.store.suite import StoreSuite
from tests.worlds.inbox_file import stored


class TestSqliteStore(StoreSuite):
    async def make(self, folder: Path) -> Store:
        return ThreadedStore(SqliteStore(folder), commit_ms=0)

    async def read(self, folder: Path, window: WindowId) -> WindowRecord | None:
        return records.stored(folder).get(window)

    def fork(self, folder: Path, copy: Path) -> None:
        shutil.copytree(folder, copy)

    def remains(self, folder: Path) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))

    async def test_the_order_test_catches_a_store_that_is_read_in_insertion_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted defect of ``test_delivered_order_does_not_depend_on_arrival_order``, kept."""

        def by_insertion(
            path: Path, spill: Path, row_size: int, tally: inbox.RowsRead, _: Sequence[bytes]
        ) -> Iterator[bytes]:
            rows = stored(path, row_size)
            tally.rows += len(rows)
            yield from dict.fromkeys(sealed for _, sealed in rows)

        monkeypatch.setattr(inbox, "distinct_sorted", by_insertion)
        one, other = await self.orders_for_two_arrivals(tmp_path, 60)
        assert one != other

    async def test_no_file_of_a_sealed_window_shows_arrival(self, tmp_path: Path) -> None:
        """After SEALED only state.db and the batch are left (no inbox, no log of it), without keys,
        secret or row numbers. Also where somebody else has the inbox open, so that SQLite leaves
        its log.

        Planted: leaving the -wal file, or writing keys into the batch -> fails.
        """
        store = await self.adopted(tmp_path)
        sent = reports(50)
        for report in sent:
            await self.put(store, submissions([report]))
        box = inbox_of(store, 0)
        keys, secret = [box.key(report) for report in sent], box._secret
        # the scan finds what it looks for
        assert all(key in self.remains(tmp_path) for key in [*keys, secret])
        with closing(sqlite3.connect(tmp_path / f"inbox-{TASK.hex}-0.db")) as other:
            assert other.execute("SELECT count(*) FROM block").fetchone() == (50,)
            await seal(store)
        remains = self.remains(tmp_path)
        assert not any(key in remains or key[:8] in remains for key in [*keys, secret])
        batch = f"batch-{TASK.hex}-0.rows"
        assert set(os.listdir(tmp_path)) <= {
            "acknowledged",
            "state.db",
            "state.db-wal",
            "state.db-shm",
            batch,
        }
        data = await store.read_rows(WindowId(TASK, 0), 0, 50)
        assert (tmp_path / batch).read_bytes().startswith(data)
        assert [data[at : at + 60] for at in range(0, len(data), 60)] == sorted(
            sent, key=lambda report: keys[sent.index(report)]
        )

    async def test_the_log_goes_with_its_file_even_while_somebody_reads_it(
        self, tmp_path: Path
    ) -> None:
        """An open reader keeps SQLite from removing its log. Planted: unlinking the .db alone ->
        fails.
        """
        store, sent = await self.adopted(tmp_path), reports(50)
        await self.put(store, submissions(sent))
        with closing(sqlite3.connect(tmp_path / f"inbox-{TASK.hex}-0.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM block").fetchone()
            assert (tmp_path / f"inbox-{TASK.hex}-0.db-wal").exists()
            await seal(store)
            assert not [name for name in os.listdir(tmp_path) if name.startswith("inbox-")]

    async def test_rows_of_one_commit_are_sorted_by_key(self, tmp_path: Path) -> None:
        """Within a commit even an open window's file shows no order. Planted: no sort in
        ``Inbox.append`` -> fails.
        """
        store, sent = await self.adopted(tmp_path), reports(30)
        await self.put(store, submissions(sent))
        box = inbox_of(store, 0)
        found = stored(tmp_path / f"inbox-{TASK.hex}-0.db", ROW)
        assert [key for key, _ in found] == sorted(box.key(report) for report in sent)
        assert found == [(box.key(sealed), sealed) for _, sealed in found]

    async def test_a_sort_that_does_not_fit_memory_spills_into_the_data_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: temporary files without the folder -> they are in /tmp, fails."""
        store = await self.adopted(tmp_path)
        monkeypatch.setattr(sorting, "RUN_BYTES", 1 << 18)
        await self.put(store, submissions(reports(20_000)))
        await store.close_intake(await mine(store, WindowId(TASK, 0)))
        before = _opened()
        rows = inbox.distinct_sorted(tmp_path / f"inbox-{TASK.hex}-0.db", tmp_path, 60)
        next(rows)
        spilled = [name for name in _opened() - before if "/inbox-" not in name]
        assert len(spilled) == 1  # whatever the number of runs
        assert all(
            name.startswith(str(tmp_path)) and name.endswith("(deleted)") for name in spilled
        )
        rows.close()  # type: ignore[attr-defined]  # a generator

    # --- admitted devices -------------------------------------------------------------------------

    async def test_tags_are_keyed_by_the_window_and_go_with_it(self, tmp_path: Path) -> None:
        """A list of all devices finds nobody without the secret of the window; and after sealing
        neither is left.

        Planted: SHA-256 of the key as the tag, or an HMAC under a key of the program's -> fails.
        Planted: tags in state.db -> fails.
        """
        store, who = await self.adopted(tmp_path), devices(3)
        for window in (0, 1):
            await self.put(
                store,
                [of(one, report, window) for one, report in zip(who, reports(3), strict=True)],
            )
        boxes = [inbox_of(store, window) for window in (0, 1)]
        tags = [[box.tag(one) for one in who] for box in boxes]
        assert not set(tags[0]) & set(tags[1])
        for box, expected in zip(boxes, tags, strict=True):
            assert [
                tag[:16] for (tag,) in box._connection.execute("SELECT tag FROM admitted")
            ] == sorted(expected)
            assert expected == [
                hmac.digest(box._secret, b"shoal/v1/admitted\x00" + one, "sha256")[:16]
                for one in who
            ]
        secret = boxes[0]._secret
        # the scan finds what it looks for
        assert all(tag in self.remains(tmp_path) for tag in tags[0])
        await seal(store)
        remains = self.remains(tmp_path)
        assert not any(tag in remains or tag[:8] in remains for tag in [*tags[0], secret])
        assert all(tag in remains for tag in tags[1])

    async def test_tags_are_kept_in_their_own_order(self, tmp_path: Path) -> None:
        """No row number of the table pairs a device with a row of the inbox. Planted: a table with
        row numbers -> fails.
        """
        store, who = await self.adopted(tmp_path), devices(30)
        for one, report in zip(who, reports(30), strict=True):
            await self.put(store, [of(one, report)])
        connection = inbox_of(store, 0)._connection
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            connection.execute("SELECT rowid FROM admitted")
        found = [tag for (tag,) in connection.execute("SELECT tag FROM admitted")]
        assert found == sorted(found)
        assert len(found) == 30

    # --- folders that do not hold together --------------------------------------------------------

    async def test_a_state_file_of_a_newer_version_refuses_to_start(self, tmp_path: Path) -> None:
        await (await self.adopted(tmp_path)).close()
        connection = sqlite3.connect(tmp_path / "state.db")
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(ShoalError, match="newer version of shoal") as refused:
            await self.open(tmp_path)
        assert refused.value.kind is Kind.CONFIG

    async def test_leftovers_of_a_shredded_window_are_removed_at_the_start(
        self, tmp_path: Path
    ) -> None:
        store = await self.adopted(tmp_path)
        await store.lapse([await mine(store, WindowId(TASK, 3))])
        left = [tmp_path / f"inbox-{TASK.hex}-3.db-wal", tmp_path / f"batch-{TASK.hex}-3.rows.tmp"]
        for path in left:
            path.write_bytes(b"left")
        await self.open(tmp_path)
        assert not any(path.exists() for path in left)

    async def test_a_batch_whose_count_is_forgotten_is_not_said_to_be_whole(
        self, tmp_path: Path
    ) -> None:
        """It was sealed, its inbox is destroyed, and state.db is one of before it was closed. How
        many reports its rows were nobody knows: as few as can be, and one damaged. Planted: no
        damage -> a sum of shares that lacks some is read, fails.
        """
        store = await self.adopted(tmp_path, Capacity(messages=5, distinct=0, rows=100))
        one = WindowId(TASK, 0)
        sent = [AdmittedReport(one, tuple(reports(count))) for count in (5, 4, 3)]
        assert await self.put(store, sent) == [None] * 3
        with closing(sqlite3.connect(tmp_path / "state.db")) as state:
            state.execute("VACUUM INTO ?", (str(tmp_path / "before"),))
        await store.close_intake(await mine(store, one))
        sealed = await store.seal(await mine(store, one), [])
        assert (sealed.reports, sealed.rows, sealed.damaged) == (3, 12, 0)
        await store.destroy_inbox(await mine(store, one))
        await store.close()
        set_back(tmp_path)
        again = await self.adopted(tmp_path, Capacity(messages=5, distinct=0, rows=100))
        found = await again.seal(await mine(again, one), [])
        assert (found.reports, found.rows, found.damaged) == (3, 12, 1)

    # --- a full disk ------------------------------------------------------------------------------

    async def test_a_full_disk_refuses_without_losing_and_recovers_by_itself(
        self, tmp_path: Path
    ) -> None:
        """SQLite's own "database or disk is full". Planted: acknowledging before the commit -> the
        refused are missing, fails. Planted: keys remembered before the commit -> the second try is
        acknowledged, fails.
        """
        store = await self.adopted(tmp_path)
        kept = reports(200)
        assert await self.put(store, submissions(kept)) == [None] * 200
        connection = inbox_of(store, 0)._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        refused = reports(1_000)
        assert await self.put(store, submissions(refused)) == [Kind.OVERLOADED] * 1_000
        assert (
            await self.put(store, submissions([*refused, *kept[:3]]))
            == [Kind.OVERLOADED] * 1_000 + [None] * 3
        )  # a repeat needs no room
        connection.execute("PRAGMA max_page_count = 1073741823")
        assert await self.put(store, submissions(refused)) == [None] * 1_000
        assert sorted((await seal(store))[1]) == sorted([*kept, *refused])

    async def test_a_full_disk_admits_nobody(self, tmp_path: Path) -> None:
        """Who was refused for want of space may come with any report; and a second report in the
        refused commit is no conflict.

        Planted: the tags remembered before the commit -> CONFLICT at the end, fails. Planted:
        CONFLICT left as it is -> fails.
        """
        store, sent, who = await self.adopted(tmp_path), reports(600), devices(300)
        one, first = devices(1)[0], reports(1)[0]
        assert await self.put(store, [of(one, first)]) == [None]
        connection = inbox_of(store, 0)._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        group = [of(device, report) for device, report in zip(who * 2, sent, strict=True)]
        assert await self.put(
            store, [*group, of(one, first), of(one, sent[0]), of(one, reports(1)[0])]
        ) == [
            *[Kind.OVERLOADED] * 600,
            None,
            Kind.OVERLOADED,
            Kind.CONFLICT,
        ]
        connection.execute("PRAGMA max_page_count = 1073741823")
        assert await self.put(store, group[300:]) == [None] * 300
        assert await self.put(store, group[:300]) == [Kind.CONFLICT] * 300
        assert sorted((await seal(store))[1]) == sorted([first, *sent[300:]])

    async def test_a_full_disk_in_one_window_does_not_touch_another(self, tmp_path: Path) -> None:
        store = await self.adopted(tmp_path)
        await self.put(store, [*submissions(reports(1), 0), *submissions(reports(1), 1)])
        inbox_of(store, 0)._connection.execute("PRAGMA max_page_count = 3")
        outcomes = await self.put(
            store, [*submissions(reports(500), 0), *submissions(reports(500), 1)]
        )
        assert outcomes == [Kind.OVERLOADED] * 500 + [None] * 500


def inbox_of(store: Store, window: int) -> inbox.Inbox:
    """The open file, below the store."""
    assert isinstance(store, ThreadedStore)
    assert isinstance(store._blocking, SqliteStore)
    return store._blocking._inbox(WindowId(TASK, window))


def _opened() -> set[str]:
    """Files that this process has open."""
    here = "/proc/self/fd"
    return {
        os.readlink(f"{here}/{number}")
        for number in os.listdir(here)
        if os.path.lexists(f"{here}/{number}")
    }


def set_back(folder: Path) -> None:
    """``before`` in place of state.db and its log."""
    for left in folder.glob("state.db*"):
        left.unlink()
    (folder / "before").rename(folder / "state.db")
