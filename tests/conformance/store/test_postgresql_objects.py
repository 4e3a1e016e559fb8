"""PostgreSQL with an object store for sealed batches, under the common suite, and what is true of
the objects in particular.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.objects import sealed_objects as objects
from shoal.shuffler.stores.objects.bucket import Bucket
from shoal.shuffler.stores.objects.sealed_objects import sweep
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import open_reports
from shoal.shuffler.stores.store import Store
from tests.conformance.store import test_postgresql
from tests.conformance.store.harness import TASK, mine, reports, seal, submissions
from tests.conformance.store.test_postgresql import SHUFFLER
from tests.flipped import last_bit_flipped
from tests.searched import any_within
from tests.worlds import postgres
from tests.worlds.objects import Server

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
WINDOW = WindowId(TASK, 0)


class TestObjects(test_postgresql.TestPostgresStore):  # by its module: else collected here too
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with Server() as self.server:
            yield

    def bucket(self, folder: Path) -> Bucket:
        """By the database, as its shuffler's own key would say."""
        return self.server.bucket(SHUFFLER, schema=self.dsn(folder).rpartition("/")[2])

    async def make(self, folder: Path) -> Store:
        database = await Database.open(self.dsn(folder), SHUFFLER)
        return await open_reports(database, folder, commit_ms=0, bucket=self.bucket(folder))

    def fork(self, folder: Path, copy: Path) -> None:
        super().fork(folder, copy)
        ours, theirs = (self.bucket(one)._cluster for one in (folder, copy))
        for name in [name for name in self.server.objects if ours in name]:
            self.server.objects[name.replace(ours, theirs)] = self.server.objects[name]

    def remains(self, folder: Path) -> bytes:
        return super().remains(folder) + b"".join(self.server.objects.values())

    def content(self, folder: Path) -> bytes:
        ours = self.bucket(folder)._cluster
        held = [data for name, data in sorted(self.server.objects.items()) if ours in name]
        return super().content(folder) + b"".join(held)

    async def sealed(self, folder: Path, count: int = 40) -> tuple[Store, list[bytes]]:
        store = await self.adopted(folder)
        sent = reports(count)
        await self.put(store, submissions(sent))
        _, rows = await seal(store)
        assert sorted(rows) == sorted(sent)
        return store, sent

    async def test_ranges_over_several_objects(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: the range's start without the parts before it -> fails."""
        monkeypatch.setattr(objects, "PARTS", 3)
        monkeypatch.setattr("shoal.shuffler.stores.postgresql.batches.rows_of_part", lambda _: 2)
        store, sent = await self.sealed(tmp_path, 15)
        assert len(self.server.objects) == 3
        whole = await store.read_rows(WINDOW, 0, 15)
        for first in range(15):
            for count in (1, 4, 9):
                got = await store.read_rows(WINDOW, first, count)
                assert got == whole[first * 60 : (first + count) * 60]
        remains = self.remains(tmp_path)
        assert not any_within(sent, remains)

    async def test_a_batch_goes_with_its_window(self, tmp_path: Path) -> None:
        """Planted: the objects left where a window is shredded -> fails."""
        store, _ = await self.sealed(tmp_path)
        assert self.server.objects
        one = await mine(store, WINDOW)
        await store.advance(one, WindowState.SEALED, WindowState.DELIVERING)
        await store.advance(one, WindowState.DELIVERING, WindowState.ACKNOWLEDGED)
        await store.shred(one)
        assert not self.server.objects

    async def test_an_altered_object_is_damage_and_mended(self, tmp_path: Path) -> None:
        store, _ = await self.sealed(tmp_path)
        (name,) = self.server.objects
        data = self.server.objects[name]
        for other in (last_bit_flipped(data), data[:100]):
            self.server.objects[name] = other
            with pytest.raises(ShoalError) as refused:
                await store.read_rows(WINDOW, 0, 40)
            assert refused.value.kind is Kind.MISMATCH
        after = await store.mend(await mine(store, WINDOW))
        assert after is not None
        assert (after.rows, after.damaged) == (0, 40)

    async def test_a_lost_object_is_waited_for(self, tmp_path: Path) -> None:
        """Planted: an object that is gone read as damaged parts -> it is mended away, fails."""
        store, sent = await self.sealed(tmp_path)
        kept = dict(self.server.objects)
        self.server.objects.clear()
        with pytest.raises(ShoalError) as refused:
            await store.mend(await mine(store, WINDOW))
        assert refused.value.kind is Kind.MISMATCH
        assert next(iter(kept)).rpartition("some/")[2].partition("/")[2] in refused.value.message
        self.server.objects |= kept
        assert await store.mend(await mine(store, WINDOW)) is None
        assert len(await store.read_rows(WINDOW, 0, 40)) == 60 * len(sent)

    async def test_what_is_not_given_back_seals_nothing(self, tmp_path: Path) -> None:
        """Planted: objects not read back -> the inbox goes, fails."""
        store = await self.adopted(tmp_path)
        sent = reports(20)
        await self.put(store, submissions(sent))
        one = await mine(store, WINDOW)
        await store.close_intake(one)
        self.server.altering = True
        with pytest.raises(ShoalError) as refused:
            await store.seal(one)
        assert refused.value.kind is Kind.UNAVAILABLE
        self.server.altering = False
        assert (await store.seal(one)).rows == 20
        assert len(self.server.objects) == 1

    @pytest.mark.parametrize("wrong", ["credentials", "bucket", "server"])
    async def test_a_store_that_cannot_be_used_seals_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
    ) -> None:
        monkeypatch.setattr("shoal.shuffler.stores.objects.bucket._RETRIES", 0)
        good = await self.adopted(tmp_path)
        await self.put(good, submissions(reports(20)))
        schema = self.dsn(tmp_path).rpartition("/")[2]
        with Server() as gone:
            nobody = gone.bucket(SHUFFLER, schema=schema)
        bad = {
            "credentials": self.server.bucket(SHUFFLER, key="other", schema=schema),
            "bucket": self.server.bucket(SHUFFLER, name="other", schema=schema),
            "server": nobody,
        }[wrong]
        one = await mine(good, WINDOW)
        await good.close_intake(one)
        kept, good._bucket = good._bucket, bad  # type: ignore[attr-defined]  # of PostgresStore
        with pytest.raises(ShoalError) as refused:
            await good.seal(one)
        assert refused.value.kind is (Kind.UNAVAILABLE if wrong == "server" else Kind.CONFIG)
        good._bucket = kept  # type: ignore[attr-defined]  # of PostgresStore
        assert (await good.seal(one)).rows == 20

    async def test_a_replica_without_the_store_says_where_the_batch_is(
        self, tmp_path: Path
    ) -> None:
        """Planted: its parts taken for missing -> mended away, fails."""
        store, _ = await self.sealed(tmp_path)
        store._bucket = None  # type: ignore[attr-defined]  # of PostgresStore
        store._intact.clear()  # type: ignore[attr-defined]  # of PostgresStore
        one = await mine(store, WINDOW)
        for what in (store.mend(one), store.read_rows(WINDOW, 0, 1)):
            with pytest.raises(ShoalError, match="s3://batches/some") as refused:
                await what
            assert refused.value.kind is Kind.CONFIG

    async def test_orphans_are_swept_and_nothing_else(self, tmp_path: Path) -> None:
        """Planted: objects of dropped tables kept -> fails; of others' names swept -> fails."""
        await self.sealed(tmp_path)
        (batch,) = self.server.objects
        head, _, tail = batch.rpartition("/" + TASK.hex)
        parts = tail.split("/")
        orphan = f"{head}/{TASK.hex}/{parts[1]}/77/0"
        other = batch.replace(head.rpartition("/")[2], "0" * 32)
        self.server.objects |= {orphan: b"x", other: b"y", f"{head}/else": b"z"}
        async with await Database.open(self.dsn(tmp_path), SHUFFLER) as database:
            assert await sweep(database, self.bucket(tmp_path)) == 1
        assert set(self.server.objects) == {batch, other, f"{head}/else"}


async def test_nothing_is_written_over() -> None:
    """Planted: mode="overwrite" -> fails."""
    with Server() as server:
        bucket = server.bucket(SHUFFLER)
        await bucket.create("a/b", b"one")
        await bucket.create("a/b", b"one")  # an answer that was lost
        with pytest.raises(ShoalError) as refused:
            await bucket.create("a/b", b"two")
        assert refused.value.kind is Kind.CONFLICT
        assert list(server.objects.values()) == [b"one"]


async def test_a_probe_leaves_nothing_and_finds_a_careless_store() -> None:
    with Server() as server:
        bucket = server.bucket(SHUFFLER)
        await bucket.probe()
        assert not server.objects
        server.careless = True
        with pytest.raises(ShoalError) as refused:
            await bucket.probe()
        assert refused.value.kind is Kind.CONFIG
        server.careless, server.altering = False, True
        with pytest.raises(ShoalError) as refused:
            await bucket.probe()
        assert refused.value.kind is Kind.CONFIG
        assert not server.objects


async def test_many_are_deleted() -> None:
    with Server() as server:
        bucket = server.bucket(SHUFFLER)
        server.objects = {
            f"some/{bucket._cluster}{number}": secrets.token_bytes(8) for number in range(1_203)
        }
        await bucket.delete(await bucket.names())
        assert not server.objects
        assert LIMITS.chunk_bytes * objects.PARTS == 16 << 20
