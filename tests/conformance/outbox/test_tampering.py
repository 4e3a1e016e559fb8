"""Other hands on an agent's file: what was altered, cut off or taken away is found, and stays
found.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shoal.clients.memory.ledger import EMPTY, Stored, chained
from shoal.errors import Kind, ShoalError
from tests.conformance.outbox.device import Device, entry, error_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def altered(path: Path, *statements: str) -> None:
    """Somebody who can write the file: triggers don't stop them."""
    db = sqlite3.connect(path)
    for trigger in ("ledger_grows", "ledger_stays", "ledger_remains"):
        db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET body = x'00' WHERE number = 1",
        "UPDATE ledger SET number = 9 WHERE number = 2",
        "DELETE FROM ledger WHERE number = 2",
        "DELETE FROM ledger",
        "INSERT INTO ledger VALUES (9, x'00', zeroblob(32))",
        "INSERT INTO ledger VALUES (1, x'00', zeroblob(32))",
        "INSERT OR REPLACE INTO ledger VALUES (2, x'00', zeroblob(32))",
        "UPDATE charge SET nano = 0",
        "DELETE FROM charge",
    ],
)
def test_the_tables_only_grow(path: Path, statement: str) -> None:
    """Planted: a trigger left out -> the statement passes."""
    device = Device(path)
    device.claim(0)
    device.claim(1)
    before = (device.commitments.entries(), device.commitments.charges())

    def step() -> None:
        with device.store.write() as db:
            db.execute(statement)

    with pytest.raises(ShoalError):
        step()
    assert (device.commitments.entries(), device.commitments.charges()) == before
    device.store.close()


TAMPERINGS = {
    "altered": (["UPDATE ledger SET body = replace(body, 'visits', 'other ') WHERE number = 3"], 3),
    "hash altered": (["UPDATE ledger SET hash = zeroblob(32) WHERE number = 2"], 2),
    "left out": (["DELETE FROM ledger WHERE number = 2"], 2),
    "closed up": (
        [
            "DELETE FROM ledger WHERE number = 2",
            "UPDATE ledger SET number = number - 1 WHERE number > 2",
        ],
        2,
    ),
    "cut off": (["DELETE FROM ledger WHERE number > 3"], 4),
    "emptied": (["DELETE FROM ledger"], 1),
    "exchanged": (
        [
            "UPDATE ledger SET number = -1 WHERE number = 2",
            "UPDATE ledger SET number = 2 WHERE number = 3",
            "UPDATE ledger SET number = 3 WHERE number = -1",
        ],
        2,
    ),
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_tampering_is_found_and_stays_found(path: Path, how: str) -> None:
    """Also after the device has gone on. Planted: a head that is moved without a look at the old
    one -> "cut off" heals by itself.
    """
    device = Device(path)
    for window in range(5):
        device.claim(window)
    device.store.close()
    statements, first = TAMPERINGS[how]
    altered(
        path,
        *[
            statement.replace("replace(body, 'visits', 'other ')", "x'7b7d'")
            for statement in statements
        ],
    )
    device = Device(path)
    assert f"entry {first} " in error_of(Kind.MISMATCH, device.commitments.verify)
    if device.store.forgetful():  # what was cut is missed by the head: nothing is charged any more
        error_of(Kind.MISMATCH, lambda: device.claim(7))
    else:
        device.claim(7)
    device.store.close()
    device = Device(path)
    assert "does not verify" in error_of(Kind.MISMATCH, device.commitments.verify)
    device.store.close()


def test_a_chain_that_was_made_anew_is_found_by_the_head(path: Path) -> None:
    """Shorter, and in itself whole: only what was noted beside it tells."""
    device = Device(path)
    for window in range(5):
        device.claim(window)
    device.store.close()
    altered(path, "DELETE FROM ledger")
    rows, before = [], EMPTY.digest
    for number in range(1, 4):
        body = entry(number).body()
        before = chained(before, body)
        rows.append(Stored(number, body, before))
    db = sqlite3.connect(path)
    db.executemany(
        "INSERT INTO ledger VALUES (?, ?, ?)", [(row.number, row.body, row.digest) for row in rows]
    )
    db.commit()
    db.close()
    device = Device(path)
    assert "entry 4 " in error_of(Kind.MISMATCH, device.commitments.verify)
    for window in range(10, 14):
        error_of(Kind.MISMATCH, lambda window=window: device.claim(window))  # type: ignore[misc]
        device.commitments.append(entry(window))
    assert "entry 5 " in error_of(Kind.MISMATCH, device.commitments.verify)
    device.store.close()


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\xff\xfe", b"5:zz"])
def test_a_head_that_was_taken_away_is_missed(path: Path, content: bytes | None) -> None:
    """Planted: a missing head is written anew at the start -> cutting the ledger and its head off
    goes unseen.
    """
    device = Device(path)
    device.claim(0)
    device.store.close()
    head = path.with_name("outbox.db.head")
    head.unlink()
    if content is not None:
        head.write_bytes(content)
    device = Device(path)
    assert "outbox.db.head" in error_of(Kind.MISMATCH, device.commitments.verify)
    error_of(Kind.MISMATCH, lambda: device.claim(1))
    assert "outbox.db.head" in error_of(Kind.MISMATCH, device.commitments.verify)
    device.store.close()


def test_a_cut_ledger_gets_no_new_first_head(path: Path) -> None:
    """Everything of the ledger deleted, head and all: the charges still tell that there was one."""
    device = Device(path)
    device.claim(0)
    device.store.close()
    altered(path, "DELETE FROM ledger")
    path.with_name("outbox.db.head").unlink()
    device = Device(path)
    error_of(Kind.MISMATCH, device.commitments.verify)
    device.store.close()
