"""A rolling upgrade under load: a replica of the next version comes beside one of this version,
with a migration that is planted. What either acknowledges is sealed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.store import PostgresStore
from shoal.shuffler.stores.postgresql.watch import DatabaseWatch
from tests.conformance.store.harness import (
    ME,
    TASK,
    reports,
    seal,
    submissions,
)
from tests.worlds import postgres
from tests.worlds.replica_stores import Replicas, replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ONE = WindowId(TASK, 0)
NEXT = "ALTER TABLE win ADD COLUMN more int NOT NULL DEFAULT 7;"
COMPATIBLE = f"-- least: {len(schema.scripts())}\n{NEXT}"
UPGRADE = "upgrade this replica"
MANY = 20  # groups of reports before the other one comes, and after


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Replicas]:
    """Starts one more replica, of the version that ``schema.scripts`` makes."""
    async with replica_stores(tmp_path) as make:
        yield make


class Load:
    """Reports to one replica, group after group: what is acknowledged, and what was said."""

    def __init__(self, store: PostgresStore) -> None:
        self.store, self.acked, self.said = store, list[bytes](), list[Kind | None]()
        self._news = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run()) for _ in range(3)]

    async def _run(self) -> None:
        while True:
            sent = reports(2)
            outcomes = await self.store.append(submissions(sent))
            self.acked += [one for one, kind in zip(sent, outcomes, strict=True) if kind is None]
            self.said += outcomes[:1]
            self._news.set()
            await asyncio.sleep(0)  # who is refused at once lets others go on

    async def more(self) -> list[Kind | None]:
        """What is said to the next groups."""
        first = len(self.said)
        while len(self.said) < first + MANY:
            self._news.clear()
            await self._news.wait()
        return self.said[first:]

    async def end(self) -> None:
        """Whatever is under way is answered."""
        for one in self._tasks:
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def unseeing(store: PostgresStore) -> None:
    """It does not look each second: what stops it stands in its steps."""
    assert store._looking is not None
    store._looking.cancel()


async def begin(start: Replicas) -> Load:
    """A replica of this version, under load."""
    older = await start()
    unseeing(older)
    load = Load(older)
    assert set(await load.more()) == {None}
    return load


async def test_beside_a_compatible_version_a_replica_goes_on(
    start: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take reports; the older one starts again, too, and seals. Planted: any newer version
    refused -> fails.
    """
    load, now = await begin(start), schema.scripts()
    monkeypatch.setattr(schema, "scripts", lambda: [*now, COMPATIBLE])
    newer = Load(await start())
    for each in (load, newer):
        assert set(await each.more()) == {None}
    monkeypatch.setattr(schema, "scripts", lambda: now)
    again = Load(await start())
    assert set(await again.more()) == {None}
    loads = (load, newer, again)
    for each in loads:
        await each.end()
    assert await newer.store._db.fetchval("SELECT more FROM win") == 7
    await load.store._look()  # nothing was said to it
    sealed, rows = await seal(again.store)
    assert (sealed.rows, sealed.damaged) == (len(rows), 0)
    assert {one for each in loads for one in each.acked} <= set(rows)


async def test_beside_an_incompatible_version_it_acknowledges_nothing(
    start: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the moment of the migration on, before it has looked: everything is refused, for devices
    to go to the other one, and a condition says why. It has nothing to lose: what it acknowledged
    before is sealed. Planted: no new epoch -> acknowledged after the migration, fails; the versions
    not compared in a step -> the older one claims and closes, fails; nothing declared taken for
    compatible -> fails.
    """
    load, now = await begin(start), schema.scripts()
    claim = await load.store.claim(ONE, ME, 3600.0)
    assert claim is not None
    monkeypatch.setattr(schema, "scripts", lambda: [*now, NEXT])
    newer = Load(await start())
    assert set(await load.more()) == {Kind.UNAVAILABLE}
    assert set(await newer.more()) == {None}
    for each in (load, newer):
        await each.end()
    load.store._db.outdated = None  # as one that has not noticed
    with pytest.raises(ShoalError, match=UPGRADE):
        await load.store.close_intake(claim)
    assert await newer.store._db.fetchval("SELECT state FROM win") == WindowState.OPEN.value
    watch = DatabaseWatch(load.store._db, replicas=2, without_standby=True)
    await watch.look()
    (told,) = watch.conditions()
    assert (told.code, told.stops) == ("database", True)
    assert UPGRADE in told.message
    monkeypatch.setattr(schema, "scripts", lambda: now)
    with pytest.raises(ShoalError, match="written by a newer version") as refused:
        await start()
    assert refused.value.kind is Kind.CONFIG
    await newer.store.release(claim)
    sealed, rows = await seal(newer.store)
    assert (sealed.rows, sealed.damaged) == (len(rows), 0)
    assert {*load.acked, *newer.acked} <= set(rows)


async def test_a_look_takes_no_epoch_of_a_newer_program_up(
    start: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes in the middle of a look. Planted: rows read after the check -> what is
    sent next is acknowledged by a program that does not know the tables.
    """
    now, older = schema.scripts(), await start()
    unseeing(older)
    assert await older.append(submissions(reports(2))) == [None, None]
    fetch, came = older._db.fetch, list[PostgresStore]()

    async def late(query: str, *values: object) -> object:
        if "FROM win" in query and not came:
            monkeypatch.setattr(schema, "scripts", lambda: [*now, NEXT])
            came.append(await start())
        return await fetch(query, *values)

    monkeypatch.setattr(older._db, "fetch", late)
    with pytest.raises(ShoalError, match=UPGRADE):
        await older._look()
    assert came
    assert None not in await older.append(submissions(reports(2)))


async def test_a_count_takes_no_epoch_of_a_newer_program_up(
    start: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between a look and the count after it. Planted: no check in the count -> an
    acknowledgement of a program that does not know the tables.
    """
    now, older = schema.scripts(), await start()
    unseeing(older)
    served = older._tasks[TASK]
    older._tasks[TASK] = replace(served, capacity=replace(served.capacity, distinct=20))
    assert await older.append(submissions(reports(2))) == [None, None]
    # seats of a replica that died: all are given out, few reports are there
    await older._db.execute("UPDATE win SET seats = 20, changed = now()")
    await older._look()
    older._boxes[ONE].seats.left = 0
    monkeypatch.setattr(schema, "scripts", lambda: [*now, NEXT])
    await start()
    with pytest.raises(ShoalError, match=UPGRADE):
        await older._looked()
    assert None not in await older.append(submissions(reports(1)))


async def test_tables_of_before_the_rule_are_looked_at(start: Replicas) -> None:
    """An older copy was put back under a running replica. Planted: the column asked for by its name
    -> every look fails.
    """
    store = await start()
    unseeing(store)
    assert await store.append(submissions(reports(2))) == [None, None]
    await store._db.execute("ALTER TABLE cluster DROP COLUMN least")
    await store._look(everything=True)
    await store._looked()
    assert await store.append(submissions(reports(1))) == [None]
