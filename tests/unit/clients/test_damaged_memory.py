"""A device's disk that changes what was written: nothing damaged is sent or answered from, and its owner is told in one line."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.clients.core import State
from shoal.clients.ledger import Event
from shoal.errors import Kind, ShoalError
from tests.conformance.outbox import device as memories
from tests.owner_world import Owner, owner_at
from tests.runner_world import HOUR, Place
from tests.sizes import size


def flipped(path: Path, table: str, column: str) -> None:
    """One bit in the middle of a stored value, as a disk would: no trigger sees it."""
    database = sqlite3.connect(path)
    for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    key = "used" if table == "memo" else "rowid"
    rowid, value = database.execute(f"SELECT {key}, {column} FROM {table} LIMIT 1").fetchone()  # noqa: S608 - constants
    changed = value ^ 1 if isinstance(value, int) else value[:30] + bytes([value[30] ^ 4]) + value[31:]
    database.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (changed, rowid))  # noqa: S608 - constants
    database.commit()
    database.close()


@pytest.mark.parametrize("column", ["frame", "ack_key", "expires_s"])
async def test_a_damaged_report_is_never_sent(place: Place, caplog: pytest.LogCaptureFixture, column: str) -> None:
    """It ends, named in ledger and log; its charge stays; the others are sent, and its window is not answered again.

    Planted: ``load`` without a look at the mark -> the changed frame is sent.
    """
    place.transport.down = True
    for _ in range(3):
        await place.runner().once(place.config)
        place.clock.advance(HOUR)
    flipped(place.folder / "outbox.db", "report", column)
    place.clock.time -= HOUR  # still in the last window
    place.transport.down = False
    with caplog.at_level(logging.ERROR, "shoal"):
        await place.runner().once(place.config)
    assert place.windows() == [1, 2]
    assert len(place.far.frames) == 2
    ends = {entry.window: (entry.details["state"], entry.details["kind"]) for entry in place.entries(Event.OUTCOME)}
    assert ends[0][1] == "MISMATCH"
    assert ends[0][0] in (State.REFUSED.value, State.UNKNOWN.value)
    assert ends[1] == ends[2] == ("acked", None)
    assert len(place.entries(Event.REPORTED)) == 3


DEVICE: dict[str, tuple[str, str, Callable[[memories.Device], object]]] = {
    "a charge": ("charge", "nano", lambda device: device.book.charged(memories.TASK, 0)),
    "a charge, in the next answer": ("charge", "nano", lambda device: device.outbox.claim(memories.TASK, 0, lambda: device.make(0))),
    "a kept answer": ("memo", "report", lambda device: device.book.permanent(memories.TASK, 0)),
    "the last answer": ("memo", "report", lambda device: device.book.latest(memories.TASK)),
}


@pytest.mark.parametrize("how", DEVICE)
def test_a_damaged_row_is_not_used(tmp_path: Path, how: str) -> None:
    """Neither a charge nor an answer that is kept. Planted: rows read without their mark -> it counts as it stands."""
    path = tmp_path / "outbox.db"
    device = memories.Device(path)
    with device.book.transaction():
        device.book.charge(memories.TASK, 0, 5, None)
        device.book.remember(memories.TASK, 0, bytes(64))
        device.book.append(memories.entry(0))
    device.store.close()
    table, column, read = DEVICE[how]
    flipped(path, table, column)
    device = memories.Device(path)
    assert "damaged" in memories.error_of(Kind.MISMATCH, lambda: read(device))
    device.store.close()


@pytest.fixture
def owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    return owner_at(tmp_path, capsys)


def test_damaged_pages_are_one_line_and_never_a_second_answer(owner: Owner) -> None:
    """Bytes changed anywhere in the file: every command ends in one line or works, and no window is charged twice.

    Planted: a row that no outbox wrote ends in a traceback (``State`` of a garbled text).
    """
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    whole, rng = owner.outbox.read_bytes(), random.Random("pages")  # noqa: S311 - no secret
    for _ in range(size(5, 300)):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        owner.outbox.write_bytes(bytes(data))
        for suffix in ("-wal", "-shm"):
            owner.outbox.with_name(owner.outbox.name + suffix).unlink(missing_ok=True)
        for command in (("ledger",), ("status",), ("report", "visits", "3", "--queue")):
            code, out, err = owner.run(*command)
            assert code in (0, 1, 2)
            assert len([line for line in err.splitlines() if line.startswith("shoal:")]) <= 1
            if command[0] == "report" and code == 0:
                assert "answered before" in out


def test_a_file_that_is_no_database_says_what_to_do(owner: Owner) -> None:
    """And the head beside it stays: a new memory begins knowing that there was another."""
    owner.remember()
    owner.outbox.write_bytes(b"not a database at all" * 300)
    code, _, err = owner.run("ledger")
    assert (code, err.count("\n")) == (2, 1)
    assert "leave outbox.db.head where it is" in err
    owner.outbox.unlink()
    with pytest.raises(ShoalError):
        memories.Device(owner.outbox).book.charge(memories.TASK, 0, 1, None)
