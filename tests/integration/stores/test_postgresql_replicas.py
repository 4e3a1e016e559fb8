"""Several stores on one database, as several shufflers have them: one window, one capacity, one set
of keys.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.joined import rows_of
from shoal.shuffler.stores.postgresql import inbox, intake, windows
from shoal.shuffler.stores.postgresql.blocks import Part
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.inbox import block_place
from shoal.shuffler.stores.postgresql.intake import SharedIntake
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.store import AdmittedReport
from tests.conformance.store.harness import (
    HASH,
    HOP_KEY,
    OPEN_ENDED,
    OTHER,
    ROW,
    TASK,
    devices,
    mine,
    of,
    reports,
    seal,
    submissions,
)
from tests.worlds import postgres
from tests.worlds.replica_stores import Replicas, replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ONE = WindowId(TASK, 0)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replica_stores(tmp_path) as make:
        yield make


async def test_a_report_that_went_to_several_replicas_is_sealed_once(replica: Replicas) -> None:
    """And whoever did not take a report seals it all the same. Planted: keys under another secret
    in each replica -> 60 rows, fails.
    """
    one, two = await replica(), await replica()
    sent = reports(20)
    for store, some in ((one, sent), (two, sent[::-1]), (two, reports(20)), (one, sent)):
        assert await store.append(submissions(some)) == [None] * len(some)
    three = await replica()
    sealed, rows = await seal(three)
    assert sealed.rows == 40
    assert set(sent) < set(rows)


@pytest.mark.parametrize("messages", [1, 3])
async def test_max_batch_is_exact_over_replicas(replica: Replicas, messages: int) -> None:
    """Three replicas, each given the same reports in its own order, all at a time, far more than
    the window takes. Planted: the epoch not looked at in an append -> more than 40, fails. Planted:
    ``found`` not counted -> fewer, fails.
    """
    capacity = Capacity(messages, 40, 4_000)
    stores = [await replica(capacity) for _ in range(3)]
    sent = [tuple(reports(messages)) for _ in range(90)]
    taken: set[tuple[bytes, ...]] = set()

    async def send(store: PostgresStore) -> None:
        mixed = sorted(sent, key=lambda _: secrets.token_bytes(8))
        for at in range(0, 90, 3):
            some = mixed[at : at + 3]
            kinds = await store.append([of_many(report) for report in some])
            assert set(kinds) <= {None, Kind.WINDOW_FULL}
            taken.update(report for report, kind in zip(some, kinds, strict=True) if kind is None)

    await asyncio.gather(*map(send, stores))
    assert len(taken) == 40
    assert [store.distinct(ONE) for store in stores] == [40] * 3
    for store in stores:  # what was taken anywhere is acknowledged everywhere
        assert await store.append([of_many(report) for report in taken]) == [None] * 40
        others = [of_many(report) for report in sent if report not in taken]
        assert await store.append(others) == [Kind.WINDOW_FULL] * 50
    sealed, rows = await seal(stores[0])
    assert sealed.rows == 40 * messages
    assert sorted(rows) == sorted(message for report in taken for message in report)


@pytest.mark.parametrize("counts", [True, False])
async def test_a_window_that_several_filled_is_known_to_be_full(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """With no further report. And the control: without the count after a look the first of them,
    which may be its owner, does not learn of the second half.
    """

    async def skipped(*_: Any) -> None:
        pass

    if not counts:
        monkeypatch.setattr(SharedIntake, "_count", skipped)
    capacity = Capacity(1, 40, 4_000)
    one, two = await replica(capacity), await replica(capacity)
    for store in (one, two):
        assert await store.append(submissions(reports(20))) == [None] * 20
    await looks(one, two)
    known = [store.distinct(ONE) for store in (one, two)]
    assert known == [40 if counts else 20, 40]
    assert (await seal(two))[0].rows == 40


@pytest.mark.parametrize("voids", [True, False])
async def test_seats_of_before_a_count_are_void(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch, voids: bool
) -> None:
    """A replica did not hear that another one counted after a look, and still has seats. And the
    control: without a look at the epoch it spends them, and the window holds more than it may.
    """
    monkeypatch.setattr(windows, "_LOOK_S", 3600.0)  # but for ``looks``
    if not voids:
        text = inbox.STILL_OPEN.replace("epoch = $2", "$2::bigint > -1")
        assert text != inbox.STILL_OPEN
        monkeypatch.setattr(intake, "STILL_OPEN", text)
    one, two, three = [await replica(Capacity(1, 40, 4_000)) for _ in range(3)]
    assert await one.append(submissions(reports(1))) == [None]
    left = one._boxes[ONE].seats.left
    assert left > 0
    others = 39 - left
    assert await two.append(submissions(reports(others))) == [None] * others
    await looks(three)
    assert three.distinct(ONE) == 40 - left
    assert await two.append(submissions(reports(left))) == [None] * left
    kinds = await one.append(submissions(reports(1)))
    assert kinds == ([Kind.WINDOW_FULL] if voids else [None])
    assert (await seal(two))[0].rows == (40 if voids else 41)


async def test_who_counts_in_vain_counts_once(replica: Replicas) -> None:
    """Each time that reports have taken all seats, whoever looks. Planted: all seats given to
    whoever counts -> one count more for each look, fails.
    """
    capacity = Capacity(1, 39, 4_000)
    one, two, three = [await replica(capacity) for _ in range(3)]
    sent = reports(20)
    for some in (sent[:1], sent):
        for store in (one, two):
            assert await store.append(submissions(some)) == [None] * len(some)
    for _ in range(3):
        await looks(three, two, one)
    assert [store.distinct(ONE) for store in (one, two, three)] == [20] * 3
    assert [store._rows[ONE].epoch for store in (one, two, three)] == [2] * 3
    kinds = [(await one.append(submissions(reports(1))))[0] for _ in range(24)]
    assert kinds == [None] * 19 + [Kind.WINDOW_FULL] * 5


async def looks(*stores: PostgresStore) -> None:
    for store in stores:
        await store._look()
        await store._looked()


async def test_a_window_is_not_heard_of_while_its_keys_can_not_be_written(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is full: the hop key of a window that is closed would be deleted, and nobody
    here could finish the window. Planted: the row published all the same -> CLOSING, fails.
    Planted: looked at again only when the row changes -> None at the end, fails.
    """
    one, two = await replica(), await replica()

    def full(*_: object) -> None:
        raise ShoalError(Kind.KEY_FILE, "no space is left on the disk")

    with monkeypatch.context() as disk:
        disk.setattr(two._keys, "keep", full)
        assert await one.append(submissions(reports(3))) == [None] * 3
        await looks(two)
        assert await two.append(submissions(reports(1))) != [None]
        await one.close_intake(await mine(one, ONE))
        await looks(two)
        assert two.record(ONE) is None
        assert list(two.damage())
    monkeypatch.setattr("shoal.shuffler.stores.postgresql.windows._SLACK", "0 seconds")
    await looks(two)
    record = two.record(ONE)
    assert record is not None
    assert record.state is WindowState.CLOSING
    assert not list(two.damage())
    assert (await two.seal(await mine(two, ONE))).rows == 3


async def test_what_is_known_is_taken_while_the_database_is_away(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one group with what is new, which is refused. Planted: which are known not looked up where
    some are -> UNAVAILABLE for all, fails.
    """
    store = await replica()
    known, fresh = reports(3), reports(2)
    assert await store.append(submissions(known)) == [None] * 3

    async def away(*_: object) -> str:
        raise ShoalError(Kind.UNAVAILABLE, "the database is away")

    mixed = [known[0], fresh[0], known[1], fresh[1], known[2]]
    with monkeypatch.context() as network:
        network.setattr(store._db, "execute", away)
        refused = Kind.UNAVAILABLE
        wanted = [None, refused, None, refused, None]
        assert await store.append(submissions(mixed)) == wanted
    assert await store.append(submissions(mixed)) == [None] * 5
    assert (await seal(store))[0].rows == 5


async def test_a_block_is_in_the_order_of_its_keys(replica: Replicas) -> None:
    """So it does not say in which order reports came within a commit; each message beside its own
    key. Of groups of both sizes that keys are looked up for, and of enrolled devices, some of whom
    were admitted elsewhere. Planted: places in the order of arrival -> fails; messages left in
    it -> fails.
    """
    one, two = await replica(), await replica()
    sent, who = reports(300), devices(12)
    assert await one.append(submissions(sent)) == [None] * 300
    assert await one.append(submissions(reports(20))) == [None] * 20
    named = [of(device, report) for device, report in zip(who, reports(12), strict=True)]
    other = WindowId(TASK, 1)
    named = [report._replace(window=other) for report in named]
    assert await two.append(named[:6]) == [None] * 6
    assert await one.append(named[6:]) == [None] * 6
    late = [
        of(device, report)._replace(window=other) for device, report in zip(who, sent, strict=False)
    ]
    extra = [
        of(device, report)._replace(window=other)
        for device, report in zip(devices(9), sent[20:], strict=False)
    ]
    assert await two.append([*late[6:], *extra]) == [Kind.CONFLICT] * 6 + [None] * 9
    for window, blocks in ((ONE, 2), (other, 3)):
        box = one._boxes[window]
        found = await one._db.fetch(f"TABLE {box.row.inbox}")
        assert len(found) == blocks
        for writer, number, acked, count, keys, body in found:
            where = block_place(bytes(writer), number, acked)
            opened = [
                box.cipher.open(part, where, count, bytes(data)) or b""
                for part, data in ((Part.KEYS, keys), (Part.ROWS, body))
            ]
            names, rows = rows_of(opened[0], 16), rows_of(opened[1], ROW)
            assert list(names) == sorted(names)
            assert names == tuple(box.hashes.key(row) for row in rows)


async def test_seats_of_a_replica_that_died_are_given_to_others(replica: Replicas) -> None:
    """Planted: seats that were given out counted as filled -> full at fewer than 40, fails."""
    capacity = Capacity(1, 40, 4_000)
    dead, alive = await replica(capacity), await replica(capacity)
    assert await dead.append(submissions(reports(1))) == [None]  # a slice, and one seat of it used
    kinds = [(await alive.append(submissions(reports(1))))[0] for _ in range(45)]
    assert kinds == [None] * 39 + [Kind.WINDOW_FULL] * 6


async def test_what_one_replica_decided_the_others_follow(replica: Replicas) -> None:
    """Planted: no look at what changed -> the second waits for ever."""
    one, two = await replica(), await replica()
    await one.append(submissions(reports(3)))
    await two.append(submissions(reports(3)))
    assert await two.claim(ONE, OTHER, 0.0) is not None
    await one.close_intake(await mine(one, ONE))
    assert await two.append(submissions(reports(1))) == [Kind.WINDOW_CLOSED]
    await one.seal(await mine(one, ONE))
    await one.advance(await mine(one, ONE), WindowState.CLOSING, WindowState.EXPIRED, reports=6)
    for _ in range(600):
        record = two.record(ONE)
        if record is not None and record.state is WindowState.EXPIRED:
            break
        await asyncio.sleep(0.05)
    assert two.records() == one.records()


async def test_keys_are_held_as_long_as_somebody_may_need_them(
    replica: Replicas, tmp_path: Path
) -> None:
    """A replica that was away while its hop key went derives nothing and refuses; one that knew the
    window goes on without the hop key. Planted: files written when the window closes -> fails.
    """
    one, two = await replica(), await replica()
    sent = reports(10)
    await one.append(submissions(sent[:5]))
    await two.append(submissions(sent[5:]))
    await one.close_intake(await mine(one, ONE))
    await one.close()
    await two.close()
    keyless = await replica(hop_key=None, folder="another-machine")
    assert [condition.code for condition in keyless.damage()] == ["key"]
    with pytest.raises(ShoalError) as refused:
        await keyless.seal(await mine(keyless, ONE))
    assert refused.value.kind is Kind.KEY_FILE
    await keyless.close()
    again = await replica(hop_key=None, folder="replica-1")
    sealed = await again.seal(await mine(again, ONE))
    assert sealed.rows == 10
    await again.advance(
        await mine(again, ONE), WindowState.CLOSING, WindowState.SEALED, sealed, 10, b"m"
    )
    await again.destroy_inbox(await mine(again, ONE))
    names = [path.name for path in (tmp_path / "replica-1" / "window-keys").iterdir()]
    assert names == [f"{TASK.hex}-0.batch.key"]
    # whoever was away deletes what nobody needs any more when it comes back
    await replica(hop_key=None, folder="replica-0")
    names = [path.name for path in (tmp_path / "replica-0" / "window-keys").iterdir()]
    assert names == [f"{TASK.hex}-0.batch.key"]


async def test_what_is_told_of_key_files_is_what_is_there(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a replica that ends while it deletes one, or died before it could say so. Planted: a
    deletion that ends with its look -> told of two still, fails. Planted: nothing corrected at a
    start -> fails twice.
    """
    one, two = await replica(), await replica()
    for store in (one, two):
        assert await store.append(submissions(reports(3))) == [None] * 3
    assert sorted(await told(one, two)) == ["batch", "inbox"]
    await seal(one)
    deleting, go_on, delete = threading.Event(), threading.Event(), two._keys.delete

    def slow(*what: Any) -> None:
        delete(*what)
        deleting.set()
        assert go_on.wait(60)

    monkeypatch.setattr(two._keys, "delete", slow)
    look = asyncio.create_task(two._look())
    assert await asyncio.to_thread(deleting.wait, 60)
    look.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(look, return_exceptions=True)
    assert await told(one, two) == ["batch"]
    for wrong in ("UPDATE holder SET purpose = 'inbox'", "DELETE FROM holder"):
        await one._db.execute(f"{wrong} WHERE replica = $1", two._replica)
        await two._look(everything=True)
        assert await told(one, two) == ["batch"]


async def told(asked: PostgresStore, of_whom: PostgresStore) -> list[str]:
    """Which key files the database believes to be there."""
    where = "SELECT purpose FROM holder WHERE replica = $1"
    return [purpose for (purpose,) in await asked._db.fetch(where, of_whom._replica)]


async def test_a_replica_with_another_hop_key_acknowledges_nothing(replica: Replicas) -> None:
    """Planted: the check value not compared -> its reports are taken and can't be opened, fails."""
    one = await replica()
    await one.append(submissions(reports(3)))
    other = await replica(hop_key=generate(SuiteId.X25519_AES128))
    assert await other.append(submissions(reports(3))) == [Kind.UNAVAILABLE] * 3
    assert [condition.code for condition in other.damage()] == ["key"]
    assert (await seal(one))[0].rows == 3


async def test_blocks_that_are_gone_or_changed_are_counted(replica: Replicas) -> None:
    """Planted: ``acked`` not looked at -> a lost block is not missed, fails. Planted: a block that
    does not open taken for an empty one -> fails.
    """
    store = await replica()
    for _ in range(6):
        assert await store.append(submissions(reports(10))) == [None] * 10
    database = store._db
    await database.execute("DELETE FROM inbox_1 WHERE number = 2")
    await database.execute(
        "UPDATE inbox_1 SET body = overlay(body placing '\\x00ff00ff' from 40) WHERE number = 4"
    )
    await store.close_intake(await mine(store, ONE))
    sealed = await store.seal(await mine(store, ONE))
    assert (sealed.rows, sealed.damaged) == (40, 20)
    assert {condition.code for condition in store.damage()} == {"damage"}


async def test_a_batch_that_lost_a_part_is_mended(replica: Replicas) -> None:
    """What is left is delivered, and the loss is told. Planted: the digest not looked at -> None,
    fails.
    """
    store = await replica()
    for _ in range(3):
        await store.append(submissions(reports(3_000)))
    sealed, _ = await seal(store)
    assert sealed.rows == 9_000
    assert await store.mend(await mine(store, ONE)) is None
    name = store._rows[ONE].batch()
    await store._db.execute(f"DELETE FROM {name} WHERE part = 0")  # noqa: S608 - a name of ours
    with pytest.raises(ShoalError) as damaged:
        await store.read_rows(ONE, 0, 10)
    assert damaged.value.kind is Kind.MISMATCH
    left = await store.mend(await mine(store, ONE))
    assert left is not None
    assert (left.rows + left.damaged, left.damaged > 0) == (9_000, True)
    state = WindowState.SEALED
    await store.advance(await mine(store, ONE), state, state, left, left.rows, b"another")
    assert len(await store.read_rows(ONE, 0, 9_000)) == left.rows * ROW
    assert await store.mend(await mine(store, ONE)) is None


def of_many(messages: tuple[bytes, ...]) -> AdmittedReport:
    return AdmittedReport(ONE, messages)


async def test_a_database_that_is_away_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every call is refused, and the log has a line, not one for each of them. Planted: a line for
    each -> 20 lines, fails.
    """
    with postgres.Server() as server:
        store = await open_reports(
            await Database.open(server.database(), b"\x07" * 32), tmp_path, commit_ms=0
        )
        try:
            store.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _: HOP_KEY)
            assert await store.append(submissions(reports(1))) == [None]
            await asyncio.to_thread(server.kill)
            caplog.clear()
            with caplog.at_level("WARNING", logger="shoal"):
                for _ in range(20):
                    assert await store.append(submissions(reports(1))) == [Kind.UNAVAILABLE]
            said = [one for one in caplog.records if "could not be stored" in one.message]
            assert len(said) == 1
        finally:
            await store.close()


async def test_a_window_that_another_seals_stops_no_start(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rows of windows and the inbox of one of them. Planted: the table that is gone
    told as a failure -> the replica does not start.
    """
    first, other, sent = await replica(folder="one"), await replica(), reports(5)
    assert await first.append(submissions(sent[:3])) == [None] * 3
    assert await other.append(submissions(sent[3:])) == [None] * 2
    await first.close()
    real, sealed = PostgresStore._miss, list[bytes]()

    async def meanwhile(self: PostgresStore) -> None:
        await real(self)
        if not sealed:
            sealed.extend((await seal(other))[1])

    monkeypatch.setattr(PostgresStore, "_miss", meanwhile)
    record = (await replica(folder="one")).record(ONE)
    assert sorted(sealed) == sorted(sent)
    assert record is not None
    assert record.state is WindowState.SEALED
