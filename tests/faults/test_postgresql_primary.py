"""The database's primary dies under load, and a standby is promoted: with a synchronous one nothing
that was acknowledged is lost. And what its disks show meanwhile: no report, no key.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from tests.conformance.store.harness import (
    HASH,
    HOP_KEY,
    OPEN_ENDED,
    ROW,
    TASK,
    seal,
    submissions,
)
from tests.sizes import size
from tests.worlds import postgres
from tests.worlds.postgres import Server

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SHUFFLER = b"\x07" * 32  # a public signing key, as good as any
MARK = b"\x00canary of a report\xff"
WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def report() -> bytes:
    """A sealed message that can be found wherever it lies in the clear."""
    return MARK + secrets.token_bytes(ROW - len(MARK))


async def opened(dsn: str, folder: Path) -> PostgresStore:
    store = await open_reports(await Database.open(dsn, SHUFFLER), folder, commit_ms=1.0)
    store.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _window: HOP_KEY)
    await store.settle()
    return store


@dataclass
class Load:
    """Devices that send without end, several at a time; ``acked``: what they were promised."""

    store: PostgresStore
    acked: set[bytes] = field(default_factory=set)
    stopping: bool = False

    async def device(self) -> None:
        while not self.stopping:
            sent = [report() for _ in range(3)]
            try:
                outcomes = await self.store.append(submissions(sent))
            except ShoalError:
                await asyncio.sleep(0.01)  # it would send the same bytes again
                continue
            self.acked |= {
                one for one, outcome in zip(sent, outcomes, strict=True) if outcome is None
            }

    async def until(self, count: int) -> None:
        while True:
            if len(self.acked) >= count:
                return
            await asyncio.sleep(0.01)


async def lost(tmp_path: Path, *, synchronous: bool) -> tuple[int, int]:
    """(acknowledged, of these lost) where the standby goes away for a while, and the primary dies
    some acknowledgements later, or as soon as one waits.
    """
    with Server() as server, server.standby("two") as standby:
        name = server.database().rpartition("/")[2]
        if synchronous:
            server.wait_for("two")
        both = server.dsn(name).replace(
            f"@127.0.0.1:{server.port}", f"@127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        )
        store = await opened(both, tmp_path)
        load = Load(store)
        devices = [asyncio.create_task(load.device()) for _ in range(size(8, 32))]
        async with asyncio.timeout(120):
            await load.until(size(200, 5_000))
        await asyncio.to_thread(standby.kill)
        before = len(load.acked)
        async with asyncio.timeout(120):
            if synchronous:
                while await asyncio.to_thread(server.sql, WAITS) == []:
                    pass
            else:
                await load.until(before + 60)
        await asyncio.to_thread(server.kill)
        standby.start()
        await asyncio.to_thread(standby.promote)
        load.stopping = True
        await asyncio.gather(*devices)
        await store.close()
        assert MARK not in server.on_disk() + standby.on_disk()
        after = await opened(both, tmp_path)
        _, rows = await seal(after)
        assert MARK not in standby.on_disk()
        await after.close()
        return len(load.acked), len(load.acked - set(rows))


@pytest.mark.timeout(3_600)
async def test_nothing_acknowledged_is_lost_with_the_primary(tmp_path: Path) -> None:
    """The standby is waited for; ten primaries die in full. Planted: ``synchronous_commit`` local
    for our connections -> what was acknowledged after the cut is lost, fails.
    """
    for number in range(size(1, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        acked, gone = await lost(folder, synchronous=True)
        assert acked >= 200
        assert gone == 0


async def test_without_a_synchronous_standby_the_same_loses_reports(tmp_path: Path) -> None:
    """The control, and why several replicas are not ready without one."""
    acked, gone = await lost(tmp_path, synchronous=False)
    assert 0 < gone < acked


async def test_what_lies_in_the_clear_would_be_found(tmp_path: Path) -> None:
    """The control of the search: a report written as it is, then dropped, is in the log of writes
    of primary and standby; and of a window that is open the database has no key of any kind.
    """
    with Server() as server, server.standby("two") as standby:
        dsn = server.database()
        server.wait_for("two")
        store = await opened(dsn, tmp_path)
        assert await store.append(submissions([report() for _ in range(20)])) == [None] * 20
        files = sorted((tmp_path / "window-keys").iterdir())
        assert files
        keys = [HOP_KEY.to_raw_secret(), *(store_key(file) for file in files)]
        for one in (server, standby):
            disk = one.on_disk()
            assert MARK not in disk
            assert not [key for key in keys if key in disk]
        clear = f"'\\x{report().hex()}'"
        for statement in ("CREATE TABLE t AS SELECT ", "DROP TABLE t --"):
            server.sql(f"{statement} {clear}::bytea AS b")
        assert MARK in server.on_disk()
        assert MARK in standby.on_disk()
        assert store.record(WindowId(TASK, 0)) is not None
        await store.close()


def store_key(file: Path) -> bytes:
    """The line of a key file that is the key."""
    return file.read_bytes().splitlines()[1]
