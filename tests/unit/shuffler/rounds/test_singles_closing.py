"""Helper mode: a window is closed before its first vector is shown to the analyzer, and pads are
given for one set alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal.crypto.secagg.single import check_single
from shoal.crypto.secagg.terms import RoundTerms
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.shuffler.stores.rounds import StoredVector, VerifiedVector
from shoal.shuffler.stores.sqlite import single_store
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.storage.checksums import row_digest
from tests.worlds.rounds.helper_mode import TERMS, WINDOW, World, device


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(RoundTerms, "served", lambda *_: TERMS)
    return World.make(tmp_path)


Between = Callable[[], Awaitable[None]]


class Watching:
    """An analyzer that notes what it is shown and given. It refuses the first SumSingles, and the
    first ``breaks`` deliveries after their last byte; ``between``: what happens while it has the
    first delivery.
    """

    def __init__(self, world: World, between: Between | None = None, breaks: int = 0) -> None:
        self.world, self.between, self.breaks = world, between, breaks
        self.shown, self.pads = list[frozenset[bytes]](), list[tuple[int, bytes]]()

    async def send(self, method: str, messages: AsyncIterator[bytes]) -> bytes:
        chunks = [message async for message in messages]
        if method == "DeliverSingles":
            data = b"".join(pairwise_pb2.SinglesChunk.FromString(chunk).data for chunk in chunks)
            size = TERMS.sealed_vector_bytes
            self.shown.append(frozenset(data[at : at + size] for at in range(0, len(data), size)))
            if len(self.shown) == 1 and self.between is not None:
                await self.between()
            if len(self.shown) <= self.breaks:
                raise ShoalError(Kind.UNAVAILABLE, "away")
        else:
            parts = [pairwise_pb2.PadsChunk.FromString(chunk) for chunk in chunks]
            self.pads.append((parts[0].devices, b"".join(part.data for part in parts)))
            if len(self.pads) == 1:
                raise ShoalError(Kind.OVERLOADED, "not now")

        async def again() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return await self.world.send(method, again())

    async def conclude(self, *, restart: bool) -> int:
        """Until it returns; how many attempts failed."""
        for failed in range(4):
            try:
                assert await self.world.conclude(self.send) == ""
            except ShoalError as error:
                if error.kind not in {Kind.OVERLOADED, Kind.UNAVAILABLE}:
                    raise
                if restart:
                    self.world.restart_shuffler()
                    self.world.analyzer = World.collector(self.world.sums)
            else:
                return failed
        raise AssertionError("it never ends")


async def refused(attempt: Awaitable[Any]) -> Kind:
    with pytest.raises(ShoalError) as error:
        await attempt
    return error.value.kind


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("breaks", [0, 1])
async def test_a_vector_that_comes_while_the_others_are_shown_is_late(
    world: World, breaks: int, *, restart: bool
) -> None:
    """The clock stepped back after the window's end, so that steps are let in: while the rows are
    at the analyzer, and between attempts. Who is stored is told so again. Planted: no
    ``take_no_more`` -> pads of [1, 2, 3], then of [1, 2, 3, 4]; with ``closed`` in memory alone,
    and with it set after the delivery -> two sets are shown.
    """
    (first, _), (late, _), others = device(1), device(4), [device(n)[0] for n in (2, 3)]
    for one in (first, *others):
        await world.arrive(one)

    async def between() -> None:
        assert await refused(world.arrive(late)) is Kind.WINDOW_CLOSED
        assert (await world.arrive(first)).phase == pairwise_pb2.PHASE_DONE

    analyzer = Watching(world, between, breaks)
    assert await analyzer.conclude(restart=restart) == 1 + breaks
    await between()
    assert len(analyzer.shown) == 2 + breaks
    assert set(analyzer.shown) == {frozenset(one.sealed for one in (first, *others))}
    assert len(analyzer.pads) == 2
    assert len(set(analyzer.pads)) == 1
    (found,) = world.sums.of(TERMS.task_id, 0)
    assert (found.survivors, set(found.vector.tolist())) == (3, {6})
    assert await world.singles.fate(WINDOW) == (0, 3)
    assert world.store.count(WINDOW) == 3


async def test_a_vector_that_is_being_checked_at_the_deadline_is_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock is wrong here. Planted: no ``take_no_more`` -> it is told COUNTED, and in no sum."""
    for number in (1, 2, 3):
        await world.arrive(device(number)[0])
    late, _ = device(4)
    entered, go = threading.Event(), threading.Event()

    def slow(*given: Any) -> bytes:
        entered.set()
        assert go.wait(30)
        return check_single(*given)

    monkeypatch.setattr("shoal.shuffler.rounds.singles.check_single", slow)
    arriving = asyncio.create_task(world.arrive(late))
    assert await asyncio.to_thread(entered.wait, 30)

    async def between() -> None:
        go.set()
        assert await refused(arriving) is Kind.WINDOW_CLOSED

    analyzer = Watching(world, between)
    assert await analyzer.conclude(restart=False) == 1
    assert [devices for devices, _ in analyzer.pads] == [3, 3]
    assert await world.singles.fate(WINDOW) == (0, 3)


@pytest.mark.parametrize("came", [0, 2])
async def test_a_window_without_a_sum_takes_none_either(world: World, came: int) -> None:
    """It was empty, or too few came: also after a restart, and once it is forgotten. Planted: a row
    for windows with vectors alone -> the empty one stores it; ``forget`` without its memory -> a
    forgotten one does, and nothing destroys it any more.
    """
    for number in range(came):
        await world.arrive(device(number)[0])
    assert await world.conclude() == ("too few vectors came" if came else "")
    assert world.calls == []
    late = [device(n)[0] for n in (7, 8, 9)]
    assert await refused(world.arrive(late[0])) is Kind.WINDOW_CLOSED
    world.restart_shuffler()
    assert await refused(world.arrive(late[1])) is Kind.WINDOW_CLOSED
    await world.singles.forget(await world.claim())
    assert await refused(world.arrive(late[2])) is Kind.WINDOW_CLOSED
    assert world.singles._staged == 0
    assert (world.store.windows(), list(world.folder.glob("singles-*"))) == (set(), [])


async def test_what_the_disk_damages_between_two_attempts_gets_no_pad(world: World) -> None:
    """No pad was given yet: it is left out, told and counted, and the others have their sum. Never
    one more than was shown before. Planted: no look for damage when a delivery is repeated -> the
    window waits for ever.
    """
    for number in range(1, 6):
        await world.arrive(device(number)[0])
    (vectors,) = world.folder.glob("singles-*.vectors")

    async def between() -> None:
        data = bytearray(vectors.read_bytes())
        data[TERMS.sealed_vector_bytes + 9] ^= 1  # of device 2
        vectors.write_bytes(data)

    analyzer = Watching(world, between, breaks=1)
    assert await analyzer.conclude(restart=True) == 2
    assert analyzer.shown[1] == analyzer.shown[2] < analyzer.shown[0]
    assert len(set(analyzer.pads)) == 1
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {1 + 3 + 4 + 5}
    assert await world.singles.fate(WINDOW) == (1, 4)


def arrival(number: int) -> VerifiedVector:
    return VerifiedVector(
        WINDOW, 10, bytes([number]) * 32, bytes([number]) * 64, bytes([number]) * 32
    )


def test_only_what_was_shown_is_decided(tmp_path: Path) -> None:
    """Not a window that takes vectors, not fewer rows, not others in their places; and nothing is
    decided by a refused attempt.

    Planted: ``fix`` by the table's rows alone -> each of the three decides; the count compared in
    place of the rows -> the last does.
    """
    with closing(SingleStore(tmp_path)) as store:
        assert store.add([arrival(n) for n in range(4)]) == [None] * 4
        shown = store.rows(WINDOW)
        with pytest.raises(ShoalError) as error:
            store.fix(WINDOW, shown, ())
        assert error.value.kind is Kind.CONFLICT
        store.take_no_more(WINDOW)
        store.take_no_more(WINDOW)
        assert store.add([arrival(9), arrival(2)]) == [Kind.WINDOW_CLOSED, None]
        other = StoredVector(shown[0].place, b"x" * 32, shown[0].digest)
        for wrong in (shown[:3], [*shown, StoredVector(4, bytes(32))], [other, *shown[1:]]):
            with pytest.raises(ShoalError) as error:
                store.fix(WINDOW, wrong, ())
            assert error.value.kind is Kind.MISMATCH
            assert not store.is_fixed(WINDOW)
        store.fix(WINDOW, shown, [shown[1].place])
        assert store.rows(WINDOW) == [row for row in shown if row is not shown[1]]


@pytest.mark.parametrize("fixed", [0, 1])
def test_a_file_of_before_is_taken_over(tmp_path: Path, fixed: int) -> None:
    """A decided window is closed, another one is not, and both rows keep their marks. Planted: no
    new mark -> the window is lost.
    """
    with closing(SingleStore(tmp_path)) as store:
        assert store.add([arrival(n) for n in range(4)]) == [None] * 4
    with closing(sqlite3.connect(tmp_path / single_store.FILE_NAME, isolation_level=None)) as db:
        db.create_function("row_digest", -1, row_digest)
        db.execute("ALTER TABLE single_window DROP COLUMN closed")
        mark = (
            f"fixed = {fixed}, decided = {4 * fixed}, row_check = row_digest(task_id, window, "
            f"secret, {fixed}, count, {4 * fixed})"
        )
        db.execute(f"UPDATE single_window SET {mark}")  # noqa: S608 - constants
        db.execute("PRAGMA user_version = 3")
    with closing(SingleStore(tmp_path)) as store:
        assert (store.damage(), store.is_fixed(WINDOW), len(store.rows(WINDOW))) == (
            [],
            fixed == 1,
            4,
        )
        assert store.add([arrival(9)]) == [Kind.WINDOW_CLOSED if fixed else None]
