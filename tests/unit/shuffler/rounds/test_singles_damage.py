"""Helper mode at a shuffler whose disk loses or changes what it holds: counted, and never another
set of rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from shoal.crypto.secagg.terms import RoundTerms
from shoal.errors import Kind, ShoalError
from tests.worlds.rounds.helper_mode import TERMS, WINDOW, World, device


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(RoundTerms, "served", lambda *_: TERMS)
    return World.make(tmp_path)


def spoil(world: World, statement: str) -> None:
    """Somebody's disk, while the service is down."""
    world.store.close()
    with closing(sqlite3.connect(world.folder / "singles.db", isolation_level=None)) as db:
        db.execute(statement)
    world.restart_shuffler()


async def test_what_the_disk_lost_is_counted(world: World) -> None:
    """A vector, a row of it, and one whose damage comes while the service runs; also after one more
    restart.

    Planted: the count kept in memory alone, rows read without their digest: each is seen (2 for 3;
    a sum that does not fit).
    """
    for number in range(1, 8):
        await world.arrive(device(number)[0])
    (vectors,) = world.folder.glob("singles-*.vectors")
    size = TERMS.sealed_vector_bytes
    data = bytearray(vectors.read_bytes())
    data[2 * size + 9] ^= 1
    vectors.write_bytes(data)
    spoil(world, "UPDATE single SET seed = zeroblob(32) WHERE place = 4")
    with closing(sqlite3.connect(world.folder / "singles.db", isolation_level=None)) as db:
        db.execute("UPDATE single SET digest = zeroblob(32) WHERE place = 5")
    assert await world.conclude() == ""
    (found,) = world.sums.of(TERMS.task_id, 0)
    assert (found.survivors, set(found.vector.tolist())) == (4, {1 + 2 + 4 + 7})
    assert await world.singles.fate(WINDOW) == (3, 4)
    world.restart_shuffler()
    assert await world.conclude() == ""
    assert await world.singles.fate(WINDOW) == (3, 4)
    assert world.store.damage()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM single WHERE place = 1",
        "UPDATE single SET seed = zeroblob(32) WHERE place = 1",
        "UPDATE single_window SET fixed = 0",
    ],
)
async def test_a_decided_set_that_lost_a_row_is_not_summed_again(
    world: World, statement: str
) -> None:
    """Its pads went out, the analyzer has no sum: those of the other rows would be the difference
    of two. Restored, it is summed.

    Planted: ``decided`` not compared -> the pads of three go out after those of four.
    """
    for number in (1, 2, 3, 4):
        await world.arrive(device(number)[0])

    async def without_sum(method: str, messages: AsyncIterator[bytes]) -> bytes:
        if method == "SumSingles":
            raise ShoalError(Kind.UNAVAILABLE, "gone")
        return await world.send(method, messages)

    with pytest.raises(ShoalError):
        await world.conclude(without_sum)
    world.store.close()
    copy = {path: path.read_bytes() for path in world.folder.iterdir() if "singles" in path.name}
    spoil(world, statement)
    world.calls.clear()
    if "single_window" not in statement:  # else nothing of the window is left
        with pytest.raises(ShoalError) as error:
            await world.conclude()
        assert error.value.kind is Kind.MISMATCH
    else:
        assert await world.conclude() in ("", "too few vectors came")
    assert "SumSingles" not in world.calls
    world.store.close()
    for path in world.folder.iterdir():
        if "singles" in path.name:
            path.unlink()
    for path, content in copy.items():
        path.write_bytes(content)
    world.restart_shuffler()
    assert await world.conclude() == ""
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {10}


@pytest.mark.parametrize("change", ["secret = zeroblob(32)", "fixed = 0", "count = 9"])
async def test_a_window_that_changed_on_disk_takes_and_decides_nothing(
    world: World, change: str
) -> None:
    """While the service runs. Planted: the row not looked at -> under another secret the device
    comes in twice, and the row, checked anew with its next count, looks whole at every start.
    """
    for number in (1, 2, 3, 4):
        await world.arrive(device(number)[0])
    with closing(sqlite3.connect(world.folder / "singles.db", isolation_level=None)) as db:
        # constants
        db.execute(f"UPDATE single_window SET {change}, row_check = zeroblob(16)")  # noqa: S608
    for number in (4, 5):
        with pytest.raises(ShoalError) as refused:
            await world.arrive(device(number)[0])
        assert refused.value.kind is Kind.INTERNAL
    with pytest.raises(ShoalError) as error:
        world.store.fix(WINDOW, (), ())
    assert error.value.kind is Kind.MISMATCH
    with pytest.raises(ShoalError) as error:
        world.store.take_no_more(WINDOW)
    assert error.value.kind is Kind.MISMATCH
    assert world.store.count(WINDOW) == 4
