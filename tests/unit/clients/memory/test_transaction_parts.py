"""Transactions within transactions on a device's file: what is undone alone, and what with all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.conformance.outbox import device as memories

A, B = TaskId(b"a" * 32), TaskId(b"b" * 32)
LIMIT = 10_000


class Failing(Exception):  # noqa: N818 - it stands for any
    """Leaves a part."""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[memories.Device]:
    device = memories.Device(tmp_path / "outbox.db")
    yield device
    device.store.close()


def put(store: AgentStore, purpose: str, *, one_statement: bool = False) -> None:
    with store.write(one_statement=one_statement) as db:
        store.marked.put(db, "consent", purpose, "allowed")


def purposes(store: AgentStore) -> set[str]:
    return {row[0] for row in store.read("SELECT purpose FROM consent")}


def failing_part(store: AgentStore, *inside: str) -> None:
    with suppress(Failing), store.write():
        for purpose in inside:
            put(store, purpose)
        raise Failing


def test_a_part_is_undone_alone_wherever_its_savepoint_stands(device: memories.Device) -> None:
    """Parts that begin where nothing was written in between share a savepoint, and no other.

    Planted: any savepoint shared -> "before" is gone with the part after it.
    """
    store = device.store
    with store.write():
        with store.write():  # makes the savepoint
            failing_part(store, "first")  # shares it
            put(store, "before")
            failing_part(store, "second", "third")  # has its own
            put(store, "after")
        failing_part(store, "fourth")
        put(store, "last")
    assert purposes(store) == {"before", "after", "last"}
    with store.write():
        failing_part(store)
        put(store, "next")
        with suppress(Failing), store.write(), store.write():
            put(store, "two deep")
            raise Failing
    assert purposes(store) == {"before", "after", "last", "next"}


def test_statements_of_a_part_are_few(device: memories.Device) -> None:
    """Planted: a savepoint for every part -> three more of them."""
    store, statements = device.store, list[str]()
    store.connection.set_trace_callback(statements.append)
    with store.write(), store.write(), store.write(), store.write():
        put(store, "a", one_statement=True)
        put(store, "b", one_statement=True)
    store.connection.set_trace_callback(None)
    assert [statement.split()[0] for statement in statements] == [
        "BEGIN",
        "SAVEPOINT",
        "INSERT",
        "INSERT",
        "RELEASE",
        "COMMIT",
    ]


def test_a_part_of_one_statement_that_fails_after_it_takes_all_with_it(
    device: memories.Device,
) -> None:
    """It has no savepoint: nothing less can be undone. Planted: the transaction goes on -> both
    rows are there.
    """
    store = device.store

    def whole() -> None:
        with store.write():
            put(store, "outer")
            with suppress(Failing), store.write(one_statement=True) as db:
                store.marked.put(db, "consent", "inner", "allowed")
                raise Failing

    assert memories.error_of(Kind.OVERLOADED, whole)
    assert purposes(store) == set()
    put(store, "again")
    assert purposes(store) == {"again"}


def test_a_row_is_read_once_until_something_is_written_or_undone(
    device: memories.Device, tmp_path: Path
) -> None:
    """What was read and verified in a transaction is so until it writes, undoes, or ends.

    Planted: kept through a write -> 1 window of 2; through a part that is undone -> 2 of 1;
    through the end -> what another process charged is not seen; read each time -> three statements.
    """
    commitments, statements = device.commitments, list[str]()

    def windows() -> int:
        return commitments.tally(A).windows

    commitments.charge(A, 0, 1, LIMIT)
    other = memories.Device(tmp_path / "outbox.db")
    with commitments.transaction():
        device.store.connection.set_trace_callback(statements.append)
        assert [windows() for _ in range(3)] == [1, 1, 1]
        device.store.connection.set_trace_callback(None)
        assert len(statements) == 1
        commitments.append(LedgerEntry(LedgerEvent.PROBLEM, 0.0))
        with suppress(Failing), commitments.transaction():
            commitments.charge(A, 1, 1, LIMIT)
            assert windows() == 2
            raise Failing
        assert windows() == 1
        commitments.charge(A, 2, 1, LIMIT)
        assert windows() == 2
    other.commitments.charge(A, 3, 1, LIMIT)
    with commitments.transaction():
        assert windows() == 3
    other.commitments.charge(A, 4, 1, LIMIT)
    with suppress(Failing), commitments.transaction():
        assert windows() == 4
        raise Failing
    other.commitments.charge(A, 5, 1, LIMIT)
    assert windows() == 5
    other.store.close()


@pytest.mark.parametrize("undone", [False, True])
def test_every_transaction_looks_at_what_is_noted_anew(
    device: memories.Device, tmp_path: Path, undone: bool
) -> None:
    """A head that is taken away between two of them, or after one that was undone, is missed.

    Planted: kept beyond the end, or beyond what was undone -> charged without a head.
    """
    device.commitments.charge(A, 0, 1, LIMIT)
    with suppress(Failing), device.commitments.transaction():
        assert not device.store.forgetful()
        device.commitments.charge(A, 1, 1, LIMIT)
        if undone:
            raise Failing
    device.store.head_path.rename(tmp_path / "taken")
    assert memories.error_of(Kind.MISMATCH, lambda: device.commitments.charge(A, 2, 1, LIMIT))
    (tmp_path / "taken").rename(device.store.head_path)
    device.commitments.charge(A, 2, 1, LIMIT)
    assert device.commitments.tally(A).windows == (2 if undone else 3)


def test_what_a_transaction_has_read_is_not_shown_to_other_threads(
    device: memories.Device,
) -> None:
    """They wait for its end. Planted: no lock around what is kept -> 1 window, which is undone."""
    commitments, found = device.commitments, list[int]()
    reader = threading.Thread(target=lambda: found.append(commitments.tally(A).windows))
    with suppress(Failing), commitments.transaction():
        commitments.charge(A, 0, 1, LIMIT)
        assert commitments.tally(A).windows == 1
        reader.start()
        reader.join(0.2)
        raise Failing
    reader.join()
    assert found == [0]


def test_a_charge_that_is_undone_is_not_spent(device: memories.Device, tmp_path: Path) -> None:
    """Within the part it is spent, without another look; afterwards it is not.

    Planted: what was charged is kept when a part is undone -> 1,000 spent; kept at the commit ->
    what another process charged is not seen.
    """
    commitments = device.commitments

    def charge_and_fail() -> None:
        with commitments.transaction():
            commitments.charge(A, 0, 1_000, LIMIT)
            assert commitments.spent() == 1_000
            raise Failing

    with commitments.transaction():
        with pytest.raises(Failing):
            charge_and_fail()
        assert commitments.spent() == 0
    commitments.charge(A, 1, 1_000, LIMIT)
    other = memories.Device(tmp_path / "outbox.db")
    other.commitments.charge(B, 1, 2_000, LIMIT)
    other.store.close()
    with commitments.transaction():
        assert commitments.spent() == 3_000
        with pytest.raises(ShoalError):
            commitments.charge(A, 2, 8_000, LIMIT)


def test_what_is_spent_counts_what_came_after_the_charge(device: memories.Device) -> None:
    """Planted: the sum of a charge stands until the transaction ends -> 1,000 of 1,500."""
    commitments = device.commitments
    with commitments.transaction():
        commitments.charge(A, 0, 1_000, LIMIT)
        commitments.lose(0.0, 500)
        assert commitments.spent() == 1_500
        commitments.append(LedgerEntry(LedgerEvent.PROBLEM, 0.0))
        assert commitments.spent() == 1_500
