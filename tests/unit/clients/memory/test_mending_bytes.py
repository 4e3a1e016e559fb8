"""Bits that a disk flips in the file itself, where SQL can't reach: mended wholly, or said not to
be.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shoal.clients.memory.mending import Examination, examine, mend
from shoal.clients.memory.rounds_ledger import SqliteLedger
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from tests.sizes import size
from tests.unit.clients.memory.test_damaged_memory import flipped
from tests.unit.clients.memory.test_mending import OTHER, WEEKS, files_of, lived, opened, restored
from tests.unit.clients.memory.test_setback import Device
from tests.worlds.devices.owner import Owner


def at_rest(path: Path) -> dict[str, int]:
    """Everything in the file itself, none in its log; the first page of each of its tables,
    from 1.
    """
    database = sqlite3.connect(path)
    roots = dict(
        database.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall()
    )
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return roots


def stored(folder: Path) -> dict[str, bytes]:
    return {
        name: data for name, data in files_of(folder).items() if not name.endswith(("-wal", "-shm"))
    }


def told_or_mended(step: Callable[[], Examination | None]) -> Examination | None:
    """What was mended; None: nothing is damaged that counts, or one line says that it can't be
    mended.
    """
    with contextlib.suppress(ShoalError):
        return step()
    return None


async def test_text_that_is_none_any_more_is_mended(tmp_path: Path) -> None:
    """The high bit of a letter: invalid UTF-8, which matches no text that is read. Planted: rows
    deleted by what is read of them.
    """
    device, _, spent = await lived(tmp_path)
    opened(device).close()
    roots, name = at_rest(device.store), device.store.name
    files = stored(tmp_path)
    whole = files[name]
    words = {
        "seen": (b"accepted", b"other"),
        "consent": (b"denied", b"advertising"),
        "report": (b"acked",),
    }
    for table, word in ((table, word) for table, those in words.items() for word in those):
        start = (roots[table] - 1) * 4096
        found = re.search(word, whole[start : start + 4096])
        assert found is not None, (table, word)
        data = bytearray(whole)
        data[start + found.start()] ^= 0x80
        restored(device, {**files, name: bytes(data)})
        memory = opened(device)
        mended = mend(memory, None, device.clock.now())
        assert mended is not None, (table, word)
        assert {damage.table for damage in mended.damages} == {table}
        assert examine(memory, None) is None
        assert memory.commitments.consents().get("advertising") == "denied"
        assert memory.commitments.spent() >= spent
        memory.close()


async def test_a_row_that_names_no_task_any_more_is_mended(tmp_path: Path) -> None:
    """Its task is NULL by the row's own header: all that is kept is forgotten. Planted: the length
    of what is no bytes.
    """
    device, _, spent = await lived(tmp_path)
    opened(device).close()
    start, name = (at_rest(device.store)["memo_key"] - 1) * 4096, device.store.name
    files = stored(tmp_path)
    data = bytearray(files[name])
    # its length, 32 bytes, 32 bytes, 16 bytes
    header = data.index(b"\x04\x4c\x4c\x2c", start, start + 4096)
    data[header : header + 4] = b"\x04\x00\x4c\x6c"  # none, 32 bytes, 48 bytes
    restored(device, {**files, name: bytes(data)})
    memory = opened(device)
    assert mend(memory, None, device.clock.now()) is not None
    assert examine(memory, None) is None
    assert memory.commitments.latest(device.world.task_id) is None
    assert memory.commitments.spent() >= spent
    memory.close()


async def test_a_bit_anywhere_in_a_table_is_mended_or_said_not_to_be(tmp_path: Path) -> None:
    """Headers and order of trees too: nothing is damaged after a mend, no budget comes back, no
    window is free.

    Planted: rows deleted by what is read of them -> hardly anything is mended.
    """
    device, _, spent = await lived(tmp_path)
    opened(device).close()
    roots, name = at_rest(device.store), device.store.name
    files = stored(tmp_path)
    rng = random.Random("outbox")  # noqa: S311 - no secret
    mended = 0
    for table in ("charge", "tally", "seen", "consent", "schedule", "memo_key")[
        :: size(2, 1)
    ] * size(3, 20):
        data = bytearray(files[name])
        at = (roots[table] - 1) * 4096 + rng.choice([rng.randrange(20), rng.randrange(3600, 4096)])
        data[at] ^= 1 << rng.randrange(8)
        restored(device, {**files, name: bytes(data)})
        try:
            memory = opened(device)
        except ShoalError:
            continue
        found = told_or_mended(partial(mend, memory, None, device.clock.now()))
        if found is not None:
            mended += 1
            assert examine(memory, None) is None, at
            assert memory.commitments.spent() >= spent, at
            assert all(
                memory.commitments.charged(device.world.task_id, window) is not None
                for window in range(WEEKS)
            ), at
        memory.close()
    assert mended > 1


def test_a_bit_anywhere_in_the_rounds_is_mended_or_said_not_to_be(tmp_path: Path) -> None:
    """Planted: damaged rows deleted by their key, and no second look -> "mended" where the file is
    still damaged.
    """
    device = Device(tmp_path)
    ledger = SqliteLedger(device.config.ledger)
    for window in range(12):
        ledger.masked(OTHER, window, Digest(b"r" * 32), Digest(b"s" * 32))
    ledger.close()
    opened(device).close()
    page, name = at_rest(device.config.ledger)["answer"], device.config.ledger.name
    files = stored(tmp_path)
    rng = random.Random("rounds")  # noqa: S311 - no secret
    mended = 0
    for _ in range(size(24, 250)):
        data = bytearray(files[name])
        data[(page - 1) * 4096 + rng.choice([rng.randrange(60), rng.randrange(2500, 4096)])] ^= (
            1 << rng.randrange(8)
        )
        restored(device, {**files, name: bytes(data)})
        memory, ledger = opened(device), SqliteLedger(device.config.ledger)
        if told_or_mended(partial(mend, memory, ledger, 1.0)) is not None:
            mended += 1
            assert examine(memory, ledger) is None
        ledger.close()
        memory.close()
    assert mended >= size(8, 100)


async def test_a_running_agent_sees_that_its_memory_was_mended(tmp_path: Path) -> None:
    """It waits for no hour. Planted: a look that found damage is kept as one that found none."""
    device = Device(tmp_path)
    await device.weeks(2)
    flipped(device.store, "charge", "window")
    running = opened(device)
    with pytest.raises(ShoalError) as refused:
        running.commitments.charged(device.world.task_id, 5)
    assert refused.value.kind is Kind.MISMATCH
    command = opened(device)
    assert mend(command, None, device.clock.now()) is not None
    command.close()
    assert running.commitments.charged(device.world.task_id, 5) is None
    running.close()


def test_what_was_mended_is_told_where_the_memory_was_set_back_too(owner: Owner) -> None:
    """Planted: ``damaged`` left out of what is printed for machines."""
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    at_rest(owner.outbox)
    kept = owner.outbox.read_bytes()
    owner.remember()
    at_rest(owner.outbox)
    owner.outbox.write_bytes(kept)
    flipped(owner.outbox, "charge", "nano")
    code, out, _ = owner.run("memory", "--confirm-damage", "--confirm-set-back", "--yes", "--json")
    told = json.loads(out)
    assert (code, told["set_back"], told["confirmed"], len(told["damaged"])) == (0, True, True, 1)
