"""A sum of charges that is gone: its task's budget is not given to the others, and what was noted
beside the file stays.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.conformance.outbox import device as memories

A, B, C = TaskId(b"a" * 32), TaskId(b"b" * 32), TaskId(b"c" * 32)
LIMIT = 6_000
SPENT = 6_000
GONE = "DELETE FROM tally WHERE windows = 4"


def lived(path: Path) -> None:
    """Six charges of three tasks: all of the budget."""
    device = memories.Device(path)
    for task, windows in ((A, 1), (B, 1), (C, 4)):
        for window in range(windows):
            with device.commitments.transaction():
                device.commitments.charge(task, window, 1_000, LIMIT)
                device.commitments.append(memories.entry())
    assert device.commitments.spent() == SPENT
    device.store.close()


def changed(path: Path, script: str) -> None:
    with sqlite3.connect(path) as database:
        for (trigger,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.executescript(script)
    database.close()


def cut(path: Path) -> None:
    """One bit of a page: it has two cells instead of three."""
    database = sqlite3.connect(path)
    (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tally'").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    data = bytearray(path.read_bytes())
    at = (page - 1) * size + 4
    assert data[at - 1 : at + 1] == b"\x00\x03"
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["row", "bit"])
def test_a_sum_that_is_gone_gives_nothing_back(tmp_path: Path, how: str) -> None:
    """In place of 6,000 the sums said 2,000, and four more windows of another task were charged.
    Planted: charges no witness.
    """
    path = tmp_path / "outbox.db"
    lived(path)
    if how == "bit":
        cut(path)
    else:
        changed(path, GONE)
    device = memories.Device(path)
    noted = device.store.noted()
    assert noted is not None
    assert noted.spent is not None
    assert noted.spent >= SPENT
    assert device.commitments.spent() >= SPENT
    assert "tally" in {one.table for one in device.store.marked.damages()}
    memories.error_of(Kind.MISMATCH, lambda: device.commitments.tally(C))
    for task in (A, B):
        memories.error_of(
            Kind.REFUSED,
            lambda task=task: device.commitments.charge(task, 10, 1_000, LIMIT),  # type: ignore[misc]
        )
    device.commitments.append(memories.entry())
    device.store.close()
    device = memories.Device(path)
    after = device.store.noted()
    assert after is not None
    assert after.head != noted.head
    assert (after.spent or 0) >= noted.spent
    device.store.close()


def test_what_is_noted_is_never_made_smaller(tmp_path: Path) -> None:
    """A sum is gone with its charges, or a loss: nothing in the file says so. Planted: the head
    noted with what is left.
    """
    path = tmp_path / "outbox.db"
    lived(path)
    device = memories.Device(path)
    device.commitments.lose(1.0, 5_000)
    device.commitments.append(memories.entry())
    device.store.close()
    changed(
        path,
        "DELETE FROM lost; DELETE FROM charge WHERE task_id = (SELECT task_id FROM tally WHERE "
        "windows = 4)",
    )
    changed(path, GONE)
    device = memories.Device(path)
    device.commitments.append(memories.entry())
    noted = device.store.noted()
    assert noted is not None
    assert noted.head.count == 8
    assert (noted.spent or 0) >= SPENT + 5_000
    device.store.close()


def undone(device: memories.Device, window: int) -> None:
    before = device.commitments.spent()
    with device.commitments.transaction():
        device.commitments.charge(C, window, 100, None)
        assert device.commitments.spent() == before + 100
        raise ShoalError(Kind.INVALID, "undone")


def test_charges_of_others_and_undone_ones_are_no_damage(tmp_path: Path) -> None:
    """Two processes charge in turn, and a charge is undone. Planted: undone charges kept as
    counted, and no closer look -> damage.
    """
    path = tmp_path / "outbox.db"
    one, two = memories.Device(path), memories.Device(path)
    for window in range(3):
        one.commitments.charge(A, window, 5, None)
        two.commitments.charge(B, window, 7, None)
        assert one.commitments.spent() == two.commitments.spent() == 12 * (window + 1)
        memories.error_of(Kind.INVALID, lambda window=window: undone(one, window))  # type: ignore[misc]
        assert one.store.sums.look() == two.store.sums.look() == (12 * (window + 1), None)
    one.store.close()
    two.store.close()
