"""Sums in PostgreSQL under the common suite, against a real server: nothing legible in it, and two
replicas that see the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.stores.configured import ShufflerStorage
from shoal.shuffler.stores.postgresql.answered import SharedAnswers
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import open_reports
from shoal.shuffler.stores.postgresql.sums import SumWindows
from shoal.shuffler.stores.postgresql.vectors import SharedVectors
from tests.conformance.store.harness import HASH, HOP_KEY, OPEN_ENDED, ROW, TASK, devices
from tests.conformance.store.rounds_suite import NEXT, ONE, SIZE, RoundsSuite, mine, vector
from tests.sizes import size
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SHUFFLER = b"\x07" * 32  # a public signing key, as good as any


class TestPostgresRounds(RoundsSuite):
    legible = False

    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.dsn = postgres.shared().database()

    async def make(self, folder: Path) -> ShufflerStorage:
        database = await Database.open(self.dsn, SHUFFLER)
        reports = await open_reports(database, folder, commit_ms=0)
        reports.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _window: HOP_KEY)
        windows = SumWindows(reports)
        vectors = SharedVectors(database, windows, commit_ms=0)
        return ShufflerStorage(reports, SharedAnswers(database, windows), vectors, folder)

    def remains(self, folder: Path) -> bytes:
        """Of the whole server: its data, its log of writes, what it said; and this machine's."""
        server = postgres.shared()
        server.sql("CHECKPOINT")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return server.on_disk() + b"".join(path.read_bytes() for path in files)

    def content(self, folder: Path) -> bytes:
        """But claims, which come and go."""
        return postgres.shared().content(self.dsn.rpartition("/")[2], but="claim")

    async def test_replicas_that_enter_at_once_take_exactly_as_many_as_fit(
        self, tmp_path: Path
    ) -> None:
        """Each device by several replicas at once. Planted: the window's row not locked -> two rows
        of one place, INTERNAL, or one too many: fails.
        """
        folders = [tmp_path / name for name in ("a", "b", "c")]
        for folder in folders:
            folder.mkdir()
        replicas = [await self.open(folder) for folder in folders]
        count = size(40, 400)
        sent = [vector(one, most=count // 2) for one in devices(count)]
        outcomes = await asyncio.gather(
            *(one.vectors.add(each) for each in sent for one in replicas)
        )
        assert set(outcomes) == {None, Kind.WINDOW_FULL}
        for index in range(count):
            assert len(set(outcomes[3 * index : 3 * index + 3])) == 1
        for one in replicas:
            assert len(await one.vectors.rows(ONE)) == count // 2
            assert sorted(row.place for row in await one.vectors.rows(ONE)) == [*range(count // 2)]

    async def test_whoever_takes_a_window_over_goes_on_with_it(self, tmp_path: Path) -> None:
        """Who answered, what came, what was decided. Planted: keys drawn by each replica -> the
        second knows no device, fails.
        """
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        first, second = [await self.open(tmp_path / name) for name in ("a", "b")]
        (one, other) = devices(2)
        await first.answered.remember(await mine(first), one)
        assert await second.answered.answered(ONE, one)
        sent = vector(other)
        assert await first.vectors.add(sent) is None
        assert await second.vectors.add(sent) is None
        await first.vectors.take_no_more(await mine(first))
        assert await second.vectors.add(vector(one)) is Kind.WINDOW_CLOSED
        shown = await second.vectors.rows(ONE)
        assert [row.seed for row in shown] == [sent.seed]
        await second.vectors.fix(await mine(second), shown, [])
        assert await first.vectors.is_fixed(ONE)
        await first.vectors.forget(await mine(first))
        assert await second.vectors.add(sent) is Kind.WINDOW_CLOSED
        assert await second.vectors.rows(ONE) == []

    async def test_a_vector_that_was_changed_in_the_database_is_left_out_and_counted(
        self, tmp_path: Path
    ) -> None:
        """Two bodies swapped, one head cut, one row gone. Planted: the place not bound, or damage
        not counted -> fails.
        """
        storage = await self.open(tmp_path)
        sent = [vector(one) for one in devices(6)]
        for each in sent:
            assert await storage.vectors.add(each) is None
        server, name = postgres.shared(), self.dsn.rpartition("/")[2]
        server.sql(
            "SET search_path = shoal; UPDATE vector_1 a SET body = b.body FROM vector_1 b WHERE"
            " a.place + b.place = 1; UPDATE vector_1 SET head = substr(head, 2) WHERE place = 2;"
            " DELETE FROM vector_1 WHERE place = 3",
            name,
        )
        await storage.vectors.take_no_more(await mine(storage))
        await storage.vectors.leave_out_damaged(await mine(storage), SIZE)
        assert await storage.vectors.missing(ONE) == 4
        assert len(list(storage.vectors.damage())) == 1
        rows = await storage.vectors.rows(ONE)
        assert {await storage.vectors.read(ONE, row.place, SIZE) for row in rows} == {
            sent[4].sealed,
            sent[5].sealed,
        }

    async def test_without_the_hop_key_nothing_is_taken_and_nothing_is_lost(
        self, tmp_path: Path
    ) -> None:
        """A replica that was set up without the window's key. Planted: a random key in its place
        -> a device answers twice, fails.
        """
        storage, (one,) = await self.open(tmp_path), devices(1)
        await storage.answered.remember(await mine(storage), one)
        other = await self.open(tmp_path)
        other.reports.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _window: None)
        with pytest.raises(ShoalError) as refused:
            await other.answered.answered(ONE, one)
        assert refused.value.kind is Kind.UNAVAILABLE
        assert await other.vectors.add(vector(one)) is Kind.INTERNAL
        assert not await other.answered.answered(NEXT, one)  # nothing is kept of it by anybody
