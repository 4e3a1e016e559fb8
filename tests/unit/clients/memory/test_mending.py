"""A damaged memory is mended by one command, after its owner's word: what is put in never gives
budget back or answers again.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.memory.commitments import SeenTask
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.marks import OUTBOX
from shoal.clients.memory.mending import examine, mend
from shoal.clients.memory.rounds_ledger import SqliteLedger
from shoal.clients.owner.book import verified
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from tests.sizes import size
from tests.unit.clients.memory.test_damaged_memory import columns_of, flipped
from tests.unit.clients.memory.test_setback import Device
from tests.worlds.devices.clients import WEEK
from tests.worlds.devices.owner import Owner

OTHER = TaskId(b"o" * 32)
WEEKS = 3


def opened(device: Device) -> Memory:
    return Memory(device.config, device.clock, SYSTEM)


async def lived(folder: Path) -> tuple[Device, dict[str, bytes], int]:
    """Three weeks of a memoized task, answers of its owner, another task: rows in every table, and
    what was spent.
    """
    device = Device(folder, memoized=True)
    purposes = device.config.policy.purposes
    device.config = replace(device.config, policy=replace(device.config.policy, purposes={}))
    async with device.agent() as agent:
        await agent.consent(device.world.task.purpose, "allowed")
        await agent.consent("advertising", "denied")
        await agent.accept("visits", 3.5)
    for value in range(WEEKS):
        await device.weeks(1, value)
    device.transport.down = True
    await device.weeks(1, 1)
    device.transport.down = False
    memory = opened(device)
    with memory.transaction():
        memory.commitments.choose(device.world.task_id, b"chosen")
        memory.commitments.see(SeenTask(OTHER, "other", "other", b"a" * 32, 5, "accepted"))
        memory.enter(LedgerEvent.STRUCK, OTHER, "other")
        memory.outbox.strike(OTHER)
        memory.commitments.problem(Digest(b"p" * 32), memory.commitments.entries()[0].entry)
        memory.commitments.lose(1_000.0, 7)
        memory.enter(
            LedgerEvent.SET_BACK,
            details={
                "epsilon_lost": 7e-9,
                "answered_before_s": 1_000.0,
                "epsilon_spent_after": memory.commitments.spent() / 1e9,
            },
        )
    spent = memory.commitments.spent()
    assert verified(memory.store).count > 8
    memory.close()
    device.config = replace(device.config, policy=replace(device.config.policy, purposes=purposes))
    return device, files_of(folder), spent


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def restored(device: Device, files: dict[str, bytes]) -> None:
    for old in device.folder.iterdir():
        if old.is_file():
            old.unlink()
    for name, data in files.items():
        (device.folder / name).write_bytes(data)
        (device.folder / name).chmod(0o600)


async def test_whatever_is_damaged_is_mended(tmp_path: Path) -> None:
    """Every column of every table: nothing is damaged afterwards, chain and tables fit, no window
    is free, no budget comes back, no consent appears.

    Planted: charges left out that the ledger has, sums not added up anew, a lost "denied"
    forgotten: each is seen.
    """
    device, files, spent = await lived(tmp_path)
    task_id = device.world.task_id
    columns = [
        each for each in columns_of(device.store, lambda _: opened(device)) if each[0] in OUTBOX
    ]
    assert {table for table, _ in columns} == set(OUTBOX)
    for table, column in columns[:: size(2, 1)]:
        restored(device, files)
        flipped(device.store, table, column)
        memory = opened(device)
        found = mend(memory, None, device.clock.now())
        where = f"{table}.{column}"
        assert found is not None, where
        assert found.account is not None, where
        assert {damage.table for damage in found.damages} == {table}, where
        assert memory.store.marked.damages() == [], where
        verified(memory.store)
        assert memory.commitments.spent() >= spent, where
        assert all(
            memory.commitments.charged(task_id, window) is not None for window in range(WEEKS)
        ), where
        assert all(
            memory.outbox.find(task_id, window) is not None for window in range(WEEKS + 1)
        ), where
        assert memory.commitments.consents().get("advertising") == "denied", where
        assert (
            memory.commitments.consents().get(device.world.task.purpose) == "allowed"
            or table == "consent"
        ), where
        assert memory.outbox.struck(OTHER), where
        assert memory.outbox.struck(task_id) == (table == "schedule"), where
        assert [row.entry.event for row in memory.commitments.entries()].count(
            LedgerEvent.MENDED
        ) == 1, where
        assert mend(memory, None, device.clock.now()) is None, where
        memory.close()


async def test_a_mended_device_goes_on(tmp_path: Path) -> None:
    """The next window is answered, and paid for as before; the damaged one is not answered again.
    Planted: the charge left out.
    """
    device = Device(tmp_path)
    await device.weeks(2)
    flipped(device.store, "charge", "window")
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report("visits", 3)
        assert refused.value.kind is Kind.MISMATCH
    assert len(device.far.frames) == 2
    memory = opened(device)
    assert mend(memory, None, device.clock.now()) is not None
    memory.close()
    await device.weeks(1)
    assert len(device.far.frames) == 3
    memory = opened(device)
    assert [charge.window for charge in memory.commitments.charges()] in ([1, 0, 2], [0, 1, 2])
    verified(memory.store)
    memory.close()


async def test_without_a_ledger_the_worst_is_taken(tmp_path: Path) -> None:
    """As much as was noted is spent, and every window that has begun is answered. Planted: the
    noted sum not looked at.
    """
    device = Device(tmp_path)
    await device.weeks(3)
    memory = opened(device)
    spent, noted = memory.commitments.spent(), memory.noted()
    memory.close()
    assert noted is not None
    assert noted.spent is not None
    flipped(device.store, "charge", "nano")
    flipped(device.store, "ledger", "body")
    memory = opened(device)
    found = examine(memory, None)
    assert found is not None
    assert found.account is None
    assert "does not verify" in "\n".join(found.words())
    mend(memory, None, device.clock.now())
    assert memory.commitments.spent() == max(noted.spent, spent)
    assert memory.store.marked.damages() == []
    memory.close()
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report("visits", 3)
        assert refused.value.kind is Kind.CONFLICT
    device.clock.advance(WEEK)
    await device.weeks(1)
    assert len(device.far.frames) == 4


async def test_nothing_is_forgotten_while_nobody_knows_what_was_agreed(tmp_path: Path) -> None:
    """A damaged consent sends nothing and deletes nothing. Planted: ``not_agreed`` without a look
    at the damage -> kept answers go.
    """
    device, files, _ = await lived(tmp_path)
    restored(device, files)
    flipped(device.store, "consent", "answer", f"purpose = '{device.world.task.purpose}'")
    sent = len(device.far.frames)
    async with device.agent() as agent:
        await agent.flush()
        with pytest.raises(ShoalError) as refused:
            await agent.report("visits", 2)
        assert refused.value.kind is Kind.REFUSED
        assert "damaged" in refused.value.message
        assert agent.memory.commitments.latest(device.world.task_id) is not None
        assert len(agent.memory.outbox.records(queued=True)) == 1
        await agent.consent(device.world.task.purpose, "allowed")  # given again, it counts
        assert (await agent.report("visits", 2)).window == 4
    assert len(device.far.frames) > sent


def test_the_owners_word(owner: Owner) -> None:
    """Said first, asked for, and then whole; ``status`` and ``budget`` name it and work. Planted:
    mended without the option.
    """
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    flipped(owner.outbox, "charge", "nano")
    for arguments in ((), ("--yes",), ("--confirm-damage",)):  # nobody is there to be asked
        code, out, err = owner.run("memory", *arguments)
        assert (code, err.count("\n")) == (1, 1)
        assert "outbox.db: table charge" in out
    for command in ("status", "budget"):
        code, out, _ = owner.run(command)
        assert code == 0
        assert "damaged: outbox.db: table charge" in out
    assert owner.run("memory", "--confirm-damage", "--json")[0] == 1
    code, out, _ = owner.run("memory", "--confirm-damage", "--yes", "--json")
    assert (code, json.loads(out)["confirmed"], len(json.loads(out)["damaged"])) == (0, True, 1)
    assert owner.json("memory")["damaged"] == []
    assert owner.json("ledger")["entries"][-1]["event"] == "mended"


def test_a_damaged_answer_of_a_round_is_dropped(tmp_path: Path) -> None:
    """Then the window's charge says that it was answered. Planted: the file of rounds not looked
    at.
    """
    device = Device(tmp_path)
    ledger = SqliteLedger(device.config.ledger)
    ledger.masked(OTHER, 0, Digest(b"r" * 32), Digest(b"s" * 32))
    ledger.close()
    flipped(device.config.ledger, "answer", "sealed")
    memory, ledger = opened(device), SqliteLedger(device.config.ledger)
    found = mend(memory, ledger, 1.0)
    assert found is not None
    assert [damage.table for damage in found.damages] == ["answer"]
    assert ledger.answers() == []
    assert ledger.file.marked.damages() == []
    with sqlite3.connect(device.config.ledger) as database:
        assert database.execute("SELECT count(*) FROM answer").fetchone() == (0,)
    ledger.close()
    memory.close()
