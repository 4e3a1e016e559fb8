"""Reports in PostgreSQL under the common suite, against a real server, and what is true of its
tables and key files in particular.
"""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.postgresql.windows import stored_window
from shoal.shuffler.stores.store import Store, WindowRecord
from tests.conformance.store.harness import TASK, mine, reports, submissions
from tests.conformance.store.suite import StoreSuite
from tests.sizes import FULL
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SHUFFLER = b"\x07" * 32  # a public signing key, as good as any


class TestPostgresStore(StoreSuite):
    legible = False
    orders = 480  # each window takes some twenty commands of the server

    @pytest.fixture(autouse=True, params=["reports", "rows", "digests"] if FULL else ["rows"])
    def _entry(self, request: pytest.FixtureRequest) -> None:
        self.entry = request.param

    @pytest.fixture(autouse=True)
    def _databases(self) -> Iterator[None]:
        self._dsns: dict[Path, str] = {}
        yield
        # what is searched for on the server's disk stays small
        for dsn in self._dsns.values():
            postgres.shared().drop(dsn)

    def dsn(self, folder: Path) -> str:
        if folder not in self._dsns:
            self._dsns[folder] = postgres.shared().database()
        return self._dsns[folder]

    async def make(self, folder: Path) -> Store:
        database = await Database.open(self.dsn(folder), SHUFFLER)
        return await open_reports(database, folder, commit_ms=0)

    async def entered(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        await store.settle()

    async def read(self, folder: Path, window: WindowId) -> WindowRecord | None:
        async with await Database.connect(self.dsn(folder), connections=1) as database:
            return await stored_window(database, SHUFFLER, window)

    def fork(self, folder: Path, copy: Path) -> None:
        server = postgres.shared()
        source, target = (self.dsn(one).rpartition("/")[2] for one in (folder, copy))
        server.copy(source, target)
        subprocess.run(["cp", "-r", f"{folder}/.", str(copy)], check=True)

    def remains(self, folder: Path) -> bytes:
        """Of the whole server: its data, its log of writes, what it said; and this machine's."""
        server = postgres.shared()
        server.sql("CHECKPOINT")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return server.on_disk() + b"".join(path.read_bytes() for path in files)

    def content(self, folder: Path) -> bytes:
        """But who holds keys: they go by themselves once nobody needs them."""
        return postgres.shared().content(self.dsn(folder).rpartition("/")[2], but="holder")

    async def test_a_look_that_crosses_a_step_takes_nothing_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look of every second reads the rows, then a step is carried out, then the look goes
        on with what it read. Planted: ``advance`` or ``shred`` without a new epoch -> the window is
        known as it was before the step that keeps its state, fails.
        """
        store = await self.adopted(tmp_path)
        assert isinstance(store, PostgresStore)
        fetch = store._db.fetch

        async def crossed(claim: Claim, step: Awaitable[object]) -> WindowRecord:
            """What is known of the window after both."""

            async def late(sql: str, *arguments: object) -> list[Any]:
                rows = await fetch(sql, *arguments)
                if "FROM win" in sql:
                    monkeypatch.setattr(store._db, "fetch", fetch)
                    await step
                return rows

            monkeypatch.setattr(store._db, "fetch", late)
            await store._look(everything=True)
            stored, known = await self.read(tmp_path, claim.window), store.record(claim.window)
            assert known is not None
            assert known == stored
            return known

        closing, sealed, expired = WindowState.CLOSING, WindowState.SEALED, WindowState.EXPIRED
        for number in range(2):
            await store.append(submissions(reports(3), number))
        claim = await mine(store, WindowId(TASK, 0))
        await crossed(claim, store.close_intake(claim))
        rows = await store.seal(claim)
        await crossed(claim, store.advance(claim, closing, sealed, rows, 3, b"manifest"))
        # as of a batch that was mended, which is sealed still
        mended = await crossed(claim, store.advance(claim, sealed, sealed, None, 2))
        assert mended.reports == 2
        claim = await mine(store, WindowId(TASK, 1))
        await store.close_intake(claim)
        await store.advance(claim, closing, expired)
        assert (await crossed(claim, store.shred(claim))).acked == 0
