"""Reports in PostgreSQL under the common suite, against a real server, and what is true of its
tables and key files in particular.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.postgresql.windows import stored_window
from shoal.shuffler.stores.store import Store, WindowRecord
from tests.conformance.store.suite import StoreSuite
from tests.sizes import FULL
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SHUFFLER = b"\x07" * 32  # a public signing key, as good as any


class TestPostgresStore(StoreSuite):
    legible = False

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
